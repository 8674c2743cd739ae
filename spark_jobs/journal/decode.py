"""A segment's records as Arrow batches, and a segment as one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.journal.columns import COLUMNS
from spark_jobs.journal.gather import Batch, Segment, times
from spark_jobs.journal.layout import MANY, Int64s, Records
from spark_jobs.journal.schema import DAMAGE, DEFAULT_RECORDS, RECORDS, SEGMENTS, arrow_schema
from spark_jobs.journal.walk import UNKNOWN, Hole, Walk, walk

#: Rows of a batch at most: small enough to stay in a core's cache, large enough that a batch costs nothing.
BATCH_ROWS: Final = 32768


#: Bytes of a segment that a batch is made of at most, unless one record is longer: bounds the memory that bodies take.
BATCH_BYTES: Final = 16 << 20


class CorruptSegment(Exception):
    """Damage, where none is accepted: `what` was found at byte `offset` of `size`, behind `records` good records."""

    def __init__(self, path: str, offset: int, size: int, records: int, what: str) -> None:
        super().__init__(path, offset, size, records, what)
        self.path = path
        self.offset = offset
        self.size = size
        self.records = records
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what} at byte {self.offset} of {self.size}, {self.records} records before it"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which columns of which records are wanted.

    `types` are numbers of store.record.RecordType, None: all.  Positions and times (ms since the epoch) are bounds, the
    upper one not included, None: open.  Damage is selected unless its positions are known and out of the bounds.
    """

    columns: tuple[str, ...] = DEFAULT_RECORDS
    types: frozenset[int] | None = None
    from_position: int | None = None
    to_position: int | None = None
    from_time: int | None = None
    to_time: int | None = None

    def indices(self, found: Walk) -> Int64s:
        """Which records of a segment are wanted, by their indices."""
        wanted = np.ones(len(found.types), np.bool_)
        if self.types is not None:
            wanted &= np.isin(found.types, list(self.types))
        if self.from_position is not None:
            wanted &= found.positions >= self.from_position
        if self.to_position is not None:
            wanted &= found.positions < self.to_position
        if self.from_time is not None:
            wanted &= found.times >= self.from_time
        if self.to_time is not None:
            wanted &= found.times < self.to_time
        return np.flatnonzero(wanted)

    def holes(self, found: Walk) -> list[Hole]:
        """The damage that may concern what is wanted."""
        parts = (hole.within(self.from_position, self.to_position) for hole in found.holes)
        return [part for part in parts if part is not None]


def decode_segment(
    data: bytes,
    selection: Selection,
    *,
    path: str,
    number: int,
    newest: bool,
    next_first: int | None = None,
    first: int | None = None,
    limit: int | None = None,
    strict: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The selected records of segment `number` as batches of the schema of the selected columns (schema.RECORDS).

    `next_first`, `first`, `limit` and `newest` are those of `walk.walk`.  Strict: raises CorruptSegment for any damage
    that is selected, before the first batch.  Else each hole is a row of record type `damage` (segment, offset,
    position, count, text), and these come first.
    """
    found = walk(data, number=number, newest=newest, next_first=next_first, first=first, limit=limit)
    holes = selection.holes(found)
    if holes and strict:
        hole = holes[0]
        before = int(np.searchsorted(found.offsets, hole.offset))
        raise CorruptSegment(path, hole.offset, len(data), before, hole.what)
    schema = arrow_schema(RECORDS, selection.columns)
    segment = Segment(data, found)
    if holes:
        yield _damage(segment, holes, schema)
    for indices in _cut(segment, selection.indices(found)):
        batch = Batch(segment, indices)
        arrays = [COLUMNS[name](batch) for name in selection.columns]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for start in range(0, batch.rows, BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def _cut(segment: Segment, indices: Int64s) -> Iterator[Int64s]:
    """The records of one batch after the other: at most BATCH_ROWS rows and BATCH_BYTES bytes, or a single record."""
    counts = np.ones(len(indices), np.int64)
    offsets = segment.walk.offsets[indices]
    types = segment.walk.types[indices]
    for type in MANY:
        those = np.flatnonzero(types == type)
        counts[those] = Records(segment.source, type, offsets[those]).field("n")
    rows = np.cumsum(counts)
    following = np.append(segment.walk.offsets[1:], segment.walk.end)[indices]
    start = 0
    while start < len(indices):
        by_rows = np.searchsorted(rows, rows[start] - counts[start] + BATCH_ROWS, "right")
        by_bytes = np.searchsorted(following, offsets[start] + BATCH_BYTES, "right")
        end = max(int(min(by_rows, by_bytes)), start + 1)
        yield indices[start:end]
        start = end


def _damage(segment: Segment, holes: Sequence[Hole], schema: pa.Schema) -> pa.RecordBatch:
    rows = [
        {
            "broker_id": segment.broker_id,
            "segment": segment.walk.number,
            "offset": hole.offset,
            "position": known(hole.first_position),
            "record_type": DAMAGE,
            "count": known(hole.records),
            "text": hole.what,
        }
        for hole in holes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def known(number: int) -> int | None:
    """A number of a hole as a column has it: null if it is not known."""
    return None if number == UNKNOWN else number


def inspect_segment(
    data: bytes,
    *,
    path: str,
    number: int,
    newest: bool,
    next_first: int | None = None,
    first: int | None = None,
    limit: int | None = None,
) -> pa.RecordBatch:
    """A batch of one row with all columns of schema.SEGMENTS; arguments as for `walk.walk`."""
    found = walk(data, number=number, newest=newest, next_first=next_first, first=first, limit=limit)
    header = found.header
    hole = found.holes[0] if found.holes else None
    if hole is None and found.torn_bytes:
        hole = Hole(found.end, found.next_position, UNKNOWN, "the last write was not completed")
    read = len(found.offsets) > 0
    row: dict[str, object] = {
        "path": path,
        "segment": number,
        "broker_id": header.broker_id.hex() if header else None,
        "created": _moment(header.created if header else 0),
        "size": len(data),
        "used": found.end,
        "entries": found.entries,
        "records": len(found.offsets),
        "first_position": header.first_position if header else None,
        "last_position": int(found.positions[-1]) if read else None,
        "first_time": _moment(int(found.times[0]) if read else 0),
        "last_time": _moment(int(found.times[-1]) if read else 0),
        "status": _status(data, found),
        "error_offset": hole.offset if hole else None,
        "unread_bytes": found.unread_bytes + found.torn_bytes,
        "lost_records": lost_records(found.holes),
        "error": hole.what if hole else None,
    }
    return pa.RecordBatch.from_pylist([row], schema=arrow_schema(SEGMENTS))


def lost_records(holes: Sequence[Hole]) -> int | None:
    """How many records are lost in all, None if that is not known."""
    if any(hole.records == UNKNOWN for hole in holes):
        return None
    return sum(hole.records for hole in holes)


def _status(data: bytes, found: Walk) -> str:
    if not data:
        return "empty"
    if found.header is None:
        return "unreadable"
    if found.holes:
        return "corrupt"
    return "torn-tail" if found.torn_bytes else "ok"


def _moment(milliseconds: int) -> pa.Scalar:
    return times(np.array([milliseconds], np.int64))[0]
