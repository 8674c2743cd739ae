"""What a session sends: messages of its subscriptions, acknowledged or not, over one connection after the other.

engine --deliver--> at once, as far as the client's Receive Maximum goes (`send`) --> codec
                    the rest is parked, and the engine is asked for no more (`credit`)
codec --PUBACK, PUBREC, PUBCOMP--> settled (`inflight`) --> parked messages, then credit for the engine
"""

from __future__ import annotations

from broker.engine import Consumer, Engine, StoredSession, redelivery
from broker.engine.model.message import Message
from broker.sessions.convert import ConversionError
from broker.sessions.mqtt.credit import Credit
from broker.sessions.mqtt.inflight import InFlight
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.send import Sender
from broker.sessions.mqtt.subscription import Subscription
from protocols.mqtt.errors import violation
from protocols.mqtt.inflight import Sent
from protocols.mqtt.packets import Ack


class Deliveries:
    """The sending side of a session: the sink of all its consumers.  `sender` is None while it has no connection."""

    __slots__ = ("_credit", "_engine", "_subscriptions", "in_flight", "sender")

    def __init__(self, engine: Engine, in_flight: InFlight) -> None:
        self.in_flight = in_flight
        self.sender: Sender | None = None
        self._engine = engine
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._credit = Credit(engine, in_flight, self._subscriptions)

    # -- consumers -------------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription, consumer: Consumer) -> None:
        """A subscription's consumer is attached."""
        self._subscriptions[consumer] = subscription
        self._engine.consumers.pause(consumer)
        self._credit.give(consumer)

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone.  What is in flight stays in flight: it is delivered to the end [MQTT-3.10.4-3]."""
        self._subscriptions.pop(consumer, None)
        self._credit.forget(consumer)
        self._credit.parked.take(consumer)
        if self.sender is not None:
            self.sender.forget(consumer)

    def retire(self, consumer: Consumer) -> None:
        """A consumer gets no more messages, and stays until those in flight are answered."""
        self._engine.consumers.pause(consumer)
        self._credit.forget(consumer)
        self._subscriptions.pop(consumer, None)

    def give_back_parked(self, consumer: Consumer) -> None:
        """What was never sent goes back to the queue."""
        self._engine.consumers.withdraw(consumer, self._credit.parked.take(consumer))

    def give_back_at_least_once(self, consumer: Consumer) -> None:
        """What is in flight with QoS 1 goes back to the queue, and what is parked too."""
        self.give_back_parked(consumer)
        self.in_flight.give_back_at_least_once(consumer)

    def forget(self, consumer: Consumer) -> None:
        """Nothing of this consumer is in flight any more: its messages go back when it is closed."""
        self.give_back_parked(consumer)
        self.in_flight.recall(consumer, Sent.AT_LEAST_ONCE)
        self.in_flight.recall(consumer, Sent.EXACTLY_ONCE)

    # -- connections -----------------------------------------------------------------------------------------------

    def connect(self, port: Port, receive_maximum: int, bytes_in_flight_max: int = -1) -> None:
        """A connection begins: first what was in flight is sent again, then everything else goes on."""
        self.sender = Sender(self._engine, port, self.in_flight)
        self.in_flight.connected(receive_maximum, bytes_in_flight_max)
        self.proceed()
        self._credit.stop(False)

    def disconnect(self) -> None:
        """The connection is gone: nobody gets anything, and what was sent with QoS 0 was sent."""
        if self.sender is not None:
            self.sender.flushed()
            self.sender = None
        self._credit.stop(True)

    @property
    def transport(self) -> object:
        """None while the session has no connection."""
        return None if self.sender is None else self.sender.port.transport

    def recover(self) -> None:
        """The session failed, maybe while it was handed messages: those that no book here has go back to their queues.

        The last `held` ones of a consumer still wait for the journal, and have not been handed over.
        """
        booked = self.in_flight.recover()
        booked |= {(consumer, message.id) for consumer, run in self._credit.parked for message in run}
        for consumer in self._subscriptions:
            if consumer.closed:
                continue
            handed = list(consumer.unacked)[: len(consumer.unacked) - consumer.held]
            for id in handed:
                if (consumer, id) not in booked and id in consumer.unacked:
                    self._engine.consumers.give_back(consumer, id, redelivery.LOST)

    def restore(self, stored: StoredSession) -> None:
        """Take over what was in flight before a restart."""
        self.in_flight.restore(stored, self._subscriptions)

    # -- messages --------------------------------------------------------------------------------------------------

    def records(self, consumer: Consumer) -> bool:
        """Those that go with QoS 1 or 2 to a session that is stored, under packet identifiers (`InFlight.send`)."""
        subscription = self._subscriptions.get(consumer)
        return self.in_flight.stored is not None and subscription is not None and subscription.qos > 0

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        subscription, sender, parked = self._subscriptions.get(consumer), self.sender, self._credit.parked
        if subscription is None:
            return  # unsubscribed while the journal had these (strict mode): they stay with the consumer, which ends
        if consumer.counted:
            self._credit.used(consumer)
            if sender is None or parked:
                parked.add(consumer, messages)
                return
        assert sender is not None, "without a connection messages are parked"
        self._send(sender, subscription, consumer, messages)

    def _send(self, sender: Sender, subscription: Subscription, consumer: Consumer, messages: list[Message]) -> None:
        """Send as many of these as the quota allows, and park the rest."""
        done = sender.send(subscription, consumer, messages)
        if done < len(messages):
            self._credit.parked.put_back(consumer, messages[done:])
        self._credit.check()

    def acknowledge(self, ack: Ack) -> None:
        """PUBACK, PUBREC or PUBCOMP.  Raises MqttError for one that does not fit what was sent."""
        if self.sender is None:  # a link that was paused before it connected
            raise violation(f"{ack.type.name}, although nothing was sent on this connection")
        self.sender.acknowledge(ack)
        self.proceed()

    def proceed(self) -> None:
        """What there is room for now: what is to be sent again, what is parked, and then what the engine has."""
        sender, parked = self.sender, self._credit.parked
        if sender is None:
            return
        sender.resend()
        while parked and self.in_flight.open:
            consumer, messages = parked.pop()
            self._send(sender, self._subscriptions[consumer], consumer, self._still_due(consumer, messages))
        self._credit.renew()

    def _still_due(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """The parked messages whose time is not over; the others expire on their queue [MQTT-3.3.2-5]."""
        now = self._engine.now
        over = [m for m in messages if 0 < m.header.expiration <= now]
        if not over:
            return messages
        self._engine.consumers.withdraw(consumer, over)
        return [m for m in messages if not 0 < m.header.expiration <= now]

    # -- the operating system --------------------------------------------------------------------------------------

    def flushed(self) -> None:
        """What was sent has left."""
        if self.sender is not None:
            self.sender.flushed()
            if self._credit.wanting:
                self.proceed()

    def set_blocked(self, blocked: bool) -> None:
        """The operating system takes no more for now, or does again."""
        self._credit.stop(blocked or self.sender is None)

    def unreadable(self, payload: LargePayload, why: ConversionError) -> None:
        """A payload could not be read to its end."""
        assert self.sender is not None, "somebody was reading it"
        self.sender.unreadable(payload, why)

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """An operator deleted the queue; it is made again when the client comes back."""
        if consumer in self._subscriptions:
            self.remove(consumer)
            if self.sender is not None:
                self.sender.port.dismiss(reason)
