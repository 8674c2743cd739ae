"""Converts messages between protocols, by way of one neutral form.

A message that was received through one protocol and is sent through another is read into a Neutral and written from it.

    neutral           STOMP                              AMQP                               MQTT 5
    text              body without content-length        amqp-value, a string               payload format indicator 1
    bytes             body with content-length           data                               payload
    value             JSON, type application/json        any other value, sequences         JSON, application/json
    content type      content-type                       properties.content-type            content type
    correlation id    correlation-id                     properties.correlation-id          correlation data
    reply to          reply-to                           properties.reply-to                response topic
    type              type                               properties.subject                 user property JMSType
    group             JMSXGroupID                        properties.group-id                user property JMSXGroupID
    its sequence      JMSXGroupSeq                       properties.group-sequence          user property JMSXGroupSeq
    message id        NATIVE_MESSAGE_ID                  properties.message-id              -
    user id           JMSXUserID, if sent anonymously    properties.user-id                 -
    created           timestamp                          properties.creation-time           -
    content encoding  JMS_AMQP_ContentEncoding           properties.content-encoding        as in STOMP
    reply-to group    JMS_AMQP_ReplyToGroupID            properties.reply-to-group-id       as in STOMP
    properties        all other headers                  application-properties             user properties

A trace context (`traceparent`, `tracestate`) is a property like any other.

A reply-to keeps its routing type: a prefix of one protocol (`/queue/`, `queue://`), or the annotation of a JMS client,
becomes a prefix of the acceptor through which the message is sent.  A reply-to without a routing type is copied as it
is.  A response topic is converted between topic and address.  Of user properties with the same name the last one
counts.  MQTT before 5 has only the payload.

Priority, expiration, durability and the broker's annotations are in the message header, which every protocol has.

Values that the target protocol cannot carry are left out, and the body is still delivered.  A content type that is not
ASCII becomes an application property in AMQP, since symbols are ASCII.  A text of more than 65,535 bytes or with U+0000
is not sent to MQTT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from broker.engine import DeadLetterReason, Unreadable, read_whole_body
from broker.engine.model.message import RESERVED_PREFIXES, Message, RoutingType
from broker.engine.model.names import is_temporary
from broker.engine.model.notes import NOTIFICATIONS
from broker.sessions.amqp.format import AMQP_FORMAT, CONTENT_ENCODING, REPLY_TO_GROUP_ID, AmqpFormat
from broker.sessions.amqp.link_id import HOPS as AMQP_HOPS
from broker.sessions.amqp.link_id import hops_of
from broker.sessions.message_ids import correlation_data, correlation_text, id_of, id_text
from broker.sessions.mqtt.format import HOPS as MQTT_HOPS
from broker.sessions.mqtt.format import MQTT_FORMAT, read_properties, reply_to_of
from broker.sessions.plain_values import header_text, to_json
from broker.sessions.reply_to import JMS_KINDS, JMS_REPLY_TO, split_reply_to
from broker.sessions.stomp.format import BROKERS, STOMP_FORMAT, StompFormat, encode_head, header_pairs
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError, TooMany
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    MESSAGE_ANNOTATIONS,
    encode_annotations,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Properties
from protocols.amqp.types import Byte
from protocols.mqtt.fields import STRING_BYTES_MAX, acceptable, is_text
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    PAYLOAD_FORMAT_INDICATOR,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    Property,
)
from protocols.mqtt.properties import Properties as MqttProperties
from protocols.mqtt.topics import AddressSyntax

JSON_TYPE: Final = "application/json"

#: Prefixes of the acceptor through which a message is sent, indexed by RoutingType: multicast, anycast; empty if none.
ReplyPrefixes = tuple[str, str]

#: The trace context of a message, as W3C names it.  An intermediary between an AMQP sender and the broker must not
#: change the application properties, but may set its own trace context as an annotation, which then takes precedence.
TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"

#: The names of message annotations that are converted, as they are in a head.
_JMS_REPLY_TO: Final = JMS_REPLY_TO.encode()
_TRACE_PARENT: Final = TRACE_PARENT.encode()
_AMQP_HOPS: Final = AMQP_HOPS.encode()

_UINT_MAX: Final = 0xFFFF_FFFF

#: A sequence in a group, as text.
_SEQUENCE: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII).fullmatch

#: Largest body, in bytes, that is read into memory for conversion, which needs several times as much for a moment.
CONVERTED_BYTES_MAX: Final = 10 << 20

#: The least bytes in memory of a message whose conversion is kept for its other receivers, and the most of all whose
#: conversions are kept, for each protocol: they stay until others take their place.
CACHED_FROM_BYTES: Final = 4 << 10
CACHED_BYTES_MAX: Final = 2 << 20


class ConversionError(Exception):
    """A message that cannot be expressed in another protocol or sent to this receiver; the text says why.

    `passing`: only at the moment, since its body cannot be read.
    """

    def __init__(
        self, why: str, reason: DeadLetterReason = DeadLetterReason.DECODE_ERROR, *, passing: bool = False
    ) -> None:
        super().__init__(why)
        self.reason = reason
        self.passing = passing


class TooManyHops(ConversionError):
    """A message that has passed more brokers than permitted: it probably travels in a loop."""

    def __init__(self, hops: int, most: int) -> None:
        super().__init__(f"it has passed {hops} brokers, and max-hops is {most}", DeadLetterReason.LINK_HOPS)


class RenderingFailed(ConversionError):
    """An unexpected error of the broker: only this message is not delivered."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"an error of the broker, {type(error).__name__}: {error}")
        self.__cause__ = error


