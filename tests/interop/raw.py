"""A bare socket that speaks STOMP, or does not: for peers that no client library would be."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tests.support.stomp_client import FrameReader, ServerFrame, frame

#: How long to wait for something that has to come, in seconds.
PATIENCE_S: Final = 30.0

CONNECT: Final = frame("CONNECT", {"accept-version": "1.2", "host": "h"})


class Peer:
    """One socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._reader = FrameReader()
        self._frames: list[ServerFrame] = []

    def connect(self) -> Peer:
        """CONNECT in 1.2."""
        self.socket.sendall(CONNECT)
        assert self.frame().command == "CONNECTED"
        return self

    def send(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """One frame."""
        self.socket.sendall(frame(command, headers, body))

    def frame(self) -> ServerFrame:
        """The next frame.  Raises EOFError when the broker has hung up, and TimeoutError."""
        while not self._frames:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def rest(self) -> list[ServerFrame]:
        """All frames until the broker hangs up."""
        found = []
        try:
            while True:
                found.append(self.frame())
        except (EOFError, ConnectionResetError):
            return found


@contextmanager
def peer(port: int) -> Iterator[Peer]:
    """A socket that is closed afterwards."""
    found = Peer(port)
    try:
        yield found
    finally:
        found.socket.close()
