"""Records: what the journal says, one fact each, as bytes.

Everything is little-endian.  A record begins with the same eight bytes:

     0        4      5        6       8
    +--------+------+---------+-------+------------------------------------
    | length | type | version | flags | fixed fields ... variable fields
    +--------+------+---------+-------+------------------------------------

`length` is that of the whole record.  Fixed fields stand at fixed offsets before all variable ones, so that a reader
can gather a column without walking the fields.  docs/journal-format.md draws every type; `decode` is the way back.

A record never changes its meaning: a new meaning is a new type or a new version.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, Protocol

from store.body import BodyReference
from store.record_types import DEFINING as DEFINING
from store.record_types import DELETING as DELETING
from store.record_types import DeadLetterReason as DeadLetterReason
from store.record_types import RecordType as RecordType
from store.record_types import RemovalReason as RemovalReason

Json = dict[str, object]

VERSION: Final = 1

#: The version of MESSAGE and COPIED records whose body is in a file: where it would be is a reference.
LARGE_VERSION: Final = 2

# Flags of a MESSAGE or COPIED record.
ANYCAST: Final = 0x0002  # the sender asked for anycast ...
MULTICAST: Final = 0x0004  # ... or multicast routing; neither: whatever the address has
GROUPED: Final = 0x0008  # a property puts the message in a message group
VOLATILE: Final = 0x0010  # the message is not durable: never in the journal, only in scratch files (see `pages`)

#: Flag of a record of a defining type that repeats a definition so that the segment can be read alone.
REPEATED: Final = 0x8000

#: The longest string with a 16-bit length field, in bytes of UTF-8.
STRING_BYTES_MAX: Final = 0xFFFF

HEAD: Final = Struct("<IBBH")
MESSAGE_FIXED: Final = Struct("<IBBHQII")
COPIED_FIXED: Final = Struct("<IBBHQIII4x")
FACTS_FIXED: Final = Struct("<qqqBBBxHHHxxII")
REMOVED_FIXED: Final = Struct("<IBBHQB3xI")
COUNTS_FIXED: Final = Struct("<IBBHQII")
DELIVERING_FIXED: Final = Struct("<IBBHQQI4x")
SCHEDULED_FIXED: Final = Struct("<IBBHQqI4x")
DEAD_LETTERED_FIXED: Final = Struct("<IBBHQQQqqIBxHHHHH")
EXPIRED_FIXED: Final = Struct("<IBBHQQQqqIBxHH")
DROPPED_FIXED: Final = Struct("<IBBHB3xIQH")
DEFINITION_FIXED: Final = Struct("<IBBHQ")
OPENED_FIXED: Final = Struct("<IBBHQII")
IDS_FIXED: Final = Struct("<IBBHQ")
TRIMMED_FIXED: Final = Struct("<IBBHI4x")
DUPLICATE_ID_FIXED: Final = Struct("<IBBHQQH6x")
INFLIGHT_FIXED: Final = Struct("<IBBHQQI4x")
PACKETS_FIXED: Final = Struct("<IBBHQIB3x")
_FLAGS: Final = Struct("<H")

BIG_ENDIAN: Final = sys.byteorder == "big"


class RecordError(ValueError):
    """A record's bytes contradict themselves, or a field does not fit into its record."""


class StoredMessage(Protocol):
    """What a message must have to be stored; its body is bytes (`encode_large` is for others)."""

    @property
    def id(self) -> int: ...
    @property
    def head(self) -> bytes: ...
    @property
    def body(self) -> Any: ...


