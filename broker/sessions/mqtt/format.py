"""MQTT messages as the engine holds them, and the property names that selectors see.

    Message.head    one byte: QoS (bits 0, 1), RETAIN as published (bit 2), sent because retained (bit 3), published by
                    MQTT 5 (bit 4); then the properties that are forwarded, in MQTT 5's encoding without their length
    Message.body    the payload, unchanged

All properties are forwarded in their order (MQTT 5.0, 3.3.2.3), except those of the publisher's connection (topic
alias) and the message expiry interval, which is part of the message header.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from broker.engine.model.message import RESERVED_PREFIXES, Annotations, Body, ReplyTo, RoutingType, Value
from broker.sessions.message_ids import correlation_text
from protocols.mqtt.codes import V5, PacketType, Role
from protocols.mqtt.errors import MqttError
from protocols.mqtt.fields import Context, write_varint
from protocols.mqtt.limits import Limits
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    NO_PROPERTIES,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    WILL_DELAY_INTERVAL,
    Properties,
    decode_properties,
)
from protocols.mqtt.topics import AddressSyntax

MQTT_FORMAT: Final = 3

QOS: Final = 0x03
RETAIN: Final = 0x04
RETAINED: Final = 0x08
WITH_PROPERTIES: Final = 0x10

#: The user property that each broker adds when it forwards a message over a link; `hop` writes its value.
HOPS: Final = "bartleby-hops"
_HOPS_BYTES: Final = HOPS.encode()

#: Heads with more bytes of properties than this are not cached.
CACHED_BYTES_MAX: Final = 256

_OWN: Final = (MESSAGE_EXPIRY_INTERVAL, TOPIC_ALIAS, SUBSCRIPTION_IDENTIFIER, WILL_DELAY_INTERVAL)

#: Properties that were accepted once are read regardless of today's limits.
_CONTEXT: Final = Context(
    V5, Role.CLIENT, Limits(properties_bytes_max=1 << 28, user_properties_max=1 << 28, topic_bytes_max=1 << 16)
)

_SYNTAX: Final = AddressSyntax()

_BARE: Final = tuple(bytes([flags]) for flags in range(32))


def make_head(qos: int, retain: bool, properties: Properties) -> bytes:
    """Return the head of messages; equal heads share one object unless they are large."""
    if len(properties.raw) > CACHED_BYTES_MAX:
        return _make_head(qos, retain, properties)
    return _cached_head(qos, retain, properties)


def _make_head(qos: int, retain: bool, properties: Properties) -> bytes:
    flags = qos | (RETAIN if retain else 0)
    if properties is NO_PROPERTIES:
        return _BARE[flags]
    return _BARE[flags | WITH_PROPERTIES] + _without_reserved(properties.without(*_OWN)).raw


def _without_reserved(properties: Properties) -> Properties:
    """Drop user properties with names reserved for the broker; most messages have none."""
    if b"_AMQ_" not in properties.raw:
        return properties
    pairs = [p for p in properties if not (p[0] is USER_PROPERTY and p[1][0].startswith(RESERVED_PREFIXES))]
    return Properties(pairs)


_cached_head: Final = lru_cache(maxsize=1024)(_make_head)


def retained_head(head: bytes) -> bytes:
    """Return the head of a copy that is sent because the message is retained."""
    return _BARE[head[0] | RETAINED | RETAIN] + head[1:]


def qos_of(head: bytes) -> int:
    """Return the QoS with which a message was published."""
    return head[0] & QOS


def read_properties(head: bytes) -> Properties:
    """Return the forwarded properties of a head; none if it is damaged."""
    raw = head[1:]
    if not raw:
        return NO_PROPERTIES
    block = write_varint(len(raw)) + raw
    try:
        return decode_properties(block, 0, len(block), PacketType.PUBLISH, _CONTEXT)[0]
    except MqttError:
        return NO_PROPERTIES


def reply_to_of(properties: Properties) -> ReplyTo:
    """Return the address of the response topic among these properties."""
    topic = properties.get(RESPONSE_TOPIC)
    return (_SYNTAX.to_address(topic), RoutingType.MULTICAST) if topic else ("", None)


def hops_of(head: bytes) -> list[str]:
    """Return the hops of a message over links, in order."""
    if _HOPS_BYTES not in head:
        return []
    return [value for name, value in read_properties(head).get_all(USER_PROPERTY) if name == HOPS]


class MqttFormat:
    """The `Format` of messages published over MQTT."""

    number = MQTT_FORMAT
    name = "mqtt"
    typed = False

    def content(self, part: bytes) -> bytes:
        """Return the body itself."""
        return part

    def noted(self, annotations: Annotations) -> Annotations:
        """Return the broker's annotations, under their own names."""
        return annotations

    def readable(self, head: bytes, body_bytes: int) -> bool:
        """Whether a head has valid flags, and properties that can be decoded."""
        if not head or head[0] >= len(_BARE) or qos_of(head) > 2:
            return False
        block = write_varint(len(head) - 1) + head[1:]
        try:
            return decode_properties(block, 0, len(block), PacketType.PUBLISH, _CONTEXT)[1] == len(block)
        except MqttError:
            return False

    def composed(self, properties: Mapping[str, str | int]) -> tuple[bytes, bytes]:
        """Return head and payload of a message that has user properties only."""
        return self.edited(_BARE[0], (), properties), b""

    def hops(self, head: bytes) -> int:
        """Count the hops: one user property each."""
        return len(hops_of(head))

    def reply_to(self, head: bytes) -> ReplyTo:
        """Return the address of the response topic."""
        return reply_to_of(read_properties(head))

    def duplicate_id(self, head: bytes) -> bytes | None:
        """Return the user property _AMQ_DUPL_ID."""
        found = dict(read_properties(head).get_all(USER_PROPERTY)).get("_AMQ_DUPL_ID")
        return None if found is None else found.encode()

    def edited(self, head: bytes, remove: Collection[str], add: Mapping[str, str | int]) -> bytes:
        """Return the head with other user properties, which MQTT 3.1.1 clients do not see."""
        gone = {*remove, *add}
        pairs = [
            (property, value)
            for property, value in read_properties(head)
            if property is not USER_PROPERTY or value[0] not in gone
        ]
        raw = Properties([*pairs, *((USER_PROPERTY, (name, str(value))) for name, value in add.items())]).raw
        return (_BARE[head[0] | WITH_PROPERTIES] + raw) if raw else head[:1]

    def refilled(self, head: bytes, body: Body, content: bytes) -> tuple[bytes, bytes]:
        """Return head and payload for new content; if that is no text, the head no longer says that it is."""
        try:
            content.decode()
        except UnicodeDecodeError:
            pairs = [pair for pair in read_properties(head) if pair[0] is not PAYLOAD_FORMAT_INDICATOR]
            raw = Properties(pairs).raw
            head = _BARE[head[0] | WITH_PROPERTIES] + raw if raw else _BARE[head[0] & ~WITH_PROPERTIES]
        return head, content

    def properties(self, head: bytes) -> dict[str, Value]:
        """Return user properties under their names, others under those that all protocols share, or that Artemis uses.

        Of several user properties with one name, the last counts.
        """
        properties = read_properties(head)
        found: dict[str, Value] = {name: value for name, value in properties.get_all(USER_PROPERTY)}
        content_type, response_topic = properties.get(CONTENT_TYPE), properties.get(RESPONSE_TOPIC)
        correlation = properties.get(CORRELATION_DATA)
        if content_type is not None:
            found["_AMQ_CONTENT_TYPE"] = content_type
        if response_topic is not None:
            found["JMSReplyTo"] = response_topic
        if correlation is not None:
            found["JMSCorrelationID"] = correlation_text(correlation)
        found["mqtt.qos.level"] = qos_of(head)
        found["mqtt.message.retain"] = bool(head[0] & RETAIN)
        return found
