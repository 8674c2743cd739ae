"""Makes the sessions of each acceptor's connections, as configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker import __version__
from broker.config import AmqpAcceptor, Config, MessagingAcceptor, MqttAcceptor, StompAcceptor
from broker.config.sections import host_and_port
from broker.engine import NEVER_EXPIRES
from broker.net.listener import MakeSession
from broker.sessions.amqp.session import AmqpSession
from broker.sessions.amqp.terms import AmqpOptions
from broker.sessions.detect import DetectingSession
from broker.sessions.failover import FailoverServer, open_properties, reference
from broker.sessions.login import Gate, LoginRestriction, Peer
from broker.sessions.mqtt.client_session import Common, MqttSessions
from broker.sessions.mqtt.mount import MountPoint
from broker.sessions.mqtt.render import Heads
from broker.sessions.mqtt.session import MqttSession
from broker.sessions.mqtt.terms import KEEP_ALIVE_MAX, MqttOptions
from broker.sessions.session import Session
from broker.sessions.stomp.headers import Options, Prefixes
from broker.sessions.stomp.session import StompSession
from broker.sessions.tick import Tick, Transport
from broker.sessions.websocket.inner import InnerSession
from protocols.amqp.limits import Limits as AmqpLimits
from protocols.mqtt.codes import Role
from protocols.mqtt.fields import PACKET_BYTES_MAX
from protocols.mqtt.limits import WHOLE_BYTES_MIN
from protocols.mqtt.limits import Limits as MqttLimits
from protocols.mqtt.runs import Shared
from protocols.stomp.limits import Limits as StompLimits

#: Makes a session that a WebSocket can carry.
MakeInnerSession = Callable[[Transport, int, Peer], InnerSession]

Made = TypeVar("Made", bound=Session)


class Accepting:
    """Makes the sessions of all acceptors, with the state they share."""

    def __init__(self, config: Config, tick: Tick, gate: Gate) -> None:
        self._config = config
        self._tick = tick
        self._gate = gate
        self._containers: set[tuple[str, str]] = set()  # users, and AMQP containers that have only one connection
        self.mqtt_sessions = MqttSessions(tick.engine, __version__, sys_interval=_sys_interval(config))

    def sessions(self, acceptor: MessagingAcceptor) -> MakeSession:
        """Return the factory for the sessions of an acceptor's connections."""
        served = {acceptor.protocol: self._of_one(acceptor, acceptor)}
        for name in acceptor.others:
            other = self._config.acceptors[name]
            assert isinstance(other, MessagingAcceptor), "the configuration is checked"
            served[other.protocol] = self._of_one(other, acceptor)
        return detecting(served)

    def _of_one(self, acceptor: MessagingAcceptor, at: MessagingAcceptor) -> MakeSession:
        """Return the factory for clients of an acceptor that connect to `at`: itself or one that shares its port."""
        make = self._spoken(acceptor, at)
        restriction = LoginRestriction(frozenset(acceptor.allowed_users), frozenset(acceptor.allowed_roles))
        if not (restriction.users or restriction.roles):
            return make

        def restricted(transport: Transport, number: int, peer: Peer) -> Session:
            self._gate.peers.restrict(peer, restriction)
            return make(transport, number, peer)

        return restricted

    def _spoken(self, acceptor: MessagingAcceptor, at: MessagingAcceptor) -> MakeSession:
        servers = failover_servers(self._config, at)
        if isinstance(acceptor, StompAcceptor):
            make = self._stomp(acceptor, reference(servers))
        elif isinstance(acceptor, MqttAcceptor):
            make = self._mqtt(acceptor, reference(servers))
        else:
            assert isinstance(acceptor, AmqpAcceptor), "a protocol for which there are sessions"
            make = self._amqp(acceptor, open_properties(servers, amqp_scheme(acceptor, at)))
        return self._over_websocket(make, acceptor) if acceptor.websocket else make

    def _over_websocket(
        self, make: MakeInnerSession, acceptor: StompAcceptor | MqttAcceptor | AmqpAcceptor
    ) -> MakeSession:
        # Imported here: brokers without WebSocket start faster.
        from broker.sessions.websocket.mqtt import MqttWebSocketSession
        from broker.sessions.websocket.session import SUBPROTOCOLS, WebSocketSession
        from broker.sessions.websocket.stomp import StompWebSocketSession

        origins, report = acceptor.websocket_origins, self._tick.engine.report
        kind: type[WebSocketSession] = WebSocketSession
        names, most = SUBPROTOCOLS[acceptor.protocol], self._config.limits.connect_bytes_max
        if isinstance(acceptor, StompAcceptor):
            kind = StompWebSocketSession
        elif isinstance(acceptor, MqttAcceptor):
            kind = MqttWebSocketSession

        def wrapping(transport: Transport, number: int, peer: Peer) -> Session:
            def refused(origin: str) -> None:
                report("websocket.refused", remote=peer.remote, origin=origin)

            def foreign(subprotocols: str) -> None:
                report("websocket.foreign", remote=peer.remote, asks_for=subprotocols, speaks=", ".join(names))

            offered = dict.fromkeys(names, _bound(make, transport, number, peer))
            return kind(offered, connect_bytes_max=most, origins=origins, refused=refused, foreign=foreign)

        return wrapping

    def _connection_id(self, number: int) -> str:
        return f"{self._tick.engine.random.getrandbits(32):08x}-{number}"

    def _stomp(self, acceptor: StompAcceptor, failover: str) -> MakeInnerSession:
        config, large = self._config, acceptor.stomp_min_large_message_size
        limits = StompLimits(
            header_count_max=config.limits.header_count_max,
            header_line_bytes_max=config.limits.header_line_bytes_max,
            header_bytes_max=config.limits.header_bytes_max,
            body_bytes_max=config.limits.body_bytes_max if large < 0 else config.limits.large_body_bytes_max,
            whole_bytes_max=config.limits.body_bytes_max if large < 0 else min(large - 1, config.limits.body_bytes_max),
            connect_bytes_max=config.limits.connect_bytes_max,
        )
        options = Options(
            server=f"bartleby/{__version__}",
            prefixes=Prefixes(acceptor.anycast_prefixes, acceptor.multicast_prefixes),
            window=acceptor.stomp_consumer_window_size,
            ttl=config.connection_ttl(acceptor),
            ttl_min=acceptor.connection_ttl_min,
            ttl_max=acceptor.connection_ttl_max,
            ttl_modifier=acceptor.heart_beat_to_connection_ttl_modifier,
            subscriptions_max=config.limits.subscriptions_per_connection_max,
            transactions_max=config.limits.transactions_per_connection_max,
            failover=failover,
        )

        def make(transport: Transport, number: int, peer: Peer) -> InnerSession:
            return StompSession(
                self._tick,
                transport,
                options,
                limits,
                connection_id=self._connection_id(number),
                peer=peer,
                gate=self._gate,
            )

        return make

    def _amqp(self, acceptor: AmqpAcceptor, failover: dict[str, object]) -> MakeInnerSession:
        config, large = self._config, acceptor.amqp_min_large_message_size
        limits = AmqpLimits(
            frame_bytes_max=acceptor.max_frame_size,
            handshake_bytes_max=config.limits.connect_bytes_max,
            message_bytes_max=config.limits.body_bytes_max + config.limits.header_bytes_max,
            # Everything before the body has to fit into the first portion.
            whole_bytes_max=max(large, config.limits.header_bytes_max),
            streamed_bytes_max=0 if large < 0 else config.limits.large_body_bytes_max + config.limits.header_bytes_max,
            links_max=config.limits.subscriptions_per_connection_max,
        )
        options = AmqpOptions(
            container_id=config.broker.name,
            version=__version__,
            anycast_prefixes=acceptor.anycast_prefixes,
            multicast_prefixes=acceptor.multicast_prefixes,
            credits=acceptor.amqp_credits,
            low_credits=acceptor.amqp_low_credits,
            idle_timeout=max(acceptor.amqp_idle_timeout, 0),
            transactions_max=config.limits.transactions_per_connection_max,
            failover=failover,
        )

        def make(transport: Transport, number: int, peer: Peer) -> InnerSession:
            return AmqpSession(
                self._tick,
                transport,
                options,
                limits,
                connection_id=self._connection_id(number),
                peer=peer,
                gate=self._gate,
                containers=self._containers,
            )

        return make

    def _packet_bytes_max(self, acceptor: MqttAcceptor) -> int:
        """Return the limit of an MQTT packet: it has to fit into a journal entry unless payloads go to files."""
        config, packet = self._config, acceptor.maximum_packet_size
        if acceptor.mqtt_min_large_message_size < 0:
            return min(packet, config.journal.segment_size // 2)
        return min(packet, config.limits.large_body_bytes_max + config.limits.header_bytes_max)

    def _mqtt(self, acceptor: MqttAcceptor, failover: str) -> MakeInnerSession:
        config, large = self._config, acceptor.mqtt_min_large_message_size
        whole = PACKET_BYTES_MAX if large < 0 else min(large - 1, config.limits.body_bytes_max)
        limits = MqttLimits(
            packet_bytes_max=self._packet_bytes_max(acceptor),
            whole_bytes_max=max(whole, WHOLE_BYTES_MIN),
            connect_bytes_max=config.limits.connect_bytes_max,
            topic_levels_max=acceptor.topic_levels_max,
            topic_alias_max=acceptor.topic_alias_maximum,
        )
        options = MqttOptions(
            keep_alive_max=_keep_alive(acceptor.server_keep_alive, acceptor.max_keepalive),
            early_keep_alive_max=_keep_alive(acceptor.max_keepalive),
            nameless=acceptor.allow_zero_length_clientid,
            qos_max=acceptor.maximum_qos,
            retain=acceptor.retain_available,
            payload_bytes_max=acceptor.message_size_limit,
            expiry_default=_expiry(acceptor.default_mqtt_session_expiry_interval),
            expiry_max=_expiry(acceptor.max_session_expiry_interval),
            receive_maximum=acceptor.receive_maximum,
            inflight_max=acceptor.default_maximum_in_flight_publish_messages,
            inflight_bytes_max=acceptor.in_flight_bytes_max or -1,
            filtered=acceptor.filter_subscriptions,
            queued_max=acceptor.queued_messages_max,
            drop_oldest=acceptor.queued_messages_drop == "oldest",
            link_stealing=acceptor.allow_link_stealing,
            subscriptions_max=config.limits.subscriptions_per_connection_max,
            sessions_max=config.limits.sessions_max,
            failover=failover,
            mounted=_mounted(config, acceptor.mount_point),
        )
        sessions = self.mqtt_sessions
        mount = MountPoint(acceptor.mount_point) if acceptor.mount_point else None
        heads = Heads(sessions.syntax, mount) if mount else sessions.heads
        common = Common(self._tick, options, Shared(Role.SERVER, limits), sessions, heads, mount)

        def make(transport: Transport, number: int, peer: Peer) -> InnerSession:
            id, gate = self._connection_id(number), self._gate
            return MqttSession(common, transport, mount, connection_id=id, peer=peer, gate=gate)

        return make


def _mounted(config: Config, own: str) -> tuple[str, ...]:
    """Return the mount points of other acceptors, except those that the acceptor's own one begins with."""
    acceptors = [each for each in config.acceptors.values() if isinstance(each, MqttAcceptor)]
    return tuple({each.mount_point: None for each in acceptors if not own.startswith(each.mount_point)})


def failover_servers(config: Config, at: MessagingAcceptor) -> tuple[FailoverServer, ...]:
    """Return where an acceptor's clients find the brokers of the pair: without a configured port, at the acceptor's."""
    found = [(host, port or at.port) for host, port in map(host_and_port, config.broker.failover_hosts)]
    return tuple(FailoverServer(host, port) for host, port in found if port)


def amqp_scheme(acceptor: AmqpAcceptor, at: MessagingAcceptor) -> str:
    """Return the URI scheme of an acceptor, as Qpid JMS knows it."""
    secure = "s" if at.tls is not None else ""
    return f"ws{secure}" if acceptor.websocket else f"amqp{secure}"


def _sys_interval(config: Config) -> int:
    """Return how often the `$SYS` topics are published, in ms (0: never); all acceptors share the topics."""
    acceptors = [one for one in config.acceptors.values() if isinstance(one, MqttAcceptor) and one.enabled]
    return min((one.sys_interval for one in acceptors if one.sys_interval > 0), default=0)


def _keep_alive(*limits: int) -> int:
    """Return the smallest of some limits in ms as a keep alive in seconds; 0: there is none."""
    given = [_seconds(ms) for ms in limits if ms > 0]
    return min(*given, KEEP_ALIVE_MAX) if given else 0


def _seconds(ms: int) -> int:
    """Round up to whole seconds; 0 for off."""
    return max(-(-ms // 1000), 0)


def _expiry(ms: int) -> int:
    """Convert to a session expiry interval in seconds; -1 is for ever."""
    return NEVER_EXPIRES if ms < 0 else min(_seconds(ms), NEVER_EXPIRES)


def speaks_websocket(acceptor: MessagingAcceptor) -> bool:
    """Whether an acceptor's clients connect through WebSocket."""
    return isinstance(acceptor, StompAcceptor | AmqpAcceptor | MqttAcceptor) and acceptor.websocket


def served_protocols(config: Config, acceptor: MessagingAcceptor) -> frozenset[str]:
    """Return the protocols that a client's first bytes may belong to; HTTP for a protocol over WebSocket."""
    if speaks_websocket(acceptor):
        return frozenset({"HTTP"})
    return frozenset({acceptor.protocol, *(config.acceptors[name].protocol for name in acceptor.others)})


def detecting(served: dict[str, MakeSession]) -> MakeSession:
    """Return the factory for clients of one of these protocols, which their first bytes tell if there are several."""
    if len(served) == 1:
        return next(iter(served.values()))

    def make(transport: Transport, number: int, peer: Peer) -> Session:
        return DetectingSession({name: _bound(each, transport, number, peer) for name, each in served.items()})

    return make


def _bound(
    make: Callable[[Transport, int, Peer], Made], transport: Transport, number: int, peer: Peer
) -> Callable[[], Made]:
    return lambda: make(transport, number, peer)
