"""AMQP messages as the engine holds them, and back.

    Message.head     message annotations, properties, application properties: unchanged
    Message.body     the body and the footer: unchanged

The header section becomes part of the message header, and is encoded again for each delivery; delivery annotations are
dropped (part 3, 3.2.2).  So the bare message is sent byte for byte as it was received; only the expiry time changes if
the broker has moved it.
The broker's annotations (header.annotations) are sent as message annotations, under AMQP's names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Final

from broker.engine import DeadLetterReason, DeliveryState, Queue
from broker.engine.model.annotation import TypedInt, TypedText, typed
from broker.engine.model.limits import TIME_MAX
from broker.engine.model.message import NEW, ORIG_ADDRESS, Annotations, Format, Message, MessageHeader, RoutingType
from broker.sessions.amqp.format import AMQP_FORMAT, RESERVED_ANNOTATIONS, annotation_name, without_reserved
from broker.sessions.amqp.link_id import PREFIX
from broker.sessions.convert import ConversionError, Refusal, ReplyPrefixes, rendering_error, to_amqp, whole
from protocols.amqp.check import check_body
from protocols.amqp.encode import encode
from protocols.amqp.errors import MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED, DecodeError, TooMany
from protocols.amqp.message import MESSAGE_ANNOTATIONS, PROPERTIES, encode_annotations
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Header
from protocols.amqp.sections import ABSOLUTE_EXPIRY, GROUP_ID, has_property, plain_body, split
from protocols.amqp.types import NAMES, Timestamp, ULong

DELIVERY_TIME: Final = "x-opt-delivery-time"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
ROUTING_TYPE: Final = "x-opt-routing-type"

#: How annotations that the broker obeys begin: searched for in the bytes before anything is decoded.
_OBEYED: Final = b"x-opt-delivery-"
_OBEYED_ROUTING: Final = b"x-opt-routing-type"

#: Prefix of the names of optional annotations, and of those among them that brokers exchange.
_OPTIONAL: Final = b"x-opt-"
_OF_LINKS: Final = PREFIX.encode()

#: The most application properties of a message: applications use dozens.  Each costs some microseconds whenever the
#: message must be decoded, for a selector or a receiver of another protocol.
APPLICATION_PROPERTIES_MAX: Final = 1024

#: The least bytes of so many, a key and a value each: shorter heads need not be looked at.
_PROPERTIES_BYTES_MAX: Final = 2 * APPLICATION_PROPERTIES_MAX

#: Annotations of ActiveMQ Classic for repeated delivery, which this broker does not support.
_REPEATING: Final = ("x-opt-delivery-cron", "x-opt-delivery-period", "x-opt-delivery-repeat")

#: Annotations that are not passed on; a delivery time is, as receivers may ask for it.
_DELAYS: Final = (DELIVERY_DELAY, *_REPEATING)

_ROUTINGS: Final = {0: RoutingType.MULTICAST, 1: RoutingType.ANYCAST}

#: A rare byte of `_AMQ_`, as a number: one byte is found six times as fast as several.
_Q: Final = 0x51

#: Largest ttl of a header, in ms (uint).
_TTL_MAX: Final = 0xFFFF_FFFF

_PRIORITY_MAX: Final = 9

#: Prefix of the names of annotations that the specification does not reserve.
_UNRESERVED: Final = "x-"

#: Characters of names and values that receivers may add to one message: room for many trace contexts, but not for
#: filling the memory by returning a message again and again.
ANNOTATIONS_CHARS_MAX: Final = 65_536

#: The group-sequence of the last message of its group: -1 in a field without negative numbers, as JMS clients send it.
GROUP_CLOSED: Final = 0xFFFF_FFFF


class Unacceptable(DecodeError):
    """A message that is encoded correctly, and is refused for what it says."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(0, "")
        self.condition = condition
        self.description = description


