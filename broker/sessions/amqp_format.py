"""AMQP's encoding of application headers, and the names of what a selector may ask of an AMQP message.

`head` is message annotations, properties and application properties, as they came (see `amqp_message`).  Plain names
are those of application properties; JMS's names stand for properties, `m.NAME` for message annotations.
"""

from __future__ import annotations

from typing import Final

from broker.engine.message import Annotations, Value
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import Message
from protocols.amqp.performatives import MessageId, Properties

AMQP_FORMAT: Final = 2

#: A selector on message annotations: "m.x-opt-delivery-time".
_ANNOTATION: Final = "m."
_BROKERS: Final = "_AMQ_"
_OPTIONAL: Final = "x-opt-"


class AmqpFormat:
    """The `Format` of messages that came over AMQP."""

    number = AMQP_FORMAT
    name = "amqp"

    def properties(self, head: bytes) -> dict[str, Value]:
        """What a selector may ask for; nothing of a section that cannot be decoded."""
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

    def noted(self, annotations: Annotations) -> dict[str, Value]:
        """The broker's own annotations: under their own names and as the message annotations that clients see."""
        return {**annotations, **{f"{_ANNOTATION}{annotation_name(name)}": v for name, v in annotations.items()}}


def annotation_name(name: str) -> str:
    """The message annotation for one of the broker's: _AMQ_ORIG_ADDRESS is x-opt-ORIG-ADDRESS, as in Artemis."""
    return _OPTIONAL + name[len(_BROKERS) :].replace("_", "-") if name.startswith(_BROKERS) else name


def _properties(properties: Properties) -> dict[str, Value]:
    named: dict[str, Value] = {
        "JMSMessageID": id_text(properties.message_id),
        "JMSCorrelationID": id_text(properties.correlation_id),
        "JMSType": properties.subject,
        "JMSReplyTo": properties.reply_to,
        "JMSXGroupID": properties.group_id,
        "_AMQ_GROUP_ID": properties.group_id,
        "JMSXGroupSeq": properties.group_sequence,
        "_AMQ_CONTENT_TYPE": properties.content_type,
    }
    if properties.user_id is not None:
        named["JMSXUserID"] = properties.user_id.decode("utf-8", "replace")
    return {name: value for name, value in named.items() if value is not None}


def id_text(id: MessageId | None) -> str | None:
    """A message id or correlation id as text; binary ones in hexadecimal."""
    if id is None:
        return None
    return id.hex() if isinstance(id, bytes) else str(id)


def _plain(value: object) -> Value:
    """A value as selectors compare it: bytes and compound values are unknown to them."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value) if isinstance(value, str) else None
