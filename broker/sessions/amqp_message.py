"""AMQP messages as the engine holds them, and back.

    Message.head     message annotations, properties, application properties: as they came
    Message.body     the body and the footer: as they came

The header becomes facts, and is made anew for each delivery; delivery annotations end here (part 3, 3.2.2).  So the
bare message goes out byte for byte as it came in; of one that the broker moved, only the expiry time is another.
What the broker notes on a message (facts.annotations) goes out as message annotations, under AMQP's names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from broker.engine.message import ORIG_ADDRESS, Annotations, Facts, Format, Message, RoutingType
from broker.engine.queue import DeliveryState
from broker.sessions.amqp_format import AMQP_FORMAT, annotation_name
from broker.sessions.convert import ConversionError, to_amqp, whole
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import MESSAGE_ANNOTATIONS, PROPERTIES, encode_annotations
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Header
from protocols.amqp.sections import ABSOLUTE_EXPIRY, GROUP_ID, has_property, split
from protocols.amqp.types import Timestamp

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
ROUTING_TYPE: Final = "x-opt-routing-type"

#: How annotations that the broker obeys begin: looked for in the bytes before anything is decoded.
_OBEYED: Final = (b"x-opt-delivery-", b"x-opt-routing-type")
_SCHEDULES: Final = (DELIVERY_TIME, DELIVERY_DELAY)

_ROUTINGS: Final = {0: RoutingType.MULTICAST, 1: RoutingType.ANYCAST}

#: The latest time that counts, ms since the epoch: the end of year 9999.
TIME_MAX: Final = 253_402_300_799_999

#: Largest ttl of a header, in ms (uint).
_TTL_MAX: Final = 0xFFFF_FFFF

_PRIORITY_MAX: Final = 9

#: The group-sequence of the last message of its group: -1 in a field without negative numbers, as JMS clients send it.
GROUP_CLOSED: Final = 0xFFFF_FFFF


class Special:
    """What of a message's annotations and properties decides facts; times in ms since the epoch."""

    __slots__ = ("closes_group", "expiration", "group", "routing_type", "scheduled_delay", "scheduled_time")

    def __init__(self) -> None:
        self.group = ""
        self.closes_group = False
        self.expiration = 0
        self.routing_type: RoutingType | None = None
        self.scheduled_time = 0
        self.scheduled_delay = 0


def take_apart(payload: bytes) -> tuple[bytes, bytes, bytes, Special | None]:
    """A payload's header, a Message's head and body, and what of the head decides facts.  Raises DecodeError."""
    header_end, begin, end, properties_at, bare_at, body_at = split(payload)
    header = payload[:header_end]
    noted = begin != end and any(payload.find(name, begin, end) >= 0 for name in _OBEYED)
    decides = properties_at and has_property(payload, properties_at, ABSOLUTE_EXPIRY, GROUP_ID)
    if noted or decides:
        head, special = _special_head(payload, payload[bare_at:body_at], noted=noted, decides=bool(decides))
        return header, head, payload[body_at:], special
    if begin == end:
        head = payload[bare_at:body_at]
    elif end == bare_at:
        head = payload[begin:body_at]
    else:
        head = payload[begin:end] + payload[bare_at:body_at]
    return header, head, payload[body_at:], None


def _special_head(payload: bytes, bare: bytes, *, noted: bool, decides: bool) -> tuple[bytes, Special]:
    special = Special()
    encoded = Encoded(payload)
    annotations = encoded.section(MESSAGE_ANNOTATIONS)
    if noted:
        annotations = _obey(special, encoded.message_annotations)
    if decides:
        properties = encoded.properties
        special.expiration = min(max(properties.absolute_expiry_time or 0, 0), TIME_MAX)
        special.group = properties.group_id or ""
        special.closes_group = bool(special.group) and properties.group_sequence == GROUP_CLOSED
    return annotations + bare, special


def _obey(special: Special, annotations: dict[object, object]) -> bytes:
    """Note what annotations ask for; those of a schedule are used up, the others go on."""
    time, delay = (annotations.get(name) for name in _SCHEDULES)
    if isinstance(time, int):
        special.scheduled_time = min(max(time, 0), TIME_MAX)
    if isinstance(delay, int):
        special.scheduled_delay = min(max(delay, 0), TIME_MAX)
    routing = annotations.get(ROUTING_TYPE)
    if isinstance(routing, int):
        special.routing_type = _ROUTINGS.get(routing)
    left = {name: value for name, value in annotations.items() if name not in _SCHEDULES}
    return encode_annotations(MESSAGE_ANNOTATIONS, left)


