"""Drives the tick of a running broker from the event loop; the writer's thread calls it through the loop.

Uncaught exceptions of callbacks and tasks end up here too (`_on_uncaught`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from broker import clock
from broker.daemon.memory import FreeMemory, system_trim
from broker.daemon.timer import Timer
from broker.daemon.wiring import Broker
from broker.engine.model.report import Report
from broker.net.tasks import ESSENTIAL
from broker.sessions.tick import described
from store.log import Log
from store.writer import WriterThread

#: How long the start waits for the disk, in seconds: long enough for a slow one, and a full one lets clients in.
BEGIN_SECONDS: Final = 1.0

#: How long a clean stop waits for returned deliveries and the like: millions take some seconds.  What the journal does
#: not say of the rest is as after a crash: it is redelivered, and its failures do not count.
COMPLETE_SECONDS_MAX: Final = 10.0


class TickDriver:
    """Drives one broker at a time.

    Clients are not read while more bytes than `pending_max` wait for the disk, nor while the next segment is still
    being allocated and the current one is nearly full.  `failed` is called with the error that has stopped the
    writer's thread.
    """

    _broker: Broker
    _timer: Timer

    def __init__(self, report: Report, pending_max: int, failed: Callable[[Exception], None]) -> None:
        #: Called with True to stop reading clients, with False to resume.
        self.set_congested: Callable[[bool], None] = lambda _: None
        self.drives = False
        self._report = report
        self._pending_max = pending_max
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_uncaught)
        self._memory = FreeMemory(system_trim())
        self._all_durable = asyncio.Event()
        self._congested = False
        self._stalled = False  # the database does not answer
        self._full = False  # the disk has no room for messages, which has been logged
        self._stopping = False
        self._beaten = 0  # how many ticks had ended at the last call of `is_alive`

    def drive(self, broker: Broker) -> None:
        """Drive this broker from now on."""
        self.drives = True
        self._broker = broker
        self._timer = Timer(self._loop, broker.engine.ticks.next_due, broker.tick.enter, self.run_or_exit)

    def make_writer(self, log: Log) -> WriterThread:
        """Return a writer whose thread reports through the event loop: only that may call the engine."""

        def announce(ticket: int) -> None:
            self._loop.call_soon_threadsafe(self._durable, ticket)

        def failed(error: Exception) -> None:
            self._loop.call_soon_threadsafe(self._failed, error)

        return WriterThread(log, announce, failed)

    def wake(self) -> None:
        """End the tick in the next iteration of the event loop."""
        self._loop.call_soon(self.run_or_exit, self._end_tick)

    def run_or_exit(self, call: Callable[[], None]) -> None:
        """Make a call whose failure ends the process: no connection is at fault, and the broker depends on it."""
        try:
            call()
        except BaseException as error:
            self._broker.tick.end_process(error)

    def _end_tick(self) -> None:
        broker, journal = self._broker, self._broker.journal
        broker.tick.end()
        self._memory.look(broker.engine.usage.bytes)
        if self._stopping:
            return
        pending = journal.pending_bytes
        if pending > self._pending_max or journal.is_ahead:
            self._congest(True)
        elif pending < self._pending_max // 4 and not self._stalled:
            self._congest(False)
        if journal.accepting is self._full:
            self._full = not journal.accepting
            if self._full:
                self._report("journal.full", cause=journal.lacking, pending=pending)
            else:
                self._report("journal.room", pending=pending)
        self._timer.set()

    def _durable(self, ticket: int) -> None:
        journal = self._broker.journal
        if not journal.abandoned:
            self._broker.tick.durable(ticket)
            if not journal.pending_bytes:
                self._all_durable.set()

    def _on_uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, message, tick = context.get("exception"), str(context["message"]), self._broker.tick
        if error is None or (isinstance(error, OSError) and not context.get(ESSENTIAL)):
            # An error of a socket: too many open files, a peer that has disconnected.
            self._report("broker.error", error=message if error is None else f"{message}: {described(error)}")
        elif context.get(ESSENTIAL):
            self._report("broker.task_died", error=f"{message}: {described(error)}")
            tick.end_process(error)
        else:
            tick.failed(None, error)

    def stall(self, stalled: bool) -> None:
        """Stop reading clients while the database does not answer, or resume."""
        if stalled is not self._stalled:
            self._stalled = stalled
            self._report("replication.stalled" if stalled else "replication.resumed")
            self._congest(stalled)

    def _congest(self, congested: bool) -> None:
        if congested is not self._congested and not self._stopping:
            self._congested = congested
            self.set_congested(congested)

    def trim_memory(self) -> None:
        """Return memory to the system once a burst is over."""
        engine = self._broker.engine
        usage, now = engine.usage, clock.monotonic_ms()
        self._memory.trim_after_burst(usage.bytes, usage.messages, now, queues=len(engine.queues))

    def is_alive(self) -> bool:
        """Whether a tick has ended since the last call, which began one."""
        tick = self._broker.tick
        since, self._beaten = self._beaten, tick.ended
        tick.enter()
        return since != self._beaten

    def abandon(self) -> None:
        """Write and confirm nothing more."""
        self.drives = False
        self._stopping = True
        self._broker.journal.abandon()
        self._all_durable.set()

    async def begun(self) -> None:
        """Return when what the start wrote is durable, or the disk has failed, or has no room for a moment."""
        if self._broker.journal.pending_bytes:
            self._all_durable.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_durable.wait(), BEGIN_SECONDS)

    async def drain(self) -> None:
        """Stop reading clients, and return when everything in flight is durable."""
        self._congest(True)
        self._stopping = True
        self._all_durable.clear()
        self._end_tick()
        if self._broker.journal.pending_bytes:
            await self._all_durable.wait()

    async def complete(self) -> None:
        """End ticks until all work that goes on in steps is done, if the disk allows, for some seconds at most."""
        tick = self._broker.tick
        tick.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(COMPLETE_SECONDS_MAX):
                while tick.engine.ticks.is_working and not self._broker.journal.abandoned:
                    await asyncio.sleep(0)
                    tick.end()

    def stop(self) -> None:
        """Stop driving: further calls of the event loop have no effect."""
        self.drives = False
        self._timer.stop()
        self._loop.set_exception_handler(None)