def rendering_error(error: Exception) -> ConversionError:
    """Return the reason why a message could not be rendered as a ConversionError."""
    return error if isinstance(error, ConversionError) else RenderingFailed(error)


#: A message that cannot be rendered, and why.
Refusal = tuple[Message, ConversionError]


@dataclass(slots=True)
class Neutral:
    """A message in no protocol's encoding.  `body` is text, bytes, or a value of any other type."""

    body: object = b""
    content_type: str = ""
    correlation_id: str = ""  # as `id_text` writes it
    reply_to: str = ""  # an address
    reply_routing: RoutingType | None = None
    type: str = ""
    group: str = ""
    sequence: int | None = None  # in the group, -1: the last
    message_id: str = ""
    user_id: str = ""
    created: int | None = None
    properties: dict[str, object] = field(default_factory=dict)
    hops: list[str] = field(default_factory=list)  # the brokers that it has passed through


def to_amqp(message: Message, prefixes: ReplyPrefixes, mark: str = "") -> bytes:
    """Return annotations (hops, a reply-to's kind for JMS), properties, application properties and body, encoded.

    `mark`: the name of a property by which the broker marks messages, which is true.  Raises ConversionError.
    """
    neutral = _read(message)
    if mark and neutral.properties.get(mark) == "true":
        neutral.properties[mark] = True
    header = message.header
    if not neutral.content_type.isascii():
        neutral.properties.setdefault("content-type", neutral.content_type)
        neutral.content_type = ""
    encoding = neutral.properties.get(CONTENT_ENCODING)
    if isinstance(encoding, str) and encoding.isascii():
        del neutral.properties[CONTENT_ENCODING]
    else:
        encoding = None
    reply_to_group = neutral.properties.pop(REPLY_TO_GROUP_ID, None)
    properties = Properties(
        message_id=f"ID:{message.id}",
        user_id=header.user.encode() or None,
        to=header.address,
        subject=neutral.type or None,
        reply_to=_reply_to(neutral, prefixes) or None,
        correlation_id=id_of(neutral.correlation_id) if neutral.correlation_id else None,
        content_type=neutral.content_type or None,
        content_encoding=encoding,
        absolute_expiry_time=header.expiration or None,
        creation_time=header.timestamp,
        group_id=neutral.group or None,
        group_sequence=None if neutral.sequence is None else neutral.sequence & _UINT_MAX,
        reply_to_group_id=None if reply_to_group is None else str(reply_to_group),
    )
    kind = DATA if isinstance(neutral.body, bytes) else AMQP_VALUE
    application = encode_application_properties(neutral.properties)
    noted: dict[object, object] = {AMQP_HOPS: neutral.hops} if neutral.hops else {}
    if neutral.reply_routing is not None:
        noted[JMS_REPLY_TO] = Byte(JMS_KINDS.index((neutral.reply_routing, is_temporary(neutral.reply_to))))
    section = encode_annotations(MESSAGE_ANNOTATIONS, noted) if noted else b""
    return section + encode(properties) + application + encode_section(kind, neutral.body)


