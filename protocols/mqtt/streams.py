"""Payloads that are read piece by piece while they are sent, and the bytes that wait behind each of them.

A PUBLISH packet cannot be interrupted: anything sent meanwhile must follow it.  The connection appends to the lists of
bytes between the payloads (`MqttConnection.out`), one after the other.
"""

from __future__ import annotations

from typing import Final, Protocol

#: Bytes of payloads read in one call of `read`, which reads at least one piece: many small payloads use no more memory
#: than a large one.
STREAMED_BYTES_MAX: Final = 256 << 10


class Source(Protocol):
    """A payload that is read piece by piece while it is sent."""

    @property
    def left(self) -> int:
        """Bytes not read yet."""

    def read(self) -> bytes:
        """The next piece, not empty."""


class Streams:
    """The payloads that one connection must send, in order."""

    __slots__ = ("_ahead", "_waiting")

    def __init__(self) -> None:
        self._ahead: list[bytes] = []
        self._waiting: list[tuple[Source, list[bytes]]] = []  # an empty deque would cost 700 bytes

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def current(self) -> Source | None:
        """The payload being read."""
        return self._waiting[0][0] if self._waiting else None

    def add(self, out: list[bytes], source: Source) -> list[bytes]:
        """Add a payload that follows the bytes in `out`; returns the list for the bytes that follow it."""
        if not self._waiting:
            self._ahead = out
        following: list[bytes] = []
        self._waiting.append((source, following))
        return following

    def read(self) -> bytes:
        """The bytes up to the first unfinished payload, and a piece of that payload.

        Raises the errors of reading the payload; nothing is lost then.
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