class BrokerAnnotations:
    """The annotations and properties of a message that decide its header; times in ms since the epoch."""

    __slots__ = ("closes_group", "expiration", "group", "routing_type", "scheduled_delay", "scheduled_time")

    def __init__(self) -> None:
        self.group = ""
        self.closes_group = False
        self.expiration = 0
        self.routing_type: RoutingType | None = None
        self.scheduled_time = 0
        self.scheduled_delay = 0


def take_apart(
    payload: bytes, known: bytes = b"", *, linked: bool = False, whole: bool = True
) -> tuple[bytes, bytes, bytes, BrokerAnnotations | None]:
    """Split a payload into header section, head, body and the annotations for its MessageHeader.  Raises DecodeError.

    A body is checked as far as it has no more values than can be converted; receivers of AMQP get it as it is.
    `known`: a likely header section.  `linked`: the sender is a broker's link, whose annotations stay in the head.
    Without `whole` the end of the body is missing.
    """
    if payload.startswith(known):
        header_end = len(known)
        body_at = plain_body(payload, header_end)
        if body_at:
            head = payload[header_end:body_at]
            if len(head) > _PROPERTIES_BYTES_MAX:
                _check_property_count(payload)
            if not (_Q in head and b"_AMQ_" in head):
                return known, head, payload[body_at:], None
    section, head, body, broker_annotations = _take_apart(payload, linked=linked)
    if whole:
        with suppress(TooMany):  # the rest is not looked at: whoever has to decode it tells what is wrong with it
            check_body(body)
    return section, head, body, broker_annotations


def _take_apart(payload: bytes, *, linked: bool) -> tuple[bytes, bytes, bytes, BrokerAnnotations | None]:
    """Split any payload, without the fast path."""
    header_end, begin, end, properties_at, bare_at, body_at = split(payload)
    if body_at - bare_at > _PROPERTIES_BYTES_MAX:
        _check_property_count(payload)
    section = payload[:header_end]
    noted = begin != end and (payload.find(_OBEYED, begin, end) >= 0 or payload.find(_OBEYED_ROUTING, begin, end) >= 0)
    decides = properties_at and has_property(payload, properties_at, ABSOLUTE_EXPIRY, GROUP_ID)
    if noted or decides:
        head, broker_annotations = _special_head(payload, payload[bare_at:body_at], noted=noted, decides=bool(decides))
        return section, without_reserved(head, linked=linked), payload[body_at:], broker_annotations
    if begin == end:
        head = payload[bare_at:body_at]
    elif end == bare_at:
        head = payload[begin:body_at]
    else:
        head = payload[begin:end] + payload[bare_at:body_at]
    others = head.count(_OPTIONAL) if begin != end else 0  # annotations other than those that brokers exchange
    if others and linked:
        others -= head.count(_OF_LINKS)
    if others or (_Q in head and b"_AMQ_" in head):
        head = without_reserved(head, linked=linked)
    return section, head, payload[body_at:], None


def _check_property_count(payload: bytes) -> None:
    """Check that a message does not have too many application properties.  Raises DecodeError."""
    count = Encoded(payload).application_property_count
    if count > APPLICATION_PROPERTIES_MAX:
        why = f"A message has at most {APPLICATION_PROPERTIES_MAX} application properties, this one {count}."
        raise Unacceptable(MESSAGE_SIZE_EXCEEDED, why)


def _special_head(payload: bytes, bare: bytes, *, noted: bool, decides: bool) -> tuple[bytes, BrokerAnnotations]:
    broker_annotations = BrokerAnnotations()
    encoded = Encoded(payload)
    annotations = encoded.section(MESSAGE_ANNOTATIONS)
    if noted:
        annotations = _apply_annotations(broker_annotations, encoded.message_annotations)
    if decides:
        properties = encoded.properties
        broker_annotations.expiration = _time(properties.absolute_expiry_time or 0)
        broker_annotations.group = properties.group_id or ""
        broker_annotations.closes_group = bool(broker_annotations.group) and properties.group_sequence == GROUP_CLOSED
    return annotations + bare, broker_annotations


