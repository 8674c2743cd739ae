"""The HTTP acceptor: uvicorn on the broker's own event loop, without its signal handlers and its command line.

What a peer may cost: so many connections, so much header, and so long for one request, whoever it is.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.management.api import Api
from broker.management.ports import Broker

#: Connections at once: a few collectors, health checks and people.
CONNECTIONS_MAX: Final = 64

#: Bytes of a request's line and headers: a queue's name of 1 KiB and a selector of 4 KiB, percent-encoded, fit.
HEADER_BYTES_MAX: Final = 32 << 10

#: Seconds that a connection may go without completing a request, and that an idle one is kept for the next.
REQUEST_SECONDS_MAX: Final = 30
KEEP_ALIVE_SECONDS: Final = 15

#: Seconds that requests in progress get when the broker stops.
STOP_SECONDS_MAX: Final = 2


class _Connection(H11Protocol):
    """Uvicorn's connection, with a limit on their number and one on the time without a completed request."""

    connections_max: int = CONNECTIONS_MAX
    seconds_max: float = REQUEST_SECONDS_MAX

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._completed = False
        self._check: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.abort()
        else:
            self._check = self.loop.call_later(self.seconds_max, self._check_progress)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._completed = True
        super().on_response_complete()

    def _check_progress(self) -> None:
        if not self._completed:
            self.transport.abort()
            return
        self._completed = False
        self._check = self.loop.call_later(self.seconds_max, self._check_progress)


class HttpServer:
    """One HTTP acceptor."""

    def __init__(
        self,
        broker: Broker,
        token: str,
        *,
        connections_max: int = CONNECTIONS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._broker = broker
        self._token = token
        self._protocol = type(
            "Connection", (_Connection,), {"connections_max": connections_max, "seconds_max": request_seconds_max}
        )
        self._server: uvicorn.Server | None = None
        self._sockets: list[socket.socket] = []

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections) if self._server is not None else 0

    @property
    def requests(self) -> int:
        """Requests answered since the start."""
        return self._server.server_state.total_requests if self._server is not None else 0

    async def start(self, host: str, port: int) -> list[tuple[str, int]]:
        """Listen; the addresses really bound (port 0 picks one).  Raises OSError."""
        self._sockets = await _bind(host, port)
        bound = [(str(s.getsockname()[0]), int(s.getsockname()[1])) for s in self._sockets]
        metrics_open = all(ip_address(address.partition("%")[0]).is_loopback for address, _ in bound)
        config = uvicorn.Config(
            Api(self._broker, self._token, metrics_open=metrics_open),
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
        await server.startup(self._sockets)
        self._server = server
        return bound

    async def stop(self) -> None:
        """Accept no more, let requests in progress finish for a while, close."""
        server, self._server = self._server, None
        if server is not None:
            await server.shutdown(self._sockets)
            self._sockets = []


async def _bind(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of a host name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(socket.create_server(address[:2], family=family))
    except OSError:
        for opened in sockets:
            with suppress(OSError):
                opened.close()
        raise
    return sockets
