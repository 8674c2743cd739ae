"""From the listing to the contents of a snapshot: one copy of each segment, its positions, and what is absent.

Numbers follow each other without gaps, and so do positions.  If numbers are absent between two segments, the positions
between them are lost.  Whether the broker removed them itself is decided by the first of these rules that applies:

    absent segment                                                     judgement
    ----------------------------------------------------------------   ---------
    the newest segment says that it is needed                          missing
    it was begun after the segment that lists the needed ones          missing
    a manifest says that it is kept, and no line that it was removed   missing
    a manifest says that it was removed                                trimmed
    an older one is kept: retention removes the oldest first           missing
    otherwise: retention was off, or a limit removed it long ago       trimmed

    Trimmed means that no message in it was alive: nothing is wrong, but these records can no longer be audited.  A run
    of absent segments is split where a manifest has a position between them; a part that cannot be split is missing
    completely if any of it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from spark_jobs.journal import files
from spark_jobs.journal.listing import Copy, Listing
from spark_jobs.journal.segments import Gap, SegmentRef, Vanished, next_id_at
from spark_jobs.journal.walk import UNKNOWN, walk
from store.decode import UNSTATED
from store.errors import Corrupt
from store.recovery import named_segments
from store.retention import DIRECTORY, day_name
from store.segment import segment_name
from store.segment_directory import Segment, open_segment

#: Why an absent segment should exist; `it` is one segment or several.
_NEEDED: Final = "the broker needs {it}"
_KEPT: Final = "according to its manifest, retention keeps {it}"
_UNEXPLAINED: Final = "older ones are kept, but no manifest says that the broker removed {it}"
_OVERLAP: Final = "the segment after {it} begins before the segment in front ends"
_UNREADABLE: Final = "a segment next to {it} cannot be read, so it is unclear which segment had the lost records"


class _Run(NamedTuple):
    """Absent segments with the numbers `first` to `last`, between the positions `start` and `stop`."""

    first: int
    last: int
    start: int
    stop: int


@dataclass(slots=True)
class _Content:
    """A segment that was read, and the byte up to which it counts.

    `next_position` follows the last entry that could be read; `whole`: nothing is lost after it.
    """

    segment: Segment
    limit: int
    next_position: int
    whole: bool
    torn_bytes: int
    first_time: int
    last_time: int


@dataclass(slots=True)
class _Stretch:
    """The stretch between one readable segment and the next.

    `low` is None before the first, `high` None after the last.  `bad` has the unreadable segments, `absent` the numbers
    without a segment.  `end` is the position after the last record of `low`, `stop` the first one that follows; None if
    unknown.  `whole`: `end` is where `low` really ends; otherwise damage may hide more records there.
    """

    low: Copy | None
    high: Copy | None
    bad: list[Copy]
    absent: list[int]
    stop: int | None
    end: int | None = 0
    whole: bool = True

    @property
    def start(self) -> int:
        """The position from which on records are lost; the very first is 0."""
        if self.end is not None:
            return self.end
        return self.low.first_position if self.low is not None else 0


class Pinning:
    """Chooses copies, reads the newest segment, and judges what is absent.

    The results are the fields of a snapshot; see there.  Raises Vanished, OSError.
    """

    def __init__(self, listing: Listing, pool: Executor) -> None:
        self.segments: list[SegmentRef] = []
        self.missing: list[Gap] = []
        self.trimmed: list[Gap] = []
        self.next_position = 0
        self.torn_bytes = 0
        self.leftovers: list[int] = []
        self.notes = [*listing.notes]
        self._manifest = listing.manifest
        self._journal = listing.journal
        self._expected = sorted(self._manifest.expected)
        self._chosen = self._choose(listing)
        self._oldest_kept = min((copy.number for copy in self._chosen.values() if not copy.live), default=0)
        directory = listing.directories[0].uri
        self._home = self._journal.uri if self._journal is not None else ""
        self._retention = files.join(self._home, DIRECTORY) if self._home else files.parent_of(directory)
        self._newest = self._chosen[self._journal.newest] if self._journal is not None else None
        self._tail = None if self._newest is None else _read(self._newest, newest=True)
        #: The segments that are needed according to the newest live one with an entry, and where they end; and the
        #: number of this segment, None if there is none.
        self._named: dict[int, int] = {}
        self._named_by: int | None = None
        self._read_named()
        self._needed = sorted(self._named)
        stretches = self._stretches()
        for stretch, (end, whole) in zip(stretches, pool.map(self._end, stretches), strict=True):
            stretch.end, stretch.whole = end, whole
            self._add(stretch)
        self.open_below = self._open_below()

    def _choose(self, listing: Listing) -> dict[int, Copy]:
        """One copy of each segment, in order of number.  Other copies that differ are noted."""
        chosen: dict[int, Copy] = {}
        for copy in sorted(listing.copies(), key=lambda each: bool(each.problem)):
            best = chosen.setdefault(copy.number, copy)
            if best is not copy and best.differs(copy):
                self.notes.append(
                    f"{copy.uri}: this copy of segment {copy.number} differs from {best.uri}, which is used"
                )
        return dict(sorted(chosen.items()))

    def _read_named(self) -> None:
        """Find out which segments must exist, according to the newest live one with an entry."""
        numbers = sorted((copy.number for copy in self._journal.copies), reverse=True) if self._journal else []
        for number in numbers:
            copy = self._chosen[number]
            content = self._tail if copy is self._newest else _read(copy)
            if content is None or not content.segment.found.entries:
                continue
            try:
                self._named = named_segments(content.segment)
            except Corrupt as corrupt:
                self.notes.append(f"{copy.uri}: the list of needed segments in it cannot be read: {corrupt.what}")
            else:
                self._named_by = number
                self.leftovers = [
                    each.number
                    for each in self._chosen.values()
                    if each.live and each.number < number and each.number not in self._named
                ]
            return

    # -- positions -----------------------------------------------------------------------------------------------------

    def _stretches(self) -> list[_Stretch]:
        chosen = self._chosen
        readable = [copy for copy in chosen.values() if not copy.problem]
        # If there is no live journal, the segments kept by the manifests should exist.
        last = max([*chosen, *(self._expected if self._journal is None else ())])
        stretches = []
        for low, high in zip([None, *readable], [*readable, None], strict=True):
            between = range(low.number + 1 if low is not None else 1, high.number if high is not None else last + 1)
            bad = [chosen[number] for number in between if number in chosen]
            absent = [number for number in between if number not in chosen]
            stop = None
            if high is not None:
                stop = high.first_position
            elif last in absent:
                stop = self._manifest.kept[last].next_position
            stretches.append(_Stretch(low, high, bad, absent, stop))
        return stretches

    def _end(self, stretch: _Stretch) -> tuple[int | None, bool]:
        """The values of `end` and `whole` of a stretch.  Raises Vanished, OSError."""
        low, kept = stretch.low, self._manifest.kept
        if low is None:
            return 0, True
        if low is not self._newest or self._tail is None:
            if not stretch.bad and not stretch.absent and stretch.stop is not None:
                return stretch.stop, True
            stated = self._named.get(low.number, UNSTATED)
            if stated != UNSTATED:
                return stated, True
            if low.next_position is not None:
                return low.next_position, True
            if low.number + 1 in kept:
                return kept[low.number + 1].first_position, True
        content = self._tail if low is self._newest else _read(low)
        return (None, False) if content is None else (content.next_position, content.whole)

    def _add(self, stretch: _Stretch) -> None:
        """Add the segments and gaps of a stretch."""
        if stretch.absent:
            self._add_gaps(stretch)
        if stretch.low is not None:
            ref = self._ref(stretch.low, stretch.low.first_position, stretch.end if stretch.whole else None)
            if ref.newest and self._tail is not None:
                tail = self._tail
                self.torn_bytes = tail.torn_bytes
                ref = replace(ref, limit=tail.limit, first_time=tail.first_time, last_time=tail.last_time)
            self.segments.append(ref)
        # If nothing else is lost here, the first bad segment represents all records of all bad segments.
        first, stop = stretch.start, None if stretch.absent else stretch.stop
        for copy in stretch.bad:
            self.segments.append(self._ref(copy, first, stop))
            first = first if stop is None else stop
        self.next_position = max(self.next_position, stretch.start)

    def _ref(self, copy: Copy, first: int, end: int | None) -> SegmentRef:
        return SegmentRef(
            uri=copy.uri,
            number=copy.number,
            size=copy.size,
            limit=copy.size,
            first_position=first,
            next_first=end,
            created=copy.created,
            kept=not copy.live,
            newest=copy is self._newest,
            first_time=copy.first_time,
            last_time=copy.last_time,
        )

    def _open_below(self) -> int:
        """The limit of ids in the first segment after the last trimmed hole that has one."""
        if not self.trimmed:
            return 0
        hole = self.trimmed[-1].last_segment
        behind = (next_id_at(ref) for ref in self.segments if ref.number > hole)
        return next((limit for limit in behind if limit), 0)

    # -- what is absent ------------------------------------------------------------------------------------------------

    def _add_gaps(self, stretch: _Stretch) -> None:
        """Judge the absent segments of a stretch."""
        stop = UNKNOWN if stretch.stop is None else stretch.stop
        run = _Run(stretch.absent[0], stretch.absent[-1], stretch.start, stop)
        if stop < run.start:
            self.missing.append(self._gap(stretch, run, _OVERLAP))
        elif stretch.bad or stretch.end is None:
            self.missing.append(self._gap(stretch, run, _UNREADABLE))
        else:
            for why, same in groupby(self._pieces(run), key=self._why_missing):
                pieces = [*same]
                whole = _Run(pieces[0].first, pieces[-1].last, pieces[0].start, pieces[-1].stop)
                if whole.stop > whole.start:  # the absence of a segment without records is no loss
                    (self.missing if why else self.trimmed).append(self._gap(stretch, whole, why))

    def _pieces(self, run: _Run) -> Iterator[_Run]:
        """The run, split where a manifest has the position between two of its segments."""
        kept = self._manifest.kept
        known: dict[int, int] = {}
        for number in sorted(kept.keys() & range(run.first, run.last + 1)):
            known[number] = kept[number].first_position
            known[number + 1] = kept[number].next_position
        known |= {run.first: run.start, run.last + 1: run.stop}
        firsts = sorted(known)
        if any(known[a] > known[b] for a, b in pairwise(firsts)):  # the manifest belongs to another journal
            yield run
            return
        for first, behind in pairwise(firsts):
            yield _Run(first, behind - 1, known[first], known[behind])

    def _why_missing(self, piece: _Run) -> str:
        """Why any segment of a piece must exist, "" if none must."""
        numbers = range(piece.first, piece.last + 1)
        begun_later = self._named_by is not None and piece.last > self._named_by
        if begun_later or _any_within(self._needed, numbers):
            return _NEEDED
        if _any_within(self._expected, numbers):
            return _KEPT
        older = 0 < self._oldest_kept < piece.first
        if older and not all(self._manifest.why_removed(number) for number in numbers):
            return _UNEXPLAINED
        return ""

    def _gap(self, stretch: _Stretch, run: _Run, why: str) -> Gap:
        records = UNKNOWN if run.stop < run.start else run.stop - run.start
        one = run.first == run.last
        it, which = ("it", f"segment {run.first} is") if one else ("them", f"segments {run.first} to {run.last} are")
        if why:
            what = f"{which} missing: {why.format(it=it)}"
        elif not self._home and run.first == 1:
            what = f"{which} before the part that is read"
        else:
            what = f"{which} no longer there: all messages in {it} had left"
        since = 0 if stretch.low is None else stretch.low.created
        until = 0 if stretch.high is None else stretch.high.created
        return Gap(self._place(run, why), run.first, run.last, run.start, records, what, since, until)

    def _place(self, run: _Run, why: str) -> str:
        """Where one would look for the first segment of a run."""
        kept = self._manifest.kept.get(run.first)
        if kept is None or why == _NEEDED or not self._retention:
            directory = self._home or self._retention
        else:
            directory = files.join(self._retention, day_name(kept.created))
        return files.join(directory, segment_name(run.first))


def _any_within(ascending: Sequence[int], numbers: range) -> bool:
    at = bisect_left(ascending, numbers.start)
    return at < len(ascending) and ascending[at] in numbers


def _read(copy: Copy, *, newest: bool = False) -> _Content | None:
    """Read a segment and determine where its valid entries end; None if it cannot be read, which is noted.

    Raises Vanished, OSError.
    """
    if copy.problem:
        return None
    try:
        data = files.read(copy.uri)
    except FileNotFoundError as gone:
        raise Vanished(f"{copy.uri}: the segment no longer exists") from gone
    except OSError as error:
        copy.fail(error)
        return None
    segment = open_segment(copy.uri, copy.number, data)
    found = segment.found
    times = [entry.timestamp for entry in found.entries]
    limit, position, whole, torn = found.end, found.position, True, 0
    if found.damage:
        walked = walk(data, number=copy.number, newest=newest)
        times += walked.times.tolist()
        limit, position, torn = walked.end, walked.next_position, walked.torn_bytes
        if walked.open_end:  # readers must see this damage too
            limit, whole = len(data), False
    return _Content(segment, limit, position, whole, torn, min(times, default=0), max(times, default=0))
