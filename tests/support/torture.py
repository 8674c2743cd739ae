"""Torture: a workload runs once, and at each operation of its disk, copies of that disk lose power.

A scene is a workload with its random choices, all from one number.  Before every operation of its disk the disk is
copied several times; each copy loses power (see `sim_files`: what was not synced is kept, lost or torn, sector by
sector and name by name), recovers, and must be in the state that the scene's oracle gives for that moment.  One copy is
a point.  Some copies lose power again while they recover.

    journal   random records on a real journal with small segments: routing, removals, counts, moves in one entry,
              definitions, cleaning of segments, with retention (limited, too) or without
    broker    a whole broker, codec to codec: transactions, dead letters, expiry, redelivery, subscriptions, retries,
              moves, a purge, with cleaning, with retention or without
    paging    the same with addresses that page everything
    session   sessions and retained messages, copied forward by cleaning
    pair      a whole broker whose journal is in a database: some changes of it fail in the ways of
              `sim_database`, another broker takes over on a disk of its own, and then the first one, after a power loss
    fault     the journal again: an operation fails (`FAULTS_OF_A_DISK`; once or from then on), then the power

A failure is reported with what repeats it: the scene, its number, the operation and the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from broker.config import Config
from store.errors import JournalError
from store.retention import RetentionSettings
from tests.broker.engine.engine_harness import Bench, EngineBroker
from tests.simulation import crash_work, session_work
from tests.simulation.world import check_accounts
from tests.store.workload import Oracle, Script, Station, reopened
from tests.support.sim_broker import SimBroker
from tests.support.sim_database import FAULTS, SimDatabase
from tests.support.sim_files import Crash, Fault, SimFiles

#: A power loss during a recovery comes within this many of its operations.
RECOVERY_OPERATIONS: Final = 30

#: One copy in this many goes on working after its recovery, and loses power a second time.
WORKS_ON: Final = 16

#: What operations of the `fault` scene fail with.
FAULTS_OF_A_DISK: Final = (Fault.EIO, Fault.ENOSPC, Fault.EMFILE, Fault.ENFILE, Fault.ENOMEM, Fault.SHORT)

_RETENTIONS: Final = (
    RetentionSettings(),
    RetentionSettings(enabled=True),
    RetentionSettings(enabled=True, bytes_max=12_000),
    RetentionSettings(enabled=True, age_days=0),
)


class Wrong(AssertionError):
    """A point in a wrong state; the text says how to repeat it."""


class Scene:
    """The base of the scenes.  `disks`: copies before each operation; `points` and `operations` count.

    `short`: as little work as shows the scene's kinds of operations.
    """

    name = ""

    def __init__(self, number: int, disks: int, *, short: bool = False) -> None:
        self.short = short
        self.number = number
        self.disks = disks
        self.points = 0
        self.operations = 0
        self.random = Random(f"{self.name} {number}")
        self.files = SimFiles(number)

    def play(self) -> None:
        """Run the workload; raises Wrong."""
        self.files.before_step = self._before_step
        self.run()
        self.files.before_step = None

    def run(self) -> None:
        """Run the workload, on `files`."""
        raise NotImplementedError

    def check(self, disk: SimFiles, copy: int) -> None:
        """Check the state of a disk that lost power; any exception means that it is wrong."""
        raise NotImplementedError

    def _before_step(self) -> None:
        self.operations += 1
        for copy in range(self.disks):
            self.point(self.files.fork(self.number * 1_000_003 + self.operations * 101 + copy), copy)

    def point(self, disk: SimFiles, copy: int) -> None:
        """Let this copy lose power, and check it."""
        disk.crash()
        try:
            self.check(disk, copy)
        except Exception as wrong:
            done = disk.history[-5:]
            raise Wrong(
                f"{self.name} {self.number}: operation {self.operations}, copy {copy}: {wrong!r}; the copy's last"
                f" operations were {done}; to repeat it: --scene {self.name} --number {self.number}"
            ) from wrong
        self.points += 1


class JournalScene(Scene):
    """See the module."""

    name = "journal"
    station: Station | None = None

    def run(self) -> None:
        retention = self.random.choice(_RETENTIONS)
        self.station = station = Station(self.files, retention=retention)
        Script(self.number).run(station, 20 if self.short else self.random.choice((20, 60, 90)))
        station.journal.close()

    @property
    def oracle(self) -> Oracle:
        """The oracle at this moment."""
        return self.station.oracle if self.station is not None else Oracle()

    def check(self, disk: SimFiles, copy: int) -> None:
        tick = self.points % WORKS_ON
        if tick == 1:
            disk.plan(disk.random.randrange(1, RECOVERY_OPERATIONS), Fault.CRASH)
            with suppress(Crash):
                Station(disk)
            disk.crash()
        station = reopened(disk, self.oracle, start=tick < 2)
        if tick == 0:
            Script(self.points).run(station, 5)
            disk.crash()
            reopened(disk, station.oracle, start=False)


class FaultScene(JournalScene):
    """See the module: each point is a run of its own, since a fault changes everything after it."""

    name = "fault"

    def play(self) -> None:
        kind = self.random.choice(FAULTS_OF_A_DISK)
        sticky = self.random.random() < 0.3
        commits = self.random.choice((15, 30))
        measured = SimFiles(self.number)
        self.files = measured
        self._attempt(commits)
        for _ in range(self.disks * 10):
            self.files = disk = SimFiles(self.number)
            self.operations = self.random.randrange(1, measured.operations + 1)
            disk.plan(self.operations, kind, sticky=sticky)
            self._attempt(commits)
            disk.heal()
            self.point(disk, 0)

    def _attempt(self, commits: int) -> None:
        self.station = None
        with suppress(JournalError):
            self.station = Station(self.files)
            Script(self.number).run(self.station, commits)
            self.station.journal.close()


class BrokerScene(Scene):
    """See the module."""

    name = "broker"

    def __init__(self, number: int, disks: int, *, short: bool = False) -> None:
        super().__init__(number, disks, short=short)
        config = self.settings(retained=bool(number % 2))
        journal = config.journal.model_copy(update={"segment_size": self.random.choice((6 << 10, 8 << 10, 20 << 10))})
        self.config: Config = config.model_copy(update={"journal": journal})
        self.oracle = crash_work.Oracle()

    def settings(self, *, retained: bool) -> Config:
        """Return the configuration, except for the size of segments."""
        return crash_work.config(retained=retained)

    def run(self) -> None:
        broker = SimBroker(self.config, files=self.files)
        crash_work.Workload(broker, self.oracle).run()
        broker.shut_down()

    def check(self, disk: SimFiles, copy: int) -> None:
        tick = self.points % WORKS_ON
        if tick == 1:
            disk.plan(disk.random.randrange(1, RECOVERY_OPERATIONS), Fault.CRASH)
            with suppress(Crash):
                SimBroker(self.config, files=disk)
            disk.crash()
        broker = SimBroker(self.config, files=disk, seed=1)
        self.oracle.check(broker)
        if tick == 0:
            if self.config.journal.retention.enabled:
                check_accounts(broker)
            broker.connect().confirmed("/queue/orders", b"after")
            again = broker.restart()
            assert b"after" in {m.body for m, _ in again.engine.messages.browse(again.engine.queue("orders"))}


class PagingScene(BrokerScene):
    """See the module."""

    name = "paging"

    def settings(self, *, retained: bool) -> Config:
        """See BrokerScene."""
        return crash_work.crashing(retained=retained)


class PairScene(Scene):
    """See the module: each point is a run of its own, since a fault changes everything after it."""

    name = "pair"

    def play(self) -> None:
        config = crash_work.config(retained=False)  # retention is local: one broker's kept segments are not another's
        measured = SimDatabase(self.number)
        crash_work.attempt(self.files, config, measured)
        for _ in range(self.disks * 10):
            faults = [self.random.choice(("", *FAULTS)) for _ in range(self.random.choice((1, 1, 2, 3)))]
            self.operations = self.random.randrange(1, measured.changes + 1)
            shared = SimDatabase(self.number, fault_rate=self.random.choice((0.0, 0.0, 0.1)))
            shared.plan(self.operations, *faults)
            disk = SimFiles(self.number)
            try:
                oracle = crash_work.attempt(disk, config, shared)
                self._take_over(shared, disk, config, oracle)
            except Exception as wrong:
                raise Wrong(
                    f"{self.name} {self.number}: {faults} from change {self.operations}: {wrong!r}; to repeat it:"
                    f" --scene {self.name} --number {self.number}"
                ) from wrong
            self.points += 1

    def _take_over(self, shared: SimDatabase, disk: SimFiles, config: Config, oracle: crash_work.Oracle) -> None:
        """Start another broker, on an empty disk; then the first one again, on its disk after the power loss."""
        shared.reachable = True
        shared.fault_rate = 0.0
        shared.plan(0, "")
        crash_work.restarted(SimFiles(self.number), config, oracle, shared)
        disk.crash()
        again = SimBroker(config, files=disk, seed=2, shared=shared)
        oracle.check(again)
        again.connect().confirmed("/queue/orders", b"after")


class SessionScene(Scene):
    """See the module."""

    name = "session"
    _states: list[session_work.State] | None = None

    def __init__(self, number: int, disks: int, *, short: bool = False) -> None:
        super().__init__(number, disks, short=short)
        self.done = 0
        if SessionScene._states is None:
            SessionScene._states = self._learn()

    def run(self) -> None:
        self._work(lambda _: None)

    def _learn(self) -> list[session_work.State]:
        """Return the broker's state before each step and at the end, without faults."""
        found: list[session_work.State] = []
        self._work(lambda bench: found.append(session_work.state(bench)))
        self.files = SimFiles(self.number)
        self.done = 0
        return found

    def _work(self, told: Callable[[Bench], None]) -> None:
        bench = Bench(running=EngineBroker(session_work.config(), files=self.files))
        told(bench)
        for step in session_work.Workload(bench).steps:
            step()
            bench.run()
            self.done += 1
            told(bench)

    def check(self, disk: SimFiles, copy: int) -> None:
        assert SessionScene._states is not None
        bench = Bench(running=EngineBroker(session_work.config(), files=disk, seed=1))
        assert session_work.state(bench) in SessionScene._states[self.done : self.done + 2]


SCENES: Final[dict[str, type[Scene]]] = {
    scene.name: scene for scene in (JournalScene, FaultScene, BrokerScene, PagingScene, SessionScene, PairScene)
}


def torture(
    points: int,
    seed: int,
    *,
    scenes: tuple[str, ...] = tuple(SCENES),
    disks: int = 3,
    short: bool = False,
    tell: Callable[[str, int], None] = lambda name, points: None,
) -> dict[str, int]:
    """Play scenes until enough points were tried; returns how many of each.  Raises Wrong.

    `short`: journals of a few entries, which cost least a point.
    """
    random = Random(seed)
    tried = dict.fromkeys(scenes, 0)
    while sum(tried.values()) < points:
        for name in scenes:
            scene = SCENES[name](random.getrandbits(31), disks, short=short)
            scene.play()
            tried[name] += scene.points
            tell(name, scene.points)
    return tried
