"""The HTTP acceptor: uvicorn on the broker's own event loop, without its signal handlers and its command line.

Limits for a peer: the size of a header, the time for one request, and the number of connections, where those that have
logged in take precedence (`connection_slots`).  Over TLS a socket is counted before its handshake, which uses the
certificate of that moment, as on every acceptor.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.management.api import Api
from broker.management.callers import CALLER, Caller
from broker.management.connection_slots import ConnectionSlots, Slot
from broker.management.hosts import AllowedHosts
from broker.management.limits import Limits
from broker.management.ports import Broker
from broker.management.problems import problem
from broker.management.shared import Shared
from broker.net.binding import bind
from broker.net.handshake import shake
from broker.net.secure_server import SecureServer
from broker.net.tasks import supervised
from broker.security.certificates import subject_of
from broker.sessions.login import Peer
from broker.sessions.protocol_detection import FIRST_BYTES, advice, spoken

#: The protocols that a client's first bytes may belong to.
_SERVED: Final = ("HTTP",)

#: Connections at once: enough for some collectors, health checks and operators.
CONNECTIONS_MAX: Final = 64

#: Connections beyond these that wait for a refusal, which answers their first request, and the seconds for that.
REFUSED_MAX: Final = 16
REFUSAL_SECONDS_MAX: Final = 2

#: Bytes of a request's line and headers: a queue's name of 1 KiB and a selector of 4 KiB, percent-encoded, fit.
HEADER_BYTES_MAX: Final = 32 << 10

#: Seconds in which a connection must complete a request, and for which an idle one is kept open.
REQUEST_SECONDS_MAX: Final = 30
KEEP_ALIVE_SECONDS: Final = 15

#: Seconds that an answer may take: a purge of millions of messages, a large body over a slow line.
ANSWER_SECONDS_MAX: Final = 600

#: Seconds for the TLS handshake, as on the other acceptors.
HANDSHAKE_SECONDS_MAX: Final = 10

#: Connections that the kernel may queue; most of a longer queue would be refused anyway.
BACKLOG: Final = 128

#: Seconds for requests in progress to finish when the broker stops.
STOP_SECONDS_MAX: Final = 2


class _Handshake:
    """A socket in its TLS handshake."""

    def __init__(self, client: socket.socket, address: object) -> None:
        self.known = False
        self.origin = str(address[0]) if isinstance(address, tuple) else ""
        self.remote = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "local"
        self.client = client
        self.begun = False
        self.task: asyncio.Task[None] | None = None

    def ended(self) -> None:
        """Close the socket unless the handshake took it over."""
        if not self.begun:
            self.client.close()

    def leave(self) -> None:
        assert self.task is not None
        self.task.cancel()


class _Connection(H11Protocol):
    """Uvicorn's connection with a caller, a limit on their number, and one on the time without a completed request."""

    foreign: Callable[[Peer, str, str], None]
    slots: ConnectionSlots
    refused: ConnectionSlots
    seconds_max: float = REQUEST_SECONDS_MAX
    left: Callable[[Peer], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handshake: _Handshake | None = None
        self._spoken_to = False
        self._completed = False
        self._answering = 0  # checks in a row that found the broker answering
        self._check: asyncio.TimerHandle | None = None
        self._peer = Peer("local")
        self._caller = Caller(self._peer)

    @property
    def known(self) -> bool:
        return self._caller.access is not None or self._caller.in_session

    @property
    def origin(self) -> str:
        return self._peer.origin

    @property
    def remote(self) -> str:
        return self._peer.remote

    def leave(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.client is not None:
            host, port = self.client
            subject = subject_of(transport.get_extra_info("peercert"))
            self._peer = Peer(f"{host}:{port}", host, self.scheme == "https", subject)
        self._caller = Caller(self._peer)
        self.app_state = {**self.app_state, CALLER: self._caller}
        if self.handshake is not None:
            self.slots.went(self.handshake)  # this connection takes its place
        if self.slots.come(self):
            self._check = self.loop.call_later(self.seconds_max, self._check_progress)
        else:
            self.app = problem(
                "too-many-connections",
                "all connections of this acceptor are taken by clients that have logged in",
                headers={"connection": "close"},
            )
            self.refused.come(self)
            self._check = self.loop.call_later(REFUSAL_SECONDS_MAX, transport.abort)

    def data_received(self, data: bytes) -> None:
        protocol = "" if self._spoken_to else spoken(data[:FIRST_BYTES])
        self._spoken_to = True
        super().data_received(data)
        if found := advice(protocol, _SERVED):
            self.foreign(self._peer, protocol, found)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        self.slots.went(self)
        self.refused.went(self)
        self.left(self._peer)
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        """Whether a complete request of a logged-in caller is being answered, which may take a while."""
        cycle: Any = self.cycle  # None before the first, whatever its type says
        return self.known and cycle is not None and not (cycle.more_body or cycle.response_complete)

    def on_response_complete(self) -> None:
        self._completed = True
        super().on_response_complete()

    def _check_progress(self) -> None:
        self._answering = self._answering + 1 if self._is_answered else 0
        if not self._completed and not 0 < self._answering * self.seconds_max <= ANSWER_SECONDS_MAX:
            self.transport.abort()
            return
        self._completed = False
        self._check = self.loop.call_later(self.seconds_max, self._check_progress)


class HttpServer:
    """One HTTP acceptor; `name`: its name in the configuration; `context`: returns the current TLS context.

    `open_metrics`: whether /metrics needs no login; None: only if the acceptor listens on loopback alone.
    `allowed_hosts`: host names that it answers to besides those always allowed; None: any over TLS, where browsers
    check the certificate, else no others.  `console`: the application for all paths that are not the API's. `shared`:
    common to all acceptors and the console.  `standby`: makes the application that a standby serves instead; its
    argument says whether metrics need no login.
    """

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        name: str = "http",
        context: Callable[[], ssl.SSLContext] | None = None,
        open_metrics: bool | None = None,
        allowed_hosts: Sequence[str] | None = None,
        connections_max: int = CONNECTIONS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        limits: Limits | None = None,
        console: ASGIApp | None = None,
        shared: Shared | None = None,
        standby: Callable[[bool], FastAPI] | None = None,
    ) -> None:
        self._api = partial(Api, broker, token, name=name, limits=limits, console=console, shared=shared)
        self._broker = broker
        self._standby = standby
        self._report = broker.engine.report
        self._name = name
        self._context = context
        self._open_metrics = open_metrics
        self._allowed_hosts = allowed_hosts
        self.refused = 0
        self._connections_max = connections_max
        self._crowd = ConnectionSlots(connections_max, self._on_refused)
        bounds = {
            "foreign": staticmethod(self._on_foreign),
            "slots": self._crowd,
            "refused": ConnectionSlots(REFUSED_MAX),
            "seconds_max": request_seconds_max,
        }
        self._protocol = type("Connection", (_Connection,), {**bounds, "left": staticmethod(self._left)})
        self._server: uvicorn.Server | None = None
        self._secure: SecureServer | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections) if self._server is not None else 0

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound (port 0 picks a port).  Raises OSError."""
        self._sockets = await bind(host, port, BACKLOG)
        bound = [(str(s.getsockname()[0]), int(s.getsockname()[1])) for s in self._sockets]
        local = all(ip_address(address.partition("%")[0]).is_loopback for address, _ in bound)
        names = self._allowed_hosts
        hosts = None if names is None and self._context is not None else AllowedHosts([host, *(names or ())])
        open_metrics = local if self._open_metrics is None else self._open_metrics
        standby = None if self._standby is None else self._standby(open_metrics)
        config = uvicorn.Config(
            self._api(metrics_open=open_metrics, hosts=hosts, standby=standby),
            http=self._protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS_MAX,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(self._sockets if self._context is None else [])
        self._server = server
        if self._context is not None:
            self._secure = SecureServer(
                self._shake, lambda error: self._report("connection.unaccepted", error=str(error))
            )
            self._secure.serve(self._sockets)
        return bound

    def _shake(self, client: socket.socket, address: object) -> None:
        """Begin the TLS handshake of an accepted socket."""
        handshake = _Handshake(client, address)
        if not self._crowd.come(handshake):
            client.close()
            return
        handshake.task = supervised(f"handshake with {handshake.remote}", self._secured(handshake))
        self._handshakes.add(handshake.task)
        handshake.task.add_done_callback(self._handshakes.discard)
        handshake.task.add_done_callback(lambda _: handshake.ended())

    async def _secured(self, handshake: _Handshake) -> None:
        server, context = self._server, self._context
        assert server is not None
        assert context is not None

        def connection() -> _Connection:
            secured: _Connection = self._protocol(
                config=server.config, server_state=server.server_state, app_state=server.lifespan.state
            )
            secured.handshake = handshake
            return secured

        def failed(reason: str) -> None:
            self._report("tls.failed", acceptor=self._name, remote=handshake.remote, reason=reason)

        handshake.begun = True
        try:
            await shake(handshake.client, context(), connection, seconds=HANDSHAKE_SECONDS_MAX, failed=failed)
        finally:
            self._crowd.went(handshake)

    def _on_foreign(self, peer: Peer, protocol: str, found: str) -> None:
        self._report("connection.foreign", acceptor=self._name, remote=peer.remote, speaks=protocol, advice=found)

    def _on_refused(self, slot: Slot) -> None:
        self.refused += 1
        self._report("connection.refused", acceptor=self._name, remote=slot.remote, allowed=self._connections_max)

    def _left(self, peer: Peer) -> None:
        if self._standby is None:  # no client logs in to a standby
            self._broker.gate.left(peer)

    async def stop(self) -> None:
        """Stop accepting, give requests in progress some time to finish, and close."""
        server, self._server = self._server, None
        if self._secure is not None:
            self._secure.close()
        for task in list(self._handshakes):
            task.cancel()
        if server is not None:
            await server.shutdown(self._sockets)
            self._sockets = []
