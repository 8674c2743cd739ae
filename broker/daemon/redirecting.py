"""The acceptors of a standby that redirects clients to the brokers of its pair (`journal.postgresql.redirect`)."""

from __future__ import annotations

import asyncio

from broker.config import AmqpAcceptor, Config, MessagingAcceptor, MqttAcceptor, StompAcceptor
from broker.daemon.accepting import amqp_scheme, bound, failover_servers, speaks_websocket
from broker.engine.model.report import Report
from broker.net.listener import MakeSession
from broker.sessions.detect import DetectingSession
from broker.sessions.failover import open_properties, reference
from broker.sessions.login import Peer
from broker.sessions.redirecting import redirecting_amqp, redirecting_mqtt, redirecting_stomp
from broker.sessions.session import Session
from broker.sessions.tick import Transport, described


class Flushing:
    """The tick of connections without an engine: it flushes them in the next iteration of the event loop."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._touched: dict[Transport, None] = {}

    def enter(self) -> None:
        """See Tick; does nothing here."""

    def touch(self, transport: Transport) -> None:
        """See Tick."""
        if not self._touched:
            asyncio.get_running_loop().call_soon(self._flush)
        self._touched[transport] = None

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """See Tick; ends the connection."""
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
        served = {each.protocol: self._answers(each, acceptor) for each in answering}

        def make(transport: Transport, number: int, peer: Peer) -> Session:
            if len(served) == 1:
                return served[acceptor.protocol](transport, number, peer)
            return DetectingSession({name: bound(each, transport, number, peer) for name, each in served.items()})

        return make

    def _answers(self, acceptor: object, at: MessagingAcceptor) -> MakeSession:
        most, servers = self._config.limits.connect_bytes_max, failover_servers(self._config, at)
        if isinstance(acceptor, StompAcceptor):
            return lambda *_: redirecting_stomp(most, reference(servers))
        if isinstance(acceptor, MqttAcceptor):
            return lambda *_: redirecting_mqtt(most, reference(servers))
        assert isinstance(acceptor, AmqpAcceptor), "a protocol for which there are sessions"
        properties = open_properties(servers, amqp_scheme(acceptor, at))
        return lambda *_: redirecting_amqp(most, self._config.broker.name, properties)
