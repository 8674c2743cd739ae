"""Records: what the journal holds, one fact each, encoded as bytes.

Everything is little-endian.  All records begin with the same eight bytes:

     0        4      5        6       8
    +--------+------+---------+-------+------------------------------------
    | length | type | version | flags | fixed fields ... variable fields
    +--------+------+---------+-------+------------------------------------

`length` is that of the whole record.  Fixed fields are at fixed offsets before all variable ones, so that a reader can
collect a column without walking the fields.  docs/journal-format.md draws every type; `record_tables` has the fields of
each, and `decode` is the inverse.

A record never changes its meaning: a new meaning is a new type or a new version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Final

from store.body import BodyReference, LargeBody
from store.record_tables import COPIED_FIXED as COPIED_FIXED
from store.record_tables import HEAD as HEAD
from store.record_tables import HEADER_FIXED as HEADER_FIXED
from store.record_tables import MESSAGE_FIXED as MESSAGE_FIXED
from store.record_tables import STRING_BYTES_MAX as STRING_BYTES_MAX
from store.record_tables import TABLES, encode_string, pack_numbers
from store.record_tables import VERSION as VERSION
from store.record_tables import Json as Json
from store.record_tables import RecordError as RecordError
from store.record_tables import encode_json as encode_json
from store.record_types import DEFINING as DEFINING
from store.record_types import DELETING as DELETING
from store.record_types import FORMATS as FORMATS
from store.record_types import DeadLetterReason as DeadLetterReason
from store.record_types import RecordType as RecordType
from store.record_types import RemovalReason as RemovalReason

#: The version of MESSAGE and COPIED records whose body is in a file: they have a reference in its place.
LARGE_VERSION: Final = 2

# Flags of a MESSAGE or COPIED record.
ANYCAST: Final = 0x0002  # the sender asked for anycast ...
MULTICAST: Final = 0x0004  # ... or multicast routing; neither: whatever the address has
GROUPED: Final = 0x0008  # a property puts the message in a message group
VOLATILE: Final = 0x0010  # the message is not durable: never in the journal, only in scratch files (see `pages`)

#: Flag of a record of a defining type that repeats a definition so that the segment can be read alone.
REPEATED: Final = 0x8000

#: Flag of COUNTS: the messages were sent to a consumer, even if none of their deliveries has failed.
COUNTS_REDELIVERED: Final = 1

_FLAGS: Final = Struct("<H")


#: Numbers of four bytes, made once: packing one costs as much as all else of a record.
_NUMBERS: Final = [number.to_bytes(4, "little") for number in range(4096)]
_OCTETS: Final = [bytes([number]) for number in range(256)]

_KIND: Final = Struct("<BBH")

#: The bytes of each message in a REMOVED record, and those of the records of a death without their strings.
REMOVAL_BYTES: Final = 8
EXPIRED_BYTES: Final = TABLES[RecordType.EXPIRED].fixed.size
DEAD_LETTERED_BYTES: Final = TABLES[RecordType.DEAD_LETTERED].fixed.size


class StoredMessage:
    """The stored part of a message; the engine's Message derives from it."""

    __slots__ = ("body", "head", "id")

    def __init__(self, id: int, head: bytes, body: bytes | LargeBody) -> None:
        self.id = id
        self.head = head
        self.body = body


class MessageLead:
    """The part that the MESSAGE records of a run share: `header` from message_header, and flags.

    `nbytes` is the length of a record without head and body.
    """

    __slots__ = ("header", "kind", "nbytes")

    def __init__(self, header: bytes, flags: int) -> None:
        self.header = header
        self.kind = _KIND.pack(RecordType.MESSAGE, VERSION, flags)
        self.nbytes = MESSAGE_FIXED.size + len(header)


# -- messages ----------------------------------------------------------------------------------------------------------


