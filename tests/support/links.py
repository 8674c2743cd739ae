"""Connections of test clients to a broker in a process: a socket, or a WebSocket.  Every wait has a timeout.

The simulated broker's is `sim_broker.SimPeer`.  A client that speaks frames is a mixin over any of them: `heard` is
called with received bytes, and `raw` sends bytes.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

#: How long to wait for bytes that must arrive, in seconds.
PATIENCE_S: Final = 30.0


class Lost(ConnectionError):
    """The connection ended during a wait."""


class Link:
    """A client's end of a connection."""

    closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def heard(self, data: bytes) -> None:
        """Process bytes from the broker."""
        raise NotImplementedError

    def raw(self, data: bytes) -> None:
        """Send all bytes to the broker.  Raises Lost if it has hung up: its bytes before that can still be read."""
        raise NotImplementedError

    def wait(self, enough: Callable[[], object]) -> None:
        """Read until `enough` is true.  Raises Lost, TimeoutError."""
        raise NotImplementedError

    def read(self) -> None:
        """Wait for bytes, and process them.  Raises Lost, TimeoutError."""
        raise NotImplementedError

    def poll(self) -> None:
        """Process the bytes that have arrived, without waiting.  Raises Lost."""

    @property
    def resting(self) -> bool:
        """Whether nothing more will arrive by itself; never known for a broker in a process."""
        return False

    def drop(self) -> None:
        """Close the connection, without a goodbye."""
        raise NotImplementedError


class StreamLink(Link):
    """A client's end that reads from its connection only during waits."""

    def raw(self, data: bytes) -> None:
        """See Link."""
        try:
            self._send(data)
        except (BrokenPipeError, ConnectionResetError, ConnectionClosed) as gone:
            raise Lost("the broker has hung up") from gone

    def wait(self, enough: Callable[[], object]) -> None:
        """See Link."""
        while not enough():
            self.read()

    def read(self) -> None:
        """See Link."""
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

    def _send(self, data: bytes) -> None:
        raise NotImplementedError

    def _receive(self) -> bytes:
        raise NotImplementedError


class SocketLink(StreamLink):
    """A plain socket to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def poll(self) -> None:
        """See Link; call it before sending to a broker that may have hung up."""
        while select.select([self.socket], [], [], 0)[0]:
            self.read()

    def drop(self) -> None:
        """See Link."""
        self.socket.close()

    def _send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _receive(self) -> bytes:
        return self.socket.recv(1 << 18)


class RawSocket(SocketLink):
    """A peer that sends arbitrary bytes; `got` holds the received ones."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.got = b""

    def heard(self, data: bytes) -> None:
        """See Link."""
        self.got += data

    def rest(self) -> bytes:
        """Read until the broker hangs up; returns all received bytes.  Raises TimeoutError."""
        with suppress(Lost):
            self.wait(lambda: False)
        return self.got


class WebSocketLink(StreamLink):
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
