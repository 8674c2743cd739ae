"""The part of a journal that an audit reads, as data frames, and its damage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from difflib import get_close_matches
from functools import reduce
from operator import and_
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.options import Options
from spark_jobs.journal.bounds import UNBOUNDED, Bounds
from spark_jobs.journal.schema import DAMAGE, RECORDS, ddl
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.journal.walk import UNKNOWN
from spark_jobs.results import Coverage, Damage
from spark_jobs.source import open_journal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Maximum number of damaged places that a report lists.
DAMAGE_MAX: Final = 1000


class NoSuchAddress(Exception):
    """No such address exists in the journal; the message names similar ones."""


class Journal:
    """A pinned snapshot within bounds (by default, those of the options); every frame of it reads the same records.

    `connected`: without the segments whose messages may have left out of sight (Snapshot.broken_off).
    As a context manager, it releases the kept frames at the end.
    """

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        options: Options,
        bounds: Bounds | None = None,
        *,
        connected: bool = False,
    ) -> None:
        self.spark = spark
        self.options = options
        self._whole = snapshot
        within = snapshot.within(options.bounds if bounds is None else bounds)
        self.snapshot = within.without_broken_off() if connected else within
        self._first = snapshot.segments[0] if snapshot.segments else None
        self._kept: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._kept:
            self._kept.pop().unpersist()

    @property
    def begins_within(self) -> bool:
        """Whether the range excludes some of the snapshot's beginning."""
        first, bounds = self._first, self.snapshot.bounds
        if first is None or (bounds.from_position is None and bounds.from_time is None):
            return False
        if first not in self.snapshot.segments:
            return True
        later = bounds.from_position is not None and bounds.from_position > first.first_position
        return later or (bounds.from_time is not None and bounds.from_time > first.created)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute a frame now, to use it several times; it should be small compared to the journal.  Spills to disk."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        kept.count()  # so that Spark knows its size, and chooses joins accordingly
        return kept

    def records(self, types: Sequence[str], columns: Sequence[str], **options: Any) -> DataFrame:
        """Records of some types within the range, with their `record_type`; `options` as for open_journal."""
        frame = self.with_damage(types, columns, **options)
        return frame.where(frame["record_type"] != DAMAGE)

    def with_damage(self, types: Sequence[str], columns: Sequence[str], **options: Any) -> DataFrame:
        """Like `records`, plus a row of type `damage` for each place that could not be read (see DAMAGE_COLUMNS)."""
        columns = tuple(dict.fromkeys(("record_type", *columns)))
        return open_journal(self.spark, self.snapshot, types=types, columns=columns, **options)

    def outside(self, types: Sequence[str], columns: Sequence[str]) -> DataFrame:
        """Records outside the range in the same segments (the columns must include position and time).

        They are kept, as they are few.  Segments completely within the range of positions are not read.
        """
        bounds, refs = self.snapshot.bounds, self.snapshot.segments
        if bounds.from_time is None and bounds.to_time is None:
            first = bounds.from_position or 0
            end = self.snapshot.next_position if bounds.to_position is None else bounds.to_position
            ends = [*(ref.first_position for ref in refs[1:]), self.snapshot.next_position]
            refs = tuple(
                ref for ref, behind in zip(refs, ends, strict=False) if ref.first_position < first or behind > end
            )
        if not refs:  # an empty frame that Spark recognizes as empty costs nothing
            return self.spark.createDataFrame([], ddl(RECORDS, ("record_type", *columns)))
        around = replace(self.snapshot, bounds=UNBOUNDED, segments=refs)
        return self.keep(Journal(self.spark, around, Options()).records(types, columns).where(~self.inside))

    @property
    def inside(self) -> Column:
        """Whether a record (position, time) is within the range."""
        first, end, first_time, end_time = astuple(self.snapshot.bounds)
        position, time = F.col("position"), F.unix_millis("time")
        asked = [
            None if first is None else position >= first,
            None if end is None else position < end,
            None if first_time is None else time >= first_time,
            None if end_time is None else time < end_time,
        ]
        return reduce(and_, (each for each in asked if each is not None), F.lit(True))

    def check_addresses(self, known: Iterable[str]) -> None:
        """Check that each requested address exists: among those known, or anywhere in the journal.

        Raises NoSuchAddress.
        """
        if not self.options.unmet(known):
            return
        whole = Journal(self.spark, self._whole, Options())
        defined = whole.records(("address", "queue", "dropped"), ("address",))
        addresses = {*known, *defined.select("address").distinct().toArrow()["address"].drop_null().to_pylist()}
        for pattern in self.options.unmet(addresses):
            alike = get_close_matches(pattern, addresses)
            raise NoSuchAddress(
                f"--address {pattern}: no address in the journal matches"
                + (f"; similar ones: {', '.join(alike)}" if alike else "")
            )

    def check_addresses_of(self, frame: DataFrame) -> None:
        """Like `check_addresses`, with the addresses of these rows.  Raises NoSuchAddress."""
        if self.options.addresses:
            self.check_addresses(frame.select("address").distinct().toArrow()["address"].drop_null().to_pylist())

    def unclear(self, covered: Coverage) -> list[int]:
        """The segments whose messages may have left even if the journal does not show it.

        A message that does not visibly leave is only alive if another segment has it too.
        """
        return sorted(self.snapshot.broken_off if covered.whole else self.snapshot.lifeless)

    def addressed(self, frame: DataFrame, column: str = "address") -> DataFrame:
        """The rows whose address is to be audited."""
        regex = self.options.address_regex
        return frame.where(frame[column].rlike(rf"\A(?:{regex})\z")) if regex else frame

    def damage(self, frame: DataFrame) -> list[Damage]:
        """The first DAMAGE_MAX places that a scan could not read (its rows of type `damage`, DAMAGE_COLUMNS)."""
        paths = {ref.number: ref.uri for ref in self.snapshot.segments}
        rows = frame.where(frame["record_type"] == DAMAGE).select(*DAMAGE_COLUMNS).distinct()
        found = rows.orderBy("segment", "offset").limit(DAMAGE_MAX).toArrow().to_pylist()
        return [
            Damage(
                path=paths.get(row["segment"], f"segment {row['segment']}"),
                offset=row["offset"] or 0,
                first_position=UNKNOWN if row["position"] is None else row["position"],
                records=UNKNOWN if row["count"] is None else row["count"],
                what=row["text"] or "",
            )
            for row in found
        ]

    def coverage(self, frame: DataFrame) -> Coverage:
        """The coverage: what was read.  `frame` has the damage of a complete scan."""
        return coverage(self.snapshot, self.damage(frame))


#: The columns that a frame needs so that its damage can be listed.
DAMAGE_COLUMNS: Final = ("record_type", "segment", "offset", "position", "count", "text")
