"""Which segment, and which are not there: what a snapshot is made of, and how its segments are read.

A broker under load removes segments all the time, and an audit begins to read some seconds after it has seen which
there are.  So it opens them when it sees them (`OpenSegments`): a file that is open is there until it is closed.
Spark's workers on the same machine find it below /proc, among the open files of the process that has opened it.

Without that (on another machine or system) a segment that goes is a segment that is missing; with retention it has
only moved, and is found.  What is open takes its place on disk until it is closed.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from spark_jobs.journal import files
from spark_jobs.journal.walk import UNKNOWN
from store.decode import Opened, decode
from store.errors import Corrupt
from store.record import RecordError
from store.retention import DIRECTORY, day_name
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, BadHeader, decode_header
from store.segment_directory import open_segment

#: Open files that are left to everything else: Java's are another process's.
OTHER_FILES: Final = 256

#: Where the length of the first entry stands.
_LENGTH: Final = slice(SEGMENT_HEADER_BYTES + 4, SEGMENT_HEADER_BYTES + 8)


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
    live segment that the broker writes or wrote last.  `opened_at`: where it can be read when it is no longer at
    `uri`, "" if it is not kept open (OpenSegments).
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
    opened_at: str = ""

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
    data = _read(ref, min(SEGMENT_HEADER_BYTES + int.from_bytes(start[_LENGTH], "little"), ref.limit))
    try:
        raw = next(open_segment(ref.uri, ref.number, data).records(), None)
        first = None if raw is None else decode(data, raw[5])
    except (Corrupt, RecordError):
        return 0
    return first.next_id if isinstance(first, Opened) else 0


def _places_of(ref: SegmentRef) -> Iterator[str]:
    """Where a segment lies or, if it moved to retention, must lie."""
    yield ref.uri
    if not ref.kept:
        moved = files.parent_of(ref.uri)
        for name in (DIRECTORY, day_name(ref.created), files.name_of(ref.uri)):
            moved = files.join(moved, name)
        yield moved


def _read(ref: SegmentRef, nbytes: int) -> bytes:
    for place in _places_of(ref):
        try:
            return files.read(place, nbytes)
        except FileNotFoundError:
            continue
    data = files.read_open(ref.opened_at, nbytes) if ref.opened_at else None
    if data is not None and _is(ref, data):
        return data
    raise Vanished(f"{ref.uri}: the segment is no longer there" + ("" if ref.kept else f", nor kept as {place}"))


def _is(ref: SegmentRef, data: bytes) -> bool:
    """Whether these are a segment's bytes: on another machine anything may be where it is open."""
    try:
        header = decode_header(data)
    except BadHeader:
        return False
    return (header.number, header.created) == (ref.number, ref.created)


class OpenSegments(ExitStack):
    """Segments that can be read until it is closed, whatever the broker does with them; `others` files are left."""

    def __init__(self, others: int = OTHER_FILES) -> None:
        super().__init__()
        self._others = others

    def open(self, refs: Sequence[SegmentRef]) -> tuple[list[SegmentRef], int]:
        """Open these, and close all others.  Returns them with where they are, and how many more files than may be
        open they are.

        Raises Vanished if one is there no more.
        """
        self.close()
        local = [ref for ref in refs if files.is_local(ref.uri)]
        room = files.room_for(len(local) + self._others) - self._others
        held = {ref.number: self._open(ref) for ref in local[: max(room, 0)]}
        return [replace(ref, opened_at=held.get(ref.number, "")) for ref in refs], len(local) - len(held)

    def _open(self, ref: SegmentRef) -> str:
        for place in _places_of(ref):
            try:
                return files.keep_open(place, self)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EACCES):  # reading it will tell
                    raise
                return ""
        raise Vanished(f"{ref.uri}: the segment is no longer there")
