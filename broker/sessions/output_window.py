"""How much may wait for the operating system: what a client that does not read costs."""

from __future__ import annotations

from typing import Final, Protocol

#: Bytes of messages that wait for the operating system to take them, over all subscriptions of a connection, above
#: which no more are delivered.
UNFLUSHED_BYTES_MAX: Final = 2 << 20


class Pausable(Protocol):
    """What delivers."""

    def pause(self, paused: bool) -> None:
        """No deliveries for now, or again."""


class OutputWindow:
    """That of one connection, whose deliveries `source` makes.

    `socket_full`: the operating system does not take what there is; `paused`: nothing is delivered.
    """

    __slots__ = ("_source", "_unflushed_bytes", "paused", "socket_full")

    def __init__(self, source: Pausable) -> None:
        self.paused = False
        self.socket_full = False
        self._source = source
        self._unflushed_bytes = 0

    @property
    def room(self) -> int:
        """Bytes that may be added; the last message may exceed them."""
        return UNFLUSHED_BYTES_MAX - self._unflushed_bytes

    def sent(self, nbytes: int) -> None:
        """So many bytes of messages go out with this tick."""
        self._unflushed_bytes += nbytes
        if self._unflushed_bytes >= UNFLUSHED_BYTES_MAX:
            self.close()

    def close(self) -> None:
        """Nothing more is delivered until all is flushed."""
        self.paused = True
        self._source.pause(True)

    def block(self) -> None:
        """The operating system does not take more."""
        self.socket_full = True
        self.close()

    def flushed(self) -> None:
        """It has taken all: deliveries go on."""
        self.socket_full = False
        self._unflushed_bytes = 0
        if self.paused:
            self.paused = False
            self._source.pause(False)