def encode_json(value: Json | dict[str, str | int]) -> bytes:
    """A JSON object as the journal writes it: compact, UTF-8, keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _string(text: str, what: str) -> bytes:
    data = text.encode()
    if len(data) > STRING_BYTES_MAX:
        raise RecordError(f"{what} of {len(data)} bytes exceeds {STRING_BYTES_MAX}")
    return data


def _pack_ids(ids: Sequence[int]) -> bytes:
    packed = array("Q", ids)
    if BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def _pack_packet_ids(packet_ids: Sequence[int]) -> bytes:
    packed = array("H", packet_ids)
    if BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def message_facts(
    *,
    timestamp: int,
    expiration: int = 0,
    expiry_source: int = 0,
    scheduled: int = 0,
    priority: int = 4,
    format: int = 0,
    queue_ids: Sequence[int] = (),
    address: str = "",
    user: str = "",
    origin: str = "",
    annotations: bytes = b"",
) -> bytes:
    """The part of a MESSAGE record that a run shares.  Raises RecordError when a string is longer than 65,535 bytes."""
    where, who, source = _string(address, "address"), _string(user, "user"), _string(origin, "origin")
    fixed = FACTS_FIXED.pack(
        timestamp,
        expiration,
        scheduled,
        priority,
        format,
        expiry_source,
        len(where),
        len(who),
        len(source),
        len(queue_ids),
        len(annotations),
    )
    return b"".join((fixed, _pack_ids(queue_ids), where, who, source, annotations))


def encode_messages(out: list[bytes], facts: bytes, flags: int, messages: Sequence[StoredMessage]) -> int:
    """Append the MESSAGE records of a run to `out`, in parts; returns their bytes."""
    pack = MESSAGE_FIXED.pack
    fixed = MESSAGE_FIXED.size + len(facts)
    total = 0
    for message in messages:
        head = message.head
        body = message.body
        head_bytes = len(head)
        body_bytes = len(body)
        length = fixed + head_bytes + body_bytes
        total += length
        out += (pack(length, 1, 1, flags, message.id, head_bytes, body_bytes), facts, head, body)
    return total


def encode_copies(out: list[bytes], facts: bytes, flags: int, messages: Sequence[StoredMessage], previous: int) -> int:
    """Append COPIED records: messages that lay in segment `previous`, with the queues on which they still are.

    Returns their bytes.
    """
    fixed = COPIED_FIXED.size + len(facts)
    total = 0
    for message in messages:
        head, body = message.head, message.body
        length = fixed + len(head) + len(body)
        total += length
        start = COPIED_FIXED.pack(length, RecordType.COPIED, VERSION, flags, message.id, len(head), len(body), previous)
        out += (start, facts, head, body)
    return total


def encode_large(
    out: list[bytes], facts: bytes, flags: int, id: int, head: bytes, body: BodyReference, previous: int
) -> int:
    """Append a MESSAGE record whose body is in a file, or a COPIED one of `previous`; returns its bytes."""
    reference = body.encode()
    fixed = COPIED_FIXED if previous else MESSAGE_FIXED
    length = fixed.size + len(facts) + len(head) + len(reference)
    type = RecordType.COPIED if previous else RecordType.MESSAGE
    more = (previous,) if previous else ()
    start = fixed.pack(length, type, LARGE_VERSION, flags, id, len(head), len(reference), *more)
    out += (start, facts, head, reference)
    return length


def removed(queue_id: int, reason: int, ids: Sequence[int]) -> bytes:
    """Messages have left a queue, for a RemovalReason."""
    n = len(ids)
    return REMOVED_FIXED.pack(REMOVED_FIXED.size + 8 * n, RecordType.REMOVED, 1, 0, queue_id, reason, n) + _pack_ids(
        ids
    )


def counts(queue_id: int, count: int, ids: Sequence[int]) -> bytes:
    """Messages that came back have this delivery count now."""
    n = len(ids)
    return COUNTS_FIXED.pack(COUNTS_FIXED.size + 8 * n, RecordType.COUNTS, 1, 0, queue_id, count, n) + _pack_ids(ids)


def delivering(queue_id: int, consumer_id: int, ids: Sequence[int]) -> bytes:
    """Messages are about to leave for a consumer: each counts one delivery more."""
    n = len(ids)
    fixed = DELIVERING_FIXED.pack(DELIVERING_FIXED.size + 8 * n, RecordType.DELIVERING, 1, 0, queue_id, consumer_id, n)
    return fixed + _pack_ids(ids)


def scheduled(queue_id: int, due: int, ids: Sequence[int]) -> bytes:
    """Messages wait until `due` (ms since the epoch); 0: they no longer wait."""
    n = len(ids)
    return SCHEDULED_FIXED.pack(SCHEDULED_FIXED.size + 8 * n, RecordType.SCHEDULED, 1, 0, queue_id, due, n) + _pack_ids(
        ids
    )


def dead_lettered(
    *,
    queue_id: int,
    old_id: int,
    new_id: int,
    enqueued: int,
    first_failure: int,
    attempts: int,
    reason: int,
    address: str,
    text: str,
    client: str,
    remote: str,
    user: str,
) -> bytes:
    """A message died.  Raises RecordError when a string is longer than 65,535 bytes."""
    named = (("address", address), ("text", text), ("client", client), ("remote", remote), ("user", user))
    strings = [_string(value, name) for name, value in named]
    sizes = [len(s) for s in strings]
    fixed = DEAD_LETTERED_FIXED.pack(
        DEAD_LETTERED_FIXED.size + sum(sizes),
        RecordType.DEAD_LETTERED,
        VERSION,
        0,
        queue_id,
        old_id,
        new_id,
        enqueued,
        first_failure,
        attempts,
        reason,
        *sizes,
    )
    return fixed + b"".join(strings)


def expired(
    *,
    queue_id: int,
    old_id: int,
    new_id: int,
    enqueued: int,
    expiration: int,
    attempts: int,
    source: int,
    consumers: int,
    address: str,
) -> bytes:
    """A message expired.  `source` is the rule that set its expiration, `consumers` how many the queue had.

    Raises RecordError when the address is longer than 65,535 bytes.
    """
    where = _string(address, "address")
    fixed = EXPIRED_FIXED.pack(
        EXPIRED_FIXED.size + len(where),
        RecordType.EXPIRED,
        VERSION,
        0,
        queue_id,
        old_id,
        new_id,
        enqueued,
        expiration,
        attempts,
        source,
        min(consumers, 0xFFFF),
        len(where),
    )
    return fixed + where


def dropped(reason: int, count: int, size: int, address: str) -> bytes:
    """Messages were accepted but no queue got them.  Raises RecordError for an address longer than 65,535 bytes."""
    where = _string(address, "address")
    length = DROPPED_FIXED.size + len(where)
    return DROPPED_FIXED.pack(length, RecordType.DROPPED, VERSION, 0, reason, count, size, len(where)) + where


def _definition(type: int, id: int, definition: Json) -> bytes:
    data = encode_json(definition)
    return DEFINITION_FIXED.pack(DEFINITION_FIXED.size + len(data), type, VERSION, 0, id) + data


def address(id: int, definition: Json) -> bytes:
    """An address was made or changed."""
    return _definition(RecordType.ADDRESS, id, definition)


def address_deleted(id: int, definition: Json) -> bytes:
    """An address was deleted; the definition says its name for readers."""
    return _definition(RecordType.ADDRESS_DELETED, id, definition)


def queue(id: int, definition: Json) -> bytes:
    """A queue was made or changed."""
    return _definition(RecordType.QUEUE, id, definition)


def queue_deleted(id: int, definition: Json) -> bytes:
    """A queue was deleted; the definition says its name for readers."""
    return _definition(RecordType.QUEUE_DELETED, id, definition)


def divert(id: int, definition: Json) -> bytes:
    """A divert was made or changed."""
    return _definition(RecordType.DIVERT, id, definition)


def divert_deleted(id: int, definition: Json) -> bytes:
    """A divert was deleted; the definition says its name for readers."""
    return _definition(RecordType.DIVERT_DELETED, id, definition)


def repeated(record: bytes) -> bytes:
    """The same record, marked as a repetition."""
    (flags,) = _FLAGS.unpack_from(record, 6)
    return record[:6] + _FLAGS.pack(flags | REPEATED) + record[8:]


def opened(next_id: int, segments: Sequence[int], about: Json) -> bytes:
    """First record of a segment."""
    data = encode_json(about)
    length = OPENED_FIXED.size + 8 * len(segments) + len(data)
    fixed = OPENED_FIXED.pack(length, RecordType.OPENED, VERSION, 0, next_id, len(segments), len(data))
    return fixed + _pack_ids(segments) + data


def closed() -> bytes:
    """The broker stops in good order."""
    return HEAD.pack(HEAD.size, RecordType.CLOSED, VERSION, 0)


def lost() -> bytes:
    """Stands where a record was that a repair could not save."""
    return HEAD.pack(HEAD.size, RecordType.LOST, VERSION, 0)


def ids(next_id: int) -> bytes:
    """Ids from `next_id` on are unused."""
    return IDS_FIXED.pack(IDS_FIXED.size, RecordType.IDS, VERSION, 0, next_id)


def trimmed(segments: Sequence[int]) -> bytes:
    """Segments are no longer needed."""
    length = TRIMMED_FIXED.size + 8 * len(segments)
    return TRIMMED_FIXED.pack(length, RecordType.TRIMMED, VERSION, 0, len(segments)) + _pack_ids(segments)


def session(id: int, definition: Json) -> bytes:
    """A client's session was opened or changed."""
    return _definition(RecordType.SESSION, id, definition)


