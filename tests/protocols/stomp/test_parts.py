"""Bodies that come in parts and go out in pieces, however the bytes arrive."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import END, Begun, Frame, Part
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import VERSIONS, connected, failure
from tests.support.wire import cuts

WHOLE = 10
MOST = 40
LIMITS = Limits(whole_bytes_max=WHOLE, body_bytes_max=MOST)

BODY = b"0123456789\n\nabc"
BEFORE = b"SEND\ndestination:a\n\nsmall\0\n"
AFTER = b"\r\nSEND\ndestination:b\n\nafter\0"
SIZED = b"SEND\ndestination:q\ncontent-length:15\nreceipt:1\n\n" + BODY + b"\0"
UNSIZED = b"SEND\ndestination:q\nreceipt:1\n\n" + BODY + b"\0"


def read(connection: StompConnection, pieces: Iterable[bytes]) -> list[Frame]:
    """The frames of these pieces; whoever reads resumes at once."""
    found: list[Frame] = []
    for piece in pieces:
        connection.receive_data(piece)
        while frames := connection.events():
            found += frames
            if isinstance(frames[-1], Part) and frames[-1].last:
                assert connection.events() == [], "nothing is read before somebody resumes"
                connection.resume()
    return found


def told(frames: list[Frame]) -> list[tuple[str, bytes]]:
    """Commands and bodies, those of parts together."""
    found: list[tuple[str, bytes]] = []
    for frame in frames:
        if isinstance(frame, Part):
            command, body = found.pop()
            found.append((command, body + frame.body))
        else:
            found.append((frame.command, frame.body))
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("raw", [SIZED, UNSIZED])
def test_however_it_arrives(version: str, raw: bytes) -> None:
    for pieces in cuts(BEFORE + raw + AFTER):
        connection = connected(version, LIMITS)
        frames = read(connection, pieces)
        assert told(frames) == [("SEND", b"small"), ("BEGUN", BODY), ("SEND", b"after")]
        (begun,) = [frame for frame in frames if isinstance(frame, Begun)]
        assert begun.headers[b"receipt"] == b"1"
        parts = [frame for frame in frames if isinstance(frame, Part)]
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
        connection.receive_eof()
        assert connection.events() == []
        assert connection.error is None


@pytest.mark.parametrize("raw", [SIZED, UNSIZED])
def test_every_prefix_is_incomplete(raw: bytes) -> None:
    for length in range(1, len(raw)):
        connection = connected("1.2", LIMITS)
        frames = read(connection, [raw[:length]])
        assert not any(isinstance(frame, Part) and frame.last for frame in frames)
        connection.receive_eof()
        assert connection.events() == []
        assert failure(connection) == "incomplete frame", raw[:length]


@pytest.mark.parametrize("raw", [SIZED, UNSIZED])
def test_the_buffered_bytes_are_those_that_have_just_come(raw: bytes) -> None:
    connection = connected("1.2", LIMITS)
    for at in range(len(raw)):
        read(connection, [raw[at : at + 1]])
        assert len(connection._buffer) + len(connection._pending) <= len(raw) - len(BODY) + WHOLE + 1


def test_nothing_is_read_before_somebody_resumes() -> None:
    connection = connected("1.2", LIMITS)
    connection.receive_data(SIZED + AFTER)
    frames = connection.events()
    assert isinstance(frames[-1], Part)
    assert frames[-1].last
    connection.receive_data(AFTER)
    connection.receive_eof()
    assert connection.events() == []
    connection.resume()
    assert told(connection.events()) == [("SEND", b"after")] * 2
    assert connection.error is None


@pytest.mark.parametrize(("nbytes", "error"), [(MOST, None), (MOST + 1, "body too large")])
@pytest.mark.parametrize("sized", [True, False])
def test_body_bytes_max(nbytes: int, error: str | None, sized: bool) -> None:
    head = b"SEND\ndestination:q\n" + (b"content-length:%d\n" % nbytes if sized else b"") + b"\n"
    for pieces in cuts(head + b"x" * nbytes + b"\0"):
        connection = connected("1.2", LIMITS)
        frames = read(connection, pieces)
        assert failure(connection) == error
        assert any(isinstance(frame, Part) and frame.last for frame in frames) is (error is None)


@pytest.mark.parametrize(("nbytes", "command"), [(WHOLE, "SEND"), (WHOLE + 1, "BEGUN")])
def test_whole_bytes_max(nbytes: int, command: str) -> None:
    raw = b"SEND\ndestination:q\n\n" + b"x" * nbytes + b"\0"
    for pieces in cuts(raw):
        assert told(read(connected("1.2", LIMITS), pieces)) == [(command, b"x" * nbytes)]


def test_no_nul_behind_the_body() -> None:
    raw = SIZED[:-1] + b"x"
    for pieces in cuts(raw):
        connection = connected("1.2", LIMITS)
        frames = read(connection, pieces)
        assert connection.error is not None
        assert not any(isinstance(frame, Part) and frame.last for frame in frames)


def test_the_body_of_a_subscribe_is_kept_whole_and_so_is_small() -> None:
    connection = connected("1.0", LIMITS)
    read(connection, [b"SUBSCRIBE\ndestination:q\n\n" + b"x" * (WHOLE + 1)])
    assert failure(connection) == "body too large"


class Pieces:
    """A source of these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    @property
    def left(self) -> int:
        return sum(map(len, self._pieces))

    def read(self) -> bytes:
        return self._pieces.pop(0)


def test_bodies_go_out_in_pieces_and_in_order() -> None:
    connection = connected("1.2", LIMITS)
    connection.output.parts.append(b"HEAD1\n\n")
    connection.output.add_body(Pieces(b"a", b"b", b"c"))
    connection.output.parts += [END, b"HEAD2\n\n"]
    connection.output.add_body(Pieces(b"d"))
    connection.output.parts.append(END)
    connection.send_heartbeat()
    sent = []
    while connection.output.streaming:
        sent.append(connection.data_to_send())
    assert sent == [b"HEAD1\n\na", b"b", b"c\0\nHEAD2\n\nd\0\n\n"]
    assert connection.data_to_send() == b""


def test_frames_one_by_one() -> None:
    connection = connected("1.2", LIMITS)
    connection.output.parts += [b"RECEIPT\n\n\0", b"HEAD1\n\n"]
    connection.output.add_body(Pieces(b"a", b"b", b"c"))
    connection.output.parts += [b"\0", b"HEAD2\n\n", b"body", b"\0", b"HEAD3\n\n"]
    connection.output.add_body(Pieces(b"d"))
    connection.output.parts.append(b"\0")
    connection.send_heartbeat()
    sent = []
    while connection.output.parts:
        sent.append((connection.output.read_frames(), connection.output.streaming))
    assert sent == [
        ([b"RECEIPT\n\n\0", b"HEAD1\n\na"], True),
        ([b"b"], True),
        ([b"c\0", b"HEAD2\n\nbody\0", b"HEAD3\n\nd\0", b"\n"], False),
    ]


def test_abandon() -> None:
    connection = connected("1.2", LIMITS)
    connection.output.parts.append(b"HEAD\n\n")
    connection.output.add_body(Pieces(b"a", b"b"))
    connection.output.parts.append(END)
    connection.data_to_send()
    connection.abandon()
    assert connection.data_to_send() == b""
    assert connection.close_expected
