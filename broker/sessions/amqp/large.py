"""Sends large bodies over AMQP: the sections before them, then pieces that are read as the receiver accepts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.engine import PIECE_BYTES, Checksum, DeadLetterReason, Stream
from broker.engine.model.message import Message
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.amqp.message import DeliveryHistory, Encoder
from broker.sessions.convert import ConversionError, rendering_error
from protocols.amqp.message import AMQP_VALUE, DATA, encode_section
from protocols.amqp.sender import Sender, Streaming

#: Empty bodies, of bytes and of text: a placeholder for the body in a file while the sections before it are encoded.
_NO_BODY: Final = encode_section(DATA, b"")
_NO_TEXT: Final = encode_section(AMQP_VALUE, "")

#: The beginning of a data section with a length of four bytes, and the longest section that is sent.
_DATA_32: Final = b"\x00\x53\x75\xb0"
_DATA_BYTES_MAX: Final = 1 << 30


class LargeMessage:
    """A message with its body in a file, for sending: `head` is everything before the body, `nbytes` the total size."""

    def __init__(self, message: Message, past: DeliveryHistory, now: int, encoder: Encoder) -> None:
        """Encode the head.  Raises ConversionError."""
        assert not isinstance(message.body, bytes)
        foreign = message.header.format.number != AMQP_FORMAT
        shell = message.with_content(message.head, b"" if foreign else _NO_BODY)
        payload = encoder.encode_alone(shell, past, now)
        assert payload.endswith((_NO_BODY, _NO_TEXT)), "the body comes last"
        self.head = payload[: -len(_NO_BODY)]
        self.message = message
        self._body = message.body
        self._most = _DATA_BYTES_MAX if foreign else max(len(self._body), 1)  # bytes of one section
        self._lead = len(_DATA_32) + 4 if foreign else 0
        self.nbytes = len(self.head) + len(self._body) + len(self._starts) * self._lead

    @property
    def _starts(self) -> range:
        """Where the sections begin.  An empty body (of a message whose properties are long) has one section."""
        return range(0, max(len(self._body), 1), self._most)

    def sections(self) -> Iterator[tuple[bytes, Stream]]:
        """Yield the body's sections: the bytes that begin each, and the stream of its contents."""
        body, most = self._body, self._most
        checksum = Checksum(body)
        for at in self._starts:
            end = min(at + most, len(body))
            yield _DATA_32 + (end - at).to_bytes(4) if self._lead else b"", Stream(body, at, end, checksum)


class LargeOut:
    """A large message that is being sent on a link."""

    def __init__(self, link: Sender, large: LargeMessage, *, settled: bool) -> None:
        self.message = large.message
        self._sections = large.sections()
        self._delivery: Streaming = link.stream(large.message.id, settled=settled)
        lead, self._stream = next(self._sections)
        self._following = next(self._sections, None)
        self._delivery.send(large.head + lead, last=False)  # at once: delivery ids have to be sent in order

    @property
    def room(self) -> bool:
        """Whether a piece may be sent now."""
        return self._delivery.room

    def pull(self) -> bool:
        """Send a piece.  Returns whether it was the last one.  Raises Unreadable."""
        piece = self._stream.read(PIECE_BYTES)
        if not self._stream.left and self._following is not None:
            lead, self._stream = self._following
            self._following = next(self._sections, None)
            piece += lead
        last = not self._stream.left
        self._delivery.send(piece, last=last)
        return last

    def abort(self) -> None:
        """Abort the delivery, as the rest cannot be read: the receiver drops what it has."""
        self._delivery.abort()


def begin_large(
    link: Sender, message: Message, past: DeliveryHistory, now: int, encoder: Encoder, *, settled: bool
) -> LargeOut | ConversionError:
    """Begin to send a message whose body is in a file; returns the error if it cannot be sent."""
    try:
        large = LargeMessage(message, past, now, encoder)
    except Exception as error:  # bugs of ours, too
        return rendering_error(error)
    most = link.message_bytes_max
    if most is not None and large.nbytes > most:
        text = f"{large.nbytes} bytes, but the receiver accepts {most}"
        return ConversionError(text, DeadLetterReason.TOO_LARGE)
    return LargeOut(link, large, settled=settled)
