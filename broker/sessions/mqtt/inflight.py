"""The messages that a session has sent with QoS 1 or 2 without a final answer, across its connections.

Three records are kept in step: the table of packet identifiers (`Outgoing`), the journal, and the engine's deliveries.
For a stored session, identifier and message are in the journal before PUBLISH is sent (INFLIGHT), and PUBREC is before
PUBREL is sent (RELEASED, and the message is consumed): after a crash each exchange continues where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from broker.engine import Consumer, Engine, Outcome, Outcomes, Queue, StoredSession, redelivery
from broker.engine.model.errors import UnknownDelivery
from broker.engine.model.message import Message
from broker.sessions.mqtt.port import Port, Publishing
from broker.sessions.mqtt.render import published_qos
from broker.sessions.mqtt.subscription import Subscription
from protocols.mqtt.codes import FAILURE, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.inflight import Acknowledged, Outgoing, PacketIds, Sent
from protocols.mqtt.packets import Ack

#: How many messages the engine may deliver at a time while bytes in flight are limited.
FEW: Final = 64

#: A shared empty set, never added to: a set for each connection would take 216 bytes.
_NO_IDS: Final[set[int]] = set()

#: A message in flight, and the subscription that it was sent for.
Flying = tuple[Subscription, Message]

_SUBSCRIPTION: Final = itemgetter(0)


class InFlight:
    """The messages in flight of one session.  `stored`: its record, if packet identifiers are to be journalled.

    `bytes_max`: of payloads, -1: no limit; one more message may be sent while it is not reached.
    """

    __slots__ = ("_answered", "_bytes", "_engine", "_unsent", "bytes_max", "outgoing", "stored")

    def __init__(self, engine: Engine) -> None:
        self.outgoing: Outgoing[Flying] = Outgoing(PacketIds())
        self.stored: StoredSession | None = None
        self.bytes_max = -1
        self._engine = engine
        self._bytes = 0
        self._answered: Sequence[Flying] = ()  # messages that the client has, while that is being recorded
        self._unsent = _NO_IDS  # packet identifiers whose PUBLISH was never sent

    def __iter__(self) -> Iterator[tuple[int, Sent, Subscription, Message]]:
        """Yield the messages that the client does not have yet, in the order of sending."""
        return ((packet_id, state, *flying) for packet_id, state, flying in self.outgoing if flying is not None)

    def current(self) -> Iterator[tuple[int, Queue, Message]]:
        """Yield packet identifier, queue and message of each that still has a queue."""
        return (
            (packet_id, subscription.attached.queue, message)
            for packet_id, _, subscription, message in self
            if subscription.attached is not None
        )

    @property
    def room(self) -> int:
        """How many more messages the engine may deliver, if none are parked."""
        if self.bytes_max < 0:
            return self.outgoing.quota
        return min(self.outgoing.quota, FEW) if self.open else 0

    @property
    def open(self) -> bool:
        """Whether a message may be sent now."""
        return self.outgoing.quota > 0 and (self.bytes_max < 0 or self._bytes < self.bytes_max)

    def fitting(self, messages: Sequence[Message]) -> int:
        """Return how many of these messages may be sent now."""
        fitting = min(len(messages), self.outgoing.quota)
        if self.bytes_max >= 0:
            left = self.bytes_max - self._bytes
            for at, message in enumerate(messages[:fitting]):
                if left <= 0:
                    return at
                left -= len(message.body)
        return fitting

    def connected(self, receive_maximum: int, bytes_max: int) -> None:
        """Begin a connection, with its limits: everything in flight is to be sent again."""
        self.bytes_max = bytes_max
        if bytes_max >= 0:
            self._bytes = sum([len(message.body) for _, _, _, message in self])
        self.outgoing.connected(receive_maximum)

    def send(
        self, port: Port, subscription: Subscription, consumer: Consumer, qos: int, messages: list[Message]
    ) -> tuple[int, list[int]]:
        """Record up to `fitting` messages as sent.  Returns the tick that must be durable first, and packet ids."""
        ids = self.outgoing.send([(subscription, message) for message in messages], qos)
        if self.bytes_max >= 0:
            self._bytes += sum([len(message.body) for message in messages])
        if self.stored is None:
            return 0, ids
        return self._engine.sessions.in_flight.sending(self.stored, consumer.queue, messages, ids, port), ids

    def unsent(self, packet: Publishing) -> None:
        """Note that a packet was never sent: it waited for the journal when the connection was lost."""
        if isinstance(packet[0], PublishHead) and packet[0].dup:
            return  # over an earlier connection it was
        if self._unsent:
            self._unsent.update(packet[2])
        else:
            self._unsent = set(packet[2])

    def leaves(self, packet_id: int) -> bool:
        """Note that a message is sent again.  Returns whether it had been sent before."""
        before = packet_id not in self._unsent
        self._unsent.discard(packet_id)
        return before

    def acknowledge(self, ack: Ack) -> Acknowledged[Flying]:
        """Process a PUBACK, PUBREC or PUBCOMP: consume its messages, or give them up if it states a failure.

        Raises MqttError if it does not match what was sent.
        """
        failed = ack.reason_code >= FAILURE
        outcome = self.outgoing.acknowledge(ack.type, ack.packet_ids, failed=failed)
        settled, stored = outcome.settled, self.stored
        self._landed([message for _, message in settled])
        if ack.type is PacketType.PUBCOMP:
            if stored is not None:
                self._engine.sessions.packet_ids.completed(stored, list(ack.packet_ids), sent=True)
        elif failed:
            self._returned([message for _, message in settled], ack.packet_ids)
        elif settled:
            self._answered = settled
            if ack.type is PacketType.PUBREC and stored is not None:
                self._engine.sessions.packet_ids.released(stored, outcome.release)
            self._consume(settled)
            self._answered = ()
        return outcome

    def _consume(self, settled: Sequence[Flying]) -> None:
        """Consume messages that the client has."""
        for subscription, run in groupby(settled, _SUBSCRIPTION):
            self._consumed(subscription, [message.id for _, message in run])

    def _consumed(self, subscription: Subscription, ids: list[int]) -> None:
        """Consume messages of a subscription that the client has."""
        consumers, consumer = self._engine.consumers, subscription.attached
        if consumer is None:
            return  # its queue was deleted with the messages
        try:
            consumers.acknowledge_run(consumer, ids)
        except UnknownDelivery:
            for id in ids:
                if id in consumer.unacked:
                    consumers.acknowledge(consumer, id)

    def recover(self) -> set[tuple[Consumer | None, int]]:
        """Complete an interrupted `acknowledge` after a failure of the session.  Returns the deliveries in flight."""
        answered, self._answered = self._answered, ()
        self._consume(answered)
        return {(subscription.consumer, message.id) for _, _, subscription, message in self}

    def _landed(self, messages: Iterable[Message]) -> None:
        if self.bytes_max >= 0:
            self._bytes -= sum([len(message.body) for message in messages])

    def _returned(self, messages: list[Message], packet_ids: Sequence[int]) -> None:
        if self.stored is not None and messages:
            self._engine.sessions.in_flight.returned(self.stored, messages, list(packet_ids))

    def give_up(self, state: Sent, found: Mapping[int, Message]) -> None:
        """End the delivery of messages, by packet identifier, all in one state; the client does not have them."""
        answer = PacketType.PUBACK if state is Sent.AT_LEAST_ONCE else PacketType.PUBREC
        self.outgoing.acknowledge(answer, list(found), failed=True)
        self._landed(found.values())
        self._returned(list(found.values()), list(found))

    def apply_outcomes(self, wanted: Mapping[Consumer, Outcomes]) -> None:
        """Do with the messages in flight of each consumer what the table of `endings` says."""
        found: dict[tuple[Consumer, Sent], dict[int, Message]] = {}
        if any(each is not Outcome.STAYS for outcomes in wanted.values() for each in outcomes[:2]):
            for packet_id, state, subscription, message in self:
                consumer = subscription.consumer
                if consumer is not None and consumer in wanted:
                    found.setdefault((consumer, state), {})[packet_id] = message
        for (consumer, state), messages in found.items():
            at_least_once, exactly_once, _ = wanted[consumer]
            self._apply_outcome(
                consumer, state, messages, at_least_once if state is Sent.AT_LEAST_ONCE else exactly_once
            )

    def _apply_outcome(self, consumer: Consumer, state: Sent, sent: dict[int, Message], outcome: Outcome) -> None:
        """The same for messages of one consumer, all sent with one QoS."""
        if outcome is Outcome.STAYS or (outcome is Outcome.DELETED and self.stored is None):
            return  # in the second case the session is ending, and its packet identifiers with it
        unsent = {packet_id: sent.pop(packet_id) for packet_id in self._unsent.intersection(sent)}
        if unsent:
            self.give_up(state, unsent)
            self._unsent.difference_update(unsent)
            self._engine.consumers.withdraw(consumer, unsent.values())
        if not sent:
            return
        if state is Sent.EXACTLY_ONCE:
            self._part_with(sent)
        else:
            self.give_up(state, sent)
        if outcome is Outcome.RETURNED:
            ids = [message.id for message in sent.values()]
            self._engine.consumers.return_run(consumer, ids, redelivery.INTERRUPTED)
        elif outcome is Outcome.CONSUMED:
            held = [message.id for message in sent.values() if message.id in consumer.unacked]
            self._engine.consumers.acknowledge_run(consumer, held)

    def fail_oldest(self, waiting: Collection[int]) -> None:
        """Count a failed delivery of the oldest message that a lost connection had carried, which may have caused it.

        `waiting`: packet identifiers that were to be sent, and were not.  A message that has failed too often is dead:
        its packet identifier is free, with QoS 2 once the client has answered PUBREL, as it may have the message.
        """
        for packet_id, state, subscription, message in self:
            consumer = subscription.attached
            if packet_id in self._unsent or packet_id in waiting:
                return  # nor were those behind it
            if consumer is None or message.id not in consumer.unacked:
                continue
            if not self._engine.consumers.dies_next(consumer, message):
                self._engine.consumers.count_failure(consumer, message)
                return
            if state is Sent.EXACTLY_ONCE:
                self._part_with({packet_id: message})
            else:
                self.give_up(state, {packet_id: message})
            self._engine.consumers.give_back(consumer, message.id, redelivery.DISCONNECTED)
            return

    def _part_with(self, found: Mapping[int, Message]) -> None:
        """Go on to PUBREL with messages in flight with QoS 2 that are no longer the client's.

        The client may have them: it would take a new message with such a packet identifier for the old one.
        """
        self.outgoing.acknowledge(PacketType.PUBREC, list(found))
        self._landed(found.values())
        self._returned(list(found.values()), list(found))
        if self.stored is not None:
            self._engine.sessions.packet_ids.released(self.stored, list(found))

    def forget_released(self) -> None:
        """Forget released messages: the receiver has lost its session, and will not answer their PUBREL."""
        done = self.outgoing.forget_released()
        if self.stored is not None:
            self._engine.sessions.packet_ids.completed(self.stored, done, sent=True)

    def restore(self, stored: StoredSession, subscriptions: Mapping[Consumer, Subscription]) -> None:
        """Take over the messages in flight before a restart, in order, except those that no longer exist.

        Those of a queue that the client may no longer consume stay there, as after any loss of that right.
        """
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
        left: dict[int, Message] = {}
        for packet_id, (queue, message) in stored.inflight.items():
            if (queue.id, message.id) in taken:
                subscription = subscriptions[consumers[queue]].of(message)
                once = min(published_qos(message), subscription.qos) == 2
                state = Sent.EXACTLY_ONCE if once else Sent.AT_LEAST_ONCE
                self.outgoing.restore(packet_id, state, (subscription, message))
            else:
                left[packet_id] = message
        self._leave_behind(left)

    def _leave_behind(self, left: Mapping[int, Message]) -> None:
        """Note that messages are not in flight any more, which stay on a queue that the client may not consume."""
        self._returned(list(left.values()), list(left))
        released = [packet_id for packet_id, message in left.items() if published_qos(message) == 2]
        for packet_id in released:
            self.outgoing.restore(packet_id, Sent.RELEASED, None)
        if released and self.stored is not None:
            self._engine.sessions.packet_ids.released(self.stored, released)
