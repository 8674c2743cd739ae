"""Decodes records to values: the inverse of `record`.

A decoder takes a buffer that holds the whole record, and the record's offset.  It raises RecordError if the lengths
inside the record do not add up; as the entry's checksum was right, that is a fault of the writer, not of the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from struct import error as StructError
from typing import Final, Generic, TypeVar

from store import record
from store.body import BodyReference, decode_reference
from store.record import COPIED_FIXED, HEAD, HEADER_FIXED, MESSAGE_FIXED, Json, RecordError, RecordType
from store.record_tables import TABLES, unpack_numbers

#: segment, position, timestamp (ms), record type, buffer, offset of the record in it
RawRecord = tuple[int, int, int, int, bytes, int]

#: The end of a segment, if the segment that names it does not give it.
UNSTATED: Final = -1


@dataclass(slots=True)
class MessageHeader:
    """The header that the messages of a run share.  Times in ms since the epoch, 0: none."""

    timestamp: int
    expiration: int
    expiry_source: int
    scheduled: int
    priority: int
    format: int
    queue_ids: tuple[int, ...]
    address: str
    user: str
    origin: str
    annotations: bytes


@dataclass(slots=True)
class Message:
    """A message and the queues that accepted it.  Messages of one run share their `header` object."""

    id: int
    flags: int
    header: MessageHeader
    head: bytes
    body: bytes | BodyReference


@dataclass(slots=True)
class Copied:
    """A message copied forward from segment `previous`, and the queues on which it still was then."""

    id: int
    flags: int
    previous: int
    header: MessageHeader
    head: bytes
    body: bytes | BodyReference


@dataclass(slots=True)
class Removed:
    """Messages have left a queue."""

    queue_id: int
    reason: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class Counts:
    """Returned messages have this delivery count now; `redelivered`: they had been sent, whatever the count."""

    queue_id: int
    count: int
    ids: tuple[int, ...]
    redelivered: bool = False


@dataclass(slots=True)
class Delivering:
    """Messages are about to be sent to a consumer (strict mode): each counts one more delivery."""

    queue_id: int
    consumer_id: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class Scheduled:
    """Messages wait until `due` (ms since the epoch); 0: they no longer wait."""

    queue_id: int
    due: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class DeadLettered:
    """A message died as `old_id`, and continues as `new_id` (0: it was killed).  Times in ms since the epoch."""

    queue_id: int
    old_id: int
    new_id: int
    enqueued: int
    first_failure: int
    attempts: int
    reason: int
    address: str
    text: str
    client: str
    remote: str
    user: str


@dataclass(slots=True)
class Expired:
    """A message expired as `old_id`, and continues as `new_id` (0: it was removed).  Times in ms since the epoch."""

    queue_id: int
    old_id: int
    new_id: int
    enqueued: int
    expiration: int
    attempts: int
    source: int
    consumers: int
    address: str


@dataclass(slots=True)
class Dropped:
    """`count` messages with `size` bytes in all were accepted, but no queue got them."""

    reason: int
    count: int
    size: int
    address: str


@dataclass(slots=True)
class Definition:
    """The definition of an address, queue, session ..., created, changed or deleted (the record's type says which)."""

    id: int
    flags: int
    definition: Json


@dataclass(slots=True)
class Opened:
    """The first record of a segment: ids from `next_id` on are unused; `segments` are the older ones still needed."""

    next_id: int
    segments: tuple[int, ...]
    about: Json

    @property
    def ends(self) -> dict[int, int]:
        """The position behind the last record of each of these segments, UNSTATED where it is not given.

        Raises RecordError.
        """
        ends = self.about.get("ends", {})
        if not isinstance(ends, dict):
            raise RecordError("the member `ends` of an OPENED record is no object")
        return {segment: ends.get(str(segment), UNSTATED) for segment in self.segments}


@dataclass(slots=True)
class Closed:
    """The broker stopped properly."""


@dataclass(slots=True)
class Lost:
    """Replaces a record that a repair could not save."""


@dataclass(slots=True)
class Ids:
    """Ids from `next_id` on are unused."""

    next_id: int


@dataclass(slots=True)
class Trimmed:
    """These segments are no longer needed: recovery ignores them."""

    segments: tuple[int, ...]


@dataclass(slots=True)
class DuplicateId:
    """A message with this duplicate id was accepted on an address."""

    address_id: int
    message_id: int
    id: bytes


@dataclass(slots=True)
class Inflight:
    """Messages of a queue are sent to a session's client, each under a packet id of its own."""

    session_id: int
    queue_id: int
    ids: tuple[int, ...]
    packet_ids: tuple[int, ...]


@dataclass(slots=True)
class Packets:
    """Packet ids of a session: RELEASED, RECEIVED or COMPLETED (the record's type says which).

    `sent`: the broker chose them, else the client.
    """

    session_id: int
    sent: bool
    packet_ids: tuple[int, ...]


#: Records about messages that were stored before, of which they have the ids.
Speaking = Removed | Counts | Delivering | Scheduled | DeadLettered | Expired | Inflight
_Own = Opened | Closed | Lost | Ids | Trimmed  # about the journal itself
Record = Message | Copied | Speaking | Dropped | Definition | DuplicateId | Packets | _Own


class MessageDecoder:
    """Decodes MESSAGE and COPIED records.  Equal headers in a row, as a run has them, share one object."""

    __slots__ = ("_bytes", "_header")

    def __init__(self) -> None:
        self._bytes = b""
        self._header: MessageHeader | None = None

    def decode(self, buffer: bytes, offset: int) -> Message:
        """The message at `offset`.  Raises RecordError."""
        length, _, version, flags, id, head_bytes, body_bytes = MESSAGE_FIXED.unpack_from(buffer, offset)
        body_at = offset + length - body_bytes
        head_at = body_at - head_bytes
        header = self._shared(buffer[offset + MESSAGE_FIXED.size : head_at])
        body = buffer[body_at : offset + length]
        return Message(id, flags, header, buffer[head_at:body_at], body if version == 1 else decode_reference(body))

    def decode_copied(self, buffer: bytes, offset: int) -> Copied:
        """The COPIED record at `offset`.  Raises RecordError."""
        length, _, version, flags, id, head_bytes, body_bytes, before = COPIED_FIXED.unpack_from(buffer, offset)
        body_at = offset + length - body_bytes
        head_at = body_at - head_bytes
        header = self._shared(buffer[offset + COPIED_FIXED.size : head_at])
        body = buffer[body_at : offset + length]
        stored = body if version == 1 else decode_reference(body)
        return Copied(id, flags, before, header, buffer[head_at:body_at], stored)

    def _shared(self, header: bytes) -> MessageHeader:
        if header != self._bytes or self._header is None:
            self._header = decode_message_header(header)
            self._bytes = header
        return self._header


def decode_message_header(header: bytes) -> MessageHeader:
    """The inverse of `message_header`.  Raises RecordError."""
    if len(header) < HEADER_FIXED.size:
        raise RecordError(f"MESSAGE record with {len(header)} bytes of header")
    (when, expiration, due, priority, format, source, *sizes, n, annotation_bytes) = HEADER_FIXED.unpack_from(header)
    ids_end = HEADER_FIXED.size + 8 * n
    strings_end = ids_end + sum(sizes)
    if len(header) != strings_end + annotation_bytes:
        raise RecordError(f"MESSAGE record of {len(header)} bytes holds {strings_end + annotation_bytes}")
    user_at, origin_at = ids_end + sizes[0], strings_end - sizes[2]
    return MessageHeader(
        timestamp=when,
        expiration=expiration,
        expiry_source=source,
        scheduled=due,
        priority=priority,
        format=format,
        queue_ids=unpack_numbers("Q", header, HEADER_FIXED.size, n),
        address=str(header[ids_end:user_at], "utf-8"),
        user=str(header[user_at:origin_at], "utf-8"),
        origin=str(header[origin_at:strings_end], "utf-8"),
        annotations=header[strings_end:],
    )


def find_annotations(buffer: bytes, offset: int) -> tuple[int, int, int, int]:
    """The id and the timestamp of the MESSAGE or COPIED record at `offset`, and where its annotations begin and end.

    The last two are offsets from the record's start; `buffer` need only have the fixed fields.  Raises RecordError.
    """
    length, type, _, _, id, head_bytes, body_bytes = MESSAGE_FIXED.unpack_from(buffer, offset)
    if type not in (RecordType.MESSAGE, RecordType.COPIED):
        raise RecordError(f"a record of type {type} where a message should be")
    fixed = MESSAGE_FIXED.size if type == RecordType.MESSAGE else COPIED_FIXED.size
    when, _, _, _, _, _, *sizes, n, nbytes = HEADER_FIXED.unpack_from(buffer, offset + fixed)
    start = fixed + HEADER_FIXED.size + 8 * n + sum(sizes)
    if start + nbytes + head_bytes + body_bytes != length:
        raise RecordError(f"MESSAGE record of {length} bytes holds {start + nbytes + head_bytes + body_bytes}")
    return id, when, start, start + nbytes


def decode_message(buffer: bytes, offset: int) -> Message:
    """One MESSAGE record; use a MessageDecoder for many."""
    return MessageDecoder().decode(buffer, offset)


def decode_copied(buffer: bytes, offset: int) -> Copied:
    """One COPIED record; use a MessageDecoder for many."""
    return MessageDecoder().decode_copied(buffer, offset)


Value = TypeVar("Value")


class Decoder(Generic[Value]):
    """Decodes records of one type, or of several with the same table.  Raises RecordError."""

    __slots__ = ("_make", "_table")

    def __init__(self, make: Callable[..., Value], type: RecordType) -> None:
        self._make = make
        self._table = TABLES[type]

    def __call__(self, buffer: bytes, offset: int) -> Value:
        return self._make(*self._table.decode(buffer, offset))


def _counts(flags: int, queue_id: int, count: int, ids: tuple[int, ...]) -> Counts:
    return Counts(queue_id, count, ids, bool(flags & record.COUNTS_REDELIVERED))


def _definition(flags: int, id: int, definition: Json) -> Definition:
    return Definition(id, flags, definition)


def _packets(session_id: int, sent: int, packet_ids: tuple[int, ...]) -> Packets:
    return Packets(session_id, bool(sent), packet_ids)


decode_removed: Final = Decoder(Removed, RecordType.REMOVED)
decode_counts: Final = Decoder(_counts, RecordType.COUNTS)
decode_delivering: Final = Decoder(Delivering, RecordType.DELIVERING)
decode_scheduled: Final = Decoder(Scheduled, RecordType.SCHEDULED)
decode_dead_lettered: Final = Decoder(DeadLettered, RecordType.DEAD_LETTERED)
decode_expired: Final = Decoder(Expired, RecordType.EXPIRED)
decode_dropped: Final = Decoder(Dropped, RecordType.DROPPED)
decode_definition: Final = Decoder(_definition, RecordType.ADDRESS)
decode_opened: Final = Decoder(Opened, RecordType.OPENED)
decode_ids: Final = Decoder(Ids, RecordType.IDS)
decode_trimmed: Final = Decoder(Trimmed, RecordType.TRIMMED)
decode_duplicate_id: Final = Decoder(DuplicateId, RecordType.DUPLICATE_ID)
decode_inflight: Final = Decoder(Inflight, RecordType.INFLIGHT)
decode_packets: Final = Decoder(_packets, RecordType.RELEASED)

_DECODERS: Final[dict[int, Callable[[bytes, int], Record]]] = {
    RecordType.MESSAGE: decode_message,
    RecordType.COPIED: decode_copied,
    RecordType.REMOVED: decode_removed,
    RecordType.COUNTS: decode_counts,
    RecordType.DELIVERING: decode_delivering,
    RecordType.SCHEDULED: decode_scheduled,
    RecordType.DEAD_LETTERED: decode_dead_lettered,
    RecordType.EXPIRED: decode_expired,
    RecordType.DROPPED: decode_dropped,
    **dict.fromkeys(record.DEFINING | record.DELETING, decode_definition),
    RecordType.OPENED: decode_opened,
    RecordType.CLOSED: Decoder(Closed, RecordType.CLOSED),
    RecordType.IDS: decode_ids,
    RecordType.LOST: Decoder(Lost, RecordType.LOST),
    RecordType.TRIMMED: decode_trimmed,
    RecordType.DUPLICATE_ID: decode_duplicate_id,
    RecordType.INFLIGHT: decode_inflight,
    RecordType.RELEASED: decode_packets,
    RecordType.RECEIVED: decode_packets,
    RecordType.COMPLETED: decode_packets,
}

#: The types that this version can read, and those of which it can read version 2.
KNOWN_TYPES: Final = frozenset(_DECODERS)
LARGE_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.COPIED})


def decode(buffer: bytes, offset: int) -> Record:
    """The record at `offset`, whatever its type.  Raises RecordError, also for an unknown type."""
    if len(buffer) - offset < HEAD.size:
        raise RecordError("a record is cut off")
    length, type, _, _ = HEAD.unpack_from(buffer, offset)
    if not HEAD.size <= length <= len(buffer) - offset:
        raise RecordError(f"record of {length} bytes where {len(buffer) - offset} are left")
    decoder = _DECODERS.get(type)
    if decoder is None:
        raise RecordError(f"record type {type} is unknown")
    try:
        return decoder(buffer, offset)
    except (StructError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordError(f"{RecordType(type).name} record: {error}") from error
