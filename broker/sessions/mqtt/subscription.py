"""A subscription of a session: what was asked for, and the consumer of its queue while there is one."""

from __future__ import annotations

from broker.engine import Consumer
from protocols.mqtt.packets import Subscription as Asked
from protocols.mqtt.properties import SUBSCRIPTION_IDENTIFIER, Properties
from protocols.mqtt.topics import TopicFilter


class Subscription:
    """One topic filter.  `lead` is its subscription identifier, as bytes that go before a message's properties."""

    __slots__ = (
        "borrowed",
        "consumer",
        "filter",
        "identifier",
        "lead",
        "no_local",
        "qos",
        "queue_name",
        "retain_as_published",
    )

    def __init__(self, filter: TopicFilter, queue_name: str) -> None:
        self.filter = filter
        self.queue_name = queue_name
        self.consumer: Consumer | None = None
        self.borrowed = False  # it reads the queue of an anycast address, like others
        self.qos = 0
        self.no_local = False
        self.retain_as_published = False
        self.identifier = 0
        self.lead = b""

    def ask(self, asked: Asked, identifier: int) -> None:
        """What is wanted from now on; `identifier` 0: none."""
        self.qos = asked.qos
        self.no_local = asked.no_local
        self.retain_as_published = asked.retain_as_published
        self.identifier = identifier
        self.lead = Properties([(SUBSCRIPTION_IDENTIFIER, identifier)]).raw if identifier else b""

    def without_consumer(self) -> Subscription:
        """The same, for another consumer."""
        other = Subscription(self.filter, self.queue_name)
        other.ask(Asked(self.filter, self.qos, self.no_local, self.retain_as_published), self.identifier)
        return other

    @property
    def shared(self) -> bool:
        """Whether several sessions take turns."""
        return self.filter.share is not None

    def to_json(self) -> dict[str, object]:
        """What of it is stored with its session."""
        return {
            "filter": self.filter.text,
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": self.identifier,
        }
