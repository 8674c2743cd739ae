"""A broker whose journal a database has: a change of it fails in every way, at every place (see `sim_database`).

Whatever was confirmed is there for the broker that takes over, on a disk of its own; and for the first one again.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Final

import pytest

from tests.simulation.crash_work import attempt, config, rehearsed, restarted
from tests.simulation.random_work import play
from tests.simulation.world import SCALE
from tests.support.sim_broker import SimBroker
from tests.support.sim_database import FAULTS, PASSING, SimDatabase
from tests.support.sim_files import SimFiles

#: Of so many places one is tried for each fault, another one for each.
STRIDE: Final = max(1, 5 // SCALE)


@cache
def changes() -> int:
    """How many changes of the database the workload needs."""
    shared = SimDatabase(1)
    rehearsed(config(retained=False), shared)
    return shared.changes


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_every_change(fault: str) -> None:
    for at in range(1 + FAULTS.index(fault) % STRIDE, changes() + 1, STRIDE):
        shared = SimDatabase(at)
        shared.plan(at, fault)
        disk = SimFiles(at)
        oracle = attempt(disk, config(retained=False), shared)
        assert shared.faults == 1
        if fault in PASSING:
            undecided = Counter(len(places) for places in oracle.places.values())
            assert undecided.keys() == {1}, f"{fault} at change {at} ended the workload"
        shared.reachable = True
        restarted(SimFiles(at), config(retained=False), oracle, shared)
        disk.crash()
        again = SimBroker(config(retained=False), files=disk, seed=2, shared=shared)
        oracle.check(again)


@pytest.mark.parametrize("seed", range(6 * SCALE))
def test_a_random_workload(seed: int) -> None:
    play(seed, shared=SimDatabase(seed, fault_rate=0.1))
