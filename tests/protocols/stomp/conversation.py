"""Conversations of a connection that is told anything at all: what the property tests and the fuzzers share."""

from __future__ import annotations

from protocols.stomp.connection import StompConnection
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame
from protocols.stomp.limits import Limits
from tests.protocols.stomp.peer import connected, show

LIMITS = Limits(
    header_count_max=10, header_line_bytes_max=50, header_bytes_max=200, body_bytes_max=100, connect_bytes_max=200
)

TOKENS = [
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    b"\0",
    b":",
    b"\\",
    b"\\c",
    b"\\q",
    b"\xff",
    "ä".encode(),
    b"x" * 30,
    b"SEND\ndestination:a\n\n",
    b"SEND\r\ndestination:a\r\n\r\n",
    b"content-length:3\n",
    b"content-length:-1\n",
    b"abc\0",
    b"receipt:1\n",
    b"ACK\nid:1\nmessage-id:1\nsubscription:1\n\n\0",
    b"SUBSCRIBE\nid:1\ndestination:a\n\n\0",
    b"DISCONNECT\n\n\0",
    b"CONNECT\naccept-version:1.2\n\n\0",
]


def bounded(connection: StompConnection, read_bytes: int) -> None:
    """What is kept is below the limits and one read."""
    kept = len(connection._buffer) - connection._at + len(connection._pending)
    assert kept <= LIMITS.header_bytes_max + LIMITS.body_bytes_max + 4 + read_bytes


def converse(connection: StompConnection, pieces: list[bytes]) -> tuple[list[object], str | None]:
    """Read some pieces; the frames and the error's message."""
    frames: list[Frame] = []
    for piece in pieces:
        connection.receive_data(piece)
        while events := connection.events():
            frames += events
            if events[-1].command in ("CONNECT", "STOMP"):
                connection.send_connected("1.2", [])
                connection.data_to_send()
        bounded(connection, len(piece))
    connection.receive_eof()
    frames += connection.events()
    error = connection.error
    assert error is None or isinstance(error, StompError)
    if error is not None:
        assert error.detail.isprintable()
        connection.send_error(error)
        assert connection.data_to_send().startswith(b"ERROR\nmessage:")
    return [show(frame) for frame in frames], None if error is None else error.message


def begin(version: str | None) -> StompConnection:
    """A connection of a version, or one that has not begun."""
    return StompConnection(LIMITS) if version is None else connected(version, LIMITS)
