"""Frames: what comes in as an object, what goes out as bytes.

Behind the NUL that ends a frame goes an LF, which the grammar allows (1.2, Augmented BNF): other brokers send it, and
clients count on it.  PHP's reads one byte more, and loses the next frame if that is its first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

#: What ends a frame.
END: Final = b"\0\n"

HEARTBEAT: Final = b"\n"

_NO_HEADERS: Final[dict[bytes, bytes]] = {}


class Frame:
    """A frame from a client.

    `headers` are unescaped, the first of repeated ones; `lines` are the header lines as they came, each ended by LF,
    when they are just what these headers are in STOMP 1.2 and can be passed on so, or None (repeated headers, colons
    or CRs that lack their escapes, an older version's rules).
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
    """How SENDs begin that are much alike: the command and their first header lines, `begins`.

    Whatever else their heads say has nothing to do with how they are handled, and none of the names `excluded`.
    """

    __slots__ = ("begins", "excluded")

    def __init__(self, begins: bytes, excluded: frozenset[bytes]) -> None:
        self.begins = begins
        self.excluded = excluded


class Known(Frame):
    """A SEND that begins with a `lead`; `lines` are the other ones, of which no `headers` are made."""

    __slots__ = ("lead",)

    def __init__(self, lead: Lead, lines: bytes, body: bytes) -> None:
        super().__init__("SEND", _NO_HEADERS, body, lines)
        self.lead = lead


class Begun(Frame):
    """A SEND whose body is too large to be kept: it comes in Parts behind this."""

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
    """A body that is read while it goes out."""

    @property
    def left(self) -> int:
        """Bytes still to come."""

    def read(self) -> bytes:
        """The next of them, a piece of a size that fits into memory many times."""


class Acks(Frame):
    """Several ACKs in a row with nothing but the ids that the broker gave: the most frequent frames of a consumer.

    Such an id is two numbers with a comma between; `subscriptions` are the first ones, as they came, `ids` the second.
    """

    __slots__ = ("ids", "subscriptions")

    def __init__(self, subscriptions: list[bytes], ids: list[int]) -> None:
        super().__init__("ACKS", {})
        self.subscriptions = subscriptions
        self.ids = ids


def encode(command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> bytes:
    """A frame's bytes; names and values are already escaped."""
    return b"%b\n%b\n%b\0\n" % (command, b"".join([b"%b:%b\n" % header for header in headers]), body)