def session_deleted(id: int, definition: Json) -> bytes:
    """A session ended, and with it all of its packet ids; the definition says its name for readers."""
    return _definition(RecordType.SESSION_DELETED, id, definition)


def session_part(id: int, definition: Json) -> bytes:
    """A part of what the protocol keeps of a session was made or changed; `id` is its own."""
    return _definition(RecordType.SESSION_PART, id, definition)


def session_part_deleted(id: int, definition: Json) -> bytes:
    """A part of a session is gone; the definition says its name for readers."""
    return _definition(RecordType.SESSION_PART_DELETED, id, definition)


def inflight(session_id: int, queue_id: int, ids: Sequence[int], packet_ids: Sequence[int]) -> bytes:
    """Messages of a queue leave for a session's client, each under a packet id of its own."""
    n = len(ids)
    assert n == len(packet_ids), "a packet id for each message"
    length = INFLIGHT_FIXED.size + 10 * n
    fixed = INFLIGHT_FIXED.pack(length, RecordType.INFLIGHT, VERSION, 0, session_id, queue_id, n)
    return fixed + _pack_ids(ids) + _pack_packet_ids(packet_ids)


def released(session_id: int, packet_ids: Sequence[int]) -> bytes:
    """The client has these messages: their packet ids are to be released, and no message is sent for them again."""
    return _packets(RecordType.RELEASED, session_id, packet_ids, sent=True)


