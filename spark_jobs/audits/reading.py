"""The part of a journal that an audit reads, as data frames, and what of it could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
from pyspark.storagelevel import StorageLevel

from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.options import Options
from spark_jobs.audits.sieve import Sieve, ledger, records
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.schema import DAMAGE
from spark_jobs.journal.snapshot import UNKNOWN, Snapshot
from spark_jobs.results import Coverage, Damage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Damaged places that a report lists; the number beyond is told.
DAMAGE_MAX: Final = 1000


class NoSuchAddress(Exception):
    """Nothing in the journal has the address that was asked for; the message names those like it."""


class Journal:
    """A pinned snapshot within the bounds of the options; every frame of it reads the same records.

    As a context it lets go of the frames that were kept.
    """

    def __init__(self, spark: SparkSession, snapshot: Snapshot, options: Options) -> None:
        self.spark = spark
        self.options = options
        self._whole = snapshot
        self.snapshot = snapshot.bounded(**asdict(bounds(options)))
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
        """Whether the range leaves out something of the snapshot's beginning."""
        first, options = self._first, self.options
        if first is None or (options.from_position is None and options.from_time is None):
            return False
        if first not in self.snapshot.segments:
            return True
        later = options.from_position is not None and options.from_position > first.first_position
        return later or (options.from_time is not None and options.from_time > first.created)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Compute a frame now, for several uses: what is small beside the journal.  Spills to disk."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        kept.count()  # so that what uses it knows its size, and chooses its joins by it
        return kept

    def records(
        self,
        types: Sequence[str],
        columns: Sequence[str],
        *,
        moved: bool = False,
        expires_by: int | None = None,
        ids: Iterable[int] | None = None,
    ) -> DataFrame:
        """Records of some types that pass a sieve (see there), with `damage` rows among them."""
        sieve = Sieve(tuple(columns), tuple(types), moved, expires_by, None if ids is None else tuple(ids))
        return records(self.spark, self.snapshot, sieve, bounds(self.options))

    def ledger(self, *, keep_below: int) -> DataFrame:
        """Who entered and left which queue, and what does not agree (sieve.LEDGER)."""
        return ledger(self.spark, self.snapshot, bounds(self.options), keep_below=keep_below)

    def check_addresses(self, known: Iterable[str]) -> None:
        """See that each address that was asked for exists: among those known, or anywhere in the journal.

        Raises NoSuchAddress.
        """
        if not self.options.unmet(known):
            return
        whole = Journal(self.spark, self._whole, Options())
        defined = whole.records(("address", "queue", "dropped"), ("address", *DAMAGE_COLUMNS))
        addresses = {*known, *defined.select("address").distinct().toArrow()["address"].drop_null().to_pylist()}
        for pattern in self.options.unmet(addresses):
            alike = get_close_matches(pattern, addresses)
            raise NoSuchAddress(
                f"--address {pattern}: no address in the journal is called that"
                + (f"; there is {', '.join(alike)}" if alike else "")
            )

    def addressed(self, frame: DataFrame, column: str = "address") -> DataFrame:
        """The rows whose address is among those asked for."""
        regex = self.options.address_regex
        return frame.where(frame[column].rlike(rf"\A(?:{regex})\z")) if regex else frame

    def coverage(self, frame: DataFrame) -> Coverage:
        """What was read.  `frame` has the damage rows of a scan over all of it (columns of DAMAGE_COLUMNS)."""
        rows = frame.where(frame["record_type"] == DAMAGE).select(*DAMAGE_COLUMNS)
        found = rows.distinct().orderBy("segment", "offset").limit(DAMAGE_MAX).toArrow()
        return coverage(self.snapshot, self.options, damage_rows(self.snapshot, found))


#: What a frame must have so that its damage can be told.
DAMAGE_COLUMNS: Final = ("record_type", "segment", "offset", "position", "count", "text")


def bounds(options: Options) -> Bounds:
    """The bounds of an audit."""
    return Bounds(options.from_position, options.to_position, options.from_time, options.to_time)


def damage_rows(snapshot: Snapshot, rows: pa.Table) -> list[Damage]:
    """Damage as a scan tells it (segment, offset, position, count, text), with the paths of the segments."""
    paths = {ref.number: ref.uri for ref in snapshot.segments}
    return [
        Damage(
            path=paths.get(row["segment"], f"segment {row['segment']}"),
            offset=row["offset"] or 0,
            first_position=UNKNOWN if row["position"] is None else row["position"],
            records=UNKNOWN if row["count"] is None else row["count"],
            what=row["text"] or "",
        )
        for row in rows.to_pylist()
    ]
