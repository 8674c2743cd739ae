"""Topic aliases: numbers that stand for topics until their connection ends (3.3.2.3.4) [MQTT-3.3.2-7].

Each side defines its own, as many as the other side permits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError, violation

#: The shortest topic, in bytes, for which an alias saves anything.
_ALIASED_BYTES_MIN: Final = 4


class TopicAliases:
    """The topic aliases that a peer has defined.  `maximum`: the Topic Alias Maximum announced to the peer."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, alias: int, topic: str) -> str:
        """Return the topic of a PUBLISH with an alias; if it has a topic, the alias is redefined.  Raises MqttError."""
        if alias > self._maximum:
            sentence = f"the topic alias {alias} is above the maximum of {self._maximum}"
            raise MqttError(ReasonCode.TOPIC_ALIAS_INVALID, sentence, "MQTT-3.3.2-9")
        if topic:
            self._topics[alias] = topic
        elif alias in self._topics:
            topic = self._topics[alias]
        else:
            raise violation(f"the topic alias {alias} stands for no topic yet")
        return topic


#: The aliases of a peer that may not use any.
NO_ALIASES: Final = TopicAliases(0)

#: PUBLISH packets: their common head, payloads and packet identifiers.
_Packets = tuple[PublishHead, Sequence[bytes], Sequence[int]]


class OwnAliases:
    """The topic aliases that we have defined, by topic.  `maximum`: how many the peer permits."""

    __slots__ = ("_maximum", "numbers")

    def __init__(self, maximum: int) -> None:
        self.numbers: dict[str, int] = {}
        self._maximum = maximum

    def use(self, out: list[bytes], packets: _Packets, packet_bytes_max: int) -> _Packets:
        """Use the topic's alias, if it can have one: encodes a packet that defines it, and returns the rest to send."""
        head, payloads, packet_ids = packets
        alias = self.numbers.get(head.topic)
        if alias is None:
            alias = len(self.numbers) + 1
            if alias > self._maximum or len(head.topic) < _ALIASED_BYTES_MIN:
                return packets
            introducing = head.aliased(alias, known=False)
            if introducing.packet_bytes(payloads[0]) > packet_bytes_max:
                return packets
            introducing.encode(out, payloads[:1], packet_ids[:1])
            self.numbers[head.topic] = alias
            payloads, packet_ids = payloads[1:], packet_ids[1:]
        return head.aliased(alias, known=True), payloads, packet_ids
