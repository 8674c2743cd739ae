"""Payloads that are read while they go out, and what waits behind each of them.

A PUBLISH packet cannot be interrupted: whatever is to be sent meanwhile follows it.  The lists of bytes between the
payloads are those that the connection appends to (`MqttConnection.out`), one after the other.
"""

from __future__ import annotations

from typing import Final, Protocol

#: Bytes of payloads that are read for one call of `read`, which at least begins with a piece: with many small ones
#: waiting, memory stays as small as with one that is large.
STREAMED_BYTES_MAX: Final = 256 << 10


class Source(Protocol):
    """A payload that is read while it goes out; `left`: bytes still to come."""

    @property
    def left(self) -> int:
        """Bytes still to come."""

    def read(self) -> bytes:
        """The next piece, not empty."""


class Streams:
    """The payloads that one connection has to read, in order."""

    __slots__ = ("_ahead", "_waiting")

    def __init__(self) -> None:
        self._ahead: list[bytes] = []
        self._waiting: list[tuple[Source, list[bytes]]] = []  # an empty deque would cost 700 bytes

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def current(self) -> Source | None:
        """The payload that is being read."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, out: list[bytes], source: Source) -> list[bytes]:
        """A payload follows what is in `out`; returns the list for what follows it."""
        if not self._waiting:
            self._ahead = out
        following: list[bytes] = []
        self._waiting.append((source, following))
        return following

    def read(self) -> bytes:
        """What comes before the first payload that is not read to its end yet, and a piece of that.

        Raises whatever reading raises, and has lost nothing then.
        """
        waiting, parts, nbytes = self._waiting, self._ahead, 0
        while waiting and nbytes < STREAMED_BYTES_MAX:
            source, following = waiting[0]
            piece = source.read()
            nbytes += len(piece)
            parts.append(piece)
            if not source.left:
                del waiting[0]
                parts += following
                following.clear()
        data = b"".join(parts)
        parts.clear()
        return data

    def clear(self) -> None:
        """Forget them."""
        self._waiting.clear()
