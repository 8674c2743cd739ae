"""Follows a replicated log with a copy, and recovers from the copy while it grows.

    database -> Copying: rows into the files of the copy -> Following: its records, as recovery reads them

The copy gets only rows known to be replicated: those followed by a later row, those that the lease's owner reports, or
those before a new epoch's claim.  So it never has entries that the database may still lose.  If it has more than the
database, confirmed entries are lost: that is reported, and nothing is changed.

Its files need not be synced: anything lost in a power failure is fetched again.  So before anything else each segment
is compared with the database: its valid part must be the beginning of the database's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from errno import ENOENT
from typing import Final

from store.bodies import Drop
from store.decode import RawRecord
from store.errors import CopyAhead, Corrupt, LogFailed
from store.files import Files, write_all
from store.log import FileLog, Place
from store.recovery import Recovery, State, Verdict, check_follows, ends_closed
from store.replicated.database import Database, Head, Row
from store.segment import BadHeader, EntryHead, decode_header, read_entry, scan
from store.segment_directory import SegmentDirectory, Source

#: The end of a log that has no segment yet.
NEW: Final = Place(0, 0)

#: Bytes fetched at a time, approximately.
FETCH_BYTES: Final = 8 << 20


class Copying:
    """Brings the copy up to date with the database.  Methods raise Doubtful, Unavailable, CopyAhead and LogFailed.

    `end`: how far the copy reaches; `entries`: how many the log has up to there.  `known`: the log's head when last
    read; `copied`: bytes fetched; `gaps`: how often rows to be fetched had been dropped from the log already.
    `read_to`: how far the copy has been read, set by its reader; None if it has no reader.

    The log drops a segment once its records say so.  A copy that has dropped one too, or could not fetch it in time, is
    inconsistent until it has these records (`consistent`).  A segment not read yet stays, needed or not (`Following`).
    """

    def __init__(self, files: Files, copy: FileLog, database: Database) -> None:
        self.end = Place(0, 0)
        self.entries = 0
        self.known: Head | None = None
        self.copied = 0
        self.gaps = 0
        self.read_to: Place | None = None
        self._consistent_from = NEW
        self._needless: list[int] = []
        self._needless_from = NEW
        self._files = files
        self._copy = copy
        self._database = database
        self._seed = 0
        self._position = 0

    @property
    def consistent(self) -> bool:
        """Whether the copy has all segments that it names as needed."""
        return self.end >= self._consistent_from

    # -- the start -------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Compare the copy with the database, cut off invalid tails, and fetch older segments that are missing.

        Raises Corrupt for a copy of another broker's log.
        """
        there, here = self._database.segments(), self._copy.segments()
        head = self._database.head()
        self.known = head
        if head.end == NEW:
            if here and self._copy.copy_name():  # without a name, it is a log in files to be moved to the database
                raise CopyAhead(
                    f"the copy in {self._copy.directory} has segment {here[-1]}, but the log in the database is empty"
                    " (is it another database or schema than before?)"
                )
            return
        if here and head.end < Place(here[-1], 0):
            raise _ahead(f"the copy in {self._copy.directory} has segment {here[-1]}", head)
        for segment in here:
            if segment in there:
                self._compare_segment(segment, head)
            else:
                self._let_go(segment)
                self._consistent_from = head.end
        for segment in there:
            self._resume(segment)
            if segment < head.end.segment:
                self._fetch(head.end)

    def _compare_segment(self, segment: int, head: Head) -> None:
        path, data = self._copy.path(segment), self._copy.read(segment)
        try:
            header = decode_header(data)
        except BadHeader:
            self._copy.cut(segment, 0, len(data.rstrip(b"\0")))
            return
        if header.broker_id != head.broker_id:
            raise Corrupt(path, 0, "the segment belongs to another broker than the log in the database")
        found = scan(data, header)
        if Place(segment, found.end) > head.end:
            raise _ahead(f"{path} ends at byte {found.end}", head)
        last = found.entries[-1].offset if found.entries else 0
        rows = self._database.rows(Place(segment, last), 1)  # its checksum covers its contents and its position
        if not rows and segment not in self._database.segments():  # dropped since they were listed
            self._let_go(segment)
            self._consistent_from = self._database.head().end
            return
        if not rows or not rows[0].data[last - rows[0].place.offset :].startswith(data[last : found.end]):
            raise _ahead(f"{path} differs at byte {last}", head)
        self.entries = rows[0].entries
        if len(data) > found.end:
            self._copy.cut(segment, found.end, max(len(data.rstrip(b"\0")) - found.end, 0))

    def _let_go(self, segment: int) -> None:
        """Drop a segment that the log no longer needs."""
        try:
            decode_header(self._copy.read(segment))
        except BadHeader:
            self._files.remove(self._copy.path(segment))  # it was never written
            return
        self._copy.trim([segment])

    def _resume(self, segment: int) -> None:
        """Continue in this segment, which may not exist in the copy yet."""
        self.end = Place(segment, 0)
        if segment not in self._copy.segments():
            return
        data = self._copy.read(segment)
        if not data:
            return
        header = decode_header(data)
        found = scan(data, header)
        self._copy.resume(segment, data, found.end, found.position)
        self._seed, self._position = header.crc, found.position
        self.end = Place(segment, found.end)

    # -- following -------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Copy everything known to be replicated."""
        head, lease = self._database.head(), self._database.lease()
        if head.end < self.end:
            raise _ahead(f"the copy in {self._copy.directory} ends at {self.end}", head)
        self.known = head
        self.fetch(max(head.replicated, lease.replicated))

    def fetch(self, replicated: Place) -> None:
        """Copy everything below this place."""
        while self.end < replicated:
            before = self.end
            self._fetch(replicated)
            if self.end < replicated:  # this segment is complete
                following = [segment for segment in self._database.segments() if segment > self.end.segment]
                if following:
                    self.end = Place(following[0], 0)
            if self.end == before:
                return

    def _fetch(self, replicated: Place) -> None:
        """Copy the available rows of the current segment."""
        while True:
            rows = self._database.rows(self.end, FETCH_BYTES)
            taken = 0
            for row in rows:
                if self.end < row.end <= replicated:
                    self._write(row)
                    taken += 1
            if not taken:
                return

    def _write(self, row: Row) -> None:
        data = row.data[self.end.offset - row.place.offset :]
        if self.end.offset == 0:
            try:
                header = decode_header(data)
            except BadHeader as bad:
                raise _damaged(row) from bad
            if self._position not in (0, header.first_position):
                self._consistent_from = self._database.head().end
                self.gaps += 1
            self._copy.begin_with(data)
            self._seed, self._position = header.crc, header.first_position
        else:
            self._copy.append_packed(data, self._entries(row, data))
        self.end = row.end
        self.entries = row.entries
        self.copied += len(data)

    def _entries(self, row: Row, data: bytes) -> list[EntryHead]:
        entries: list[EntryHead] = []
        offset = 0
        with memoryview(data) as view:
            while offset < len(data):
                entry = read_entry(view, offset, self._seed)
                if entry is None or entry.first != self._position:
                    raise _damaged(row)
                entries.append(entry)
                offset = entry.end
                self._position += entry.count
        return entries

    def tidy(self) -> None:
        """Drop segments and bodies that the log has dropped, and fetch missing bodies."""
        self._let_go_of_needless()
        there = self._database.segments()
        self._needless_from = self._database.head().end
        self._needless = [n for n in self._copy.segments() if n not in there and n < self.end.segment]
        self._let_go_of_needless()
        self.fetch_bodies()

    def _let_go_of_needless(self) -> None:
        if self.end >= self._needless_from:
            for segment in self._needless:
                if self.read_to is None or segment < self.read_to.segment:
                    self._let_go(segment)
            self._needless = []

    def fetch_bodies(self) -> None:
        """Fetch missing large bodies, and drop those that the log has dropped."""
        bodies = self._copy.bodies
        there, here = self._database.bodies(), bodies.sizes()
        needless = [id for id in here if id not in there]
        if needless:
            bodies.drop(Drop(needless, needless))
        for id, nbytes in there.items():
            if here.get(id) != nbytes:
                self._fetch_body(id, nbytes)

    def _fetch_body(self, id: int, nbytes: int) -> None:
        path, offset = self._copy.bodies.path(id), 0
        try:
            self._files.make_dir(self._copy.bodies.directory)
            with closing(self._files.create(path)) as file:
                for chunk in self._database.read_body(id):
                    write_all(file, chunk, offset)
                    offset += len(chunk)
                file.sync()
            if offset != nbytes:  # the log has dropped it meanwhile
                self._files.remove(path)
        except OSError as error:
            raise LogFailed(f"writing {path}: {error.strerror or error}") from error