def message_header(
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
    """The header of a MESSAGE record, which a run shares.  Raises RecordError if a string exceeds 65,535 bytes."""
    where, who, source = encode_string("address", address), encode_string("user", user), encode_string("origin", origin)
    fixed = HEADER_FIXED.pack(
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
    return b"".join((fixed, pack_numbers("Q", queue_ids), where, who, source, annotations))


def encode_messages(out: list[bytes], header: bytes, flags: int, messages: Sequence[StoredMessage]) -> int:
    """Append the MESSAGE records of a run to `out`, in parts; returns their bytes."""
    return encode_mixed(out, [MessageLead(header, flags)] * len(messages), messages)


def encode_mixed(out: list[bytes], leads: list[MessageLead], messages: Sequence[StoredMessage]) -> int:
    """Append the MESSAGE records of messages with a lead each to `out`, in parts; returns their bytes.

    Use `encode_large` for messages whose body is in a file.
    """
    numbers, ready, octets = _NUMBERS, len(_NUMBERS), _OCTETS
    block, high = -1, b""  # the upper seven bytes of the last id, which the next one mostly shares
    total = 0
    for at, message in enumerate(messages):
        lead, id, head, body = leads[at], message.id, message.head, message.body
        assert isinstance(body, bytes), "a body in memory"
        head_bytes = len(head)
        body_bytes = len(body)
        length = lead.nbytes + head_bytes + body_bytes
        total += length
        if id >> 8 != block:
            block = id >> 8
            high = block.to_bytes(7, "little")
        of_head = numbers[head_bytes] if head_bytes < ready else head_bytes.to_bytes(4, "little")
        of_body = numbers[body_bytes] if body_bytes < ready else body_bytes.to_bytes(4, "little")
        low = octets[id & 0xFF]
        if length < ready:
            out.append(b"%b%b%b%b%b%b%b" % (numbers[length], lead.kind, low, high, of_head, of_body, lead.header))
        else:  # the header of a run names all of its queues: it is not copied for each of its messages
            out.append(b"%b%b%b%b%b%b" % (length.to_bytes(4, "little"), lead.kind, low, high, of_head, of_body))
            out.append(lead.header)
        out.append(head)
        out.append(body)
    return total


def encode_copies(out: list[bytes], header: bytes, flags: int, messages: Sequence[StoredMessage], previous: int) -> int:
    """Append COPIED records: messages that were in segment `previous`, with the queues on which they still are.

    Returns their bytes.
    """
    fixed = COPIED_FIXED.size + len(header)
    total = 0
    for message in messages:
        head, body = message.head, message.body
        assert isinstance(body, bytes), "a body in memory"
        length = fixed + len(head) + len(body)
        total += length
        start = COPIED_FIXED.pack(length, RecordType.COPIED, VERSION, flags, message.id, len(head), len(body), previous)
        out += (start, header, head, body)
    return total


def encode_large(
    out: list[bytes], header: bytes, flags: int, id: int, head: bytes, body: BodyReference, previous: int
) -> int:
    """Append a MESSAGE record whose body is in a file, or, with `previous`, a COPIED one; returns its bytes."""
    reference = body.encode()
    fixed = COPIED_FIXED if previous else MESSAGE_FIXED
    length = fixed.size + len(header) + len(head) + len(reference)
    type = RecordType.COPIED if previous else RecordType.MESSAGE
    more = (previous,) if previous else ()
    start = fixed.pack(length, type, LARGE_VERSION, flags, id, len(head), len(reference), *more)
    out += (start, header, head, reference)
    return length


# -- events of messages ------------------------------------------------------------------------------------------------

_removed: Final = TABLES[RecordType.REMOVED].encode
_counts: Final = TABLES[RecordType.COUNTS].encode
_delivering: Final = TABLES[RecordType.DELIVERING].encode
_scheduled: Final = TABLES[RecordType.SCHEDULED].encode
_dead_lettered: Final = TABLES[RecordType.DEAD_LETTERED].encode
_expired: Final = TABLES[RecordType.EXPIRED].encode
_dropped: Final = TABLES[RecordType.DROPPED].encode


def removed(queue_id: int, reason: int, ids: Sequence[int]) -> bytes:
    """Messages have left a queue, for a RemovalReason."""
    return _removed(0, (queue_id, reason), ids)


def counts(queue_id: int, count: int, ids: Sequence[int], *, redelivered: bool = False) -> bytes:
    """Returned messages have this delivery count now; even with 0 they may be `redelivered`."""
    return _counts(COUNTS_REDELIVERED if redelivered else 0, (queue_id, count), ids)


def delivering(queue_id: int, consumer_id: int, ids: Sequence[int]) -> bytes:
    """Messages are about to be sent to a consumer: each counts one more delivery."""
    return _delivering(0, (queue_id, consumer_id), ids)


def scheduled(queue_id: int, due: int, ids: Sequence[int]) -> bytes:
    """Messages wait until `due` (ms since the epoch); 0: they no longer wait."""
    return _scheduled(0, (queue_id, due), ids)


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
    """A message died.  Raises RecordError if a string is longer than 65,535 bytes."""
    fields = (queue_id, old_id, new_id, enqueued, first_failure, attempts, reason)
    return _dead_lettered(0, fields, address, text, client, remote, user)


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

    Raises RecordError if the address is longer than 65,535 bytes.
    """
    fields = (queue_id, old_id, new_id, enqueued, expiration, attempts, source, min(consumers, 0xFFFF))
    return _expired(0, fields, address)


def dropped(reason: int, count: int, size: int, address: str) -> bytes:
    """Messages were accepted but no queue got them.  Raises RecordError for an address longer than 65,535 bytes."""
    return _dropped(0, (reason, count, size), address)


# -- definitions -------------------------------------------------------------------------------------------------------

DEFINITION_FIXED: Final = TABLES[RecordType.ADDRESS].fixed

#: Encodes the record of a definition under an id, or of its deletion, whose definition has the name for readers.
Define = Callable[[int, Json], bytes]


def _definition(type: int, id: int, definition: Json) -> bytes:
    return TABLES[type].encode(0, (id,), definition)


address: Final[Define] = partial(_definition, RecordType.ADDRESS)
address_deleted: Final[Define] = partial(_definition, RecordType.ADDRESS_DELETED)
queue: Final[Define] = partial(_definition, RecordType.QUEUE)
queue_deleted: Final[Define] = partial(_definition, RecordType.QUEUE_DELETED)
divert: Final[Define] = partial(_definition, RecordType.DIVERT)
divert_deleted: Final[Define] = partial(_definition, RecordType.DIVERT_DELETED)
task: Final[Define] = partial(_definition, RecordType.TASK)
task_deleted: Final[Define] = partial(_definition, RecordType.TASK_DELETED)
session: Final[Define] = partial(_definition, RecordType.SESSION)  # its deletion ends all of its packet ids too
session_deleted: Final[Define] = partial(_definition, RecordType.SESSION_DELETED)
session_part: Final[Define] = partial(_definition, RecordType.SESSION_PART)  # the id is the part's own
session_part_deleted: Final[Define] = partial(_definition, RecordType.SESSION_PART_DELETED)


def repeated(record: bytes) -> bytes:
    """The same record, marked as a repetition."""
    (flags,) = _FLAGS.unpack_from(record, 6)
    if flags & REPEATED:
        return record
    return record[:6] + _FLAGS.pack(flags | REPEATED) + record[8:]


# -- the journal itself ------------------------------------------------------------------------------------------------


def opened(next_id: int, segments: Mapping[int, int], about: Json) -> bytes:
    """The first record of a segment: the older segments still needed, each with the position behind its last record.

    The position is left out if the next segment is needed too, as that one's header has it.
    """
    ends = {str(n): end for n, end in segments.items() if n + 1 not in segments}
    return TABLES[RecordType.OPENED].encode(0, (next_id,), [*segments], {**about, "ends": ends})


def closed() -> bytes:
    """The broker stops properly."""
    return TABLES[RecordType.CLOSED].encode(0, ())


def lost() -> bytes:
    """Replaces a record that a repair could not save."""
    return TABLES[RecordType.LOST].encode(0, ())


def ids(next_id: int) -> bytes:
    """Ids from `next_id` on are unused."""
    return TABLES[RecordType.IDS].encode(0, (next_id,))


def trimmed(segments: Sequence[int]) -> bytes:
    """Segments are no longer needed."""
    return TABLES[RecordType.TRIMMED].encode(0, (), segments)


# -- sessions and duplicates -------------------------------------------------------------------------------------------

DUPLICATE_ID_FIXED: Final[Struct] = TABLES[RecordType.DUPLICATE_ID].fixed

_inflight: Final = TABLES[RecordType.INFLIGHT].encode
_released: Final = TABLES[RecordType.RELEASED].encode
_received: Final = TABLES[RecordType.RECEIVED].encode
_completed: Final = TABLES[RecordType.COMPLETED].encode
_duplicate_id: Final = TABLES[RecordType.DUPLICATE_ID].encode


def inflight(session_id: int, queue_id: int, ids: Sequence[int], packet_ids: Sequence[int]) -> bytes:
    """Messages of a queue are sent to a session's client, each under a packet id of its own."""
    assert len(ids) == len(packet_ids), "a packet id for each message"
    return _inflight(0, (session_id, queue_id), ids, packet_ids)


def released(session_id: int, packet_ids: Sequence[int]) -> bytes:
    """The client has these messages: their packet ids await release, and the messages are not sent again."""
    return _released(0, (session_id, True), packet_ids)


def received(session_id: int, packet_ids: Sequence[int]) -> bytes:
    """Messages arrived from the client under these packet ids: messages with these ids are repetitions from now on."""
    return _received(0, (session_id, False), packet_ids)


def completed(session_id: int, packet_ids: Sequence[int], *, sent: bool) -> bytes:
    """These packet ids are free again: ids chosen by the broker (`sent`), or by the client."""
    return _completed(0, (session_id, sent), packet_ids)


def duplicate_id(address_id: int, message_id: int, id: bytes, *, again: bool = False) -> bytes:
    """A message with this duplicate id was accepted on an address.

    `again` marks a copy of an earlier record.  Raises RecordError for an id of more than 65,535 bytes.
    """
    return _duplicate_id(REPEATED if again else 0, (address_id, message_id), id)