def _apply_annotations(broker_annotations: BrokerAnnotations, annotations: dict[object, object]) -> bytes:
    """Apply annotations.  Returns the section without delays: a broker that forwards the message would delay it again.

    Raises DecodeError for repeated delivery.
    """
    for name in _REPEATING:
        if annotations.get(name):
            why = f"{name} asks for repeated delivery, which is not supported; a message is delivered once, after"
            raise Unacceptable(NOT_IMPLEMENTED, f"{why} {DELIVERY_DELAY} or at {DELIVERY_TIME}.")
    time, delay = (annotations.get(name) for name in (DELIVERY_TIME, DELIVERY_DELAY))
    if isinstance(time, int):
        broker_annotations.scheduled_time = _time(time)
    if isinstance(delay, int):
        broker_annotations.scheduled_delay = _time(delay)
    routing = annotations.get(ROUTING_TYPE)
    if isinstance(routing, int):
        broker_annotations.routing_type = _ROUTINGS.get(routing)
    left = {name: value for name, value in annotations.items() if name not in _DELAYS}
    return encode_annotations(MESSAGE_ANNOTATIONS, left)


def _time(value: int) -> int:
    """Return a valid time or delay, and as a plain number, since selectors compare nothing else."""
    return int(min(max(value, 0), TIME_MAX))


def make_header(
    section: bytes,
    broker_annotations: BrokerAnnotations | None,
    format: Format,
    routing_type: RoutingType | None,
    *,
    now: int,
    user: str,
    origin: str,
    linked: bool = False,
) -> MessageHeader:
    """Return the header of a message; publishing completes it.  Raises DecodeError.

    `linked`: the message is from another broker's link, so its count of earlier deliveries is trusted.
    """
    durable, priority, ttl = read_header(section)
    expiration = min(now + ttl, TIME_MAX) if ttl else 0
    scheduled = 0
    group, closes_group = "", False
    if broker_annotations is not None:
        expiration = broker_annotations.expiration or expiration
        scheduled = broker_annotations.scheduled_time or (
            now + broker_annotations.scheduled_delay if broker_annotations.scheduled_delay else 0
        )
        group, closes_group = broker_annotations.group, broker_annotations.closes_group
    return MessageHeader(
        "",
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
        attempts=read_attempts(section) if linked else NEW,
    )


@lru_cache(maxsize=1024)
def read_attempts(section: bytes) -> int:
    """Return the failed deliveries that a header section states; NEW if no consumer has had the message.

    Raises DecodeError.
    """
    found = Encoded(section).header
    return NEW if found.first_acquirer and not found.delivery_count else int(found.delivery_count)


@lru_cache(maxsize=1024)
def read_header(section: bytes) -> tuple[bool, int, int]:
    """Return durable, priority (9 at most) and ttl in ms (0: none) of a header section.  Raises DecodeError."""
    found = Encoded(section).header
    return found.durable, int(min(found.priority, _PRIORITY_MAX)), int(found.ttl or 0)


@lru_cache(maxsize=40)
def plain_header(durable: bool, priority: int, first: bool) -> bytes:
    """Encode the header of a message that does not expire and has no failed deliveries."""
    return encode(Header(durable, priority, None, first))


class DeliveryHistory:
    """Earlier deliveries of a queue's messages (3.2.1): `states` of those that failed or may have been processed,
    `acquired` those that came back from a link, as all below `acquired_below` may have done.  `mark`: the property that
    marks the first message of a group for its consumer.
    """

    __slots__ = ("acquired", "acquired_below", "mark", "states")

    def __init__(
        self, states: Mapping[int, DeliveryState], acquired: Collection[int], acquired_below: int, mark: str = ""
    ) -> None:
        self.states = states
        self.acquired = acquired
        self.acquired_below = acquired_below
        self.mark = mark

    def first_acquirer(self, id: int) -> bool:
        """Whether no link has had the message before."""
        return id >= self.acquired_below and id not in self.acquired and id not in self.states


_ALL: Final = 1 << 64
#: The history of browsed messages, which may be in delivery to consumers.
LOOKED_AT: Final = DeliveryHistory({}, frozenset(), _ALL)


