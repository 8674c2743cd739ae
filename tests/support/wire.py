"""A codec's four tests in one: bytes whole, one at a time, cut at every point, cut short, and with more after them.

Every codec of `protocols` has the same few verbs, so this serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

Event = TypeVar("Event")
Shown = object


class Codec(Protocol[Event]):
    """The receiving half of a codec."""

    @property
    def error(self) -> Exception | None:
        """What was wrong with the bytes."""

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer."""

    def receive_eof(self) -> None:
        """The peer sends no more."""

    def events(self) -> list[Event]:
        """What they said."""


def feed(codec: Codec[Event], pieces: Iterable[bytes]) -> list[Event]:
    """The events of some pieces, asked for after each."""
    found: list[Event] = []
    for piece in pieces:
        codec.receive_data(piece)
        while events := codec.events():
            found += events
    return found


def bytewise(raw: bytes) -> list[bytes]:
    """One byte at a time."""
    return [raw[at : at + 1] for at in range(len(raw))]


def cuts(raw: bytes) -> list[list[bytes]]:
    """Every way in which some bytes can arrive that a codec should not notice: whole, bytewise, in two parts."""
    return [[raw], bytewise(raw), *([raw[:at], raw[at:]] for at in range(1, len(raw)))]


def check_codec(
    make: Callable[[], Codec[Event]],
    raw: bytes,
    expected: list[Shown],
    *,
    show: Callable[[Event], Shown],
    blank: bytes = b"",
    trailing: bytes = b"",
) -> None:
    """`raw` is `expected`, however it arrives and whatever `trailing` bytes follow; less than `raw` is nothing at all.

    `expected` are what `show` makes of the events; they must all come out at the last byte of `raw`.  A prefix that
    consists of `blank` bytes may end the connection, every other one may not.
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


def check_malformed(make: Callable[[], Codec[Event]], raw: bytes, *, before: int = 0) -> Exception:
    """`raw` is malformed, however it arrives, after `before` good events; the error that it gives when it comes whole.

    Nothing comes out after an error, whatever follows.
    """
    errors: list[Exception] = []
    for pieces in cuts(raw):
        codec = make()
        assert len(feed(codec, pieces)) == before, pieces
        error = codec.error
        assert error is not None, pieces
        assert feed(codec, [raw, b"", raw]) == []
        codec.receive_eof()
        assert codec.error is error
        errors.append(error)
    return errors[0]
