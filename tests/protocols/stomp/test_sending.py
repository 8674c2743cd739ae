"""What the server says, read by a client that was written apart from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.stomp.connection import StompConnection, negotiate, parse_heartbeat
from protocols.stomp.errors import StompError, format_value
from protocols.stomp.frames import END, encode
from protocols.stomp.headers import escape
from tests.protocols.stomp.peer import VERSIONS, connected, sent
from tests.support.stomp_client import FrameReader, frame
from tests.support.wire import feed


@pytest.mark.parametrize("version", VERSIONS)
def test_connected(version: str) -> None:
    """Not escaped, in any version; what would break the frame becomes a space."""
    connection = StompConnection()
    assert len(feed(connection, [frame("CONNECT")])) == 1
    connection.send_connected(version, [(b"session", b"a:b\\c"), (b"response-id", b"x\ny\r\0")])
    assert connection.version == version
    assert connection.data_to_send() == b"CONNECTED\nversion:%b\nsession:a:b\\c\nresponse-id:x y  \n\n\0\n" % (
        version.encode()
    )
    assert connection.data_to_send() == b""


def test_nobody_is_connected_who_has_not_asked() -> None:
    with pytest.raises(AssertionError):
        StompConnection().send_connected("1.2", [])
    with pytest.raises(AssertionError):
        connected().send_connected("1.2", [])


@given(version=st.sampled_from(["1.1", "1.2"]), receipt=st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_receipt_comes_back_as_it_was_sent(version: str, receipt: str) -> None:
    connection = connected(version)
    raw = frame("SEND", {"destination": "a", "receipt": receipt}, version=version)
    (received,) = feed(connection, [raw])
    connection.send_receipt(received.headers[b"receipt"])
    (answer,) = sent(connection)
    wanted = receipt.removesuffix("\r") if version == "1.1" else receipt  # a CR before the LF belongs to it
    assert (answer.command, answer.headers, answer.body) == ("RECEIPT", {"receipt-id": wanted}, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_receipt_cannot_inject_a_frame(version: str) -> None:
    connection = connected(version)
    connection.send_receipt(b"x\n\n\0MESSAGE\nsubscription:0\n\nbody\0")
    data = connection.data_to_send()
    assert data.count(b"\0") == 1
    assert data.endswith(b"\n\n\0\n")
    assert data.count(b"\n") == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_error(version: str) -> None:
    connection = connected(version)
    connection.send_error(StompError("no such thing", "SEND: größe: there is\nno such thing", b"r\n1"))
    (answer,) = FrameReader(version).feed(connection.data_to_send())
    assert answer.command == "ERROR"
    assert answer.headers == {
        "message": "no such thing",
        "receipt-id": "r 1" if version == "1.0" else "r\n1",
        "content-type": "text/plain;charset=utf-8",
        "content-length": str(len(answer.body)),
    }
    assert answer.body.decode() == "SEND: größe: there is\nno such thing\n"
    assert connection.close_expected


def test_of_several_errors_the_first_is_sent() -> None:
    connection = connected()
    connection.send_error(StompError("first", "The first."))
    connection.send_error(StompError("second", "The second."))
    assert [answer.headers["message"] for answer in sent(connection)] == ["first"]


def test_nothing_is_read_after_an_error_was_sent() -> None:
    connection = connected()
    connection.receive_data(frame("SEND", {"destination": "a"}))
    connection.send_error(StompError("refused", "Refused."))
    assert connection.events() == []
    assert feed(connection, [frame("SEND", {"destination": "a"})]) == []
    assert connection.error is None


def test_an_error_instead_of_connected_says_which_versions_there_are() -> None:
    unknown = StompConnection()
    unknown.send_error(StompError("unknown command", "'GET' is not a command of STOMP"))
    assert sent(unknown)[0].headers["version"] == "1.0,1.1,1.2"
    refused = StompConnection()
    (received,) = feed(refused, [frame("CONNECT", {"accept-version": "2.0,2.1"})])
    with pytest.raises(StompError) as caught:
        negotiate(received.headers[b"accept-version"])
    refused.send_error(caught.value)
    (answer,) = sent(refused)
    assert answer.headers["version"] == "1.0,1.1,1.2"
    assert answer.body == b"CONNECT: the client supports none of the versions 1.0, 1.1, 1.2\n"


def test_an_error_that_the_codec_found_is_sent() -> None:
    connection = connected()
    assert feed(connection, [frame("ACK", {"receipt": "7"})]) == []
    assert connection.error is not None
    connection.send_error(connection.error)
    (answer,) = sent(connection)
    assert answer.headers["receipt-id"] == "7"
    assert answer.body == b"ACK: the header id is missing\n"


def test_heartbeats_and_frames_go_out_in_order() -> None:
    connection = connected()
    connection.send_heartbeat()
    assert connection.data_to_send() == b"\n"
    connection.send_receipt(b"1")
    connection.send_heartbeat()
    connection.output.parts.append(b"MESSAGE\nsubscription:0\nmessage-id:4,17\ndestination:a\nn:v\n\nb\0\n")
    connection.output.parts += (b"MESSAGE\nmessage-id:18\n\n", b"body", END)
    reader = FrameReader("1.2")
    receipt, first, second = reader.feed(connection.data_to_send())
    assert receipt.headers == {"receipt-id": "1"}
    assert first.headers == {"subscription": "0", "message-id": "4,17", "destination": "a", "n": "v"}
    assert (first.body, second.body) == (b"b", b"body")
    assert (reader.heartbeats, reader.pending) == (1, 0)


def test_encode() -> None:
    assert encode(b"X", [(b"a", b"1"), (b"b", b"2")], b"body") == b"X\na:1\nb:2\n\nbody\0\n"
    assert encode(b"X", []) == b"X\n\n\0\n"


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        (None, "1.0"),
        (b"1.0", "1.0"),
        (b"1.1", "1.1"),
        (b"1.0,1.1,1.2", "1.2"),
        (b"1.2,1.1,1.0", "1.2"),
        (b"1.0, 1.1, 2.0", "1.1"),
        (b" 1.2 ", "1.2"),
        (b"\xff,1.1", "1.1"),
    ],
)
def test_negotiate(accept: bytes | None, version: str) -> None:
    assert negotiate(accept) == version


@pytest.mark.parametrize("accept", [b"", b"2.0", b"1", b"1.20", b"11", b"\xff"])
def test_negotiate_nothing_in_common(accept: bytes) -> None:
    with pytest.raises(StompError, match="unsupported version"):
        negotiate(accept)


def test_parse_heartbeat() -> None:
    assert parse_heartbeat(b"0,0") == (0, 0)
    assert parse_heartbeat(b"4000,10000") == (4000, 10000)
    assert parse_heartbeat(b"4000, 10000 ") == (4000, 10000)
    assert parse_heartbeat(b"9999999999,0") == (9_999_999_999, 0)


@pytest.mark.parametrize(
    "value", [b"", b"1", b"1,", b",", b"1,2,3", b"-1,0", b"a,b", b"1.5,0", b"10000000000,0", b"\xff"]
)
def test_parse_heartbeat_nonsense(value: bytes) -> None:
    with pytest.raises(StompError, match="invalid heart-beat") as caught:
        parse_heartbeat(value)
    assert caught.value.detail == "CONNECT: heart-beat must be two numbers of ms, such as 10000,10000"


def test_shown() -> None:
    assert format_value(b"plain") == "'plain'"
    assert format_value("größe 🐎".encode()) == "'größe 🐎'"
    assert format_value(b"a\nb\x1b\xff\0") == "'a\\nb\\x1b\\xff\\x00'"
    assert format_value(b"x" * 80) == "'" + "x" * 80 + "'"
    assert format_value(b"x" * 81) == "'" + "x" * 80 + "...'"


@given(value=st.binary(max_size=100))
def test_shown_is_printable(value: bytes) -> None:
    assert format_value(value).isprintable()


@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8")), version=st.sampled_from(["1.1", "1.2"]))
def test_message_headers_reach_the_client(text: str, version: str) -> None:
    value = escape(text.encode(), version)
    (received,) = FrameReader(version).feed(b"MESSAGE\nmessage-id:1\nx:%b\n\n\0\n" % value)
    assert received.headers["x"] == text
