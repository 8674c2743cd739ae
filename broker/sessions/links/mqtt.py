"""A link over MQTT: the side that connects, subscribes for its incoming routes and publishes for its outgoing ones.

    TCP (TLS)   CONNECT    MQTT 5, or 3.1.1 if that is refused
                CONNACK    the state of our session at the other end is stored; then the link runs
                SUBSCRIBE  for each incoming route: starting, then running; or refused: retrying

Messages in flight when a connection ends are sent again on the next one, with their packet identifiers: QoS 1 is at
least once, and QoS 2 exactly once as long as both ends keep their sessions.  An end that has lost its session reports
that by Session Present, and unacknowledged messages are sent to it as new.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

from broker.engine import Consumer, DeadLetterReason, LinkTarget
from broker.engine.model.message import Message
from broker.sessions.base import without_calls
from broker.sessions.convert import ConversionError
from broker.sessions.links.bridge import Bridge, BridgeRenderer
from broker.sessions.links.bridge_routes import BridgeRoutes
from broker.sessions.links.links import Links
from broker.sessions.links.model import is_same_reason
from broker.sessions.login import Peer
from broker.sessions.mqtt.client_session import Arrival, ClientSession
from broker.sessions.mqtt.endpoint import SHARED, Handlers, MqttEndpoint
from broker.sessions.mqtt.port import Publishing
from broker.sessions.mqtt.terms import KEEP_ALIVE_MAX, reason_words
from broker.sessions.tick import Tick, Transport
from broker.sessions.unsendable import Unsendable
from protocols.mqtt.codes import V5, VERSIONS, PacketType, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT
from protocols.mqtt.packets import (
    BEGUN,
    PART,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Unsuback,
)
from protocols.mqtt.properties import (
    MAXIMUM_QOS,
    NO_PROPERTIES,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    Properties,
)
from protocols.mqtt.state import State as Conversation

#: A session expiry interval: never.
_FOR_EVER: Final = 0xFFFF_FFFF

#: CONNACK's return code before 5.0 for an unsupported version.
_UNKNOWN_VERSION: Final = 1

#: The dead-letter reasons of messages that the other broker refuses, by reason code.
_DEATHS: Final[dict[int, DeadLetterReason]] = {
    ReasonCode.NOT_AUTHORIZED: DeadLetterReason.NOT_AUTHORISED,
    ReasonCode.PACKET_TOO_LARGE: DeadLetterReason.TOO_LARGE,
    ReasonCode.QUOTA_EXCEEDED: DeadLetterReason.QUEUE_FULL,
    ReasonCode.TOPIC_NAME_INVALID: DeadLetterReason.NO_ROUTE,
}

_RETURN_CODES: Final = {
    1: "the version is not spoken there",
    2: "the client identifier is not taken",
    3: "the other broker is not available",
    4: "the user name or the password is wrong",
    5: "not authorized",
}


class UnsendableByBridge(Unsendable):
    """Handles messages that a bridge cannot send, or that its other end refuses."""

    __slots__ = ("_bridge", "_report")

    def __init__(self, tick: Tick, bridge: Bridge, report: Callable[..., None]) -> None:
        super().__init__(tick)
        self._bridge = bridge
        self._report = report

    def give_up(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        if not self.hold_back(consumer, message, str(why)):
            super().give_up(consumer, message, why)

    def hold_back(self, consumer: Consumer, message: Message, why: str) -> bool:
        """Hold a durable message back that no dead-letter address would keep; whether it waits."""
        engine, link = self._tick.engine, self._bridge.link
        if not message.header.durable or engine.messages.may_die(consumer.queue, message):
            return False
        engine.consumers.keep(consumer, message, link.settings.retry_interval_max)
        for each in self._bridge.reading(consumer.queue):
            each.route.note(why)
            if not is_same_reason(each.waiting, why):
                each.waiting = why
                self._report("link.route_waiting", link=link.name, route=each.route.name, error=why)
        return True


class MqttLinkSession(MqttEndpoint):
    """Our side of a link's connection."""

    def __init__(self, bridge: Bridge, transport: Transport, links: Links, *, connection_id: str, peer: Peer) -> None:
        super().__init__(bridge.common, transport, connection_id=connection_id, peer=peer)
        self.unsendable = self._untaken = UnsendableByBridge(
            self.tick, bridge, partial(self.engine.report, connection=self.id, remote=self.remote)
        )
        self._bridge = bridge
        self._link = bridge.link
        self._links = links
        self._why = ""  # why the connection ends
        self._answered = False  # CONNACK was received
        self._connack: Connack | None = None
        self._routes: BridgeRoutes | None = None  # after CONNACK
        self._late: list[Packet] = []  # messages received while it is paused
        self._keep_alive = 0  # in ms
        self._pinged = self.engine.now
        self._connect()

    def _connect(self) -> None:
        settings, (version, private) = self._link.settings, self._bridge.versions.attempt
        other = self._bridge.session.other
        assert other is not None, "a link's session has one"
        seconds = min(-(-settings.idle_timeout // 1_000), KEEP_ALIVE_MAX)
        self._set_keep_alive(seconds)
        pairs = [(SESSION_EXPIRY_INTERVAL, _FOR_EVER), (RECEIVE_MAXIMUM, min(settings.window, RECEIVE_MAXIMUM_DEFAULT))]
        self.codec.send(
            Connect(
                version,
                self._link.client_id,
                clean_start=not other.kept,  # a session that is unknown here would be another client's
                keep_alive=seconds,
                user_name=settings.user or None,
                password=settings.password if settings.user else None,
                properties=Properties(pairs) if version == V5 else NO_PROPERTIES,
                bridge=private,
            )
        )
        self.touch()

    def _set_keep_alive(self, seconds: int) -> None:
        """Set the keep alive; a server that is silent for twice as long counts as gone."""
        self._keep_alive = self.send_interval = seconds * 1_000
        self.receive_timeout = 2 * self._keep_alive

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    # -- login -----------------------------------------------------------------------------------------------------

    def _on_connack(self, connack: Connack) -> None:
        self._answered = True
        bridge, version = self._bridge, self.codec.version
        if connack.reason_code:
            code = connack.reason_code
            if code == (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION if version == V5 else _UNKNOWN_VERSION):
                bridge.versions.refused()
            words = reason_words(code, connack.properties) if version == V5 else _RETURN_CODES[code]
            self._give_up(f"MQTT {VERSIONS[version]} refused: {words}")
            return
        properties = connack.properties
        keep_alive = properties.get(SERVER_KEEP_ALIVE)
        if keep_alive is not None:
            self._set_keep_alive(keep_alive)
        qos_max, retains = properties.get(MAXIMUM_QOS), properties.get(RETAIN_AVAILABLE) != 0
        self.renderer = BridgeRenderer(bridge, version, qos_max=2 if qos_max is None else qos_max, retains=retains)
        self._connack = connack
        self.arrive(Arrival(bridge.client(), self.transport), lambda error: self._give_up(f"this broker: {error}"))

    def connected(self, session: ClientSession, *, present: bool) -> None:
        bridge, connack = self._bridge, self._connack
        assert connack is not None, "it has come"
        most = connack.properties.get(RECEIVE_MAXIMUM) or RECEIVE_MAXIMUM_DEFAULT
        self._routes = routes = BridgeRoutes(
            bridge, session, self, present=connack.session_present, receive_maximum=most
        )
        self.receiver = routes.receiver
        # Our Receive Maximum is not enforced: Mosquitto 2.0 resends all that was in flight under an earlier higher one.
        session.incoming.connected()
        if self._link.pausing:  # packets after CONNACK may have been read already
            routes.pause()
        ticket = self.engine.ticks.confirmation(self)
        if ticket:
            self.answers.after(ticket, connack)
        else:
            self.send(connack)
        self.touch()

    def send(self, packet: Packet | Publishing) -> None:
        if not isinstance(packet, Connack):
            super().send(packet)
        elif self.codec.state is not Conversation.DISCONNECTED:  # the effects of CONNACK are durable
            assert self.session is not None
            if not self._bridge.versions.accepted():
                self._link.attempts = 0
                self._give_up("the other broker may have been starting when it closed MQTT 5: trying it once more")
                return
            self.opened("MQTT", self.session.client.access)
            self._links.opened(self._link, self, f"MQTT {VERSIONS[self.codec.version]}")

    def _give_up(self, why: str) -> None:
        self._why = why
        self.leaving = True
        self.touch()
        self.end(publish_will=False)

    # -- routes ----------------------------------------------------------------------------------------------------

    def start_routes(self) -> None:
        assert self._routes is not None, "the link is running"
        self._routes.start()
        late, self._late = self._late, []
        failure: MqttError | None = None
        try:
            for packet in late:
                SHARED[packet.type](self, packet)
        except MqttError as wrong:
            failure = without_calls(wrong)
        self.proceed(failure)

    def pause_routes(self) -> None:
        assert self._routes is not None, "the link is running"
        self._routes.pause()

    def pause(self, paused: bool) -> None:
        super().pause(paused or (self._routes is not None and self._routes.holding))

    def check(self) -> None:
        if self._routes is not None and self.established and not self.lost:
            self._bridge.count()
            if self._routes.check():
                self.shut_down("there is room again: asking the other broker for the messages that it kept")

    def _on_suback(self, suback: Suback) -> None:
        assert self._routes is not None, "CONNACK has come"
        self._routes.answered(suback)

    def _on_unsuback(self, unsuback: Unsuback) -> None:
        assert self._routes is not None, "CONNACK has come"
        self._routes.unsubscribed(unsuback)

    # -- messages --------------------------------------------------------------------------------------------------

    def _on_message(self, packet: Packet) -> None:
        """Process a message, or a part of one; a paused link does so when it is started again."""
        if self._routes is not None and self._routes.paused:
            self._late.append(packet)
        else:
            SHARED[packet.type](self, packet)

    def refused(self, consumer: Consumer, message: Message, text: str, code: int) -> None:
        for each in self._bridge.reading(consumer.queue):
            each.route.note(text)
            topic = self._bridge.common.sessions.syntax.to_topic(message.header.address)
            consumer.link = LinkTarget(self._bridge.link.name, (topic and each.peer_topic(topic)) or "")
        if not self._untaken.hold_back(consumer, message, text):
            reason = _DEATHS.get(code, DeadLetterReason.REJECTED)
            self.engine.consumers.reject(consumer, message.id, text=text, reason=reason)

    def _on_pingresp(self, packet: Pingresp) -> None:
        """Do nothing: the receive timeout has started again."""

    # -- what the network calls ------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the bytes for the peer, with a PINGREQ if due: our PUBLISH packets alone may get no answer."""
        due = self._keep_alive and self.engine.now - self._pinged >= self._keep_alive
        if due and self.established and not self.lost:
            self._ping()
        return super().data_to_send()

    def _ping(self) -> None:
        self._pinged = self.engine.now
        self.send(Pingreq())

    def send_heartbeat(self) -> None:
        """Send PINGREQ."""
        if self.established and not self.lost:
            self._ping()
            self.touch()

    def timed_out(self) -> None:
        self._why = f"nothing was heard for {self.receive_timeout} ms"
        super().timed_out()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_disconnect(self, packet: Disconnect) -> None:
        self._bridge.enforces_quota |= packet.reason_code == ReasonCode.QUOTA_EXCEEDED
        self._give_up(f"the other broker closed the connection: {reason_words(packet.reason_code, packet.properties)}")

    def fail_with(self, failure: MqttError) -> None:
        self._why = self._why or str(failure)
        if not self._answered and self.codec.version == V5:  # the answer is not MQTT 5
            self._answered = True
            self._bridge.versions.refused()
        super().fail_with(failure)

    def taken_over(self) -> NoReturn:
        raise AssertionError("a link has one connection")

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        """Disconnect, as the link or the broker stops: unacknowledged messages wait at both ends."""
        self._why = why
        if self.established and self.codec.streaming is None:
            self.codec.send(Disconnect())
        self._give_up(why)

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def ended(self) -> None:
        bridge = self._bridge
        if not self._answered and not self._why:
            self._why = f"the connection was closed before CONNACK, in MQTT {VERSIONS[self.codec.version]}"
            bridge.versions.closed()
        elif self.established:
            bridge.versions.disconnected()
        if self._routes is not None:
            self._routes.end()
            self._routes = None  # they refer to this connection
        bridge.count()
        self._links.lost(self._link, self._why)


#: The handler of each packet type.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    PacketType.PUBLISH: MqttLinkSession._on_message,
    BEGUN: MqttLinkSession._on_message,
    PART: MqttLinkSession._on_message,
    PacketType.CONNACK: MqttLinkSession._on_connack,
    PacketType.SUBACK: MqttLinkSession._on_suback,
    PacketType.UNSUBACK: MqttLinkSession._on_unsuback,
    PacketType.PINGRESP: MqttLinkSession._on_pingresp,
    PacketType.DISCONNECT: MqttLinkSession._on_disconnect,
}
