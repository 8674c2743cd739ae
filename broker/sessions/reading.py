"""Stops reading from a connection for as long as there is at least one reason to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

Answer = TypeVar("Answer")

#: The reason to stop while a login has not been answered.
LOGIN: Final = "login"


class Readable(Protocol):
    """A transport whose reading can be paused."""

    def pause_reading(self) -> None:
        """Stop reading from the peer."""

    def resume_reading(self) -> None:
        """Read from the peer again."""


class ErrorBoundary(Protocol):
    """Confines errors to a connection."""

    def guarded(self, transport: Any, call: Callable[..., None]) -> Callable[..., None]:
        """Wrap a call that is made outside a connection: an exception ends only that connection (`Tick.guarded`)."""


class Reading:
    """The reading state of one connection: the reasons why it is stopped, if any: names, or the objects that wait."""

    __slots__ = ("_boundary", "_reasons", "transport")

    def __init__(self, transport: Readable, boundary: ErrorBoundary) -> None:
        self.transport = transport
        self._boundary = boundary
        self._reasons: tuple[object, ...] = ()  # an empty tuple needs no memory per connection

    def stop(self, reason: object) -> None:
        """Stop reading for this reason, perhaps in addition to others."""
        if not self._reasons:
            self.transport.pause_reading()
        if reason not in self._reasons:
            self._reasons += (reason,)

    def go(self, reason: object) -> bool:
        """Remove a reason, and read again if it was the last one.  Returns whether it was one."""
        if reason not in self._reasons:
            return False
        self._reasons = tuple(each for each in self._reasons if each != reason)
        if not self._reasons:
            self.transport.resume_reading()
        return True

    def until(self, reason: str, then: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Stop reading until an answer arrives.  Call the returned function with it: reading resumes, then `then` runs.

        An exception in it ends this connection and does not reach the caller, which serves other connections too.
        """
        self.stop(reason)

        def answered(answer: Answer) -> None:
            self.go(reason)
            then(answer)

        return self._boundary.guarded(self.transport, answered)
