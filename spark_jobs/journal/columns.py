"""The columns of the view `records`: how each is built.  `schema` says what they mean, `batch` does the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.journal.batch import Batch, Group, Places, array, text, times, words
from spark_jobs.journal.headers import Headers, amqp_headers, stomp_headers
from spark_jobs.journal.layout import LINK_ID, LINK_MARK, PACKETS, PLURAL, REFERENCE, Bools, Int64s, Rows, ramps
from spark_jobs.journal.names import Lookup
from spark_jobs.journal.schema import RECORDS
from store.record import FORMATS, LARGE_VERSION, DeadLetterReason, RecordType, RemovalReason

T = RecordType

#: The annotation with the id that a message had before it was moved.
ORIGIN: Final = "_AMQ_ORIG_MESSAGE_ID"

#: The functions that read the application headers, by format.
_HEADERS: Final[dict[int, Callable[[bytes], Headers | None]]] = {1: stomp_headers, 2: amqp_headers}

_TYPES: Final = words({t: t.name.lower().replace("_", "-") for t in RecordType}, "type")
#: The reasons of removals, followed by those of deaths.
REASONS: Final = pa.concat_arrays(
    [words({r: r.word for r in RemovalReason}, "reason"), words({r: r.word for r in DeadLetterReason}, "reason")]
)
DEATHS_FROM: Final = 256
_FORMATS: Final = words(FORMATS, "format")
_SOURCES: Final = words(
    {0: "unknown", 1: "own", 2: "expiry-delay", 3: "min-expiry-delay", 4: "max-expiry-delay"}, "source"
)

#: The types that hold a complete message.
WHOLE: Final = (T.MESSAGE, T.COPIED)


def _whole(field: str) -> Places:
    """A field of all records that hold a complete message."""
    return dict.fromkeys(WHOLE, field)


_QUEUE_IDS: Final[Places] = {
    **dict.fromkeys((*PLURAL, T.DEAD_LETTERED, T.EXPIRED), "queue_id"),
    **dict.fromkeys((T.QUEUE, T.QUEUE_DELETED), "id"),
}
_MESSAGE_IDS: Final[Places] = {
    **_whole("id"),
    **{T.DEAD_LETTERED: "old_id", T.EXPIRED: "old_id", T.DUPLICATE_ID: "message_id"},
}
_SESSION_IDS: Final[Places] = {
    **dict.fromkeys(PACKETS, "session_id"),
    **dict.fromkeys((T.SESSION, T.SESSION_DELETED), "id"),
}
_DUPLICATE_IDS: Final[Places] = {T.DUPLICATE_ID: "duplicate_id"}
_HASH_BYTES: Final = 8
_DIRECTIONS: Final = pa.array(["from-client", "to-client"], pa.string())

Maker = Callable[[Batch], pa.Array]


def _int64(values: Int64s, valid: Bools | None = None) -> pa.Array:
    return array(pa.int64(), values, valid)


# -- makers of several columns ---------------------------------------------------------------------------------------


def _narrow(values: Int64s, type: pa.DataType) -> npt.NDArray[Any]:
    """Numbers in the width of their column; those that do not fit become the largest possible one."""
    width = np.dtype(type.to_pandas_dtype())
    return values if width == np.int64 else np.minimum(values, np.iinfo(width).max).astype(width)


def _number(column: str, places: Places, *, zero: bool = True) -> tuple[str, Maker]:
    """A number; `zero`: whether 0 means 0, otherwise it becomes null."""
    type = RECORDS[column].type

    def make(batch: Batch) -> pa.Array:
        values, valid = batch.integers(places)
        return array(type, _narrow(values, type), valid if zero else valid & (values != 0))

    return column, make


def _time(column: str, places: Places) -> tuple[str, Maker]:
    def make(batch: Batch) -> pa.Array:
        return times(batch.integers(places)[0])

    return column, make


def _string(column: str, places: Places) -> tuple[str, Maker]:
    def make(batch: Batch) -> pa.Array:
        return text(batch.pieces(places))

    return column, make


def _of_record(column: str, attribute: str, made: Callable[[npt.NDArray[Any]], pa.Array]) -> tuple[str, Maker]:
    """An attribute of the walk's records."""

    def make(batch: Batch) -> pa.Array:
        return made(batch.of_walk(getattr(batch.segment.walk, attribute)))

    return column, make


