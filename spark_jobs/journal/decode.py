"""The records of a segment as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.journal.batch import Batch, Segment
from spark_jobs.journal.bounds import UNBOUNDED, Bounds
from spark_jobs.journal.columns import COLUMNS
from spark_jobs.journal.layout import MANY, Int64s, Records
from spark_jobs.journal.schema import DAMAGE, DEFAULT_RECORDS, RECORDS, arrow_schema
from spark_jobs.journal.walk import UNKNOWN, Hole, Walk

#: Maximum number of rows in a batch: small enough for a core's cache, large enough that the cost of a batch is
#: negligible.
BATCH_ROWS: Final = 32768

#: Maximum number of a segment's bytes in a batch, unless one record is longer: limits the memory that bodies take.
BATCH_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Condition:
    """A column must not be null or, with `among`, must be one of these values."""

    column: str
    among: Sequence[int] | pa.Array | None = None

    def holds(self, values: pa.Array) -> pa.Array:
        """For which values of the column the condition holds."""
        return pc.is_valid(values) if self.among is None else pc.is_in(values, pa.array(self.among, values.type))


@dataclass(frozen=True, slots=True)
class Selection:
    """Which columns of which records to read.

    `types` are numbers of store.record.RecordType; None means all.  Of the rows within the bounds, those for which all
    `conditions` hold are selected.
    """

    columns: tuple[str, ...] = DEFAULT_RECORDS
    types: frozenset[int] | None = None
    bounds: Bounds = UNBOUNDED
    conditions: tuple[Condition, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return arrow_schema(RECORDS, self.columns)

    def indices(self, found: Walk) -> Int64s:
        """The indices of a segment's records that have the right type and are within the bounds."""
        wanted = self.bounds.have(found)
        if self.types is not None:
            wanted &= np.isin(found.types, list(self.types))
        return np.flatnonzero(wanted)


def decode(data: bytes, found: Walk, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The selected records of a segment, and its damage, as batches of the selected columns (schema.RECORDS).

    Each hole that may affect the range is a row of record type `damage` (segment, offset, position, count, text); these
    rows come first.
    """
    segment = Segment(data, found)
    yield from damage(segment, selection)
    yield from rows(segment, selection.indices(found), selection)


def damage(segment: Segment, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The rows of a segment's holes that may affect the range."""
    holes = selection.bounds.holes(segment.walk)
    if holes:
        yield _damage(segment, holes, selection.schema)


def rows(segment: Segment, records: Int64s, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The rows of these records of a segment (indices) for which the selection's conditions hold."""
    schema = selection.schema
    for indices in _cut(segment, records):
        batch = _narrowed(Batch(segment, indices), selection.conditions)
        arrays = [COLUMNS[name](batch) for name in selection.columns]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if selection.conditions:  # in a record about several messages, they may hold for only some of them
            held = [condition.holds(COLUMNS[condition.column](batch)) for condition in selection.conditions]
            whole = whole.filter(reduce(pc.and_, held))
        for start in range(0, len(whole), BATCH_ROWS):
            yield whole.slice(start, BATCH_ROWS)


def _narrowed(batch: Batch, conditions: Sequence[Condition]) -> Batch:
    """The records of a batch for which all conditions hold, so that the other columns are decoded only for them."""
    for condition in conditions:
        values = COLUMNS[condition.column](batch)
        batch = batch.only(np.asarray(condition.holds(values)))
    return batch


def _cut(segment: Segment, indices: Int64s) -> Iterator[Int64s]:
    """The records of one batch after another: at most this number of rows and bytes, or a single record."""
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
            "offset": known(hole.offset),
            "position": known(hole.first_position),
            "record_type": DAMAGE,
            "count": known(hole.records),
            "text": hole.what,
        }
        for hole in holes
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def known(number: int) -> int | None:
    """A number of a hole as a column's value: null if it is unknown."""
    return None if number == UNKNOWN else number
