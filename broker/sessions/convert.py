"""From one protocol's messages to another's: the one neutral place.

A message that leaves by another protocol than it came by is read into a Neutral and written from it.

    neutral           STOMP                              AMQP                               MQTT 5
    text              body without content-length        amqp-value, a string               payload format indicator 1
    bytes             body with content-length           data                               payload
    value             JSON, type application/json        any other value, sequences         JSON, application/json
    content type      content-type                       properties.content-type            content type
    correlation id    correlation-id                     properties.correlation-id          correlation data
    reply to          reply-to                           properties.reply-to                response topic
    type              type                               properties.subject                 user property JMSType
    group             JMSXGroupID                        properties.group-id                user property JMSXGroupID
    properties        all other headers                  application-properties             user properties

A reply-to loses the prefix of its protocol (`/queue/`, `queue://`), which would be part of the name in another: what is
sent to the address that is left goes to what is there.  A response topic is a topic: as a reply-to it is the address of
that topic, and the other way round.  Of user properties with the same name the last one counts.  MQTT before 5 has the
payload and nothing else.

Priority, expiration, durability and the broker's annotations are facts, which every protocol has.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from broker.engine.bodies import Unreadable, read_whole
from broker.engine.message import RESERVED_PREFIXES, Message
from broker.engine.notes import NOTIFICATIONS
from broker.sessions.amqp_format import AMQP_FORMAT, AmqpFormat, id_text
from broker.sessions.mqtt_format import MQTT_FORMAT, correlation_text, read_properties
from broker.sessions.stomp_format import STOMP_FORMAT, StompFormat, encode_head, header_pairs
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import AMQP_SEQUENCE, AMQP_VALUE, DATA, encode_application_properties, encode_section
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Properties
from protocols.amqp.types import Array, Described, Pairs, Timestamp
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

#: Bytes of a body that is taken into memory to be converted: several times as much is needed for a moment.
CONVERTED_BYTES_MAX: Final = 10 << 20


class ConversionError(Exception):
    """A message that cannot be said in another protocol; the text says why, `too_large` if it is its size."""

    def __init__(self, why: str, *, too_large: bool = False) -> None:
        super().__init__(why)
        self.too_large = too_large


@dataclass(slots=True)
class Neutral:
    """A message in no protocol's encoding.  `body` is text, bytes, or a value of any other type."""

    body: object = b""
    content_type: str = ""
    correlation_id: str = ""
    reply_to: str = ""
    type: str = ""
    group: str = ""
    properties: dict[str, object] = field(default_factory=dict)


def to_amqp(message: Message) -> bytes:
    """Properties, application properties and body in AMQP's encoding.  Raises ConversionError."""
    neutral = _read(message)
    facts = message.facts
    properties = Properties(
        message_id=f"ID:{message.id}",
        user_id=facts.user.encode() or None,
        to=facts.address,
        subject=neutral.type or None,
        reply_to=neutral.reply_to or None,
        correlation_id=neutral.correlation_id or None,
        content_type=neutral.content_type or None,
        absolute_expiry_time=facts.expiration or None,
        creation_time=facts.timestamp,
        group_id=neutral.group or None,
    )
    kind = DATA if isinstance(neutral.body, bytes) else AMQP_VALUE
    application = encode_application_properties(neutral.properties)
    return encode(properties) + application + encode_section(kind, neutral.body)


def to_stomp(message: Message) -> tuple[bytes, bytes]:
    """Head and body in STOMP's encoding.  Raises ConversionError."""
    neutral, reserved = _read(message), _reserved(message)
    pairs: list[tuple[bytes, bytes]] = []
    body = neutral.body
    if isinstance(body, str):
        data = body.encode()
        sized = b"\0" in data
    elif isinstance(body, bytes):
        data, sized = body, True
    else:
        data, sized = _json(body), False
        neutral.content_type = JSON_TYPE
    named = {
        "content-type": neutral.content_type,
        "correlation-id": neutral.correlation_id,
        "reply-to": neutral.reply_to,
        "type": neutral.type,
        "JMSXGroupID": neutral.group,
    }
    pairs += [(name.encode(), value.encode()) for name, value in named.items() if value]
    if sized:
        pairs.append((b"content-length", b"%d" % len(data)))
    pairs += [
        (name.encode(), _header_text(value).encode())
        for name, value in neutral.properties.items()
        if name and name not in named and name != "content-length" and not name.startswith(reserved)
    ]
    return encode_head(pairs), data