def past_of(queue: Queue) -> DeliveryHistory:
    """Return the history of a queue; any consumer may have had the messages of a non-destructive one."""
    below = _ALL if queue.non_destructive else queue.acquired_below
    return DeliveryHistory(queue.states, queue.acquired, below, queue.attributes.group_first_key)


class Encoder:
    """Encodes messages for one link; the part that messages with the same header share is made once.

    Messages of the format `_as_they_came` without annotations of the broker are sent unchanged.
    """

    __slots__ = ("_again", "_first", "_header", "_mark", "_now", "_replies", "_rewrites")

    _as_they_came: ClassVar[int] = AMQP_FORMAT

    def __init__(self, replies: ReplyPrefixes) -> None:
        self._replies = replies
        self._header: MessageHeader | None = None
        self._first = self._again = b""  # header sections: for the first acquirer, and for others
        self._rewrites = False  # messages with this header are not sent unchanged
        self._now = 0
        self._mark = ""

    def encode(
        self, messages: list[Message], past: DeliveryHistory, now: int, bytes_max: int | None
    ) -> tuple[list[bytes], list[Refusal], int]:
        """Return the payloads of messages; those that cannot be sent, and why; and how many were processed: it stops at
        a message whose body is in a file.
        """
        self._now = now
        self._mark = past.mark
        try:
            return self._encode(messages, self.history(past), bytes_max)
        except Exception as error:  # a bug of ours must cost one message only: try one by one
            if len(messages) == 1:
                return [], [(messages[0], rendering_error(error))], 1
        payloads: list[bytes] = []
        refused: list[Refusal] = []
        for at, message in enumerate(messages):
            one, why, processed = self.encode([message], past, now, bytes_max)
            if not processed:
                return payloads, refused, at
            payloads += one
            refused += why
        return payloads, refused, len(messages)

    def _encode(
        self, messages: list[Message], past: DeliveryHistory, bytes_max: int | None
    ) -> tuple[list[bytes], list[Refusal], int]:
        payloads: list[bytes] = []
        refused: list[Refusal] = []
        states = past.states
        known = past.acquired_below or past.acquired  # else all have their first acquirer
        as_they_came = self._as_they_came
        for message in messages:
            header = message.header
            if header is not self._header:
                self._header = header
                self._first = plain_header(header.durable, header.priority, True)
                self._again = plain_header(header.durable, header.priority, False)
                self._rewrites = bool(header.annotations) or header.format.number != as_they_came
            section = self._first
            if known and not past.first_acquirer(message.id):
                section = self._again
            if (states and message.id in states) or header.expiration:
                section = self._own_header(message, past)
            body = message.body
            if not isinstance(body, bytes):
                return payloads, refused, messages.index(message)
            if self._rewrites:
                try:
                    payload = section + self.rewritten(message)
                except ConversionError as error:
                    refused.append((message, error))
                    continue
            else:
                payload = b"%b%b%b" % (section, message.head, body)
            if bytes_max is not None and len(payload) > bytes_max:
                why = f"{len(payload)} bytes, but the receiver accepts {bytes_max}"
                refused.append((message, ConversionError(why, DeadLetterReason.TOO_LARGE)))
                continue
            payloads.append(payload)
        return payloads, refused, len(messages)

    def encode_alone(self, message: Message, past: DeliveryHistory, now: int) -> bytes:
        """Return the payload of one message of any size.  Raises ConversionError."""
        self._now = now
        self._mark = past.mark
        return self._own_header(message, self.history(past)) + self.rewritten(message)

    def _own_header(self, message: Message, past: DeliveryHistory) -> bytes:
        header = message.header
        ttl = min(max(header.expiration - self._now, 1), _TTL_MAX) if header.expiration else 0
        attempts = self.attempts(past.states.get(message.id))
        return encode(Header(header.durable, header.priority, ttl or None, past.first_acquirer(message.id), attempts))

    def history(self, past: DeliveryHistory) -> DeliveryHistory:
        """Return the part of a queue's history that the receiver gets."""
        return past

    def attempts(self, state: DeliveryState | None) -> int:
        """Return the delivery-count of a message: at least 1 for a redelivery, even if none counts as failed."""
        return max(state.count, 1) if state else 0

    def rewritten(self, message: Message) -> bytes:
        """Return everything after the header, with the broker's annotations.  Raises ConversionError."""
        noted = message.header.annotations
        payload = as_amqp(message, self._replies, self._mark)
        return payload if not noted else annotated(message.header, payload, lambda own: own | typed_notes(noted))


