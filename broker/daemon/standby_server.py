"""What a standby answers: HTTP, and clients of messages if it is to tell them where the brokers of its pair are."""

from __future__ import annotations

from collections.abc import Callable

from broker import clock
from broker.config import Config, HttpAcceptor
from broker.daemon.redirecting import Redirecting
from broker.daemon.start_errors import opening
from broker.engine.model.report import Report
from broker.management.http import HttpServer
from broker.management.ports import Broker, Replicated
from broker.management.standby import StandbyApi
from broker.security.reload import lasting_context

#: Is told the name of an acceptor, its protocol, and the addresses at which it listens.
Opened = Callable[[str, str, list[tuple[str, int]]], None]


class StandbyServer:
    """The acceptors of a standby.  `token`: what the command line shows; `replicated`: how far the standby is."""

    def __init__(
        self, broker: Broker, config: Config, token: str, replicated: Callable[[], Replicated], report: Report
    ) -> None:
        self._broker = broker
        self._config = config
        self._token = token
        self._api = StandbyApi(
            replicated, token, name=broker.name, version=broker.version, started=broker.started, now=clock.wall_ms
        )
        self._http: list[HttpServer] = []
        self._redirecting = Redirecting(config, report)

    async def open(self, opened: Opened) -> None:
        """Listen.  Raises CannotListen, UnusableFile."""
        for name, acceptor in self._config.http_acceptors.items():
            server = self._http_server(name, acceptor)
            with opening(name, acceptor.host, acceptor.port):
                opened(name, acceptor.protocol, await server.start(acceptor.host, acceptor.port))
        if self._config.journal.postgresql.redirect:
            for name, messaging in self._redirecting.acceptors.items():
                with opening(name, messaging.host, messaging.port):
                    opened(name, messaging.protocol, await self._redirecting.open(name))

    def _http_server(self, name: str, acceptor: HttpAcceptor) -> HttpServer:
        server = HttpServer(
            self._broker,
            self._token,
            name=name,
            context=lasting_context(name, acceptor.tls),
            open_metrics=acceptor.open_metrics,
            allowed_hosts=acceptor.allowed_hosts,
            standby=self._api.application,
        )
        self._http.append(server)
        return server

    async def close(self) -> None:
        """Listen no more, and cut everybody off."""
        self._redirecting.close()
        for server in self._http:
            await server.stop()
