"""When a connection is not read: for as long as there is any reason for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

Answer = TypeVar("Answer")

#: Why nothing is read: a login has not been answered.
LOGIN: Final = "login"


class Readable(Protocol):
    """What can be read, or not."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer for now."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""


class Guardian(Protocol):
    """What answers for a connection's calls."""

    def guarded(self, call: Callable[..., None]) -> Callable[..., None]:
        """The call, to be made for others: what comes out of it costs this connection (`Tick.guarded`)."""


class Reading:
    """The reading of one connection, and why it is stopped."""

    __slots__ = ("_guardian", "_reasons", "transport")

    def __init__(self, transport: Readable, guardian: Guardian) -> None:
        self.transport = transport
        self._guardian = guardian
        self._reasons: tuple[str, ...] = ()  # few, and none costs nothing

    def stop(self, reason: str) -> None:
        """Do not read, for this reason too."""
        if not self._reasons:
            self.transport.pause_reading()
        if reason not in self._reasons:
            self._reasons += (reason,)

    def go(self, reason: str) -> None:
        """This reason is over; harmless if it was none."""
        if reason in self._reasons:
            self._reasons = tuple(each for each in self._reasons if each != reason)
            if not self._reasons:
                self.transport.resume_reading()

    def until(self, reason: str, then: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Do not read, for this reason, until the answer is there: what is returned takes it, and tells `then`.

        Its caller serves others too: what comes out of it costs this connection, and they go on.
        """
        self.stop(reason)

        def answered(answer: Answer) -> None:
            self.go(reason)
            then(answer)

        return self._guardian.guarded(answered)
