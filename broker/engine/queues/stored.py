"""Messages as records say them, both ways: the engine's facts to bytes, and back.

What a run of messages shares stands in each of their records, and is made into one `Facts` object again.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from struct import Struct
from typing import Final

from broker.engine.model import annotation
from broker.engine.model.message import Facts, Format, Message, PropertyView, RoutingType, group_of
from store import decode, record
from store.bodies import Bodies
from store.pages import SCRATCH_FIRST, Found
from store.record import HEAD, MESSAGE_FIXED, RecordError, RecordType

#: The fixed part of a MESSAGE record with its type, version and flags as one number.
_MESSAGE: Final = Struct("<IIQII")
assert _MESSAGE.size == MESSAGE_FIXED.size, "the same bytes"

#: Of that number, all but most flags; and what these bits are where messages may share all facts: they are in no group.
_KIND: Final = 0xFFFF | record.GROUPED << 16
_UNGROUPED: Final = RecordType.MESSAGE | record.VERSION << 8


@lru_cache(maxsize=256)
def _with_facts(nbytes: int) -> Struct:
    """The same and the encoded facts, of so many bytes."""
    return Struct(f"{_MESSAGE.format}{nbytes}s")


class UnknownFormat(Exception):
    """The journal holds messages of a protocol that this version does not speak."""


def encode_facts(facts: Facts, queue_ids: list[int]) -> bytes:
    """The part of a MESSAGE record that a run shares."""
    return record.message_facts(
        timestamp=facts.timestamp,
        expiration=facts.expiration,
        expiry_source=facts.expiry_source,
        scheduled=facts.scheduled,
        priority=facts.priority,
        format=facts.format.number,
        queue_ids=queue_ids,
        address=facts.address,
        user=facts.user,
        origin=facts.origin,
        annotations=annotation.encode(facts.annotations) if facts.annotations else b"",
    )


def record_flags(facts: Facts) -> int:
    """The flags of a MESSAGE record."""
    flags = record.GROUPED if facts.group else 0
    if not facts.durable:
        flags |= record.VOLATILE
    if facts.routing_type is None:
        return flags
    return flags | (record.ANYCAST if facts.routing_type is RoutingType.ANYCAST else record.MULTICAST)


class MessageReader:
    """Makes messages of records.  Those that follow each other with equal facts share them."""

    def __init__(self, formats: dict[int, Format], bodies: Bodies) -> None:
        self.formats = formats
        self._bodies = bodies
        self._decoder = decode.MessageDecoder()
        self._groups: dict[tuple[str, bool], Facts] = {}  # of the messages with the same facts
        self._stored_facts: decode.MessageFacts | None = None
        self._facts: Facts | None = None
        self._flags = 0
        self.decode = self._decoder.decode
        self.decode_copied = self._decoder.decode_copied

    def facts(self, stored: decode.Message | decode.Copied) -> Facts:
        """The facts of a message but for its group.  Raises UnknownFormat."""
        facts = self._facts
        if stored.facts is not self._stored_facts or facts is None or stored.flags != self._flags:
            self._stored_facts = stored.facts
            self._flags = stored.flags
            facts = self._facts = self._read_facts(stored)
            self._groups.clear()
        return facts

    def message(self, stored: decode.Message | decode.Copied, segment: int) -> Message:
        """The message, which no queue holds yet (`refs` is 0).  Raises UnknownFormat."""
        facts = self.facts(stored)
        if isinstance(stored.body, bytes):
            message = Message(facts, stored.head, stored.body)
        else:
            message = Message.of(copy(facts), stored.head, self._bodies.stored(stored.body))
        if stored.flags & record.GROUPED:
            message.facts = self._in_group(message)
        message.id = stored.id
        message.refs = 0
        message.segment = segment
        return message

    def _read(self, buffer: bytes, offset: int, *, id: int, size: int, segment: int) -> Message | None:
        """The message `id`, whose record of `size` bytes is here; None if it is not that."""
        length, type, version, _ = HEAD.unpack_from(buffer, offset)
        if length != size or version != record.VERSION or type not in (RecordType.MESSAGE, RecordType.COPIED):
            return None
        try:
            stored: decode.Message | decode.Copied
            stored = self.decode(buffer, offset) if type == RecordType.MESSAGE else self.decode_copied(buffer, offset)
            message = self.message(stored, segment) if stored.id == id else None
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
        """The messages with these ids, held once; None for what is not there.  This is what a paged message costs."""
        unpack = _MESSAGE.unpack_from
        messages: list[Message | None] = []
        add = messages.append
        encoded, known, facts, fixed = b"", 0, None, 0  # of the message before: what a run shares
        for buffer, start, stop in found:
            if buffer is None:
                messages += [None] * (stop - start)
                continue
            first, segment = offsets[start], segments[start]
            if segment >= SCRATCH_FIRST:
                segment = 0
            for id, offset, size in zip(ids[start:stop], offsets[start:stop], sizes[start:stop], strict=True):
                offset -= first
                own = size - fixed
                if facts is not None and own >= 0:
                    length, kind, its_id, head_bytes, body_bytes, shared = unpack(buffer, offset)
                    same = shared == encoded and kind == known and length == size
                    if same and its_id == id and head_bytes + body_bytes == own:
                        body_at = offset + size - body_bytes
                        body = buffer[body_at : body_at + body_bytes]
                        message = Message(facts, buffer[body_at - head_bytes : body_at], body)
                        message.id = id
                        message.segment = segment
                        add(message)
                        continue
                other = self._read(buffer, offset, id=id, size=size, segment=segment)
                add(other)
                facts = None
                if other is not None:
                    length, kind, _, head_bytes, body_bytes = _MESSAGE.unpack_from(buffer, offset)
                    if kind & _KIND == _UNGROUPED:
                        facts, known, fixed = other.facts, kind, length - head_bytes - body_bytes
                        encoded = buffer[offset + _MESSAGE.size : offset + fixed]
                        unpack = _with_facts(len(encoded)).unpack_from
        return messages

    def _read_facts(self, stored: decode.Message | decode.Copied) -> Facts:
        facts = stored.facts
        format = self.formats.get(facts.format)
        if format is None:
            raise UnknownFormat(
                f"message {stored.id} is in format {facts.format}, which this version of the broker does not know"
            )
        routing_type = None
        if stored.flags & (record.ANYCAST | record.MULTICAST):
            routing_type = RoutingType.ANYCAST if stored.flags & record.ANYCAST else RoutingType.MULTICAST
        return Facts(
            facts.address,
            format,
            durable=not stored.flags & record.VOLATILE,
            priority=facts.priority,
            timestamp=facts.timestamp,
            expiration=facts.expiration,
            expiry_source=facts.expiry_source,
            scheduled=facts.scheduled,
            routing_type=routing_type,
            user=facts.user,
            origin=facts.origin,
            annotations=annotation.decode(facts.annotations) if facts.annotations else None,
        )

    def _in_group(self, message: Message) -> Facts:
        """The facts of a message with its group, which stands among its properties."""
        group = group_of(PropertyView(message))
        facts = self._groups.get(group)
        if facts is None:
            facts = self._groups[group] = message.facts.in_group(group[0], closes=group[1])
        return facts
