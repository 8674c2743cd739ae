"""A subscription of a session: its options, and the consumer of its queue while there is one."""

from __future__ import annotations

from broker.engine import Client, ClientSubscription
from protocols.mqtt.packets import Subscription as SubscriptionRequest
from protocols.mqtt.properties import SUBSCRIPTION_IDENTIFIER, Properties
from protocols.mqtt.topics import TopicFilter


class Subscription(ClientSubscription):
    """One topic filter.  `lead` is its subscription identifier, as bytes that go before a message's properties."""

    __slots__ = ("filter", "identifier", "lead", "own_name", "retain_as_published")

    def __init__(self, client: Client, pattern: str, wildcard: bool, share: str | None, filter: TopicFilter) -> None:
        super().__init__(client, pattern, wildcard, share)
        self.filter = filter
        self.retain_as_published = False
        self.identifier = 0
        self.lead = b""
        self.own_name = ""

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

    def without_consumer(self) -> Subscription:
        """Return a copy, for another consumer."""
        other = Subscription(self.client, self.pattern, self.wildcard, self.share, self.filter)
        other.ask(SubscriptionRequest(self.filter, self.qos, self.no_local, self.retain_as_published), self.identifier)
        other.call(self.own_name)
        return other

    def to_json(self) -> dict[str, object]:
        """Return what is stored with the session."""
        return {
            "filter": self.filter.text,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": self.identifier,
            **({"queue": self.own_name} if self.own_name else {}),
        }
