"""Acceptors: each has a listening socket, the connections it accepted, and their timers."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from broker.engine.model.report import Report
from broker.net.acceptor import ListeningSockets
from broker.net.admission import ConnectionSlots, Slot
from broker.net.connection import Connection, Origin, Ticking
from broker.net.handshake import Handshake, name_and_origin
from broker.net.login_turns import LoginTurns
from broker.net.tasks import supervised
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

#: Connections that have ended and are forgotten together, before others are served: some 0.4 ms.
FORGOTTEN_TOGETHER: Final = 100

#: Connections that the kernel may queue; TCP of the peers retries those beyond it.
BACKLOG: Final = 1_024

#: Makes the session of a new connection: transport, connection number, peer.
MakeSession = Callable[[Transport, int, Peer], Session]


class Listener(Origin):
    """One acceptor of a binary protocol.

    `connections_max`: its connections at once, -1: any number; `total`: the places of all acceptors together; `logins`:
    the turns of all their logins.
    """

    def __init__(
        self,
        name: str,
        tick: Ticking,
        make_session: MakeSession,
        *,
        report: Report,
        monotonic_ms: Callable[[], int],
        connections_max: int,
        total: ConnectionSlots,
        logins: LoginTurns,
        handshake_timeout: int,
        origins: dict[str, int] | None = None,
        origin_max: int = -1,
        context: Callable[[], ssl.SSLContext] | None = None,
        left: Callable[[Peer], None] = lambda _: None,
        served: Collection[str] = (),
    ) -> None:
        super().__init__(report, monotonic_ms, handshake_timeout, logins)
        self._turns = logins
        self.name = name
        self.tick = tick
        self.accepted = 0
        self.refused = 0
        self._held: set[Connection | Handshake] = set()
        self._slots = ConnectionSlots(connections_max if connections_max >= 0 else sys.maxsize)
        self._total = total
        self._origin_max = origin_max
        self._origins = {} if origins is None else origins  # connections by address, over all acceptors
        self._context = context
        self._left = left
        self._served = served
        self._make_session = make_session
        self._sockets: ListeningSockets | None = None
        self._idle = asyncio.Event()
        self._looked_at = 0
        self._ended: deque[Connection] = deque()  # their places are still to be freed

    async def open(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound (port 0 picks a port).  Raises OSError."""
        sockets = ListeningSockets(self.name, self._accept, self.report)
        bound = await sockets.open(host, port, BACKLOG)
        self._sockets = sockets
        sockets.serve()
        return bound

    def _accept(self, client: socket.socket, address: object) -> None:
        """Give an accepted socket a place, and begin its connection or its TLS handshake; or close it."""
        held: Connection | Handshake
        if self._context is None:
            held = Connection(self, self.tick)
            held.peer = Peer(*name_and_origin(address))
        else:
            held = Handshake(
                self, self.tick, self._turns, client, address, over=self.release, failed=self._handshake_failed
            )
        if not self._acquire(held):
            client.close()
        elif isinstance(held, Handshake):
            assert self._context is not None, "there are handshakes over TLS only"
            held.begin(self._context())
        else:
            supervised(f"accept {held.remote}", self._connect(held, client))

    async def _connect(self, connection: Connection, client: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
            connection.await_login_turn()
        except OSError as error:  # as without memory; usually the peer has already disconnected
            client.close()
            self.release(connection)
            if self._sockets is not None:
                self._sockets.unaccepted(error)

    def _handshake_failed(self, handshake: Handshake, reason: str) -> None:
        self.report("tls.failed", acceptor=self.name, remote=handshake.remote, reason=reason)

    def admit(self, connection: Connection) -> bool:
        """Give a new connection a session, unless it has no place."""
        if connection not in self._held and not (self._context is not None and self._acquire(connection)):
            return False  # it was displaced before it began
        self.accepted += 1
        self.connections[connection] = None
        connection.session = self._make_session(connection, self.accepted, connection.peer)
        self.report("connection.opened", acceptor=self.name, remote=connection.remote)
        if self.congested:
            connection.congestion_changed()
        return True

    # -- places ----------------------------------------------------------------------------------------------------

    def _acquire(self, held: Connection | Handshake) -> bool:
        """Take a place at this acceptor and one of all acceptors, unless there is none."""
        if self._sockets is None:
            return False
        origin = block(held.origin)
        while self._ended and self._is_full(origin):
            self._forget_next()
        if 0 <= self._origin_max <= self._origins.get(origin, 0):
            refused = partial(self._refuse, allowed=self._origin_max)
            if not self._total.displace(held.origin, refused):
                refused(held)
                return False
        if self._slots.full:
            self._look_for_gone()
        if not self._slots.acquire(held, lambda slot: self._refuse(slot, self._slots.limit)):
            return False
        if not self._total.acquire(held, lambda slot: self._refuse(slot, self._total.limit)):
            self._slots.release(held)
            return False
        self._held.add(held)
        self._origins[origin] = self._origins.get(origin, 0) + 1
        return True

    def _is_full(self, origin: str) -> bool:
        """Whether a new connection from this address would displace another one, or be refused."""
        return self._slots.full or self._total.full or 0 <= self._origin_max <= self._origins.get(origin, 0)

    def _look_for_gone(self) -> None:
        """Let connections make room whose peers have hung up.

        A client that connects again at once may be accepted before the end of its old connection is read.  Sockets are
        looked at for this only at the limit, and the more there are the more seldom, whatever unauthenticated peers do.
        """
        now = self.monotonic_ms()
        if now - self._looked_at < len(self._slots) // LOOKED_AT_PER_MS:
            return
        self._looked_at = now
        poll, by_number = select.poll(), {each.fileno: each for each in self.connections}
        by_number.pop(-1, None)
        for number in by_number:
            poll.register(number, select.POLLRDHUP)
        silent = [by_number[number] for number, _ in poll.poll(0)]
        for connection in [each for each in self.connections if each.leaving] + silent:
            connection.gone = True
            self.closing(connection)

    def _refuse(self, slot: Slot, allowed: int) -> None:
        """Report a connection that gets or keeps no place, unless it had ended already."""
        self._total.release(slot)
        if isinstance(slot, Connection | Handshake) and slot.lingers:
            return
        self.refused += 1
        self.report("connection.refused", acceptor=self.name, remote=slot.remote, allowed=allowed)

    def release(self, held: Connection | Handshake) -> None:
        """Free the places of a connection at once; without one it is not admitted.  Harmless if it had none."""
        if held not in self._held:
            return
        self._held.discard(held)
        self._slots.release(held)
        self._total.release(held)
        origin = block(held.origin)
        left = self._origins[origin] - 1
        if left:
            self._origins[origin] = left
        else:
            del self._origins[origin]

    def closing(self, connection: Connection) -> None:
        """Let a connection that lingers make room for another one."""
        self._slots.closing(connection)
        self._total.closing(connection)

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended: its place is free soon, or when another one needs it."""
        self._ended.append(connection)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._forget_some)

    def _forget_some(self) -> None:
        try:
            for _ in range(min(len(self._ended), FORGOTTEN_TOGETHER)):
                self._forget_next()
        finally:  # a fault at one of them is reported, and the places of the others become free
            if self._ended:
                asyncio.get_running_loop().call_soon(self._forget_some)

    def _forget_next(self) -> None:
        connection = self._ended.popleft()
        self.release(connection)
        if self.connections.pop(connection, connection) is None:
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
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None

    def abort(self) -> None:
        """Abort all connections and handshakes."""
        super().abort()
        for held in list(self._held):
            held.leave()
