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

from store.record import (
    BIG_ENDIAN,
    COUNTS_FIXED,
    DEAD_LETTERED_FIXED,
    DEFINITION_FIXED,
    DELIVERING_FIXED,
    DROPPED_FIXED,
    EXPIRED_FIXED,
    FACTS_FIXED,
    HEAD,
    IDS_FIXED,
    MESSAGE_FIXED,
    OPENED_FIXED,
    REMOVED_FIXED,
    SCHEDULED_FIXED,
    TRIMMED_FIXED,
    Json,
    RecordError,
    RecordType,
)


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
    body: bytes


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
    """An address or queue, made, changed or deleted (the record's type says which)."""

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
class Ids:
    """Ids from `next_id` on are unused."""

    next_id: int


@dataclass(slots=True)
class Trimmed:
    """These segments are no longer needed: recovery ignores them."""

    segments: tuple[int, ...]


Record = (
    Message
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
    | Ids
    | Trimmed
)


def _unpack_ids(buffer: bytes, offset: int, n: int) -> tuple[int, ...]:
    unpacked = array("Q")
    unpacked.frombytes(buffer[offset : offset + 8 * n])
    if BIG_ENDIAN:
        unpacked.byteswap()
    return tuple(unpacked)


def _check(length: int, expected: int, what: str) -> None:
    if length != expected:
        raise RecordError(f"{what} record of {length} bytes holds {expected}")


class MessageDecoder:
    """Decodes MESSAGE records.  A run's facts are decoded once: equal ones in a row come back as the same object."""

    __slots__ = ("_bytes", "_facts")

    def __init__(self) -> None:
        self._bytes = b""
        self._facts: MessageFacts | None = None

    def decode(self, buffer: bytes, offset: int) -> Message:
        """The message at `offset`.  Raises RecordError."""
        length, _, _, flags, id, head_bytes, body_bytes = MESSAGE_FIXED.unpack_from(buffer, offset)
        body_at = offset + length - body_bytes
        head_at = body_at - head_bytes
        facts = buffer[offset + 24 : head_at]
        if facts != self._bytes or self._facts is None:
            self._facts = decode_facts(facts)
            self._bytes = facts
        return Message(id, flags, self._facts, buffer[head_at:body_at], buffer[body_at : offset + length])


