"""Segments and gaps: what a snapshot consists of, and how its segments are read.

A broker under load removes segments all the time, and an audit begins to read some seconds after listing them.
Therefore, it opens them at once (`OpenSegments`): an open file exists until it is closed.  Spark's workers on the same
machine find it in /proc, among the open files of the process that opened it.  Without this (on another machine or
system), a segment that is removed is missing; with retention it has only moved, and is found.  Open files use disk
space until they are closed.
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

#: Number of open files reserved for everything else; Java is another process, and does not count.
OTHER_FILES: Final = 256

#: Where the length of the first entry is.
_LENGTH: Final = slice(SEGMENT_HEADER_BYTES + 4, SEGMENT_HEADER_BYTES + 8)


class Vanished(FileNotFoundError):
    """A segment of the snapshot no longer exists, neither in its place nor in retention."""


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """One segment of a snapshot.

    `size` and `limit` are in bytes: anything after `limit` does not belong to the snapshot (in the newest segment it
    was not written or not valid when the snapshot was taken; elsewhere `limit` is the size).  `first_position` is from
    the header, or what an unreadable header must say (or UNKNOWN).  `next_first` is the position after the last record,
    None if the segment must be read to know it.  Times are in ms since the epoch, 0: unknown; `first_time` and
    `last_time` are the lowest and highest of its entries.  `kept`: under retention.  `newest`: the live segment to
    which the broker writes or last wrote.  `opened_at`: where it can be read when it is no longer at `uri`, "" if it is
    not kept open (OpenSegments).
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
        """The number of records, UNKNOWN if the segment must be read to know it."""
        if self.next_first is None or self.first_position == UNKNOWN:
            return UNKNOWN
        return self.next_first - self.first_position


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions that no segment of the snapshot has.

    There are `records` of them from `first_position` on (UNKNOWN: cannot be counted), in the segments `first_segment`
    to `last_segment`.  `since` and `until` are the creation times of the segments around it, in ms since the epoch, 0:
    unknown.  `uri` is where one would look for it, `what` a description for an operator.
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

    A segment that is held open, or that moved to retention after the snapshot, is found.  Raises Vanished, OSError.
    """
    return _read(ref, ref.limit)


def next_id_at(ref: SegmentRef) -> int:
    """The limit of the ids that may have been assigned before a segment was begun, 0 if its first record lacks it.

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
    """Where a segment is or, if it moved to retention, must be."""
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
    raise Vanished(f"{ref.uri}: the segment no longer exists" + ("" if ref.kept else f", nor is it kept as {place}"))


def _is(ref: SegmentRef, data: bytes) -> bool:
    """Whether these bytes belong to a segment: on another machine, its path below /proc may be any other file."""
    try:
        header = decode_header(data)
    except BadHeader:
        return False
    return (header.number, header.created) == (ref.number, ref.created)


class OpenSegments(ExitStack):
    """Segments kept readable until it is closed, whatever the broker does; leaves `others` files for other purposes."""

    def __init__(self, others: int = OTHER_FILES) -> None:
        super().__init__()
        self._others = others

    def open(self, refs: Sequence[SegmentRef]) -> tuple[list[SegmentRef], int]:
        """Open these, and close all others.  Returns them with their places, and the number beyond the limit of files.

        Raises Vanished if one no longer exists.
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
                if error.errno not in (errno.EIO, errno.EACCES):  # reading it will report the error
                    raise
                return ""
        raise Vanished(f"{ref.uri}: the segment no longer exists")