def received(session_id: int, packet_ids: Sequence[int]) -> bytes:
    """Messages came from the client under these packet ids: what comes under them again is a repetition."""
    return _packets(RecordType.RECEIVED, session_id, packet_ids, sent=False)


def completed(session_id: int, packet_ids: Sequence[int], *, sent: bool) -> bytes:
    """These packet ids are free again: ids that the broker gave (`sent`), or the client."""
    return _packets(RecordType.COMPLETED, session_id, packet_ids, sent=sent)


def _packets(type: int, session_id: int, packet_ids: Sequence[int], *, sent: bool) -> bytes:
    n = len(packet_ids)
    return PACKETS_FIXED.pack(PACKETS_FIXED.size + 2 * n, type, VERSION, 0, session_id, n, sent) + _pack_packet_ids(
        packet_ids
    )


def duplicate_id(address_id: int, message_id: int, id: bytes, *, again: bool = False) -> bytes:
    """A message with this duplicate id was accepted on an address.

    `again` marks a copy of an earlier record.  Raises RecordError for an id of more than 65,535 bytes.
    """
    if len(id) > STRING_BYTES_MAX:
        raise RecordError(f"duplicate id of {len(id)} bytes exceeds {STRING_BYTES_MAX}")
    length = DUPLICATE_ID_FIXED.size + len(id)
    flags = REPEATED if again else 0
    fixed = DUPLICATE_ID_FIXED.pack(length, RecordType.DUPLICATE_ID, VERSION, flags, address_id, message_id, len(id))
    return fixed + id
