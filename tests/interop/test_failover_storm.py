"""The storm of failovers, short; `make failover-storm` is the long one."""

from __future__ import annotations

from pathlib import Path
from secrets import randbits

import pytest

from tests.support.failover_storm import FAULTS, rage
from tests.support.postgresql import PostgreSQL

#: A short one, in ms: all that waits for a lease to end waits for this one.
LEASE_MS = 2_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_pair_that_fails_in_every_way(tmp_path: Path, postgresql: PostgreSQL) -> None:
    seed = randbits(32)
    print(f"python -m tests.failover_storm --rounds 1 --lease {LEASE_MS} --seed {seed}")  # shown when it fails
    storm = rage(tmp_path, postgresql, dict.fromkeys(FAULTS, 1), seed=seed, lease_ms=LEASE_MS, audit=False)
    assert all(len(seconds) == 1 for seconds in storm.seconds.values())
    assert min(storm.figures.consumed, storm.figures.dead) > 0, storm.figures
