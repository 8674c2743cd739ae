"""Deliveries to a STOMP subscription as MESSAGE frames.

The part that messages with the same header share is encoded once per run; headers and bodies are inserted unchanged.

    MESSAGE, subscription, message-id, ack    all but the last digits of the message's id is encoded once
    headers common to messages with the same message header
    application headers, each ended by LF, and content-length
    an empty line, the body, NUL and LF
"""

from __future__ import annotations

from typing import Final

from broker.engine import AckMode, Consumer, DeliveryOutcome, Engine, LargeBody, Queue, Stream, SubscribeRequest
from broker.engine.model.message import Body, Message, MessageHeader, size_of
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.contents import Joined, joined
from broker.sessions.convert import (
    CONVERTED_BYTES_MAX,
    ConversionError,
    Refusal,
    ReplyPrefixes,
    rendering_error,
    to_stomp,
)
from broker.sessions.mqtt.format import MQTT_FORMAT
from broker.sessions.stomp.format import STOMP_FORMAT, has_content_length, head_for_version
from broker.sessions.stomp.headers import message_common
from broker.sessions.stomp.port import Port
from protocols.amqp.message import DATA, encode_section
from protocols.stomp.errors import StompError
from protocols.stomp.frames import END
from protocols.stomp.headers import escape
from protocols.stomp.output import Output

_BACKSLASH: Final = 92
_LF: Final = 10
_LENGTH: Final = b"content-length:"

#: Lines for short bodies, made once: formatting one costs as much as the rest of a head.
_LENGTHS_MAX: Final = 1024
_LENGTHS: Final = [b"content-length:%d\n" % nbytes for nbytes in range(_LENGTHS_MAX)]

_LAST_DIGITS: Final = [b"%03d" % number for number in range(1000)]

#: Sections of other protocols without a body, by format.
_NO_BODY: Final = {AMQP_FORMAT: encode_section(DATA, b""), MQTT_FORMAT: b""}

#: Bodies above this many bytes are sent separately instead of being copied into the frame.
COPY_BYTES_MAX: Final = 65_536


class Rendering:
    """Encodes the messages of one SUBSCRIBE; `number` is the part of their message-ids before the comma."""

    __slots__ = ("_ack_lead", "_lead", "_prefix", "_queue", "_replies", "_version", "acknowledged", "id", "number")

    def __init__(
        self,
        id: bytes,
        number: bytes,
        queue: Queue,
        prefix: str,
        version: str,
        *,
        replies: ReplyPrefixes,
        acknowledged: bool,
    ) -> None:
        self.id = id
        self.number = number
        self.acknowledged = acknowledged
        self._queue = queue
        self._prefix = prefix
        self._replies = replies
        self._version = version
        self._lead = b"MESSAGE\nsubscription:%b\nmessage-id:%b," % (escape(id, version), number)
        self._ack_lead = b"\nack:%b," % number if acknowledged and version == "1.2" else b""

    def encode(
        self, output: Output, messages: list[Message], engine: Engine | None = None
    ) -> tuple[list[Refusal], int]:
        """Send the frames of these messages.

        Returns those that cannot be sent, and why, and how many were processed.  With `engine` it stops before one
        that has to be converted if the tick's budget is used up.
        """
        mark = len(output.parts)
        try:
            return self._encode(output, messages, engine)
        except Exception as error:  # a bug of ours: find the message by sending one by one
            output.take_back(mark)
            if len(messages) == 1:
                return [(messages[0], rendering_error(error))], 1
        return [refusal for message in messages for refusal in self.encode(output, [message])[0]], len(messages)

    def _encode(self, output: Output, messages: list[Message], engine: Engine | None) -> tuple[list[Refusal], int]:
        refused: list[Refusal] = []
        prefix, version = self._prefix, self._version
        thousands = -1  # of the last id; most ids are the last one plus 1
        lead = ack_lead = b""  # encoded up to the thousands
        out = output.parts
        states = self._queue.states
        header: MessageHeader | None = None
        common = again = b""
        foreign = False
        for message in messages:
            if message.header is not header:
                header = message.header
                common = message_common(header, prefix, version, redelivered=False)
                again = b""
                foreign = header.format.number != STOMP_FORMAT
            shared = common
            if states and message.id in states:
                again = again or message_common(header, prefix, version, redelivered=True)
                shared = again
            head = message.head
            body: Body | Joined | Stream = message.body
            if foreign:
                if engine is not None and engine.ticks.exhausted:
                    return refused, messages.index(message)
                try:
                    head, body = to_large_stomp(message, self._replies) or to_stomp(message, self._replies)
                except ConversionError as error:
                    refused.append((message, error))
                    continue
            if _BACKSLASH in head:
                head = head_for_version(head, version)
            length = _length_line(head, body) if body else b""
            id = message.id
            if id // 1000 != thousands:
                thousands = id // 1000
                digits = b"%d" % thousands if thousands else b""
                lead = self._lead + digits
                ack_lead = self._ack_lead and self._ack_lead + digits
            last = _LAST_DIGITS[id % 1000] if thousands else b"%d" % id
            if not isinstance(body, bytes) or len(body) > COPY_BYTES_MAX:
                shared = b"%b%b%b" % (ack_lead, last, shared) if ack_lead else shared
                out.append(b"%b%b%b\n%b%b\n" % (lead, last, shared, head, length))
                if isinstance(body, bytes):
                    out.append(body)
                else:
                    output.add_body(Stream(body) if isinstance(body, LargeBody) else body)
                out.append(END)
            elif ack_lead:
                out.append(b"%b%b%b%b%b\n%b%b\n%b\0\n" % (lead, last, ack_lead, last, shared, head, length, body))
            else:
                out.append(b"%b%b%b\n%b%b\n%b\0\n" % (lead, last, shared, head, length, body))
        return refused, len(messages)


