"""The acceptors of a standby: HTTP, and those for messaging clients if it redirects them to the brokers of its pair.

`journal.postgresql.redirect` says whether it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker import clock
from broker.config import AmqpAcceptor, Config, MessagingAcceptor, MqttAcceptor, StompAcceptor
from broker.daemon.accepting import amqp_scheme, detecting, failover_servers, served_protocols, speaks_websocket
from broker.daemon.acceptors import Acceptors, taken
from broker.daemon.descriptors import limit, open_now, share_out
from broker.engine.model.report import Report
from broker.management.http import HttpServer
from broker.management.ports import Broker, Replicated
from broker.management.runtime import Listening
from broker.management.standby import StandbyApi
from broker.net.listener import MakeSession
from broker.net.tasks import supervised
from broker.security.reload import lasting_context
from broker.sessions.failover import open_properties, reference
from broker.sessions.redirecting import redirecting_amqp, redirecting_mqtt, redirecting_stomp
from broker.sessions.tick import Transport, described


class Flushing:
    """The tick of connections without an engine: it flushes them in the next iteration of the event loop."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._touched: dict[Transport, None] = {}

    def enter(self) -> None:
        """Do nothing: there is no engine whose tick begins."""

    def touch(self, transport: Transport) -> None:
        """Flush a connection in the next iteration: it has output."""
        if not self._touched:
            asyncio.get_running_loop().call_soon(self._flush)
        self._touched[transport] = None

    def end_connection(self, transport: Transport, call: Callable[[], None]) -> None:
        """Make a call that ends a connection."""
        self.touch(transport)
        try:
            call()
        except Exception as error:
            self.failed(transport, error)

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """Report an exception, and end the connection that it came from."""
        self._report("broker.error", error=described(error))
        if transport is not None:
            transport.abort()

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for transport in touched:
            try:
                transport.flush()
            except Exception as error:
                self.failed(transport, error)


class Redirecting:
    """Makes the sessions of a standby.  WebSocket acceptors stay closed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        messaging = config.messaging_acceptors.items()
        #: By name.
        self.acceptors = {name: acceptor for name, acceptor in messaging if not speaks_websocket(acceptor)}

    def sessions(self, acceptor: MessagingAcceptor) -> MakeSession:
        """Return the factory for the sessions of an acceptor's connections."""
        answering = (acceptor, *(self._config.acceptors[name] for name in acceptor.others))
        return detecting({each.protocol: self._answers(each, acceptor) for each in answering})

    def _answers(self, acceptor: object, at: MessagingAcceptor) -> MakeSession:
        most, servers = self._config.limits.connect_bytes_max, failover_servers(self._config, at)
        if isinstance(acceptor, StompAcceptor):
            return lambda *_: redirecting_stomp(most, reference(servers))
        if isinstance(acceptor, MqttAcceptor):
            return lambda *_: redirecting_mqtt(most, reference(servers))
        assert isinstance(acceptor, AmqpAcceptor), "a protocol for which there are sessions"
        properties = open_properties(servers, amqp_scheme(acceptor, at))
        return lambda *_: redirecting_amqp(most, self._config.broker.name, properties)


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
        descriptors = share_out(self._config, limit(), open_now())
        self._acceptors.total.limit = descriptors.connections
        for name, acceptor in self._config.http_acceptors.items():
            server = HttpServer(
                broker,
                token,
                name=name,
                context=lasting_context(name, acceptor.tls),
                logins=self._acceptors.logins,
                open_metrics=acceptor.open_metrics,
                connections_max=descriptors.http[name][0],
                reserved_max=descriptors.http[name][1],
                allowed_hosts=acceptor.allowed_hosts,
                standby=api.application,
            )
            await self._acceptors.open_http(name, server)
        if self._config.journal.postgresql.redirect:
            for name, messaging in self._redirecting.acceptors.items():
                context = lasting_context(name, messaging.tls)
                served = served_protocols(self._config, messaging)
                await self._acceptors.open(name, self._redirecting.sessions(messaging), context=context, served=served)
        return self._acceptors.addresses

    def taken(self) -> list[str]:
        """Why acceptors that open with the broker could not listen now.  May be called in another thread."""
        listening = self._acceptors.names
        return [
            why
            for name, acceptor in self._config.messaging_acceptors.items()
            if name not in listening and (why := taken(name, acceptor.host, acceptor.port))
        ]

    async def close(self) -> None:
        """Stop listening, and close all connections at once: clients wait for the broker to serve."""
        self._checks.cancel()
        await self._acceptors.abort(0)

    async def _check(self) -> None:
        while True:
            await self._acceptors.check()
