"""An MQTT connection: packets become engine verbs, deliveries become PUBLISH.

What a client is owed for what it sent (PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK) leaves once everything that it did
before is durable, in the order in which it did it ([MQTT-4.6.0-2] to [MQTT-4.6.0-4]).  What a session sends by itself
waits for the journal too, if packet identifiers are to be there first (`delivery`).  Both wait in one line.

What outlives the connection is the session's (`client_session`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from broker.engine import Client, Unreadable
from broker.engine.model.access import Identity
from broker.engine.model.errors import EngineError
from broker.sessions.confirmations import Confirmations
from broker.sessions.login import Peer
from broker.sessions.mqtt import connect as mqtt_connect
from broker.sessions.mqtt import sys as mqtt_sys
from broker.sessions.mqtt.client_session import ClientSession, Common
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.port import Port, Publishing
from broker.sessions.mqtt.receive import Receiver
from broker.sessions.mqtt.render import Renderer
from broker.sessions.mqtt.terms import refusal
from broker.sessions.mqtt.will import Will
from broker.sessions.tick import Transport
from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import (
    BEGUN,
    PART,
    Ack,
    Auth,
    Begun,
    Connack,
    Connect,
    Disconnect,
    Part,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from protocols.mqtt.state import State

#: Why a connection is not read: its CONNACK waits for the journal.
_GREETING: Final = "greeting"

#: What waits for the journal: a packet, or PUBLISH packets of one topic.
Waiting = Ack | Connack | Suback | Unsuback | Publishing


class MqttSession(Port):
    """The broker's side of one MQTT connection."""

    def __init__(self, common: Common, transport: Transport, *, connection_id: str, peer: Peer) -> None:
        super().__init__(common.tick, transport, MqttConnection(common.codec), common.heads, connection_id, peer)
        self.receive_timeout = 0
        self.send_interval = 0
        self._common = common
        self._options = common.options
        self._traffic = common.sessions.traffic
        self._login = mqtt_connect.Login(self.codec, common.gate, peer, self.reading, self._known, self._fail)
        self._session: ClientSession | None = None
        self._receiver: Receiver | None = None
        self._connect: Connect | None = None
        self._greeting: tuple[int, Connack] | None = None  # waits for this tick to be durable
        self._answers: Confirmations[Waiting] = Confirmations(self.engine, self._send_all)
        self._ended = False  # the peer has closed its side
        self._leaving = False  # DISCONNECT came, or goes

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def close_expected(self) -> bool:
        """After DISCONNECT, from either side, and after an error."""
        return self._leaving or self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self.lost:
            self._traffic.bytes_received += len(data)
            self.codec.receive_data(data)
            self._process()

    def receive_eof(self) -> None:
        """The peer has closed its side without a DISCONNECT, after which nothing is owed to it."""
        if not self.lost:
            self.codec.receive_eof()
            self._ended = True
            self._process()

    def _process(self) -> None:
        codec, handlers = self.codec, _HANDLERS
        failure: MqttError | None = None
        try:
            while packets := codec.events():
                self._traffic.heard(packets)
                for packet in packets:
                    if self.lost:
                        return  # one before it has ended the connection
                    handlers[packet.type](self, packet)
            failure = codec.error
        except MqttError as wrong:
            failure = wrong
        self._confirm()
        if failure is not None and not self.lost:
            self._fail(failure)
        if self._ended and not self.lost and not (self._receiver is not None and self._receiver.waiting):
            self._end(publish_will=True)
            self._leaving = True

    def proceed(self, failure: MqttError | None) -> None:
        """Read on after a large message, or fail."""
        if self.lost:
            return
        if failure is not None:
            self._fail(failure)
        else:
            self._process()
        self.touch()

    def data_to_send(self) -> bytes:
        """Everything for the peer since the last call."""
        if self.unsendable.dead_letter() and self._session is not None and not self.lost:
            self._session.deliveries.proceed()  # what could not be sent has used credit
        if self.window.socket_full and self.codec.streaming:
            return b""
        try:
            data = self.codec.data_to_send()
        except Unreadable as error:
            self._cut(error)
            return b""
        self._traffic.bytes_sent += len(data)
        return data

    def _cut(self, error: Unreadable) -> None:
        """A payload cannot be read, in the middle of its packet: there is no way to say so."""
        why = str(error)
        self.tick.enter()
        self.report("body.unreadable", error=why)
        payload, session = self.codec.streaming, self._session
        if session is not None and isinstance(payload, LargePayload) and not error.passing:
            session.deliveries.unreadable(payload, why)
            self.unsendable.dead_letter()
        self.codec.abandon()
        self._end(publish_will=True)
        self._leaving = True

    def flushed(self) -> None:
        """The bytes are with the operating system."""
        self.window.socket_full = False
        if self.codec.streaming:  # there is more, and what follows it waits
            self.touch()
            return
        if self._session is not None and not self.lost:
            self._session.deliveries.flushed()
        self.window.flushed()

    def pause(self, paused: bool) -> None:
        """No deliveries for now, or again."""
        if self._session is not None and not self.lost:
            self._session.deliveries.set_blocked(paused)

    def send_heartbeat(self) -> None:
        """A server says nothing by itself in MQTT."""

    def timed_out(self) -> None:
        """Silence for one and a half times the keep alive [MQTT-3.1.2-22]."""
        self.report("connection.silent")
        self.codec.send_error(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing came within the keep alive"))
        self.touch()
        self._end(publish_will=True)

    def connection_lost(self) -> None:
        """The socket is gone."""
        self._end(publish_will=True)

    def fail(self, why: str) -> None:
        self.codec.discard()
        self.unsendable.forget()
        session = self._session
        self._fail(MqttError(ReasonCode.UNSPECIFIED_ERROR, why))
        if session is not None:
            session.deliveries.recover()

    def shut_down(self) -> None:
        """The broker stops; a will is published as if the client had gone."""
        reason = ReasonCode.SERVER_SHUTTING_DOWN if self.established else ReasonCode.SERVER_UNAVAILABLE
        self._goodbye(reason, "the broker is shutting down")

    def taken_over(self) -> None:
        """The session has another connection now; a CONNACK that waits for the journal still comes first."""
        if self._greeting is not None:
            ticket, connack = self._greeting
            self._end(publish_will=True)
            self._answers.after(ticket, connack)
        else:
            self._say_taken_over()

    def _say_taken_over(self) -> None:
        self._goodbye(ReasonCode.SESSION_TAKEN_OVER, "another connection has the same client identifier")

    def dismiss(self, reason: str) -> None:
        """An operator ends the connection, or a subscription of its session: so that the client notices."""
        self._goodbye(ReasonCode.ADMINISTRATIVE_ACTION, reason)

    def _goodbye(self, reason: ReasonCode, sentence: str) -> None:
        self.codec.send_error(MqttError(reason, sentence))
        self.touch()
        self._end(publish_will=True)
        self._leaving = True

    def _end(self, *, publish_will: bool) -> None:
        """The connection is over: what waits is not sent any more, the session goes on without it, or ends."""
        if self.lost:
            return
        self.lost = self._login.over = True
        if self._receiver is not None:
            self._receiver.abandon()
        if self.codec.streaming:
            self.codec.abandon()
        self.engine.connections.closed(self.id)
        self._traffic.connections -= self.established
        waiting = self._answers.drop()
        session = self._session
        if session is not None:
            for packet in waiting:
                if isinstance(packet, tuple):
                    session.deliveries.unsent(packet)
            self._common.sessions.disconnect(session, publish_will=publish_will)

    def _fail(self, failure: MqttError) -> None:
        """Say what was wrong, where there is a packet for it, and close."""
        first = failure.reason == ReasonCode.PACKET_TOO_LARGE and not self.established
        self.report(
            "login.too_large" if first else "mqtt.error",
            client=self._session.client.id if self._session is not None else "",
            reason=f"0x{int(failure.reason):02X}",
            message=str(failure),
        )
        self.codec.send_error(failure)
        self.touch()
        self._end(publish_will=True)
        self._leaving = True

    # -- in order, and not before it is durable --------------------------------------------------------------------

    def _confirm(self) -> None:
        """Answers for what has come so far: now, or when what it did is on disk."""
        if self._answers.owed and self._session is not None:
            self._common.sessions.note_changed(self._session)
        if self._answers.confirm(self):
            self.touch()

    def durable(self, number: int) -> None:
        """Everything up to a tick is on disk."""
        self._answers.durable(number)
        self.touch()

    def emit(self, ticket: int, packet: Ack | Publishing) -> None:
        """Send once a tick is durable; 0: at once."""
        if ticket:
            self._answers.after(ticket, packet)
        else:
            self._send(packet)
            self.touch()

    def spend(self, messages: int, nbytes: int) -> None:
        """Count messages that go out."""
        self._traffic.published += messages
        self.sent(nbytes)

    def _send_all(self, packets: list[Waiting]) -> None:
        while packets:  # one that ends the connection leaves the others to `_end`
            self._send(packets.pop(0))

    def _send(self, packet: Waiting | Pingresp) -> None:
        if self.codec.state is State.DISCONNECTED:
            return  # it has said goodbye in the same breath, and hears no more
        if isinstance(packet, tuple):
            head, payloads, ids = packet
            if isinstance(payloads, LargePayload):
                assert isinstance(head, PublishHead), "one message has one head"
                self.codec.send_large(head, payloads, ids)
            else:
                self.codec.send_publish(head, payloads, ids)
            return
        if isinstance(packet, Connack):
            self._greet(packet)
            return
        if isinstance(packet, Ack) and self._receiver is not None:
            self._receiver.answered(packet)
        self._traffic.said(packet)
        if not self.codec.send(packet):  # SUBACK or UNSUBACK, for which its client would wait: all others are short
            self._fail(mqtt_connect.no_room(packet.type.name))

    # -- connecting ------------------------------------------------------------------------------------------------

    def _on_connect(self, connect: Connect) -> None:
        self._connect = connect
        self._login.begin(connect)

    def _on_auth(self, auth: Auth) -> None:
        self._login.step(auth)
        self.touch()

    def _known(self, identity: Identity | None, data: bytes | None) -> None:
        """Who it is has been found out, maybe some time after it asked; `data` goes with the answer."""
        session, connect = self._session, self._connect
        try:
            if session is not None:
                if identity is None or identity.user != session.client.access.user:
                    raise MqttError(ReasonCode.NOT_AUTHORIZED, "the login was refused, or is of another user")
                self._give_access(session, identity)
                self._login.send(ReasonCode.SUCCESS, data)
            elif identity is not None and connect is not None:
                self._admit(connect, identity, data)
            elif connect is not None:
                raise mqtt_connect.wrong_login(connect)
        except MqttError as failure:
            self._fail(failure)
        self.touch()

    def _give_access(self, session: ClientSession, identity: Identity) -> None:
        session.client.access = self.engine.security.access(identity, session.client.id)
        if self._receiver is None:
            self._receiver = Receiver(self._common, session, self, self.reading)
        else:
            self._receiver.give_access(session.client.access)
        session.subscriptions.recheck()

    def _admit(self, connect: Connect, identity: Identity, data: bytes | None) -> None:
        """The client may come in: it gets its session.  Raises MqttError."""
        options, sessions = self._options, self._common.sessions
        mqtt_connect.check(connect, options)
        assigned = "" if connect.client_id else f"{self.engine.random.getrandbits(128):032x}"
        client_id, will, mount = connect.client_id or assigned, connect.will, self._common.mount
        if mount is not None:
            client_id, will = mount.client_id(client_id), will and mount.will(will)
        existing = sessions.get(client_id)
        if existing is not None and existing.owner is not None and not options.link_stealing:
            sentence = "another connection has this client identifier, and it may not be taken over"
            raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, sentence)
        expiry = mqtt_connect.session_expiry(connect, options)
        client = Client(
            client_id,
            self.engine.security.access(identity, client_id),
            self.remote,
            expiry=expiry,
            queued_max=options.queued_max,
            drop_oldest=options.drop_oldest,
            filtered=options.filtered,
        )
        try:
            session, present = sessions.connect(
                self,
                client,
                None if will is None else Will.of(will),
                clean=connect.clean_start,
                sessions_max=options.sessions_max,
            )
        except EngineError as error:
            raise MqttError(refusal(error), str(error)) from error
        self._session = session
        self._give_access(session, identity)
        self.renderer = Renderer(self._common.heads, connect.version)
        self.receive_timeout = mqtt_connect.keep_alive(connect, options) * mqtt_connect.KEEP_ALIVE_MS
        session.incoming.connected(mqtt_connect.own_receive_maximum(connect, options))
        connack = mqtt_connect.greeting(connect, options, present=present, assigned=assigned, expiry=expiry, data=data)
        ticket = self.engine.ticks.confirmation(self) if session.stored is not None else 0
        if ticket:
            self.reading.stop(_GREETING)
            self._greeting = ticket, connack
            self._answers.after(ticket, connack)
        else:
            self._greet(connack)

    def _greet(self, connack: Connack) -> None:
        """CONNACK, and then everything that waits for the client or came from it meanwhile."""
        connect, session = self._connect, self._session
        assert connect is not None
        assert session is not None
        self._connect = self._greeting = None
        self.reading.go(_GREETING)
        if not self.codec.send(connack):
            self._fail(mqtt_connect.no_room("CONNACK"))
        elif self.lost:
            self._say_taken_over()
        if self.lost:
            return
        self.touch()
        self._traffic.came()
        self.opened("MQTT", session.client.access)
        self._traffic.said(connack)
        options = self._options
        session.deliveries.connect(self, mqtt_connect.receive_maximum(connect, options), options.inflight_bytes_max)
        self._process()

    def _on_pingreq(self, packet: Pingreq) -> None:
        self._send(Pingresp())
        self.touch()

    def _on_disconnect(self, packet: Disconnect) -> None:
        """Goodbye; only reason code 0 takes the will back [MQTT-3.14.4-3]."""
        session = self._session
        if session is not None:
            expiry = packet.properties.get(SESSION_EXPIRY_INTERVAL)
            if expiry is not None:
                session.client.expiry = min(expiry, self._options.expiry_max)
        self._confirm()
        self._end(publish_will=packet.reason_code != ReasonCode.SUCCESS)
        self._leaving = True
        self.touch()

    # -- what the client publishes ---------------------------------------------------------------------------------

    def _on_publish(self, run: Publish) -> None:
        assert self._receiver is not None
        self._receiver.publish(run)

    def _on_begun(self, begun: Begun) -> None:
        assert self._receiver is not None
        self._receiver.begin(begun)

    def _on_part(self, part: Part) -> None:
        assert self._receiver is not None
        self._receiver.part(part)

    def owe(self, ack: Ack) -> None:
        """Acknowledge once all that comes before is durable."""
        self._answers.owed.append(ack)

    def dropped(self, messages: int, sentence: str) -> None:
        """Count and log messages dropped without an answer."""
        self._traffic.dropped += messages
        self.report("mqtt.publish_dropped", messages=messages, message=sentence)

    def _on_pubrel(self, ack: Ack) -> None:
        assert self._receiver is not None
        self._receiver.release(ack.packet_ids)

    # -- what it answers -------------------------------------------------------------------------------------------

    def _on_ack(self, ack: Ack) -> None:
        assert self._session is not None
        self._session.deliveries.acknowledge(ack)
        self._session.subscriptions.finish_leaving()

    # -- subscribing -----------------------------------------------------------------------------------------------

    def _on_subscribe(self, packet: Subscribe) -> None:
        session = self._session
        assert session is not None
        subscriptions, version, mount = session.subscriptions, self.codec.version, self._common.mount
        if mount is not None:
            packet.subscriptions = [replace(each, filter=mount.filter(each.filter)) for each in packet.subscriptions]
        codes, why, wanting = subscriptions.ask(packet, version, self._options)
        self._owe(session, Suback(packet.packet_id, codes, why))
        if self.lost:
            return  # it has no room for the answer
        for text in wanting:
            if self._options.retain:
                subscriptions.send_retained(text)
            if text.startswith(mqtt_sys.ROOT):
                self.engine.system_topics.watch(subscriptions.queue_of(text))

    def _owe(self, session: ClientSession, answer: Suback | Unsuback) -> None:
        """Answer once the subscriptions are stored, if they are to be: those of one read together."""
        if session.stored is None:
            self._send(answer)
            self.touch()
        else:
            self._answers.owed.append(answer)

    def _on_unsubscribe(self, packet: Unsubscribe) -> None:
        session = self._session
        assert session is not None
        mount = self._common.mount
        filters = packet.filters if mount is None else map(mount.filter, packet.filters)
        codes: list[int] = [session.subscriptions.unsubscribe(filter) for filter in filters]
        self._owe(session, Unsuback(packet.packet_id, codes))


#: What is done about each packet of a client.
_HANDLERS: Final[dict[int, Callable[[MqttSession, Any], None]]] = {
    PacketType.CONNECT: MqttSession._on_connect,
    PacketType.PUBLISH: MqttSession._on_publish,
    BEGUN: MqttSession._on_begun,
    PART: MqttSession._on_part,
    PacketType.PUBACK: MqttSession._on_ack,
    PacketType.PUBREC: MqttSession._on_ack,
    PacketType.PUBREL: MqttSession._on_pubrel,
    PacketType.PUBCOMP: MqttSession._on_ack,
    PacketType.SUBSCRIBE: MqttSession._on_subscribe,
    PacketType.UNSUBSCRIBE: MqttSession._on_unsubscribe,
    PacketType.PINGREQ: MqttSession._on_pingreq,
    PacketType.DISCONNECT: MqttSession._on_disconnect,
    PacketType.AUTH: MqttSession._on_auth,
}
