"""What a session sends: messages of its subscriptions, acknowledged or not, over one connection after the other.

    engine --deliver--> at once, as far as the client's Receive Maximum goes --> codec
                        the rest is parked, and the engine is asked for no more
    codec --PUBACK, PUBREC, PUBCOMP--> settled --> parked messages, then credit for the engine

A message of QoS 1 or 2 has a packet identifier from `Outgoing`, which outlives connections.  For a session that does
too, identifier and message are in the journal before the PUBLISH leaves (INFLIGHT), and PUBREC is before PUBREL leaves
(RELEASED, and the message is consumed): after a crash each goes on where it was.  Messages of QoS 0 count as consumed
once the operating system has them.

Consumers of QoS 1 and 2 have counted credit: what the quota leaves.  When several use the same quota up, what is over
is parked, one run at most, since everybody is paused then.  Where bytes in flight are limited too, the engine is asked
for a few messages at a time, as nobody knows how large they are; one more may go while the limit is not reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from broker.engine import AckMode, Consumer, Engine, StoredSession, redelivery
from broker.engine.model.errors import UnknownDelivery
from broker.engine.model.message import Message, size_of
from broker.sessions.convert import ConversionError, unsaid
from broker.sessions.mqtt.large import LargePayload, refused
from broker.sessions.mqtt.port import Port, Publishing, keep_fitting
from broker.sessions.mqtt.render import published_qos
from broker.sessions.mqtt.subscription import Subscription
from broker.sessions.mqtt.terms import reason_words
from protocols.mqtt.codes import FAILURE, PacketType, ReasonCode
from protocols.mqtt.connection import PACKET_BYTES_MAX
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.inflight import Outgoing, PacketIds, Sent
from protocols.mqtt.packets import Ack

_ID: Final = attrgetter("id")

#: Messages that the engine may hand over at a time while bytes in flight are limited.
FEW: Final = 64

#: Where there are none: nothing is ever added to it, and a set for each connection takes 216 bytes.
_NO_IDS: Final[set[int]] = set()

#: What a session knows a message in flight by.
Flying = tuple[Subscription, Message]


class Deliveries:
    """The sending side of a session.  It is the sink of all its consumers; `port` is None while it has no connection.

    `stored`: the session's record, if packet identifiers are to be journalled.
    """

    __slots__ = (
        "_answered",
        "_blocked",
        "_bytes_in_flight",
        "_engine",
        "_parked",
        "_parked_messages",
        "_quota_exhausted",
        "_subscriptions",
        "_unflushed",
        "_unsent",
        "_wants_credit",
        "bytes_in_flight_max",
        "outgoing",
        "port",
        "stored",
    )

    def __init__(self, engine: Engine) -> None:
        self.port: Port | None = None
        self.stored: StoredSession | None = None
        self._blocked = False  # the operating system does not take more
        self.outgoing: Outgoing[Flying] = Outgoing(PacketIds())
        self.bytes_in_flight_max = -1  # of payloads; -1: no limit
        self._engine = engine
        self._bytes_in_flight = 0
        self._answered: Sequence[Flying] = ()  # what the client has, while that is being written down
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._parked: list[tuple[Consumer, list[Message]]] = []  # few: see above
        self._parked_messages = 0
        self._wants_credit: dict[Consumer, None] = {}  # counted consumers that have used credit
        self._quota_exhausted = False  # the quota is used up, and counted consumers are paused
        self._unflushed: dict[Consumer, list[int]] | None = None  # what counts as consumed once it is flushed
        self._unsent = _NO_IDS  # packet identifiers whose PUBLISH has never left

    # -- consumers -------------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription, consumer: Consumer) -> None:
        """A subscription's consumer is attached."""
        self._subscriptions[consumer] = subscription
        self._engine.consumers.pause(consumer)
        if self.port is not None:
            self._refresh(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone.  What is in flight stays in flight: it is delivered to the end [MQTT-3.10.4-3]."""
        self._subscriptions.pop(consumer, None)
        self._wants_credit.pop(consumer, None)
        if self._unflushed is not None:
            self._unflushed.pop(consumer, None)
        self._unpark(consumer)

    def _unpark(self, consumer: Consumer) -> None:
        self._parked = [(other, run) for other, run in self._parked if other is not consumer]
        self._parked_messages = sum([len(run) for _, run in self._parked])

    def retire(self, consumer: Consumer) -> None:
        """A consumer gets no more messages, and stays until those in flight are answered."""
        self._engine.consumers.pause(consumer)
        self._wants_credit.pop(consumer, None)
        self._subscriptions.pop(consumer, None)

    def give_back_parked(self, consumer: Consumer) -> None:
        """What was never sent goes back to the queue."""
        for parked, messages in self._parked:
            if parked is consumer:
                self._engine.consumers.withdraw(consumer, messages)
        self._unpark(consumer)

    def give_back_at_least_once(self, consumer: Consumer) -> None:
        """What is in flight with QoS 1 goes back to the queue, for other clients (4.8.2), and what is parked too."""
        self.give_back_parked(consumer)
        for message in self._recall(consumer, Sent.AT_LEAST_ONCE):
            if message.id in consumer.unacked:
                self._engine.consumers.give_back(consumer, message.id, redelivery.INTERRUPTED)

    def forget(self, consumer: Consumer) -> None:
        """Nothing of this consumer is in flight any more: its messages go back when it is closed."""
        self.give_back_parked(consumer)
        self._recall(consumer, Sent.AT_LEAST_ONCE)
        self._recall(consumer, Sent.EXACTLY_ONCE)

    def _recall(self, consumer: Consumer, wanted: Sent) -> list[Message]:
        """The consumer's packets in this state are in flight no more.

        Returns the messages of those that had left; those that waited for the journal are back on the queue.
        """
        found = {
            packet_id: flying[1]
            for packet_id, state, flying in self.outgoing
            if state is wanted and flying is not None and flying[0].consumer is consumer
        }
        if not found:
            return []
        answer = PacketType.PUBACK if wanted is Sent.AT_LEAST_ONCE else PacketType.PUBREC
        self.outgoing.acknowledge(answer, list(found), failed=True)
        self._landed(found.values())
        if self.stored is not None:
            self._engine.sessions.returned(self.stored, list(found.values()), list(found))
        never_left = [packet_id for packet_id in found if packet_id in self._unsent]
        self._unsent.difference_update(never_left)
        self._engine.consumers.withdraw(consumer, [found.pop(packet_id) for packet_id in never_left])
        return list(found.values())

    def consume_exactly_once(self, consumer: Consumer) -> None:
        """What is in flight with QoS 2 is no other client's [MQTT-4.8.2-5]; what never left is."""
        for packet_id, state, flying in self.outgoing:
            if state is not Sent.EXACTLY_ONCE or flying is None or flying[0].consumer is not consumer:
                continue
            if packet_id in self._unsent:
                self._engine.consumers.withdraw(consumer, [flying[1]])
            elif flying[1].id in consumer.unacked:
                self._engine.consumers.acknowledge(consumer, flying[1].id)

    def restore(self, stored: StoredSession) -> None:
        """Take over what was in flight before a restart, in its order; what is no longer there is done."""
        consumers = {consumer.queue: consumer for consumer in self._subscriptions}
        by_consumer: dict[Consumer, list[Message]] = {}
        for queue, message in stored.inflight.values():
            if queue in consumers:
                by_consumer.setdefault(consumers[queue], []).append(message)
        taken = {
            (consumer.queue.id, message.id)
            for consumer, messages in by_consumer.items()
            for message in self._engine.consumers.take(consumer, messages)
        }
        for packet_id in stored.released:
            self.outgoing.restore(packet_id, Sent.RELEASED, None)
        for packet_id, (queue, message) in stored.inflight.items():
            if (queue.id, message.id) in taken:
                subscription = self._subscriptions[consumers[queue]]
                once = min(published_qos(message), subscription.qos) == 2
                state = Sent.EXACTLY_ONCE if once else Sent.AT_LEAST_ONCE
                self.outgoing.restore(packet_id, state, (subscription, message))

    def _refresh(self, consumer: Consumer) -> None:
        """Whether a consumer gets messages now, and how many."""
        if self.port is None or self._blocked or (consumer.counted and self._quota_exhausted):
            self._engine.consumers.pause(consumer)
            return
        if consumer.counted:
            self._engine.consumers.grant(consumer, max(self._room - consumer.held, 0))
        if consumer.paused:
            self._engine.consumers.resume(consumer)

    @property
    def _room(self) -> int:
        """How many messages of QoS 1 and 2 the engine may still deliver."""
        if self.bytes_in_flight_max < 0:
            return self.outgoing.quota - self._parked_messages
        return min(self.outgoing.quota, FEW) - self._parked_messages if self._open else 0

    @property
    def _open(self) -> bool:
        """Whether a message of QoS 1 or 2 may be sent now."""
        most = self.bytes_in_flight_max
        return self.outgoing.quota > 0 and (most < 0 or self._bytes_in_flight < most)

    def _fitting(self, messages: list[Message]) -> int:
        """How many of these messages of QoS 1 or 2 may be sent now."""
        fitting = min(len(messages), self.outgoing.quota)
        if self.bytes_in_flight_max >= 0:
            left = self.bytes_in_flight_max - self._bytes_in_flight
            for at, message in enumerate(messages[:fitting]):
                if left <= 0:
                    return at
                left -= len(message.body)
        return fitting

    def _landed(self, messages: Iterable[Message]) -> None:
        """These are in flight no more."""
        if self.bytes_in_flight_max >= 0:
            self._bytes_in_flight -= sum([len(message.body) for message in messages])

    def refresh(self) -> None:
        """Look at all consumers again."""
        self._quota_exhausted = self._room <= 0
        self._wants_credit.clear()
        for consumer in self._subscriptions:
            self._refresh(consumer)

    # -- connections -----------------------------------------------------------------------------------------------

    def connect(self, port: Port, receive_maximum: int, bytes_in_flight_max: int = -1) -> None:
        """A connection begins: first what was in flight is sent again, then everything else goes on."""
        self.port = port
        self.bytes_in_flight_max = bytes_in_flight_max
        if bytes_in_flight_max >= 0:
            self._bytes_in_flight = sum([len(flying[1].body) for _, _, flying in self.outgoing if flying is not None])
        self._blocked = False
        self.outgoing.connected(receive_maximum)
        self.proceed()
        self.refresh()

    def disconnect(self) -> None:
        """The connection is gone: nobody gets anything, and what was sent with QoS 0 was sent."""
        self.flushed()
        self.port = None
        for consumer in self._subscriptions:
            self._engine.consumers.pause(consumer)

    def forget_released(self) -> None:
        """The receiver has lost its session: it does not answer PUBREL any more, whose messages it has had."""
        done = self.outgoing.forget_released()
        if self.stored is not None:
            self._engine.sessions.completed(self.stored, done, sent=True)

    def unsent(self, packet: Ack | Publishing) -> None:
        """What waited for the journal when the connection was lost has never left."""
        if isinstance(packet, tuple):
            if self._unsent:
                self._unsent.update(packet[2])
            else:
                self._unsent = set(packet[2])

    @property
    def transport(self) -> object:
        """None while the session has no connection."""
        return None if self.port is None else self.port.transport

    def recover(self) -> None:
        """The session failed, maybe while it was handed messages: those that no book here has go back to their queues.

        The last `held` ones of a consumer still wait for the journal, and have not been handed over.
        """
        answered, self._answered = self._answered, ()
        self._settle(answered)
        booked = {(flying[0].consumer, flying[1].id) for _, _, flying in self.outgoing if flying is not None}
        booked |= {(consumer, message.id) for consumer, run in self._parked for message in run}
        for consumer in self._subscriptions:
            if consumer.closed:
                continue
            handed = list(consumer.unacked)[: len(consumer.unacked) - consumer.held]
            for id in handed:
                if (consumer, id) not in booked and id in consumer.unacked:
                    self._engine.consumers.give_back(consumer, id, redelivery.LOST)

    # -- sending ---------------------------------------------------------------------------------------------------

    def records(self, consumer: Consumer) -> bool:
        """Those that go with QoS 1 or 2 to a session that is stored, under packet identifiers (`_number`)."""
        subscription = self._subscriptions.get(consumer)
        return self.stored is not None and subscription is not None and subscription.qos > 0

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        subscription = self._subscriptions.get(consumer)
        if subscription is None:
            return  # unsubscribed while the journal had these (strict mode): they stay with the consumer, which ends
        if consumer.counted:
            self._wants_credit[consumer] = None
            if self.port is None or self._parked:
                self._park(consumer, messages)
                return
        self._send(subscription, consumer, messages)

    def _park(self, consumer: Consumer, messages: list[Message]) -> None:
        self._parked.append((consumer, messages))
        self._parked_messages += len(messages)

    def _send(self, subscription: Subscription, consumer: Consumer, messages: list[Message]) -> None:
        """Send as many of these as the quota allows, and park the rest."""
        port = self.port
        assert port is not None, "without a connection messages are parked"
        limited = port.codec.packet_bytes_max_out < PACKET_BYTES_MAX
        done = 0
        for run in port.renderer.runs(subscription, messages, self._engine.now, mixing=port.codec.mixing):
            head, count, payloads = run.head, len(run.messages), run.payloads
            if head is None:
                assert run.why is not None
                for message in run.messages:
                    port.unsendable.add(consumer, message, run.why)
            elif isinstance(payloads, LargePayload) and isinstance(head, PublishHead):
                if not self._send_large(port, subscription, consumer, head, payloads):
                    break
            else:
                assert isinstance(payloads, list), "a large payload goes alone"
                fitting = self._fitting(run.messages) if head.qos else count
                if not fitting:
                    break
                over = fitting < count
                if over:
                    count = fitting
                    del run.messages[count:], payloads[count:]
                    head = head.up_to(count)
                if limited and run.messages and isinstance(head, PublishHead):
                    payloads = keep_fitting(port, consumer, head, run, payloads)
                port.spend(len(run.messages), size_of(run.messages))
                if not head.qos:
                    port.codec.send_publish(head, payloads)
                    self._sent(consumer, run.messages)
                elif run.messages:
                    ticket, ids = self._number(port, subscription, consumer, head.qos, run.messages)
                    port.emit(ticket, (head, payloads, ids))
                if over:
                    done += count
                    break
            done += count
        if done < len(messages):  # what is parked already came later
            self._parked.insert(0, (consumer, messages[done:]))
            self._parked_messages += len(messages) - done
        if not self._quota_exhausted and self._room <= 0:
            self._starve()

    def _sent(self, consumer: Consumer, run: list[Message]) -> None:
        """These count as consumed once they are flushed."""
        if self._unflushed is None:
            self._unflushed = {}
        ids = self._unflushed.setdefault(consumer, [])
        if consumer.ack_mode is not AckMode.AUTO:
            ids += map(_ID, run)

    def _send_large(
        self, port: Port, subscription: Subscription, consumer: Consumer, head: PublishHead, payload: LargePayload
    ) -> bool:
        """Send a message whose payload is read on its way; False: the quota is used up."""
        if head.qos and not self._open:
            return False
        message = payload.message
        payload.consumer = consumer
        why = refused(head, payload, port.codec)
        if why:
            port.unsendable.add(consumer, message, why)
            return True
        port.spend(1, message.size)
        ticket, ids = self._number(port, subscription, consumer, head.qos, [message]) if head.qos else (0, [])
        port.emit(ticket, (head, payload, ids))
        if not head.qos:
            self._sent(consumer, [message])
        return True

    def _number(
        self, port: Port, subscription: Subscription, consumer: Consumer, qos: int, messages: list[Message]
    ) -> tuple[int, list[int]]:
        """Messages of QoS 1 or 2, at most the quota, are on their way: what must be durable first, and packet ids."""
        ids = self.outgoing.send([(subscription, message) for message in messages], qos)
        if self.bytes_in_flight_max >= 0:
            self._bytes_in_flight += sum([len(message.body) for message in messages])
        if self.stored is None:
            return 0, ids
        return self._engine.sessions.sending(self.stored, consumer.queue, messages, ids, port), ids

    def _starve(self) -> None:
        """The quota is used up: the engine keeps what it has."""
        self._quota_exhausted = True
        for consumer in self._subscriptions:
            if consumer.counted:
                self._engine.consumers.pause(consumer)

    # -- what the client answers -----------------------------------------------------------------------------------

    def acknowledge(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP.  Raises MqttError for one that does not fit what was sent."""
        failed = ack.reason_code >= FAILURE
        outcome = self.outgoing.acknowledge(ack.type, ack.packet_ids, failed=failed)
        self._landed([message for _, message in outcome.settled])
        stored, port = self.stored, self.port
        assert port is not None, "somebody has sent this"
        if failed and ack.type is not PacketType.PUBCOMP:
            self._refused(port, ack, outcome.settled)
        elif outcome.settled:
            self._answered = outcome.settled
            if ack.type is PacketType.PUBREC and stored is not None:
                self._engine.sessions.released(stored, outcome.release)
            self._settle(outcome.settled)
            self._answered = ()
        if ack.type is PacketType.PUBREC:
            if outcome.release:
                ticket = 0 if stored is None else self._engine.ticks.confirmation(port)
                port.emit(ticket, Ack(PacketType.PUBREL, outcome.release))
            if outcome.unknown and not failed:
                port.emit(0, Ack(PacketType.PUBREL, outcome.unknown, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
        elif ack.type is PacketType.PUBCOMP and stored is not None:
            self._engine.sessions.completed(stored, list(ack.packet_ids), sent=True)
        self.proceed()

    def _settle(self, settled: Sequence[Flying]) -> None:
        """The client has these."""
        run: Subscription | None = None
        ids: list[int] = []
        for subscription, message in settled:
            if subscription is not run:
                if run is not None:
                    self._consumed(run, ids)
                run, ids = subscription, []
            ids.append(message.id)
        if run is not None:
            self._consumed(run, ids)

    def _consumed(self, subscription: Subscription, ids: list[int]) -> None:
        """The client has these messages of a subscription."""
        engine, consumer = self._engine, subscription.attached
        if consumer is None:
            return  # its queue is gone, and the messages with it
        try:
            engine.consumers.acknowledge_run(consumer, ids)
        except UnknownDelivery:
            for id in ids:
                if id in consumer.unacked:
                    engine.consumers.acknowledge(consumer, id)

    def _refused(self, port: Port, ack: Ack, settled: Sequence[Flying]) -> None:
        """The client refuses these for good: dead letters, and never sent to anybody again ([MQTT-4.4.0-2], 4.8.2)."""
        if self.stored is not None and settled:
            self._engine.sessions.returned(self.stored, [m for _, m in settled], list(ack.packet_ids))
        text = reason_words(ack.reason_code, ack.properties)
        for subscription, message in settled:
            consumer = subscription.attached
            if consumer is not None and message.id in consumer.unacked:
                port.refused(consumer, message, text)

    # -- going on --------------------------------------------------------------------------------------------------

    def proceed(self) -> None:
        """What there is room for now: what is to be sent again, what is parked, and then what the engine has."""
        self._resend()
        while self._parked and self._open:
            consumer, messages = self._parked.pop(0)
            self._parked_messages -= len(messages)
            self._send(self._subscriptions[consumer], consumer, self._still_due(consumer, messages))
        room = self._room
        if room <= 0:
            return
        if self._quota_exhausted:
            self.refresh()
            return
        for consumer in [c for c in self._wants_credit if c.credit <= room // 2]:
            del self._wants_credit[consumer]
            if not consumer.closed:
                self._engine.consumers.grant(consumer, max(room - consumer.held, 0))

    def _still_due(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """The parked messages whose time is not over; the others expire on their queue [MQTT-3.3.2-5]."""
        now = self._engine.now
        over = [m for m in messages if 0 < m.header.expiration <= now]
        if not over:
            return messages
        self._engine.consumers.withdraw(consumer, over)
        return [m for m in messages if not 0 < m.header.expiration <= now]

    def _resend(self) -> None:
        """Send again what an earlier connection left unanswered, in its order."""
        again = self.outgoing.resend()
        port = self.port
        if not again or port is None:
            return
        ticket = 0 if self.stored is None else self._engine.ticks.confirmation(port)
        released: list[int] = []
        for packet_id, state, flying in again:
            if state is Sent.RELEASED:
                released.append(packet_id)
                continue
            if released:
                port.emit(ticket, Ack(PacketType.PUBREL, released))
                released = []
            assert flying is not None, "only a released one has no message"
            self._send_again(port, ticket, packet_id, state, flying)
        if released:
            port.emit(ticket, Ack(PacketType.PUBREL, released))

    def _send_again(self, port: Port, ticket: int, packet_id: int, state: Sent, flying: Flying) -> None:
        subscription, message = flying
        first = packet_id in self._unsent
        self._unsent.discard(packet_id)
        qos = 1 if state is Sent.AT_LEAST_ONCE else 2
        try:
            head, payload = port.renderer.again(subscription, message, self._engine.now, qos, dup=not first)
        except Exception as error:  # of ours, too
            self._give_up(port, packet_id, state, flying, unsaid(error))
            return
        if isinstance(payload, LargePayload):
            payload.consumer = subscription.consumer
        why = refused(head, payload, port.codec)
        if why:  # this connection takes less than the one before
            self._give_up(port, packet_id, state, flying, why)
        else:
            port.emit(ticket, (head, payload, [packet_id]))

    def _give_up(self, port: Port, packet_id: int, state: Sent, flying: Flying, why: ConversionError) -> None:
        """A message in flight can never be sent: a dead letter."""
        subscription, message = flying
        answer = PacketType.PUBACK if state is Sent.AT_LEAST_ONCE else PacketType.PUBREC
        self.outgoing.acknowledge(answer, [packet_id], failed=True)
        self._landed([message])
        if self.stored is not None:
            self._engine.sessions.returned(self.stored, [message], [packet_id])
        if subscription.consumer is not None:
            port.unsendable.add(subscription.consumer, message, why)

    def unreadable(self, payload: LargePayload, why: str) -> None:
        """A payload could not be read to its end."""
        assert self.port is not None, "somebody was reading it"
        for packet_id, state, flying in list(self.outgoing):
            if flying is not None and flying[1] is payload.message and flying[0].consumer is payload.consumer:
                self._give_up(self.port, packet_id, state, flying, ConversionError(why))
                return
        if payload.consumer is not None:
            self.port.unsendable.add(payload.consumer, payload.message, ConversionError(why))

    # -- the operating system --------------------------------------------------------------------------------------

    def flushed(self) -> None:
        """What was sent has left: messages of QoS 0 count as consumed."""
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
        if self.port is not None and self._wants_credit:
            self.proceed()

    def set_blocked(self, blocked: bool) -> None:
        """The operating system takes no more for now, or does again."""
        self._blocked = blocked
        self.refresh()

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """An operator deleted the queue; it is made again when the client comes back."""
        if consumer in self._subscriptions:
            self.remove(consumer)
            if self.port is not None:
                self.port.dismiss(reason)
