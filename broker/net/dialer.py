"""Opens the connections of links.

Every CHECK_PERIOD_MS it connects the links that are due, each in its own task: name lookup, TCP and TLS within
CONNECT_SECONDS_MAX, with the next URL after each failure.  `broker.sessions.links` decides what a link's session does,
and when to retry.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from broker.engine.model.report import Report
from broker.net.connection import Connection, Origin
from broker.net.handshake import reason
from broker.net.listener import CHECK_PERIOD_MS
from broker.net.tasks import supervised
from broker.sessions.links.links import LinkConnection as Linked
from broker.sessions.links.links import Links
from broker.sessions.links.model import Link
from broker.sessions.login import Peer
from broker.sessions.session import Session
from broker.sessions.tick import Tick, Transport

#: Seconds for name lookup, TCP and TLS: a broker that takes longer counts as down.
CONNECT_SECONDS_MAX: Final = 10

#: Ms for the login at the other broker.
LOGIN_MS_MAX: Final = 10_000

#: Makes the session of a link's connection: transport, link, connection number, peer.
MakeSession = Callable[[Transport, Link, int, Peer], "LinkSession"]


class LinkSession(Linked, Session, Protocol):
    """A session that serves a link."""


class OutgoingConnection(Connection):
    """A connection that a link has opened."""

    __slots__ = ("link",)

    def __init__(self, dialer: Dialer, tick: Tick, link: Link) -> None:
        super().__init__(dialer, tick)
        self.link = link


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A place that a link may connect to; `context`: for TLS, or None."""

    host: str
    port: int
    context: ssl.SSLContext | None


class Dialer(Origin):
    """Opens the connections of links, and checks their timers.

    `next_endpoint` returns where a link connects to next, or raises OSError.
    """

    def __init__(
        self,
        tick: Tick,
        links: Links,
        next_endpoint: Callable[[Link], Endpoint],
        make_session: MakeSession,
        *,
        report: Report,
        monotonic_ms: Callable[[], int],
    ) -> None:
        super().__init__(report, monotonic_ms, LOGIN_MS_MAX)
        self._tick = tick
        self._links = links
        self._next_endpoint = next_endpoint
        self._make_session = make_session
        self._made = 0
        self._dialing: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def run(self) -> None:
        """Connect links when they are due, for ever."""
        while True:
            self.look()
            await asyncio.sleep(CHECK_PERIOD_MS / 1000)

    def look(self) -> None:
        """Connect links that are due; check the timers of those that are connected."""
        self._tick.enter()
        try:
            self._links.check()
            for link in self._links.due():
                if link.name not in self._dialing:
                    self._dialing[link.name] = supervised(f"link {link.name}", self._connect(link))
        except BaseException as error:
            self._tick.failed(None, error)
        now = self.monotonic_ms()
        for connection in list(self.connections):
            connection.check(now, CHECK_PERIOD_MS)

    async def _connect(self, link: Link) -> None:
        try:
            endpoint = self._next_endpoint(link)
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().create_connection(
                    lambda: OutgoingConnection(self, self._tick, link),
                    endpoint.host,
                    endpoint.port,
                    ssl=endpoint.context,
                    server_hostname=endpoint.host if endpoint.context else None,
                )
        except TimeoutError:
            self._lost(link, f"no connection within {CONNECT_SECONDS_MAX} s")
        except (OSError, UnicodeError) as error:
            self._lost(link, reason(error))
        finally:
            del self._dialing[link.name]

    def _lost(self, link: Link, why: str) -> None:
        self._tick.enter()
        self._links.lost(link, why)

    def admit(self, connection: Connection) -> bool:
        """Begin the session of a new connection, unless its link is no longer to be connected."""
        assert isinstance(connection, OutgoingConnection)
        if self._closed or not self._links.wanted(connection.link):
            return False
        self._made += 1
        self.connections[connection] = None
        self._tick.enter()
        connection.session = self._make_session(connection, connection.link, self._made, connection.peer)
        self._links.connected(connection.link, connection.session)
        self._tick.touch(connection)
        if self.congested:
            connection.congestion_changed()
        return True

    def closing(self, connection: Connection) -> None:
        """Nothing: its link makes no other before it has ended."""

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended; its session tells the link."""
        self.connections.pop(connection, None)

    def release(self, connection: Connection) -> None:
        """Nothing: its connections have no places."""

    def report_foreign(self, connection: Connection, first: bytes) -> None:
        """Nothing: the session's error shows what the other end speaks."""

    def shut_down(self, *, moved: bool = False) -> None:
        """End all connections gracefully, and make no new ones."""
        self._closed = self._links.closing = True
        for task in self._dialing.values():
            task.cancel()
        super().shut_down(moved=moved)

    def abort(self) -> None:
        """Abort all connections."""
        self._closed = True
        super().abort()
