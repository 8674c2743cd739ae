"""Who entered which queue and who left it: the ledger's view, combined within a few segments.

A MESSAGE record is an entry for each of its queues, a REMOVED record a departure for each of its messages.  A COPIED
record is nothing new, unless the segment of which it is a copy is gone: then it is all that says of an entry.  Most
messages enter and leave again within a few segments; of those the books need no more than their number.  So the
movements of a partition are combined here, before Spark moves any of them between machines:

    settled   a (queue, message) that entered exactly once and left exactly once, behind that: one row for each queue
              and reason, with their number.  Every queue that the segments define or move has at least one such row,
              with its name, perhaps with the number 0 and no reason.
    open      every other movement, a row each: other partitions decide about it, or it is a fault
    dropped   messages accepted that got onto no queue: one row for each address and reason
    damage    a row for each hole

All is numpy: after one sort the movements of a (queue, message) stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.journal.bounds import UNBOUNDED, Bounds
from spark_jobs.journal.columns import COLUMNS, REASONS
from spark_jobs.journal.decode import BATCH_ROWS, Selection, known
from spark_jobs.journal.gather import Batch, Segment, array, times
from spark_jobs.journal.layout import Bools, Int64s, Records
from spark_jobs.journal.names import Lookup, QueueName, learn_names
from spark_jobs.journal.schema import DAMAGE, MOVEMENTS, arrow_schema
from spark_jobs.journal.walk import Hole, Walk
from store.record import RecordType

SETTLED: Final = "settled"
OPEN: Final = "open"
DROPPED: Final = "dropped"

_SCHEMA: Final = arrow_schema(MOVEMENTS)
_NO_NAME: Final = QueueName(None, None)
#: What stands in place of a reason for an entry: reasons are a byte.
_ENTERED: Final = 256
_CODES: Final = 257
#: Keys of queue and message are one number as long as it stays below this.
_KEY_MAX: Final = 1 << 62


@dataclass(slots=True)
class _Events:
    """Movements: which queue and message, why (_ENTERED or the code of a reason), and by the how-manieth record."""

    queue: Int64s
    message: Int64s
    reason: Int64s
    record: Int64s


@dataclass(slots=True)
class _Origins:
    """Where the records of movements are, one element a record."""

    segment: Int64s
    offset: Int64s
    position: Int64s
    time: Int64s


class Movements:
    """One for a partition: `add` its segments in order, then take the `batches` (all columns of schema.MOVEMENTS).

    Messages with ids below `keep_below` never settle.  `first_segment` is the lowest number of all segments there are:
    copies from lower ones are entries, unless the bounds have a beginning (0: none is).  Movements out of the bounds do
    not count.
    """

    def __init__(self, bounds: Bounds = UNBOUNDED, *, keep_below: int = 0, first_segment: int = 0) -> None:
        types = frozenset((RecordType.MESSAGE, RecordType.COPIED, RecordType.REMOVED, RecordType.DROPPED))
        self._selection = Selection((), types, bounds)
        self._keep_below = keep_below
        self._first_segment = first_segment if bounds.from_position is None and bounds.from_time is None else 0
        self._events: list[_Events] = []
        self._origins: list[_Origins] = []
        self._records = 0
        self._names: dict[int, QueueName] = {}
        self._moved: set[int] = set()
        self._dropped: list[pa.RecordBatch] = []
        self._holes: list[tuple[int, Hole]] = []

    def add(self, data: bytes, walk: Walk) -> None:
        """Take in a segment: its bytes, and what `walk.walk` found there."""
        learn_names(self._names, walk.definitions)
        self._holes += [(walk.number, hole) for hole in self._selection.bounds.holes(walk)]
        indices = self._selection.indices(walk)
        types = walk.types[indices]
        dropped = indices[types == RecordType.DROPPED]
        segment = Segment(data, walk)
        if len(dropped):
            self._dropped.append(_dropped(segment, dropped))
        self._add_entries(segment, RecordType.MESSAGE, indices[types == RecordType.MESSAGE])
        if self._first_segment:
            self._add_copies(segment, indices[types == RecordType.COPIED])
        self._add_departures(segment, indices[types == RecordType.REMOVED])

    def _add_copies(self, segment: Segment, indices: Int64s) -> None:
        records = Records(segment.source, RecordType.COPIED, segment.walk.offsets[indices])
        self._add_entries(segment, RecordType.COPIED, indices[records.field("previous") < self._first_segment])

    def _add_entries(self, segment: Segment, type: RecordType, indices: Int64s) -> None:
        records = Records(segment.source, type, segment.walk.offsets[indices])
        n = records.field("n")
        queue, message = records.ids(), np.repeat(records.field("id"), n)
        self._note(segment.walk, indices, n, queue, message, np.full(len(queue), _ENTERED, np.int64))

    def _add_departures(self, segment: Segment, indices: Int64s) -> None:
        records = Records(segment.source, RecordType.REMOVED, segment.walk.offsets[indices])
        n = records.field("n")
        queue, reason = np.repeat(records.field("queue_id"), n), np.repeat(records.field("reason"), n)
        self._note(segment.walk, indices, n, queue, records.ids(), reason)

    def _note(self, walk: Walk, indices: Int64s, n: Int64s, queue: Int64s, message: Int64s, reason: Int64s) -> None:
        record = np.repeat(np.arange(self._records, self._records + len(indices)), n)
        self._records += len(indices)
        self._events.append(_Events(queue, message, reason, record))
        number = np.full(len(indices), walk.number, np.int64)
        self._origins.append(_Origins(number, walk.offsets[indices], walk.positions[indices], walk.times[indices]))
        self._moved |= _distinct(queue)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The view, in batches of at most decode.BATCH_ROWS rows; to be called once."""
        yield from _sliced(self._damage())
        yield from _sliced(self._dropped_rows())
        events = _Events(*(_joined(self._events, each.name) for each in fields(_Events)))
        origins = _Origins(*(_joined(self._origins, each.name) for each in fields(_Origins)))
        self._events, self._origins = [], []
        queues = Lookup(self._moved | self._names.keys())
        settled = _settled(events, origins.position, queues, self._keep_below)
        yield from _sliced(self._settled_rows(events, settled, queues))
        still_open = np.ones(len(events.queue), np.bool_)
        still_open[settled.ravel()] = False
        indices = np.flatnonzero(still_open)
        for start in range(0, len(indices), BATCH_ROWS):
            yield _open_rows(events, origins, indices[start : start + BATCH_ROWS])

    def _damage(self) -> pa.RecordBatch:
        return _batch(
            DAMAGE,
            len(self._holes),
            entered_position=[known(hole.first_position) for _, hole in self._holes],
            count=[known(hole.records) for _, hole in self._holes],
            text=[hole.what for _, hole in self._holes],
            segment=[number for number, _ in self._holes],
            offset=[known(hole.offset) for _, hole in self._holes],
        )

    def _dropped_rows(self) -> pa.RecordBatch:
        if not self._dropped:
            return _batch(DROPPED, 0)
        table = pa.Table.from_batches(self._dropped).group_by(["address", "reason"], use_threads=False)
        sums = table.aggregate([("count", "sum"), ("size", "sum")]).combine_chunks()
        address, reason, count, size = (sums[name].chunk(0) for name in ("address", "reason", "count_sum", "size_sum"))
        return _batch(DROPPED, len(sums), address=address, reason=reason, count=count, bytes=size)

    def _settled_rows(self, events: _Events, settled: Int64s, queues: Lookup) -> pa.RecordBatch:
        departures = settled[:, 1]
        queue, _ = queues.find(events.queue[departures])
        kinds, counts = np.unique(queue * _CODES + events.reason[departures], return_counts=True)
        idle = np.setdiff1d(np.arange(len(queues.ids)), kinds // _CODES)
        kinds = np.concatenate((kinds, idle * _CODES + _ENTERED))
        counts = np.concatenate((counts, np.zeros(len(idle), np.int64)))
        ids = queues.ids[kinds // _CODES]
        names = [self._names.get(id, _NO_NAME) for id in ids.tolist()]
        return _batch(
            SETTLED,
            len(ids),
            queue_id=array(pa.int64(), ids),
            queue=[name.name for name in names],
            address=[name.address for name in names],
            reason=_reason(kinds % _CODES),
            entered=array(pa.int64(), counts),
            left=array(pa.int64(), counts),
        )


def _distinct(ids: Int64s) -> set[int]:
    """The ids that occur; quick because movements of a queue come in runs."""
    return {*ids[:1].tolist(), *ids[1:][ids[1:] != ids[:-1]].tolist()}


def _dropped(segment: Segment, indices: Int64s) -> pa.RecordBatch:
    batch = Batch(segment, indices)
    columns = ("address", "reason", "count", "size")
    return pa.RecordBatch.from_arrays([COLUMNS[name](batch) for name in columns], columns)


def _settled(events: _Events, positions: Int64s, queues: Lookup, keep_below: int) -> Int64s:
    """The movements that settle, by their indices: (entry, departure) in rows."""
    order, begins = _grouped(events, queues)
    # Groups of two: here one begins, at the next element none does, at the one behind that one does.
    first = np.flatnonzero(begins[:-2] & ~begins[1:-1] & begins[2:])
    one, other = order[first], order[first + 1]
    swapped = events.reason[one] != _ENTERED
    entry, departure = np.where(swapped, other, one), np.where(swapped, one, other)
    sound = (events.reason[entry] == _ENTERED) & (events.reason[departure] != _ENTERED)
    sound &= positions[events.record[entry]] < positions[events.record[departure]]
    sound &= events.message[entry] >= keep_below
    return np.column_stack((entry[sound], departure[sound]))


def _grouped(events: _Events, queues: Lookup) -> tuple[Int64s, Bools]:
    """An order in which movements of one (queue, message) are neighbours, and where such a group begins.

    The second has two elements more, as if groups began behind the end.
    """
    total = len(events.queue)
    begins = np.ones(total + 2, np.bool_)
    queue, _ = queues.find(events.queue)
    lowest = int(np.min(events.message)) if total else 0
    span = int(np.max(events.message)) - lowest + 1 if total else 1
    if span * len(queues.ids) < _KEY_MAX:
        keys = queue * span + (events.message - lowest)
        order = np.argsort(keys)
        keys = keys[order]
        begins[1:total] = keys[1:] != keys[:-1]
        return order, begins
    order = np.lexsort((events.message, queue))
    queue, message = queue[order], events.message[order]
    begins[1:total] = (queue[1:] != queue[:-1]) | (message[1:] != message[:-1])
    return order, begins


def _open_rows(events: _Events, origins: _Origins, indices: Int64s) -> pa.RecordBatch:
    reason, record = events.reason[indices], events.record[indices]
    entered, left = reason == _ENTERED, reason != _ENTERED
    position, time = origins.position[record], origins.time[record]
    return _batch(
        OPEN,
        len(indices),
        queue_id=array(pa.int64(), events.queue[indices]),
        message_id=array(pa.int64(), events.message[indices]),
        reason=_reason(reason),
        entered=array(pa.int64(), entered.astype(np.int64)),
        left=array(pa.int64(), left.astype(np.int64)),
        entered_position=array(pa.int64(), position, entered),
        left_position=array(pa.int64(), position, left),
        entered_time=times(time, entered),
        left_time=times(time, left),
        segment=array(pa.int64(), origins.segment[record]),
        offset=array(pa.int64(), origins.offset[record]),
    )


def _reason(codes: Int64s) -> pa.Array:
    return REASONS.take(array(pa.int64(), codes, codes != _ENTERED))


def _joined(parts: Sequence[_Events] | Sequence[_Origins], name: str) -> Int64s:
    """One column of all parts."""
    return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])


def _batch(kind: str, rows: int, **columns: pa.Array | list[int | None] | list[str | None]) -> pa.RecordBatch:
    """Rows of one kind; columns that are not given are null."""
    columns["kind"] = pa.repeat(pa.scalar(kind, pa.string()), rows)
    made = []
    for column in _SCHEMA:
        values = columns.get(column.name)
        if values is None:
            values = pa.nulls(rows, column.type)
        made.append(pa.array(values, column.type) if isinstance(values, list) else values)
    return pa.RecordBatch.from_arrays(made, schema=_SCHEMA)


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
