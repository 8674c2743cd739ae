"""What a session has sent with QoS 1 or 2 and its client has not answered, over one connection after the other.

Three books are kept in step: the table of packet identifiers (`Outgoing`), the journal, and the engine's deliveries.
For a session that lasts, identifier and message are in the journal before the PUBLISH leaves (INFLIGHT), and PUBREC is
before PUBREL leaves (RELEASED, and the message is consumed): after a crash each goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from broker.engine import Consumer, Engine, Queue, StoredSession, redelivery
from broker.engine.model.errors import UnknownDelivery
from broker.engine.model.message import Message
from broker.sessions.mqtt.port import Port, Publishing
from broker.sessions.mqtt.render import published_qos
from broker.sessions.mqtt.subscription import Subscription
from protocols.mqtt.codes import FAILURE, PacketType
from protocols.mqtt.inflight import Acknowledged, Outgoing, PacketIds, Sent
from protocols.mqtt.packets import Ack

#: Messages that the engine may hand over at a time while bytes in flight are limited.
FEW: Final = 64

#: Where there are none: nothing is ever added to it, and a set for each connection takes 216 bytes.
_NO_IDS: Final[set[int]] = set()

#: What a session knows a message in flight by.
Flying = tuple[Subscription, Message]

_SUBSCRIPTION: Final = itemgetter(0)


class InFlight:
    """Those of one session.  `stored`: its record, if packet identifiers are to be journalled.

    `bytes_max`: of payloads, -1: no limit; one more may go while it is not reached.
    """

    __slots__ = ("_answered", "_bytes", "_engine", "_unsent", "bytes_max", "outgoing", "stored")

    def __init__(self, engine: Engine) -> None:
        self.outgoing: Outgoing[Flying] = Outgoing(PacketIds())
        self.stored: StoredSession | None = None
        self.bytes_max = -1
        self._engine = engine
        self._bytes = 0
        self._answered: Sequence[Flying] = ()  # what the client has, while that is being written down
        self._unsent = _NO_IDS  # packet identifiers whose PUBLISH has never left

    def __iter__(self) -> Iterator[tuple[int, Sent, Subscription, Message]]:
        """Those whose messages the client does not have yet, in the order of sending."""
        return ((packet_id, state, *flying) for packet_id, state, flying in self.outgoing if flying is not None)

    def current(self) -> Iterator[tuple[int, Queue, Message]]:
        """Packet identifier, queue and message of each that still has a queue."""
        return (
            (packet_id, subscription.attached.queue, message)
            for packet_id, _, subscription, message in self
            if subscription.attached is not None
        )

    # -- how many there may be -------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more messages the engine may deliver, if nothing waits."""
        if self.bytes_max < 0:
            return self.outgoing.quota
        return min(self.outgoing.quota, FEW) if self.open else 0

    @property
    def open(self) -> bool:
        """Whether one may be sent now."""
        return self.outgoing.quota > 0 and (self.bytes_max < 0 or self._bytes < self.bytes_max)

    def fitting(self, messages: Sequence[Message]) -> int:
        """How many of these messages may be sent now."""
        fitting = min(len(messages), self.outgoing.quota)
        if self.bytes_max >= 0:
            left = self.bytes_max - self._bytes
            for at, message in enumerate(messages[:fitting]):
                if left <= 0:
                    return at
                left -= len(message.body)
        return fitting

    def connected(self, receive_maximum: int, bytes_max: int) -> None:
        """A connection begins, with limits of its own: all that is in flight is to be sent again."""
        self.bytes_max = bytes_max
        if bytes_max >= 0:
            self._bytes = sum([len(message.body) for _, _, _, message in self])
        self.outgoing.connected(receive_maximum)

    # -- on their way ----------------------------------------------------------------------------------------------

    def send(
        self, port: Port, subscription: Subscription, consumer: Consumer, qos: int, messages: list[Message]
    ) -> tuple[int, list[int]]:
        """Messages, as many as are `fitting`, are on their way: what must be durable first, and packet identifiers."""
        ids = self.outgoing.send([(subscription, message) for message in messages], qos)
        if self.bytes_max >= 0:
            self._bytes += sum([len(message.body) for message in messages])
        if self.stored is None:
            return 0, ids
        return self._engine.sessions.in_flight.sending(self.stored, consumer.queue, messages, ids, port), ids

    def unsent(self, packet: Publishing) -> None:
        """What waited for the journal when the connection was lost has never left."""
        if self._unsent:
            self._unsent.update(packet[2])
        else:
            self._unsent = set(packet[2])

    def leaves(self, packet_id: int) -> bool:
        """A message is sent again; whether it had left before."""
        before = packet_id not in self._unsent
        self._unsent.discard(packet_id)
        return before

    # -- what the client answers -----------------------------------------------------------------------------------

    def acknowledge(self, ack: Ack) -> Acknowledged[Flying]:
        """PUBACK, PUBREC or PUBCOMP came: messages are consumed, or given out of hand if it tells of a failure.

        Raises MqttError for one that does not fit what was sent.
        """
        failed = ack.reason_code >= FAILURE
        outcome = self.outgoing.acknowledge(ack.type, ack.packet_ids, failed=failed)
        settled, stored = outcome.settled, self.stored
        self._landed([message for _, message in settled])
        if ack.type is PacketType.PUBCOMP:
            if stored is not None:
                self._engine.sessions.completed(stored, list(ack.packet_ids), sent=True)
        elif failed:
            self._returned([message for _, message in settled], ack.packet_ids)
        elif settled:
            self._answered = settled
            if ack.type is PacketType.PUBREC and stored is not None:
                self._engine.sessions.released(stored, outcome.release)
            self._settle(settled)
            self._answered = ()
        return outcome

    def _settle(self, settled: Sequence[Flying]) -> None:
        """The client has these."""
        for subscription, run in groupby(settled, _SUBSCRIPTION):
            self._consumed(subscription, [message.id for _, message in run])

    def _consumed(self, subscription: Subscription, ids: list[int]) -> None:
        """The client has these messages of a subscription."""
        consumers, consumer = self._engine.consumers, subscription.attached
        if consumer is None:
            return  # its queue is gone, and the messages with it
        try:
            consumers.acknowledge_run(consumer, ids)
        except UnknownDelivery:
            for id in ids:
                if id in consumer.unacked:
                    consumers.acknowledge(consumer, id)

    def recover(self) -> set[tuple[Consumer | None, int]]:
        """The session failed, maybe while it wrote down what the client has; whose deliveries are in flight."""
        answered, self._answered = self._answered, ()
        self._settle(answered)
        return {(subscription.consumer, message.id) for _, _, subscription, message in self}

    # -- in flight no more -----------------------------------------------------------------------------------------

    def _landed(self, messages: Iterable[Message]) -> None:
        if self.bytes_max >= 0:
            self._bytes -= sum([len(message.body) for message in messages])

    def _returned(self, messages: list[Message], packet_ids: Sequence[int]) -> None:
        if self.stored is not None and messages:
            self._engine.sessions.in_flight.returned(self.stored, messages, list(packet_ids))

    def give_up(self, state: Sent, found: Mapping[int, Message]) -> None:
        """These, by packet identifier, all in one state, are in flight no more, and the client does not have them."""
        answer = PacketType.PUBACK if state is Sent.AT_LEAST_ONCE else PacketType.PUBREC
        self.outgoing.acknowledge(answer, list(found), failed=True)
        self._landed(found.values())
        self._returned(list(found.values()), list(found))

    def recall(self, consumer: Consumer, wanted: Sent) -> list[Message]:
        """Give up the consumer's packets in a state.

        Returns the messages of those that had left; those that waited for the journal are back on the queue.
        """
        found = {
            packet_id: message
            for packet_id, state, subscription, message in self
            if state is wanted and subscription.consumer is consumer
        }
        if found:
            self.give_up(wanted, found)
            never_left = [found.pop(packet_id) for packet_id in list(found) if not self.leaves(packet_id)]
            self._engine.consumers.withdraw(consumer, never_left)
        return list(found.values())

    def give_back_at_least_once(self, consumer: Consumer) -> None:
        """What is in flight with QoS 1 goes back to the queue, for other clients (4.8.2)."""
        for message in self.recall(consumer, Sent.AT_LEAST_ONCE):
            if message.id in consumer.unacked:
                self._engine.consumers.give_back(consumer, message.id, redelivery.INTERRUPTED)

    def consume_exactly_once(self, consumer: Consumer) -> None:
        """What is in flight with QoS 2 is no other client's [MQTT-4.8.2-5]; what never left is."""
        for packet_id, state, subscription, message in self:
            if state is not Sent.EXACTLY_ONCE or subscription.consumer is not consumer:
                continue
            if packet_id in self._unsent:
                self._engine.consumers.withdraw(consumer, [message])
            elif message.id in consumer.unacked:
                self._engine.consumers.acknowledge(consumer, message.id)

    def forget_released(self) -> None:
        """The receiver has lost its session: it does not answer PUBREL any more, whose messages it has had."""
        done = self.outgoing.forget_released()
        if self.stored is not None:
            self._engine.sessions.completed(self.stored, done, sent=True)

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self, stored: StoredSession, subscriptions: Mapping[Consumer, Subscription]) -> None:
        """Take over what was in flight before a restart, in its order; what is no longer there is done."""
        consumers = {consumer.queue: consumer for consumer in subscriptions}
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
                subscription = subscriptions[consumers[queue]]
                once = min(published_qos(message), subscription.qos) == 2
                state = Sent.EXACTLY_ONCE if once else Sent.AT_LEAST_ONCE
                self.outgoing.restore(packet_id, state, (subscription, message))