# -- makers of one column --------------------------------------------------------------------------------------------


def _segment(batch: Batch) -> pa.Array:
    return _int64(np.full(batch.rows, batch.segment.walk.number, np.int64))


def _message_id(batch: Batch) -> pa.Array:
    def of(group: Group) -> Int64s:
        field = _MESSAGE_IDS.get(group.records.type)
        return group.records.ids() if field is None else group.field(field)

    return _int64(*batch.filled((*_MESSAGE_IDS, *PLURAL), of))


def _packet_id(batch: Batch) -> pa.Array:
    values, valid = batch.filled(PACKETS, lambda group: group.records.packet_ids())
    return array(pa.int32(), values.astype(np.int32), valid)


def _direction(batch: Batch) -> pa.Array:
    sent, valid = batch.integers(dict.fromkeys((T.RELEASED, T.RECEIVED, T.COMPLETED), "sent"))
    if T.INFLIGHT in batch.groups:
        rows = batch.groups[T.INFLIGHT].rows
        sent[rows], valid[rows] = 1, True
    return _DIRECTIONS.take(_int64(np.minimum(sent, 1), valid))


def _named(batch: Batch, places: Places, known_ids: Lookup, known_names: pa.Array) -> pa.Array:
    """The names that the segment defines for the ids of a column."""

    def of(group: Group) -> Int64s:
        indices, known = known_ids.find(group.records.field(places[group.records.type]))
        return group.spread(np.where(known, indices, -1))

    indices, valid = batch.filled(places, of)
    return known_names.take(_int64(indices, valid & (indices >= 0)))


def _queue_ids(batch: Batch) -> pa.Array:
    bounds = np.zeros(batch.rows + 1, np.int32)
    valid = np.zeros(batch.rows, np.bool_)
    groups = [batch.groups[type] for type in WHOLE if type in batch.groups]
    for group in groups:
        bounds[group.rows + 1] = group.field("n")
        valid[group.rows] = True
    np.cumsum(bounds, out=bounds)
    ids = np.zeros(int(bounds[-1]), np.int64)
    for group in groups:
        n = group.field("n")
        ids[np.repeat(bounds[group.rows].astype(np.int64), n) + ramps(n)] = group.records.ids()
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(bounds)]
    type = RECORDS["queue_ids"].type
    return pa.Array.from_buffers(type, batch.rows, buffers, children=[_int64(ids)])


_ADDRESSES: Final[Places] = dict.fromkeys((*WHOLE, T.DEAD_LETTERED, T.EXPIRED, T.DROPPED), "address")
_DEFINING: Final = (T.ADDRESS, T.ADDRESS_DELETED, T.QUEUE)
_NAMED_ONLY: Final = (  # definitions without an address of their own
    *(T.QUEUE_DELETED, T.DIVERT, T.DIVERT_DELETED, T.TASK, T.TASK_DELETED),
    *(T.SESSION, T.SESSION_DELETED, T.SESSION_PART, T.SESSION_PART_DELETED),
)


def _address(batch: Batch) -> pa.Array:
    made = text(batch.pieces(_ADDRESSES))
    defining = [batch.groups[type] for type in _DEFINING if type in batch.groups]
    if not defining:
        return made
    rows = np.concatenate([group.rows for group in defining])
    offsets = np.concatenate([group.records.offsets for group in defining])[np.argsort(rows)]
    mask = np.zeros(batch.rows, np.bool_)
    mask[rows] = True
    replacements = pa.array([batch.segment.addresses[offset] for offset in offsets.tolist()], pa.string())
    return pc.replace_with_mask(made, pa.array(mask), replacements)


def _reason(batch: Batch) -> pa.Array:
    codes, valid = batch.integers({T.REMOVED: "reason", T.DEAD_LETTERED: "reason", T.DROPPED: "reason"})
    if T.DEAD_LETTERED in batch.groups:
        codes[batch.groups[T.DEAD_LETTERED].rows] += DEATHS_FROM
    return REASONS.take(_int64(codes, valid))


