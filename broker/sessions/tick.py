"""The tick: everything that happens between two polls of the sockets, completed in one step.

The first event of a tick (bytes arrive, the journal announces durability, a timer is due) calls `enter`, which reads
the clock and asks for `end` to be called soon.  `end` completes the tick in the engine and then flushes each transport
that was touched: one write per connection per tick.  The daemon drives the tick from its event loop; simulations drive
it by hand.

This module also decides what an unexpected exception ends.  Whatever calls a session, or the engine on behalf of a
connection, passes the exception to `failed`:

    raised by a connection's session              that connection: it is told, its deliveries are returned, it is closed
    raised by a call for no connection            that call: a log event
    raised by the engine at the end of the tick, or by a verb that had begun to change something
                                                  the process: memory and journal may disagree, so nothing more is
                                                  written, and `fatal` ends it

A verb counts as interrupted if one of the traceback's calls is in the engine or the journal, except in modules that say
`ONLY_READS = True`, or whose package does: an exception there has changed nothing.  So no partial entry reaches the
disk, and no tick stays open.
"""

from __future__ import annotations

import sys
import traceback
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, NoReturn, Protocol

from broker.engine import Engine, LongWork
from broker.engine.model.errors import EngineError
from broker.sessions.session import Session

#: Sent to the client of a session that failed.
APOLOGY: Final = "an internal error of the broker: see its log"

#: What it costs to end a connection with a session and a will, in microseconds (`broker.engine.queues.steps`).
ENDING_COST: Final = 400

#: How many calls of a traceback are logged, from the innermost.
_CALLS_MAX: Final = 12


class Transport(Protocol):
    """The connection of a session, which sends its output."""

    @property
    def remote(self) -> str:
        """The peer's address and port, for the log."""

    @property
    def session(self) -> Session | None:
        """The session; None if the connection has none any more."""

    def flush(self) -> None:
        """Write what the session has to send."""

    def pause_reading(self) -> None:
        """Stop reading from the peer."""

    def resume_reading(self) -> None:
        """Read from the peer again."""

    def abort(self) -> None:
        """Close the connection at once."""


