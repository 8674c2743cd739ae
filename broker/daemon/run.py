"""The daemon: the order in which its parts start, and the ways in which it ends.

    start   lock the data directory, recover the journal, make what the configuration declares, open the acceptors,
            then announce READY
    stop    accept no more clients, let everything in flight become durable, end each session, close the journal
    fail    a journal that cannot be written ends the process: clients are told why, nothing more is confirmed
    step    a broker of a pair that may no longer write its journal (another does, or an operator asked for a hand-over)
            disconnects its clients and stands by (see `replication`)
    fault   an exception that no connection is at fault for ends the process at once (see `sessions.tick`): nothing more
            is written, and the service manager restarts it

Everything runs on one event loop, except the journal's writer (see `tick_driver`), indexing and a pair's replication,
which have threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import uvloop

from broker import clock
from broker.config import Config, Reload
from broker.daemon.announcing import Announcer
from broker.daemon.descriptors import raise_limit
from broker.daemon.indexing import Indexing
from broker.daemon.managed import Managed
from broker.daemon.memory import COLLECTED_AFTER, collect_and_exempt
from broker.daemon.reloading import Reloading
from broker.daemon.server import Server
from broker.daemon.signals import Signals
from broker.daemon.standby import Owned
from broker.daemon.standby_server import StandbyServer
from broker.daemon.start_errors import START_ERRORS, report_start_error
from broker.daemon.systemd import Notifier
from broker.daemon.tick_driver import TickDriver
from broker.daemon.wiring import Broker, assemble, begin, recover, this_machine
from broker.engine.model.errors import EngineError
from broker.log import Log, configure
from broker.management.http import STOP_SECONDS_MAX
from broker.management.runtime import Listening
from broker.net.tasks import supervised
from broker.reasons.exit_status import ExitStatus
from broker.sessions.session import MOVED
from broker.sessions.tick import described, traceback_text
from store.errors import DatabaseUnfit, JournalError, LogFenced, LogUnknown
from store.writer import WriterThread

if TYPE_CHECKING:
    from broker.daemon.replication import Replication

#: How long to wait for clients to read why the broker ends and to disconnect, in seconds.
DISCONNECT_SECONDS_MAX: Final = 2.0

#: How often an owner checks whether it still owns the journal, in seconds: a small part of the shortest lease.
LEASE_CHECK_SECONDS: Final = 0.1

#: How long clients may take to disconnect at a hand-over, and then HTTP requests to finish, in seconds: short, since
#: clients have to find the new owner.
HAND_OVER_SECONDS_MAX: Final = 0.5

#: For how many leases a broker does not compete for the journal after it has handed it over.
PATIENCE_LEASES: Final = 2


class Ending:
    """Whether, why and how one life of a broker ends."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.status = ExitStatus.OK
        self.cause = ""  # empty if it was told to end
        self.lost = False  # what is not confirmed by now is not written, or may not be
        self.handed_over = False  # at an operator's request
        self.stepped_down = False  # another broker may own the journal: this life ends, the process goes on


