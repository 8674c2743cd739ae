"""The broker's side of a client's MQTT connection: login and subscriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.engine import Client, Ending, LongWork
from broker.engine.model.access import Identity
from broker.engine.model.errors import AlreadyInUse, Denied, EngineError
from broker.engine.model.names import LINK_SESSIONS
from broker.sessions.login import Gate, Peer
from broker.sessions.mqtt import connect as mqtt_connect
from broker.sessions.mqtt import sys as mqtt_sys
from broker.sessions.mqtt.client_session import Arrival, ClientSession, Common
from broker.sessions.mqtt.endpoint import SHARED, Handlers, MqttEndpoint
from broker.sessions.mqtt.mount import MountPoint
from broker.sessions.mqtt.port import Publishing
from broker.sessions.mqtt.subscribe import UNSUBSCRIBE_COST
from broker.sessions.mqtt.terms import refusal
from broker.sessions.session import MOVED
from broker.sessions.tick import Transport
from protocols.mqtt.codes import FAILURE, PacketType, ReasonCode
from protocols.mqtt.errors import MqttError, too_large
from protocols.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from protocols.mqtt.state import State

#: Why a connection is not read: its CONNACK waits for the journal.
_GREETING: Final = "greeting"


class MqttSession(MqttEndpoint):
    """The broker's side of one client's connection."""

    __slots__ = ("_answer", "_connect", "_greeting", "_login", "_mount", "_options")

    def __init__(
        self,
        common: Common,
        transport: Transport,
        mount: MountPoint | None,
        *,
        connection_id: str,
        peer: Peer,
        gate: Gate,
    ) -> None:
        super().__init__(common, transport, connection_id=connection_id, peer=peer)
        self._mount = mount
        self._options = common.options
        login = mqtt_connect.Login(self, gate, peer, self._known, self.fail_with)
        self._login: mqtt_connect.Login | None = login
        self._connect: Connect | None = None
        self._answer: tuple[str, bytes | None] = "", None  # the assigned client identifier, and data, for CONNACK
        self._greeting: tuple[int, Connack] | None = None  # the tick that must be durable first

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    # -- the end ---------------------------------------------------------------------------------------------------

    def send_heartbeat(self) -> None:
        """Do nothing: MQTT servers send no heartbeats."""

    def shut_down(self, *, moved: bool = False) -> None:
        """End the connection, as the broker stops; the will is published as if the connection was lost."""
        reason = ReasonCode.SERVER_SHUTTING_DOWN if self.established else ReasonCode.SERVER_UNAVAILABLE
        self.disconnect(self.moved(MOVED) if moved else MqttError(reason, "the broker is shutting down"))

    def refuse_before_login(self, nbytes: int, most: int) -> None:
        """End as after a CONNECT that is too large."""
        self.fail_with(too_large(nbytes, most, before_login=True))

    def taken_over(self) -> None:
        """A CONNACK that waits for the journal goes first."""
        if self._greeting is not None:
            ticket, connack = self._greeting
            self.end(Ending.TAKEN_OVER, publish_will=True)
            self.answers.after(ticket, connack)
        else:
            self._disconnect_taken_over()

    def _disconnect_taken_over(self) -> None:
        sentence = "another connection has the same client identifier"
        self.disconnect(MqttError(ReasonCode.SESSION_TAKEN_OVER, sentence), Ending.TAKEN_OVER)

    def ended(self) -> None:
        self._traffic.connections -= self.established
        self._login = None  # it refers to this session

    def send(self, packet: Packet | Publishing) -> None:
        if isinstance(packet, Connack) and self.codec.state is not State.DISCONNECTED:
            self._greet(packet)
        else:
            super().send(packet)

    # -- connecting ------------------------------------------------------------------------------------------------

    def _on_connect(self, connect: Connect) -> None:
        self._connect = connect
        assert self._login is not None, "it has not introduced itself yet"
        self._login.begin(connect)

    def _on_auth(self, auth: Auth) -> None:
        assert self._login is not None, "its client has named a method"
        self._login.step(auth)
        self.touch()

    def _known(self, identity: Identity | None, data: bytes | None) -> None:
        """Continue with the result of a login, which may have taken time; `data` is sent with the answer."""
        session, connect = self.session, self._connect
        try:
            if session is not None:
                if identity is None or identity.user != session.client.access.user:
                    raise MqttError(ReasonCode.NOT_AUTHORIZED, "the login was refused, or is of another user")
                self._give_access(session, identity)
                assert self._login is not None, "it was asked again"
                self._login.send(ReasonCode.SUCCESS, data)
            elif identity is not None and connect is not None:
                self._admit(connect, identity, data)
            elif connect is not None:
                raise mqtt_connect.wrong_login(connect)
        except MqttError as failure:
            self.fail_with(failure)
        self.touch()

    def _give_access(self, session: ClientSession, identity: Identity) -> None:
        session.client.access = self.engine.security.access(identity, session.client.id)
        if self.receiver is not None:
            self.receiver.give_access(session.client.access)
        session.subscriptions.recheck()

    def _admit(self, connect: Connect, identity: Identity, data: bytes | None) -> None:
        """Admit a client that has logged in: connect it to its session.  Raises MqttError."""
        options = self._options
        mqtt_connect.check(connect, options)
        assigned = "" if connect.client_id else f"{self.engine.random.getrandbits(128):032x}"
        client_id, will, mount = connect.client_id or assigned, connect.will, self._mount
        if mount is not None:
            client_id, will = mount.client_id(client_id), will and mount.will(will)
        if client_id.startswith(LINK_SESSIONS):
            sentence = f"client identifiers that begin with {LINK_SESSIONS} are those of this broker's links"
            raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence)
        if client_id.startswith(options.mounted):
            sentence = "client identifiers that begin so are those of another acceptor's mount point"
            raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence)
        client = Client(
            client_id,
            self.engine.security.access(identity, client_id),
            self.remote,
            expiry=mqtt_connect.session_expiry(connect, options),
            queued_max=options.queued_max,
            drop_oldest=options.drop_oldest,
            filtered=options.filtered,
        )
        self._answer = assigned, data
        self.arrive(Arrival(client, self.transport, will, connect.clean_start), self._refuse)

    def _refuse(self, error: EngineError) -> None:
        taken = isinstance(error, Denied | AlreadyInUse)
        self.fail_with(MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID if taken else refusal(error), str(error)))

    def connected(self, session: ClientSession, *, present: bool) -> None:
        connect, options = self._connect, self._options
        assert connect is not None, "it is not answered yet"
        self.renderer = self._common.heads.renderer(connect.version)
        self.receive_timeout = mqtt_connect.keep_alive(connect, options) * mqtt_connect.KEEP_ALIVE_MS
        session.incoming.connected(mqtt_connect.own_receive_maximum(connect, options))
        (assigned, data), expiry = self._answer, session.client.expiry
        connack = mqtt_connect.greeting(connect, options, present=present, assigned=assigned, expiry=expiry, data=data)
        ticket = self.engine.ticks.confirmation(self) if session.stored is not None else 0
        if ticket:
            self.reading.stop(_GREETING)
            self._greeting = ticket, connack
            self.answers.after(ticket, connack)
        else:
            self._greet(connack)

    def _greet(self, connack: Connack) -> None:
        """Send CONNACK, then start deliveries and process what the client has sent meanwhile."""
        connect, session = self._connect, self.session
        assert connect is not None
        assert session is not None
        self._connect = self._greeting = None
        self.reading.go(_GREETING)
        if not self.codec.send(connack):
            self.fail_with(mqtt_connect.no_room("CONNACK"))
        elif self.lost:
            self._disconnect_taken_over()
        if self.lost:
            return
        self.touch()
        if self.codec.state is State.CONNECTED:
            self._login = None  # without an authentication method it cannot authenticate again
        self._traffic.client_connected()
        self.opened("MQTT", session.client.access)
        self._traffic.count_sent(connack)
        options = self._options
        session.deliveries.connect(self, mqtt_connect.receive_maximum(connect, options), options.inflight_bytes_max)
        self.process()

    def _on_pingreq(self, packet: Pingreq) -> None:
        self.send(Pingresp())
        self.touch()

    def _on_disconnect(self, packet: Disconnect) -> None:
        """End the connection; only reason code 0 cancels the will [MQTT-3.14.4-3]."""
        session = self.session
        if session is not None:
            expiry = packet.properties.get(SESSION_EXPIRY_INTERVAL)
            if expiry is not None:
                session.client.expiry = min(expiry, self._options.expiry_max)
        self.confirm()
        fails = packet.reason_code >= FAILURE
        ending = Ending.CONNECTION_LOST if fails else Ending.DISCONNECTED
        self.end(ending, publish_will=packet.reason_code != ReasonCode.SUCCESS)
        self.leaving = True
        self.touch()

    # -- subscribing -----------------------------------------------------------------------------------------------

    def _on_subscribe(self, packet: Subscribe) -> None:
        session = self.session
        assert session is not None
        mount = self._mount
        if mount is not None:
            packet.subscriptions = [replace(each, filter=mount.filter(each.filter)) for each in packet.subscriptions]
        self.work(self._subscribe(session, packet))

    def _subscribe(self, session: ClientSession, packet: Subscribe) -> LongWork:
        subscriptions = session.subscriptions
        codes, why, wanting = yield from subscriptions.ask(packet, self.codec.version, self._options)
        self._queue_answer(session, Suback(packet.packet_id, codes, why))
        if self.lost:
            return  # the answer was too large for the client
        for text in wanting:
            if self._options.retain:
                subscriptions.send_retained(text)
            if text.startswith(mqtt_sys.ROOT):
                self.engine.system_topics.watch(subscriptions.queue_of(text))

    def _queue_answer(self, session: ClientSession, answer: Suback | Unsuback) -> None:
        """Answer at once, or for a stored session once its subscriptions are stored, all those of one read together."""
        if session.stored is None:
            self.send(answer)
            self.touch()
        else:
            self.answers.pending.append(answer)

    def _on_unsubscribe(self, packet: Unsubscribe) -> None:
        session = self.session
        assert session is not None
        self.work(self._unsubscribe(session, packet))

    def _unsubscribe(self, session: ClientSession, packet: Unsubscribe) -> LongWork:
        mount = self._mount
        codes: list[int] = []
        for filter in packet.filters:
            codes.append(session.subscriptions.unsubscribe(filter if mount is None else mount.filter(filter)))
            yield UNSUBSCRIBE_COST
        self._queue_answer(session, Unsuback(packet.packet_id, codes))


#: The method that handles each packet.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    PacketType.CONNECT: MqttSession._on_connect,
    PacketType.SUBSCRIBE: MqttSession._on_subscribe,
    PacketType.UNSUBSCRIBE: MqttSession._on_unsubscribe,
    PacketType.PINGREQ: MqttSession._on_pingreq,
    PacketType.DISCONNECT: MqttSession._on_disconnect,
    PacketType.AUTH: MqttSession._on_auth,
}
