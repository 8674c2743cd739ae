"""A whole broker without sockets, threads or clocks: codec to codec, over a simulated disk, under virtual time.

    broker = SimBroker(seed=7)
    client = broker.connect()
    client.send("/queue/orders", b"hello", persistent="true", receipt="1")
    assert client.take("RECEIPT")

After each action of a client, the broker turns until nothing is left to do; `advance` moves the time, and the broker
wakes whenever a real one would.  With `lazy_disk` the writer works only on request (`step`), so that a test can look at
a state that is not yet durable.  With `users` (name and password, each in the role `amq`) all other logins are refused.
An exception that costs a connection fails the test, unless it has asked for a `tolerant` broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from random import Random
from typing import ClassVar, Final

from broker.config import AddressSetting, Config, load
from broker.daemon.accepting import Accepting
from broker.daemon.wiring import Broker, Environment, assemble, configured_limits, file_log, recover
from broker.engine.engine import Engine
from broker.engine.model.notes import noting
from broker.sessions.login import Peer
from broker.sessions.session import Session
from broker.sessions.tick import Tick
from store.errors import LogUnknown
from store.files import Files
from store.log import Log
from store.replicated.database import Doubtful, Unavailable
from store.replicated.following import Copying
from store.replicated.log import ReplicatedLog
from store.replicated.owner import LogOwner
from store.writer import InlineWriter
from tests.support.links import Link
from tests.support.sim_database import SimDatabase
from tests.support.sim_files import SimFiles
from tests.support.sim_gate import sim_gate
from tests.support.stomp_client import StompClient

START: Final = 1_780_000_000_000

#: The log codes for unexpected exceptions.
FAULTS: Final = ("broker.error", "connection.failed")

#: Turns after which a broker that still has work counts as spinning.
TURNS_MAX: Final = 10_000


#: How often a change in a database is tried before the lease counts as over.
TRIES: Final = 20

#: Bytes of a segment, the fewest that can be configured: the disk is in memory, and each start prepares two.
SEGMENT_BYTES: Final = 4 << 20


@cache
def _shipped() -> Config:
    shipped = load(None)
    return shipped.model_copy(update={"journal": shipped.journal.model_copy(update={"segment_size": SEGMENT_BYTES})})


def configured(*settings: dict[str, object], **sections: object) -> Config:
    """Return the shipped configuration with `SEGMENT_BYTES`, these address settings on top, and sections replaced.

    The keys of settings are those of the file.
    """
    shipped = _shipped()
    added = tuple(AddressSetting.model_validate(setting) for setting in settings)
    return shipped.model_copy(update={"address_settings": shipped.address_settings + added, **sections})


def unswept(config: Config) -> Config:
    """Return the configuration without the scans for what nobody uses, every 30 s: days pass in a few ticks."""
    return config.model_copy(update={"broker": config.broker.model_copy(update={"address_queue_scan_period": -1})})


class SimBroker:
    """One run of a broker; `engine_limits` override fields of the engine's limits.

    `small_steps`: what is long work for thousands of messages is so for two, and a tick has the budget for a few.

    Start another one on the same `files` for a restart.  `shared`: the database with its journal; the disk then has a
    copy, and the broker started last owns it.  `disk`: a real one instead, for code that reads its files.
    """

    small_steps: ClassVar[bool] = False

    def __init__(
        self,
        config: Config | None = None,
        *,
        files: SimFiles | None = None,
        disk: Files | None = None,
        seed: int = 0,
        now: int = START,
        lazy_disk: bool = False,
        users: Mapping[str, str] | None = None,
        tolerant: bool = False,
        engine_limits: Mapping[str, int] | None = None,
        shared: SimDatabase | None = None,
    ) -> None:
        self.tolerant = tolerant
        self.config = config or configured()
        self.users = users
        self.engine_limits = engine_limits or {}
        self.files = files if files is not None else SimFiles(seed)
        self.seed = seed
        self.now = now
        self.jumped = 0
        self.reports: list[tuple[str, dict[str, str | int]]] = []
        self.failure: Exception | None = None
        self._lazy = lazy_disk
        self._clients: list[SimPeer] = []
        #: Called after each tick.
        self.after_tick: Callable[[], None] = lambda: None
        self._woken = False
        self._connections = 0
        outside = Environment(
            files=disk or self.files,
            wall_ms=lambda: self.now,
            monotonic=lambda: (self.now - self.jumped) / 1000,
            random=Random(seed),
            report=self._report,
            memory_bytes=1 << 30,
        )
        self.shared = shared
        log = None if shared is None else self._replicated(shared, outside)
        limited = replace(configured_limits(self.config, outside.memory_bytes), **self.engine_limits)
        self.parts: Broker = assemble(self.config, outside, self._make_writer, self._wake, limited, log)
        if self.small_steps:
            steps = self.engine._state.steps
            steps.budget, steps.budget_min, steps.deliveries_min, steps.together_max = 24, 8, 8, 1
        report = noting(self._report, self.engine.notes)
        self.gate = sim_gate(self.config, users, report, lambda: self.now)
        self.engine.security.roles_of = self.gate.peers.roles_of
        self.accepting = Accepting(self.config, self.parts.tick, self.gate)
        self.parts.log.open()
        if isinstance(log, ReplicatedLog):
            self._take_over(log)
        self.verdict, self.restored = recover(self.parts, self.config)
        self.parts.tick.enter()
        if self.files.capacity is not None:
            self.parts.disk.start()
        self.restore_sessions()
        self.parts.engine.tasks.go_on(lambda task: None)
        self.run()

    def _replicated(self, shared: SimDatabase, outside: Environment) -> ReplicatedLog:
        self._tries = 0
        self._database = shared.connect()

        def wait() -> None:
            self._tries += 1

        owner = LogOwner(
            self._database,
            monotonic=outside.monotonic,
            wait=wait,
            over=lambda: self._tries > TRIES,
            on_trouble=lambda trouble: None,
        )
        return ReplicatedLog(
            owner,
            lambda bodies: file_log(self.config, outside, elsewhere=bodies),
            now=outside.wall_ms,
            monotonic=outside.monotonic,
        )

    def _take_over(self, log: ReplicatedLog) -> None:
        """Take over the log, after the lease of its owner."""
        assert self.shared is not None
        copying = Copying(self.files, log.copy, self._database)
        name = f"broker {self.seed}"
        self.shared.until = 0
        self.shared.now += 1
        try:
            copying.compare()
            assert self._database.take_lease(name, 1 << 40)
            head = None
            while head is None and self.shared.reachable:
                with suppress(Doubtful, Unavailable):
                    head = self._database.claim(name)
                    if head is None:
                        raise LogUnknown("another broker took the lease")
            log.owner.own(head or self._database.head())
            copying.fetch(log.replicated)
            copying.tidy()
        except Unavailable as unavailable:
            raise LogUnknown(str(unavailable)) from unavailable

    def restore_sessions(self) -> None:
        """Take over the MQTT sessions of an earlier run."""
        self.accepting.mqtt_sessions.restore()

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.parts.engine

    @property
    def tick(self) -> Tick:
        """The tick; enter it before calling a verb of the engine."""
        return self.parts.tick

    def _make_writer(self, log: Log) -> InlineWriter:
        self._writer = InlineWriter(log, self._announce, self._failed)
        return self._writer

    def _announce(self, ticket: int) -> None:
        self.parts.tick.durable(ticket)

    def _failed(self, error: Exception) -> None:
        self.failure = error

    def _report(self, code: str, /, **fields: str | int) -> None:
        self.reports.append((code, fields))
        if code in FAULTS and not self.tolerant:
            raise AssertionError(fields["traceback"])

    def reported(self, code: str) -> list[dict[str, str | int]]:
        """Return the fields of all reports with this code."""
        return [fields for reported, fields in self.reports if reported == code]

    def _wake(self) -> None:
        self._woken = True

    # -- driving ---------------------------------------------------------------------------------------------------

    def enter(self) -> Engine:
        """Begin a tick, in which verbs may be called; `run` ends it."""
        self.parts.tick.enter()
        return self.engine

    def step(self) -> None:
        """Let the disk do its submitted work, and end the ticks that follow."""
        self.write()
        self.end_ticks()

    def hold_disk(self) -> None:
        """Make the writer work only on request from now on, as with `lazy_disk`."""
        self._lazy = True

    def release_disk(self) -> None:
        """Make the writer work by itself from now on."""
        self._lazy = False
        self.run()

    def catch_up(self) -> None:
        """Let a held disk do all submitted work, and all that follows from it."""
        lazy, self._lazy = self._lazy, False
        self.run()
        self._lazy = lazy

    def write(self) -> None:
        """Let the disk work while a tick may be open: the writer announces before the tick's end."""
        self._writer.step()

    def end_ticks(self) -> None:
        """End the tick, and the ticks that follow from it."""
        for _ in range(TURNS_MAX):
            if not self._woken:
                return
            self._woken = False
            self.parts.tick.end()
            self.after_tick()
        raise AssertionError("the broker keeps waking itself")

    def run(self) -> None:
        """Turn, with the disk, until nothing is left to do; what waits for room there is tried once more."""
        tried = False
        for _ in range(TURNS_MAX):
            self.end_ticks()
            if self._lazy or self.failure is not None:
                return
            before = self.parts.journal.durable
            self._writer.step()
            if not self._woken and self.parts.journal.durable == before:
                if tried or self.confirms:
                    return
                tried = True
        raise AssertionError("the broker does not come to rest")

    @property
    def confirms(self) -> bool:
        """Whether everything done is on disk: it has not failed, and nothing waits for room there."""
        return self.failure is None and not self.parts.journal.pending_bytes

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Do something in a tick, and what follows from it."""
        self.tick.enter()
        yield
        self.run()

    def advance(self, ms: int) -> None:
        """Let time pass; the broker wakes whenever something is due."""
        end = self.now + ms
        while True:
            due = self.parts.engine.ticks.next_due()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.parts.tick.enter()
            self.run()
        self.now = end

    def jump(self, ms: int) -> None:
        """Set the wall clock, while no time passes."""
        self.now += ms
        self.jumped += ms
        self.parts.tick.enter()
        self.run()

    # -- beginning and ending --------------------------------------------------------------------------------------

    def number(self) -> int:
        """Return a number for the next client."""
        self._connections += 1
        return self._connections

    def attached(self, client: SimPeer) -> None:
        """Register a client, for the broker's stop."""
        self._clients.append(client)

    def forget(self) -> None:
        """Drop the reports and the closed clients, so that the simulation of a long run does not grow."""
        self.reports.clear()
        self._clients = [client for client in self._clients if not client.closed]

    def connect(self, version: str = "1.2", **headers: str) -> SimClient:
        """Connect a STOMP client."""
        client = SimClient(self, version, self.number())
        self.attached(client)
        return client.connect(**headers)

    def subscriber(self, destination: str, **headers: str) -> SimClient:
        """Connect a STOMP client that subscribes with these headers."""
        client = self.connect()
        client.subscribe(destination, **headers)
        return client

    def restart(self, *, crash: bool = True, keep: float | None = None, lazy_disk: bool = False) -> SimBroker:
        """Start the next run on the same disk, after a shutdown or a power loss (`keep`: see `SimFiles.crash`)."""
        if crash:
            self.files.crash(keep)
        else:
            self.shut_down()
        return type(self)(
            self.config,
            files=self.files,
            seed=self.seed + 1,
            now=self.now,
            lazy_disk=lazy_disk,
            users=self.users,
            engine_limits=self.engine_limits,
            shared=self.shared,
        )

    def shut_down(self, *, moved: bool = False) -> None:
        """Stop cleanly; `moved`: because another broker takes over."""
        self.parts.tick.enter()
        for client in self._clients:
            if not client.closed:
                client.session.shut_down(moved=moved)
                self.parts.tick.touch(client)
        self.run()
        self.parts.tick.end()
        self.parts.journal.close()

    def give_up(self, why: str, *, moved: bool) -> None:
        """Abandon the journal and end all connections, as the daemon does."""
        self.parts.tick.enter()
        self.parts.journal.abandon()
        for client in self._clients:
            self.parts.tick.give_up(client, why, moved=moved)
        self.run()