def make_facts(
    header: bytes,
    special: Special | None,
    address: str,
    format: Format,
    routing_type: RoutingType | None,
    *,
    now: int,
    user: str,
    origin: str,
) -> Facts:
    """The facts of a message, before its address's expiry settings are applied.  Raises DecodeError."""
    durable, priority, ttl = read_header(header)
    expiration = min(now + ttl, TIME_MAX) if ttl else 0
    scheduled = 0
    group, closes_group = "", False
    if special is not None:
        expiration = special.expiration or expiration
        scheduled = special.scheduled_time or (now + special.scheduled_delay if special.scheduled_delay else 0)
        group, closes_group = special.group, special.closes_group
    return Facts(
        address,
        format,
        durable=durable,
        priority=priority,
        timestamp=now,
        expiration=expiration,
        scheduled=min(scheduled, TIME_MAX),
        routing_type=routing_type,
        user=user,
        origin=origin,
        group=group,
        closes_group=closes_group,
    )


@lru_cache(maxsize=1024)
def read_header(header: bytes) -> tuple[bool, int, int]:
    """Durable, priority (9 at most) and ttl in ms (0: none) of a header section.  Raises DecodeError."""
    found = Encoded(header).header
    return found.durable, int(min(found.priority, _PRIORITY_MAX)), int(found.ttl or 0)


@lru_cache(maxsize=20)
def first_header(durable: bool, priority: int) -> bytes:
    """The header of a message that does not expire and was not delivered without success before."""
    return encode(Header(durable, priority))


class Encoder:
    """Messages for one link; what messages with the same facts share is made once."""

    __slots__ = ("_facts", "_header")

    def __init__(self) -> None:
        self._facts: Facts | None = None
        self._header = b""

    def encode(
        self, messages: list[Message], states: Mapping[int, DeliveryState], now: int, bytes_max: int | None
    ) -> tuple[list[bytes], list[tuple[Message, str, bool]], int]:
        """The payloads of messages; those that cannot be sent: why, and whether they are too large; and how many were
        looked at: it ends before one whose body is in a file.
        """
        payloads: list[bytes] = []
        refused: list[tuple[Message, str, bool]] = []
        for message in messages:
            facts = message.facts
            if facts is not self._facts:
                self._facts = facts
                self._header = first_header(facts.durable, facts.priority)
            header = self._header
            if (states and message.id in states) or facts.expiration:
                header = _own_header(message, states, now)
            if facts.annotations or facts.format.number != AMQP_FORMAT:
                if not isinstance(message.body, bytes):
                    return payloads, refused, messages.index(message)
                try:
                    payload = header + _rewritten(message)
                except ConversionError as error:
                    refused.append((message, str(error), error.too_large))
                    continue
            else:
                try:
                    payload = header + message.head + message.body  # type: ignore[operator]  # nearly always bytes
                except TypeError:
                    return payloads, refused, messages.index(message)
            if bytes_max is not None and len(payload) > bytes_max:
                refused.append((message, f"{len(payload)} bytes, and the receiver takes {bytes_max}", True))
                continue
            payloads.append(payload)
        return payloads, refused, len(messages)


def encode_alone(message: Message, states: Mapping[int, DeliveryState], now: int) -> bytes:
    """One message, whatever its size.  Raises ConversionError."""
    return _own_header(message, states, now) + _rewritten(message)


def _own_header(message: Message, states: Mapping[int, DeliveryState], now: int) -> bytes:
    facts = message.facts
    state = states.get(message.id)
    ttl = min(max(facts.expiration - now, 1), _TTL_MAX) if facts.expiration else 0
    return encode(Header(facts.durable, facts.priority, ttl or None, False, state.count if state else 0))


def _rewritten(message: Message) -> bytes:
    """Everything behind the header, with the broker's annotations.  Raises ConversionError."""
    facts = message.facts
    payload = message.head + whole(message) if facts.format.number == AMQP_FORMAT else to_amqp(message)
    if not facts.annotations:
        return payload
    try:
        encoded = Encoded(payload)
        annotations = encoded.message_annotations
        annotations |= {annotation_name(name): value for name, value in facts.annotations.items()}
        bare = _expiring_anew(encoded, facts) if ORIG_ADDRESS in facts.annotations else encoded.bare
        return encode_annotations(MESSAGE_ANNOTATIONS, annotations) + bare
    except DecodeError as error:
        raise ConversionError(f"not an AMQP message: {error.description}") from error


def _expiring_anew(encoded: Encoded, facts: Facts) -> bytes:
    """The bare message of one that the broker moved: it is over when its new address says so, or never.

    Receivers drop what is past its absolute-expiry-time, so nobody could read an expiry queue.  Raises DecodeError.
    """
    properties = encoded.properties
    if properties.absolute_expiry_time is None:
        return encoded.bare
    expires = Timestamp(facts.expiration) if facts.expiration else None
    changed = encode(replace(properties, absolute_expiry_time=expires))
    return changed + encoded.bare[len(encoded.section(PROPERTIES)) :]


def merge_annotations(message: Message, annotations: Mapping[str, object]) -> None:
    """A receiver's `modified` notes something on a message: texts and numbers, until the broker restarts or for as long
    as the message is a dead letter.
    """
    noted: Annotations = {
        str(name): value for name, value in annotations.items() if isinstance(value, str | int) and name[:1] != "_"
    }
    if noted:
        facts = message.facts
        message.facts = facts.noting((facts.annotations or {}) | noted)