def decode_facts(facts: bytes) -> MessageFacts:
    """The inverse of `message_facts`.  Raises RecordError."""
    if len(facts) < FACTS_FIXED.size:
        raise RecordError(f"MESSAGE record with {len(facts)} bytes of facts")
    (when, expiration, due, priority, format, source, *sizes, n, annotation_bytes) = FACTS_FIXED.unpack_from(facts)
    ids_end = FACTS_FIXED.size + 8 * n
    _check(len(facts), ids_end + sum(sizes) + annotation_bytes, "MESSAGE")
    address, user, origin = _strings(facts, ids_end, sizes)
    return MessageFacts(
        timestamp=when,
        expiration=expiration,
        expiry_source=source,
        scheduled=due,
        priority=priority,
        format=format,
        queue_ids=_unpack_ids(facts, FACTS_FIXED.size, n),
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


def decode_removed(buffer: bytes, offset: int) -> Removed:
    """The inverse of `removed`."""
    length, _, _, _, queue_id, reason, n = REMOVED_FIXED.unpack_from(buffer, offset)
    _check(length, REMOVED_FIXED.size + 8 * n, "REMOVED")
    return Removed(queue_id, reason, _unpack_ids(buffer, offset + REMOVED_FIXED.size, n))


def decode_counts(buffer: bytes, offset: int) -> Counts:
    """The inverse of `counts`."""
    length, _, _, _, queue_id, count, n = COUNTS_FIXED.unpack_from(buffer, offset)
    _check(length, COUNTS_FIXED.size + 8 * n, "COUNTS")
    return Counts(queue_id, count, _unpack_ids(buffer, offset + COUNTS_FIXED.size, n))


def decode_delivering(buffer: bytes, offset: int) -> Delivering:
    """The inverse of `delivering`."""
    length, _, _, _, queue_id, consumer_id, n = DELIVERING_FIXED.unpack_from(buffer, offset)
    _check(length, DELIVERING_FIXED.size + 8 * n, "DELIVERING")
    return Delivering(queue_id, consumer_id, _unpack_ids(buffer, offset + DELIVERING_FIXED.size, n))


def decode_scheduled(buffer: bytes, offset: int) -> Scheduled:
    """The inverse of `scheduled`."""
    length, _, _, _, queue_id, due, n = SCHEDULED_FIXED.unpack_from(buffer, offset)
    _check(length, SCHEDULED_FIXED.size + 8 * n, "SCHEDULED")
    return Scheduled(queue_id, due, _unpack_ids(buffer, offset + SCHEDULED_FIXED.size, n))


def decode_dead_lettered(buffer: bytes, offset: int) -> DeadLettered:
    """The inverse of `dead_lettered`."""
    length, _, _, _, *fields = DEAD_LETTERED_FIXED.unpack_from(buffer, offset)
    sizes = fields[7:]
    _check(length, DEAD_LETTERED_FIXED.size + sum(sizes), "DEAD_LETTERED")
    strings = _strings(buffer, offset + DEAD_LETTERED_FIXED.size, sizes)
    return DeadLettered(*fields[:7], *strings)


def decode_expired(buffer: bytes, offset: int) -> Expired:
    """The inverse of `expired`."""
    length, _, _, _, *fields, size = EXPIRED_FIXED.unpack_from(buffer, offset)
    _check(length, EXPIRED_FIXED.size + size, "EXPIRED")
    return Expired(*fields, *_strings(buffer, offset + EXPIRED_FIXED.size, (size,)))


def decode_dropped(buffer: bytes, offset: int) -> Dropped:
    """The inverse of `dropped`."""
    length, _, _, _, reason, count, total, size = DROPPED_FIXED.unpack_from(buffer, offset)
    _check(length, DROPPED_FIXED.size + size, "DROPPED")
    return Dropped(reason, count, total, *_strings(buffer, offset + DROPPED_FIXED.size, (size,)))


def decode_definition(buffer: bytes, offset: int) -> Definition:
    """The inverse of `address`, `queue` and their deletions."""
    length, _, _, flags, id = DEFINITION_FIXED.unpack_from(buffer, offset)
    return Definition(id, flags, json.loads(buffer[offset + DEFINITION_FIXED.size : offset + length]))


def decode_opened(buffer: bytes, offset: int) -> Opened:
    """The inverse of `opened`."""
    length, _, _, _, next_id, n, about_bytes = OPENED_FIXED.unpack_from(buffer, offset)
    about_at = offset + OPENED_FIXED.size + 8 * n
    _check(length, about_at + about_bytes - offset, "OPENED")
    about: Json = json.loads(buffer[about_at : offset + length])
    return Opened(next_id, _unpack_ids(buffer, offset + OPENED_FIXED.size, n), about)


def decode_closed(buffer: bytes, offset: int) -> Closed:
    """The inverse of `closed`."""
    length, _, _, _ = HEAD.unpack_from(buffer, offset)
    _check(length, HEAD.size, "CLOSED")
    return Closed()


def decode_ids(buffer: bytes, offset: int) -> Ids:
    """The inverse of `ids`."""
    length, _, _, _, next_id = IDS_FIXED.unpack_from(buffer, offset)
    _check(length, IDS_FIXED.size, "IDS")
    return Ids(next_id)


def decode_trimmed(buffer: bytes, offset: int) -> Trimmed:
    """The inverse of `trimmed`."""
    length, _, _, _, n = TRIMMED_FIXED.unpack_from(buffer, offset)
    _check(length, TRIMMED_FIXED.size + 8 * n, "TRIMMED")
    return Trimmed(_unpack_ids(buffer, offset + TRIMMED_FIXED.size, n))


_DECODERS: Final[dict[int, Callable[[bytes, int], Record]]] = {
    RecordType.MESSAGE: decode_message,
    RecordType.REMOVED: decode_removed,
    RecordType.COUNTS: decode_counts,
    RecordType.DELIVERING: decode_delivering,
    RecordType.SCHEDULED: decode_scheduled,
    RecordType.DEAD_LETTERED: decode_dead_lettered,
    RecordType.EXPIRED: decode_expired,
    RecordType.DROPPED: decode_dropped,
    RecordType.ADDRESS: decode_definition,
    RecordType.ADDRESS_DELETED: decode_definition,
    RecordType.QUEUE: decode_definition,
    RecordType.QUEUE_DELETED: decode_definition,
    RecordType.OPENED: decode_opened,
    RecordType.CLOSED: decode_closed,
    RecordType.IDS: decode_ids,
    RecordType.TRIMMED: decode_trimmed,
}

#: The types that a reader of this version understands.
KNOWN_TYPES: Final = frozenset(_DECODERS)


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
