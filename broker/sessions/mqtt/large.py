"""Sends large payloads: read from their files piece by piece, from messages of any protocol."""

from __future__ import annotations

from typing import Final

from broker.engine import Consumer, DeadLetterReason, LargeBody, Stream, Unreadable, read_body
from broker.engine.model.message import Message
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.contents import Joined, joined
from broker.sessions.convert import CONVERTED_BYTES_MAX, ConversionError, to_mqtt
from protocols.amqp.message import AMQP_VALUE, DATA, encode_section
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.properties import Properties

_NO_DATA: Final = encode_section(DATA, b"")
_NO_TEXT: Final = encode_section(AMQP_VALUE, "")
_SIZED: Final = b"content-length:0\n"

#: The beginnings of a section that is one text, with a length of four bytes or one.
_TEXT: Final = (b"\x00\x53\x77\xb1", b"\x00\x53\x77\xa1")


class LargePayload:
    """The payload of one PUBLISH: a source for the codec.  `consumer`: the consumer that it is delivered to."""

    __slots__ = ("_source", "consumer", "message")

    def __init__(self, message: Message, source: Stream | Joined) -> None:
        self.message = message
        self.consumer: Consumer | None = None
        self._source = source

    @property
    def left(self) -> int:
        """Bytes still to be read."""
        return self._source.left

    def read(self) -> bytes:
        """Return the next piece.  Raises Unreadable."""
        return self._source.read()


def refused(head: PublishHead, payload: list[bytes] | LargePayload, codec: MqttConnection) -> ConversionError | None:
    """Return why a packet cannot be sent, None if it can."""
    nbytes = payload.left if isinstance(payload, LargePayload) else len(payload[0])
    return too_large(head.packet_bytes_with(nbytes), codec)


def too_large(size: int, codec: MqttConnection) -> ConversionError | None:
    """Return why a packet of this size cannot be sent: it is larger than the client accepts, or than packets may be."""
    accepted, most = codec.agreement.packet_bytes_max, codec.packet_bytes_max_in
    if size > accepted:
        why = f"{size} bytes, but the client accepts {accepted}"
        return ConversionError(why, DeadLetterReason.TOO_LARGE)
    if size > most:
        return ConversionError(f"{size} bytes, but the maximum packet size is {most}", DeadLetterReason.TOO_LARGE)
    return None


def to_large_mqtt(message: Message, body: LargeBody) -> tuple[Properties, LargePayload] | None:
    """Return properties and payload of another protocol's message; None if it should be converted as a whole.

    Raises ConversionError.
    """
    empty, head, source = b"", message.head, None
    if message.header.format.number == AMQP_FORMAT:
        try:
            source = joined(body)
        except ConversionError:
            if len(body) <= CONVERTED_BYTES_MAX:
                return None
            raise
        try:
            empty = _NO_TEXT if read_body(body, 0, 4) in _TEXT else _NO_DATA
        except Unreadable as error:
            raise ConversionError(str(error), passing=error.passing) from error
    else:
        head += _SIZED  # treated as bytes: only reading all would show whether it is text
    properties, _ = to_mqtt(message.with_content(head, empty))
    return properties, LargePayload(message, source or Stream(body))
