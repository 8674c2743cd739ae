"""What carries a client's bytes to a broker that is a process: a socket, or a WebSocket.  Every wait ends.

The simulated broker's is `sim_broker.SimPeer`.  A client that speaks frames is a mixin over any of them: it is told by
`heard` what came, and says its bytes by `raw`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

#: How long to wait for something that has to come, in seconds.
PATIENCE_S: Final = 30.0


class Lost(Exception):
    """The connection ended while something was waited for."""


class Link:
    """A client's end of a connection."""

    closed = False

    def heard(self, data: bytes) -> None:
        """Bytes from the broker."""
        raise NotImplementedError

    def raw(self, data: bytes) -> None:
        """Bytes to the broker, all of them.  Raises Lost when it has hung up: what it said before can still be read."""
        try:
            self._send(data)
        except (BrokenPipeError, ConnectionResetError, ConnectionClosed) as gone:
            raise Lost("the broker has hung up") from gone

    def wait(self, enough: Callable[[], object]) -> None:
        """Read until it is enough.  Raises Lost, TimeoutError."""
        while not enough():
            self.read()

    def read(self) -> None:
        """Read once.  Raises Lost, TimeoutError."""
        try:
            data = self._receive()
        except (ConnectionError, ConnectionClosed) as error:
            raise self._end() from error
        if not data:
            raise self._end()
        self.heard(data)

    def _end(self) -> Lost:
        self.closed = True
        return Lost("the broker has hung up")

    def drop(self) -> None:
        """End the connection without a word."""
        raise NotImplementedError

    def _send(self, data: bytes) -> None:
        raise NotImplementedError

    def _receive(self) -> bytes:
        raise NotImplementedError


class SocketLink(Link):
    """A plain socket to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def drop(self) -> None:
        """See Link."""
        self.socket.close()

    def _send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _receive(self) -> bytes:
        return self.socket.recv(1 << 18)


class WebSocketLink(Link):
    """Binary messages of a WebSocket, of at most `chunk` bytes each."""

    def __init__(self, connection: ClientConnection, chunk: int = 1 << 20) -> None:
        self.connection = connection
        self._chunk = chunk

    def drop(self) -> None:
        """See Link."""
        self.connection.close()

    def _send(self, data: bytes) -> None:
        for at in range(0, len(data), self._chunk):
            self.connection.send(data[at : at + self._chunk])

    def _receive(self) -> bytes:
        data = self.connection.recv(PATIENCE_S)
        assert isinstance(data, bytes), "binary frames"
        return data
