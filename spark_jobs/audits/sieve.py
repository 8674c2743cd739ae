"""Scans that leave in the segments what an audit has no use for: the data source `bartleby-audit`.

The views of `bartleby-journal` give every record of a type, and Spark throws away what a query does not want.  An audit
wants little: of a hundred messages the one that died, of a whole partition a few sums.  What is decided here, beside
the bytes, is never decoded, sent to Spark, or shuffled.  There are two kinds of scan:

    ledger    movements, combined within the partition, and the findings of each segment (`findings`)
    records   rows of the view `records`, of which a `Sieve` lets some pass

Only the audits use it.  Damage is always a row, also that of a segment lost since the snapshot.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from spark_jobs.audits.findings import Findings
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.columns import COLUMNS
from spark_jobs.journal.decode import BATCH_ROWS, Selection, known
from spark_jobs.journal.gather import Batch, Segment
from spark_jobs.journal.layout import PLURAL, Bools, Int64s, Records
from spark_jobs.journal.movements import Movements
from spark_jobs.journal.schema import DAMAGE, MOVEMENTS, RECORDS, arrow_schema, ddl
from spark_jobs.journal.snapshot import PARTITION_BYTES, UNKNOWN, SegmentRef, Snapshot, Vanished, read_segment
from spark_jobs.journal.walk import Hole, Walk, walk
from spark_jobs.source import register
from spark_jobs.source_options import parse_size
from store.record import RecordType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NAME: Final = "bartleby-audit"

#: Records handled at a time: their rows are a batch or a little more.
_RUN: Final = BATCH_ROWS // 4

#: The rows of a ledger's scan: those of the view `movements`, and what `findings` adds.
LEDGER: Final[dict[str, pa.DataType]] = {
    **{name: MOVEMENTS[name].type for name in MOVEMENTS if name not in ("left_time",)},
    "lowest": pa.int64(),
    "highest": pa.int64(),
    "position": pa.int64(),
}
_DDL: Final = {pa.string(): "string", pa.int64(): "bigint", pa.timestamp("us", tz="UTC"): "timestamp_ltz"}


@dataclass(frozen=True, slots=True)
class Sieve:
    """Which records pass, of the `types` asked for.

    Of MESSAGE records those that fit one of these, all if none is set: `moved`, something moved it here; `expires_by`,
    it expires up to then (ms since the epoch); `ids`, it is one of them.  Other records pass, with `ids` only if they
    are about one of these messages.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    moved: bool = False
    expires_by: int | None = None
    ids: tuple[int, ...] | None = None


def records(spark: SparkSession, snapshot: Snapshot, sieve: Sieve, bounds: Bounds) -> DataFrame:
    """Records that pass a sieve (columns of the view `records`), and damage."""
    return _load(spark, snapshot, bounds, sieve=asdict(sieve))


def ledger(spark: SparkSession, snapshot: Snapshot, bounds: Bounds, *, keep_below: int) -> DataFrame:
    """Movements and findings (columns LEDGER).  `keep_below` as in the view `movements`."""
    first = snapshot.segments[0].number if snapshot.segments else 0
    return _load(spark, snapshot, bounds, keepBelow=keep_below, firstSegment=first)


def _load(spark: SparkSession, snapshot: Snapshot, bounds: Bounds, **scan: object) -> DataFrame:
    register(spark)
    spark.dataSource.register(AuditSource)
    reader = spark.read.format(NAME).option("snapshot", snapshot.to_json()).option("bounds", json.dumps(asdict(bounds)))
    for name, value in scan.items():
        reader = reader.option(name, json.dumps(value))
    return reader.load()


class AuditSource(DataSource):
    """What Spark knows of `bartleby-audit`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def _sieve(self) -> Sieve | None:
        text = self.options.get("sieve")
        if text is None:
            return None
        given = json.loads(text)
        ids = given.pop("ids")
        return Sieve(
            **{**given, "columns": tuple(given["columns"]), "types": tuple(given["types"])}, ids=ids and tuple(ids)
        )

    def _ledger_scan(self, bounds: Bounds) -> LedgerScan:
        return LedgerScan(bounds, int(self.options["keepBelow"]), int(self.options["firstSegment"]))

    def schema(self) -> str:
        """The columns of the scan."""
        sieve = self._sieve()
        if sieve is not None:
            return ddl(RECORDS, sieve.columns)
        return ", ".join(f"`{name}` {_DDL[type]}" for name, type in LEDGER.items())

    def reader(self, schema: StructType) -> AuditReader:
        """For `spark.read`."""
        bounds = Bounds(**json.loads(self.options["bounds"]))
        sieve, size = self._sieve(), self.options.get("targetBytes")
        scan = RecordScan(bounds, sieve) if sieve is not None else self._ledger_scan(bounds)
        return AuditReader(self.options["snapshot"], scan, parse_size("targetBytes", size) if size else PARTITION_BYTES)


class AuditReader(DataSourceReader):
    """Plans on the driver, scans on the executors."""

    def __init__(self, snapshot: str, scan: LedgerScan | RecordScan, target_bytes: int) -> None:
        self._snapshot = snapshot
        self._scan = scan
        self._target_bytes = target_bytes

    def partitions(self) -> list[InputPartition]:
        """Segments in order, packed."""
        packed = Snapshot.from_json(self._snapshot).partitions(self._target_bytes)
        return [InputPartition(refs) for refs in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition.  Spark stands a partition of None for a journal without any."""
        if partition.value is not None:
            yield from self._scan.read(_walked(partition.value))