def _length_line(head: bytes, body: Body | Joined | Stream) -> bytes:
    """Return the content-length line of a body; empty if its head has one."""
    at = head.find(_LENGTH)
    if at >= 0 and (not at or head[at - 1] == _LF or has_content_length(head)):
        return b""
    nbytes = len(body)  # type: ignore[arg-type]  # bodies that are not bytes have a length too
    return _LENGTHS[nbytes] if nbytes < _LENGTHS_MAX else b"content-length:%d\n" % nbytes


class Subscription(Rendering):
    """One SUBSCRIBE and its consumer, whose Sink it is.  Raises EngineError.

    `durable`: the name of its durable subscription, if any.  `unflushed` are the connection's consumers with ack:auto
    that have deliveries which the operating system has not accepted yet.
    """

    __slots__ = ("_port", "_unflushed", "consumer", "durable")

    def __init__(
        self, port: Port, id: bytes, request: SubscribeRequest, prefix: str, unflushed: dict[Consumer, None]
    ) -> None:
        self._port = port
        self._unflushed = unflushed
        self.consumer = consumer = port.engine.consumers.subscribe(self, request)
        queue, acknowledged = consumer.queue, consumer.ack_mode is not AckMode.AUTO
        replies, version = port.options.prefixes.of_replies, port.codec.version
        super().__init__(id, b"%d" % consumer.id, queue, prefix, version, replies=replies, acknowledged=acknowledged)
        self.durable = request.name if queue.is_subscription and queue.name == request.name else ""

    @property
    def transport(self) -> object:
        return self._port.transport

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Return False: the session writes no records for deliveries."""
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        """Send messages as MESSAGE frames."""
        port = self._port
        engine = port.engine
        pacing = None if consumer.queue.non_destructive else engine
        unsendable, processed = self.encode(port.codec.output, messages, pacing)
        for message, why in unsendable:
            port.unsendable.add(consumer, message, why)
        if processed < len(messages):
            engine.consumers.return_unsent(consumer, messages[processed:])
            if not processed:
                return
            messages = messages[:processed]
        if not self.acknowledged:
            self._unflushed[consumer] = None
        port.sent(size_of(messages))
        if port.codec.output.streaming:
            port.close_window()

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """End the connection: the engine closed the consumer, which STOMP can only report with an ERROR."""
        self._port.fail_with(StompError("subscription closed", reason, None))

    def close(self, engine: Engine, how: DeliveryOutcome) -> None:
        """End the subscription."""
        engine.consumers.close(self.consumer, how)


def to_large_stomp(message: Message, prefixes: ReplyPrefixes) -> tuple[bytes, Joined | Stream] | None:
    """Return head and body of another protocol's message, whose body is read from its file while it is sent.

    None if it is small enough for `convert`.  Raises ConversionError.
    """
    body, format = message.body, message.header.format.number
    if isinstance(body, bytes) or len(body) <= CONVERTED_BYTES_MAX or format not in _NO_BODY:
        return None
    source = joined(body) if format == AMQP_FORMAT else Stream(body)
    head, _ = to_stomp(message.with_content(message.head, _NO_BODY[format]), prefixes)
    head = (b"\n" + head).replace(b"\ncontent-length:0\n", b"\n", 1)[1:]
    return head + b"content-length:%d\n" % source.left, source
