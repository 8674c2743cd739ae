"""Which segment, and which are not there: what a snapshot is made of, and how its segments are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from spark_jobs.journal import files
from spark_jobs.journal.walk import UNKNOWN
from store.decode import Opened, decode
from store.record import RecordError
from store.retention import DIRECTORY, day_name
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, BadHeader, decode_header, read_entry

_FIRST_RECORD_AT: Final = SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES


class Vanished(FileNotFoundError):
    """A segment of the snapshot is not there any more, neither where it was nor in retention."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One segment of a snapshot.

    `size` and `limit` are in bytes: what is behind `limit` does not belong to the snapshot (in the newest segment it
    was not written or not valid when the snapshot was taken; elsewhere `limit` is the size).  `first_position` is what
    the header says, or what it must say if it cannot be read (UNKNOWN: nobody knows).  `next_first` is the position
    behind the last record, None if only reading the segment tells.  Times are in ms since the epoch, 0: not known;
    `first_time` and `last_time` are the lowest and highest of its entries.  `kept`: under retention.  `newest`: the
    live segment that the broker writes or wrote last.  `held`: where it can be read when it is no longer at `uri` (see
    `holding`), "": nowhere.
    """

    uri: str
    number: int
    size: int
    limit: int
    first_position: int
    next_first: int | None
    created: int
    kept: bool = False
    newest: bool = False
    first_time: int = 0
    last_time: int = 0
    held: str = ""

    @property
    def records(self) -> int:
        """How many records it has, UNKNOWN if only reading it tells."""
        if self.next_first is None or self.first_position == UNKNOWN:
            return UNKNOWN
        return self.next_first - self.first_position


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions that no segment of the snapshot has.

    `records` of them from `first_position` on (UNKNOWN: cannot be counted), in the segments `first_segment` to
    `last_segment`.  `since` and `until` are when the segments around it were begun, in ms since the epoch, 0: not
    known.  `uri` is where somebody would look, `what` a sentence for an operator.
    """

    uri: str
    first_segment: int
    last_segment: int
    first_position: int
    records: int
    what: str
    since: int = 0
    until: int = 0


def read_segment(ref: SegmentRef) -> bytes:
    """The bytes of a segment up to its limit.

    One that is held, or moved to retention since the snapshot was taken, is found there.  Raises Vanished, OSError.
    """
    return _read(ref, ref.limit)


def next_id_at(ref: SegmentRef) -> int:
    """The id below which any may have been given out when a segment was begun, 0 if its first record does not say.

    Raises Vanished, OSError.
    """
    start = _read(ref, SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES)
    length = int.from_bytes(start[SEGMENT_HEADER_BYTES + 4 : SEGMENT_HEADER_BYTES + 8], "little")
    data = _read(ref, min(SEGMENT_HEADER_BYTES + length, ref.limit))
    try:
        header = decode_header(data)
        entry = read_entry(memoryview(data), SEGMENT_HEADER_BYTES, header.crc)
        first = None if entry is None else decode(data, _FIRST_RECORD_AT)
    except (BadHeader, RecordError):
        return 0
    return first.next_id if isinstance(first, Opened) else 0


def places_of(ref: SegmentRef) -> Iterator[str]:
    """Where a segment lies or, if it moved to retention, must lie."""
    yield ref.uri
    if not ref.kept:
        moved = files.parent_of(ref.uri)
        for name in (DIRECTORY, day_name(ref.created), files.name_of(ref.uri)):
            moved = files.join(moved, name)
        yield moved


def _read(ref: SegmentRef, nbytes: int) -> bytes:
    for place in places_of(ref):
        try:
            return files.read(place, nbytes)
        except FileNotFoundError:
            continue
    held = files.read_open(ref.held, nbytes) if ref.held else None
    if held is not None and _is(ref, held):
        return held
    raise Vanished(f"{ref.uri}: the segment is no longer there" + ("" if ref.kept else f", nor kept as {place}"))


def _is(ref: SegmentRef, data: bytes) -> bool:
    """Whether these are a segment's bytes: on another machine anything may be where it is held."""
    try:
        header = decode_header(data)
    except BadHeader:
        return False
    return (header.number, header.created) == (ref.number, ref.created)