def _size(batch: Batch) -> pa.Array:
    values, valid = batch.integers({**_whole("head_bytes"), T.DROPPED: "size"})
    values += _body_sizes(batch)[0]
    return _int64(values, valid)


def _expiry_source(batch: Batch) -> pa.Array:
    codes, valid = batch.integers({**_whole("source"), T.EXPIRED: "source"})
    for type in batch.groups.keys() & set(WHOLE):
        group = batch.groups[type]
        valid[group.rows] = group.field("expiration") != 0
    return _SOURCES.take(_int64(codes, valid))


def _origin_message_id(batch: Batch) -> pa.Array:
    rows, starts, sizes = batch.spans(_whole("annotations"))
    data = batch.segment.source.data
    ids: dict[bytes, int] = {}
    values = np.zeros(batch.rows, np.int64)
    for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        annotations = data[start : start + size]
        id = ids.get(annotations)
        if id is None:
            id = ids[annotations] = _origin(annotations)
        values[row] = id
    return _int64(values, values != 0)


def _origin(annotations: bytes) -> int:
    """The id in a message's annotations, 0 if there is none."""
    if ORIGIN.encode() not in annotations:
        return 0
    try:
        value = json.loads(annotations)
    except ValueError:
        return 0
    id = value.get(ORIGIN) if isinstance(value, dict) else None
    return id if isinstance(id, int) and not isinstance(id, bool) and 0 < id < 1 << 63 else 0


def _link_ids(batch: Batch) -> tuple[Int64s, Rows]:
    """The rows of duplicate ids that other brokers assigned, and these ids."""
    rows, starts, sizes = batch.spans(_DUPLICATE_IDS)
    fits = sizes == LINK_ID.itemsize
    ids = batch.segment.source.rows(starts[fits], LINK_ID)
    linked = ids["mark"] == LINK_MARK
    return rows[fits][linked], ids[linked]


def _link_broker_id(batch: Batch) -> pa.Array:
    rows, ids = _link_ids(batch)
    brokers = pa.array(ids["broker_id"].tolist(), pa.binary()).dictionary_encode()
    names = pa.array([id.hex() for id in brokers.dictionary.to_pylist()], pa.string())
    indices, valid = np.zeros(batch.rows, np.int64), np.zeros(batch.rows, np.bool_)
    indices[rows], valid[rows] = brokers.indices.to_numpy(), True
    return names.take(_int64(indices, valid))


def _of_link_ids(field: str) -> Callable[[Batch], pa.Array]:
    """The column for a number in link ids."""

    def column(batch: Batch) -> pa.Array:
        rows, ids = _link_ids(batch)
        values, valid = np.zeros(batch.rows, np.int64), np.zeros(batch.rows, np.bool_)
        values[rows], valid[rows] = ids[field], True
        return _int64(values, valid)

    return column


def _enqueued(batch: Batch) -> pa.Array:
    values, _ = batch.integers({T.DEAD_LETTERED: "enqueued", T.EXPIRED: "enqueued"})
    rows, ids = _link_ids(batch)
    values[rows] = ids["enqueued"]
    return times(values)


def _properties(batch: Batch) -> pa.Array:
    heads = batch.pieces(_whole("head"), empty=True).to_pylist()
    formats, _ = batch.integers(_whole("format"))
    headers = [
        _HEADERS[format](head) if head is not None and format in _HEADERS else None
        for head, format in zip(heads, formats.tolist(), strict=True)
    ]
    return pa.array(headers, RECORDS["properties"].type)


def _large(batch: Batch) -> tuple[Int64s, npt.NDArray[Any]]:
    """The rows of messages whose body is in a file, and their references to it."""
    rows, starts, _ = batch.spans(_whole("body"))
    versions = batch.integers(_whole("version"))[0][rows]
    large = versions == LARGE_VERSION
    return rows[large], batch.segment.source.rows(starts[large], REFERENCE)


def _body_sizes(batch: Batch) -> tuple[Int64s, Bools]:
    values, valid = batch.integers(_whole("body_bytes"))
    rows, references = _large(batch)
    values[rows] = references["nbytes"].astype(np.int64)
    return values, valid


