"""Limits the output that waits for the operating system: the memory that a client costs if it does not read."""

from __future__ import annotations

from typing import Final

#: Deliveries to a connection stop while this many bytes of its messages wait for the operating system to accept them.
UNFLUSHED_BYTES_MAX: Final = 2 << 20


class OutputWindow:
    """The output window of one connection, whose session pauses its deliveries when it is told to.

    `socket_full`: the operating system has not accepted all output; `paused`: deliveries are stopped.
    """

    __slots__ = ("_unflushed_bytes", "paused", "socket_full")

    def __init__(self) -> None:
        self.paused = False
        self.socket_full = False
        self._unflushed_bytes = 0

    @property
    def room(self) -> int:
        """Bytes of messages that may still be sent; the last message may exceed it."""
        return UNFLUSHED_BYTES_MAX - self._unflushed_bytes

    def sent(self, nbytes: int) -> bool:
        """Count bytes of messages that are sent in this tick.  Returns whether deliveries are to be paused."""
        self._unflushed_bytes += nbytes
        return self._unflushed_bytes >= UNFLUSHED_BYTES_MAX

    def flushed(self) -> bool:
        """The operating system has accepted all output.  Returns whether deliveries are to be resumed."""
        self.socket_full = False
        self._unflushed_bytes = 0
        paused, self.paused = self.paused, False
        return paused