class Tick:
    """The current tick.  `wake` asks the driver to call `end` at the end of this iteration of its event loop.

    `fatal` ends the process, and does not return if it can.  Its argument is the cause.
    """

    def __init__(
        self, engine: Engine, wake: Callable[[], None], fatal: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self.engine = engine
        self.ended = 0  # ticks
        self._wake = wake
        self._fatal = fatal
        self._open = False
        self._touched: dict[Transport, None] = {}
        self._lost: dict[Transport, BaseException] = {}
        self._ending: deque[tuple[Transport, Callable[[], None]]] = deque()  # connections, and how each ends
        engine.ticks.on_fault(self._blame)

    def enter(self) -> None:
        """Begin a tick unless one is open."""
        try:
            if not self._open:
                self._open = True
                self.engine.ticks.begin()
                self._wake()
            self.engine.ticks.begin_verb()
        except BaseException as error:
            self.end_process(error)

    def touch(self, transport: Transport) -> None:
        """Flush this transport at the end of the tick.  The calls since `enter` were for it."""
        self._touched[transport] = None
        try:
            self.engine.ticks.end_calls(transport)
        except BaseException as error:
            self.end_process(error)

    def durable(self, ticket: int) -> None:
        """Process an announcement of the writer: everything up to a ticket is on disk."""
        self.enter()
        try:
            self.engine.journal.on_durable(ticket)
            self.engine.ticks.durable(ticket)
            self._confirm()
        except BaseException as error:
            self.end_process(error)

    def _confirm(self) -> None:
        """Tell those who wait for the disk what is durable now."""
        for waiter, number in self.engine.ticks.take_confirmed().items():
            self.engine.ticks.begin_verb()
            try:
                waiter.durable(number)
            except BaseException as error:
                self._blame(waiter.transport, error)
            self.engine.ticks.end_calls(waiter.transport)

    def end(self) -> None:
        """Complete the tick; begin another at once if there is more to do."""
        try:
            if not self._open:
                self.engine.ticks.begin()
            ticks = self.engine.ticks
            ticks.end()
            if ticks.confirmed:  # the disk was quicker than the tick
                self._confirm()
            more = ticks.has_more
        except BaseException as error:
            self.end_process(error)
        self._open = False
        self.ended += 1
        touched, self._touched = self._touched, {}
        lost, self._lost = self._lost, {}
        for transport, fault in lost.items():
            touched.pop(transport, None)
            self._lose(transport, fault)
        for transport in touched:
            try:
                transport.flush()
            except BaseException as error:
                self.failed(transport, error)
        if more:
            self.enter()

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """Handle an exception from a call in this tick, made for a connection or for none (None)."""
        if not isinstance(error, Exception) or self._is_interrupted(error):
            self.end_process(error)
        if transport is None:
            self.engine.report("broker.error", error=described(error), traceback=traceback_text(error))
        else:
            self._lost.setdefault(transport, error)  # the engine may be in the middle of something
        self.enter()

    def end_connection(self, transport: Transport, call: Callable[[], None]) -> None:
        """Make a call that ends a connection, at the end of this tick or in a later one.

        Thousands of connections may end at once, before the event loop does anything else: until then each only joins
        the others.  Their ends come in order, each after what the connection had sent before.
        """
        self._ending.append((transport, call))
        if len(self._ending) > 1:
            return  # the work that the first one began goes on until there are no more
        self.enter()
        try:
            self.engine.ticks.add_work("connections that end", self._end_connections(), None)
        except BaseException as error:
            self.end_process(error)

    def _end_connections(self) -> LongWork:
        while self._ending:
            transport, call = self._ending.popleft()
            self.touch(transport)
            try:
                call()
            except BaseException as error:
                self.failed(transport, error)
            yield ENDING_COST

    def guarded(self, transport: Transport, call: Callable[..., None]) -> Callable[..., None]:
        """Wrap a call that is made later, outside this connection: an exception from it ends only this connection."""

        def guard(*args: object) -> None:
            try:
                call(*args)
            except BaseException as error:
                self.failed(transport, error)

        return guard

    def end_process(self, error: BaseException) -> NoReturn:
        """End the process without writing anything more: no connection is at fault, or memory and journal disagree."""
        self.engine.journal.abandon()
        self._fatal(error)
        raise error

    def _blame(self, transport: object, error: BaseException) -> None:
        # The engine passes back the session's transport, whose type it does not know.
        self.failed(transport, error)  # type: ignore[arg-type]

    def _is_interrupted(self, error: BaseException) -> bool:
        """Whether an exception interrupted a verb of the engine that had begun to change something."""
        if isinstance(error, EngineError):
            return False  # a refusal, which changes nothing: not to expect it is a bug of the caller
        if not self.engine.ticks.verb_has_changed:
            return False
        # The first call of a traceback is the one that caught the exception.
        calls = error.__traceback__.tb_next if error.__traceback__ is not None else None
        while calls is not None:
            if _changes(calls):
                return True
            calls = calls.tb_next
        return False

    def _lose(self, transport: Transport, error: BaseException) -> None:
        """End the connection of a session that failed, in a new tick."""
        self.enter()
        peers = self.engine.connections.by_id.values()
        user = next((peer.access.user for peer in peers if peer.remote == transport.remote), "")
        self.engine.report(
            "connection.failed",
            remote=transport.remote,
            user=user,
            error=described(error),
            traceback=traceback_text(error),
        )
        self.give_up(transport, APOLOGY)
        try:
            self.engine.consumers.abandon(transport)
        except BaseException as second:
            self.end_process(second)

    def give_up(self, transport: Transport, why: str, *, moved: bool = False) -> None:
        """End a connection because of a fault of the broker, within a tick.  The client is told why, if possible.

        `moved`: see `Session.fail`.
        """
        self.engine.ticks.begin_verb()
        try:
            if transport.session is not None:
                transport.session.fail(why, moved=moved)
            transport.flush()
        except BaseException as error:
            if not isinstance(error, Exception) or self._is_interrupted(error):
                self.end_process(error)
            transport.abort()


def _changes(call: TracebackType) -> bool:
    """Whether a call is in a module that changes the broker's state."""
    module = str(call.tb_frame.f_globals.get("__name__", ""))
    return module == "store.journal" or (module.startswith("broker.engine.") and not _only_reads(module))


def _only_reads(module: str) -> bool:
    package = module.rpartition(".")[0]
    return any(getattr(sys.modules.get(name), "ONLY_READS", False) for name in (module, package))


def described(error: BaseException) -> str:
    """Describe an exception in one line."""
    return f"{type(error).__name__}: {error}"


def traceback_text(error: BaseException) -> str:
    """Format an exception's traceback: its innermost calls."""
    return "".join(traceback.format_exception(error, limit=-_CALLS_MAX)).strip()