T = TypeVar("T")


class _ConversionCache(Generic[T]):
    """The last conversions of large messages, or their errors: many subscriptions of one topic cost one of each.

    They are found by header, head and body, which all copies of a message share, and held with them, so that the ids
    stay theirs.  For small messages it is not worth it; a body in a file may be many times larger than in memory.
    """

    __slots__ = ("_bytes", "_found")

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int, object], tuple[object, T | ConversionError]] = {}
        self._bytes = 0

    def get(self, message: Message, prefixes: object, convert: Callable[[], T]) -> T:
        """Return a message's conversion with these prefixes.  Raises ConversionError."""
        header, head, body, size = message.header, message.head, message.body, message.size
        if not CACHED_FROM_BYTES <= size <= CACHED_BYTES_MAX or not isinstance(body, bytes):
            return convert()
        key = (id(header), id(head), id(body), prefixes)
        known = self._found.get(key)
        made = self._convert(key, message, convert) if known is None else known[1]
        if isinstance(made, ConversionError):
            raise made.with_traceback(None)
        return made

    def _convert(
        self, key: tuple[int, int, int, object], message: Message, convert: Callable[[], T]
    ) -> T | ConversionError:
        made: T | ConversionError
        try:
            made = convert()
        except ConversionError as error:
            if error.passing:
                raise
            made, error.__cause__, error.__context__ = error, None, None  # they hold what was being decoded
        size = message.size
        if self._bytes + size > CACHED_BYTES_MAX:
            self._found.clear()
            self._bytes = 0
        self._found[key] = (message.header, message.head, message.body), made
        self._bytes += size
        return made


def to_stomp(message: Message, prefixes: ReplyPrefixes) -> tuple[bytes, bytes]:
    """Return head and body in STOMP's encoding.  Raises ConversionError."""
    return _STOMP_CACHE.get(message, prefixes, lambda: _to_stomp(message, prefixes))


def to_mqtt(message: Message) -> tuple[MqttProperties, bytes]:
    """Return properties of MQTT 5 and payload.  Raises ConversionError."""
    return _MQTT_CACHE.get(message, None, lambda: _to_mqtt(message))


_STOMP_CACHE: Final = _ConversionCache[tuple[bytes, bytes]]()
_MQTT_CACHE: Final = _ConversionCache[tuple[MqttProperties, bytes]]()


def _to_stomp(message: Message, prefixes: ReplyPrefixes) -> tuple[bytes, bytes]:
    neutral, reserved = _read(message), _reserved(message)
    pairs: list[tuple[bytes, bytes]] = []
    body = neutral.body
    if isinstance(body, str):
        data = body.encode()
        sized = b"\0" in data
    elif isinstance(body, bytes):
        data, sized = body, True
    else:
        data, sized = to_json(body), False
        neutral.content_type = JSON_TYPE
    header = message.header
    named = {
        "timestamp": str(header.timestamp if neutral.created is None else int(neutral.created)),
        "NATIVE_MESSAGE_ID": neutral.message_id,
        "JMSXUserID": "" if header.user else neutral.user_id,  # the session adds a user who logged in
        "content-type": neutral.content_type,
        "correlation-id": neutral.correlation_id,
        "reply-to": _reply_to(neutral, prefixes),
        "type": neutral.type,
        "JMSXGroupID": neutral.group,
    }
    if neutral.sequence is not None:
        named["JMSXGroupSeq"] = str(neutral.sequence)
    pairs += [(name.encode(), value.encode()) for name, value in named.items() if value]
    if sized:
        pairs.append((b"content-length", b"%d" % len(data)))
    pairs += [
        (name.encode(), header_text(value).encode())
        for name, value in neutral.properties.items()
        if name and name not in named and name != "content-length" and not name.startswith(reserved)
        if name.encode() not in BROKERS
    ]
    return encode_head(pairs), data


