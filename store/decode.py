"""Records as values: the inverse of `record`.

A decoder takes a buffer that holds the whole record and the record's offset.  It raises RecordError when the lengths
inside the record do not add up; the checksum of the entry around it makes that a fault of the writer, not of the disk.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import error as StructError
from typing import Final

from store import record
from store.body import BodyReference, decode_reference
from store.record import BIG_ENDIAN, HEAD, MESSAGE_FIXED, Json, RecordError, RecordType


@dataclass(slots=True)
class MessageFacts:
    """What a run of messages has in common.  Times in ms since the epoch, 0: none."""

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
    """A message and the queues that took it.  Messages of one run share their `facts` object."""

    id: int
    flags: int
    facts: MessageFacts
    head: bytes
    body: bytes | BodyReference


@dataclass(slots=True)
class Copied:
    """A message that lay in segment `previous`, and the queues on which it still was when it was copied forward."""

    id: int
    flags: int
    previous: int
    facts: MessageFacts
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
    """Messages that came back have this delivery count now."""

    queue_id: int
    count: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class Delivering:
    """Messages are about to leave for a consumer (strict mode): each counts one delivery more."""

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
    """A message died as `old_id`, and lives on as `new_id` (0: it was killed).  Times in ms since the epoch."""

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
    """A message expired as `old_id`, and lives on as `new_id` (0: nowhere).  Times in ms since the epoch."""

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
    """`count` messages of together `size` bytes were accepted, but no queue got them."""

    reason: int
    count: int
    size: int
    address: str


@dataclass(slots=True)
class Definition:
    """What is defined (an address, queue, session ...), made, changed or deleted (the record's type says which)."""

    id: int
    flags: int
    definition: Json


@dataclass(slots=True)
class Opened:
    """First record of a segment: ids from `next_id` on are unused; `segments` are the older ones still needed."""

    next_id: int
    segments: tuple[int, ...]
    about: Json


@dataclass(slots=True)
class Closed:
    """The broker stopped in good order."""


@dataclass(slots=True)
class Lost:
    """Stands where a record was that a repair could not save."""


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
    """Messages of a queue leave for a session's client, each under a packet id of its own."""

    session_id: int
    queue_id: int
    ids: tuple[int, ...]
    packet_ids: tuple[int, ...]


@dataclass(slots=True)
class Packets:
    """Packet ids of a session: RELEASED, RECEIVED or COMPLETED (the record's type says which).

    `sent`: they are of the broker's giving, else of the client's.
    """

    session_id: int
    sent: bool
    packet_ids: tuple[int, ...]


Record = (
    Message
    | Copied
    | Removed
    | Counts
    | Delivering
    | Scheduled
    | DeadLettered
    | Expired
    | Dropped
    | Definition
    | Opened
    | Closed
    | Lost
    | Ids
    | Trimmed
    | DuplicateId
    | Inflight
    | Packets
)


def _unpack_ids(buffer: bytes, offset: int, n: int) -> tuple[int, ...]:
    unpacked = array("Q")
    unpacked.frombytes(buffer[offset : offset + 8 * n])
    if BIG_ENDIAN:
        unpacked.byteswap()
    return tuple(unpacked)


def _unpack_packet_ids(buffer: bytes, offset: int, n: int) -> tuple[int, ...]:
    unpacked = array("H")
    unpacked.frombytes(buffer[offset : offset + 2 * n])
    if BIG_ENDIAN:
        unpacked.byteswap()
    return tuple(unpacked)


def _check(length: int, expected: int, what: str) -> None:
    if length != expected:
        raise RecordError(f"{what} record of {length} bytes holds {expected}")


class MessageDecoder:
    """Decodes MESSAGE and COPIED records.  Equal facts in a row, as a run has them, come back as the same object."""

    __slots__ = ("_bytes", "_facts")

    def __init__(self) -> None:
        self._bytes = b""
        self._facts: MessageFacts | None = None

    def decode(self, buffer: bytes, offset: int) -> Message:
        """The message at `offset`.  Raises RecordError."""
        length, _, version, flags, id, head_bytes, body_bytes = MESSAGE_FIXED.unpack_from(buffer, offset)
        body_at = offset + length - body_bytes
        head_at = body_at - head_bytes
        facts = self._shared(buffer[offset + MESSAGE_FIXED.size : head_at])
        body = buffer[body_at : offset + length]
        return Message(id, flags, facts, buffer[head_at:body_at], body if version == 1 else decode_reference(body))

    def decode_copied(self, buffer: bytes, offset: int) -> Copied:
        """The COPIED record at `offset`.  Raises RecordError."""
        length, _, version, flags, id, head_bytes, body_bytes, before = record.COPIED_FIXED.unpack_from(buffer, offset)
        body_at = offset + length - body_bytes
        head_at = body_at - head_bytes
        facts = self._shared(buffer[offset + record.COPIED_FIXED.size : head_at])
        body = buffer[body_at : offset + length]
        stored = body if version == 1 else decode_reference(body)
        return Copied(id, flags, before, facts, buffer[head_at:body_at], stored)

    def _shared(self, facts: bytes) -> MessageFacts:
        if facts != self._bytes or self._facts is None:
            self._facts = decode_facts(facts)
            self._bytes = facts
        return self._facts


def decode_facts(facts: bytes) -> MessageFacts:
    """The inverse of `message_facts`.  Raises RecordError."""
    if len(facts) < record.FACTS_FIXED.size:
        raise RecordError(f"MESSAGE record with {len(facts)} bytes of facts")
    (when, expiration, due, priority, format, source, *sizes, n, annotation_bytes) = record.FACTS_FIXED.unpack_from(
        facts
    )
    ids_end = record.FACTS_FIXED.size + 8 * n
    _check(len(facts), ids_end + sum(sizes) + annotation_bytes, "MESSAGE")
    address, user, origin = _strings(facts, ids_end, sizes)
    return MessageFacts(
        timestamp=when,
        expiration=expiration,
        expiry_source=source,
        scheduled=due,
        priority=priority,
        format=format,
        queue_ids=_unpack_ids(facts, record.FACTS_FIXED.size, n),
        address=address,
        user=user,
        origin=origin,
        annotations=facts[len(facts) - annotation_bytes :],
    )


def _strings(buffer: bytes, offset: int, sizes: Sequence[int]) -> list[str]:
    strings = []
    for size in sizes:
        strings.append(str(buffer[offset : offset + size], "utf-8"))
        offset += size
    return strings


def decode_message(buffer: bytes, offset: int) -> Message:
    """One MESSAGE record; use a MessageDecoder for many."""
    return MessageDecoder().decode(buffer, offset)


def decode_copied(buffer: bytes, offset: int) -> Copied:
    """One COPIED record; use a MessageDecoder for many."""
    return MessageDecoder().decode_copied(buffer, offset)


def decode_removed(buffer: bytes, offset: int) -> Removed:
    """The inverse of `removed`."""
    length, _, _, _, queue_id, reason, n = record.REMOVED_FIXED.unpack_from(buffer, offset)
    _check(length, record.REMOVED_FIXED.size + 8 * n, "REMOVED")
    return Removed(queue_id, reason, _unpack_ids(buffer, offset + record.REMOVED_FIXED.size, n))


def decode_counts(buffer: bytes, offset: int) -> Counts:
    """The inverse of `counts`."""
    length, _, _, _, queue_id, count, n = record.COUNTS_FIXED.unpack_from(buffer, offset)
    _check(length, record.COUNTS_FIXED.size + 8 * n, "COUNTS")
    return Counts(queue_id, count, _unpack_ids(buffer, offset + record.COUNTS_FIXED.size, n))


def decode_delivering(buffer: bytes, offset: int) -> Delivering:
    """The inverse of `delivering`."""
    length, _, _, _, queue_id, consumer_id, n = record.DELIVERING_FIXED.unpack_from(buffer, offset)
    _check(length, record.DELIVERING_FIXED.size + 8 * n, "DELIVERING")
    return Delivering(queue_id, consumer_id, _unpack_ids(buffer, offset + record.DELIVERING_FIXED.size, n))


def decode_scheduled(buffer: bytes, offset: int) -> Scheduled:
    """The inverse of `scheduled`."""
    length, _, _, _, queue_id, due, n = record.SCHEDULED_FIXED.unpack_from(buffer, offset)
    _check(length, record.SCHEDULED_FIXED.size + 8 * n, "SCHEDULED")
    return Scheduled(queue_id, due, _unpack_ids(buffer, offset + record.SCHEDULED_FIXED.size, n))


def decode_dead_lettered(buffer: bytes, offset: int) -> DeadLettered:
    """The inverse of `dead_lettered`."""
    length, _, _, _, *fields = record.DEAD_LETTERED_FIXED.unpack_from(buffer, offset)
    sizes = fields[7:]
    _check(length, record.DEAD_LETTERED_FIXED.size + sum(sizes), "DEAD_LETTERED")
    strings = _strings(buffer, offset + record.DEAD_LETTERED_FIXED.size, sizes)
    return DeadLettered(*fields[:7], *strings)


def decode_expired(buffer: bytes, offset: int) -> Expired:
    """The inverse of `expired`."""
    length, _, _, _, *fields, size = record.EXPIRED_FIXED.unpack_from(buffer, offset)
    _check(length, record.EXPIRED_FIXED.size + size, "EXPIRED")
    return Expired(*fields, *_strings(buffer, offset + record.EXPIRED_FIXED.size, (size,)))


def decode_dropped(buffer: bytes, offset: int) -> Dropped:
    """The inverse of `dropped`."""
    length, _, _, _, reason, count, total, size = record.DROPPED_FIXED.unpack_from(buffer, offset)
    _check(length, record.DROPPED_FIXED.size + size, "DROPPED")
    return Dropped(reason, count, total, *_strings(buffer, offset + record.DROPPED_FIXED.size, (size,)))


def decode_definition(buffer: bytes, offset: int) -> Definition:
    """The inverse of `address`, `queue`, `session` ... and their deletions."""
    length, _, _, flags, id = record.DEFINITION_FIXED.unpack_from(buffer, offset)
    return Definition(id, flags, json.loads(buffer[offset + record.DEFINITION_FIXED.size : offset + length].decode()))


def decode_opened(buffer: bytes, offset: int) -> Opened:
    """The inverse of `opened`."""
    length, _, _, _, next_id, n, about_bytes = record.OPENED_FIXED.unpack_from(buffer, offset)
    about_at = offset + record.OPENED_FIXED.size + 8 * n
    _check(length, about_at + about_bytes - offset, "OPENED")
    about: Json = json.loads(buffer[about_at : offset + length])
    return Opened(next_id, _unpack_ids(buffer, offset + record.OPENED_FIXED.size, n), about)


def decode_closed(buffer: bytes, offset: int) -> Closed:
    """The inverse of `closed`."""
    length, _, _, _ = HEAD.unpack_from(buffer, offset)
    _check(length, HEAD.size, "CLOSED")
    return Closed()


def decode_lost(buffer: bytes, offset: int) -> Lost:
    """The inverse of `lost`."""
    length, _, _, _ = HEAD.unpack_from(buffer, offset)
    _check(length, HEAD.size, "LOST")
    return Lost()


def decode_ids(buffer: bytes, offset: int) -> Ids:
    """The inverse of `ids`."""
    length, _, _, _, next_id = record.IDS_FIXED.unpack_from(buffer, offset)
    _check(length, record.IDS_FIXED.size, "IDS")
    return Ids(next_id)


def decode_trimmed(buffer: bytes, offset: int) -> Trimmed:
    """The inverse of `trimmed`."""
    length, _, _, _, n = record.TRIMMED_FIXED.unpack_from(buffer, offset)
    _check(length, record.TRIMMED_FIXED.size + 8 * n, "TRIMMED")
    return Trimmed(_unpack_ids(buffer, offset + record.TRIMMED_FIXED.size, n))


def decode_inflight(buffer: bytes, offset: int) -> Inflight:
    """The inverse of `inflight`."""
    length, _, _, _, session_id, queue_id, n = record.INFLIGHT_FIXED.unpack_from(buffer, offset)
    _check(length, record.INFLIGHT_FIXED.size + 10 * n, "INFLIGHT")
    ids_at = offset + record.INFLIGHT_FIXED.size
    packet_ids = _unpack_packet_ids(buffer, ids_at + 8 * n, n)
    return Inflight(session_id, queue_id, _unpack_ids(buffer, ids_at, n), packet_ids)


def decode_packets(buffer: bytes, offset: int) -> Packets:
    """The inverse of `released`, `received` and `completed`."""
    length, type, _, _, session_id, n, sent = record.PACKETS_FIXED.unpack_from(buffer, offset)
    _check(length, record.PACKETS_FIXED.size + 2 * n, RecordType(type).name)
    return Packets(session_id, bool(sent), _unpack_packet_ids(buffer, offset + record.PACKETS_FIXED.size, n))


def decode_duplicate_id(buffer: bytes, offset: int) -> DuplicateId:
    """The inverse of `duplicate_id`."""
    length, _, _, _, address_id, message_id, n = record.DUPLICATE_ID_FIXED.unpack_from(buffer, offset)
    _check(length, record.DUPLICATE_ID_FIXED.size + n, "DUPLICATE_ID")
    return DuplicateId(address_id, message_id, buffer[offset + length - n : offset + length])


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
    RecordType.CLOSED: decode_closed,
    RecordType.IDS: decode_ids,
    RecordType.LOST: decode_lost,
    RecordType.TRIMMED: decode_trimmed,
    RecordType.DUPLICATE_ID: decode_duplicate_id,
    RecordType.INFLIGHT: decode_inflight,
    RecordType.RELEASED: decode_packets,
    RecordType.RECEIVED: decode_packets,
    RecordType.COMPLETED: decode_packets,
}

#: The types that a reader of this version understands, and those of which it understands version 2.
KNOWN_TYPES: Final = frozenset(_DECODERS)
LARGE_TYPES: Final = frozenset({RecordType.MESSAGE, RecordType.COPIED})


def decode(buffer: bytes, offset: int) -> Record:
    """The record at `offset`, whatever its type.  Raises RecordError, also for a type that is not known."""
    if len(buffer) - offset < HEAD.size:
        raise RecordError("a record is cut off")
    length, type, _, _ = HEAD.unpack_from(buffer, offset)
    if not HEAD.size <= length <= len(buffer) - offset:
        raise RecordError(f"record of {length} bytes where {len(buffer) - offset} are left")
    decoder = _DECODERS.get(type)
    if decoder is None:
        raise RecordError(f"record type {type} is not known")
    try:
        return decoder(buffer, offset)
    except (StructError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RecordError(f"{RecordType(type).name} record: {error}") from error
