"""Large bodies of messages from other protocols as STOMP bodies, read while they are sent."""

from __future__ import annotations

from typing import Final

from broker.engine import Stream
from broker.engine.model.message import Message
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.contents import Joined, joined
from broker.sessions.convert import CONVERTED_BYTES_MAX, ReplyPrefixes, to_stomp
from broker.sessions.mqtt.format import MQTT_FORMAT
from protocols.amqp.message import DATA, encode_section

_NO_BODY: Final = {AMQP_FORMAT: encode_section(DATA, b""), MQTT_FORMAT: b""}
_NO_LENGTH: Final = b"content-length:0\n"


def to_large_stomp(message: Message, prefixes: ReplyPrefixes) -> tuple[bytes, Joined | Stream] | None:
    """Return head and body of a message whose body is in a file; None if it is small enough for `convert`.

    Raises ConversionError.
    """
    body, format = message.body, message.header.format.number
    if isinstance(body, bytes) or len(body) <= CONVERTED_BYTES_MAX or format not in _NO_BODY:
        return None
    source = joined(body) if format == AMQP_FORMAT else Stream(body)
    head, _ = to_stomp(message.with_content(message.head, _NO_BODY[format]), prefixes)
    head = (b"\n" + head).replace(b"\n" + _NO_LENGTH, b"\n", 1)[1:]
    return head + b"content-length:%d\n" % source.left, source
