"""Listening sockets, of all acceptors: each socket is accepted here, whatever is spoken on it.

The event loop's own server would close a listening socket for good at the first error of the system.  Here an error is
reported, once an episode, and accepting goes on a moment later: ending connections free descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from broker.engine.model.report import Report
from broker.net.binding import bind

#: Seconds to wait when a socket cannot be accepted.
RETRY_SECONDS: Final = 0.2

#: Sockets accepted before others are served: each may need a descriptor beyond the limit for a moment.
ACCEPTED_AT_ONCE: Final = 2

#: An error that has not occurred for so many seconds is reported again: until then it is the same episode.
QUIET_SECONDS: Final = 10.0

#: Errors of one connection, which is gone: its peer has disconnected, the network lost it, or a firewall refused it.
_OF_THE_PEER: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPERM,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)


class ListeningSockets:
    """Listening sockets; `accepted` gets each accepted socket and its peer's address, and owns the socket.

    `name`: the acceptor's, for the log.
    """

    def __init__(self, name: str, accepted: Callable[[socket.socket, object], None], report: Report) -> None:
        self._name = name
        self._accepted = accepted
        self._report = report
        self._sockets: list[socket.socket] = []
        self._loop = asyncio.get_running_loop()
        self._failed_at: dict[str, float] = {}  # the last time of each error

    async def open(self, host: str, port: int, backlog: int) -> list[tuple[str, int]]:
        """Bind, and return the addresses; `serve` begins to accept.  Raises OSError."""
        self._sockets = await bind(host, port, backlog)
        for listening in self._sockets:
            listening.setblocking(False)
        return [listening.getsockname()[:2] for listening in self._sockets]

    def serve(self) -> None:
        """Accept from now on."""
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_THE_PEER:
                    continue
                self.unaccepted(error)
                self._loop.remove_reader(listening)
                self._loop.call_later(RETRY_SECONDS, self._resume, listening)
                return
            self._take(client, address)

    def unaccepted(self, error: OSError) -> None:
        """Report what the system could not do for a connection, unless it has just been reported."""
        found = error.strerror or str(error)
        now = self._loop.time()
        before = self._failed_at.get(found)
        self._failed_at[found] = now
        if before is None or now - before > QUIET_SECONDS:
            self._report("connection.accept_failed", acceptor=self._name, error=found)

    def _take(self, client: socket.socket, address: object) -> None:
        try:
            client.setblocking(False)
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted(client, address)
        except OSError:  # the peer has already disconnected
            client.close()
        except Exception as error:  # affects only this socket; accept the next one
            client.close()
            message = "an accepted socket could not be handled"
            self._loop.call_exception_handler({"message": message, "exception": error})

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Stop accepting."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets = []
