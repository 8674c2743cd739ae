"""Crashes and faults at every operation of a mixed workload, against the states that were noted."""

from __future__ import annotations

import pytest

from store.errors import JournalError
from tests.store.workload import Oracle, Script, Station, reopened
from tests.support.sim_files import Crash, Fault, SimFiles, power_cuts

COMMITS = 60


def run(files: SimFiles, seed: int) -> Oracle:
    """Open, work, close; the oracle knows what was confirmed when it ended, however it ended."""
    station = None
    try:
        station = Station(files)
        Script(seed).run(station, COMMITS)
        station.journal.close()
    except (Crash, JournalError):
        pass
    return station.oracle if station is not None else Oracle()


def moments(seed: int) -> list[tuple[SimFiles, Oracle]]:
    """The disk, and what was noted, before each operation of a run and at its end: one run for all."""
    files = SimFiles(seed)
    station: Station | None = None
    with power_cuts(files, lambda: station.oracle.copy() if station is not None else Oracle()) as found:
        station = Station(files)
        Script(seed).run(station, COMMITS)
        station.journal.close()
    return found


def operations(seed: int, fault: Fault, kind: str = "") -> list[int]:
    """The disk operations of a run without faults that such a fault can hit; of one kind, or all."""
    files = SimFiles(seed)
    oracle = run(files, seed)
    hit = [at for at in files.hit_by(fault) if files.history[at - 1].startswith(f"{kind} " if kind else "")]
    assert reopened(files, oracle).verdict.closed
    return hit


def test_the_workload_does_what_it_is_for() -> None:
    files = SimFiles(1)
    run(files, 1)
    done = {line.split()[0] for line in files.history}
    assert {"create", "write", "allocate", "sync", "truncate", "rename", "remove", "sync_dir"} <= done
    numbers = [int(path[-18:-8]) for path in files.paths() if path.endswith(".journal")]
    assert numbers[0] == 2, "the eternal message holds its segment"
    assert numbers[1] > 4, "and no other: later ones are trimmed before it"


@pytest.mark.parametrize("seed", range(1))  # more: tests/simulation/test_torture.py
def test_crash_at_every_operation(seed: int) -> None:
    for at, (before, oracle) in enumerate(moments(seed)):
        files = before.fork(seed * 1_000_003 + at)
        files.crash()
        station = reopened(files, oracle)
        Script(at).run(station, 5)
        files.crash()
        reopened(files, station.oracle)


@pytest.mark.parametrize("seed", range(1))
def test_crash_within_recovery(seed: int) -> None:
    for at, (before, oracle) in enumerate(moments(seed)[::7]):
        for again in range(1, 40, 3):
            files = before.fork(seed * 1_000_003 + at * 101 + again)
            files.crash()
            files.plan(again, Fault.CRASH)
            try:
                Station(files)
            except Crash:
                files.crash()
            else:
                files.crash(1.0)
            reopened(files, oracle)


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.EMFILE, Fault.ENOMEM, Fault.SHORT])
def test_fault_at_every_operation(fault: Fault, sticky: bool) -> None:
    seed = 5
    for at in operations(seed, fault):
        files = SimFiles(at)
        files.plan(at, fault, sticky=sticky)
        oracle = run(files, seed)
        assert files.faults > 0
        files.heal()
        files.crash()
        reopened(files, oracle)


def test_a_sync_that_fails_once_is_never_trusted_again() -> None:
    seed = 7
    failed = 0
    for at in operations(seed, Fault.EIO, "sync"):
        files = SimFiles(at)
        files.plan(at, Fault.EIO)
        station = None
        try:
            station = Station(files)
            Script(seed).run(station, COMMITS)
        except JournalError:
            continue
        if not station.failures:  # the sync is one of the end
            continue
        assert files.history[at - 1].startswith("sync ")
        failed += 1
        confirmed = station.journal.durable
        assert len(station.failures) == 1
        operations_then = files.operations
        station.new_queue("after the failure")
        station.journal.commit()
        station.step()
        assert station.journal.durable == confirmed, "nothing is confirmed after a failure"
        assert files.operations == operations_then, "nothing is written after a failure"
        files.crash()
        reopened(files, station.oracle)
    assert failed > 20


def test_the_disk_fills_and_empties() -> None:
    """A full disk refuses stores and accepts removals; when there is room again it accepts everything."""
    for capacity in range(20_000, 60_000, 1_500):
        files = SimFiles(capacity, capacity=capacity)
        station = Station(files)
        script = Script(11)
        script.run(station, 150)
        assert station.writer.error is None, f"{capacity}: {station.writer.error}"
        full = script.refused
        files.capacity = None
        station.now += 1_000_000
        queue = station.new_queue("room")
        for _ in range(3):
            station.commit()
            station.step()
            try:
                station.send([queue], [bytes(3000)])
            except JournalError:
                assert full
        station.send([queue], [bytes(3000)])
        station.commit()
        station.step()
        station.journal.close()
        reopened(files, station.oracle)
