"""Connections in the states that tests begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import Frame
from protocols.stomp.limits import Limits
from tests.support.stomp_client import FrameReader, ServerFrame, frame

VERSIONS: Final = ("1.0", "1.1", "1.2")
EOL: Final = b"\r\n"  # what may stand between frames

Shown = tuple[str, dict[bytes, bytes], bytes]


def show(received: Frame) -> Shown:
    """A frame as a value."""
    return received.command, received.headers, received.body


def hello(version: str) -> bytes:
    """The CONNECT of a client that speaks one version."""
    return frame("CONNECT", {} if version == "1.0" else {"accept-version": version, "host": "here"})


def connected(version: str = "1.2", limits: Limits | None = None) -> StompConnection:
    """A connection on which CONNECT was answered."""
    connection = StompConnection() if limits is None else StompConnection(limits)
    connection.receive_data(hello(version))
    assert [received.command for received in connection.events()] == ["CONNECT"]
    connection.send_connected(version, [])
    assert connection.data_to_send()
    return connection


def maker(version: str = "1.2", limits: Limits | None = None) -> Callable[[], StompConnection]:
    """Makes such connections."""
    return lambda: connected(version, limits)


def failure(connection: StompConnection) -> str | None:
    """What was wrong, in short; a function, since it changes between two looks."""
    return None if connection.error is None else connection.error.message


def sent(connection: StompConnection) -> list[ServerFrame]:
    """What the connection has to say, read as a client reads it."""
    return FrameReader(connection.version).feed(connection.data_to_send())
