"""The subscriptions of a session, each with a queue, and what becomes of them when the client comes and goes.

    QoS 1, 2 in a session that lasts   a durable queue; the client gone, its consumer stays, paused
    QoS 0 or a session that does not   a queue that goes with the consumer; a lasting session gets a new one when its
                                       client is back
    shared                             a durable queue for all sessions that share it, gone with the last of them

Subscribing again to the same filter changes the subscription that is there, and loses nothing that waits for it
[MQTT-3.8.4-3].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from broker.engine import AckMode, Consumer, Definition, Engine, Queue, SubscribeRequest, redelivery
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.errors import EngineError
from broker.engine.model.message import RoutingType
from broker.sessions.mqtt.delivery import Deliveries
from broker.sessions.mqtt.retained import RetainedFeed
from broker.sessions.mqtt.subscription import Subscription
from broker.sessions.mqtt.terms import MqttOptions, TooMany, full_queue_name, queue_name, refusal, shared_queue_name
from protocols.mqtt.codes import V5, V31, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Subscribe
from protocols.mqtt.packets import Subscription as Asked
from protocols.mqtt.properties import NO_PROPERTIES, REASON_STRING, SUBSCRIPTION_IDENTIFIER, Properties
from protocols.mqtt.topics import AddressSyntax, TopicFilter, parse_topic_filter

#: Filters that were accepted once are read whatever today's limits are.
_STORED_LIMITS: Final = Limits(topic_bytes_max=1 << 16, topic_levels_max=1 << 16)

#: Before the filter of a subscription that ended with messages in flight, in its key: no filter begins so.
_LEAVING: Final = "#/"

_ANYCAST_ONLY: Final = {RoutingType.ANYCAST}


@dataclass(slots=True)
class Client:
    """What a client is, and what it has asked of its session.

    `expiry`: how long that outlives its connection, in seconds.  `queued_max`, `drop_oldest`: what a subscription may
    keep; `filtered`: whether filters are granted without the topics that the client may not read (see MqttOptions).
    """

    id: str
    access: Access = UNRESTRICTED  # until somebody has it
    expiry: int = 0
    queued_max: int = -1
    drop_oldest: bool = False
    filtered: bool = False

    @property
    def lasting(self) -> bool:
        """Whether its session outlives its connection."""
        return self.expiry > 0


class Subscriptions:
    """Those of one session, by topic filter.

    `changed`: the filters whose subscriptions are not stored as they are now; storing them takes them out.
    """

    __slots__ = (
        "_by_filter",
        "_client",
        "_deliveries",
        "_engine",
        "_feed",
        "_leaving",
        "_syntax",
        "changed",
    )

    def __init__(
        self,
        engine: Engine,
        syntax: AddressSyntax,
        feed: RetainedFeed,
        client: Client,
        deliveries: Deliveries,
    ) -> None:
        self.changed: dict[str, None] = {}
        self._engine = engine
        self._feed = feed
        self._syntax = syntax
        self._client = client
        self._deliveries = deliveries
        self._by_filter: dict[str, Subscription] = {}
        self._leaving: dict[Consumer, Subscription] = {}  # shared ones that ended, with messages in flight

    def __len__(self) -> int:
        return len(self._by_filter)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._by_filter.values())

    def __contains__(self, text: str) -> bool:
        return text in self._by_filter

    # -- subscribing -----------------------------------------------------------------------------------------------

    def ask(
        self, packet: Subscribe, version: int, remote: str, options: MqttOptions
    ) -> tuple[list[int], Properties, list[str]]:
        """Make or change what a client asks for: reason codes, why, and the filters that get retained messages."""
        identifier = packet.properties.get(SUBSCRIPTION_IDENTIFIER) or 0
        refused = 0x80 if version != V31 else 0  # before 5.0; 3.1 cannot say it
        codes: list[int] = []
        sentences: list[str] = []
        wanting: list[str] = []
        for wanted in packet.subscriptions:
            asked = replace(wanted, qos=min(wanted.qos, options.qos_max))
            try:
                fresh = self.subscribe(asked, identifier, remote, options.subscriptions_max)
            except EngineError as error:
                codes.append(refusal(error, subscribing=True) if version == V5 else refused)
                sentences.append(str(error))
                continue
            codes.append(asked.qos)
            told = asked.retain_handling == 0 or (asked.retain_handling == 1 and fresh)
            if told and asked.filter.share is None:
                wanting.append(asked.filter.text)
        return codes, Properties([(REASON_STRING, "; ".join(sentences))]) if sentences else NO_PROPERTIES, wanting

    def subscribe(self, asked: Asked, identifier: int, remote: str, most: int) -> bool:
        """Make or change a subscription; whether it is new.

        Raises EngineError, after which everything is as it was: also for more than `most` subscriptions.
        """
        text = asked.filter.text
        self.changed[text] = None
        known = self._by_filter.get(text)
        if known is not None:
            self._change(known, asked, identifier, remote)
            return False
        if len(self) >= most:
            raise TooMany(f"a session may have {most} subscriptions")
        subscription = Subscription(asked.filter, self._queue_name(asked.filter))
        subscription.ask(asked, identifier)
        self._attach(subscription, remote)
        self._by_filter[text] = subscription
        if subscription.shared:
            self._engine.shared.join(subscription.queue_name, self._client.id)
        return True

    def _queue_name(self, filter: TopicFilter) -> str:
        pattern = self._syntax.to_pattern(filter.pattern)
        if filter.share is not None:
            return shared_queue_name(filter.share, pattern)
        return queue_name(self._client.id, pattern)

    def _change(self, subscription: Subscription, asked: Asked, identifier: int, remote: str) -> None:
        consumer = subscription.consumer
        here = consumer is not None and not consumer.closed
        if consumer is not None and here and (consumer.counted or not asked.qos):
            if not subscription.borrowed and not subscription.shared:
                origin = self._client.id if asked.no_local else ""
                self._engine.change_no_local(consumer.queue, origin)
            subscription.ask(asked, identifier)
            return
        # from QoS 0 to more: another consumer, and in a session that lasts another queue; or it had none any more
        before = (subscription.qos, subscription.no_local, subscription.retain_as_published, subscription.identifier)
        if consumer is not None and here:
            self._engine.consumers.close(consumer, redelivery.CLOSED)
            self._deliveries.remove(consumer)
        subscription.ask(asked, identifier)
        try:
            self._attach(subscription, remote)
        except EngineError:
            subscription.ask(Asked(subscription.filter, before[0], before[1], before[2]), before[3])
            if here:
                self._attach(subscription, remote)
            raise

    def _attach(self, subscription: Subscription, remote: str) -> None:
        """Attach a consumer to a subscription's queue, which is made if need be.  Raises EngineError."""
        client, deliveries, engine = self._client, self._deliveries, self._engine
        pattern = self._syntax.to_pattern(subscription.filter.pattern)
        origin = client.id if subscription.no_local else ""
        address = engine.addresses.get(pattern)
        named = full_queue_name(engine, self._syntax, subscription.filter.pattern)
        subscription.borrowed = named != "" or (
            address is not None and address.routing_types == _ANYCAST_ONLY and not subscription.filter.wildcard
        )
        request = SubscribeRequest(
            named or pattern,
            no_local=origin,
            ack_mode=AckMode.INDIVIDUAL if subscription.qos else AckMode.AUTO,
            counted=subscription.qos > 0,
            client_id=client.id,
            remote=remote,
            user=client.access.user,
            access=client.access,
            filtered=client.filtered and subscription.filter.wildcard and not subscription.shared,
        )
        if subscription.borrowed:
            deliveries.add(subscription, engine.consumers.subscribe(deliveries, request))
            return
        existing = engine.queues.get(subscription.queue_name)
        durable = subscription.shared or (client.lasting and subscription.qos > 0)
        if existing is not None and not subscription.shared:
            engine.change_no_local(existing, origin)
        request = replace(
            request,
            routing_type=RoutingType.MULTICAST,
            name=subscription.queue_name,
            durable=durable or (existing is not None and existing.durable),
            shared=subscription.shared,
        )
        consumer = engine.consumers.subscribe(deliveries, request)
        if existing is None:
            engine.limit_queue(consumer.queue, client.queued_max, drop_oldest=client.drop_oldest)
        engine.sessions.client_away(consumer.queue, away=False)
        deliveries.add(subscription, consumer)

    def queue_of(self, text: str) -> Queue:
        """The queue of a subscription that was just made."""
        consumer = self._by_filter[text].consumer
        assert consumer is not None, "a client that is here has its queues"
        return consumer.queue

    # -- retained messages -----------------------------------------------------------------------------------------

    def send_retained(self, text: str) -> None:
        """Send the retained messages that match a subscription, through its queue (3.3.1.3), in this tick and later.

        The queue of others gets none: it is no subscription of its own.
        """
        subscription = self._by_filter[text]
        if subscription.borrowed:
            return
        consumer = subscription.consumer
        assert consumer is not None, "a subscription that was just made"
        self._feed.add(consumer, text, self._syntax.to_pattern(subscription.filter.pattern))

    # -- unsubscribing ---------------------------------------------------------------------------------------------

    def unsubscribe(self, filter: TopicFilter) -> ReasonCode:
        """End a subscription [MQTT-3.10.4-2]; what is on its way is delivered to the end."""
        subscription = self._by_filter.pop(filter.text, None)
        if subscription is None:
            return ReasonCode.NO_SUBSCRIPTION_EXISTED
        self.changed[filter.text] = None
        self._drop(subscription, ended=False)
        return ReasonCode.SUCCESS

    def _drop(self, subscription: Subscription, *, ended: bool) -> None:
        """A subscription is over, maybe since its session is."""
        consumer = subscription.consumer
        if subscription.shared:
            self._leave_share(subscription, consumer, ended=ended)
            return
        if consumer is None or consumer.closed:
            self._drop_orphan(subscription)
        elif subscription.borrowed:
            self._return_borrowed(consumer)
        else:
            self._deliveries.remove(consumer)
            self._engine.delete_queue(consumer.queue)

    def _drop_orphan(self, subscription: Subscription) -> None:
        """The queue of a subscription whose client must not read it any more."""
        queue = self._engine.queues.get(subscription.queue_name)
        if queue is not None and queue.durable and not queue.consumers and not subscription.borrowed:
            self._engine.delete_queue(queue)

    def _return_borrowed(self, consumer: Consumer) -> None:
        """A queue of others is read no more; what is in flight goes back to it."""
        deliveries = self._deliveries
        deliveries.forget(consumer)
        deliveries.remove(consumer)
        self._engine.consumers.close(consumer, redelivery.INTERRUPTED)

    def _leave_share(self, subscription: Subscription, consumer: Consumer | None, *, ended: bool) -> None:
        """Others go on, with what is not in flight to this client; a QoS 2 that is, is nobody else's [MQTT-4.8.2-5]."""
        deliveries = self._deliveries
        if consumer is not None and not consumer.closed:
            deliveries.give_back_parked(consumer)
            if ended:
                deliveries.consume_exactly_once(consumer)
            if consumer.unacked and not ended:
                self._retire(consumer, subscription)
            else:
                self._engine.consumers.close(consumer, redelivery.INTERRUPTED)
                deliveries.remove(consumer)
        self._engine.shared.leave(subscription.queue_name, self._client.id)

    def _retire(self, consumer: Consumer, subscription: Subscription) -> None:
        """A shared subscription is over but for what is in flight."""
        self._leaving[consumer] = subscription
        self._deliveries.retire(consumer)

    def finish_leaving(self) -> None:
        """Something was answered: those that have left with messages in flight may be done."""
        if self._leaving:
            for consumer in [c for c in self._leaving if not c.unacked or c.closed]:
                del self._leaving[consumer]
                self._engine.consumers.close(consumer, redelivery.CLOSED)

    # -- the client comes and goes ---------------------------------------------------------------------------------

    def leave_all(self) -> None:
        """The client of a lasting session is gone for now."""
        deliveries = self._deliveries
        for leaving in self._leaving:
            deliveries.give_back_at_least_once(leaving)
        self.finish_leaving()
        for subscription in self._by_filter.values():
            consumer = subscription.consumer
            if consumer is None or consumer.closed:
                continue
            if subscription.borrowed:
                subscription.consumer = None
                self._return_borrowed(consumer)
            elif not subscription.qos:
                self._leave_qos_0(subscription, consumer)
            elif subscription.shared:
                deliveries.give_back_at_least_once(consumer)
            else:
                self._engine.sessions.client_away(consumer.queue, away=True)
            if subscription.shared and not subscription.borrowed and not consumer.queue.deleted:
                self._engine.sessions.client_away(consumer.queue, away=not self._anybody(consumer.queue))

    def _leave_qos_0(self, subscription: Subscription, consumer: Consumer) -> None:
        """A subscription of QoS 0 has no consumer while its client is away; it may have been of a higher QoS once."""
        deliveries = self._deliveries
        if subscription.shared:
            deliveries.give_back_at_least_once(consumer)
        if subscription.shared and consumer.unacked:
            self._by_filter[subscription.filter.text] = subscription.without_consumer()
            subscription.qos = 2  # what is in flight
            self._retire(consumer, subscription)
            return
        deliveries.remove(consumer)
        subscription.consumer = None
        queue = consumer.queue
        self._engine.consumers.close(consumer, redelivery.CLOSED)
        if not subscription.shared and not queue.deleted:
            self._engine.delete_queue(queue)

    def _anybody(self, queue: Queue) -> bool:
        """Whether some client of a shared subscription is here."""
        sinks = [consumer.sink for consumer in queue.consumers]
        return any(isinstance(sink, Deliveries) and sink.port is not None for sink in sinks)

    def return_all(self, remote: str) -> None:
        """The client is back, maybe as somebody else: what it may not read is left where it is."""
        self.recheck()
        for subscription in self:
            there = subscription.consumer
            if there is None or there.closed:
                self._try_to_attach(subscription, remote)
            else:
                self._engine.sessions.client_back(there, remote)

    def recheck(self) -> None:
        """What the client may do has changed."""
        for subscription in list(self):
            if subscription.consumer is not None:
                self._engine.consumers.recheck(subscription.consumer, self._client.access)

    def _try_to_attach(self, subscription: Subscription, remote: str) -> bool:
        """Attach a consumer to a subscription that was made before; whether that was possible."""
        try:
            self._attach(subscription, remote)
        except EngineError as error:
            subscription.consumer = None
            self._engine.report(
                "mqtt.subscription_idle",
                client=self._client.id,
                filter=subscription.filter.text,
                error=str(error),
            )
            return False
        return True

    def drop_all(self) -> None:
        """The session is over: what is in flight of a shared subscription is others', but for QoS 2 [MQTT-4.8.2-5]."""
        for consumer in self._leaving:
            self._deliveries.consume_exactly_once(consumer)
            self._engine.consumers.close(consumer, redelivery.INTERRUPTED)
        self._leaving.clear()
        while self._by_filter:
            _, subscription = self._by_filter.popitem()
            self._drop(subscription, ended=True)

    # -- stored ----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Definition]:
        """What is stored of them, by the key of each."""
        return {text: s.to_json() for text, s in self._by_filter.items()} | self._leaving_to_json()

    def _leaving_to_json(self) -> dict[str, Definition]:
        leaving = [{**s.to_json(), "leaving": True} for consumer, s in self._leaving.items() if consumer.unacked]
        return {key_of(each): each for each in leaving}

    def changes(self) -> dict[str, Definition | None]:
        """What is to be stored of those that have changed since this was asked, None: nothing any more."""
        changed, self.changed = self.changed, {}
        there = self._by_filter
        return {text: there[text].to_json() if text in there else None for text in changed} | self._leaving_to_json()

    @property
    def durable(self) -> bool:
        """Whether some of them have queues that a restart does not take away."""
        return any(s.consumer is not None and s.consumer.queue.durable for s in self)

    def restore(self, stored: Iterable[Definition]) -> None:
        """As they were stored, without their client."""
        for each in stored:
            try:
                filter = parse_topic_filter(str(each["filter"]), _STORED_LIMITS)
            except MqttError as error:
                raise AssertionError(f"a stored topic filter that is none: {error}") from error
            asked = Asked(filter, int(str(each["qos"])), bool(each["no_local"]), bool(each["retain_as_published"]))
            subscription = Subscription(filter, self._queue_name(filter))
            subscription.ask(asked, int(str(each["identifier"])))
            if each.get("leaving"):
                if subscription.queue_name in self._engine.queues and self._try_to_attach(subscription, ""):
                    assert subscription.consumer is not None, "it was attached"
                    self._leaving[subscription.consumer] = subscription
                continue
            self._by_filter[filter.text] = subscription
            if subscription.shared:
                self._engine.shared.join(subscription.queue_name, self._client.id)
            if subscription.qos and self._try_to_attach(subscription, ""):
                self._leave_restored(subscription)

    def settle_restored(self) -> None:
        """What was in flight is again: of shared subscriptions only QoS 2, which may be all that is left of them."""
        deliveries = self._deliveries
        for subscription in [*self, *self._leaving.values()]:
            if subscription.shared and subscription.consumer is not None:
                deliveries.give_back_at_least_once(subscription.consumer)
        for consumer in self._leaving:
            deliveries.retire(consumer)
        self.finish_leaving()

    def _leave_restored(self, subscription: Subscription) -> None:
        """A subscription has its queue again, and its client is not here."""
        consumer = subscription.consumer
        assert consumer is not None, "it was attached"
        if subscription.borrowed:
            subscription.consumer = None
            self._return_borrowed(consumer)
        else:
            self._engine.sessions.client_away(consumer.queue, away=True)


def key_of(stored: Definition) -> str:
    """Under which key a subscription is stored."""
    text = str(stored["filter"])
    return _LEAVING + text if stored.get("leaving") else text
