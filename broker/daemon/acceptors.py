"""The open acceptors, by name, and operations on all of them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator

from broker import clock
from broker.config import Config
from broker.daemon.start_errors import cannot_listen, opening
from broker.engine.model.report import Report
from broker.management.http import HttpServer
from broker.management.ports import AcceptorState
from broker.management.runtime import Listening
from broker.net import binding
from broker.net.admission import ConnectionSlots
from broker.net.connection import Connection, Ticking
from broker.net.listener import CHECK_PERIOD_MS, Listener, MakeSession
from broker.net.login_turns import LoginTurns
from broker.sessions.login import Peer


class Acceptors:
    """The acceptors of one role: of a serving broker or of a standby."""

    def __init__(self, config: Config, tick: Ticking, report: Report) -> None:
        self._config = config
        self._tick = tick
        self._report = report
        self._listeners: dict[str, Listener] = {}
        self._http: dict[str, HttpServer] = {}
        self._listening: dict[str, list[Listening]] = {}
        #: The places of messaging clients at all acceptors.
        self.total = ConnectionSlots(config.limits.connections_max)
        #: The turns of their logins.
        self.logins = LoginTurns(clock.thread_cpu_us)
        self._origins: dict[str, int] = {}
        self._congested = False

    async def open(
        self,
        name: str,
        make_session: MakeSession,
        *,
        context: Callable[[], ssl.SSLContext] | None,
        served: frozenset[str],
        left: Callable[[Peer], None] = lambda _: None,
    ) -> None:
        """Listen for messaging clients.  `left` is called with each peer that disconnects; for the rest see Listener.

        Raises CannotListen.
        """
        acceptor, limits = self._config.messaging_acceptors[name], self._config.limits
        self._listeners[name] = listener = Listener(
            name,
            self._tick,
            make_session,
            report=self._report,
            monotonic_ms=clock.monotonic_ms,
            connections_max=acceptor.connections_allowed,
            total=self.total,
            handshake_timeout=acceptor.handshake_timeout,
            logins=self.logins,
            origins=self._origins,
            origin_max=limits.connections_per_origin_max,
            context=context,
            left=left,
            served=served,
        )
        listener.set_congested(self._congested)
        with opening(name, acceptor.host, acceptor.port):
            self._opened(name, await listener.open(acceptor.host, acceptor.port))

    async def open_http(self, name: str, server: HttpServer) -> None:
        """Listen for HTTP clients.  Raises CannotListen."""
        acceptor = self._config.http_acceptors[name]
        self._http[name] = server
        with opening(name, acceptor.host, acceptor.port):
            self._opened(name, await server.start(acceptor.host, acceptor.port))

    def _opened(self, name: str, addresses: list[tuple[str, int]]) -> None:
        acceptor = self._config.acceptors[name]
        certificate = str(acceptor.tls.certificate.absolute()) if acceptor.tls is not None else ""
        self._listening[name] = [Listening(name, acceptor.protocol, *address, certificate) for address in addresses]
        for address in self._listening[name]:
            self._report("listening", acceptor=name, protocol=acceptor.protocol, address=str(address))

    @property
    def addresses(self) -> list[Listening]:
        """All addresses at which the acceptors listen, in the order of the configuration."""
        return [address for name in self._config.acceptors for address in self._listening.get(name, ())]

    @property
    def names(self) -> frozenset[str]:
        """The acceptors that listen."""
        return frozenset(self._listening)

    def states(self, certificate_end: Callable[[str], int]) -> Iterator[AcceptorState]:
        """Yield the state of each listening acceptor."""
        for name, addresses in self._listening.items():
            listener = self._listeners.get(name)
            yield AcceptorState(
                name=name,
                protocol=addresses[0].protocol,
                listening=tuple(map(str, addresses)),
                connections=len(listener.connections) if listener else self._http[name].connections,
                opened=listener.accepted if listener else 0,
                refused=listener.refused if listener else self._http[name].refused,
                certificate_end=certificate_end(name),
            )

    def connections(self) -> Iterator[Connection]:
        """Yield the connections of messaging clients; the caller may close them while iterating."""
        for listener in self._listeners.values():
            yield from list(listener.connections)

    async def check(self) -> None:
        """Wait a moment, then check the timers of all connections."""
        await asyncio.sleep(CHECK_PERIOD_MS / 1000)
        for listener in list(self._listeners.values()):
            try:
                for _ in listener.check():
                    await asyncio.sleep(0)  # let the event loop serve clients
            except Exception as error:
                self._tick.failed(None, error)

    def set_congested(self, congested: bool) -> None:
        """Stop reading from all connections, or continue: the journal fell behind, or caught up."""
        self._congested = congested
        for listener in self._listeners.values():
            listener.set_congested(congested)

    def close(self) -> None:
        """Accept no more messaging clients; connected ones stay."""
        for listener in self._listeners.values():
            listener.close()

    async def disconnect_clients(self, *, moved: bool) -> None:
        """Shut down every messaging session, and return when all clients have disconnected.  `moved`: see Session."""
        for listener in self._listeners.values():
            listener.shut_down(moved=moved)
        await self.idle()

    async def idle(self) -> None:
        """Return when no messaging client is connected."""
        for listener in self._listeners.values():
            await listener.idle()

    async def abort(self, http_seconds: float) -> None:
        """Stop listening, give HTTP requests some seconds to finish, and close all messaging connections."""
        self.close()
        await asyncio.gather(*(server.stop(http_seconds) for server in self._http.values()))
        for listener in self._listeners.values():
            listener.abort()
        self.logins.reads.close()
        self._listening.clear()


def taken(name: str, host: str, port: int) -> str:
    """Return why an acceptor could not listen at an address now; empty: it could.  Binds it for a moment."""
    error = binding.taken(host, port)
    return "" if error is None else f"acceptors.{name}: {host}:{port}: {cannot_listen(name, error)}"
