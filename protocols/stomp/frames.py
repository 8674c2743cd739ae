"""Frames: received ones as objects, frames to send as bytes.

The NUL that ends a sent frame is followed by an LF, which the grammar allows (1.2, Augmented BNF): other brokers send
it, and clients depend on it.  PHP's client reads one more byte, and loses the next frame if that is the frame's first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

#: The bytes that end a frame.
END: Final = b"\0\n"

HEARTBEAT: Final = b"\n"

_NO_HEADERS: Final[dict[bytes, bytes]] = {}


class Frame:
    """A frame from a client.

    `headers` are unescaped, the first of repeated ones.  `lines` are the header lines as received, each ended by LF, if
    they are exactly these headers in STOMP 1.2 and so can be forwarded unchanged; otherwise None (repeated headers,
    colons or CRs that should be escaped, an older version's rules).
    """

    __slots__ = ("body", "command", "headers", "lines")

    def __init__(
        self, command: str, headers: dict[bytes, bytes], body: bytes = b"", lines: bytes | None = None
    ) -> None:
        self.command = command
        self.headers = headers
        self.body = body
        self.lines = lines


class Lead:
    """The common beginning of similar SENDs: the command and their first header lines, `begins`.

    The other header lines do not affect how they are handled, and have none of the names `excluded`.
    """

    __slots__ = ("begins", "excluded")

    def __init__(self, begins: bytes, excluded: frozenset[bytes]) -> None:
        self.begins = begins
        self.excluded = excluded


class Known(Frame):
    """A SEND that begins with a `lead`; `lines` are its other header lines, which are not parsed into `headers`."""

    __slots__ = ("lead",)

    def __init__(self, lead: Lead, lines: bytes, body: bytes) -> None:
        super().__init__("SEND", _NO_HEADERS, body, lines)
        self.lead = lead


class Begun(Frame):
    """A SEND whose body is too large to be buffered: it follows in Parts."""

    __slots__ = ()

    def __init__(self, headers: dict[bytes, bytes], lines: bytes | None) -> None:
        super().__init__("BEGUN", headers, b"", lines)


class Part(Frame):
    """Bytes of such a body.  After the `last` one nothing is read until `resume`."""

    __slots__ = ("last",)

    def __init__(self, body: bytes, *, last: bool) -> None:
        super().__init__("PART", {}, body)
        self.last = last


class Source(Protocol):
    """A body that is read piece by piece while it is sent."""

    @property
    def left(self) -> int:
        """Bytes not read yet."""

    def read(self) -> bytes:
        """The next piece, small enough to fit into memory many times."""


class Acks(Frame):
    """Several ACKs in a row that have only the ids assigned by the broker: the most frequent frames of a consumer.

    Such an id is two numbers separated by a comma; `subscriptions` are the first ones, as received, `ids` the second.
    """

    __slots__ = ("ids", "subscriptions")

    def __init__(self, subscriptions: list[bytes], ids: list[int]) -> None:
        super().__init__("ACKS", {})
        self.subscriptions = subscriptions
        self.ids = ids


def encode(command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> bytes:
    """A frame's bytes; names and values are already escaped."""
    return b"%b\n%b\n%b\0\n" % (command, b"".join([b"%b:%b\n" % header for header in headers]), body)
