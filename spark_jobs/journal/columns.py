"""The columns of the view `records`: how each is made.  `schema` says what they mean, `gather` does the work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.journal.gather import Batch, Places, array, text, times, words
from spark_jobs.journal.layout import PLURAL, Int64s
from spark_jobs.journal.schema import RECORDS
from store.record import DeadLetterReason, RecordType, RemovalReason

T = RecordType

#: The annotation that says what a message was before it was moved.
ORIGIN: Final = "_AMQ_ORIG_MESSAGE_ID"

#: The encodings of a message's head.
STOMP: Final = 1
FORMATS: Final = {STOMP: "stomp", 2: "amqp", 3: "mqtt"}

_TYPES: Final = words({t: t.name.lower().replace("_", "-") for t in RecordType}, "type")
#: Of removals, and behind them of deaths.
REASONS: Final = pa.concat_arrays(
    [words({r: r.word for r in RemovalReason}, "reason"), words({r: r.word for r in DeadLetterReason}, "reason")]
)
DEATHS_FROM: Final = 256
_FORMATS: Final = words(FORMATS, "format")
_SOURCES: Final = words(
    {0: "unknown", 1: "own", 2: "expiry-delay", 3: "min-expiry-delay", 4: "max-expiry-delay"}, "source"
)

_QUEUE_IDS: Final[Places] = {
    **dict.fromkeys((T.REMOVED, T.COUNTS, T.DELIVERING, T.SCHEDULED, T.DEAD_LETTERED, T.EXPIRED), "queue_id"),
    **dict.fromkeys((T.QUEUE, T.QUEUE_DELETED), "id"),
}
_HASH_BYTES: Final = 8

Maker = Callable[[Batch], pa.Array]


# -- makers of several columns ---------------------------------------------------------------------------------------


def _narrow(values: Int64s, type: pa.DataType) -> npt.NDArray[Any]:
    """Numbers in the width of their column; those that do not fit become the largest that does."""
    width = np.dtype(type.to_pandas_dtype())
    return values if width == np.int64 else np.minimum(values, np.iinfo(width).max).astype(width)


def _number(column: str, places: Places, *, zero: bool = True) -> tuple[str, Maker]:
    """A number; `zero`: whether 0 means 0, else it is null."""
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


# -- makers of one column --------------------------------------------------------------------------------------------


def _broker_id(batch: Batch) -> pa.Array:
    return batch.segment.broker_ids(batch.rows)


def _segment(batch: Batch) -> pa.Array:
    return array(pa.int64(), np.full(batch.rows, batch.segment.walk.number, np.int64))


def _offset(batch: Batch) -> pa.Array:
    return array(pa.int64(), batch.of_walk(batch.segment.walk.offsets))


def _position(batch: Batch) -> pa.Array:
    return array(pa.int64(), batch.of_walk(batch.segment.walk.positions))


def _entry_time(batch: Batch) -> pa.Array:
    return times(batch.of_walk(batch.segment.walk.times))


def _record_type(batch: Batch) -> pa.Array:
    return _TYPES.take(array(pa.uint8(), batch.of_walk(batch.segment.walk.types)))


def _message_id(batch: Batch) -> pa.Array:
    values, valid = batch.integers({T.MESSAGE: "id", T.DEAD_LETTERED: "old_id", T.EXPIRED: "old_id"})
    for type in batch.groups.keys() & PLURAL:
        group = batch.groups[type]
        values[group.rows] = group.records.ids()
        valid[group.rows] = True
    return array(pa.int64(), values, valid)


def _queue(batch: Batch) -> pa.Array:
    segment = batch.segment
    names = np.zeros(batch.rows, np.int64)
    valid = np.zeros(batch.rows, np.bool_)
    for type in batch.groups.keys() & _QUEUE_IDS.keys():
        group = batch.groups[type]
        indices, known = segment.queues.find(group.records.field(_QUEUE_IDS[type]))
        names[group.rows] = group.spread(indices)
        valid[group.rows] = group.spread(known)
    return segment.queue_names.take(array(pa.int64(), names, valid))


def _queue_ids(batch: Batch) -> pa.Array:
    bounds = np.zeros(batch.rows + 1, np.int32)
    valid = np.zeros(batch.rows, np.bool_)
    ids = np.zeros(0, np.int64)
    messages = batch.groups.get(T.MESSAGE)
    if messages is not None:
        bounds[messages.rows + 1] = messages.field("n")
        np.cumsum(bounds, out=bounds)
        valid[messages.rows] = True
        ids = messages.records.ids()
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(bounds)]
    type = RECORDS["queue_ids"].type
    return pa.Array.from_buffers(type, batch.rows, buffers, children=[array(pa.int64(), ids)])


_ADDRESSES: Final[Places] = dict.fromkeys((T.MESSAGE, T.DEAD_LETTERED, T.EXPIRED, T.DROPPED), "address")
_DEFINING: Final = (T.ADDRESS, T.ADDRESS_DELETED, T.QUEUE)


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


def _protocol(batch: Batch) -> pa.Array:
    return _FORMATS.take(array(pa.int64(), *batch.integers({T.MESSAGE: "format"})))


def _reason(batch: Batch) -> pa.Array:
    codes, valid = batch.integers({T.REMOVED: "reason", T.DEAD_LETTERED: "reason", T.DROPPED: "reason"})
    if T.DEAD_LETTERED in batch.groups:
        codes[batch.groups[T.DEAD_LETTERED].rows] += DEATHS_FROM
    return REASONS.take(array(pa.int64(), codes, valid))


def _size(batch: Batch) -> pa.Array:
    values, valid = batch.integers({T.MESSAGE: "head_bytes", T.DROPPED: "size"})
    values += batch.integers({T.MESSAGE: "body_bytes"})[0]
    return array(pa.int64(), values, valid)


def _expiry_source(batch: Batch) -> pa.Array:
    codes, valid = batch.integers({T.MESSAGE: "source", T.EXPIRED: "source"})
    messages = batch.groups.get(T.MESSAGE)
    if messages is not None:
        valid[messages.rows] = messages.field("expiration") != 0
    return _SOURCES.take(array(pa.int64(), codes, valid))


def _origin_message_id(batch: Batch) -> pa.Array:
    rows, starts, sizes = batch.spans({T.MESSAGE: "annotations"})
    data = batch.segment.source.data
    ids: dict[bytes, int] = {}
    values = np.zeros(batch.rows, np.int64)
    for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        annotations = data[start : start + size]
        id = ids.get(annotations)
        if id is None:
            id = ids[annotations] = _origin(annotations)
        values[row] = id
    return array(pa.int64(), values, values != 0)


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


def _properties(batch: Batch) -> pa.Array:
    heads = batch.pieces({T.MESSAGE: "head"}, empty=True).to_pylist()
    formats, _ = batch.integers({T.MESSAGE: "format"})
    pairs = [
        _stomp_pairs(head) if head is not None and format == STOMP else None
        for head, format in zip(heads, formats.tolist(), strict=True)
    ]
    return pa.array(pairs, RECORDS["properties"].type)


_ESCAPE: Final = re.compile(r"\\[rnc\\]")
_ESCAPES: Final = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}


def _stomp_pairs(head: bytes) -> list[tuple[str, str]]:
    """The headers of a STOMP head: lines of `name:value`, escaped as in STOMP 1.2."""
    found: dict[str, str] = {}
    for line in head.decode("utf-8", "backslashreplace").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if "\\" in line:
            name, value = _unescape(name), _unescape(value)
        found.setdefault(name, value)
    return list(found.items())


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0]], value)


def _body(batch: Batch) -> pa.Array:
    return batch.pieces({T.MESSAGE: "body"}, empty=True).cast(pa.binary())


def _body_hash(batch: Batch) -> pa.Array:
    bodies = batch.pieces({T.MESSAGE: "body"}, empty=True).to_pylist()
    hashes = [None if body is None else blake2b(body, digest_size=_HASH_BYTES).hexdigest() for body in bodies]
    return pa.array(hashes, pa.string())


#: How each column of the view is made.
COLUMNS: Final[dict[str, Maker]] = dict(
    (
        ("broker_id", _broker_id),
        ("segment", _segment),
        ("offset", _offset),
        ("position", _position),
        ("time", _entry_time),
        ("record_type", _record_type),
        ("message_id", _message_id),
        _number("new_message_id", {T.DEAD_LETTERED: "new_id", T.EXPIRED: "new_id"}, zero=False),
        _number("queue_id", _QUEUE_IDS),
        ("queue_ids", _queue_ids),
        ("queue", _queue),
        ("address", _address),
        ("protocol", _protocol),
        _string("user", {T.MESSAGE: "user", T.DEAD_LETTERED: "user"}),
        _string("origin", {T.MESSAGE: "origin"}),
        ("size", _size),
        _number("body_bytes", {T.MESSAGE: "body_bytes"}),
        _number("priority", {T.MESSAGE: "priority"}),
        _time("sent", {T.MESSAGE: "timestamp"}),
        _time("expiration", {T.MESSAGE: "expiration", T.EXPIRED: "expiration"}),
        ("expiry_source", _expiry_source),
        _time("scheduled", {T.MESSAGE: "scheduled", T.SCHEDULED: "due"}),
        ("reason", _reason),
        _string("text", {T.DEAD_LETTERED: "text"}),
        _number("attempts", {T.DEAD_LETTERED: "attempts", T.EXPIRED: "attempts", T.COUNTS: "count"}),
        _time("enqueued", {T.DEAD_LETTERED: "enqueued", T.EXPIRED: "enqueued"}),
        _time("first_failure", {T.DEAD_LETTERED: "first_failure"}),
        _number("consumers", {T.EXPIRED: "consumers"}),
        _string("client", {T.DEAD_LETTERED: "client"}),
        _string("remote", {T.DEAD_LETTERED: "remote"}),
        _number("consumer_id", {T.DELIVERING: "consumer_id"}),
        _number("count", {T.DROPPED: "count"}),
        _string("annotations", {T.MESSAGE: "annotations"}),
        ("origin_message_id", _origin_message_id),
        _string("definition", dict.fromkeys((*_DEFINING, T.QUEUE_DELETED, T.OPENED), "json")),
        ("properties", _properties),
        ("body", _body),
        ("body_hash", _body_hash),
    )
)