class SimPeer(Link):
    """A client's end of a perfect wire, and its session's transport; it connects to `acceptor`."""

    def __init__(self, broker: SimBroker, acceptor: str, number: int) -> None:
        self.broker = broker
        self.closed = False
        self.reading = True
        self.stalled = False  # the client does not read
        self._waiting = b""
        self.remote = f"client-{number}"
        make = broker.accepting.sessions(broker.config.messaging_acceptors[acceptor])
        self.session: Session = make(self, number, Peer(self.remote, self.remote))

    # -- the transport ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Deliver the session's bytes to the client, unless it is stalled."""
        if self.closed:
            return
        data = self.session.data_to_send()
        if data and self.stalled:
            self._waiting += data
            self._tell(self.session.write_blocked)
        elif data:
            self._receive(data)
        if self.session.close_expected and not self.stalled:
            self.abort()

    def _receive(self, data: bytes) -> None:
        self.heard(data)
        self._tell(self.session.flushed)

    def _tell(self, call: Callable[[], None]) -> None:
        """Call the session, as a connection does."""
        tick = self.broker.parts.tick
        tick.enter()
        try:
            call()
        except BaseException as error:
            tick.failed(self, error)

    def abort(self) -> None:
        """Cut the connection."""
        if not self.closed:
            self.closed = True
            self.broker.parts.tick.end_connection(self, self.session.connection_lost)

    def pause_reading(self) -> None:
        """Note that the broker stops reading from this client."""
        self.reading = False

    def resume_reading(self) -> None:
        """Note that the broker reads again."""
        self.reading = True

    def unstall(self) -> None:
        """Let the client read the bytes that wait for it."""
        self.stalled = False
        data, self._waiting = self._waiting, b""
        self._receive(data)
        self.broker.run()

    # -- what any client does --------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        """Send bytes to the broker."""
        self._tell(lambda: self.session.receive_data(data))
        self.broker.parts.tick.touch(self)
        self.broker.run()

    def wait(self, enough: Callable[[], object]) -> None:
        """Do nothing: everything has already arrived, and the caller checks whether it is enough."""

    def drop(self) -> None:
        """Break the connection."""
        self.abort()
        self.broker.run()


class SimClient(StompClient, SimPeer):
    """A STOMP client."""

    def __init__(self, broker: SimBroker, version: str, number: int) -> None:
        SimPeer.__init__(self, broker, "stomp", number)
        StompClient.__init__(self, version)
