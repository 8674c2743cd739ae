"""A journal as a stream: the records written since the last trigger, each exactly once.

Positions are dense, so an offset is the position up to which everything was delivered:

    {"broker": "5f0c...", "since": 7001, "segment": 12, "position": 8123}

1. The records of [start, end) are delivered, whichever file they are in by then: a segment may move to retention
   between two triggers, and a batch that is repeated after a restart has the same records.
2. A half-written entry at the end of the newest segment is ignored; a later trigger delivers it.
3. `since` is where the journal ended when the query began.  Records that the broker had removed before are no loss to
   the stream.  Records that it removes later, before a trigger has read them, are lost.  Retention prevents this.
4. A power cut may undo entries that were written but not yet durable: none of them was confirmed to anybody, but the
   stream may have delivered them.  Then, the next run continues below the offset, in a segment after `segment`, which
   had the last delivered record.
5. A checkpoint belongs to the journal of one broker.

Losses (3) and undone records (4) are exceptions, or with mode=PERMISSIVE rows of type `damage`, after which the stream
continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.segments import Gap
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.reading import plan, read
from spark_jobs.source_options import BadOption, SourceOptions


class WrongJournal(Exception):
    """The checkpoint does not match the journal; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Offset:
    """An offset, as described above.  `segment` is 0 before the first record."""

    broker: str
    since: int
    segment: int
    position: int

    @classmethod
    def of(cls, given: Mapping[str, str | int]) -> Offset:
        """The offset from JSON that Spark has kept."""
        numbers = (int(given[name]) for name in ("since", "segment", "position"))
        return cls(str(given["broker"]), *numbers)

    def at(self, snapshot: Snapshot, position: int) -> Offset:
        """The offset at another position."""
        before = [ref.number for ref in snapshot.segments if ref.first_position < position]
        return replace(self, segment=before[-1] if before else 0, position=position)

    def resumed(self, snapshot: Snapshot) -> int:
        """Where to continue: at the offset's position, or below it if a power cut undid records.

        Raises WrongJournal if the journal belongs to another broker.
        """
        if snapshot.broker_id != self.broker:
            raise WrongJournal(
                f"the checkpoint belongs to the journal of broker {self.broker}, but {', '.join(snapshot.journals)} to "
                f"{snapshot.broker_id}: start the query with a new checkpoint"
            )
        behind = [ref.first_position for ref in snapshot.segments if ref.number > self.segment]
        return min([self.position, snapshot.next_position, *behind[:1]])


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader: offsets and plans on the driver, in one process for the lifetime of a query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._snapshot: Snapshot | None = None
        self._target: int | None = None

    def _take(self) -> Snapshot:
        self._snapshot = take(self._options.paths)
        return self._snapshot

    def initialOffset(self) -> dict[str, str | int]:
        """Where the stream begins, according to the options.  Raises BadOption, and the exceptions of snapshot.take."""
        options, snapshot = self._options, self._take()
        position = snapshot.next_position
        bounds = options.selection.bounds
        if bounds.from_position is not None:
            if bounds.from_position > position:
                raise BadOption(f"fromPosition={bounds.from_position}: the journal ends before position {position}")
            position = bounds.from_position
        elif not options.latest:
            wanted = snapshot.bounded(from_time=bounds.from_time).segments
            position = wanted[0].first_position if wanted else position
        return asdict(Offset(snapshot.broker_id, snapshot.next_position, 0, 0).at(snapshot, position))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The number of segments in the option `maxSegments`, otherwise no limit."""
        limit = self._options.segments_max
        return ReadAllAvailable() if limit is None else ReadMaxFiles(limit)

    def latestOffset(self, start: dict[str, str | int], limit: ReadLimit) -> dict[str, str | int]:
        """Where the next batch ends.  Raises WrongJournal, and the exceptions of snapshot.take."""
        begun = Offset.of(start)
        snapshot = self._take()
        resumed = begun.resumed(snapshot)
        if resumed < begun.position and self._options.strict:
            raise WrongJournal(f"{_undone(begun, resumed)}: start the query with a new checkpoint")
        end = snapshot.next_position
        if self._target is not None:
            end = min(end, self._target)
        if isinstance(limit, ReadMaxFiles):
            beyond = snapshot.bounded(from_position=resumed).segments[limit.max_files :]
            end = min([end, *(ref.first_position for ref in beyond[:1])])
        return asdict(begun.at(snapshot, end))

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query read only what exists now."""
        self._target = self._take().next_position

    def reportLatestOffset(self) -> dict[str, str | int] | None:
        """Where the journal ended when it was last read, for the query's progress."""
        snapshot = self._snapshot
        if snapshot is None:
            return None
        return asdict(Offset(snapshot.broker_id, 0, 0, 0).at(snapshot, snapshot.next_position))

    def partitions(self, start: dict[str, str | int], end: dict[str, str | int]) -> Sequence[InputPartition]:
        """The parts of [start, end).  Raises WrongJournal, MissingSegments, and the exceptions of snapshot.take."""
        begun, ended = Offset.of(start), Offset.of(end)
        snapshot = self._snapshot
        if snapshot is None or snapshot.next_position < ended.position:  # a batch from before a restart
            snapshot = self._take()
        resumed = begun.resumed(snapshot)
        gaps = []
        if resumed < begun.position:
            newest, what = snapshot.segments[-1], _undone(begun, resumed)
            gaps.append(Gap(newest.uri, newest.number, newest.number, resumed, begun.position - resumed, what))
        if ended.resumed(snapshot) < ended.position:
            raise WrongJournal(f"{_undone(ended, ended.resumed(snapshot))}: start the query with a new checkpoint")
        bounds = Bounds(resumed, ended.position, self._options.selection.bounds.from_time)
        piece = snapshot.within(bounds)
        gaps += [*piece.missing, *_lost(piece, begun.since)]
        return plan(replace(piece, missing=tuple(gaps)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow batches."""
        return read(partition, self._options)


def _undone(offset: Offset, resumed: int) -> str:
    return (
        f"records {resumed} to {offset.position - 1} were delivered but are no longer in the journal: "
        "a power cut undid them before they were durable"
    )


def _lost(piece: Snapshot, since: int) -> list[Gap]:
    """The gaps that the broker made after the query had begun."""
    what = "the broker removed these segments before the stream had read them: turn on retention (journal.retention)"
    return [replace(gap, what=what) for gap in piece.trimmed if gap.first_position + gap.records > since]
