"""Those who connect and never log in, in small; `make strangers` has the figures for 2,000 and 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.daemon import running
from tests.support.strangers import BEGINNINGS, besiege, cost, settings

#: What somebody may cost who has not logged in.
STRANGER_BYTES_MAX = 16 << 10
BROKERS = 4


@pytest.mark.parametrize("acceptor", [name for name in BEGINNINGS if name != "secure"])
def test_a_stranger_who_has_sent_all_that_he_may_costs_little(tmp_path: Path, acceptor: str) -> None:
    """CVE-2022-23913, CVE-2021-4040: memory before the login.

    The allocator's chance adds to it, never takes away: the least of several brokers counts.
    """
    costs: list[int] = []
    while len(costs) < BROKERS and min(costs, default=STRANGER_BYTES_MAX + 1) > STRANGER_BYTES_MAX:
        place = tmp_path / str(len(costs))
        place.mkdir()
        with running(place, settings(Authority(place / "ca"), timeout="5min"), users={"bob": "secret"}) as broker:
            costs.append(cost(broker, acceptor, 300, full=True))
    assert min(costs) <= STRANGER_BYTES_MAX, costs


def test_clients_come_in_among_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with running(tmp_path, settings(authority), users={"bob": "secret"}) as broker:
        figures = besiege(broker, authority, slow=200, aborted=300)
    assert figures.logins >= 2
    slowest = max(figures.slowest_login, figures.slowest_secure_login)
    assert slowest < 5, "a second on a machine that does nothing else"