class Daemon:
    """One life of a broker: from its start, or from standing by, to its end.

    `patience`: how long it does not compete for the journal of a pair at first, in ms.  Raises DatabaseUnfit.
    """

    def __init__(self, config: Config, log: Log, reload: Reload, signals: Signals, *, patience: int) -> None:
        self._config = config
        self._log = log
        self._reload = reload
        self._signals = signals
        self._ending = Ending()
        self._notifier = Notifier(os.environ, os.getpid())
        self._driver = TickDriver(log, config.journal.pending_max_bytes, self._journal_failed)
        self._outside = replace(this_machine(log), fatal=self._end_at_once)
        self._replication: Replication | None = None
        if config.journal.log == "postgresql":
            from broker.daemon.replication import Replication  # of an extra

            self._replication = Replication(config, self._outside, patience=patience)
        replicated = self._replication.replicated if self._replication is not None else lambda: None
        self._broker = self._assemble()
        self._driver.drive(self._broker)
        self._managed = Managed(config, log, self._broker, replicated=replicated, hand_over=self._hand_over)
        self._announcer = Announcer(config, log, self._notifier, self._managed.started)
        self._server: Server | None = None
        self._reloading: Reloading | None = None

    @property
    def goes_on(self) -> bool:
        """Whether another life follows."""
        ending = self._ending
        handed_over = ending.handed_over and not ending.lost
        return (ending.stepped_down or handed_over) and not self._signals.told_to_stop

    @property
    def config(self) -> Config:
        """The configuration in force, with everything that was reloaded."""
        return self._config if self._reloading is None else self._reloading.config

    @property
    def patience(self) -> int:
        """How long the next life does not compete for the journal at first, in ms."""
        return PATIENCE_LEASES * self._config.journal.postgresql.lease if self._ending.handed_over else 0

    def _assemble(self) -> Broker:
        log = None if self._replication is None else self._replication.log
        return assemble(self._config, self._outside, self._driver.make_writer, self._driver.wake, log=log)

    # -- its life --------------------------------------------------------------------------------------------------

    async def run(self) -> ExitStatus:
        """Start, stand by or recover, serve, stop.  Returns the exit status."""
        owned: Owned | None = None
        try:
            self._broker.log.open()
        except START_ERRORS as error:
            return self._cannot_start(error)
        if self._replication is not None:
            owned = await self._stand_by(self._replication)
            if owned is None:
                self._broker.log.close()
                return self._end()
        if self._recover(owned):
            await self._serve()
        if self._replication is not None:
            await self._replication.let_go(self._broker, give_up=not self._ending.lost)
        return self._end()

    async def _stand_by(self, replication: Replication) -> Owned | None:
        """Copy the pair's journal until this broker owns it.  Returns None if it stops or fails before."""
        ending, owned = self._ending, None
        self._signals.listen(ending.begun.set)
        server = StandbyServer(self._managed, self._config, self._log, replication.replicated)
        try:
            listening = await server.open(self._announcer.create_token())
            self._announcer.write_runtime_file(listening)
            self._announcer.standby(listening)
            self._notifier.beat(lambda: replication.stands_by and not ending.begun.is_set())
            owned = await replication.stand_by(self._assemble, ending.begun, server.taken)
        except START_ERRORS as error:
            self._cannot_start(error)
        await server.close()
        if owned is None:
            self._notify_stopping()
            self._announcer.withdraw()
        else:
            self._broker = self._managed.broker = owned.broker
            self._driver.drive(owned.broker)
            self._log("replication.owner", epoch=owned.lease.epoch, confirmed_by=replication.replicated().confirmed_by)
        return owned

    def _recover(self, owned: Owned | None) -> bool:
        """Recover the journal, unless the standby has read it already.  Returns whether the broker can serve."""
        broker, started = self._broker, clock.monotonic_ms()
        assert isinstance(broker.writer, WriterThread)
        broker.writer.start()
        self._notifier.status("recovering the journal")
        self._notifier.extend_timeout(3600)
        if owned is None:  # a standby has done so in time
            collect_and_exempt()
        gc.disable()  # restored objects live long and leave no garbage in cycles; collecting would double the time
        try:
            if owned is None:
                verdict, restored = recover(broker, self._config)
            else:
                verdict, restored = owned.verdict, owned.restored
                begin(broker, self._config, refused=self._undeclared)
        except START_ERRORS as error:
            self._cannot_start(error)
            return False
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
        gc.freeze()  # later collections need not visit them either
        gc.enable()
        gc.set_threshold(*COLLECTED_AFTER)
        return True

    def _undeclared(self, error: EngineError) -> None:
        """Report a queue or divert that cannot be made: no reason for a pair to be without an owner."""
        self._log("reload.declaration_failed", error=str(error))

    async def _serve(self) -> None:
        """Open the acceptors, serve until the broker ends, close everything."""
        self._signals.listen(self._ending.begun.set)
        end_tracing = self._trace()
        try:
            server = self._server = self._managed.server = Server(self._config, self._broker, self._log)
            self._driver.set_congested = server.set_congested
            if server.security.first_password:
                self._announcer.first_user(server.security.first_password)
            listening = await server.open(self._managed, self._announcer.create_token())
            self._announcer.write_runtime_file(listening)
        except START_ERRORS as error:
            self._cannot_start(error)
        else:
            await self._driver.begun()  # a disk that fails at once is no broker that is ready
            self._announce(server, listening)
            await self._work(server)
        await self._close()
        end_tracing()

    def _trace(self) -> Callable[[], None]:
        """Trace messages from now on, if configured.  Call the returned function to send the last spans and stop."""
        config, engine = self._config, self._broker.engine
        if not config.telemetry.endpoint:
            return lambda: None
        # Of an extra.
        from broker.telemetry.export import Export
        from broker.telemetry.tracer import MessageTracer

        section = config.telemetry
        export = Export(section, name=config.broker.name, salt=engine.journal.broker_id, report=self._log)
        engine.trace(MessageTracer(export, self._log, clock.wall_ns, ratio=section.sample_ratio))
        return export.close

    def _announce(self, server: Server, listening: Sequence[Listening]) -> None:
        """Announce READY, unless the broker is already ending."""
        if self._ending.begun.is_set():
            return
        self._managed.reasons.clear()
        self._announcer.ready(listening)
        self._notifier.beat(lambda: self._driver.drives, self._driver.is_alive)
        self._reloading = Reloading(self._config, self._reload, self._broker, server, self._log, self._notifier)
        self._signals.reload_with(self._reloading)

    async def _work(self, server: Server) -> None:
        """Serve until the broker is to end, then shut down the sessions."""
        if self._replication is not None:
            self._check_lease(self._replication)
        indexing = Indexing(self._outside.files, self._broker.log.directory, self._log)
        checks = supervised("checks of connections and files", self._check(server), essential=True)
        indexes = supervised("the indexes of message ids", indexing.run())
        links = supervised("links", server.dialer.run(), essential=True)
        await self._ending.begun.wait()
        links.cancel()
        indexing.stop()
        await self._disconnect_clients(server)
        checks.cancel()
        indexes.cancel()

    async def _check(self, server: Server) -> None:
        while True:
            await server.check()
            self._log.tell_suppressed()
            self._driver.trim_memory()

    def _check_lease(self, replication: Replication) -> None:
        """Step down in time; stop producers while the database does not answer."""
        if self._ending.lost or not self._driver.drives:
            return
        if replication.over:
            self._step_down("the lease could not be renewed")
            return
        self._driver.stall(replication.stalled)
        asyncio.get_running_loop().call_later(
            LEASE_CHECK_SECONDS, self._driver.run_or_exit, partial(self._check_lease, replication)
        )

    # -- its end ---------------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Hand the journal over to another broker, after everything in flight is confirmed."""
        assert self._replication is not None, "files have one owner"
        self._ending.handed_over = True
        self._ending.begun.set()

    def _journal_failed(self, error: Exception) -> None:
        """End because the disk failed: tell clients why, confirm nothing more.  A fenced owner steps down instead."""
        if isinstance(error, LogFenced | LogUnknown):
            self._step_down(str(error))
            return
        ending, expected = self._ending, isinstance(error, JournalError)
        ending.status = ExitStatus.DISK_FAILED
        ending.cause = str(error) if expected else described(error)
        self._give_up("the broker's disk has failed: unconfirmed messages may be lost", moved=False)
        self._log("journal.failed", error=ending.cause, **({} if expected else {"traceback": traceback_text(error)}))

    def _step_down(self, why: str) -> None:
        """End this life as owner: another broker may own the journal, and nothing more can be confirmed here."""
        if self._ending.lost:
            return
        assert self._replication is not None, "files have one owner"
        self._ending.stepped_down = True
        self._replication.interrupt()
        self._replication.rename()
        self._give_up(MOVED, moved=True)
        self._log("replication.stepped_down", cause=why)

    def _give_up(self, why: str, *, moved: bool) -> None:
        """Write and confirm nothing more, and tell clients why.  `moved`: see Session."""
        self._ending.lost = True
        self._driver.abandon()
        if self._server is not None:
            self._server.give_up(why, moved=moved)
        self._ending.begun.set()

    def _cannot_start(self, error: Exception) -> ExitStatus:
        """Log what keeps the broker from starting; step down if another broker owns the journal by now."""
        if isinstance(error, LogFenced | LogUnknown):
            self._step_down(str(error))
        else:
            self._ending.status = report_start_error(self._log, self._config.broker.data_directory, error)
        return self._ending.status

    async def _disconnect_clients(self, server: Server) -> None:
        """Confirm everything in flight if possible, then shut down all sessions and give clients time to disconnect."""
        ending, lost = self._ending, self._ending.lost
        self._managed.reasons.append("the broker is stopping")
        self._signals.reload_later(requested=self._reloading is not None and self._reloading.stop())
        self._notify_stopping()
        seconds = DISCONNECT_SECONDS_MAX
        if not lost:
            self._log("stopping")
            seconds = HAND_OVER_SECONDS_MAX if ending.handed_over else self._config.broker.shutdown_timeout / 1000
        server.acceptors.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if not lost:
                    await self._driver.drain()
                    await server.disconnect_clients(moved=ending.handed_over)
                await server.acceptors.idle()

    def _notify_stopping(self) -> None:
        if not self.goes_on:  # else the service manager would kill the process after a while
            self._notifier.stopping()

    async def _close(self) -> None:
        """Close the remaining connections, and close the journal in good order if possible."""
        if self._server is not None:
            await self._server.abort(HAND_OVER_SECONDS_MAX if self._ending.handed_over else STOP_SECONDS_MAX)
        self._announcer.withdraw()
        if not self._ending.lost:
            await self._driver.complete()
            self._broker.journal.finish()
            # Even this may fail; if the database does not answer, it waits until the lease expires.
            await asyncio.to_thread(self._broker.writer.close)
            self._broker.log.close()

    def _end(self) -> ExitStatus:
        """Log the end, unless another life follows.  Returns the exit status."""
        ending = self._ending
        self._driver.stop()
        if not self.goes_on:
            self._log("stopped", status=ending.status, **({"cause": ending.cause} if ending.cause else {}))
        return ending.status

    def _end_at_once(self, error: BaseException) -> None:
        """End the process without running anything else, not even clean-up."""
        self._log("broker.failed", error=described(error), traceback=traceback_text(error))
        self._log.tell_suppressed(now=True)
        self._notifier.status(f"failed: {described(error)}")
        os._exit(ExitStatus.FAULT)


def _open_streams() -> None:
    """Open /dev/null for closed standard streams, so that no file of the broker gets their descriptors."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def run(config: Config, reload: Reload) -> int:
    """Run a broker in the foreground until it is told to stop.  Returns the exit status."""
    _open_streams()
    log = configure(config.log.level, config.log.format, sys.stderr)
    raise_limit(log)

    def end_at_once() -> None:
        log("stopped", status=ExitStatus.OK)
        log.tell_suppressed(now=True)
        os._exit(ExitStatus.OK)

    async def main() -> ExitStatus:
        signals, life, patience = Signals(end_at_once), config, 0
        while True:
            try:
                daemon = Daemon(life, log, reload, signals, patience=patience)
            except DatabaseUnfit as unfit:
                log("start.database", error=str(unfit))
                return ExitStatus.USAGE
            status = await daemon.run()
            if not daemon.goes_on:
                return status
            life, patience = daemon.config, daemon.patience
            del daemon
            gc.enable()  # the objects restored in that life are garbage now
            gc.unfreeze()
            gc.collect()

    status = uvloop.run(main())
    log.tell_suppressed(now=True)
    return status