def _to_mqtt(message: Message) -> tuple[MqttProperties, bytes]:
    neutral = _read(message)
    pairs: list[tuple[Property[Any], Any]] = []
    body = neutral.body
    if isinstance(body, bytes):
        data = body
    else:
        pairs.append((PAYLOAD_FORMAT_INDICATOR, 1))
        if isinstance(body, str):
            data = body.encode()
        else:
            data = to_json(body)
            neutral.content_type = JSON_TYPE
    response = _SYNTAX.to_topic(neutral.reply_to) or ""
    correlation = correlation_data(neutral.correlation_id)
    for property, text in ((CONTENT_TYPE, acceptable(neutral.content_type)), (RESPONSE_TOPIC, acceptable(response))):
        if text and is_text(text):
            pairs.append((property, text))
    if 0 < len(correlation) <= STRING_BYTES_MAX:
        pairs.append((CORRELATION_DATA, correlation))
    sequence = "" if neutral.sequence is None else str(neutral.sequence)
    user = {"JMSType": neutral.type, "JMSXGroupID": neutral.group, "JMSXGroupSeq": sequence}
    named: dict[str, object] = {name: text for name, text in user.items() if text}
    reserved = _reserved(message)
    others = {name: value for name, value in neutral.properties.items() if not name.startswith(reserved)}
    pairs += user_properties(named | others | named)
    pairs += [(USER_PROPERTY, (MQTT_HOPS, each)) for each in neutral.hops if is_text(each)]
    return MqttProperties(pairs), data


def user_properties(properties: Mapping[str, object]) -> list[tuple[Property[Any], Any]]:
    """Convert properties to user properties of MQTT 5, except those that it cannot carry."""
    texts = [(acceptable(name), acceptable(header_text(value))) for name, value in properties.items()]
    return [(USER_PROPERTY, pair) for pair in texts if is_text(pair[0]) and is_text(pair[1])]


def _reserved(message: Message) -> tuple[str, ...]:
    """Return prefixes of names that only the broker may set; notifications come from the broker itself."""
    return () if message.header.address == NOTIFICATIONS else RESERVED_PREFIXES


def whole(message: Message) -> bytes:
    """Return the body, in memory.  Raises ConversionError if it is too large or cannot be read."""
    body = message.body
    if isinstance(body, bytes):
        return body
    if len(body) > CONVERTED_BYTES_MAX:
        raise ConversionError(
            f"a body of {len(body)} bytes; at most {CONVERTED_BYTES_MAX} can be converted", DeadLetterReason.TOO_LARGE
        )
    try:
        return read_whole_body(body)
    except Unreadable as error:
        raise ConversionError(str(error), passing=error.passing) from error


def _read(message: Message) -> Neutral:
    return _READERS[message.header.format.number](message)


def _from_stomp(message: Message) -> Neutral:
    neutral = Neutral()
    sized = False
    for name, value in header_pairs(message.head):
        text = value.decode()
        attribute = _STOMP_NAMES.get(name)
        if attribute is not None:
            setattr(neutral, attribute, text)
        elif name == b"content-length":
            sized = True
        elif name in _STOMP_SEQUENCES and (sequence := _sequence(text)) is not None:
            neutral.sequence = sequence
        else:
            neutral.properties[name.decode()] = text
    neutral.body = body = whole(message)
    if not sized:
        with suppress(UnicodeDecodeError):  # else it is binary, and the sender omitted content-length
            neutral.body = body.decode()
    format = message.header.format
    assert isinstance(format, StompFormat)
    neutral.reply_to, neutral.reply_routing = split_reply_to(neutral.reply_to, format.prefixes)
    return neutral


def _sequence(text: str) -> int | None:
    """Return the sequence in a group that a text states, None if it states none."""
    if _SEQUENCE(text) is None:
        return None
    number = int(text)
    return _signed(number) if -(1 << 31) <= number <= _UINT_MAX else None


def _signed(number: int) -> int:
    """Return a sequence as clients of JMS know it: -1 for 4294967295."""
    return int(number) - (_UINT_MAX + 1) if number > _UINT_MAX >> 1 else int(number)


def _reply_to(neutral: Neutral, prefixes: ReplyPrefixes) -> str:
    """Return the reply-to with a prefix of the acceptor."""
    if not neutral.reply_to or neutral.reply_routing is None:
        return neutral.reply_to
    return prefixes[neutral.reply_routing] + neutral.reply_to