#: A segment's bytes and what is in it.
Walked = tuple[bytes, Walk]


def _walked(refs: list[SegmentRef]) -> Iterator[Walked]:
    """One segment in memory after the other; one that is lost since it was listed is a single hole."""
    for ref in refs:
        first = None if ref.first_position == UNKNOWN else ref.first_position
        try:
            data = read_segment(ref)
        except OSError as error:
            if not isinstance(error, Vanished) and error.errno != errno.EIO:
                raise
            hole = Hole(0, ref.first_position, ref.records, f"the segment was lost while the journal was read: {error}")
            yield b"", Walk(ref.number, holes=[hole])
            continue
        yield (
            data,
            walk(data, number=ref.number, newest=ref.newest, next_first=ref.next_first, first=first, limit=ref.limit),
        )


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """Movements and findings of a partition."""

    bounds: Bounds
    keep_below: int
    first_segment: int

    def read(self, segments: Iterator[Walked]) -> Iterator[pa.RecordBatch]:
        """Batches of LEDGER."""
        movements = Movements(self.bounds, keep_below=self.keep_below, first_segment=self.first_segment)
        findings = Findings(Selection((), None, self.bounds))
        for data, found in segments:
            movements.add(data, found)
            findings.add(data, found)
        for batch in (findings.batch(), *movements.batches()):
            yield _shaped(batch)


def _shaped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with all columns of LEDGER, null where it has none."""
    there = set(batch.schema.names)
    columns = [batch[name] if name in there else pa.nulls(len(batch), type) for name, type in LEDGER.items()]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(LEDGER.items())))


@dataclass(frozen=True, slots=True)
class RecordScan:
    """Records of a partition that pass a sieve."""

    bounds: Bounds
    sieve: Sieve

    def read(self, segments: Iterator[Walked]) -> Iterator[pa.RecordBatch]:
        """Batches of the sieve's columns."""
        types = frozenset(RecordType[name.upper().replace("-", "_")] for name in self.sieve.types)
        selection, schema = Selection((), types, self.bounds), arrow_schema(RECORDS, self.sieve.columns)
        for data, found in segments:
            yield from _damage(selection, found, schema)
            if not len(found.offsets):
                continue
            segment = Segment(data, found)
            indices = self._passing(segment, selection.indices(found))
            for start in range(0, len(indices), _RUN):
                yield from self._batches(Batch(segment, indices[start : start + _RUN]), schema)

    def _passing(self, segment: Segment, indices: Int64s) -> Int64s:
        passes = np.ones(len(indices), np.bool_)
        types, offsets = segment.walk.types[indices], segment.walk.offsets[indices]
        for type in np.unique(types).tolist():
            of_type = np.flatnonzero(types == type)
            records = Records(segment.source, type, offsets[of_type])
            if type == RecordType.MESSAGE:
                passes[of_type] = self._messages(records)
            elif self.sieve.ids is not None:
                passes[of_type] = self._about(records)
        return indices[passes]

    def _messages(self, messages: Records) -> Bools:
        sieve = self.sieve
        wanted = []
        if sieve.moved:
            wanted.append(messages.field("annotations_bytes") > 0)
        if sieve.expires_by is not None:
            expiration = messages.field("expiration")
            wanted.append((expiration > 0) & (expiration <= sieve.expires_by))
        if sieve.ids is not None:
            wanted.append(np.isin(messages.field("id"), sieve.ids))
        return np.any(wanted, axis=0) if wanted else np.ones(len(messages), np.bool_)

    def _about(self, records: Records) -> Bools:
        """Which records are about one of the ids."""
        assert self.sieve.ids is not None
        if records.type in (RecordType.DEAD_LETTERED, RecordType.EXPIRED):
            return np.isin(records.field("old_id"), self.sieve.ids)
        if records.type not in PLURAL:
            return np.zeros(len(records), np.bool_)
        n = records.field("n")
        hits = np.isin(records.ids(), self.sieve.ids)
        whose = np.repeat(np.arange(len(n)), n)
        about: Bools = np.bincount(whose[hits], minlength=len(n)) > 0
        return about

    def _batches(self, batch: Batch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        made = pa.RecordBatch.from_arrays([COLUMNS[name](batch) for name in self.sieve.columns], schema=schema)
        if self.sieve.ids is not None:
            # A record about several messages has a row for each of them.
            wanted = pc.is_in(COLUMNS["message_id"](batch), pa.array(self.sieve.ids, pa.int64()))
            made = made.filter(pc.or_(wanted, pc.equal(COLUMNS["record_type"](batch), "message")))
        for start in range(0, len(made), BATCH_ROWS):
            yield made.slice(start, BATCH_ROWS)


def _damage(selection: Selection, found: Walk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Damage as rows of the view `records`."""
    rows = [
        {
            "record_type": DAMAGE,
            "segment": found.number,
            "offset": hole.offset,
            "position": known(hole.first_position),
            "count": known(hole.records),
            "text": hole.what,
        }
        for hole in selection.bounds.holes(found)
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema)
