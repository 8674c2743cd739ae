"""Deliveries to a STOMP subscription as MESSAGE frames.

What messages with the same header share is rendered once a run; headers and bodies are put in as they came.
"""

from __future__ import annotations

from typing import Final

from broker.engine import AckMode, Consumer, DeliveryOutcome, Engine, LargeBody, Queue, Stream
from broker.engine.model.message import Body, Message, MessageHeader
from broker.sessions.contents import Joined
from broker.sessions.convert import ConversionError, Refusal, ReplyPrefixes, to_stomp, unsaid
from broker.sessions.stomp.format import STOMP_FORMAT, head_for_version, says_length
from broker.sessions.stomp.headers import message_common
from broker.sessions.stomp.large import to_large_stomp
from protocols.stomp.connection import StompConnection
from protocols.stomp.frames import END, MESSAGE, MESSAGE_HEAD, MESSAGE_WITH_ACK
from protocols.stomp.headers import escape

_BACKSLASH: Final = 92
_LF: Final = 10
_LENGTH: Final = b"content-length:"

#: Lines for short bodies, made once: formatting one costs as much as the rest of a head.
_LENGTHS_MAX: Final = 1024
_LENGTHS: Final = [b"content-length:%d\n" % nbytes for nbytes in range(_LENGTHS_MAX)]

#: Bodies above this many bytes go out as they are instead of being copied into the frame.
COPY_BYTES_MAX: Final = 65_536


class Rendering:
    """How the messages of one SUBSCRIBE are presented; `number` is the part before the comma of their ids."""

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

    def encode(self, codec: StompConnection, messages: list[Message]) -> list[Refusal]:
        """Send the frames of these messages; back come those that cannot be sent, and why."""
        mark = len(codec.out)
        try:
            return self._encode(codec, messages)
        except Exception as error:  # our bug costs one message: which, they tell one by one
            codec.take_back(mark)
            if len(messages) == 1:
                return [(messages[0], unsaid(error))]
        return [refusal for message in messages for refusal in self.encode(codec, [message])]

    def _encode(self, codec: StompConnection, messages: list[Message]) -> list[Refusal]:
        refused: list[Refusal] = []
        lead, ack_lead, prefix, version = self._lead, self._ack_lead, self._prefix, self._version
        out = codec.out
        append = out.append
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
                try:
                    head, body = to_large_stomp(message, self._replies) or to_stomp(message, self._replies)
                except ConversionError as error:
                    refused.append((message, error))
                    continue
            if _BACKSLASH in head:
                head = head_for_version(head, version)
            if body:
                at = head.find(_LENGTH)
                if at < 0 or (at and head[at - 1] != _LF and not says_length(head)):
                    nbytes = len(body)  # type: ignore[arg-type]  # what is no bytes says it
                    head += _LENGTHS[nbytes] if nbytes < _LENGTHS_MAX else b"content-length:%d\n" % nbytes
            id = message.id
            if not isinstance(body, bytes) or len(body) > COPY_BYTES_MAX:
                shared = b"%b%d%b" % (ack_lead, id, shared) if ack_lead else shared
                append(MESSAGE_HEAD % (lead, id, shared, head))
                if isinstance(body, bytes):
                    append(body)
                else:
                    codec.send_body(Stream(body) if isinstance(body, LargeBody) else body)
                append(END)
            elif ack_lead:
                append(MESSAGE_WITH_ACK % (lead, id, ack_lead, id, shared, head, body))
            else:
                append(MESSAGE % (lead, id, shared, head, body))
        return refused


class Subscription(Rendering):
    """One SUBSCRIBE and its consumer; `durable` names the durable subscription that it is on."""

    __slots__ = ("consumer", "durable")

    def __init__(
        self,
        id: bytes,
        consumer: Consumer,
        prefix: str,
        version: str,
        *,
        replies: ReplyPrefixes,
        durable: str = "",
    ) -> None:
        acknowledged = consumer.ack_mode is not AckMode.AUTO
        number = b"%d" % consumer.id
        super().__init__(id, number, consumer.queue, prefix, version, replies=replies, acknowledged=acknowledged)
        self.consumer = consumer
        self.durable = durable

    def close(self, engine: Engine, how: DeliveryOutcome) -> None:
        """The end of the subscription."""
        engine.consumers.close(self.consumer, how)