def to_mqtt(message: Message) -> tuple[MqttProperties, bytes]:
    """Properties of MQTT 5 and payload.  Raises ConversionError."""
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
            data = _json(body)
            neutral.content_type = JSON_TYPE
    response = _SYNTAX.to_topic(neutral.reply_to) if neutral.reply_to else None
    correlation = neutral.correlation_id.encode()
    named: list[tuple[Property[Any], Any]] = [
        (CONTENT_TYPE, neutral.content_type),
        (RESPONSE_TOPIC, response),
        (CORRELATION_DATA, correlation),
        (USER_PROPERTY, ("JMSType", neutral.type) if neutral.type else None),
        (USER_PROPERTY, ("JMSXGroupID", neutral.group) if neutral.group else None),
    ]
    pairs += [(property, value) for property, value in named if value]
    pairs += [
        (USER_PROPERTY, (name, _header_text(value)))
        for name, value in neutral.properties.items()
        if not name.startswith(_reserved(message))
    ]
    try:
        return MqttProperties(pairs), data
    except ValueError as error:
        raise ConversionError(f"MQTT cannot say its properties: {error}") from error


def _reserved(message: Message) -> tuple[str, ...]:
    """Beginnings of names that only the broker says; notifications are its own words."""
    return () if message.facts.address == NOTIFICATIONS else RESERVED_PREFIXES


def whole(message: Message) -> bytes:
    """The body, in memory.  Raises ConversionError for one that is too large for that."""
    body = message.body
    if isinstance(body, bytes):
        return body
    if len(body) > CONVERTED_BYTES_MAX:
        raise ConversionError(
            f"a body of {len(body)} bytes, and {CONVERTED_BYTES_MAX} can be converted", too_large=True
        )
    try:
        return read_whole(body)
    except Unreadable as error:
        raise ConversionError(str(error)) from error


def _read(message: Message) -> Neutral:
    reader = _READERS.get(message.facts.format.number)
    if reader is None:
        raise ConversionError(f"no way from {message.facts.format.name}")
    return reader(message)


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
        else:
            neutral.properties[name.decode()] = text
    neutral.body = body = whole(message)
    if not sized:
        with suppress(UnicodeDecodeError):  # else these are bytes, whatever their sender forgot to say
            neutral.body = body.decode()
    neutral.reply_to = _address(neutral.reply_to, message)
    return neutral


def _address(reply_to: str, message: Message) -> str:
    """The address that a reply-to of STOMP or AMQP names."""
    format = message.facts.format
    assert isinstance(format, StompFormat | AmqpFormat)
    prefix = next((prefix for prefix in format.prefixes if reply_to.startswith(prefix)), "")
    return reply_to.removeprefix(prefix)


_STOMP_NAMES: Final = {
    b"content-type": "content_type",
    b"correlation-id": "correlation_id",
    b"reply-to": "reply_to",
    b"type": "type",
    b"JMSXGroupID": "group",
}


def _from_amqp(message: Message) -> Neutral:
    encoded = Encoded(message.head + whole(message))
    try:
        properties = encoded.properties
        application = encoded.application_properties
        kind, values = encoded.body()
    except DecodeError as error:
        raise ConversionError(f"not an AMQP message: {error.description}") from error
    return Neutral(
        body=_amqp_body(kind, values),
        content_type=properties.content_type or "",
        correlation_id=id_text(properties.correlation_id) or "",
        reply_to=_address(properties.reply_to or "", message),
        type=properties.subject or "",
        group=properties.group_id or "",
        properties={str(name): value for name, value in application.items()},
    )


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
        reply_to=_SYNTAX.to_address(properties.get(RESPONSE_TOPIC) or ""),
    )
    for name, value in properties.get_all(USER_PROPERTY):
        attribute = _MQTT_NAMES.get(name)
        if attribute is not None:
            setattr(neutral, attribute, value)
        else:
            neutral.properties[name] = value
    if properties.get(PAYLOAD_FORMAT_INDICATOR):
        with suppress(UnicodeDecodeError):  # else these are bytes, whatever their sender said
            neutral.body = body.decode()
    return neutral


_MQTT_NAMES: Final = {"JMSType": "type", "JMSXGroupID": "group"}

_SYNTAX: Final = AddressSyntax()

_READERS: Final = {STOMP_FORMAT: _from_stomp, AMQP_FORMAT: _from_amqp, MQTT_FORMAT: _from_mqtt}


def _header_text(value: object) -> str:
    """A property as a header: absent values are empty, truth is lower-case, bytes are base64."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _json(value: object) -> bytes:
    """A compound value as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: object) -> object:
    """A value as JSON has it: times are numbers, bytes base64, whatever else has no counterpart text."""
    if value is None or isinstance(value, bool | int | float):
        return int(value) if isinstance(value, Timestamp) else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {_header_text(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Pairs):
        return [[_plain(key), _plain(each)] for key, each in value.pairs]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Array):
        return [_plain(each) for each in value.items]
    if isinstance(value, Described):
        return _plain(value.value)
    return str(value)