def as_amqp(message: Message, replies: ReplyPrefixes, mark: str) -> bytes:
    """Return everything after the header, without the broker's annotations.  Raises ConversionError."""
    if message.header.format.number == AMQP_FORMAT:
        return message.head + whole(message)
    return to_amqp(message, replies, mark)


def typed_notes(annotations: Annotations) -> dict[object, object]:
    """Return the broker's annotations as message annotations."""
    return {annotation_name(name): _typed(value) for name, value in annotations.items()}


def annotated(
    header: MessageHeader, payload: bytes, annotate: Callable[[dict[object, object]], dict[object, object]]
) -> bytes:
    """Replace a payload's message annotations by what `annotate` makes of them.  Raises ConversionError."""
    try:
        encoded = Encoded(payload)
        annotations = annotate(encoded.message_annotations)
        moved = header.annotations is not None and ORIG_ADDRESS in header.annotations
        bare = _expiring_anew(encoded, header) if moved else encoded.bare
        return encode_annotations(MESSAGE_ANNOTATIONS, annotations) + bare
    except DecodeError as error:
        raise ConversionError(f"not an AMQP message: {error.description}") from error


def _expiring_anew(encoded: Encoded, header: MessageHeader) -> bytes:
    """Return the bare message of one that the broker moved, with the expiry time of its new address, or none.

    Receivers drop messages past their absolute-expiry-time, so an expiry queue could not be read.  Raises DecodeError.
    """
    properties = encoded.properties
    if properties.absolute_expiry_time is None:
        return encoded.bare
    expires = Timestamp(header.expiration) if header.expiration else None
    changed = encode(replace(properties, absolute_expiry_time=expires))
    return changed + encoded.bare[len(encoded.section(PROPERTIES)) :]


def notes_of(message: Message, annotations: Mapping[str, object]) -> Annotations:
    """The annotations of a receiver's `modified` that a message keeps until the broker restarts, or for as long as it
    is a dead letter: texts and numbers.  Names that the specification reserves (part 3, 3.2.10) are ignored, as they
    could be those of the sender's headers in another protocol.  So are the broker's own names.
    """
    before = message.header.annotations or {}
    room = ANNOTATIONS_CHARS_MAX - sum([len(name) + len(str(value)) for name, value in before.items()])
    noted: Annotations = {}
    for name, value in annotations.items():
        if not isinstance(value, str | int) or not name.startswith(_UNRESERVED):
            continue
        if not name.startswith(RESERVED_ANNOTATIONS) and len(name) + len(str(value)) <= room:
            room -= len(name) + len(str(value))
            noted[str(name)] = _plain(value)
    return noted


#: The names of the types of texts and numbers other than string, long and boolean, and the types by name.
_NAMES: Final = {
    kind: name for kind, name in NAMES.items() if issubclass(kind, str | int) and kind not in (str, int, bool)
}
_TYPES: Final[dict[str, type]] = {name: kind for kind, name in _NAMES.items()}


def _plain(value: str | int) -> str | int:
    """Return a text or a number as an annotation with its type."""
    name = _NAMES.get(type(value))
    return value if name is None else typed(value, name)


def _typed(value: str | int) -> object:
    """Return an annotation as a value of AMQP: of its own type, or of one that can hold it."""
    if isinstance(value, TypedInt | TypedText):
        found: object = _TYPES.get(value.type, str)(value)
        with suppress(ValueError, TypeError):
            encode(found)
            return found
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):  # separate: compiled code would return the bool as an int
        return value
    if -(2**63) <= value < 2**63:
        return value
    return ULong(value) if 0 <= value < 2**64 else str(value)
