"""The tick: everything that happens between two looks at the sockets, ended once.

Whatever happens first in a tick (bytes arrive, the journal announces, a timer is due) calls `enter`, which reads the
clock and asks for `end` to be called soon.  `end` lets the engine finish the tick and then flushes each transport that
was touched: one write per connection per tick.  The turn is driven by the event loop in the daemon, and by hand in
simulations.

This is also where it is decided what an exception costs that nobody expected.  What calls a session, or the engine
for somebody, gives it to `failed`:

    it came out of a connection's session         that connection: it hears of it, its deliveries go back, it is closed
    it came out of a call for no connection       that call: a log event
    it came out of the engine's end of the tick, or out of a verb that had begun to change something
                                                  the process: memory and journal can no longer agree, so that
                                                  nothing more is written and `fatal` ends it

So half an entry never reaches the disk, and no tick stays open.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final, NoReturn, Protocol

from broker.engine import Engine
from broker.engine.model.errors import EngineError
from broker.sessions.session import Session

#: What the client of a session that failed is told.
APOLOGY: Final = "an internal error of the broker: see its log"

#: Modules of the engine that change nothing: what a message says, what may be, what fits.
_LOOKING: Final = (
    "broker.engine.filter",
    "broker.engine.model",
    "broker.engine.queues.bodies",
    "broker.engine.queues.stored",
)

#: Innermost calls of a traceback that are told.
_CALLS_MAX: Final = 12


class Transport(Protocol):
    """Where a session's bytes go: its connection."""

    @property
    def remote(self) -> str:
        """The peer's address and port, for the log."""

    @property
    def session(self) -> Session | None:
        """The session, as long as the connection has one."""

    def flush(self) -> None:
        """Write what the session has to send."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer for now."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""

    def abort(self) -> None:
        """Cut the connection."""


class Tick:
    """The current tick.  `wake` asks the driver to call `end` as soon as this turn of its loop is over.

    `fatal` is told why the process has to end, and does not return if it can end it.
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
        engine.ticks.on_fault(self._blame)

    def enter(self) -> None:
        """Begin the tick unless it has begun."""
        try:
            if not self._open:
                self._open = True
                self.engine.ticks.begin()
                self._wake()
            self.engine.ticks.begin_verb()
        except BaseException as error:
            self.end_process(error)

    def touch(self, transport: Transport) -> None:
        """This transport has something to write at the end of the tick."""
        self._touched[transport] = None

    def durable(self, ticket: int) -> None:
        """The writer announced that everything up to a ticket is on disk."""
        self.enter()
        try:
            self.engine.journal.on_durable(ticket)
            self.engine.ticks.durable(ticket)
        except BaseException as error:
            self.end_process(error)

    def end(self) -> None:
        """Finish the tick; another one follows at once if there is more to do."""
        try:
            if not self._open:
                self.engine.ticks.begin()
            more = self.engine.ticks.end()
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

    # -- faults ----------------------------------------------------------------------------------------------------

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """An exception came out of what was called for a connection, or for nobody (None), in this tick."""
        if not isinstance(error, Exception) or self._is_interrupted(error):
            self.end_process(error)
        if transport is None:
            self.engine.report("broker.error", error=described(error), traceback=told(error))
        else:
            self._lost.setdefault(transport, error)  # the engine may be in the middle of something
        self.enter()

    def guarded(self, transport: Transport, call: Callable[..., None]) -> Callable[..., None]:
        """The call, to be made later and for no connection: what comes out of it costs this one."""

        def guard(*args: object) -> None:
            try:
                call(*args)
            except BaseException as error:
                self.failed(transport, error)

        return guard

    def end_process(self, error: BaseException) -> NoReturn:
        """Nobody can be blamed, or memory and journal do not agree: nothing more is written."""
        self.engine.journal.abandon()
        self._fatal(error)
        raise error

    def _blame(self, transport: object, error: BaseException) -> None:
        # What belongs to a connection names the transport that its session was given; the engine knows no such type.
        self.failed(transport, error)  # type: ignore[arg-type]

    def _is_interrupted(self, error: BaseException) -> bool:
        """Whether an exception came through a verb of the engine that had begun to change something."""
        if isinstance(error, EngineError):
            return False  # refused, and nothing changed: that nobody expected it is a fault of its caller's
        if not self.engine.ticks.verb_has_changed:
            return False
        # The first call is the one that caught it.
        calls = error.__traceback__.tb_next if error.__traceback__ is not None else None
        while calls is not None:
            if _changes(calls):
                return True
            calls = calls.tb_next
        return False

    def _lose(self, transport: Transport, error: BaseException) -> None:
        """End the connection of a session that failed, within a tick of its own."""
        self.enter()
        peers = self.engine.connections.by_id.values()
        user = next((peer.access.user for peer in peers if peer.remote == transport.remote), "")
        self.engine.report(
            "connection.failed", remote=transport.remote, user=user, error=described(error), traceback=told(error)
        )
        self.give_up(transport, APOLOGY)
        try:
            self.engine.consumers.abandon(transport)
        except BaseException as second:
            self.end_process(second)

    def give_up(self, transport: Transport, why: str, *, moved: bool = False) -> None:
        """End a connection by the broker's fault, within a tick: its client is told why, if there is a way.

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
    module = str(call.tb_frame.f_globals.get("__name__", ""))
    return module == "store.journal" or (module.startswith("broker.engine.") and not module.startswith(_LOOKING))


def described(error: BaseException) -> str:
    """An exception in a sentence's place."""
    return f"{type(error).__name__}: {error}"


def told(error: BaseException) -> str:
    """Its traceback: the innermost calls."""
    return "".join(traceback.format_exception(error, limit=-_CALLS_MAX)).strip()
