"""Mount points: a prefix of all topics of an acceptor's clients, which do not see it.

A connection adds the prefix to topics from its client and removes it from topics sent to it; sessions, subscriptions
and messages have full topics only.  Client identifiers are prefixed too, so that a client of one mount point cannot
take over a session of another.  `$SYS` belongs to the broker, and is the same everywhere.

Patterns of a client that begin with a wildcard do not match topics that it sees with a `$` (MQTT 5.0, MQTT-4.7.2-1).
Such topics therefore keep their `$` in front: with the prefix `a/`, `$b` is `$a/b`.
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
_HIDDEN: Final = "$"


class Inward(Protocol):
    """Maps topics that the peer publishes to local ones."""

    def publish(self, run: Publish) -> Mapping[int, Refused]:
        """Change the topics of a run.  Returns refusals of its messages, by position."""


class Outward(Protocol):
    """Maps local topics to the peer's."""

    def peer_topic(self, topic: str) -> str | None:
        """Return the peer's name of a topic; None: it has none."""

    def peer_properties(self, properties: bytes) -> bytes:
        """Return the properties of a message with the peer's topics."""


class MountPoint:
    """The prefix of one acceptor."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def client_id(self, named: str) -> str:
        """Return the full client identifier."""
        return self._prefix + named

    def whole(self, topic: str) -> str:
        """Return the full topic, or pattern of a filter, for one of a client."""
        if topic.partition(SEPARATOR)[0] == _SYSTEM:
            return topic
        if topic.startswith(_HIDDEN):
            return _HIDDEN + prefixed(self._prefix, topic.removeprefix(_HIDDEN))
        return prefixed(self._prefix, topic)

    def filter(self, named: TopicFilter) -> TopicFilter:
        """Return the full filter for one of a client."""
        pattern = self.whole(named.pattern)
        share = "" if named.share is None else f"{SHARE_PREFIX}{named.share}{SEPARATOR}"
        return TopicFilter(share + pattern, pattern, named.share)

    def publish(self, run: Publish) -> Mapping[int, Refused]:
        """Add the prefix to all topics that a client publishes to."""
        whole: dict[str, str] = {}
        for topic in run.topics:
            if topic not in whole:
                whole[topic] = self.whole(topic)
        run.topics = [whole[topic] for topic in run.topics]
        run.properties = self._properties(run.properties)
        return {}

    def will(self, will: Will) -> Will:
        """Return the will with full topics."""
        return replace(will, topic=self.whole(will.topic), properties=self._properties(will.properties))

    def _properties(self, properties: Properties) -> Properties:
        if RESPONSE_TOPIC not in properties:
            return properties
        pairs = [(each, self.whole(value) if each is RESPONSE_TOPIC else value) for each, value in properties]
        return Properties(pairs)

    def peer_topic(self, topic: str) -> str | None:
        """Return a topic as a client sees it; None: it is outside of the mount point."""
        if topic.startswith(self._prefix):
            return topic[len(self._prefix) :] or None
        if topic.startswith(_HIDDEN + self._prefix):
            return _HIDDEN + topic[len(self._prefix) + 1 :]
        return topic if topic.partition(SEPARATOR)[0] == _SYSTEM else None

    def peer_properties(self, properties: bytes) -> bytes:
        """Return a message's properties as a client sees them, without a response topic that it cannot publish to."""
        read = read_properties(b"\0" + properties)
        response = read.get(RESPONSE_TOPIC)
        if response is None:
            return properties
        theirs = self.peer_topic(response)
        pairs = [(each, theirs if each is RESPONSE_TOPIC else value) for each, value in read]
        return Properties([pair for pair in pairs if pair[1] is not None]).raw
