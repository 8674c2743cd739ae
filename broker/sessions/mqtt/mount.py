"""Mount points: what goes before all topics of an acceptor's clients, which do not see it.

A connection puts the prefix before what its client names and takes it away from what it sends; sessions, subscriptions
and messages know whole topics only.  Client identifiers are prefixed too, so that no client of a mount point takes over
a session of another one.  `$SYS` is the broker's, and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from broker.sessions.mqtt.format import read_properties
from broker.sessions.mqtt.publish import Refused
from protocols.mqtt.packets import Publish, Will
from protocols.mqtt.properties import RESPONSE_TOPIC, Properties
from protocols.mqtt.topics import SEPARATOR, SHARE_PREFIX, TopicFilter, prefixed

_SYSTEM: Final = "$SYS"


class Inward(Protocol):
    """The topics of what the other end publishes, as they are here."""

    def publish(self, run: Publish) -> Mapping[int, Refused]:
        """Put them into a run; what is not to be taken of it, by its places."""


class Outward(Protocol):
    """The topics of messages, as the other end has them."""

    def seen(self, topic: str) -> str | None:
        """What a topic is there; None: it is none."""

    def told(self, properties: bytes) -> bytes:
        """The properties of a message, as they are there."""


class MountPoint:
    """The prefix of one acceptor."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def client_id(self, named: str) -> str:
        """As what a client is known."""
        return self._prefix + named

    # -- what comes ------------------------------------------------------------------------------------------------

    def whole(self, topic: str) -> str:
        """The topic, or pattern of a filter, that a client means."""
        if topic.partition(SEPARATOR)[0] == _SYSTEM:
            return topic
        return prefixed(self._prefix, topic)

    def filter(self, named: TopicFilter) -> TopicFilter:
        """The filter that a client means."""
        pattern = self.whole(named.pattern)
        share = "" if named.share is None else f"{SHARE_PREFIX}{named.share}{SEPARATOR}"
        return TopicFilter(share + pattern, pattern, named.share)

    def publish(self, run: Publish) -> Mapping[int, Refused]:
        """Put the prefix before the topics of what a client publishes, all of them."""
        whole: dict[str, str] = {}
        for topic in run.topics:
            if topic not in whole:
                whole[topic] = self.whole(topic)
        run.topics = [whole[topic] for topic in run.topics]
        run.properties = self._properties(run.properties)
        return {}

    def will(self, will: Will) -> Will:
        """The will that a client means."""
        return replace(will, topic=self.whole(will.topic), properties=self._properties(will.properties))

    def _properties(self, properties: Properties) -> Properties:
        if RESPONSE_TOPIC not in properties:
            return properties
        pairs = [(each, self.whole(value) if each is RESPONSE_TOPIC else value) for each, value in properties]
        return Properties(pairs)

    # -- what goes -------------------------------------------------------------------------------------------------

    def seen(self, topic: str) -> str | None:
        """What a client sees of a topic; None: it is outside of its mount point."""
        if topic.startswith(self._prefix):
            return topic[len(self._prefix) :] or None
        return topic if topic.partition(SEPARATOR)[0] == _SYSTEM else None

    def told(self, properties: bytes) -> bytes:
        """The properties of a message as a client sees them: without a response topic to which it cannot publish."""
        read = read_properties(b"\0" + properties)
        response = read.get(RESPONSE_TOPIC)
        if response is None:
            return properties
        seen = self.seen(response)
        pairs = [(each, seen if each is RESPONSE_TOPIC else value) for each, value in read]
        return Properties([pair for pair in pairs if pair[1] is not None]).raw
