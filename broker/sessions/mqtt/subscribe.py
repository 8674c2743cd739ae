"""The subscriptions of a session: from SUBSCRIBE to a consumer, through disconnects and reconnects of the client.

Their queues are the engine's (`broker.engine.delivery.client_subscriptions`).  Subscribing again to the same filter
changes the existing subscription, and loses none of its messages [MQTT-3.8.4-3].
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Final

from broker.engine import Client, Consumer, Definition, Ending, Engine, LongWork, Queue, SubscriptionKind, redelivery
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.errors import Denied, EngineError
from broker.engine.model.permissions import Permission
from broker.sessions.mqtt.delivery import Deliveries
from broker.sessions.mqtt.format import qos_of, retained_head
from broker.sessions.mqtt.subscription import Subscription
from broker.sessions.mqtt.terms import MqttOptions, TooMany, full_queue_name, refusal
from protocols.mqtt.codes import V5, V31, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Subscribe
from protocols.mqtt.packets import Subscription as SubscriptionRequest
from protocols.mqtt.properties import NO_PROPERTIES, SUBSCRIPTION_IDENTIFIER, Properties, explanation
from protocols.mqtt.topics import AddressSyntax, TopicFilter, parse_topic_filter

#: Filters that were accepted once are read regardless of today's limits.
_STORED_LIMITS: Final = Limits(topic_bytes_max=1 << 16, topic_levels_max=1 << 16)

#: What it costs to make or to end a subscription and to store that, in microseconds (`broker.engine.queues.steps`).
SUBSCRIBE_COST: Final = 150
UNSUBSCRIBE_COST: Final = 70

#: The same for one subscription of a client that leaves or returns, and of a session that ends.
LEAVE_COST: Final = 15
RETURN_COST: Final = 60
DROP_COST: Final = 60

#: Begins the key of a subscription that ended with messages in flight: no filter begins with it.
_LEAVING: Final = "#/"


class Finishing:
    """Subscriptions of a session that have ended, but still have messages in flight."""

    __slots__ = ("_deliveries", "_engine")

    def __init__(self, engine: Engine, deliveries: Deliveries) -> None:
        self._engine = engine
        self._deliveries = deliveries

    def check(self) -> None:
        """Close the consumers that have no more messages in flight."""
        retired = self._deliveries.retired
        if retired:
            for consumer in [c for c in retired if not c.unacked or c.closed]:
                self._engine.subscriptions.finished(retired.pop(consumer), redelivery.CLOSED)

    def resume(self, text: str, access: Access) -> Subscription | None:
        """Return the subscription with that filter, if it has a queue of its own and the client may read it."""
        retired = self._deliveries.retired
        for consumer, subscription in list(retired.items()):
            if subscription.filter.text == text and subscription.kind is SubscriptionKind.OWN and not consumer.closed:
                if self._engine.consumers.recheck(consumer, access):
                    del retired[consumer]
                    return subscription
                self.check()
        return None

    def leave(self, ending: Ending) -> None:
        """Do with their messages what is to be done when the connection has ended."""
        self._deliveries.apply_ending(self._deliveries.retired.values(), ending)
        self.check()

    def drop(self) -> LongWork:
        """End all, as the session ends."""
        retired = self._deliveries.retired
        self._deliveries.apply_ending(retired.values(), Ending.SESSION_ENDED)
        while retired:
            _, subscription = retired.popitem()
            self._engine.subscriptions.finished(subscription, redelivery.INTERRUPTED)
            yield DROP_COST

    def __len__(self) -> int:
        return len(self._deliveries.retired)

    def to_json(self) -> dict[str, Definition]:
        """Return their stored forms, by key."""
        retired = self._deliveries.retired.items()
        stored = [{**subscription.to_json(), "leaving": True} for consumer, subscription in retired if consumer.unacked]
        return {key_of(each): each for each in stored}

    def restore(self, subscription: Subscription, consumer: Consumer) -> None:
        """Add a stored subscription, whose messages in flight are restored next."""
        self._deliveries.retired[consumer] = subscription
        self._engine.subscriptions.finishing(subscription)


class Subscriptions:
    """The subscriptions of one session, by topic filter.

    `changed`: the filters whose subscriptions have changed since they were last stored.
    """

    __slots__ = ("_by_filter", "_client", "_deliveries", "_engine", "_heir", "_syntax", "changed", "finishing")

    def __init__(self, engine: Engine, syntax: AddressSyntax, client: Client, deliveries: Deliveries) -> None:
        self.changed: dict[str, None] = {}
        self._engine = engine
        self._syntax = syntax
        self._client = client
        self._deliveries = deliveries
        self._by_filter: dict[str, Subscription] = {}
        self._heir: str | None = None  # the user whose the queues become
        self.finishing = Finishing(engine, deliveries)

    def __len__(self) -> int:
        return len(self._by_filter)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_filter.values())

    # -- subscribing -----------------------------------------------------------------------------------------------

    def ask(
        self, packet: Subscribe, version: int, options: MqttOptions
    ) -> Generator[int, None, tuple[list[int], Properties, list[str]]]:
        """Process a SUBSCRIBE, in steps.

        Returns reason codes, an explanation, and the filters to send retained messages for.
        """
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER) or 0
        refused = 0x80 if version != V31 else 0  # before 5.0; 3.1 has no code for it
        codes: list[int] = []
        sentences: list[str] = []
        wanting: list[str] = []
        for wanted in packet.subscriptions:
            asked = replace(wanted, qos=min(wanted.qos, options.qos_max))
            try:
                fresh = self.subscribe(asked, identifier, options.subscriptions_max)
            except EngineError as error:
                codes.append(refusal(error, subscribing=True) if version == V5 else refused)
                sentences.append(str(error))
                yield SUBSCRIBE_COST
                continue
            yield SUBSCRIBE_COST
            codes.append(asked.qos)
            sends_retained = asked.retain_handling == 0 or (asked.retain_handling == 1 and fresh)
            if sends_retained and asked.filter.share is None:
                wanting.append(asked.filter.text)
        return codes, Properties([explanation("; ".join(sentences))]) if sentences else NO_PROPERTIES, wanting

    def subscribe(self, asked: SubscriptionRequest, identifier: int, most: int, queue: str = "") -> bool:
        """Make or change a subscription.  Returns whether it is new.  `queue`: the name of its queue, if fixed.

        Raises EngineError, which leaves everything unchanged; TooMany for more than `most` subscriptions.
        """
        text = asked.filter.text
        self.changed[text] = None
        known = self._by_filter.get(text)
        if known is not None:
            self._change(known, asked, identifier)
            return False
        if len(self) >= most:
            raise TooMany(f"a session may have {most} subscriptions")
        ended = self.finishing.resume(text, self._client.access)
        if ended is None:
            subscription = self._make(asked, identifier, queue)
            self._attach(subscription)
            self._engine.subscriptions.join(subscription)
        else:
            subscription = ended
            self._resume(subscription, asked, identifier)
        self._by_filter[text] = subscription
        return True

    def _resume(self, subscription: Subscription, asked: SubscriptionRequest, identifier: int) -> None:
        """Make a subscription again that has ended with messages in flight."""
        assert subscription.consumer is not None, "its consumer has stayed"
        self._engine.subscriptions.resumed(subscription)
        subscription.change(asked, identifier, self._engine.messages.next_id)
        self._engine.subscriptions.change_no_local(subscription)
        self._deliveries.add(subscription, subscription.consumer)

    def _make(self, asked: SubscriptionRequest, identifier: int, queue: str = "") -> Subscription:
        filter = asked.filter
        pattern = self._syntax.to_pattern(filter.pattern)
        subscription = Subscription(self._client, pattern, filter.wildcard, filter.share, filter)
        subscription.ask(asked, identifier)
        subscription.call(queue)
        return subscription

    def _change(self, subscription: Subscription, asked: SubscriptionRequest, identifier: int) -> None:
        consumer = subscription.attached
        if consumer is not None and (consumer.counted or not asked.qos):
            subscription.change(asked, identifier, self._engine.messages.next_id)
            self._engine.subscriptions.change_no_local(subscription)
            return
        # from QoS 0 to more: another consumer, and in a stored session another queue; or its consumer was closed
        before = SubscriptionRequest(
            subscription.filter, subscription.qos, subscription.no_local, subscription.retain_as_published
        )
        known_by = subscription.identifier
        if consumer is not None:
            self._engine.consumers.close(consumer, redelivery.CLOSED)
            self._deliveries.remove(consumer)
        subscription.ask(asked, identifier)
        try:
            self._attach(subscription)
        except EngineError:
            subscription.ask(before, known_by)
            if consumer is not None:
                self._attach(subscription)
            raise

    def _attach(self, subscription: Subscription, *, returning: bool = False) -> None:
        """Attach a consumer to a subscription's queue, which is made if it is missing.  Raises EngineError.

        One that was granted by a queue's full name means that queue when its client is `returning`, too, which may no
        longer read it: then it is idle until the client may.
        """
        access = UNRESTRICTED if returning and subscription.by_full_name else self._client.access
        named = full_queue_name(self._engine, self._syntax, subscription.filter.pattern, access, Permission.CONSUME)
        if subscription.by_full_name is not (named != ""):
            subscription.by_full_name = not subscription.by_full_name
            self.changed[subscription.filter.text] = None
        consumer = self._engine.subscriptions.attach(subscription, self._deliveries, named)
        if subscription.former is not None:
            subscription.former.consumer = consumer
        self._deliveries.add(subscription, consumer)

    def queue_of(self, text: str) -> Queue:
        """Return the queue of a subscription that was just made."""
        consumer = self._by_filter[text].consumer
        assert consumer is not None, "a client that is here has its queues"
        return consumer.queue

    # -- retained messages -----------------------------------------------------------------------------------------

    def send_retained(self, text: str) -> None:
        """Send the retained messages that match a subscription, through its queue (3.3.1.3), in this tick and later."""

        def unsent(error: EngineError) -> None:
            self._engine.report("mqtt.retained_unsent", client=self._client.id, filter=text, error=str(error))

        self._engine.retained_feed.begin(self._by_filter[text], _retained_copy, unsent)

    # -- unsubscribing ---------------------------------------------------------------------------------------------

    def unsubscribe(self, filter: TopicFilter) -> ReasonCode:
        """End a subscription [MQTT-3.10.4-2]; the delivery of messages in flight is completed."""
        subscription = self._by_filter.pop(filter.text, None)
        if subscription is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self.changed[filter.text] = None
        self._deliveries.apply_ending([subscription], Ending.UNSUBSCRIBED)
        self._drop(subscription, Ending.UNSUBSCRIBED)
        return ReasonCode.SUCCESS

    def abandon(self, text: str) -> None:
        """End a subscription, but keep its queue unless that is empty."""
        subscription = self._by_filter.pop(text)
        self.changed[text] = None
        queue = self._engine.queues.get(subscription.name)
        subscription.borrowed = subscription.borrowed or (queue is not None and queue.message_count > 0)
        self._deliveries.apply_ending([subscription], Ending.SESSION_ENDED)
        self._drop(subscription, Ending.SESSION_ENDED)

    def _drop(self, subscription: Subscription, ending: Ending) -> None:
        """End a subscription whose messages are settled.  Its consumer stays for those in flight that do."""
        self._engine.retained_feed.stop(subscription)
        deliveries, consumer = self._deliveries, subscription.attached
        finishing = False
        if consumer is not None:
            finishing = subscription.completes(ending) and bool(consumer.unacked)
            if finishing:
                deliveries.retire(subscription, consumer)
            else:
                deliveries.remove(consumer)
        self._engine.subscriptions.end(subscription, finishing=finishing)

    # -- disconnects and reconnects --------------------------------------------------------------------------------

    def leave_all(self, ending: Ending) -> LongWork:
        """Disconnect all subscriptions, as the client of a stored session has disconnected."""
        self.finishing.leave(ending)
        for subscription in self:
            if not subscription.has_messages:
                subscription.former = None
        self._deliveries.apply_ending(self, ending)
        for subscription in list(self):
            yield LEAVE_COST
            consumer = subscription.attached
            if consumer is not None and not subscription.stays:
                self._engine.retained_feed.stop(subscription)
                self._deliveries.remove(consumer)
            self._engine.subscriptions.disconnected(subscription)

    def hand_over(self, user: str) -> None:
        """Note that the session is another user's from now on; as the client returns, the queues become that user's."""
        self._heir = user

    def return_all(self) -> LongWork:
        """Attach all subscriptions, as the client is back; one that it may no longer read stays idle."""
        idle: dict[Subscription, None] = {}
        waiting = list(self)
        while waiting:
            for subscription in waiting:
                if self._heir is not None:
                    self._engine.subscriptions.hand_over(subscription, self._heir)
                self._recheck(subscription)
                if subscription.attached is not None:
                    self._engine.subscriptions.reconnected(subscription)
                elif not self._try_to_attach(subscription):
                    idle[subscription] = None
                yield RETURN_COST
            waiting = [each for each in self if each.attached is None and each not in idle]  # deleted meanwhile
        self._heir = None

    def recheck(self) -> None:
        """Check the subscriptions again, as the client's permissions may have changed."""
        for subscription in list(self):
            self._recheck(subscription)

    def _recheck(self, subscription: Subscription) -> None:
        if subscription.consumer is not None:
            self._engine.consumers.recheck(subscription.consumer, self._client.access)

    def _try_to_attach(self, subscription: Subscription) -> bool:
        """Attach a consumer to an existing subscription.  Returns whether that was possible."""
        try:
            self._attach(subscription, returning=True)
        except EngineError as error:
            filter = subscription.filter.text
            self._engine.report("mqtt.subscription_idle", client=self._client.id, filter=filter, error=str(error))
            if isinstance(error, Denied):
                self._engine.subscriptions.revoked(subscription)
            return False
        return True

    def drop_all(self) -> LongWork:
        """End all, as the session ends."""
        yield from self.finishing.drop()
        self._deliveries.apply_ending(self, Ending.SESSION_ENDED)
        while self._by_filter:
            _, subscription = self._by_filter.popitem()
            self._drop(subscription, Ending.SESSION_ENDED)
            yield DROP_COST

    # -- stored ----------------------------------------------------------------------------------------------------

    def stored_forms(self) -> Iterator[tuple[str, Definition]]:
        """Return their stored forms, with their keys.  Subscriptions may end meanwhile."""
        for text, subscription in list(self._by_filter.items()):
            yield text, subscription.to_json()
        yield from self.finishing.to_json().items()

    def changes(self) -> dict[str, Definition | None]:
        """Return the stored forms of those that have changed since the last call; None: it has ended."""
        changed, self.changed = self.changed, {}
        there = self._by_filter
        return {text: there[text].to_json() if text in there else None for text in changed} | self.finishing.to_json()

    @property
    def durable(self) -> bool:
        """Whether any of them has a durable queue."""
        return any(s.consumer is not None and s.consumer.queue.durable for s in self)

    def restore(self, stored: Iterable[Definition]) -> None:
        """Restore stored subscriptions, with their client disconnected."""
        for each in stored:
            try:
                filter = parse_topic_filter(str(each["filter"]), _STORED_LIMITS)
            except MqttError as error:
                raise AssertionError(f"a stored topic filter that is none: {error}") from error
            asked = SubscriptionRequest(
                filter, int(str(each["qos"])), bool(each["no_local"]), bool(each["retain_as_published"])
            )
            subscription = self._make(asked, int(str(each["identifier"])), str(each.get("queue", "")))
            subscription.by_full_name = bool(each.get("by_full_name"))
            subscription.filtered_for = None if each.get("filtered_for") is None else str(each["filtered_for"])
            former = each.get("former")
            if isinstance(former, dict):
                subscription.split_at(former["qos"], former["below"])
            id = each.get("queue_id")
            subscription.queue_id = self._engine.subscriptions.found(subscription) if id is None else int(str(id))
            if each.get("leaving"):
                queue = self._engine.queues.get(subscription.name)
                there = queue is not None and (subscription.shared or not queue.attributes.enabled)
                if there and self._try_to_attach(subscription):
                    assert subscription.consumer is not None, "it was attached"
                    self.finishing.restore(subscription, subscription.consumer)
                continue
            self._by_filter[filter.text] = subscription
            self._engine.subscriptions.join(subscription)
            if subscription.reliable:
                self._engine.subscriptions.hand_over(subscription, self._client.access.user)  # earlier versions did not
                self._try_to_attach(subscription)

    def finish_restore(self) -> None:
        """Complete `restore` once messages are in flight again, of all sessions."""
        for consumer, subscription in list(self._deliveries.retired.items()):
            self._deliveries.retire(subscription, consumer)
        for _ in self.leave_all(Ending.RESTARTED):
            pass


def _retained_copy(head: bytes) -> tuple[bytes, bool]:
    """Return the head for sending a retained message, and whether the copy is durable."""
    return retained_head(head), qos_of(head) > 0


def key_of(stored: Definition) -> str:
    """Return the key under which a subscription is stored."""
    text = str(stored["filter"])
    return _LEAVING + text if stored.get("leaving") else text
