"""When a connection is not read: for as long as there is any reason for it."""

from __future__ import annotations

from typing import Protocol


class Readable(Protocol):
    """What can be read, or not."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer for now."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""


class Reading:
    """The reading of one connection, and why it is stopped."""

    __slots__ = ("_outlet", "_reasons")

    def __init__(self, outlet: Readable) -> None:
        self._outlet = outlet
        self._reasons: set[str] = set()

    def stop(self, reason: str) -> None:
        """Do not read, for this reason too."""
        if not self._reasons:
            self._outlet.pause_reading()
        self._reasons.add(reason)

    def go(self, reason: str) -> None:
        """This reason is over; harmless if it was none."""
        if reason in self._reasons:
            self._reasons.remove(reason)
            if not self._reasons:
                self._outlet.resume_reading()
