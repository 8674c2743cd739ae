"""Topic aliases: numbers for topics on one connection (3.3.2.3.4), with which they end [MQTT-3.3.2-7].

Each side defines its own, as many as the other one takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import MqttError, violation

#: Bytes of a topic from which on an alias saves something.
_ALIASED_BYTES_MIN: Final = 4


class TopicAliases:
    """The topic aliases that a peer has defined.  `maximum`: the Topic Alias Maximum announced to the peer."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, alias: int, topic: str) -> str:
        """The topic of a PUBLISH with an alias; a topic that it has redefines the alias.  Raises MqttError."""
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


#: For a peer that may use no aliases.
NO_ALIASES: Final = TopicAliases(0)

#: PUBLISH packets: what they share, payloads and packet identifiers.
_Packets = tuple[PublishHead, Sequence[bytes], Sequence[int]]


class OwnAliases:
    """The topic aliases that we have defined, by topic.  `maximum`: how many the peer takes."""

    __slots__ = ("_maximum", "numbers")

    def __init__(self, maximum: int) -> None:
        self.numbers: dict[str, int] = {}
        self._maximum = maximum

    def use(self, out: list[bytes], packets: _Packets, packet_bytes_max: int) -> _Packets:
        """What is left to send once the peer knows the alias of this topic, if there is to be one."""
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
