"""AMQP's encoding of application headers, and the property names that selectors see in AMQP messages.

`head` is message annotations, properties and application properties, unchanged (see `message`).  Plain names are
application properties; JMS's names stand for properties, `m.NAME` for message annotations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from broker.engine.model.message import (
    INGRESS_TIMESTAMP,
    RESERVED_PREFIXES,
    Annotations,
    Body,
    ReplyTo,
    RoutingType,
    Value,
)
from broker.sessions.amqp.link_id import PREFIX, hops_of
from broker.sessions.message_ids import id_text
from broker.sessions.plain_values import to_json
from broker.sessions.reply_to import JMS_KINDS, JMS_REPLY_TO, split_reply_to
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Message,
    encode_annotations,
    encode_application_properties,
    encode_section,
)
from protocols.amqp.performatives import MessageId, Properties
from protocols.amqp.types import Byte

AMQP_FORMAT: Final = 2

#: A selector on message annotations: "m.x-opt-delivery-time".
_ANNOTATION: Final = "m."
_BROKERS: Final = "_AMQ_"
_OPTIONAL: Final = "x-opt-"
_DUPLICATE_ID: Final = "_AMQ_DUPL_ID"

#: The annotation with a JMS message's type, which tells receivers how to read the body, and two of the types.
JMS_TYPE: Final = "x-opt-jms-msg-type"
JMS_BYTES: Final = Byte(3)
JMS_TEXT: Final = Byte(5)

#: Artemis's names, in other protocols and for selectors, of properties that only AMQP has.
CONTENT_ENCODING: Final = "JMS_AMQP_ContentEncoding"
REPLY_TO_GROUP_ID: Final = "JMS_AMQP_ReplyToGroupID"

#: Names where Artemis does not follow its own rule.
_ANNOTATION_NAMES: Final = {INGRESS_TIMESTAMP: "x-opt-ingress-time"}


#: How a section begins that holds data, binary or text with a length of four bytes.
_LONG: Final = (b"\x00\x53\x75\xb0", b"\x00\x53\x77\xb0", b"\x00\x53\x77\xb1")
_LEAD_BYTES: Final = 8

#: The annotation of a reply-to's kind, as it is in a head.
_JMS_REPLY_TO: Final = JMS_REPLY_TO.encode()


class AmqpFormat:
    """The `Format` of messages sent over AMQP; `prefixes` are those that a reply-to may begin with."""

    number = AMQP_FORMAT
    name = "amqp"
    typed = True

    def __init__(self, prefixes: tuple[tuple[str, RoutingType], ...] = ()) -> None:
        self.prefixes = prefixes

    def readable(self, head: bytes, body_bytes: int) -> bool:
        """Whether the sections before the body can be decoded."""
        message = Message(head)
        try:
            _ = message.message_annotations, message.properties, message.application_properties
        except DecodeError:
            return False
        return True

    def properties(self, head: bytes) -> dict[str, Value]:
        """Return the properties that selectors see; none if a section cannot be decoded."""
        message = Message(head)
        try:
            found: dict[str, Value] = {
                f"{_ANNOTATION}{name}": _plain(value) for name, value in message.message_annotations.items()
            }
            found |= _properties(message.properties)
            found |= {str(name): _plain(value) for name, value in message.application_properties.items()}
        except DecodeError:
            return {}
        return found

    def composed(self, properties: Mapping[str, str | int]) -> tuple[bytes, bytes]:
        """Return head and body of a message that has application properties only; numbers are longs."""
        return self.edited(b"", (), properties), encode_section(AMQP_VALUE, None)

    def duplicate_id(self, head: bytes) -> bytes | None:
        """Return the application property _AMQ_DUPL_ID, or the message annotation x-opt-DUPL-ID."""
        message = Message(head)
        try:
            found = message.application_properties.get(_DUPLICATE_ID)
            if found is None:
                found = message.message_annotations.get(annotation_name(_DUPLICATE_ID))
        except DecodeError:
            return None
        if isinstance(found, str):
            return found.encode()
        return bytes(found) if isinstance(found, bytes) else None

    def hops(self, head: bytes) -> int:
        """Count the hops in the annotation of links."""
        return len(hops_of(head))

    def reply_to(self, head: bytes) -> ReplyTo:
        """Return the address in the property reply-to, with the routing type that it or JMS's annotation states."""
        message = Message(head)
        try:
            text = message.properties.reply_to or ""
            noted = message.message_annotations if _JMS_REPLY_TO in head else {}
        except DecodeError:
            return "", None
        return self.reply_to_of(text, noted)

    def reply_to_of(self, text: str, noted: Mapping[object, object]) -> ReplyTo:
        """Return the address in a reply-to, of a message with these annotations."""
        address, routing_type = split_reply_to(text, self.prefixes)
        if address and routing_type is None and noted:
            place = noted.get(JMS_REPLY_TO)
            if isinstance(place, int) and 0 <= place < len(JMS_KINDS):
                routing_type = JMS_KINDS[place][0]
        return address, routing_type

    def edited(self, head: bytes, remove: Collection[str], add: Mapping[str, str | int]) -> bytes:
        """Return the head with other application properties, or unchanged if it cannot be decoded."""
        message = Message(head)
        try:
            properties = {str(n): v for n, v in message.application_properties.items() if n not in remove}
            before = message.section(MESSAGE_ANNOTATIONS) + message.section(PROPERTIES)
        except DecodeError:
            return head
        return before + encode_application_properties({**properties, **add})

    def refilled(self, head: bytes, body: Body, content: bytes) -> tuple[bytes, bytes]:
        """Return head and body for new content: text stays a text value if it still is text, else it is a data section.

        The head's JMS type is updated, and its content-encoding removed.  Of a large body only the JMS type is known.
        """
        message = Message(head)
        try:
            noted = message.message_annotations
            kind, values = Message(body).body() if isinstance(body, bytes) else (DATA, [])
            if noted.get(JMS_TYPE) == JMS_TEXT or (kind == AMQP_VALUE and values and isinstance(values[0], str)):
                return _refitted(head, of_data=False), encode_section(AMQP_VALUE, content.decode())
        except (DecodeError, UnicodeDecodeError):
            pass  # it becomes data
        return _refitted(head, of_data=True), encode_section(DATA, content)

    def content(self, part: bytes) -> bytes:
        """Return the bytes of data sections, text, or other values as JSON; of a truncated body, only data or text."""
        try:
            kind, values = Message(part).body()
        except DecodeError:
            return part[_LEAD_BYTES:] if part.startswith(_LONG) else part
        if kind == DATA:
            return b"".join([value for value in values if isinstance(value, bytes)])
        value = values if kind == AMQP_SEQUENCE else values[0] if values else b""
        if isinstance(value, bytes):
            return value
        return value.encode() if isinstance(value, str) else to_json(value)

    def noted(self, annotations: Annotations) -> dict[str, Value]:
        """Return the broker's annotations, under their own names and as the message annotations that clients see."""
        return {**annotations, **{f"{_ANNOTATION}{annotation_name(name)}": v for name, v in annotations.items()}}


