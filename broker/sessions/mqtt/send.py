"""The messages that a session sends over one connection, up to the client's Receive Maximum.

Messages of QoS 1 and 2 get packet identifiers from `inflight`; those of an earlier connection are resent first.
Messages of QoS 0 count as consumed once the operating system has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from broker.engine import AckMode, Consumer, Engine, LongWork
from broker.engine.model.message import Message, size_of
from broker.sessions.convert import ConversionError, rendering_error
from broker.sessions.mqtt.format import MQTT_FORMAT
from broker.sessions.mqtt.inflight import Flying, InFlight
from broker.sessions.mqtt.large import LargePayload, refused, too_large
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.render import Run
from broker.sessions.mqtt.subscription import Subscription
from broker.sessions.mqtt.terms import reason_words
from protocols.mqtt.codes import FAILURE, PacketType, ReasonCode
from protocols.mqtt.encode import PublishHead, PublishHeads
from protocols.mqtt.fields import PACKET_BYTES_MAX
from protocols.mqtt.inflight import Sent
from protocols.mqtt.packets import Ack

_ID: Final = attrgetter("id")

#: What it costs to send a run of messages and to journal its packet identifiers, in microseconds of the tick's budget.
RUN_COST: Final = 60

#: How many messages are resent together, and what one costs.
RESENT_TOGETHER: Final = 256
RESENT_COST: Final = 5

#: How many times larger than in memory a message may become as a packet of another protocol's message.
_INFLATION_MAX: Final = 8


class Sender:
    """The sending side of a session's current connection."""

    __slots__ = ("_engine", "_in_flight", "_unflushed", "port", "stopped")

    def __init__(self, engine: Engine, port: Port, in_flight: InFlight) -> None:
        self.port = port
        self.stopped = False  # by the tick's budget
        self._engine = engine
        self._in_flight = in_flight
        self._unflushed: dict[Consumer, list[int]] | None = None  # consumed once they are flushed

    def send(self, subscription: Subscription, consumer: Consumer, messages: list[Message]) -> int:
        """Send as many of the first messages as the quota allows, and the tick's budget.  Returns how many.

        Conversion may take milliseconds: if the budget is used up, it stops before the next, and is `stopped`.
        """
        port, in_flight = self.port, self._in_flight
        limited = port.codec.agreement.packet_bytes_max < PACKET_BYTES_MAX
        most = port.codec.packet_bytes_max_in
        done = 0
        for run in self._runs(subscription, consumer, messages):
            head, count, payloads = run.head, len(run.messages), run.payloads
            self._engine.ticks.spend(RUN_COST)
            if head is None:
                assert run.why is not None
                for message in run.messages:
                    port.unsendable.add(consumer, message, run.why)
            elif isinstance(payloads, LargePayload) and isinstance(head, PublishHead):
                if not self._send_large(subscription, consumer, head, payloads):
                    break
            else:
                assert isinstance(payloads, list), "a large payload goes alone"
                fitting = in_flight.fitting(run.messages) if head.qos else count
                if not fitting:
                    break
                over = fitting < count
                if over:
                    count = fitting
                    del run.messages[count:], payloads[count:]
                    head = head.up_to(count)
                nbytes = size_of(run.messages)
                if limited or nbytes * _INFLATION_MAX > most:
                    head, payloads = keep_fitting(port, consumer, head, run, payloads)
                    nbytes = size_of(run.messages)
                port.count_published(len(run.messages), nbytes)
                if not head.qos:
                    if in_flight.stored is None:
                        port.codec.send_publish(head, payloads)
                    else:  # earlier ones of QoS 1 and 2 may wait for the journal
                        port.follow((head, payloads, []))
                    self._sent(consumer, run.messages)
                elif run.messages:
                    ticket, ids = in_flight.send(port, subscription, consumer, head.qos, run.messages)
                    port.emit(ticket, (head, payloads, ids))
                if over:
                    done += count
                    break
            done += count
        return done

    def _runs(self, subscription: Subscription, consumer: Consumer, messages: list[Message]) -> Iterator[Run]:
        """Yield runs of messages, until one has to be converted and the tick's budget is used up."""
        port, ticks, pacing = self.port, self._engine.ticks, not consumer.queue.non_destructive
        runs = port.renderer.runs(subscription, messages, self._engine.now, mixing=port.codec.mixing)
        self.stopped = False
        at = 0
        while at < len(messages):
            if pacing and messages[at].header.format.number != MQTT_FORMAT and ticks.exhausted:
                self.stopped = True
                return
            run = next(runs)
            at += len(run.messages)
            yield run

    def _send_large(
        self, subscription: Subscription, consumer: Consumer, head: PublishHead, payload: LargePayload
    ) -> bool:
        """Send a message whose payload is read from a file as it is sent.  Returns False if the quota is used up."""
        port, in_flight, message = self.port, self._in_flight, payload.message
        if head.qos and not in_flight.open:
            return False
        payload.consumer = consumer
        why = refused(head, payload, port.codec)
        if why:
            port.unsendable.add(consumer, message, why)
            return True
        port.count_published(1, message.size)
        if head.qos:
            ticket, ids = in_flight.send(port, subscription, consumer, head.qos, [message])
            port.emit(ticket, (head, payload, ids))
        else:
            port.follow((head, payload, []))
            self._sent(consumer, [message])
        return True

    def _sent(self, consumer: Consumer, run: list[Message]) -> None:
        """Note messages that count as consumed once they are flushed."""
        if self._unflushed is None:
            self._unflushed = {}
        ids = self._unflushed.setdefault(consumer, [])
        if consumer.ack_mode is not AckMode.AUTO:
            ids += map(_ID, run)

    def forget(self, consumer: Consumer) -> None:
        """Forget a consumer that is closed."""
        if self._unflushed is not None:
            self._unflushed.pop(consumer, None)

    def flushed(self) -> None:
        """Consume messages of QoS 0, as the operating system has everything that was sent."""
        unflushed, self._unflushed = self._unflushed, None
        for consumer, ids in (unflushed or {}).items():
            if consumer.closed:
                continue
            if consumer.ack_mode is AckMode.AUTO:
                self._engine.consumers.acknowledge_all(consumer)
            else:
                for id in ids:
                    if id in consumer.unacked:
                        self._engine.consumers.acknowledge(consumer, id)

    def acknowledge(self, ack: Ack) -> None:
        """Process a PUBACK, PUBREC or PUBCOMP.  Raises MqttError if it does not match what was sent."""
        port, outcome = self.port, self._in_flight.acknowledge(ack)
        failed = ack.reason_code >= FAILURE
        if failed:
            self._refused(ack, outcome.settled)
        if ack.type is not PacketType.PUBREC:
            return
        if outcome.release:
            ticket = 0 if self._in_flight.stored is None else self._engine.ticks.confirmation(port)
            port.emit(ticket, Ack(PacketType.PUBREL, outcome.release))
        if outcome.unknown and not failed:
            port.emit(0, Ack(PacketType.PUBREL, outcome.unknown, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))

    def _refused(self, ack: Ack, settled: Sequence[Flying]) -> None:
        """Dead-letter messages that the client has refused: they are never resent ([MQTT-4.4.0-2], 4.8.2)."""
        text = reason_words(ack.reason_code, ack.properties)
        for subscription, message in settled:
            consumer = subscription.attached
            if consumer is not None and message.id in consumer.unacked:
                self.port.refused(consumer, message, text, ack.reason_code)

    def resend(self) -> LongWork:
        """Resend in steps what an earlier connection left unanswered, in the order of sending, up to the quota."""
        while again := self._in_flight.outgoing.resend(RESENT_TOGETHER):
            self._resend(again)
            yield RESENT_COST * len(again)

    def _resend(self, again: Sequence[tuple[int, Sent, Flying | None]]) -> None:
        port = self.port
        ticket = 0 if self._in_flight.stored is None else self._engine.ticks.confirmation(port)
        released: list[int] = []
        for packet_id, state, flying in again:
            if flying is None:
                released.append(packet_id)
                continue
            if released:
                port.emit(ticket, Ack(PacketType.PUBREL, released))
                released = []
            self._send_again(ticket, packet_id, state, flying)
        if released:
            port.emit(ticket, Ack(PacketType.PUBREL, released))

    def _send_again(self, ticket: int, packet_id: int, state: Sent, flying: Flying) -> None:
        port, (subscription, message) = self.port, flying
        qos, dup = 1 if state is Sent.AT_LEAST_ONCE else 2, self._in_flight.leaves(packet_id)
        consumer = subscription.consumer
        if not dup and 0 < message.header.expiration <= self._engine.now and consumer is not None:
            # Its delivery has not begun [MQTT-3.3.2-5]; of those that have left, the client may know [MQTT-4.4.0-1].
            self._in_flight.give_up(state, {packet_id: message})
            self._engine.consumers.withdraw(consumer, [message])
            return
        try:
            head, payload = port.renderer.again(subscription, message, self._engine.now, qos, dup=dup)
        except Exception as error:  # including our own bugs
            self._give_up(packet_id, state, flying, rendering_error(error))
            return
        if isinstance(payload, LargePayload):
            payload.consumer = subscription.consumer
        why = refused(head, payload, port.codec)
        if why:  # this connection has lower limits than the one before
            self._give_up(packet_id, state, flying, why)
        else:
            port.emit(ticket, (head, payload, [packet_id]))

    def _give_up(self, packet_id: int, state: Sent, flying: Flying, why: ConversionError) -> None:
        """Dead-letter a message in flight that can never be sent."""
        subscription, message = flying
        self._in_flight.give_up(state, {packet_id: message})
        if subscription.consumer is not None:
            self.port.unsendable.add(subscription.consumer, message, why)

    def unreadable(self, payload: LargePayload, why: ConversionError) -> None:
        """Dead-letter a message whose payload could not be read to its end."""
        for packet_id, state, subscription, message in self._in_flight:
            if message is payload.message and subscription.consumer is payload.consumer:
                self._give_up(packet_id, state, (subscription, message), why)
                return
        if payload.consumer is not None:
            self.port.unsendable.add(payload.consumer, payload.message, why)


def keep_fitting(
    port: Port, consumer: Consumer, head: PublishHead | PublishHeads, run: Run, payloads: list[bytes]
) -> tuple[PublishHead | PublishHeads, list[bytes]]:
    """Remove messages from a run whose packets are too large, and which become dead letters [MQTT-3.1.2-25]."""
    sizes = head.sizes(payloads)
    if too_large(max(sizes), port.codec) is None:
        return head, payloads
    fitting: list[int] = []
    for at, (message, size) in enumerate(zip(run.messages, sizes, strict=True)):
        why = too_large(size, port.codec)
        if why is None:
            fitting.append(at)
        else:
            port.unsendable.add(consumer, message, why)
    run.messages = [run.messages[at] for at in fitting]
    return head.only(fitting) if fitting else head, [payloads[at] for at in fitting]
