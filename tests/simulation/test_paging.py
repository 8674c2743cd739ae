"""The random workload with addresses that page early, and disks that fail under one that pages everything.

That the power goes at every disk operation of the latter is tried by tests.support.torture.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.crash_work import crashing, fail_at, rehearsed
from tests.simulation.random_work import PAGING, play
from tests.simulation.world import SCALE
from tests.support.sim_files import Fault

SEEDS: Final = range(12 * SCALE)

#: Of the disk operations, each so-manieth fails in a test of its own; all of them in longer runs.
STRIDE: Final = max(1, 5 // SCALE)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_workload_that_pages(seed: int) -> None:
    play(seed, PAGING)


def operations(fault: Fault) -> list[int]:
    """The disk operations of the workload that such a fault can hit."""
    files, _ = rehearsed(crashing(retained=False))
    assert any(line.startswith("read_range") for line in files.history), "it reads back what it paged"
    return files.hit_by(fault)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_disk_that_fails_at_every_operation_of_paging(fault: Fault, sticky: bool) -> None:
    fail_at(operations(fault)[::STRIDE], crashing(retained=False), fault, sticky=sticky)
