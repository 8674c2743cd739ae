"""Either side of an MQTT connection: packets become engine verbs, deliveries become PUBLISH.

What the other end is owed for what it sent (PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK) leaves once everything that it
did before is durable, in the order in which it did it ([MQTT-4.6.0-2] to [MQTT-4.6.0-4]).  What a session sends by
itself waits for the journal too, if packet identifiers are to be there first (`delivery`).  Both wait in one line.

What outlives the connection is the session's (`client_session`).  `session` is the side that clients connect to,
`broker.sessions.links.mqtt` the one that connects to other brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.engine import Unreadable
from broker.sessions.confirmations import Confirmations
from broker.sessions.convert import ConversionError
from broker.sessions.login import Peer
from broker.sessions.mqtt.client_session import ClientSession, Common
from broker.sessions.mqtt.connect import no_room
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.port import Port, Publishing
from broker.sessions.mqtt.publish import NotTaken
from broker.sessions.mqtt.receive import Receiver
from broker.sessions.tick import Transport
from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import (
    BEGUN,
    PART,
    Ack,
    Begun,
    Connack,
    Packet,
    Part,
    Publish,
    Suback,
    Unsuback,
)
from protocols.mqtt.state import State

#: What waits for the journal: a packet, PUBLISH packets of one topic, or the end.
Waiting = Ack | Connack | Suback | Unsuback | Publishing | NotTaken

#: Why a connection is not read: it ends once all that is owed is said.
_ENDING: Final = "ending"

#: What is done about each packet, by its type.
Handlers = Mapping[int, Callable[[Any, Any], None]]


class MqttEndpoint(Port):
    """Our side of one MQTT connection, whoever began it."""

    __slots__ = (
        "_common",
        "_ended",
        "_ending",
        "_traffic",
        "answers",
        "leaving",
        "receive_timeout",
        "receiver",
        "send_interval",
        "session",
    )

    def __init__(self, common: Common, transport: Transport, *, connection_id: str, peer: Peer) -> None:
        super().__init__(common.tick, transport, MqttConnection(common.codec), common.heads, connection_id, peer)
        self.receive_timeout = 0
        self.send_interval = 0
        self.session: ClientSession | None = None
        self.receiver: Receiver | None = None
        self.answers: Confirmations[Waiting] = Confirmations(self.engine, self._send_all)
        self.leaving = False  # DISCONNECT came, or goes
        self._common = common
        self._traffic = common.sessions.traffic
        self._ended = False  # the peer has closed its side
        self._ending = False  # it fails once all that is owed is said

    @property
    @abstractmethod
    def handlers(self) -> Handlers:
        """What is done about each packet, by its type."""

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def close_expected(self) -> bool:
        """After DISCONNECT, from either side, and after an error."""
        return self.leaving or self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self.lost:
            self._traffic.bytes_received += len(data)
            self.codec.receive_data(data)
            self.process()

    def receive_eof(self) -> None:
        """The peer has closed its side without a DISCONNECT, after which nothing is owed to it."""
        if not self.lost:
            self.codec.receive_eof()
            self._ended = True
            self.process()

    def process(self) -> None:
        """Do what the packets that have come say."""
        codec, handlers = self.codec, self.handlers
        failure: MqttError | None = None
        if self._ending:
            return
        try:
            while packets := codec.events():
                self._traffic.heard(packets)
                for packet in packets:
                    if self.lost:
                        return  # one before it has ended the connection
                    handlers[packet.type](self, packet)
            failure = codec.error
        except NotTaken as refusal:
            self._end_behind(refusal)
        except MqttError as wrong:
            failure = wrong
        self.confirm()
        if failure is not None and not self.lost:
            self.fail_with(failure)
        if self._ended and not self.lost and not (self.receiver is not None and self.receiver.waiting):
            self.end(publish_will=True)
            self.leaving = True

    def proceed(self, failure: MqttError | None) -> None:
        """Read on after a large message, or fail."""
        if self.lost:
            return
        if isinstance(failure, NotTaken):
            self._end_behind(failure)
            self.confirm()
        elif failure is not None:
            self.fail_with(failure)
        else:
            self.process()
        self.touch()

    def _end_behind(self, failure: NotTaken) -> None:
        """Fail once all that is owed is said."""
        self._ending = True
        self.reading.stop(_ENDING)
        self.answers.owed.append(failure)

    def data_to_send(self) -> bytes:
        """Everything for the peer since the last call."""
        if self.unsendable.dead_letter() and self.session is not None and not self.lost:
            self.session.deliveries.proceed()  # what could not be sent has used credit
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
        payload, session = self.codec.streaming, self.session
        if session is not None and isinstance(payload, LargePayload) and not error.passing:
            session.deliveries.unreadable(payload, ConversionError(why))
            self.unsendable.dead_letter()
        self.codec.abandon()
        self.end(publish_will=True)
        self.leaving = True

    def flushed(self) -> None:
        """The bytes are with the operating system."""
        self.window.socket_full = False
        if self.codec.streaming:  # there is more, and what follows it waits
            self.touch()
            return
        if self.session is not None and not self.lost:
            self.session.deliveries.flushed()
        self.window.flushed()

    def pause(self, paused: bool) -> None:
        """No deliveries for now, or again."""
        if self.session is not None and not self.lost:
            self.session.deliveries.set_blocked(paused)

    def timed_out(self) -> None:
        """Silence for longer than the keep alive allows [MQTT-3.1.2-22]."""
        self.report("connection.silent")
        self.codec.send_error(MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, "nothing came within the keep alive"))
        self.touch()
        self.end(publish_will=True)

    def connection_lost(self) -> None:
        """The socket is gone."""
        self.end(publish_will=True)

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.codec.discard()
        self.unsendable.forget()
        session = self.session
        self.fail_with(self.moved(why) if moved else MqttError(ReasonCode.UNSPECIFIED_ERROR, why))
        if session is not None:
            session.deliveries.recover()

    def dismiss(self, reason: str) -> None:
        """An operator ends the connection, or a subscription of its session: so that the client notices."""
        self.goodbye(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, reason))

    def moved(self, why: str) -> MqttError:
        """Another broker of the pair goes on."""
        return MqttError(ReasonCode.USE_ANOTHER_SERVER, why)

    def goodbye(self, why: MqttError) -> None:
        """Leave, and say why."""
        self.codec.send_error(why)
        self.touch()
        self.end(publish_will=True)
        self.leaving = True

    def end(self, *, publish_will: bool) -> None:
        """The connection is over: what waits is not sent any more, the session goes on without it, or ends."""
        if self.lost:
            return
        self.lost = True
        if self.receiver is not None:
            self.receiver.abandon()
        if self.codec.streaming:
            self.codec.abandon()
        self.engine.connections.closed(self.id)
        waiting = [*self.answers.owed, *self.answers.drop()]
        session = self.session
        if session is not None:
            for packet in waiting:
                if isinstance(packet, tuple):
                    session.in_flight.unsent(packet)
                elif isinstance(packet, Ack):
                    session.unsaid(packet)
            self._common.sessions.disconnect(session, publish_will=publish_will)
        self.ended()

    @abstractmethod
    def ended(self) -> None:
        """The connection is over."""

    def fail_with(self, failure: MqttError) -> None:
        """Say what was wrong, where there is a packet for it, and close."""
        first = failure.reason == ReasonCode.PACKET_TOO_LARGE and not self.established
        self.report(
            "login.too_large" if first else "mqtt.error",
            client=self.session.client.id if self.session is not None else "",
            reason=f"0x{int(failure.reason):02X}",
            message=str(failure),
        )
        self.codec.send_error(failure)
        self.touch()
        self.end(publish_will=True)
        self.leaving = True

    # -- in order, and not before it is durable --------------------------------------------------------------------

    def confirm(self) -> None:
        """Answers for what has come so far: now, or when what it did is on disk."""
        if self.answers.owed and self.session is not None:
            self._common.sessions.note_changed(self.session)
        if self.answers.confirm(self):
            self.touch()

    def durable(self, number: int) -> None:
        """Everything up to a tick is on disk."""
        self.answers.durable(number)
        self.touch()

    def emit(self, ticket: int, packet: Ack | Publishing) -> None:
        """Send once a tick is durable; 0: at once."""
        if ticket:
            self.answers.after(ticket, packet)
        else:
            self.send(packet)
            self.touch()

    def spend(self, messages: int, nbytes: int) -> None:
        """Count messages that go out."""
        self._traffic.published += messages
        self.sent(nbytes)

    def _send_all(self, packets: list[Waiting]) -> None:
        while packets:  # one that ends the connection leaves the others to `end`
            packet = packets.pop(0)
            if isinstance(packet, NotTaken):
                self.fail_with(packet)
            else:
                self.send(packet)

    def send(self, packet: Packet | Publishing) -> None:
        """Send now what may be sent."""
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
        if isinstance(packet, Ack) and self.receiver is not None:
            self.receiver.answered(packet)
        self._traffic.said(packet)
        if not self.codec.send(packet):  # SUBACK, say, for which its client would wait: most others are short
            self.fail_with(no_room(packet.type.name))

    # -- what the other end publishes ------------------------------------------------------------------------------

    def _receiving(self) -> Receiver:
        """The receiver, made when something comes: most connections only wait for messages."""
        if self.receiver is None:
            assert self.session is not None, "its client is known"
            self.receiver = Receiver(self._common, self.session, self, self.reading)
        return self.receiver

    def _on_publish(self, run: Publish) -> None:
        self._receiving().publish(run)

    def _on_begun(self, begun: Begun) -> None:
        self._receiving().begin(begun)

    def _on_part(self, part: Part) -> None:
        self._receiving().part(part)

    def owe(self, ack: Ack) -> None:
        """Acknowledge once all that comes before is durable."""
        self.answers.owed.append(ack)

    def dropped(self, messages: int, sentence: str) -> None:
        """Count and log messages dropped without an answer."""
        self._traffic.dropped += messages
        self.report("mqtt.publish_dropped", messages=messages, message=sentence)

    def _on_pubrel(self, ack: Ack) -> None:
        self._receiving().release(ack.packet_ids)

    # -- what it answers -------------------------------------------------------------------------------------------

    def _on_ack(self, ack: Ack) -> None:
        assert self.session is not None
        self.session.deliveries.acknowledge(ack)
        self.session.subscriptions.finishing.check()


#: What is done about each packet that both sides know.
SHARED: Final[Handlers] = {
    PacketType.PUBLISH: MqttEndpoint._on_publish,
    BEGUN: MqttEndpoint._on_begun,
    PART: MqttEndpoint._on_part,
    PacketType.PUBACK: MqttEndpoint._on_ack,
    PacketType.PUBREC: MqttEndpoint._on_ack,
    PacketType.PUBREL: MqttEndpoint._on_pubrel,
    PacketType.PUBCOMP: MqttEndpoint._on_ack,
}
