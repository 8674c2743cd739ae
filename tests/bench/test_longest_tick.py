"""No tick takes much more than 20 ms of CPU: some of the cases of `bench.stalls`, with as few messages as tell.

Without steps each would take 50 to 400 ms.  Other load makes CPU time longer, too: the shortest of three counts, and
twice the 20 ms are allowed.
"""

from __future__ import annotations

from typing import Final

import pytest

from bench.stalls import IN_PROCESS_CASES

#: The longest tick allowed, and the most that a message of another client may wait, in ms of CPU.
TICK_MS: Final = 40
WAIT_MS: Final = 120

CASES: Final = {
    "returns": 100_000,
    "deletion": 100_000,
    "selected": 50_000,
    "last_value": 20_000,
    "reload": 5_000,
    "rollback": 20_000,
    "rejected": 2_000,
    "expired": 2_000,
    "met": 2_000,
    "revoked": 60_000,
    "sessions_expired": 6_000,
    "leaving": 1,
    "returning": 1,
    "replaced": 1,
    "begun_anew": 1,
    "stomp_leaving": 1,
    "amqp_leaving": 1,
    "retained_expired": 10_000,
    "browsed": 200_000,
    "address_deleted": 20_000,
    "commit_each": 20_000,
    "retained_matched": 1_000,
    "fan_out": 10_000,
    "refused": 50_000,
    "converted": 50_000,
}


@pytest.mark.parametrize("case", CASES)
def test_no_tick_is_long(case: str) -> None:
    seen = []
    for _ in range(3):
        longest = IN_PROCESS_CASES[case](CASES[case])
        if longest.ms <= TICK_MS and longest.wait <= WAIT_MS:
            return
        seen.append(str(longest))
    pytest.fail(f"{case}, {CASES[case]} messages: " + "; ".join(seen))
