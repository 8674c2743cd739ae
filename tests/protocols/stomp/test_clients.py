"""What real clients send, byte for byte: a server that is stricter than the field is of no use."""

from __future__ import annotations

import pytest
from stomp.protocol import Protocol10, Protocol11, Protocol12
from stomp.utils import Frame as ClientFrame
from stomp.utils import convert_frame

from protocols.stomp.connection import StompConnection
from tests.protocols.stomp.peer import connected
from tests.support.wire import feed


class Transport:
    """Keeps what stomp.py would send."""

    vhost = "here"
    current_host_and_port = ("here", 61613)

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def transmit(self, frame: ClientFrame) -> None:
        """As stomp.py's transport does, but for the socket."""
        self.sent.append(b"".join(convert_frame(frame)))

    def set_listener(self, name: str, listener: object) -> None:
        """stomp.py's protocols listen to their transport."""

    def start(self) -> None:
        """Before CONNECT."""


PROTOCOLS = {"1.0": Protocol10, "1.1": Protocol11, "1.2": Protocol12}


@pytest.mark.parametrize("version", PROTOCOLS)
def test_stomp_py(version: str) -> None:
    """Every frame of stomp.py, through its own protocol classes."""
    transport = Transport()
    client = PROTOCOLS[version](transport)
    client.connect("user", "pass:word\\", wait=False)
    client.subscribe("/queue/a", "7", ack="client")
    client.send("/queue/a", "größe", content_type="text/plain", headers={"path": "C:\\x", "time": "12:30"})
    client.send("/queue/a", b"\0\1\2")
    client.send("/queue/a", "")
    client.begin("t")
    if version == "1.0":
        client.ack("1,2", transaction="t")
    elif version == "1.1":
        client.ack("1,2", "7", transaction="t")
        client.nack("1,3", "7")
    else:
        client.ack("1,2", transaction="t")
        client.nack("1,3")
    client.commit("t")
    client.abort("t")
    client.unsubscribe("7")
    client.send_frame("DISCONNECT", {"receipt": "bye"})
    connection = StompConnection()
    (first,) = feed(connection, [b"".join(transport.sent)])
    assert first.command == ("CONNECT" if version == "1.0" else "STOMP")
    assert first.headers[b"passcode"] == b"pass:word\\"
    connection.send_connected(version, [])
    frames = [first, *feed(connection, [b""])]
    assert connection.error is None
    assert len(frames) == len(transport.sent)
    assert [frame.body for frame in frames if frame.command == "SEND"] == ["größe".encode(), b"\0\1\2", b""]
    assert frames[2].headers[b"time"] == b"12:30"
    assert frames[2].headers[b"path"] == b"C:\\x"
    assert frames[-1].headers[b"receipt"] == b"bye"


def test_stompjs() -> None:
    """@stomp/stompjs: escapes as in 1.2 in all versions, content-length where there is a body, no LF after frames."""
    connection = StompConnection()
    raw = b"CONNECT\nlogin:guest\npasscode:a:b\naccept-version:1.2,1.1,1.0\nheart-beat:10000,10000\n\n\0"
    assert len(feed(connection, [raw])) == 1
    connection.send_connected("1.2", [])
    raw = (
        b"SUBSCRIBE\nid:sub-0\ndestination:/queue/a\n\n\0\n"
        b"SEND\ndestination:/queue/a\nx:1\\c2\\\\\ncontent-length:5\n\nhello\0"
        b"SEND\ndestination:/queue/a\n\nhello\0\n"
        b"ACK\nid:1,1\nsubscription:sub-0\n\n\0"
        b"NACK\nid:1,1\nsubscription:sub-0\n\n\0"
        b"UNSUBSCRIBE\nid:sub-0\n\n\0"
        b"DISCONNECT\nreceipt:close-1\n\n\0"
    )
    frames = feed(connection, [raw])
    assert connection.error is None
    assert len(frames) == 7
    assert frames[1].headers[b"x"] == b"1:2\\"


def test_by_hand() -> None:
    """netcat and telnet: LF or CR LF after the NUL."""
    connection = StompConnection()
    assert len(feed(connection, [b"CONNECT\r\n\r\n\0\r\n"])) == 1
    connection.send_connected("1.0", [])
    frames = feed(connection, [b"SEND\r\ndestination: /queue/a\r\n\r\nhello\r\n\0\r\n", b"DISCONNECT\n\n\0\n"])
    assert [frame.command for frame in frames] == ["SEND", "DISCONNECT"]
    assert frames[0].headers == {b"destination": b"/queue/a"}
    assert frames[0].body == b"hello\r\n"


def test_content_length_on_frames_without_body() -> None:
    """Spring and others count the bytes of every frame."""
    raw = (
        b"SUBSCRIBE\nid:0\ndestination:a\ncontent-length:0\n\n\0\n"
        b"BEGIN\ntransaction:t\ncontent-length:0\n\n\0\n"
        b"DISCONNECT\ncontent-length:0\n\n\0"
    )
    assert len(feed(connected(), [raw])) == 3
