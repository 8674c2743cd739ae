"""Encodes messages as records, and decodes records to messages.

The header that a run of messages shares is repeated in each of their records; decoding makes one `MessageHeader` of it
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final

from broker.engine.model import annotation
from broker.engine.model.message import (
    Format,
    Message,
    MessageHeader,
    PagedMessage,
    PropertyView,
    RoutingType,
    group_of,
)
from store import decode, record
from store.bodies import Bodies
from store.pages import SCRATCH_FIRST, Found
from store.record import HEAD, MESSAGE_FIXED, RecordError, RecordType

#: An exception of this module has changed nothing in the broker (`broker.sessions.tick`).
ONLY_READS = True

#: The fixed part of a MESSAGE record with its type, version and flags as one number.
MESSAGE_KIND: Final = Struct("<IIQII")
assert MESSAGE_KIND.size == MESSAGE_FIXED.size, "the same bytes"

#: The bits of that number that matter here, and their value where messages may share a header: they are in no group.
KIND_MASK: Final = 0xFFFF | record.GROUPED << 16
UNGROUPED: Final = RecordType.MESSAGE | record.VERSION << 8


@lru_cache(maxsize=256)
def _with_header(nbytes: int) -> Struct:
    """The struct of the fixed part and an encoded header of this length."""
    return Struct(f"{MESSAGE_KIND.format}{nbytes}s")


#: The first bytes of a record, which usually include its annotations: a dead letter's take 600 to 900 as a rule.
NOTES_BYTES: Final = 2048

#: The broker's annotations of a message, and when it was sent, in ms.
Noted = tuple[Mapping[str, object], int]

_NO_NOTES: Final[Mapping[str, object]] = {}

#: `json.loads` without the overhead that takes half of its time.
_read_json: Final = json.JSONDecoder().raw_decode


def notes_at(buffer: bytes, offset: int, id: int, nbytes: int) -> Noted | int | None:
    """The notes of message `id`, from the first `nbytes` of its record at `offset`; None if it is not that record.

    A number: how many bytes of the record are needed instead.
    """
    try:
        found, sent, start, end = decode.find_annotations(buffer, offset)
        if found != id:
            return None
        if end > nbytes:
            return end
        notes = _read_json(str(buffer[offset + start : offset + end], "utf-8"))[0] if end > start else _NO_NOTES
        return notes, sent
    except (RecordError, StructError, ValueError):
        return None


class UnknownFormat(Exception):
    """The journal holds messages of a protocol unknown to this version."""


def encode_header(header: MessageHeader, queue_ids: Sequence[int]) -> bytes:
    """The encoded header of a MESSAGE record, which a run shares."""
    return record.message_header(
        timestamp=header.timestamp,
        expiration=header.expiration,
        expiry_source=header.expiry_source,
        scheduled=header.scheduled,
        priority=header.priority,
        format=header.format.number,
        queue_ids=queue_ids,
        address=header.address,
        user=header.user,
        origin=header.origin,
        annotations=annotation.encode(header.annotations) if header.annotations else b"",
    )


def record_flags(header: MessageHeader) -> int:
    """The flags of a MESSAGE record."""
    flags = record.GROUPED if header.group else 0
    if not header.durable:
        flags |= record.VOLATILE
    if header.routing_type is None:
        return flags
    return flags | (record.ANYCAST if header.routing_type is RoutingType.ANYCAST else record.MULTICAST)


class MessageReader:
    """Makes messages from records.  Consecutive messages with equal headers share one."""

    def __init__(self, formats: dict[int, Format], bodies: Bodies) -> None:
        self.formats = formats
        self._bodies = bodies
        self._decoder = decode.MessageDecoder()
        self._groups: dict[tuple[str, bool], MessageHeader] = {}  # of the messages with the same header
        self._stored: decode.MessageHeader | None = None
        self._header: MessageHeader | None = None
        self._flags = 0
        self.decode = self._decoder.decode
        self.decode_copied = self._decoder.decode_copied

    def header(self, stored: decode.Message | decode.Copied) -> MessageHeader:
        """The header of a message, without its group.  Raises UnknownFormat."""
        header = self._header
        if stored.header is not self._stored or header is None or stored.flags != self._flags:
            self._stored = stored.header
            self._flags = stored.flags
            header = self._header = self._read_header(stored)
            self._groups.clear()
        return header

    def message(
        self, stored: decode.Message | decode.Copied, segment: int, offset: int = 0, nbytes: int = 0
    ) -> Message:
        """The message, which no queue holds yet (`refs` is 0), and the place of its record.  Raises UnknownFormat."""
        header = self.header(stored)
        if isinstance(stored.body, bytes):
            message: Message = PagedMessage(header, stored.head, stored.body, offset, nbytes)
        else:
            message = Message.of(copy(header), stored.head, self._bodies.stored(stored.body))
        if stored.flags & record.GROUPED:
            message.use_header(self._in_group(message))
        message.id = stored.id
        message.refs = 0
        message.segment = segment
        return message

    def _read(self, buffer: bytes, offset: int, *, id: int, size: int, segment: int, place: int) -> Message | None:
        """The message `id` from its record of `size` bytes; None if the record is not that."""
        length, type, version, _ = HEAD.unpack_from(buffer, offset)
        if length != size or version != record.VERSION or type not in (RecordType.MESSAGE, RecordType.COPIED):
            return None
        try:
            stored: decode.Message | decode.Copied
            stored = self.decode(buffer, offset) if type == RecordType.MESSAGE else self.decode_copied(buffer, offset)
            message = self.message(stored, segment, place, size) if stored.id == id else None
        except (RecordError, UnknownFormat, ValueError):
            return None
        if message is not None:
            message.refs = 1
        return message

    def read(
        self,
        found: list[Found],
        *,
        ids: Sequence[int],
        segments: Sequence[int],
        offsets: Sequence[int],
        sizes: Sequence[int],
    ) -> list[Message | None]:
        """The messages with these ids, held once (`refs`); None for a missing one.  The hot path of paged messages."""
        unpack = MESSAGE_KIND.unpack_from
        messages: list[Message | None] = []
        add = messages.append
        encoded, known, header, fixed = b"", 0, None, 0  # the previous message's header, which a run shares
        for buffer, start, stop in found:
            if buffer is None:
                messages += [None] * (stop - start)
                continue
            first, segment = offsets[start], segments[start]
            if segment >= SCRATCH_FIRST:
                segment = 0
            for id, place, size in zip(ids[start:stop], offsets[start:stop], sizes[start:stop], strict=True):
                offset = place - first
                own = size - fixed
                if header is not None and own >= 0:
                    length, kind, its_id, head_bytes, body_bytes, shared = unpack(buffer, offset)
                    same = shared == encoded and kind == known and length == size
                    if same and its_id == id and head_bytes + body_bytes == own:
                        body_at = offset + size - body_bytes
                        body = buffer[body_at : body_at + body_bytes]
                        message = PagedMessage(header, buffer[body_at - head_bytes : body_at], body, place, size)
                        message.id = id
                        message.segment = segment
                        add(message)
                        continue
                other = self._read(buffer, offset, id=id, size=size, segment=segment, place=place)
                add(other)
                header = None
                if other is not None:
                    length, kind, _, head_bytes, body_bytes = MESSAGE_KIND.unpack_from(buffer, offset)
                    if kind & KIND_MASK == UNGROUPED:
                        header, known, fixed = other.header, kind, length - head_bytes - body_bytes
                        encoded = buffer[offset + MESSAGE_KIND.size : offset + fixed]
                        unpack = _with_header(len(encoded)).unpack_from
        return messages

    def _read_header(self, stored: decode.Message | decode.Copied) -> MessageHeader:
        header = stored.header
        format = self.formats.get(header.format)
        if format is None:
            raise UnknownFormat(
                f"message {stored.id} is in format {header.format}, which this version of the broker does not know"
            )
        routing_type = None
        if stored.flags & (record.ANYCAST | record.MULTICAST):
            routing_type = RoutingType.ANYCAST if stored.flags & record.ANYCAST else RoutingType.MULTICAST
        return MessageHeader(
            header.address,
            format,
            durable=not stored.flags & record.VOLATILE,
            priority=header.priority,
            timestamp=header.timestamp,
            expiration=header.expiration,
            expiry_source=header.expiry_source,
            scheduled=header.scheduled,
            routing_type=routing_type,
            user=header.user,
            origin=header.origin,
            annotations=annotation.decode(header.annotations) if header.annotations else None,
        )

    def _in_group(self, message: Message) -> MessageHeader:
        """The header of a message with its group, which is among its properties."""
        group = group_of(PropertyView(message))
        header = self._groups.get(group)
        if header is None:
            header = self._groups[group] = message.header.in_group(group[0], closes=group[1])
        return header
