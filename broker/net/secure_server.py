"""Listening sockets for TLS.

A socket is accepted and counted first; then its handshake uses the context of that moment.  So certificates can change
without affecting connections, and a slow or broken handshake costs its own memory and no other client's time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from broker.net.binding import bind
from broker.net.tasks import supervised

#: Seconds to wait when a socket cannot be accepted.
RETRY_SECONDS: Final = 0.2


class SecureServer:
    """Listening sockets for TLS; `shake` gets each accepted socket and its peer's address."""

    def __init__(self, shake: Callable[[socket.socket, object], None], report: Callable[[OSError], None]) -> None:
        self._shake = shake
        self._report = report
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, host: str, port: int, backlog: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound.  Raises OSError."""
        self.serve(await bind(host, port, backlog))
        return [listening.getsockname()[:2] for listening in self._sockets]

    def serve(self, sockets: list[socket.socket]) -> None:
        """Accept on listening sockets, and own them from now on."""
        self._sockets = sockets
        for listening in sockets:
            listening.setblocking(False)
        self._tasks = [supervised("accept", self._accept(listening), essential=True) for listening in sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError as error:
                self._report(error)  # usually no free descriptors: ending connections free some
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._shake(client, address)
            except OSError:  # the peer has already disconnected
                client.close()
            except Exception as error:  # affects only this socket; accept the next one
                client.close()
                loop.call_exception_handler({"message": "an accepted socket could not be handled", "exception": error})

    def close(self) -> None:
        """Stop accepting."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()