def _body(batch: Batch) -> pa.Array:
    bodies = batch.pieces(_whole("body"), empty=True).cast(pa.binary())
    rows, _ = _large(batch)
    if not len(rows):
        return bodies
    there = np.ones(batch.rows, np.bool_)
    there[rows] = False
    return pc.if_else(pa.array(there), bodies, pa.scalar(None, pa.binary()))


def _body_hash(batch: Batch) -> pa.Array:
    bodies = batch.pieces(_whole("body"), empty=True).to_pylist()
    hashes = [None if body is None else blake2b(body, digest_size=_HASH_BYTES).hexdigest() for body in bodies]
    rows, references = _large(batch)
    for row, reference in zip(rows.tolist(), references, strict=True):
        hashes[row] = f"crc32c-{int(reference['crc']):08x}-{int(reference['nbytes'])}"
    return pa.array(hashes, pa.string())


#: How each column of the view is built.
COLUMNS: Final[dict[str, Maker]] = dict(
    (
        ("broker_id", lambda batch: batch.segment.broker_ids(batch.rows)),
        ("segment", _segment),
        _of_record("offset", "offsets", _int64),
        _of_record("position", "positions", _int64),
        _of_record("time", "times", times),
        _of_record("record_type", "types", lambda types: _TYPES.take(array(pa.uint8(), types))),
        ("message_id", _message_id),
        _number("new_message_id", {T.DEAD_LETTERED: "new_id", T.EXPIRED: "new_id"}, zero=False),
        _number("queue_id", _QUEUE_IDS, zero=False),
        ("queue_ids", _queue_ids),
        ("queue", lambda batch: _named(batch, _QUEUE_IDS, batch.segment.queues, batch.segment.queue_names)),
        ("address", _address),
        ("protocol", lambda batch: _FORMATS.take(_int64(*batch.integers(_whole("format"))))),
        _string("user", {**_whole("user"), T.DEAD_LETTERED: "user"}),
        _string("origin", _whole("origin")),
        ("size", _size),
        ("body_bytes", lambda batch: _int64(*_body_sizes(batch))),
        _number("priority", _whole("priority")),
        _time("sent", _whole("timestamp")),
        _time("expiration", {**_whole("expiration"), T.EXPIRED: "expiration"}),
        ("expiry_source", _expiry_source),
        _time("scheduled", {**_whole("scheduled"), T.SCHEDULED: "due"}),
        ("reason", _reason),
        _string("text", {T.DEAD_LETTERED: "text"}),
        _number("attempts", {T.DEAD_LETTERED: "attempts", T.EXPIRED: "attempts", T.COUNTS: "count"}),
        ("enqueued", _enqueued),
        _time("first_failure", {T.DEAD_LETTERED: "first_failure"}),
        _number("consumers", {T.EXPIRED: "consumers"}),
        _string("client", {T.DEAD_LETTERED: "client"}),
        _string("remote", {T.DEAD_LETTERED: "remote"}),
        _number("consumer_id", {T.DELIVERING: "consumer_id"}),
        _number("session_id", _SESSION_IDS),
        ("session", lambda batch: _named(batch, _SESSION_IDS, batch.segment.sessions, batch.segment.session_names)),
        ("packet_id", _packet_id),
        ("direction", _direction),
        _number("count", {T.DROPPED: "count"}),
        _string("annotations", _whole("annotations")),
        _number("previous_segment", {T.COPIED: "previous"}),
        ("origin_message_id", _origin_message_id),
        _number("address_id", {T.DUPLICATE_ID: "address_id"}),
        ("duplicate_id", lambda batch: batch.pieces(_DUPLICATE_IDS)),
        ("link_broker_id", _link_broker_id),
        ("link_message_id", _of_link_ids("message_id")),
        ("link_queue_id", _of_link_ids("queue_id")),
        _string("definition", dict.fromkeys((*_DEFINING, *_NAMED_ONLY, T.OPENED), "json")),
        ("properties", _properties),
        ("body", _body),
        ("body_hash", _body_hash),
    )
)