_STOMP_NAMES: Final = {
    b"content-type": "content_type",
    b"correlation-id": "correlation_id",
    b"reply-to": "reply_to",
    b"type": "type",
    b"JMSXGroupID": "group",
    b"_AMQ_GROUP_ID": "group",
}
_STOMP_SEQUENCES: Final = (b"JMSXGroupSeq", b"_AMQ_GROUP_SEQUENCE")


def _is_noted(head: bytes) -> bool:
    """Whether a head may have message annotations that are converted.  Three searches are faster than one pattern."""
    return _JMS_REPLY_TO in head or _TRACE_PARENT in head or _AMQP_HOPS in head


def _from_amqp(message: Message) -> Neutral:
    encoded = Encoded(message.head + whole(message))
    try:
        properties = encoded.properties
        application = encoded.application_properties
        kind, values = encoded.body()
        noted = encoded.message_annotations if _is_noted(message.head) else {}
    except TooMany as error:
        raise ConversionError(f"too costly to convert: {error.description}", DeadLetterReason.TOO_LARGE) from error
    except DecodeError as error:
        raise ConversionError(f"not an AMQP message: {error.description}") from error
    format = message.header.format
    assert isinstance(format, AmqpFormat)
    reply_to, routing = format.reply_to_of(properties.reply_to or "", noted)
    return Neutral(
        body=_amqp_body(kind, values),
        content_type=properties.content_type or "",
        correlation_id="" if properties.correlation_id is None else id_text(properties.correlation_id),
        reply_to=reply_to,
        reply_routing=routing,
        type=properties.subject or "",
        group=properties.group_id or "",
        sequence=None if properties.group_sequence is None else _signed(properties.group_sequence),
        message_id="" if properties.message_id is None else id_text(properties.message_id),
        user_id=(properties.user_id or b"").decode("utf-8", "replace"),
        created=properties.creation_time,
        properties=_amqp_properties(properties, application, noted),
        hops=hops_of(message.head),
    )


def _amqp_properties(
    bare: Properties, application: Mapping[object, object], noted: Mapping[object, object]
) -> dict[str, object]:
    properties = {str(name): value for name, value in application.items()}
    if bare.content_encoding is not None:
        properties.setdefault(CONTENT_ENCODING, bare.content_encoding)
    if bare.reply_to_group_id is not None:
        properties.setdefault(REPLY_TO_GROUP_ID, bare.reply_to_group_id)
    if TRACE_PARENT in noted:
        properties.pop(TRACE_STATE, None)
        properties |= {name: noted[name] for name in (TRACE_PARENT, TRACE_STATE) if name in noted}
    return properties


def _amqp_body(kind: int, values: list[object]) -> object:
    if kind == DATA:
        return b"".join(value for value in values if isinstance(value, bytes))
    if kind == AMQP_SEQUENCE:
        return [item for value in values if isinstance(value, list) for item in value]
    value = values[0] if values else None
    return b"" if value is None else value


def _from_mqtt(message: Message) -> Neutral:
    properties = read_properties(message.head)
    body = whole(message)
    neutral = Neutral(
        body=body,
        content_type=properties.get(CONTENT_TYPE) or "",
        correlation_id=correlation_text(properties.get(CORRELATION_DATA) or b""),
    )
    neutral.reply_to, neutral.reply_routing = reply_to_of(properties)
    for name, value in properties.get_all(USER_PROPERTY):
        attribute = _MQTT_NAMES.get(name)
        if attribute is not None:
            setattr(neutral, attribute, value)
        elif name == MQTT_HOPS:
            neutral.hops.append(value)
        elif name == "JMSXGroupSeq" and (sequence := _sequence(value)) is not None:
            neutral.sequence = sequence
        else:
            neutral.properties[name] = value
    if properties.get(PAYLOAD_FORMAT_INDICATOR):
        with suppress(UnicodeDecodeError):  # else it is binary, whatever the sender claims
            neutral.body = body.decode()
    return neutral


_MQTT_NAMES: Final = {"JMSType": "type", "JMSXGroupID": "group"}

_SYNTAX: Final = AddressSyntax()

_READERS: Final = {STOMP_FORMAT: _from_stomp, AMQP_FORMAT: _from_amqp, MQTT_FORMAT: _from_mqtt}
