"""The acceptors of a standby: HTTP, and those for messaging clients if it redirects them to the brokers of its pair."""

from __future__ import annotations

from collections.abc import Callable

from broker import clock
from broker.config import Config
from broker.daemon.acceptors import Acceptors
from broker.daemon.redirecting import Flushing, Redirecting
from broker.engine.model.report import Report
from broker.management.http import HttpServer
from broker.management.ports import Broker, Replicated
from broker.management.runtime import Listening
from broker.management.standby import StandbyApi
from broker.net.tasks import supervised
from broker.security.reload import lasting_context


class StandbyServer:
    """Opens the acceptors of a standby.  `replicated`: its progress."""

    def __init__(self, broker: Broker, config: Config, report: Report, replicated: Callable[[], Replicated]) -> None:
        self._broker = broker
        self._config = config
        self._replicated = replicated
        self._acceptors = Acceptors(config, Flushing(report), report)
        self._redirecting = Redirecting(config)
        self._checks = supervised("checks of a standby's connections", self._check(), essential=True)

    async def open(self, token: str) -> list[Listening]:
        """Listen, and return the addresses.  `token`: that of the command line.  Raises CannotListen, UnusableFile."""
        broker = self._broker
        api = StandbyApi(
            self._replicated, token, name=broker.name, version=broker.version, started=broker.started, now=clock.wall_ms
        )
        for name, acceptor in self._config.http_acceptors.items():
            server = HttpServer(
                broker,
                token,
                name=name,
                context=lasting_context(name, acceptor.tls),
                open_metrics=acceptor.open_metrics,
                allowed_hosts=acceptor.allowed_hosts,
                standby=api.application,
            )
            await self._acceptors.open_http(name, server)
        if self._config.journal.postgresql.redirect:
            for name, messaging in self._redirecting.acceptors.items():
                context = lasting_context(name, messaging.tls)
                await self._acceptors.open(name, self._redirecting.sessions(messaging), context=context)
        return self._acceptors.addresses

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        self._checks.cancel()
        await self._acceptors.abort()

    async def _check(self) -> None:
        while True:
            await self._acceptors.check()
