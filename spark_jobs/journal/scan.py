"""From a pinned list of segments to their contents, with one segment in memory at a time; and how losses are handled.

The walk finds damage within a segment.  This module handles segments that are lost completely: missing from the
snapshot, vanished since (the broker or a limit of retention removed it), or on a disk that cannot read it.  Such a
segment is one hole, without an `offset`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import Selection, decode
from spark_jobs.journal.segments import Gap, SegmentRef, Vanished, read_segment
from spark_jobs.journal.snapshot import Snapshot
from spark_jobs.journal.walk import UNKNOWN, Hole, Walk, walk
from store.decode import decode_trimmed
from store.record import RecordType

#: For a segment that does not exist, and for one that the disk cannot read.
MISSING: Final = "missing"
UNREADABLE: Final = "unreadable"


class CorruptSegment(Exception):
    """Damage, where none is accepted; the message says what was found, where, and what is good before it."""


class MissingSegments(Exception):
    """Segments that must exist do not; `gaps` are the holes."""

    def __init__(self, gaps: Sequence[Gap]) -> None:
        first = gaps[0]
        more = f", and {len(gaps) - 1} more such holes" if len(gaps) > 1 else ""
        super().__init__(f"{first.uri}: {first.what}{more} (mode=PERMISSIVE counts the lost records and continues)")
        self.gaps = tuple(gaps)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A segment: its bytes and contents.  `lost` is MISSING or UNREADABLE, with the `error`; "" if it could be read."""

    path: str
    data: bytes
    found: Walk
    lost: str = ""
    error: OSError | None = None

    @classmethod
    def missing(cls, gap: Gap) -> Scanned:
        """The substitute for the segments of a gap."""
        return cls(gap.uri, b"", _nothing(gap.first_segment, gap.first_position, gap.records, gap.what), MISSING)

    def check(self, bounds: Bounds) -> None:
        """Raise CorruptSegment, or the reason why the segment is lost, if damage may affect the range."""
        if self.error is not None:
            raise self.error
        for hole in bounds.holes(self.found):
            before = int(np.searchsorted(self.found.offsets, hole.offset))
            raise CorruptSegment(
                f"{self.path}: {hole.what} at byte {hole.offset} of {len(self.data)}, {before} records before it"
            )


def scan_segment(ref: SegmentRef) -> Scanned:
    """A segment, or the substitute for a lost one.  Raises OSError for errors that may be temporary."""
    try:
        data = read_segment(ref)
    except OSError as error:
        if isinstance(error, Vanished):
            lost, what = MISSING, "the segment vanished while the journal was being read"
        elif error.errno == errno.EIO:
            lost, what = UNREADABLE, f"the disk: {error}"
        else:
            raise
        return Scanned(ref.uri, b"", _nothing(ref.number, ref.first_position, ref.records, what), lost, error)
    first = None if ref.first_position == UNKNOWN else ref.first_position
    found = walk(data, number=ref.number, newest=ref.newest, next_first=ref.next_first, first=first, limit=ref.limit)
    return Scanned(ref.uri, data, found)


def records(snapshot: Snapshot, selection: Selection, *, strict: bool = True) -> Iterator[pa.RecordBatch]:
    """The selected records of a snapshot within its bounds, as batches of the selected columns.

    If strict, raises MissingSegments, CorruptSegment, Vanished or OSError if anything is lost.  Otherwise, a loss is a
    row of record type `damage`.
    """
    if strict and snapshot.missing:
        raise MissingSegments(snapshot.missing)
    selection = replace(selection, bounds=snapshot.bounds.within(selection.bounds))
    for gap in snapshot.missing:
        yield from decode(b"", Scanned.missing(gap).found, selection)
    for segment in map(scan_segment, snapshot.segments):
        if strict:
            segment.check(selection.bounds)
        yield from decode(segment.data, segment.found, selection)


def removed_since(snapshot: Snapshot, position: int) -> bool:
    """Whether the broker has removed segments after a position, so that the journal below it is no longer complete.

    What was alive in them was copied forward, to a place behind the position, or has left behind it.
    """
    if any(gap.first_position + gap.records > position for gap in snapshot.trimmed):
        return True
    there = {ref.number for ref in snapshot.segments}
    for segment in map(scan_segment, snapshot.bounded(from_position=position).segments):
        found = segment.found
        for offset in found.offsets[(found.types == RecordType.TRIMMED) & (found.positions >= position)].tolist():
            if not there.issuperset(decode_trimmed(segment.data, offset).segments):
                return True
    return False


def _nothing(number: int, position: int, records: int, what: str) -> Walk:
    return Walk(number, holes=[Hole(UNKNOWN, position, records, what)])
