"""Either side of an MQTT connection: packets become engine verbs, deliveries become PUBLISH.

Answers to the other end (PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK) are sent once everything that it did before is
durable, in the order of its packets ([MQTT-4.6.0-2] to [MQTT-4.6.0-4]).  Messages wait for the journal too if their
packet identifiers must be stored first (`delivery`).  Both wait in one queue.

State that outlives the connection belongs to the session (`client_session`).  `session` is the side that clients
connect to, `broker.sessions.links.mqtt` the one that connects to other brokers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from broker.engine import Ending, LongWork, Unreadable
from broker.engine.model.errors import EngineError
from broker.sessions.base import without_calls
from broker.sessions.confirmations import Confirmations
from broker.sessions.convert import ConversionError
from broker.sessions.login import Peer
from broker.sessions.mqtt.client_session import Arrival, ClientSession, Common
from broker.sessions.mqtt.connect import no_room, use_another_server
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.port import Port, Publishing
from broker.sessions.mqtt.publish import NotTaken
from broker.sessions.mqtt.receive import Receiver
from broker.sessions.read_steps import ReadSteps
from broker.sessions.session import PARTIAL_FULL
from broker.sessions.tick import Transport
from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import (
    BEGUN,
    PART,
    Ack,
    Connack,
    Packet,
    Publish,
    Suback,
    Unsuback,
)
from protocols.mqtt.state import State

#: An item that waits for the journal: a packet, PUBLISH packets of one topic, or the end of the connection.
Waiting = Ack | Connack | Suback | Unsuback | Publishing | NotTaken

#: Why a connection is not read: it ends once all pending answers are sent.
_ENDING: Final = "ending"

#: Changed subscriptions that are stored at once: a thousand would take too long.
_NOTED_TOGETHER: Final = 64

#: Acknowledgements of a run that are handled together, in some 3 ms.
ACKS_TOGETHER: Final = 1_024

#: The method that handles each packet, by packet type.
Handlers = Mapping[int, Callable[[Any, Any], None]]


class MqttEndpoint(Port):
    """The broker's side of one MQTT connection, incoming or outgoing."""

    __slots__ = (
        "_common",
        "_ended",
        "_ending",
        "_partial_bytes",
        "_rest",
        "_steps",
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
        self.answers: Confirmations[Waiting] = Confirmations(self.engine)
        self.leaving = False  # DISCONNECT was received or sent
        self._common = common
        self._traffic = common.sessions.traffic
        self._ended = False  # the peer has closed its side
        self._partial_bytes = 0  # held of packets that have not come whole, as charged
        self._ending = False  # it fails once all pending answers are sent
        self._steps: ReadSteps[Packet] = ReadSteps()
        self._rest: Publish | Ack | None = None  # what is still to be handled of the present run

    @property
    @abstractmethod
    def handlers(self) -> Handlers:
        """The method that handles each packet, by packet type."""

    # -- what the network calls ------------------------------------------------------------------------------------

    @property
    def close_expected(self) -> bool:
        """Whether DISCONNECT was sent or received, or an error occurred."""
        return self.leaving or self.codec.close_expected

    def receive_data(self, data: bytes) -> None:
        if not self.lost:
            self._traffic.bytes_received += len(data)
            self.codec.receive_data(data)
            self.process()
            nbytes = self.codec.partial_bytes
            if nbytes != self._partial_bytes and not self.lost:
                self._partial_bytes = nbytes
                if not self.engine.partial.hold(self, nbytes):
                    self.fail_with(MqttError(ReasonCode.QUOTA_EXCEEDED, PARTIAL_FULL.format(nbytes)))

    def receive_eof(self) -> None:
        if not self.lost:
            self.codec.receive_eof()
            self._ended = True
            self.process()

    def process(self) -> None:
        """Handle the packets that have arrived."""
        codec, handlers, steps = self.codec, self.handlers, self._steps
        failure: MqttError | None = None
        if self._ending or steps.pending:
            return
        try:
            while packets := steps.take_later() or self._receive():
                for at, packet in enumerate(packets, 1):
                    if self.lost:
                        return  # an earlier packet has ended the connection
                    handlers[packet.type](self, packet)
                    if self._rest is not None:
                        packets.insert(at, self._rest)
                        self._rest = None
                    if self.works:
                        steps.wait(packets[at:])
                        return self.confirm()
                    more = at < len(packets) or codec.has_more
                    if more and steps.pauses(self, packets, at, 1):  # a packet may be a run of many
                        return self.confirm()
            failure = codec.error
        except NotTaken as refusal:
            self._end_behind(without_calls(refusal))
        except MqttError as wrong:
            failure = without_calls(wrong)
        self.confirm()
        if failure is not None and not self.lost:
            self.fail_with(failure)
        if self._ended and not self.lost and not (self.receiver is not None and self.receiver.waiting):
            self.end(Ending.CONNECTION_LOST, publish_will=True)
            self.leaving = True

    @property
    def works(self) -> bool:
        return not self.lost and (self._steps.pending or self._steps.waiting)

    def _publish(self, run: Publish) -> None:
        self._rest = self._receiving().publish(run)

    def _receive(self) -> list[Packet]:
        packets = self.codec.events()
        if packets:
            self._traffic.count_received(packets)
        return packets

    def work(self, work: LongWork) -> None:
        """Handle a packet in steps: in this tick, and in later ones if it is long.  Those behind it wait."""
        self._steps.work(self, self._noted(work))

    def arrive(self, arrival: Arrival, failed: Callable[[EngineError], None]) -> None:
        """Connect a client to its session in steps: in this tick, and in later ones.  Nothing else is handled before.

        Then `connected` is called, or `failed`, or neither if the connection has ended.
        """
        self._steps.until(self, lambda: self._take_turn(arrival, failed))

    def _take_turn(self, arrival: Arrival, failed: Callable[[EngineError], None]) -> None:
        work = self._arriving(arrival, failed)
        self._common.sessions.in_turn(arrival.client.id, work, self.transport)

    def _arriving(self, arrival: Arrival, failed: Callable[[EngineError], None]) -> LongWork:
        sessions, options = self._common.sessions, self._common.options
        if self.lost:
            return
        try:
            if not sessions.make_way(arrival, options, lambda: self._take_turn(arrival, failed)):
                return
            self.session, present = sessions.connect(self, arrival, options)
        except EngineError as error:
            failed(error)
            self.touch()
            return
        yield from sessions.returning(self.session)
        if not self.lost:
            self._steps.pending = False
            self.connected(self.session, present=present)
            self._steps.resume(self)
            self.touch()

    @abstractmethod
    def connected(self, session: ClientSession, *, present: bool) -> None:
        """Continue: the client is connected to its session, which was `present`, or is new."""

    def _noted(self, work: LongWork) -> LongWork:
        """Store what a packet changes as it does so."""
        for cost in work:
            session = self.session
            if session is not None and session.client.lasting and len(session.subscriptions.changed) >= _NOTED_TOGETHER:
                self._common.sessions.note_changed(session)
            yield cost

    def proceed(self, failure: MqttError | None) -> None:
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
        """Fail once all pending answers are sent."""
        self._ending = True
        self.reading.stop(_ENDING)
        self.answers.pending.append(failure)

    def data_to_send(self) -> bytes:
        if self.unsendable.dead_letter() and self.session is not None and not self.lost:
            self.session.deliveries.proceed()  # unsendable messages have used credit
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
        """End the connection, as a payload is unreadable; within a packet, MQTT cannot send an error."""
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
        """Note that the operating system has all bytes."""
        self.window.socket_full = False
        if self.codec.streaming:  # the rest of a payload comes first
            self.touch()
            return
        if self.session is not None and not self.lost:
            self.session.deliveries.flushed()
            self.session.subscriptions.finishing.check()
        self.open_window()

    def pause(self, paused: bool) -> None:
        if self.session is not None and not self.lost:
            self.session.deliveries.set_blocked(paused)

    def timed_out(self) -> None:
        """End the connection: the peer was silent for longer than its keep alive allows [MQTT-3.1.2-22]."""
        self.report("connection.silent")
        silent = MqttError(ReasonCode.KEEP_ALIVE_TIMEOUT, "no packet arrived within the keep alive")
        self.disconnect(silent, Ending.CONNECTION_LOST)

    def connection_lost(self) -> None:
        if self._steps.waiting:  # it has sent these before, a DISCONNECT perhaps
            self._ended = True
            return
        self.end(Ending.CONNECTION_LOST, publish_will=True)

    def fail(self, why: str, *, moved: bool = False) -> None:
        self.codec.discard()
        self.unsendable.forget()
        session = self.session
        self.fail_with(self.moved(why) if moved else MqttError(ReasonCode.UNSPECIFIED_ERROR, why))
        if session is not None:
            session.deliveries.recover()

    def dismiss(self, reason: str) -> None:
        """End the connection, as an operator ended it or a subscription of its session."""
        self.disconnect(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, reason))

    def moved(self, why: str) -> MqttError:
        """Return the error that sends the client to the other broker of the pair."""
        return use_another_server(why, self._common.options.failover)

    def disconnect(self, why: MqttError, ending: Ending = Ending.DISCONNECTED) -> None:
        """Send a DISCONNECT with the reason, and end the connection."""
        self.codec.send_error(why)
        self.touch()
        self.end(ending, publish_will=True)
        self.leaving = True

    def end(self, ending: Ending = Ending.DISCONNECTED, *, publish_will: bool) -> None:
        """End the connection: drop unsent packets, and disconnect the session, which may end with it."""
        if self.lost:
            return
        self.lost = True
        if self._partial_bytes:
            self.engine.partial.hold(self, 0)
        if self.receiver is not None:
            self.receiver.abandon()
            self.receiver = None  # it refers to this connection
        if self.codec.streaming:
            self.codec.abandon()
        self.engine.connections.closed(self.id)
        waiting = [*self.answers.pending, *self.answers.drop()]
        session = self.session
        if session is not None:
            unsent: list[int] = []
            for packet in waiting:
                if isinstance(packet, tuple):
                    session.in_flight.unsent(packet)
                    unsent += packet[2]
                elif isinstance(packet, Ack):
                    session.not_sent(packet)
            if ending is Ending.CONNECTION_LOST and session.other is None and session.deliveries.sender is not None:
                session.in_flight.fail_oldest(unsent)
            self._common.sessions.disconnect(session, ending, publish_will=publish_will)
        self.ended()

    @abstractmethod
    def ended(self) -> None:
        """Clean up after the connection has ended."""

    def fail_with(self, failure: MqttError) -> None:
        """Report an error to the client, if its version has a packet for that, and close."""
        first = failure.reason == ReasonCode.PACKET_TOO_LARGE and not self.established
        self.report(
            "login.too_large" if first else "mqtt.error",
            client=self.session.client.id if self.session is not None else "",
            reason=f"0x{int(failure.reason):02X}",
            message=str(failure),
        )
        self.disconnect(failure)

    # -- answers, in order and once durable ------------------------------------------------------------------------

    def confirm(self) -> None:
        """Send the pending answers: now, or once their effects are on disk."""
        if self.answers.pending and self.session is not None:
            self._common.sessions.note_changed(self.session)
        if self.answers.confirm(self):
            self.touch()

    def durable(self, number: int) -> None:
        self.answers.durable(self, number)
        self.touch()

    def emit(self, ticket: int, packet: Ack | Publishing) -> None:
        if ticket:
            self.answers.after(ticket, packet)
        else:
            self.send(packet)
            self.touch()

    def follow(self, packet: Publishing) -> None:
        self.answers.follow(self, packet)
        self.touch()

    def count_published(self, messages: int, nbytes: int) -> None:
        self._traffic.published += messages
        self.sent(nbytes)

    def send_confirmations(self, packets: list[Waiting]) -> None:
        while packets:  # if one ends the connection, `end` handles the others
            packet = packets.pop(0)
            if isinstance(packet, NotTaken):
                self.fail_with(packet)
            else:
                self.send(packet)

    def send(self, packet: Packet | Publishing) -> None:
        """Send a packet now."""
        if self.codec.state is State.DISCONNECTED:
            return  # it sent DISCONNECT in the same read
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
        self._traffic.count_sent(packet)
        if not self.codec.send(packet):  # a SUBACK, for example; its client would wait for it
            self.fail_with(no_room(packet.type.name))

    # -- publications of the other end -----------------------------------------------------------------------------

    def _receiving(self) -> Receiver:
        """Return the receiver.  It is made at the first publication: most connections only wait for messages."""
        if self.receiver is None:
            assert self.session is not None, "its client is known"
            self.receiver = Receiver(self._common, self.session, self)
        return self.receiver

    def queue_answer(self, ack: Ack) -> None:
        self.answers.pending.append(ack)

    def dropped(self, messages: int, sentence: str) -> None:
        self._traffic.dropped += messages
        self.report("mqtt.publish_dropped", messages=messages, message=sentence)

    def _on_ack(self, ack: Ack) -> None:
        assert self.session is not None
        self.session.deliveries.acknowledge(self._first_of(ack))
        self.session.subscriptions.finishing.check()

    def _on_release(self, ack: Ack) -> None:
        self._receiving().release(self._first_of(ack).packet_ids)

    def _first_of(self, ack: Ack) -> Ack:
        """Return the first of a run of acknowledgements, of which a read may hold 65,535; the others come next."""
        ids = ack.packet_ids
        if len(ids) <= ACKS_TOGETHER:
            return ack
        self._rest = replace(ack, packet_ids=ids[ACKS_TOGETHER:])
        return replace(ack, packet_ids=ids[:ACKS_TOGETHER])


#: What handles the packets common to both sides.
SHARED: Final[Handlers] = {
    PacketType.PUBLISH: MqttEndpoint._publish,
    BEGUN: lambda session, begun: session._receiving().begin(begun),
    PART: lambda session, part: session._receiving().part(part),
    PacketType.PUBACK: MqttEndpoint._on_ack,
    PacketType.PUBREC: MqttEndpoint._on_ack,
    PacketType.PUBREL: MqttEndpoint._on_release,
    PacketType.PUBCOMP: MqttEndpoint._on_ack,
}