def _refitted(head: bytes, *, of_data: bool) -> bytes:
    """Return a head that fits a new body: without content-encoding, and with the JMS type of bytes if it is data."""
    message = Message(head)
    try:
        noted, properties = message.message_annotations, message.properties
        retyped = of_data and JMS_TYPE in noted
        if not retyped and properties.content_encoding is None:
            return head
        annotations = message.section(MESSAGE_ANNOTATIONS)
        if retyped:
            annotations = encode_annotations(MESSAGE_ANNOTATIONS, {**noted, JMS_TYPE: JMS_BYTES})
        plain = replace(properties, content_encoding=None)
        return annotations + encode(plain) + message.section(APPLICATION_PROPERTIES)
    except DecodeError:
        return head


def annotation_name(name: str) -> str:
    """Return a broker annotation's name as a message annotation: _AMQ_ORIG_ADDRESS is x-opt-ORIG-ADDRESS (Artemis)."""
    known = _ANNOTATION_NAMES.get(name)
    if known is not None:
        return known
    return _OPTIONAL + name[len(_BROKERS) :].replace("_", "-") if name.startswith(_BROKERS) else name


#: Prefixes of message annotations that only this broker writes, and of those that only brokers write.
_OWN_ANNOTATIONS: Final = RESERVED_PREFIXES + tuple(map(annotation_name, RESERVED_PREFIXES))
RESERVED_ANNOTATIONS: Final = (*_OWN_ANNOTATIONS, PREFIX)


def _any_of(names: Collection[str]) -> re.Pattern[bytes]:
    """Return a pattern that finds any of these names; fast, as common prefixes are searched for once."""
    by_start = {start: [name for name in names if name.startswith(start)] for start in (_BROKERS, _OPTIONAL)}
    found = [f"{start}(?:{'|'.join(re.escape(n[len(start) :]) for n in of)})" for start, of in by_start.items()]
    return re.compile("|".join(found).encode())


_OWN: Final = _any_of(_OWN_ANNOTATIONS)
_RESERVED: Final = _any_of(RESERVED_ANNOTATIONS)


def without_reserved(head: bytes, *, linked: bool = False) -> bytes:
    """Drop names from a head that only the broker writes; most messages have none.  Raises DecodeError.

    `linked`: another broker sent it, and may use the names that brokers exchange.
    Application properties are part of the bare message, which a broker should not change (part 3, 3.2); reserved names
    are the exception.
    """
    pattern, reserved = (_OWN, _OWN_ANNOTATIONS) if linked else (_RESERVED, RESERVED_ANNOTATIONS)
    if pattern.search(head) is None:
        return head
    message = Message(head)
    annotations, application = message.message_annotations, message.application_properties
    noted = {name: value for name, value in annotations.items() if not str(name).startswith(reserved)}
    kept = {str(name): v for name, v in application.items() if not str(name).startswith(RESERVED_PREFIXES)}
    if len(noted) == len(annotations) and len(kept) == len(application):
        return head
    section = encode_annotations(MESSAGE_ANNOTATIONS, noted)
    return section + message.section(PROPERTIES) + encode_application_properties(kept)


def _properties(properties: Properties) -> dict[str, Value]:
    named: dict[str, object] = {
        "JMSTimestamp": properties.creation_time,
        "JMSMessageID": _id_text(properties.message_id),
        "JMSCorrelationID": _id_text(properties.correlation_id),
        "JMSType": properties.subject,
        "JMSReplyTo": properties.reply_to,
        "JMSXGroupID": properties.group_id,
        "_AMQ_GROUP_ID": properties.group_id,
        "JMSXGroupSeq": properties.group_sequence,
        "_AMQ_CONTENT_TYPE": properties.content_type,
        CONTENT_ENCODING: properties.content_encoding,
        REPLY_TO_GROUP_ID: properties.reply_to_group_id,
    }
    if properties.user_id is not None:
        named["JMSXUserID"] = properties.user_id.decode("utf-8", "replace")
    return {name: _plain(value) for name, value in named.items() if value is not None}


def _id_text(id: MessageId | None) -> str | None:
    return None if id is None else id_text(id)


def _plain(value: object) -> Value:
    """Return a value as selectors compare it: None for bytes and compound values."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value) if isinstance(value, str) else None
