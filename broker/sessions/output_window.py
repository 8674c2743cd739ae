"""Limits the output that waits for the operating system: the memory that a client costs if it does not read."""

from __future__ import annotations

from typing import Final, Protocol

#: Deliveries to a connection stop while this many bytes of its messages wait for the operating system to accept them.
UNFLUSHED_BYTES_MAX: Final = 2 << 20


class Pausable(Protocol):
    """A source of deliveries."""

    def pause(self, paused: bool) -> None:
        """Pause or resume deliveries."""


class OutputWindow:
    """The output window of one connection; `source` makes its deliveries.

    `socket_full`: the operating system has not accepted all output; `paused`: deliveries are stopped.
    """

    __slots__ = ("_source", "_unflushed_bytes", "paused", "socket_full")

    def __init__(self, source: Pausable) -> None:
        self.paused = False
        self.socket_full = False
        self._source = source
        self._unflushed_bytes = 0

    @property
    def room(self) -> int:
        """Bytes of messages that may still be sent; the last message may exceed it."""
        return UNFLUSHED_BYTES_MAX - self._unflushed_bytes

    def sent(self, nbytes: int) -> None:
        """Count bytes of messages that are sent in this tick."""
        self._unflushed_bytes += nbytes
        if self._unflushed_bytes >= UNFLUSHED_BYTES_MAX:
            self.close()

    def close(self) -> None:
        """Stop deliveries until everything is flushed."""
        self.paused = True
        self._source.pause(True)

    def block(self) -> None:
        """Stop deliveries: the operating system does not accept more output."""
        self.socket_full = True
        self.close()

    def flushed(self) -> None:
        """Resume deliveries: the operating system has accepted all output."""
        self.socket_full = False
        self._unflushed_bytes = 0
        if self.paused:
            self.paused = False
            self._source.pause(False)
