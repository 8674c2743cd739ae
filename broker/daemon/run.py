"""The daemon: what starts before what, and how it all ends.

    start   lock the data directory, recover the journal, make what the configuration declares, open the acceptors,
            then say READY
    stop    accept no more, let what is in flight become durable, say goodbye to each client, close the journal
    fail    a journal that cannot write ends the process: clients are told why, nothing is confirmed any more
    step    a broker of a pair that may no longer write its journal (another does, or it is told to hand over) lets go
            of its clients and stands by (see `replication`)
    fault   an exception for which no client can be blamed ends it at once (see `sessions.tick`): nothing more is
            written, and the service manager starts it again

Everything runs on one event loop; only the journal's writer has a thread of its own.  Whatever nobody caught, in a
callback or in a task, comes to one place (`_on_uncaught`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from broker import __version__, clock
from broker.config import RELOADED, Config, ConfigError, Reload, rules_of
from broker.console.console import Console
from broker.daemon.accepting import Accepting
from broker.daemon.acceptors import Acceptors
from broker.daemon.announcing import Announcer
from broker.daemon.indexing import Indexing
from broker.daemon.linking import LinkSessions, link_settings, make_dialer
from broker.daemon.machine import this_machine
from broker.daemon.memory import FreeMemory, system_trim
from broker.daemon.redirecting import Flushing
from broker.daemon.standby import Owned
from broker.daemon.standby_server import StandbyServer
from broker.daemon.start_errors import CannotListen, fields
from broker.daemon.systemd import Notifier
from broker.daemon.timer import Timer
from broker.daemon.tracing import start_tracing
from broker.daemon.wiring import Broker, assemble, begin, declare, file_log, recover, settings_table
from broker.engine import Engine, UnknownFormat
from broker.engine.model.errors import EngineError
from broker.log import Log, configure
from broker.management.http import HttpServer
from broker.management.ports import AcceptorState, Replicated
from broker.management.runtime import remove_runtime_file
from broker.management.shared import Shared
from broker.net.dialer import Dialer
from broker.net.runner import LoopRunner
from broker.net.tasks import ESSENTIAL, supervised
from broker.net.tls import TlsUnusable
from broker.reasons.exit_status import ExitStatus
from broker.security.audit_log import AuditLog
from broker.security.policy import users_path
from broker.security.reload import ADMIN, Guard
from broker.security.users_file import UnusableFile
from broker.sessions.links.links import Links
from broker.sessions.login import Gate
from broker.sessions.session import MOVED
from broker.sessions.tick import Tick, described, told
from store.errors import (
    CopyAhead,
    Corrupt,
    DatabaseUnfit,
    DirectoryLocked,
    JournalError,
    LogFenced,
    LogUnknown,
    NewerFormat,
)
from store.log import Counters
from store.log import Log as JournalLog
from store.writer import WriterThread

#: How long clients that were told why the broker ends may take to read it, in seconds.
FAREWELL_SECONDS_MAX: Final = 2.0

#: How often an owner looks whether it still is one, in seconds: a small part of the shortest lease.
LEASE_CHECK_SECONDS: Final = 0.1

#: How long clients may take to go when the journal is handed over, in seconds: they are to find the new owner.
HAND_OVER_SECONDS_MAX: Final = 0.5

#: How many leases one that has handed the journal over leaves it to others.
PATIENCE_LEASES: Final = 2

#: What keeps a broker from starting: the status with which it ends, and the code of the log.  The first that fits.
_CANNOT_START: Final[Mapping[type[Exception], tuple[ExitStatus, str]]] = {
    CannotListen: (ExitStatus.FAILED, "start.listen"),
    UnusableFile: (ExitStatus.USAGE, "start.security"),
    EngineError: (ExitStatus.USAGE, "start.refused"),
    DirectoryLocked: (ExitStatus.IN_USE, "start.locked"),
    DatabaseUnfit: (ExitStatus.USAGE, "start.database"),
    CopyAhead: (ExitStatus.DISK_FAILED, "start.database"),
    NewerFormat: (ExitStatus.DISK_FAILED, "start.newer"),
    Corrupt: (ExitStatus.DISK_FAILED, "start.corrupt"),
    JournalError: (ExitStatus.DISK_FAILED, "start.journal"),
    UnknownFormat: (ExitStatus.DISK_FAILED, "start.journal"),
    OSError: (ExitStatus.DISK_FAILED, "start.journal"),
}
_REASONS: Final = tuple(_CANNOT_START)

if TYPE_CHECKING:
    from broker.daemon.replication import Replication


class Daemon:
    """One running broker; also what management sees of it."""

    def __init__(self, config: Config, log: Log, reload: Reload | None, *, patience: int = 0) -> None:
        """`patience`: how long it leaves the journal of a pair to others at first, in ms."""
        self.config = config
        self.version = __version__
        self.started = clock.wall_ms()
        self.data_directory = Path(config.broker.data_directory)
        self._log = log
        self._reload = reload
        self._notifier = Notifier(os.environ, os.getpid())
        self._announcer = Announcer(config, log, self._notifier, self.started)
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._all_durable = asyncio.Event()
        self._full = False  # the disk has no room for messages, and the log says so
        self._unready = ["the journal is being recovered"]
        self._status = ExitStatus.OK
        self._timer = Timer(self._loop, self._next_due, self._enter_tick, self._must)
        self._memory = FreeMemory(system_trim())
        self._cause = ""  # why the process ends, if it is not because it was told to
        self._dialer: Dialer | None = None  # until it is known who may come in
        self._beaten = 0  # how many ticks had ended when the service manager had its last sign of life
        self._loop.set_exception_handler(self._on_uncaught)
        self._outside = replace(this_machine(log), fatal=self._end_at_once)
        self.stepped_down = False  # another may own the journal: this life has ended, the process has not
        self.handed_over = False  # because an operator said so
        self._told_to_stop = False
        self._reload_asked = False  # while it stood by
        self._stalled = False  # the database does not answer
        self._standing_by = False
        self.replication: Replication | None = None
        journal_log: JournalLog = file_log(config, self._outside)
        if config.journal.log == "postgresql":
            from broker.daemon.replication import Replication  # of an extra

            self.replication = Replication(config, self._outside, patience=patience)
            journal_log = self.replication.log
        self._journal_log = journal_log
        self.parts: Broker = self._make_parts()
        self._acceptors = Acceptors(config, self.tick, log)

    def _make_parts(self) -> Broker:
        return assemble(self.config, self._outside, self._make_writer, self._wake, log=self._journal_log)

    def _make_writer(self, journal_log: JournalLog) -> WriterThread:
        """The writer's thread tells the loop, which alone may touch the engine."""

        def announce(ticket: int) -> None:
            self._loop.call_soon_threadsafe(self._durable, ticket)

        def failed(error: Exception) -> None:
            self._loop.call_soon_threadsafe(self._journal_failed, error)

        return WriterThread(journal_log, announce, failed)

    # -- what management sees --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The broker's name."""
        return self.config.broker.name

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.parts.engine

    @property
    def gate(self) -> Gate:
        """Who may come in."""
        return self._guard.gate

    @property
    def links(self) -> Links:
        """The connections to other brokers."""
        return self._links

    @property
    def tick(self) -> Tick:
        """The tick."""
        return self.parts.tick

    @property
    def events(self) -> Mapping[str, int]:
        """How often each code of the log was reported."""
        return self._log.counts

    @property
    def counters(self) -> Counters:
        """The journal's counters."""
        return self.parts.log.counters

    def unready(self) -> list[str]:
        """Why clients should not be sent here, in sentences."""
        reasons = list(self._unready)
        if not self.parts.journal.accepting:
            reasons.append("the disk is full")
        elif self.engine.usage.disk.full:
            reasons.append(f"{self.engine.usage.disk.percent} % of the disk is used: producers wait")
        return reasons

    def acceptors(self) -> Sequence[AcceptorState]:
        """All acceptors that are open."""
        return list(self._acceptors.states(self._guard.certificate_end))

    # -- the loop --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._loop.call_soon(self._must, self._end_tick)

    def _must(self, call: Callable[[], None]) -> None:
        """What the broker cannot go on without, and no client can be blamed for."""
        try:
            call()
        except BaseException as error:
            self.tick.end_process(error)

    def _on_uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception in a callback or a task that nobody caught."""
        error, message = context.get("exception"), str(context["message"])
        if error is None or (isinstance(error, OSError) and not context.get(ESSENTIAL)):
            # Of sockets: no more files, a peer that has gone.
            self._log("broker.error", error=message if error is None else f"{message}: {described(error)}")
        elif context.get(ESSENTIAL):
            self._log("broker.task_died", error=f"{message}: {described(error)}")
            self.tick.end_process(error)
        else:
            self.tick.failed(None, error)

    def _end_at_once(self, error: BaseException) -> None:
        """Nothing else of the process runs any more, not even what would end it in good order."""
        self._log("broker.failed", error=described(error), traceback=told(error))
        self._log.tell_suppressed(now=True)
        self._notifier.status(f"failed: {described(error)}")
        os._exit(ExitStatus.FAULT)

    def _end_tick(self) -> None:
        self.parts.tick.end()
        self._memory.look(self.parts.engine.usage.bytes)
        journal = self.parts.journal
        if self._stop.is_set():
            return
        high = self.config.journal.pending_max_bytes
        if journal.pending_bytes > high:
            self._set_congested(True)
        elif journal.pending_bytes < high // 4 and not self._stalled:
            self._set_congested(False)
        if journal.accepting is self._full:
            self._full = not journal.accepting
            self._log("journal.full" if self._full else "journal.room", pending=journal.pending_bytes)
        self._timer.set()

    def _set_congested(self, congested: bool) -> None:
        self._acceptors.set_congested(congested)
        if self._dialer is not None:
            self._dialer.set_congested(congested)

    def _next_due(self) -> int | None:
        return self.parts.engine.ticks.next_due()

    def _enter_tick(self) -> None:
        self.parts.tick.enter()

    def _durable(self, ticket: int) -> None:
        if self._status == ExitStatus.OK:
            self.parts.tick.durable(ticket)
            if not self.parts.journal.pending_bytes:
                self._all_durable.set()

    def _journal_failed(self, error: Exception) -> None:
        """The disk failed: nothing is confirmed any more, clients are told why, and the process ends."""
        if isinstance(error, LogFenced | LogUnknown):
            self._step_down(str(error))
            return
        self._status = ExitStatus.DISK_FAILED
        self._cause = str(error) if isinstance(error, JournalError) else described(error)
        self._give_up("the broker's disk has failed: unconfirmed messages may be lost", moved=False)
        traceback = "" if isinstance(error, JournalError) else told(error)
        self._log("journal.failed", error=self._cause, **({"traceback": traceback} if traceback else {}))
        self._stop.set()
        self._all_durable.set()

    def _give_up(self, told: str, *, moved: bool) -> None:
        """Nothing is written any more, and nothing confirmed: clients are told so.  `moved`: see Session."""
        self.parts.journal.abandon()
        self._acceptors.close()
        for connection in self._acceptors.connections():
            self.tick.give_up(connection, told, moved=moved)

    def _step_down(self, why: str) -> None:
        """Another broker may own the journal: what is not confirmed will not be, here."""
        if self._status != ExitStatus.OK:
            return
        assert self.replication is not None, "files have one owner"
        self._status = ExitStatus.IN_USE
        self.stepped_down = True
        self.replication.interrupt()
        self._give_up(MOVED, moved=True)
        self._log("replication.stepped_down", cause=why)
        self._stop.set()
        self._all_durable.set()

    def hand_over(self) -> None:
        """Let another broker own the journal: everything in flight is confirmed first."""
        assert self.replication is not None, "files have one owner"
        self.handed_over = True
        self._stop.set()

    def _stop_process(self) -> None:
        """SIGTERM, SIGINT: also one that is stepping down already ends, and has no next life."""
        self._told_to_stop = True
        self._stop.set()

    def _look_at_replication(self) -> None:
        """Step down in time; stop producers while the database does not answer."""
        if self._stop.is_set() or self.replication is None:
            return
        if self.replication.over:
            self._step_down("the lease could not be renewed")
            return
        if self.replication.stalled is not self._stalled:
            self._stalled = self.replication.stalled
            self._log("replication.stalled" if self._stalled else "replication.goes_on")
            self._set_congested(self._stalled)
        self._loop.call_later(LEASE_CHECK_SECONDS, self._must, self._look_at_replication)

    # -- start -----------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Start, serve until told to stop, stop.  Returns the exit status."""
        try:
            self.parts.log.open()
        except _REASONS as error:
            return self._cannot_start(error)
        owned: Owned | None = None
        if self.replication is not None:
            owned = await self._stand_by()
            if owned is None:
                self.parts.log.close()
                return self._stopped(self._status)
        status = self._recover(owned)
        if status == ExitStatus.OK:
            status = self._set_guard()
        if status == ExitStatus.OK:
            end_tracing = start_tracing(self.config, self.engine, self._log)
            status = await self._serve()
            end_tracing()
        if self.replication is not None:
            await self._let_go()
        return self._stopped(status)

    def _stopped(self, status: ExitStatus) -> ExitStatus:
        """Say so, unless it goes on in another life.  Returns the exit status."""
        if self.stepped_down and self._told_to_stop:
            self.stepped_down, status = False, ExitStatus.OK
        if not self.stepped_down:
            self._log("stopped", status=status, **({"cause": self._cause} if self._cause else {}))
        return status

    def _cannot_start(self, error: Exception) -> ExitStatus:
        """Say what keeps the broker from starting.  Its exit status, unless the journal is another broker's by now."""
        if isinstance(error, LogFenced | LogUnknown):
            self._step_down(str(error))
            return self._status
        status, code = next(found for kind, found in _CANNOT_START.items() if isinstance(error, kind))
        self._log(code, **fields(self.data_directory, error))
        return status

    async def _let_go(self) -> None:
        """Let go of the journal of a pair, so that another can own it, or this process in its next life."""
        assert self.replication is not None
        fine = self._status == ExitStatus.OK
        if not fine:  # the writer's thread may wait for the database
            self.replication.interrupt()
        await asyncio.to_thread(self.parts.writer.close)
        await asyncio.to_thread(self.replication.end, give_up=fine)
        self.parts.log.close()
        if self.handed_over and fine:
            self.stepped_down = True

    async def _serve(self) -> ExitStatus:
        """Open the acceptors, serve until told to stop, stop.  Returns the exit status."""
        status = await self._open_acceptors()
        if status != ExitStatus.OK:
            self.parts.journal.close()
            return status
        if not self.stepped_down:
            self._announce()
        if self.replication is not None:
            self._look_at_replication()
        checks = supervised("checks of connections and files", self._check_connections(), essential=True)
        indexing = Indexing(self._outside.files, self.parts.log.directory, self._log)
        indexes = supervised("the indexes of message ids", indexing.run())
        assert self._dialer is not None, "it is made with the guard"
        dialing = supervised("links", self._dialer.run(), essential=True)
        await self._stop.wait()
        dialing.cancel()
        indexing.stop()
        status = await self._shut_down()
        checks.cancel()
        indexes.cancel()
        return status

    async def _stand_by(self) -> Owned | None:
        """Copy the journal of the pair until it is ours; None if that does not come to pass, with a status."""
        assert self.replication is not None
        self._standing_by = True
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop_process)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_later)
        owned: Owned | None = None
        server: StandbyServer | None = None
        try:
            self._acceptors = Acceptors(self.config, Flushing(self._log), self._log)
            server = StandbyServer(self, self.config, self._announcer.create_token(), self._replicated, self._acceptors)
            await server.open()
            self._announcer.write_runtime_file(self._acceptors.addresses)
            self._announcer.standby(self._acceptors.addresses)
            self._notifier.beat(lambda: self._standing_by and not self._stop.is_set())
            owned = await self.replication.stand_by(self._make_parts, self._stop)
        except _REASONS as error:
            self._status = self._cannot_start(error)
        if server is not None:
            await server.close()
        self._standing_by = False
        if owned is None:
            remove_runtime_file(self.data_directory)
        else:
            self.parts = owned.broker
            self._acceptors = Acceptors(self.config, self.tick, self._log)
            self._log("replication.owner", epoch=owned.lease.epoch)
        return owned

    def _reload_later(self) -> None:
        """SIGHUP: there is nothing yet that could be changed."""
        self._reload_asked = True

    def _replicated(self) -> Replicated:
        assert self.replication is not None
        if not self._standing_by:
            return Replicated("owner", self.replication.epoch)
        state = self.replication.standby_state
        return Replicated("standby", state.epoch, state.lag_entries, state.lag_seconds, state.trouble)

    def replicated(self) -> Replicated | None:
        """What this broker is, if its journal is replicated."""
        return None if self.replication is None else self._replicated()

    def _recover(self, owned: Owned | None) -> ExitStatus:
        """Have the journal read, unless a standby has, and go on from there."""
        assert isinstance(self.parts.writer, WriterThread)
        self.parts.writer.start()
        started = clock.monotonic_ms()
        self._notifier.status("recovering the journal")
        self._notifier.extend_timeout(3600)
        gc.collect()
        gc.disable()  # what is restored lives long, and there is no waste in cycles: looking for it takes as long again
        try:
            if owned is None:
                verdict, restored = recover(self.parts, self.config)
            else:
                verdict, restored = owned.verdict, owned.restored
                begin(self.parts, self.config)
        except _REASONS as error:
            return self._cannot_start(error)
        if verdict.torn_bytes:
            self._log("journal.torn_tail", segment=verdict.segment, at=verdict.end, bytes=verdict.torn_bytes)
        self._log(
            "journal.recovered",
            verdict=verdict.state.name.lower(),
            messages=restored.messages,
            queues=restored.queues,
            redelivered=restored.redelivered,
            milliseconds=clock.monotonic_ms() - started,
        )
        gc.freeze()  # nor need the collector look at it later
        gc.enable()
        gc.set_threshold(50_000, 20, 100)
        return ExitStatus.OK

    def _set_guard(self) -> ExitStatus:
        """Who may come in."""
        self._runner = LoopRunner(self.tick)
        try:
            if self.config.security.audit_file is not None:
                self._log.audit = AuditLog(self.config.security.audit_file)
            self._guard = Guard(self.config, self.engine, self._runner, report=self._log, now=clock.monotonic_ms)
            self._links = Links(self.engine, link_settings(self.config))
            self._accepting = Accepting(self.config, self.tick, self._guard.gate)
            self._link_sessions = LinkSessions(self.config, self.tick, self._links, self._accepting.mqtt_sessions)
            self._dialer = make_dialer(self.config, self.tick, self._links, self._link_sessions, self._log)
        except (UnusableFile, TlsUnusable, OSError) as error:
            self._log("start.security", error=str(error))
            self.parts.journal.close()
            return ExitStatus.USAGE
        if self._guard.first_password:
            sys.stdout.write(
                f"The first user is {ADMIN}, the password {self._guard.first_password} (not shown again; "
                "change it with `bartleby user passwd`)\n"
            )
            sys.stdout.flush()
            self._log("security.first_user", user=ADMIN, file=str(users_path(self.config)))
        return ExitStatus.OK

    async def _open_acceptors(self) -> ExitStatus:
        config = self.config
        try:
            accepting = self._accepting
            self.tick.enter()
            self.parts.disk.start()
            accepting.restore()
            self._link_sessions.restore()
            for name, acceptor in config.messaging_acceptors.items():
                await self._acceptors.open(
                    name,
                    accepting.sessions(acceptor),
                    context=self._guard.context(name),
                    left=self._guard.gate.left,
                    served=accepting.served(acceptor),
                )
            token = self._announcer.create_token()
            shared = Shared(self)
            console = Console(self, token, reports=config.broker.audit_reports, shared=shared)
            for name, http_acceptor in config.http_acceptors.items():
                server = HttpServer(
                    self,
                    token,
                    name=name,
                    context=self._guard.context(name),
                    open_metrics=http_acceptor.open_metrics,
                    allowed_hosts=http_acceptor.allowed_hosts,
                    console=console if http_acceptor.console else None,
                    shared=shared,
                )
                await self._acceptors.open_http(name, server)
            self._announcer.write_runtime_file(self._acceptors.addresses)
        except _REASONS as error:
            return self._cannot_start(error)
        return ExitStatus.OK

    def _announce(self) -> None:
        """Listen to signals, and say READY."""
        for number, handler in (
            (signal.SIGTERM, self._stop_process),
            (signal.SIGINT, self._stop_process),
            (signal.SIGHUP, self._on_reload),
        ):
            self._loop.add_signal_handler(number, handler)
        self._unready.clear()
        self._announcer.ready(self._acceptors.addresses)
        self._notifier.beat(lambda: self._status == ExitStatus.OK, self._lives)
        if self._reload_asked:
            self._on_reload()
        self._timer.set()

    def _lives(self) -> bool:
        """Whether a tick has ended since it was asked last, for which one was begun: the writer lives too."""
        since, self._beaten = self._beaten, self.tick.ended
        self.tick.enter()
        return since != self._beaten

    async def _check_connections(self) -> None:
        while True:
            await self._acceptors.check()
            usage = self.engine.usage
            self._memory.rest(usage.bytes, usage.messages, clock.monotonic_ms())
            try:
                self._check_rights()
            except BaseException as error:
                self.tick.failed(None, error)

    def _check_rights(self) -> None:
        gate = self._guard.gate
        if self._guard.look(self.tick.enter) or gate.any_expired(clock.wall_ms()) or gate.any_withdrawn():
            self._expel()

    def _expel(self) -> None:
        """Cut off those whose user, certificate's rule or token is gone."""
        gate, now = self._guard.gate, clock.wall_ms()
        for connection in self._acceptors.connections():
            gone = gate.gone(connection.peer)
            if gone or gate.expired(connection.peer, now):
                self._log("login.revoked" if gone else "login.expired", remote=connection.remote)
                connection.abort()

    # -- reload ----------------------------------------------------------------------------------------------------

    def _on_reload(self) -> None:
        """SIGHUP: addresses, queues, diverts, settings, rules for dead letters, security and log level.

        What contradicts itself is refused as a whole; a queue that contradicts the one that exists is left as it is.
        """
        if self._reload is None:
            return
        self._notifier.reloading()
        self.tick.enter()
        try:
            self._do_reload(self._reload)
        except BaseException as error:
            self._log("reload.failed", error=described(error))
            self.tick.failed(None, error)
        finally:
            self._notifier.ready()

    def _do_reload(self, reload: Reload) -> None:
        try:
            config = reload()
            settings = settings_table(self.config.with_reloaded(config))
            security = self._guard.prepare(self.config.with_reloaded(config))
        except (ConfigError, UnusableFile, ValueError, OSError) as error:
            self._log("reload.refused", error=str(error))
            return
        changed = self.config.changed_sections(config)
        self.tick.enter()
        self.engine.operators.change_settings(settings)
        self._guard.apply(security)
        self._expel()
        self._log.set_level(config.log.level)
        self.config = self.config.with_reloaded(config)
        try:
            declare(self.engine, self.config)
        except EngineError as error:
            self._log("reload.undeclared", error=str(error))
        if "dead-letter-rules" in changed:
            self.engine.dead_letter_rules.use(rules_of(self.config))
        needing = sorted(changed - RELOADED)
        self._log("reload.done", changed=", ".join(sorted(changed)), restart_needed_for=", ".join(needing))

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _shut_down(self) -> ExitStatus:
        self._unready.append("the broker is stopping")
        self._notifier.stopping()
        if self._status == ExitStatus.OK:
            self._log("stopping")
        deadline = self._loop.time() + (
            HAND_OVER_SECONDS_MAX if self.handed_over else self.config.broker.shutdown_timeout / 1000
        )
        self._acceptors.close()
        if self._status == ExitStatus.OK:
            await self._drain(deadline)
        else:
            await self._say_goodbye()
        await self._acceptors.abort()
        if self._dialer is not None:
            self._dialer.abort()
        self._runner.close()
        remove_runtime_file(self.data_directory)
        if self._status != ExitStatus.OK:
            return self._status
        self.parts.tick.end()
        self.parts.journal.close()
        return self._status

    async def _drain(self, deadline: float) -> None:
        """What is in flight becomes durable and is confirmed; then everybody gets a goodbye and time to read it."""
        self._set_congested(True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                self._all_durable.clear()
                self._end_tick()
                if self.parts.journal.pending_bytes:
                    await self._all_durable.wait()
                if self._dialer is not None:
                    self._dialer.shut_down()
                await self._acceptors.say_goodbye(moved=self.handed_over)

    async def _say_goodbye(self) -> None:
        """Clients that were told why the broker ends get a moment to read it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                await self._acceptors.idle()


def run(config: Config, reload: Reload | None = None) -> int:
    """Run a broker in the foreground until it is told to stop.  Returns the exit status."""
    log = configure(config.log.level, config.log.format, sys.stderr)

    async def main() -> int:
        life = config
        patience = 0
        while True:
            try:
                daemon = Daemon(life, log, reload, patience=patience)
            except DatabaseUnfit as unfit:
                log("start.database", error=str(unfit))
                return ExitStatus.USAGE
            status = await daemon.run()
            if not daemon.stepped_down:
                return status
            life = daemon.config
            patience = PATIENCE_LEASES * life.journal.postgresql.lease if daemon.handed_over else 0
            del daemon
            gc.enable()  # what was restored in that life is garbage now
            gc.unfreeze()
            gc.collect()

    status = uvloop.run(main())
    log.tell_suppressed(now=True)
    return status
