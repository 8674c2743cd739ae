"""A codec's four tests in one: bytes whole, one at a time, cut at every point, cut short, and with more after them.

Every codec of `protocols` has the same few verbs, so this serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol, TypeVar

Event = TypeVar("Event")
Error = TypeVar("Error", bound=Exception)
Shown = object

#: The most bytes of a read of those that are of any size.
READ_BYTES_MAX = 64


class Codec(Protocol[Event]):
    """The receiving half of a codec."""

    @property
    def error(self) -> Exception | None:
        """The error in the bytes, if any."""

    def receive_data(self, data: bytes) -> None:
        """Receive bytes from the peer."""

    def receive_eof(self) -> None:
        """Receive the end of the peer's bytes."""

    def events(self) -> list[Event]:
        """Return the events of the bytes so far."""


def feed(codec: Codec[Event], pieces: Iterable[bytes]) -> list[Event]:
    """Return the events of some pieces, read after each."""
    found: list[Event] = []
    for piece in pieces:
        codec.receive_data(piece)
        while events := codec.events():
            found += events
    return found


def bytewise(raw: bytes) -> list[bytes]:
    """Split bytes into single ones."""
    return [raw[at : at + 1] for at in range(len(raw))]


def cuts(raw: bytes) -> list[list[bytes]]:
    """Return the ways to split bytes that must make no difference to a codec: whole, bytewise, in two parts."""
    return [[raw], bytewise(raw), *([raw[:at], raw[at:]] for at in range(1, len(raw)))]


def pieces_of(random: Random, raw: bytes) -> list[bytes]:
    """Split bytes into reads of random sizes."""
    pieces = []
    at = 0
    while at < len(raw):
        size = random.randint(1, READ_BYTES_MAX)
        pieces.append(raw[at : at + size])
        at += size
    return pieces


def check_codec(
    make: Callable[[], Codec[Event]],
    raw: bytes,
    expected: list[Shown],
    *,
    show: Callable[[Event], Shown],
    blank: bytes = b"",
    trailing: bytes = b"",
) -> None:
    """Check that `raw` gives `expected`, in any pieces and before `trailing` bytes, and less than `raw` gives nothing.

    `expected` are the results of `show` for the events, which must all appear at the last byte of `raw`.  A prefix that
    consists of `blank` bytes may end the connection, any other may not.
    """
    for pieces in cuts(raw):
        codec = make()
        assert [show(event) for event in feed(codec, pieces)] == expected, pieces
        assert codec.error is None
        codec.receive_eof()
        assert feed(codec, [b""]) == []
        assert codec.error is None
    for length in range(len(raw)):
        codec = make()
        assert feed(codec, [raw[:length]]) == []
        assert codec.error is None
        codec.receive_eof()
        assert feed(codec, [b""]) == []
        assert (codec.error is None) == (not raw[:length].strip(blank)), raw[:length]
    for pieces in [raw + trailing], [raw, trailing]:
        codec = make()
        assert [show(event) for event in feed(codec, pieces)] == expected
        assert codec.error is None


def check_malformed(make: Callable[[], Codec[Event]], raw: bytes, kind: type[Error], *, before: int = 0) -> Error:
    """Check that `raw` is malformed, in any pieces, after `before` good events; returns the error for it whole.

    After an error there are no more events, whatever follows.
    """
    errors: list[Error] = []
    for pieces in cuts(raw):
        codec = make()
        assert len(feed(codec, pieces)) == before, pieces
        error = codec.error
        assert isinstance(error, kind), pieces
        assert feed(codec, [raw, b"", raw]) == []
        codec.receive_eof()
        assert codec.error is error
        errors.append(error)
    return errors[0]
