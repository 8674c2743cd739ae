"""Batches: the values of columns from the bytes of a segment, with a few numpy operations for many records.

A batch holds records of several types, and a record about several messages becomes several rows.  So each type has a
list of its rows, and a column is built by writing the values of each type that has this column into its rows.  Strings
are never handled individually: a segment, together with the offsets where strings begin and end, already is an Arrow
array, in which every second element is a string and the others are the bytes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.journal.layout import MANY, Bools, Int64s, Records, Source, groups, ramps
from spark_jobs.journal.names import Lookup, learn_names, learn_sessions, member
from spark_jobs.journal.walk import Walk
from store.record import RecordType

#: The last millisecond of 9999-12-30 and the first of 0001-01-03: every calendar can show these in every time zone.
#: Python's, which Spark's `collect` uses for times in the local zone, needs one more day on either side.
LATEST_MS: Final = 253_402_214_399_999
EARLIEST_MS: Final = -62_135_424_000_000

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_NO_SPAN: Final = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))

#: Where a column's value is: the field or piece of each record type.
Places = Mapping[int, str]


class Segment:
    """A segment and what its columns need from it."""

    __slots__ = (
        "_broker_ids",
        "addresses",
        "broker_id",
        "queue_names",
        "queues",
        "session_names",
        "sessions",
        "source",
        "walk",
    )

    def __init__(self, data: bytes, walk: Walk) -> None:
        self.source = Source(data)
        self.walk = walk
        self.broker_id = walk.header.broker_id.hex() if walk.header else None
        queues: dict[int, str | None] = {}
        learn_names(queues, walk.definitions)
        self.queues = Lookup(sorted(queues))
        # One additional null, so that the array is never empty.
        self.queue_names = pa.array([*(queues[id] for id in sorted(queues)), None], pa.string())
        clients: dict[int, str | None] = {}
        learn_sessions(clients, walk.definitions)
        self.sessions = Lookup(sorted(clients))
        self.session_names = pa.array([*(clients[id] for id in sorted(clients)), None], pa.string())
        #: The address that a definition is about, by the definition's offset.
        self.addresses = {
            each.offset: member(each.value, "address" if each.type == RecordType.QUEUE else "name")
            for each in walk.definitions
        }
        self._broker_ids = pa.nulls(0, pa.string())

    def broker_ids(self, rows: int) -> pa.Array:
        """The broker's id, repeated."""
        if rows > len(self._broker_ids):
            self._broker_ids = pa.repeat(pa.scalar(self.broker_id, pa.string()), rows)
        return self._broker_ids.slice(0, rows)

    def between(self, starts: Int64s, ends: Int64s) -> pa.Array:
        """The bytes as an array: even indices have the bytes from a start to its end, odd ones those in between."""
        data = self.source.data
        small = len(data) < 1 << 31
        bounds = np.empty(2 * len(starts), np.int32 if small else np.int64)
        bounds[0::2] = starts
        bounds[1::2] = ends
        type = pa.binary() if small else pa.large_binary()
        return pa.Array.from_buffers(type, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


class Group:
    """The records of one type in a batch, and the rows that they fill: one each, or one for each of their ids."""

    __slots__ = ("_counts", "records", "rows")

    def __init__(self, records: Records, rows: Int64s) -> None:
        self.records = records
        self.rows = rows
        self._counts: Int64s | None = None
        if records.type in MANY:
            self._counts = n = records.field("n")
            self.rows = np.repeat(rows, n) + ramps(n)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert one value per record to one per row."""
        return values if self._counts is None else np.repeat(values, self._counts)

    def field(self, name: str) -> Int64s:
        """A field of the fixed part, one value per row."""
        return self.spread(self.records.field(name))


class Batch:
    """Some records of a segment, by their indices in its walk, and their rows, by record type."""

    __slots__ = ("_row_of", "groups", "indices", "rows", "segment")

    def __init__(self, segment: Segment, indices: Int64s) -> None:
        self.segment = segment
        self.indices = indices
        offsets = segment.walk.offsets[indices]
        types = segment.walk.types[indices]
        found = {type: (those, Records(segment.source, type, offsets[those])) for type, those in groups(types)}
        counts = np.ones(len(indices), np.int64)
        for type in found.keys() & set(MANY):
            those, records = found[type]
            counts[those] = records.field("n")
        ends = np.cumsum(counts)
        starts = ends - counts
        self.rows = int(counts.sum())
        self.groups = {type: Group(records, starts[those]) for type, (those, records) in found.items()}
        plural = self.rows != len(indices) or (counts == 0).any()
        self._row_of = np.repeat(np.arange(len(indices)), counts) if plural else None

    def only(self, rows: Bools) -> Batch:
        """A batch of only the records that have at least one of these rows."""
        if rows.all():
            return self
        records = np.flatnonzero(rows) if self._row_of is None else np.unique(self._row_of[rows])
        return Batch(self.segment, self.indices[records])

    def of_walk(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An attribute of the walk's records, one value per row."""
        values = values[self.indices]
        return values if self._row_of is None else values.take(self._row_of)

    def filled(self, types: Iterable[int], of: Callable[[Group], Int64s]) -> tuple[Int64s, Bools]:
        """The numbers that `of` returns for the rows of these types, and which rows these are."""
        values = np.zeros(self.rows, np.int64)
        valid = np.zeros(self.rows, np.bool_)
        for group in (self.groups[type] for type in types if type in self.groups):
            values[group.rows] = of(group)
            valid[group.rows] = True
        return values, valid

    def integers(self, places: Places) -> tuple[Int64s, Bools]:
        """The values of a column, and which rows have one."""
        return self.filled(places, lambda group: group.field(places[group.records.type]))

    def spans(self, places: Places, *, empty: bool = False) -> tuple[Int64s, Int64s, Int64s]:
        """The rows in which a column has bytes, where these begin in the segment, and their number.

        The rows ascend.  `places` must be of records with a single row.  Empty values are included only with `empty`.
        """
        found = [(self.groups[type], name) for type, name in places.items() if type in self.groups]
        spans = [(group.rows, *group.records.span(name)) for group, name in found]
        if not empty:
            spans = [(rows[sizes > 0], starts[sizes > 0], sizes[sizes > 0]) for rows, starts, sizes in spans]
        if len(spans) == 1:
            return spans[0]
        rows, starts, sizes = (np.concatenate(part) for part in zip(_NO_SPAN, *spans, strict=True))
        order = np.argsort(rows)
        return rows[order], starts[order], sizes[order]

    def pieces(self, places: Places, *, empty: bool = False) -> pa.Array:
        """The bytes of a column, null where `spans` has none."""
        rows, starts, sizes = self.spans(places, empty=empty)
        if not len(rows):
            return pa.nulls(self.rows, pa.binary())
        everything = self.segment.between(starts, starts + sizes)
        gathered = everything.take(array(pa.int64(), np.arange(0, len(everything), 2))).buffers()[2]
        bounds = np.zeros(self.rows + 1, np.int32)
        bounds[rows + 1] = sizes
        np.cumsum(bounds, out=bounds)
        valid = np.zeros(self.rows, np.bool_)
        valid[rows] = True
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), self.rows, [bitmap, pa.py_buffer(bounds), gathered])


def array(type: pa.DataType, values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """Numbers as an Arrow array.  `values` must have the width of the type; `valid`: which are not null."""
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(type, len(values), [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def times(milliseconds: Int64s, valid: Bools | None = None) -> pa.Array:
    """Times in ms since the epoch as Arrow timestamps; see schema for 0 and for times that no calendar shows."""
    microseconds = np.clip(milliseconds, EARLIEST_MS, LATEST_MS) * 1000
    known = milliseconds != 0
    return array(TIMESTAMP, microseconds, known if valid is None else known & valid)


def text(values: pa.Array) -> pa.Array:
    """Bytes as strings.  Bytes that are not UTF-8 become `\\xNN`."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        shown = [None if v is None else v.decode("utf-8", "backslashreplace") for v in values.to_pylist()]
        return pa.array(shown, pa.string())


def words(meanings: Mapping[int, str], other: str) -> pa.Array:
    """The names of the codes 0 to 255: those without a meaning are called `OTHER-N`."""
    return pa.array([meanings.get(code, f"{other}-{code}") for code in range(256)], pa.string())
