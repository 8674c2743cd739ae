"""From a snapshot to batches: which segments are read together, and what becomes of those that cannot be.

This is the data source without Spark.  A part is what one task reads: it is planned where the snapshot is, and read
where the task runs.  Damage within a segment is found by the decoder; here it is a segment that is not there at all:
missing from the snapshot, vanished since (the broker gave it up, or a limit of retention took it), or on a disk that
does not give it back.  Strict reading raises; otherwise each is a row as damage is, without an `offset`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa

from spark_jobs.journal.decode import CorruptSegment, Selection, decode_segment, inspect_segment
from spark_jobs.journal.movements import Movements
from spark_jobs.journal.schema import DAMAGE, arrow_schema
from spark_jobs.journal.snapshot import UNKNOWN, Gap, SegmentRef, Snapshot, Vanished, read_segment
from spark_jobs.journal.walk import walk
from spark_jobs.source_options import VIEWS, SourceOptions

#: `status` of the segments view for a segment that is not there, and for one that the disk does not give back.
MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"


class MissingSegments(Exception):
    """Segments that must be there are not; `gaps` are the holes."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        first = gaps[0]
        more = f", and {len(gaps) - 1} more such holes" if len(gaps) > 1 else ""
        super().__init__(f"{first.uri}: {first.what}{more} (mode=PERMISSIVE counts what is lost and goes on)")
        self.gaps = tuple(gaps)


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: segments in order, or holes to be told; of the positions within the bounds.

    `first_segment` is the number of the journal's first one.
    """

    segments: tuple[SegmentRef, ...] = ()
    gaps: tuple[Gap, ...] = ()
    from_position: int | None = None
    to_position: int | None = None
    first_segment: int = 0


def plan(snapshot: Snapshot, options: SourceOptions) -> list[Part]:
    """The parts of a snapshot, bounded already.  Raises MissingSegments."""
    gaps = snapshot.missing if options.gaps else ()
    if gaps and options.strict and options.view != "segments":
        raise MissingSegments(gaps)
    bounds = (options.from_position, options.to_position)
    first = snapshot.segments[0].number if snapshot.segments else 0
    parts = [Part(tuple(refs), (), *bounds, first) for refs in snapshot.partitions(options.target_bytes)]
    if gaps:
        parts.append(Part((), gaps, *bounds))
    return parts


def read(part: Part, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a part, as batches of the options' columns.  Raises CorruptSegment, Vanished, OSError."""
    yield from _gap_rows(part.gaps, MISSING, options)
    selection = replace(options.selection, from_position=part.from_position, to_position=part.to_position)
    movements = _movements(selection, options, part.first_segment) if options.view == "movements" else None
    for ref in part.segments:
        try:
            data = read_segment(ref)
        except OSError as error:
            if not _is_loss(error) or (options.strict and options.view != "segments"):
                raise
            yield from _gap_rows((_lost(ref, error),), _status(error), options)
            continue
        if movements is not None:
            _add(movements, data, ref, selection, strict=options.strict)
        elif options.view == "segments":
            yield inspect_segment(data, **_where(ref), path=ref.uri).select(list(options.columns))
        else:
            yield from decode_segment(data, selection, **_where(ref), path=ref.uri, strict=options.strict)
    if movements is not None:
        yield from (batch.select(list(options.columns)) for batch in movements.batches())


class _Where(TypedDict):
    """What is known of a segment before it is read."""

    number: int
    newest: bool
    next_first: int | None
    first: int | None
    limit: int


def _where(ref: SegmentRef) -> _Where:
    first = None if ref.first_position == UNKNOWN else ref.first_position
    return _Where(number=ref.number, newest=ref.newest, next_first=ref.next_first, first=first, limit=ref.limit)


def _movements(selection: Selection, options: SourceOptions, first_segment: int) -> Movements:
    return Movements(
        keep_below=options.keep_below,
        first_segment=first_segment,
        from_position=selection.from_position,
        to_position=selection.to_position,
        from_time=selection.from_time,
        to_time=selection.to_time,
    )


def _add(movements: Movements, data: bytes, ref: SegmentRef, selection: Selection, *, strict: bool) -> None:
    found = walk(data, **_where(ref))
    holes = selection.holes(found)
    if strict and holes:
        hole = holes[0]
        before = int(np.searchsorted(found.offsets, hole.offset))
        raise CorruptSegment(ref.uri, hole.offset, len(data), before, hole.what)
    movements.add(data, found)


# -- segments that are not there ---------------------------------------------------------------------------------------


def _is_loss(error: OSError) -> bool:
    """Whether the segment is lost.  All else (no permission, a network that failed) may be better the next time."""
    return isinstance(error, Vanished) or error.errno == errno.EIO


def _status(error: OSError) -> str:
    return MISSING if isinstance(error, Vanished) else UNREADABLE


def _lost(ref: SegmentRef, error: OSError) -> Gap:
    what = "the segment vanished while the journal was read" if isinstance(error, Vanished) else f"the disk: {error}"
    return Gap(ref.uri, ref.number, ref.number, ref.first_position, ref.records, what)


def _gap_rows(gaps: Sequence[Gap], status: str, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """One row a hole, as the view shows it."""
    if gaps:
        schema = arrow_schema(VIEWS[options.view], options.columns)
        rows = [_ROWS[options.view](gap, status) for gap in gaps]
        yield pa.RecordBatch.from_pylist([{name: row.get(name) for name in options.columns} for row in rows], schema)


def _known(number: int) -> int | None:
    return None if number == UNKNOWN else number


def _record(gap: Gap, _: str) -> dict[str, object]:
    return {
        "segment": gap.first_segment,
        "position": _known(gap.first_position),
        "record_type": DAMAGE,
        "text": gap.what,
        "count": _known(gap.records),
    }


def _movement(gap: Gap, _: str) -> dict[str, object]:
    return {
        "kind": DAMAGE,
        "segment": gap.first_segment,
        "entered_position": _known(gap.first_position),
        "text": gap.what,
        "count": _known(gap.records),
    }


def _segment(gap: Gap, status: str) -> dict[str, object]:
    return {
        "path": gap.uri,
        "segment": gap.first_segment,
        "first_position": _known(gap.first_position),
        "status": status,
        "lost_records": _known(gap.records),
        "error": gap.what,
    }


_ROWS: Final[dict[str, Callable[[Gap, str], dict[str, object]]]] = {
    "records": _record,
    "movements": _movement,
    "segments": _segment,
}
