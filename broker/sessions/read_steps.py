"""Handles what one read brings in steps: 256 KiB may hold ten thousand frames, and one of them may mean much work.

Sessions parse some frames at a time, and ask now and then whether the tick's budget is used up.  If it is, the rest of
the read waits for the next tick, and nothing more is read meanwhile.  So the frames of a connection stay in order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar

from broker.engine import Engine, LongWork
from broker.sessions.reading import Reading
from broker.sessions.tick import Transport

Item = TypeVar("Item")

#: After so many frames of a read a session asks whether the budget is used up.
ASKED_AFTER: Final = 32

#: What a frame costs at least, in microseconds (`broker.engine.queues.steps`).
FRAME_COST: Final = 2


class Stepping(Hashable, Protocol):
    """What a session has that handles its reads in steps."""

    @property
    def engine(self) -> Engine:
        """The engine, whose ticks have the budget."""

    @property
    def reading(self) -> Reading:
        """When the connection is read."""

    @property
    def transport(self) -> Transport:
        """The connection."""

    @property
    def lost(self) -> bool:
        """Whether the connection is over."""

    def touch(self) -> None:
        """Flush the transport at the end of this tick."""

    def process(self) -> None:
        """Handle what has arrived."""


def _nothing_more() -> None:
    pass


def _process(session: Stepping) -> None:
    session.process()


class ReadSteps(Generic[Item]):
    """What is left of a read of a session; `resume` handles more of it.

    Its work is the session's: other work of it waits behind (`Ticks.begin_work`).  The session is passed to each call,
    so that an ended one is in no reference cycle.

    `pending`: a frame takes more ticks, or others wait for the next one.
    """

    __slots__ = ("_later", "_resume", "_then", "pending")

    def __init__(self, resume: Callable[[Stepping], None] = _process) -> None:
        self.pending = False
        self._resume = resume
        self._later: list[Item] = []
        self._then: Callable[[], None] = _nothing_more

    @property
    def waiting(self) -> bool:
        """Whether frames are parsed and wait to be handled."""
        return bool(self._later)

    def take_later(self) -> list[Item]:
        """Return the frames that are parsed and wait to be handled."""
        later, self._later = self._later, []
        return later

    def pauses(self, session: Stepping, frames: list[Item], at: int, handled: int = ASKED_AFTER) -> bool:
        """Whether the tick's budget is used up, after the first `at` of some frames; then the others wait.

        `handled`: how many frames there were since the last call.
        """
        ticks = session.engine.ticks
        ticks.spend(handled * FRAME_COST)
        if session.lost or not ticks.exhausted:
            return False
        self._later = frames[at:]
        self.work(session, _nothing())
        return True

    def work(self, session: Stepping, work: LongWork) -> None:
        """Handle a frame in steps: in this tick, and in later ones if it is long (`pending`)."""
        self.pending = True
        session.engine.ticks.begin_work(session, self._through(session, work), session.transport)
        if self.pending:
            session.reading.stop(self)

    def wait(self, later: list[Item], then: Callable[[], None] = _nothing_more) -> None:
        """Let these frames wait behind that which takes more ticks; call `then` before them."""
        assert not self._later, "a frame is handled after those before it"
        self._later = later
        self._then = then

    def suspend(self, session: Stepping) -> None:
        """Handle nothing more until `resume`: the engine has not answered a frame yet."""
        self.pending = True
        session.reading.stop(self)

    def until(self, session: Stepping, begin: Callable[[], None]) -> None:
        """Call `begin`, and handle nothing more until `resume`, which it may call at once."""
        self.pending = True
        begin()
        if self.pending:
            session.reading.stop(self)

    def _through(self, session: Stepping, work: LongWork) -> LongWork:
        for cost in work:
            yield cost
            if session.lost:
                work.close()
                self._then = _nothing_more
                return
        self.resume(session)

    def resume(self, session: Stepping) -> None:
        """Continue behind the frame that took more ticks."""
        self.pending = False
        then, self._then = self._then, _nothing_more
        if session.reading.go(self) and not session.lost:
            then()
            session.touch()
            self._resume(session)


def _nothing() -> LongWork:
    yield from ()
