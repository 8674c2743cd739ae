"""Every limit: as much as it allows, and one more, however it arrives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import FirstTooLarge, StompError
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import EOL, connected, failure, maker, show
from tests.support.stomp_client import frame
from tests.support.wire import bytewise, check_codec, check_malformed, cuts, feed

SMALL = Limits(
    header_count_max=4, header_line_bytes_max=20, header_bytes_max=60, body_bytes_max=10, connect_bytes_max=60
)


def accepted(raw: bytes, limits: Limits = SMALL, version: str = "1.2") -> None:
    """All of it, however it arrives."""
    (whole,) = feed(connected(version, limits), [raw])
    check_codec(maker(version, limits), raw, [show(whole)], show=show, blank=EOL)


def refused(raw: bytes, message: str, limits: Limits = SMALL, version: str = "1.2") -> StompError:
    """However it arrives; a first part that is already too much may be refused with other words."""
    error = check_malformed(maker(version, limits), raw, StompError)
    assert error.message == message
    return error


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_header_count(version: str, eol: bytes) -> None:
    limits = Limits(header_count_max=4)
    headers = {"destination": "a", "b": "", "c": "", "d": ""}
    accepted(frame("SEND", headers, eol=eol), limits, version)
    error = refused(frame("SEND", headers | {"e": ""}, eol=eol), "too many headers", limits, version)
    assert error.detail == "SEND: a frame may have 4 headers, this one has 5"


def test_repeated_headers_count() -> None:
    accepted(frame("ACK", [("id", "a")] * 4))
    refused(frame("ACK", [("id", "a")] * 5), "too many headers")


def test_header_count_is_refused_before_the_head_is_complete() -> None:
    connection = connected(limits=SMALL)
    assert feed(connection, bytewise(b"ACK\nid:1\na:\nb:\nc:\n")) == []
    assert failure(connection) is None
    assert feed(connection, bytewise(b"d:\n")) == []
    assert failure(connection) == "too many headers"


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_header_line_bytes(eol: bytes) -> None:
    """Name, colon and value as they are on the wire, escapes and all, without the end of the line."""
    for value in ("x" * 15, ":" + "x" * 13, "ä" * 7 + "x"):
        accepted(frame("ACK", {"id": "1", "name": value}, eol=eol))
        error = refused(frame("ACK", {"id": "1", "name": value + "x"}, eol=eol), "header too large")
        assert error.detail == "ACK: a header line may have 20 bytes, line 2 has 21"


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_header_bytes(eol: bytes) -> None:
    """Everything before the empty line but the end of the last line."""
    start = eol.join([b"ACK", b"id:1", b"a:" + b"x" * 18, b"b:" + b"x" * 16])
    last = eol + b"c:" + b"x" * (60 - len(start) - len(eol) - 2 - (len(eol) - 1))
    accepted(start + last + eol + eol + b"\0")
    error = refused(start + last + b"x" + eol + eol + b"\0", "headers too large")
    assert error.detail == "The headers of a frame may have 60 bytes, these have more."
    assert error.receipt is None


def test_a_head_without_end_is_refused_when_it_is_too_large() -> None:
    """Not before, and with no more kept than the end of the last line."""
    connection = connected(limits=SMALL)
    assert feed(connection, bytewise(b"ACK\nid:" + b"x" * (60 + 2 - 7))) == []
    assert failure(connection) is None
    assert feed(connection, [b"x"]) == []
    assert failure(connection) == "headers too large"


@pytest.mark.parametrize("body", [b"x", b"\n"])
def test_body_bytes(body: bytes) -> None:
    accepted(frame("SEND", {"destination": "a"}, body * 10))
    error = refused(frame("SEND", {"destination": "a", "receipt": "r"}, body * 11), "body too large")
    assert error.detail == "SEND: a body may have 10 bytes, this one has more"
    assert error.receipt == b"r"


def test_body_bytes_with_content_length() -> None:
    accepted(frame("SEND", {"destination": "a"}, b"\0" * 10))
    raw = frame("SEND", {"destination": "a"}, b"\0" * 11)
    refused(raw, "body too large")
    refused(raw[: raw.index(b"\n\n") + 2], "body too large")  # before any of it has come


def test_body_bytes_of_subscribe_in_1_0() -> None:
    accepted(frame("SUBSCRIBE", {"destination": "a"}, b"x" * 10), version="1.0")
    refused(frame("SUBSCRIBE", {"destination": "a"}, b"x" * 11), "body too large", version="1.0")


def test_a_body_without_nul_is_refused_when_it_is_too_large() -> None:
    connection = connected(limits=SMALL)
    assert feed(connection, bytewise(b"SEND\ndestination:a\n\n" + b"x" * 10)) == []
    assert failure(connection) is None
    assert feed(connection, [b"x"]) == []
    assert failure(connection) is not None


def test_a_first_frame_is_too_large_before_one_of_its_lines_is() -> None:
    """Of two limits, who has a long token is told the one to raise first."""
    limits = Limits(connect_bytes_max=60, header_line_bytes_max=50)
    for raw in (b"CONNECT\nlogin:" + b"x" * 100 + b"\n\n\0", b"CONNECT\r\nlogin:" + b"x" * 100 + b"\r\n\r\n\0"):
        for pieces in cuts(raw):
            connection = StompConnection(limits)
            feed(connection, pieces)
            assert isinstance(connection.error, FirstTooLarge)


def test_connect_bytes() -> None:
    """The whole first frame with its NUL, but not what stands before and after it."""
    limits = Limits(connect_bytes_max=60)
    raw = frame("CONNECT", {"accept-version": "1.2", "login": ""})
    most = raw.replace(b"login:", b"login:" + b"x" * (60 - len(raw)))
    assert len(most) == 60
    for pieces in cuts(b"\n\n" + most + b"\n\n"):
        connection = StompConnection(limits)
        assert len(feed(connection, pieces)) == 1
        assert connection.error is None
    more = most.replace(b"login:", b"login:x")
    error = check_malformed(lambda: StompConnection(limits), more, StompError)
    assert error.message == "frame too large"
    assert error.detail == "The first frame may have 60 bytes, this one has more."


def test_a_first_frame_that_has_no_room_for_its_nul_is_refused() -> None:
    for unfinished in b"CONNECT\nlogin:", b"CONNECT\n\n", b"CONNECT\ncontent-length:0\n\n":
        limits = Limits(connect_bytes_max=len(unfinished))
        connection = StompConnection(limits)
        assert feed(connection, bytewise(unfinished[:-1])) == []
        assert failure(connection) is None
        assert feed(connection, [unfinished[-1:]]) == []
        assert failure(connection) is not None


@pytest.mark.parametrize("flood", [b"x", b"a:b\n", b"CONNECT\n\n"])
def test_no_more_is_kept_of_somebody_who_has_not_connected(flood: bytes) -> None:
    connection = StompConnection(Limits(header_count_max=100_000))
    fed = 0
    while failure(connection) is None:
        assert feed(connection, [flood]) == []
        fed += len(flood)
    assert fed <= (16 << 10) + len(flood)


def test_the_head_of_connect_has_the_other_limits_too() -> None:
    limits = Limits(header_bytes_max=30)
    error = check_malformed(lambda: StompConnection(limits), frame("CONNECT", {"login": "x" * 30}), StompError)
    assert error.message == "headers too large"


def greeted(limits: Limits) -> StompConnection:
    """A connection with limits that the usual CONNECT would exceed."""
    connection = StompConnection(limits)
    assert len(feed(connection, [frame("CONNECT")])) == 1
    connection.send_connected("1.2", [])
    return connection


def exceeds(limits: Limits, command: bytes, lines: list[bytes]) -> bool:
    """Whether a head is above a limit, computed the obvious way."""
    return (
        len(lines) > limits.header_count_max
        or any(len(line) > limits.header_line_bytes_max for line in lines)
        or len(b"\n".join([command, *lines])) > limits.header_bytes_max
    )


@given(
    limits=st.builds(
        Limits,
        header_count_max=st.integers(1, 8),
        header_line_bytes_max=st.integers(4, 40),
        header_bytes_max=st.integers(8, 60),
    ),
    lines=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.just("") | st.text("xy:ä", max_size=20)).map(
            lambda pair: f"{pair[0]}:{pair[1]}".encode()
        ),
        max_size=10,
    ),
)
@example(limits=Limits(header_count_max=2), lines=[b"a:", b"b:"])
@example(limits=Limits(header_count_max=20), lines=[b"%c:" % name for name in range(65, 85)])
def test_the_short_way_passes_no_limit(limits: Limits, lines: list[bytes]) -> None:
    """Heads that are not checked since they are short are below every limit."""
    lines = [b"id:1", *lines]
    for at in range(1, len(lines) + 1):
        above = exceeds(limits, b"ACK", lines[:at])
        connection = greeted(limits)
        assert len(feed(connection, [b"\n".join([b"ACK", *lines[:at]]) + b"\n\n\0"])) == (0 if above else 1)
        assert (connection.error is not None) == above
