"""The daemon: what starts before what, and how it all ends.

    start   lock the data directory, recover the journal, make what the configuration declares, open the acceptors,
            then say READY
    stop    accept no more, let what is in flight become durable, say goodbye to each client, close the journal
    fail    a journal that cannot write ends the process at once: nothing is confirmed any more

Everything runs on one event loop; only the journal's writer has a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import uvloop

from broker import __version__, clock
from broker.accepting import Accepting
from broker.audit import AuditLog
from broker.build import COMPILED
from broker.config import RELOADED, Config, ConfigError, Reload
from broker.engine.engine import Engine
from broker.engine.errors import EngineError
from broker.engine.stored import UnknownFormat
from broker.guard import ADMIN, Guard
from broker.guarding import users_path
from broker.log import Log, configure
from broker.machine import this_machine
from broker.management.http import HttpServer
from broker.management.ports import AcceptorState
from broker.management.runtime import Listening, create_token, remove_runtime_file, write_runtime_file
from broker.net.listener import CHECK_PERIOD_MS, Listener
from broker.net.runner import LoopRunner
from broker.security.users_file import UnusableFile
from broker.sessions.login import Gate
from broker.sessions.turn import Turn
from broker.starting import cannot_listen, cannot_open
from broker.systemd import Notifier
from broker.wiring import Parts, assemble, declare, recover, settings_table
from store.errors import Corrupt, DirectoryLocked, JournalError, NewerFormat
from store.log import Counters, FileLog
from store.writer import WriterThread

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_JOURNAL: Final = 74  # EX_IOERR: the disk failed, or the journal is damaged
EXIT_IN_USE: Final = 75  # EX_TEMPFAIL: another broker owns the data directory

#: The longest the timer sleeps, in seconds: a wall clock that is set is noticed after at most this.
TIMER_SECONDS_MAX: Final = 1.0


class Daemon:
    """One running broker; also what management sees of it."""

    def __init__(self, config: Config, log: Log, reload: Reload | None) -> None:
        self.config = config
        self.version = __version__
        self.started = clock.wall_ms()
        self.data_directory = Path(config.broker.data_directory)
        self.listeners: dict[str, Listener] = {}
        self._listening: dict[str, list[Listening]] = {}
        self._http: dict[str, HttpServer] = {}
        self._log = log
        self._reload = reload
        self._notifier = Notifier(os.environ, os.getpid())
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._all_durable = asyncio.Event()
        self._full = False  # the disk has no room for messages, and the log says so
        self._unready = ["the journal is being recovered"]
        self._status = EXIT_OK
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        outside = this_machine(log)
        self.parts: Parts = assemble(config, outside, self._make_writer, self._wake)

    def _make_writer(self, journal_log: FileLog) -> WriterThread:
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
    def turn(self) -> Turn:
        """The tick."""
        return self.parts.turn

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
        elif self.engine.core.usage.disk.full:
            reasons.append(f"{self.engine.core.usage.disk.percent} % of the disk is used: producers wait")
        return reasons

    def acceptors(self) -> Sequence[AcceptorState]:
        """All acceptors that are open."""
        states = []
        for name, addresses in self._listening.items():
            listener, server = self.listeners.get(name), self._http.get(name)
            states.append(
                AcceptorState(
                    name=name,
                    protocol=addresses[0].protocol,
                    listening=tuple(map(str, addresses)),
                    connections=len(listener.connections) if listener else server.connections if server else 0,
                    opened=listener.accepted if listener else 0,
                    refused=listener.refused if listener else 0,
                )
            )
        return states

    # -- the loop --------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._loop.call_soon(self._end_tick)

    def _end_tick(self) -> None:
        self.parts.turn.end()
        journal = self.parts.journal
        if self._stop.is_set():
            return
        high = self.config.journal.pending_max_bytes
        if journal.pending_bytes > high:
            self._set_congested(True)
        elif journal.pending_bytes < high // 4:
            self._set_congested(False)
        if journal.accepting is self._full:
            self._full = not journal.accepting
            self._log("journal.full" if self._full else "journal.room", pending=journal.pending_bytes)
        self._set_timer()

    def _set_congested(self, congested: bool) -> None:
        for listener in self.listeners.values():
            listener.set_congested(congested)

    def _set_timer(self) -> None:
        """Wake up when the engine has something due."""
        due = self.parts.engine.next_due()
        if due is None:
            return
        seconds = min(max(due - clock.wall_ms(), 1) / 1000, TIMER_SECONDS_MAX)
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at  # a handle does not always know: what is due at once has no time in uvloop
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self.parts.engine.next_due()
        if due is not None and due <= clock.wall_ms():
            self.parts.turn.enter()
        else:
            self._set_timer()

    def _durable(self, ticket: int) -> None:
        if self._status == EXIT_OK:
            self.parts.turn.enter()
            self.parts.journal.on_durable(ticket)
            self.parts.engine.durable(ticket)
            if not self.parts.journal.pending_bytes:
                self._all_durable.set()

    def _journal_failed(self, error: Exception) -> None:
        """The disk failed: nobody is told anything more, and the process ends."""
        self._log("journal.failed", error=str(error))
        self._status = EXIT_JOURNAL
        self._stop.set()
        self._all_durable.set()
        for listener in self.listeners.values():
            listener.close()
            listener.abort()

    # -- start -----------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Start, serve until told to stop, stop.  Returns the exit status."""
        try:
            self.parts.log.open()
        except DirectoryLocked as locked:
            advice = "stop that process, or give this broker another directory with --data"
            self._log("start.locked", directory=locked.directory, pid=locked.pid, advice=advice)
            return EXIT_IN_USE
        except JournalError as error:
            self._log("start.journal", error=cannot_open(self.data_directory, error))
            return EXIT_JOURNAL
        status = self._recover()
        if status == EXIT_OK:
            status = self._set_guard()
        if status == EXIT_OK and await self._open_acceptors():
            self._announce()
            checks = asyncio.create_task(self._check_connections())
            await self._stop.wait()
            status = await self._shut_down()
            checks.cancel()
        elif status == EXIT_OK:
            self.parts.journal.close()
            status = EXIT_FAILED
        self._log("stopped", status=status)
        return status

    def _recover(self) -> int:
        assert isinstance(self.parts.writer, WriterThread)
        self.parts.writer.start()
        started = clock.monotonic_ms()
        self._notifier.status("recovering the journal")
        self._notifier.extend_timeout(3600)
        gc.disable()  # what is restored lives long, and there is no waste in cycles: looking for it takes as long again
        try:
            verdict, restored = recover(self.parts, self.config)
        except NewerFormat as newer:
            self._log("start.newer", error=str(newer))
            return EXIT_JOURNAL
        except Corrupt as corrupt:
            self._log("start.corrupt", error=str(corrupt))
            return EXIT_JOURNAL
        except JournalError as error:
            self._log("start.journal", error=cannot_open(self.data_directory, error))
            return EXIT_JOURNAL
        except UnknownFormat as error:
            self._log("start.journal", error=str(error))
            return EXIT_JOURNAL
        except EngineError as error:
            self._log("start.refused", error=str(error))
            return EXIT_CONFIG
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
        gc.collect()
        gc.freeze()  # nor need the collector look at it later
        gc.enable()
        gc.set_threshold(50_000, 20, 100)
        return EXIT_OK

    def _set_guard(self) -> int:
        """Who may come in."""
        self._runner = LoopRunner(self.turn)
        try:
            if self.config.security.audit_file is not None:
                self._log.audit = AuditLog(self.config.security.audit_file)
            self._guard = Guard(self.config, self.engine, self._runner, report=self._log, now=clock.monotonic_ms)
        except (UnusableFile, OSError) as error:
            self._log("start.security", error=str(error))
            self.parts.journal.close()
            return EXIT_CONFIG
        if self._guard.first_password:
            sys.stdout.write(
                f"The first user is {ADMIN}, the password {self._guard.first_password} (it is not shown again; "
                "change it with `bartleby user passwd`)\n"
            )
            sys.stdout.flush()
            self._log("security.first_user", user=ADMIN, file=str(users_path(self.config)))
        return EXIT_OK

    async def _open_acceptors(self) -> bool:
        config = self.config
        opening: dict[str, str] = {}  # what is being opened, for the log
        try:
            accepting = Accepting(config, self.turn, self._guard.gate)
            origins: dict[str, int] = {}
            self.turn.enter()
            self.parts.disk.start()
            accepting.restore()
            for name, acceptor in config.messaging_acceptors.items():
                listener = Listener(
                    name,
                    self.turn,
                    accepting.sessions(acceptor),
                    report=self._log,
                    monotonic_ms=clock.monotonic_ms,
                    connections_max=acceptor.connections_allowed,
                    total=self._connections,
                    total_max=config.limits.connections_max,
                    handshake_timeout=acceptor.handshake_timeout,
                    origins=origins,
                    origin_max=config.limits.connections_per_origin_max,
                    context=self._guard.context(name),
                    left=self._guard.gate.left,
                    served=accepting.served(acceptor),
                )
                self.listeners[name] = listener
                opening = {"acceptor": name, "address": f"{acceptor.host}:{acceptor.port}"}
                self._note_listening(name, acceptor.protocol, await listener.open(acceptor.host, acceptor.port))
            token = create_token(self.data_directory) if config.http_acceptors else ""
            for name, http_acceptor in config.http_acceptors.items():
                context = self._guard.context(name)
                server = HttpServer(self, token, name=name, context=context, open_metrics=http_acceptor.open_metrics)
                self._http[name] = server
                opening = {"acceptor": name, "address": f"{http_acceptor.host}:{http_acceptor.port}"}
                self._note_listening(name, "http", await server.start(http_acceptor.host, http_acceptor.port))
        except OSError as error:
            self._log("start.listen", **opening, error=cannot_listen(opening.get("acceptor", ""), error))
            return False
        return True

    def _connections(self) -> int:
        return sum(listener.count for listener in self.listeners.values())

    def _note_listening(self, name: str, protocol: str, addresses: list[tuple[str, int]]) -> None:
        tls = self.config.acceptors[name].tls
        certificate = str(tls.certificate.absolute()) if tls is not None else ""
        listening = [Listening(name, protocol, host, port, certificate) for host, port in addresses]
        self._listening[name] = listening
        for address in listening:
            self._log("listening", acceptor=name, protocol=protocol, address=str(address))

    def _announce(self) -> None:
        """READY: for people and scripts on standard output, for systemd, for the command line."""
        for number, handler in (
            (signal.SIGTERM, self._stop.set),
            (signal.SIGINT, self._stop.set),
            (signal.SIGHUP, self._on_reload),
        ):
            self._loop.add_signal_handler(number, handler)
        self._unready.clear()
        flat = [address for addresses in self._listening.values() for address in addresses]
        write_runtime_file(self.data_directory, pid=os.getpid(), started=self.started, listening=flat)
        line = " ".join(f"{address.acceptor}={address}" for address in flat)
        self._log("ready", version=__version__, compiled=COMPILED, pid=os.getpid(), acceptors=line)
        sys.stdout.write(f"READY {line} pid={os.getpid()}\n")
        sys.stdout.flush()
        self._notifier.ready()
        self._notifier.status(f"listening on {line}")
        interval = self._notifier.watchdog_interval()
        if interval is not None:
            self._beat(interval)
        self._set_timer()

    def _beat(self, interval: float) -> None:
        """Tell systemd that the loop turns, as long as the writer lives."""
        if self._status == EXIT_OK:
            self._notifier.watchdog()
            self._loop.call_later(interval, self._beat, interval)

    async def _check_connections(self) -> None:
        period = CHECK_PERIOD_MS / 1000
        while True:
            await asyncio.sleep(period)
            for listener in self.listeners.values():
                listener.check()
            if self._guard.look(self.turn.enter) or self._guard.gate.any_expired(clock.wall_ms()):
                self._expel()

    def _expel(self) -> None:
        """Cut off those whose user is gone, or whose token."""
        gate, now = self._guard.gate, clock.wall_ms()
        for listener in self.listeners.values():
            for connection in list(listener.connections):
                gone = gate.gone(connection.peer)
                if gone or gate.expired(connection.peer, now):
                    self._log("login.revoked" if gone else "login.expired", remote=connection.remote)
                    connection.abort()

    # -- reload ----------------------------------------------------------------------------------------------------

    def _on_reload(self) -> None:
        """SIGHUP: addresses, queues, diverts, settings, security and log level.

        What contradicts itself is refused as a whole; a queue that contradicts the one that exists is left as it is.
        """
        if self._reload is None:
            return
        self._notifier.reloading()
        try:
            config = self._reload()
            settings = settings_table(self.config.with_reloaded(config))
            security = self._guard.prepare(self.config.with_reloaded(config))
        except (ConfigError, UnusableFile, ValueError) as error:
            self._log("reload.refused", error=str(error))
            self._notifier.ready()
            return
        changed = self.config.changed_sections(config)
        self.turn.enter()
        self.engine.router.change_settings(settings)
        self._guard.apply(security)
        self._expel()
        self._log.set_level(config.log.level)
        self.config = self.config.with_reloaded(config)
        try:
            declare(self.engine, self.config)
        except EngineError as error:
            self._log("reload.undeclared", error=str(error))
        needing = sorted(changed - RELOADED)
        self._log("reload.done", changed=", ".join(sorted(changed)), restart_needed_for=", ".join(needing))
        self._notifier.ready()

    # -- stop ------------------------------------------------------------------------------------------------------

    async def _shut_down(self) -> int:
        self._unready.append("the broker is stopping")
        self._notifier.stopping()
        self._log("stopping")
        deadline = self._loop.time() + self.config.broker.shutdown_timeout / 1000
        for listener in self.listeners.values():
            listener.close()
        if self._status == EXIT_OK:
            await self._drain(deadline)
        for server in self._http.values():
            await server.stop()
        for listener in self.listeners.values():
            listener.abort()
        self._runner.close()
        remove_runtime_file(self.data_directory)
        if self._status != EXIT_OK:
            return self._status
        self.parts.turn.end()
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
                for listener in self.listeners.values():
                    listener.shut_down()
                for listener in self.listeners.values():
                    await listener.idle()


def run(config: Config, reload: Reload | None = None) -> int:
    """Run a broker in the foreground until it is told to stop.  Returns the exit status."""
    log = configure(config.log.level, config.log.format, sys.stderr)

    async def main() -> int:
        return await Daemon(config, log, reload).run()

    status = uvloop.run(main())
    log.tell_suppressed(now=True)
    return status
