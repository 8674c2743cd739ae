"""Acceptors: each has a listening socket, the connections it accepted, and their timers."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from typing import Final

from broker.engine.model.report import Report
from broker.net.binding import hosts_of
from broker.net.connection import Connection, Origin, Ticking
from broker.net.handshake import Handshake
from broker.net.secure_server import SecureServer
from broker.security.throttle import block
from broker.sessions import protocol_detection
from broker.sessions.login import Peer
from broker.sessions.session import Session
from broker.sessions.tick import Transport

#: Ms between checks of the connections' timers: half the shortest heart-beat interval.
CHECK_PERIOD_MS: Final = 250

#: Connections checked together: some 0.1 ms.
CHECKED_AT_ONCE: Final = 256

#: Connections whose sockets may be looked at for each millisecond that passes: less than a tenth of a core.
LOOKED_AT_PER_MS: Final = 100

#: Connections that the kernel may queue; TCP of the peers retries those beyond it.
BACKLOG: Final = 1_024

#: Makes the session of a new connection: transport, connection number, peer.
MakeSession = Callable[[Transport, int, Peer], Session]


class Listener(Origin):
    """One acceptor of a binary protocol."""

    def __init__(
        self,
        name: str,
        tick: Ticking,
        make_session: MakeSession,
        *,
        report: Report,
        monotonic_ms: Callable[[], int],
        connections_max: int,
        total: Callable[[], int],
        total_max: int,
        handshake_timeout: int,
        origins: dict[str, int] | None = None,
        origin_max: int = -1,
        context: Callable[[], ssl.SSLContext] | None = None,
        left: Callable[[Peer], None] = lambda _: None,
        served: Collection[str] = (),
    ) -> None:
        super().__init__(report, monotonic_ms, handshake_timeout)
        self.name = name
        self.tick = tick
        self.accepted = 0
        self.refused = 0
        self.handshakes: dict[Handshake, None] = {}
        self._origin_max = origin_max
        self._origins = {} if origins is None else origins  # connections by address, over all acceptors
        self._context = context
        self._left = left
        self._served = served
        self._make_session = make_session
        self._connections_max = connections_max
        self._hung_up: set[Connection] = set()
        self._looked_at = 0
        self._total = total
        self._total_max = total_max
        self._server: asyncio.Server | None = None
        self._secure: SecureServer | None = None
        self._idle = asyncio.Event()

    async def open(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound (port 0 picks a port).  Raises OSError."""
        loop = asyncio.get_running_loop()
        if self._context is None:
            self._server = await loop.create_server(
                lambda: Connection(self, self.tick), hosts_of(host), port, backlog=BACKLOG
            )
            return [socket.getsockname()[:2] for socket in self._server.sockets]
        self._secure = SecureServer(self._shake, lambda error: self.report("connection.unaccepted", error=str(error)))
        return await self._secure.open(host, port, BACKLOG)

    @property
    def _open(self) -> bool:
        return self._server is not None or self._secure is not None

    def _shake(self, client: socket.socket, address: object) -> None:
        """Begin the TLS handshake of an accepted socket."""
        assert self._context is not None
        handshake = Handshake(
            self, self.tick, client, address, over=self._forget_handshake, failed=self._handshake_failed
        )
        if not self._may_connect(handshake.remote, handshake.host):
            client.close()
            return
        self.handshakes[handshake] = None
        self._arrived(handshake.host)
        handshake.begin(self._context())

    @property
    def count(self) -> int:
        """Open sockets, including those in their TLS handshake."""
        return len(self.connections) + len(self.handshakes)

    def _forget_handshake(self, handshake: Handshake) -> None:
        if self.handshakes.pop(handshake, handshake) is None:
            self._departed(handshake.host)

    def _handshake_failed(self, handshake: Handshake, reason: str) -> None:
        self.report("tls.failed", acceptor=self.name, remote=handshake.remote, reason=reason)

    def admit(self, connection: Connection) -> bool:
        """Give a new connection a session, unless there are too many or the acceptor is closed."""
        if not self._may_connect(connection.remote, connection.peer.origin):
            return False
        self.accepted += 1
        self.connections[connection] = None
        self._arrived(connection.peer.origin)
        connection.session = self._make_session(connection, self.accepted, connection.peer)
        self.report("connection.opened", acceptor=self.name, remote=connection.remote)
        if self.congested:
            connection.congestion_changed()
        return True

    def _allowed_reached(self) -> bool:
        """Whether `connections-allowed` are there, without those whose peers have hung up.

        A client that connects again at once may be accepted before the end of its old connection is read.  Sockets are
        looked at for this only at the limit, and the more there are the more seldom, whatever strangers do.
        """
        most = self._connections_max
        if not 0 <= most <= self.count:
            return False
        now = self.monotonic_ms()
        if now - self._looked_at >= self.count // LOOKED_AT_PER_MS:
            self._looked_at = now
            self._hung_up = {each for each in self.connections if each.leaving} | self._silently_gone()
        return most <= self.count - len(self._hung_up)

    def _silently_gone(self) -> set[Connection]:
        """The connections whose peers have closed, which the event loop has not read yet."""
        poll, by_number = select.poll(), {each.fileno: each for each in self.connections}
        by_number.pop(-1, None)
        for number in by_number:
            poll.register(number, select.POLLRDHUP)
        return {by_number[number] for number, _ in poll.poll(0)}

    def _may_connect(self, remote: str, origin: str) -> bool:
        most = self._connections_max
        full = self._allowed_reached() or self._total() >= self._total_max
        crowded = 0 <= self._origin_max <= self._origins.get(block(origin), 0)
        if self._open and not full and not crowded:
            return True
        self.refused += 1
        allowed = self._origin_max if crowded else most
        self.report("connection.refused", acceptor=self.name, remote=remote, allowed=allowed)
        return False

    def _arrived(self, origin: str) -> None:
        key = block(origin)
        self._origins[key] = self._origins.get(key, 0) + 1

    def _departed(self, origin: str) -> None:
        key = block(origin)
        left = self._origins[key] - 1
        if left:
            self._origins[key] = left
        else:
            del self._origins[key]

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self._hung_up.discard(connection)
        if self.connections.pop(connection, connection) is None:
            self._departed(connection.peer.origin)
            self._left(connection.peer)
            self.report("connection.closed", acceptor=self.name, remote=connection.remote)
        if not self.connections:
            self._idle.set()

    def report_foreign(self, connection: Connection, first: bytes) -> None:
        """Report a connection that ended before its login if it seems meant for another acceptor."""
        protocol = protocol_detection.spoken(first)
        if advice := protocol_detection.advice(protocol, self._served):
            self.report(
                "connection.foreign", acceptor=self.name, remote=connection.remote, speaks=protocol, advice=advice
            )

    async def idle(self) -> None:
        """Wait until there are no connections."""
        while self.connections:
            self._idle.clear()
            await self._idle.wait()

    def check(self) -> Iterator[None]:
        """Check the timers of all connections, some at a time, so that others are served in between."""
        for start, connection in enumerate(list(self.connections)):
            if start % CHECKED_AT_ONCE == 0:
                yield
                now = self.monotonic_ms()
            connection.check(now, CHECK_PERIOD_MS)

    def close(self) -> None:
        """Stop accepting; existing connections stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._secure is not None:
            self._secure.close()
            self._secure = None

    def abort(self) -> None:
        """Abort all connections and handshakes."""
        super().abort()
        for handshake in list(self.handshakes):
            handshake.abort()
