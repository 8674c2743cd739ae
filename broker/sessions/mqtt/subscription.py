"""A subscription of a session: its options, and the consumer of its queue while there is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from broker.engine import Client, ClientSubscription
from broker.engine.model.message import Message
from protocols.mqtt.packets import Subscription as SubscriptionRequest
from protocols.mqtt.properties import SUBSCRIPTION_IDENTIFIER, Properties
from protocols.mqtt.topics import TopicFilter


class Subscription(ClientSubscription):
    """One topic filter.  `lead` is its subscription identifier, as bytes that go before a message's properties.

    `former` is the subscription before its QoS was lowered, which still holds for the messages that it had then: those
    with ids below `former_below`.  With QoS 0 they would be lost with the connection [MQTT-3.8.4-3].  `by_full_name`:
    its filter is not a topic, but the full name of a queue.
    """

    __slots__ = (
        "by_full_name",
        "filter",
        "former",
        "former_below",
        "identifier",
        "lead",
        "own_name",
        "retain_as_published",
    )

    def __init__(self, client: Client, pattern: str, wildcard: bool, share: str | None, filter: TopicFilter) -> None:
        super().__init__(client, pattern, wildcard, share)
        self.filter = filter
        self.retain_as_published = False
        self.identifier = 0
        self.lead = b""
        self.own_name = ""
        self.by_full_name = False
        self.former: Subscription | None = None
        self.former_below = 0

    def ask(self, asked: SubscriptionRequest, identifier: int) -> None:
        """Set the options; `identifier` 0: none."""
        self.qos = asked.qos
        self.no_local = asked.no_local
        self.retain_as_published = asked.retain_as_published
        self.identifier = identifier
        self.lead = Properties([(SUBSCRIPTION_IDENTIFIER, identifier)]).raw if identifier else b""

    def call(self, queue: str) -> None:
        """Name its queue, unless the name is empty, instead of by client and pattern."""
        if queue:
            self.name = self.own_name = queue

    @property
    def reliable(self) -> bool:
        """See ClientSubscription."""
        return self.qos > 0 or self.former is not None

    @property
    def has_messages(self) -> bool:
        """Whether it has messages; of a queue that others consume too, those in flight to its client."""
        consumer = self.attached
        if consumer is None:
            return False
        return bool(consumer.unacked if self.shared or self.borrowed else consumer.queue.message_count)

    def change(self, asked: SubscriptionRequest, identifier: int, next_id: int) -> None:
        """Set other options.  If the QoS becomes lower, that applies to messages with ids from `next_id` on."""
        highest = self.qos if self.former is None else max(self.qos, self.former.qos)
        self.former = None
        if asked.qos < highest and self.has_messages:
            self.split_at(highest, next_id)
        self.ask(asked, identifier)

    def split_at(self, qos: int, below: int) -> None:
        """Let another QoS hold for messages with ids below a certain one."""
        self.former = former = Subscription(self.client, self.pattern, self.wildcard, self.share, self.filter)
        former.ask(SubscriptionRequest(self.filter, qos, self.no_local, self.retain_as_published), self.identifier)
        former.consumer = self.consumer
        self.former_below = below

    def of(self, message: Message) -> Subscription:
        """Return the subscription that holds for a message: this or the former one."""
        former = self.former
        return self if former is None or message.id >= self.former_below else former

    def divided(self, messages: list[Message]) -> Sequence[tuple[Subscription, list[Message]]]:
        """Return the messages in order, each part with the subscription that holds for it."""
        if self.former is None:
            return ((self, messages),)
        return [(asked, list(part)) for asked, part in groupby(messages, self.of)]

    def to_json(self) -> dict[str, object]:
        """Return what is stored with the session."""
        return {
            "filter": self.filter.text,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": self.identifier,
            "queue_id": self.queue_id,
            **({"queue": self.own_name} if self.own_name else {}),
            **({"by_full_name": True} if self.by_full_name else {}),
            **({"filtered_for": self.filtered_for} if self.filtered_for is not None else {}),
            **({"former": {"qos": self.former.qos, "below": self.former_below}} if self.former is not None else {}),
        }
