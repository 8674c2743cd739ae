"""Acceptors: a listening socket each, the connections it accepted, and their timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker.engine.core import Report
from broker.net.connection import Connection
from broker.sessions.session import Session
from broker.sessions.turn import Outlet, Turn

#: How often the timers of connections are looked at, in ms: half the shortest heart-beat interval.
CHECK_PERIOD_MS: Final = 250

#: Connections the kernel may hold ready for us; a burst larger than this is retried by the peers' TCP.
BACKLOG: Final = 1_024

#: A session for a new connection: outlet, connection number, remote address.
MakeSession = Callable[[Outlet, int, str], Session]


class Listener:
    """One acceptor of a binary protocol."""

    def __init__(
        self,
        name: str,
        turn: Turn,
        make_session: MakeSession,
        *,
        report: Report,
        monotonic_ms: Callable[[], int],
        connections_max: int,
        total: Callable[[], int],
        total_max: int,
        handshake_timeout: int,
    ) -> None:
        self.name = name
        self.turn = turn
        self.report = report
        self.monotonic_ms = monotonic_ms
        self.handshake_timeout = handshake_timeout
        self.congested = False
        self.connections: dict[Connection, None] = {}
        self.accepted = 0
        self.refused = 0
        self._make_session = make_session
        self._connections_max = connections_max
        self._total = total
        self._total_max = total_max
        self._server: asyncio.Server | None = None
        self._idle = asyncio.Event()

    async def open(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen; the addresses really bound (port 0 picks one).  Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self, self.turn), host or None, port, backlog=BACKLOG
        )
        return [socket.getsockname()[:2] for socket in self._server.sockets]

    def admit(self, connection: Connection) -> bool:
        """Give a new connection its session, unless there are too many or we are closing."""
        full = 0 <= self._connections_max <= len(self.connections) or self._total() >= self._total_max
        if self._server is None or full:
            self.refused += 1
            self.report(
                "connection.refused", acceptor=self.name, remote=connection.remote, allowed=self._connections_max
            )
            return False
        self.accepted += 1
        self.connections[connection] = None
        connection.session = self._make_session(connection, self.accepted, connection.remote)
        self.report("connection.opened", acceptor=self.name, remote=connection.remote)
        if self.congested:
            connection.congestion_changed()
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if self.connections.pop(connection, connection) is None:
            self.report("connection.closed", acceptor=self.name, remote=connection.remote)
        if not self.connections:
            self._idle.set()

    async def idle(self) -> None:
        """Return when nobody is connected."""
        while self.connections:
            self._idle.clear()
            await self._idle.wait()

    def set_congested(self, congested: bool) -> None:
        """Stop or resume reading from everybody: the journal cannot take more for now, or can again."""
        if congested != self.congested:
            self.congested = congested
            for connection in self.connections:
                connection.congestion_changed()

    def check(self) -> None:
        """Look at the timers of all connections."""
        now = self.monotonic_ms()
        for connection in list(self.connections):
            connection.check(now, CHECK_PERIOD_MS)

    def close(self) -> None:
        """Accept no more; those who are connected stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def shut_down(self) -> None:
        """Say goodbye to everybody."""
        for connection in list(self.connections):
            connection.shut_down()

    def abort(self) -> None:
        """Cut everybody off."""
        for connection in list(self.connections):
            connection.abort()
