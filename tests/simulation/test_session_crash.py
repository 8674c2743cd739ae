"""The power goes, or the disk fails or is full, at every operation of a workload of sessions and retained messages.

Each step of the workload is one entry of the journal.  So after a restart the broker is either as it was when the last
step was confirmed, or as the step under way would have left it: sessions with their definitions, what is in flight
under which packet id, the packet ids that are owed, the messages on the queues, the retained ones.  A run without
faults says how it is after each step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

import pytest

from broker.engine.model.errors import EngineError
from store.errors import JournalError
from tests.broker.engine.engine_harness import Bench, EngineBroker
from tests.simulation.session_work import State, Workload, config, state
from tests.simulation.world import SCALE, check_accounts
from tests.support.sim_files import Crash, Fault, SimFiles, power_cuts

#: Each operation is tried with so many disks that lose different things.
DISKS: Final = SCALE


def attempt(files: SimFiles, told: Callable[[int], None] = lambda done: None) -> int:
    """The workload as far as it gets: how many steps were confirmed; `told` of each."""
    done = 0
    with suppress(Crash, JournalError, EngineError):
        bench = Bench(running=EngineBroker(config(), files=files))
        work = Workload(bench)
        for step in work.steps:
            step()
            bench.run()
            if not bench.broker.confirms:
                break
            done += 1
            told(done)
    return done


@cache
def rehearsed() -> tuple[SimFiles, list[State]]:
    """The disk of a run without faults, and how the broker is before each step and at the end."""
    files = SimFiles(1)
    bench = Bench(running=EngineBroker(config(), files=files))
    work = Workload(bench)
    found = [state(bench)]
    for step in work.steps:
        step()
        bench.run()
        found.append(state(bench))
    assert bench.engine.cleaner.messages, "something was copied forward"
    return files, found


def check(files: SimFiles, done: int) -> None:
    """The next run is as the last confirmed step left things, or as the one under way would have."""
    bench = Bench(running=EngineBroker(config(), files=files, seed=1))
    possible = rehearsed()[1][done : done + 2]
    found = state(bench)
    assert found in possible
    if files.operations % 4 == 0:
        check_accounts(bench.broker)
        assert state(bench.restart()) == found


def test_the_workload_does_what_it_is_for() -> None:
    sessions, queues, retained = rehearsed()[1][-1]
    assert isinstance(sessions, dict)
    assert list(sessions) == ["a"]
    definition, parts, inflight, released, received = sessions["a"]
    assert definition == {"text": "new" * 50}
    assert parts == {"second": {"text": "new" * 50}}
    assert (len(inflight), released, received) == (7, [], [7])
    assert retained == {"r.2": b"second"}
    assert queues


@pytest.mark.parametrize("disk", range(DISKS))
def test_crash_at_every_operation(disk: int) -> None:
    running, confirmed = SimFiles(1), [0]
    with power_cuts(running, lambda: confirmed[-1]) as moments:
        attempt(running, confirmed.append)
    for at, (before, done) in enumerate(moments):
        files = before.fork(disk * 1_000_003 + at)
        files.crash()
        check(files, done)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_disk_that_fails_at_every_operation(fault: Fault, sticky: bool) -> None:
    for at in rehearsed()[0].hit_by(fault)[::3]:
        files = SimFiles(at)
        files.plan(at, fault, sticky=sticky)
        done = attempt(files)
        assert files.faults > 0
        files.heal()
        files.crash()
        check(files, done)
