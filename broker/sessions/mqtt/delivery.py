"""The sending side of a session: messages of its subscriptions, of every QoS, across its connections.

engine --deliver--> at once, up to the client's Receive Maximum (`send`) --> codec
                    the rest is parked, and the consumers are paused (`credit`)
codec --PUBACK, PUBREC, PUBCOMP--> settled (`inflight`) --> parked messages, then credit for the engine
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine import (
    IN_FLIGHT_OUTCOMES,
    Consumer,
    Ending,
    Engine,
    LongWork,
    Outcome,
    Outcomes,
    StoredSession,
    redelivery,
)
from broker.engine.model.message import Message
from broker.sessions.convert import ConversionError
from broker.sessions.mqtt.credit import Credit
from broker.sessions.mqtt.inflight import InFlight
from broker.sessions.mqtt.large import LargePayload
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.send import Sender
from broker.sessions.mqtt.subscription import Subscription
from protocols.mqtt.errors import violation
from protocols.mqtt.packets import Ack


class Deliveries:
    """The sink of all consumers of a session.  `sender` is None while the session has no connection."""

    __slots__ = ("_credit", "_engine", "_resending", "_subscriptions", "in_flight", "retired", "sender")

    def __init__(self, engine: Engine, in_flight: InFlight) -> None:
        self.in_flight = in_flight
        self.sender: Sender | None = None
        self._engine = engine
        self._resending = False  # in steps; nothing else is sent with QoS 1 or 2 meanwhile
        self._subscriptions: dict[Consumer, Subscription] = {}
        self.retired: dict[Consumer, Subscription] = {}  # ended, with messages in flight
        self._credit = Credit(engine, in_flight, self._subscriptions)

    def add(self, subscription: Subscription, consumer: Consumer) -> None:
        """Add a subscription's consumer, and give it credit."""
        self._subscriptions[consumer] = subscription
        self._engine.consumers.pause(consumer)
        self._credit.give(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer.  Messages in flight stay so: their delivery is completed [MQTT-3.10.4-3]."""
        self._subscriptions.pop(consumer, None)
        self.retired.pop(consumer, None)
        self._credit.forget(consumer)
        self._credit.parked.take(consumer)
        if self.sender is not None:
            self.sender.forget(consumer)

    def retire(self, subscription: Subscription, consumer: Consumer) -> None:
        """Stop deliveries to a consumer, which stays until its messages in flight are answered."""
        self.retired[consumer] = subscription
        self._engine.consumers.pause(consumer)
        self._credit.forget(consumer)
        self._subscriptions.pop(consumer, None)

    def apply_ending(self, subscriptions: Iterable[Subscription], ending: Ending) -> None:
        """Do with the messages of subscriptions what the table of `endings` says."""
        wanted: dict[Consumer, Outcomes] = {}
        for subscription in subscriptions:
            consumer = subscription.consumer
            if consumer is None:
                continue
            wanted[consumer] = outcomes = IN_FLIGHT_OUTCOMES[subscription.kind, ending]
            if outcomes.parked is not Outcome.STAYS:
                self._engine.consumers.withdraw(consumer, self._credit.parked.take(consumer))
        self.in_flight.apply_outcomes(wanted)

    def connect(self, port: Port, receive_maximum: int, bytes_in_flight_max: int = -1) -> None:
        """Begin a connection: send messages in flight again, then resume deliveries."""
        self.sender = Sender(self._engine, port, self.in_flight)
        self.in_flight.connected(receive_maximum, bytes_in_flight_max)
        self.proceed()
        self._credit.stop(False)

    def disconnect(self) -> None:
        """End the connection: stop deliveries, and count messages sent with QoS 0 as consumed."""
        if self.sender is not None:
            self.sender.flushed()
            self.sender = None
        self._credit.stop(True)

    @property
    def transport(self) -> object:
        """None while the session has no connection."""
        return None if self.sender is None else self.sender.port.transport

    def recover(self) -> None:
        """Return lost messages to their queues after a failure: those that are neither in flight nor parked.

        The last `held` ones of a consumer still wait for the journal, and have not been delivered.
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
        """Restore the messages that were in flight before a restart."""
        self.in_flight.restore(stored, self._subscriptions)

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Whether `InFlight.send` journals deliveries before they are sent: QoS 1 or 2, stored session."""
        subscription = self._subscriptions.get(consumer)
        return self.in_flight.stored is not None and subscription is not None and subscription.qos > 0

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        subscription, sender, parked = self._subscriptions.get(consumer), self.sender, self._credit.parked
        if subscription is None or (sender is None and not _parks(subscription)):
            self._engine.consumers.withdraw(consumer, messages)  # these waited for the journal, and come too late
            return
        if consumer.counted:
            self._credit.used(consumer)
            if sender is None or parked:
                parked.add(consumer, messages)
                return
        assert sender is not None, "without a connection messages are parked"
        self._send(sender, subscription, consumer, messages)

    def _send(self, sender: Sender, subscription: Subscription, consumer: Consumer, messages: list[Message]) -> None:
        """Send as many messages as the quota allows, and park the rest; the queue keeps those for a later tick."""
        done = 0
        for asked, part in subscription.divided(messages):
            sent = sender.send(asked, consumer, part)
            done += sent
            if sent < len(part):
                break
        if done < len(messages) and sender.stopped:
            self._engine.consumers.return_unsent(consumer, messages[done:])
        elif done < len(messages):
            self._credit.parked.put_back(consumer, messages[done:])
        self._credit.check()

    def acknowledge(self, ack: Ack) -> None:
        """Process a PUBACK, PUBREC or PUBCOMP.  Raises MqttError if it does not match what was sent."""
        if self.sender is None:  # a link that was paused before it connected
            raise violation(f"{ack.type.name}, although nothing was sent on this connection")
        self.sender.acknowledge(ack)
        self.proceed()

    def proceed(self) -> None:
        """Use the quota that is left: for messages to send again, then parked ones, then new ones of the engine."""
        sender = self.sender
        if sender is None or self._resending:
            return
        if self.in_flight.outgoing.resends:
            self._resending = True
            self._engine.ticks.begin_work(self, self._resend(sender), sender.port.transport)
        else:
            self._use_quota(sender)

    def _resend(self, sender: Sender) -> LongWork:
        try:
            for cost in sender.resend():
                yield cost
                if self.sender is not sender:
                    break
        finally:
            self._resending = False
        if self.sender is sender:
            self._use_quota(sender)
        else:
            self.proceed()

    def _use_quota(self, sender: Sender) -> None:
        parked = self._credit.parked
        while parked and self.in_flight.open:
            consumer, messages = parked.pop()
            self._send(sender, self._subscriptions[consumer], consumer, self._still_due(consumer, messages))
        self._credit.renew()

    def _still_due(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Return the parked messages that have not expired; the others expire on their queue [MQTT-3.3.2-5]."""
        now = self._engine.now
        over = [m for m in messages if 0 < m.header.expiration <= now]
        if not over:
            return messages
        self._engine.consumers.withdraw(consumer, over)
        return [m for m in messages if not 0 < m.header.expiration <= now]

    def flushed(self) -> None:
        """Note that the operating system has everything that was sent."""
        if self.sender is not None:
            self.sender.flushed()
            if self._credit.wanting:
                self.proceed()

    def set_blocked(self, blocked: bool) -> None:
        """Stop deliveries while the output is blocked, or resume them."""
        self._credit.stop(blocked or self.sender is None)

    def unreadable(self, payload: LargePayload, why: ConversionError) -> None:
        """Give up a message whose payload could not be read to its end."""
        assert self.sender is not None, "its consumer was reading it"
        self.sender.unreadable(payload, why)

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """Close the connection: the queue was deleted, or the client may no longer consume from it.

        Its messages in flight are not resent.  The queue of a subscription is made again when the client returns.
        """
        subscription = self._subscriptions.get(consumer) or self.retired.get(consumer)
        if subscription is not None:
            self.apply_ending([subscription], Ending.QUEUE_DELETED if consumer.queue.deleted else Ending.REVOKED)
            self.remove(consumer)
            if consumer.revoked:
                self._engine.subscriptions.revoked(subscription)
            if self.sender is not None:
                self.sender.port.dismiss(reason)


def _parks(subscription: Subscription) -> bool:
    """Whether messages for a client that is away wait for it, instead of on their queue."""
    outcomes = IN_FLIGHT_OUTCOMES[subscription.kind, Ending.DISCONNECTED]
    return subscription.reliable and outcomes.parked is Outcome.STAYS