def _ahead(what: str, head: Head) -> CopyAhead:
    return CopyAhead(f"{what}, but the log in the database ends at {head.end}")


def _damaged(row: Row) -> LogFailed:
    return LogFailed(f"the database's row at {row.place} is damaged")


class UpTo(SegmentDirectory):
    """The segments of a copy up to its present end, while another thread extends it."""

    def __init__(self, files: Files, directory: str, end: Callable[[], Place]) -> None:
        super().__init__(files, directory)
        self._end = end

    def segments(self) -> list[int]:
        """List the segments before reading the end: any that is missing by then was dropped as no longer needed."""
        present = super().segments()
        end = self._end()
        return [n for n in present if Place(n, 0) < end]

    def read(self, segment: int) -> bytes:
        end = self._end()
        if segment != end.segment:
            return super().read(segment)
        return self._files.read_range(self.path(segment), 0, end.offset)  # the rest of the file is preallocated


class Following(Recovery):
    """Recovery of a growing copy: its records end when `more` says so.

    `more` returns True when the copy may have grown, and False when it will not grow any more.  Then the verdict is
    final.

    The log drops records that only remove what it has dropped before; but here those earlier records may have been
    read.  So no record may be missed: FileNotFoundError means that some were dropped before they were read.
    """

    def __init__(self, source: Source, more: Callable[[], bool]) -> None:
        super().__init__(source)
        self._more = more
        self._closed = False

    def records(self) -> Iterator[RawRecord]:
        yield from super().records()
        number = max(self.segments, default=0)
        behind = self._last(number, self.ends[number]) if number else None
        growing = True
        while growing:
            growing = self._more()  # records copied before it returns False are still read
            for following in self._source.segments():
                if following < number:
                    continue
                previous, position = number, self.ends.get(number, 0)
                if following > number:
                    number, behind = following, None
                    self.segments.append(number)
                segment = self._read(number, behind)  # what was read before is not looked at again
                self.broker_id = segment.header.broker_id
                if behind is None:
                    first = segment.header.first_position
                    if previous and first > position:
                        raise FileNotFoundError(ENOENT, "what comes before it went before it was read", segment.path)
                    check_follows(segment.path, number, first, previous, position)
                segment.check_undamaged()
                found = segment.found
                yield from segment.records()
                self.ends[number], self.sizes[number] = found.position, found.end
                if found.entries:
                    behind = found.entries[-1]
                    self._closed = ends_closed(segment.data, behind)
                state = State.CLEAN
                self.verdict = Verdict(state, self._closed, number, found.end, 0, found.position)
        present = self._source.segments()
        self.leftovers = [leftover for leftover in self.leftovers if leftover in present]

    def _last(self, number: int, position: int) -> EntryHead | None:
        """The last entry of a segment that was read, below this position."""
        entries = self._read(number).found.entries
        return next((entry for entry in reversed(entries) if entry.first + entry.count <= position), None)
