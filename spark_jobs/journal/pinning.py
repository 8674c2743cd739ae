"""From what lies somewhere to what a snapshot says: one copy of each segment, its positions, and what is absent."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from spark_jobs.journal import files
from spark_jobs.journal.holes import Absent, Judge
from spark_jobs.journal.listing import Copy, Listing
from spark_jobs.journal.segments import Gap, SegmentRef, Vanished, next_id_at
from spark_jobs.journal.walk import UNKNOWN, walk
from store.decode import UNTOLD
from store.errors import Corrupt
from store.recovery import named_segments
from store.retention import DIRECTORY
from store.segment_directory import open_segment


@dataclass(slots=True)
class Pinned:
    """The fields of a snapshot; see there."""

    segments: list[SegmentRef] = field(default_factory=list)
    missing: list[Gap] = field(default_factory=list)
    trimmed: list[Gap] = field(default_factory=list)
    next_position: int = 0
    open_below: int = 0
    torn_bytes: int = 0
    leftovers: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def pin(listing: Listing, pool: Executor) -> Pinned:
    """Choose, read the newest segment, and judge what is absent.  Raises Vanished, OSError."""
    return _Pinning(listing, pool).pin()


@dataclass(slots=True)
class _Tail:
    """The newest segment as it is now: its bytes, and up to which of them it counts.

    `next_position` follows the last entry that could be read; `whole`: nothing is lost behind that.
    """

    data: bytes
    limit: int
    next_position: int
    whole: bool
    torn_bytes: int
    first_time: int
    last_time: int


@dataclass(slots=True)
class _Stretch:
    """From one segment that can be read to the next: what lies between them.

    `low` is None before the first, `high` None behind the last.  `bad` are segments that cannot be read, `absent` the
    numbers without any.  `end` is the position behind the last record of `low`, `stop` the first one of what follows;
    None if it cannot be known.  `whole`: `end` is where `low` really ends; else damage may have swallowed more there.
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
        """The position behind which records are lost; the first of all is 0."""
        if self.end is not None:
            return self.end
        return self.low.first_position if self.low is not None else 0

    def run(self) -> Iterator[Absent]:
        """The absent segments, if there are any."""
        if self.absent:
            yield Absent(
                self.absent[0],
                self.absent[-1],
                start=self.start,
                stop=UNKNOWN if self.stop is None else self.stop,
                since=0 if self.low is None else self.low.created,
                until=0 if self.high is None else self.high.created,
                unreadable=bool(self.bad) or self.end is None or self.stop is None,
            )

    def unreadable(self, newest: Copy | None) -> Iterator[SegmentRef]:
        """The bad ones.  If nothing else is lost here, the first of them stands for all records of all of them."""
        first = self.start
        stop = None if self.absent else self.stop
        for copy in self.bad:
            yield _ref(copy, first, stop, newest=copy is newest)
            first = first if stop is None else stop


def _ref(copy: Copy, first: int, end: int | None, *, newest: bool) -> SegmentRef:
    return SegmentRef(
        uri=copy.uri,
        number=copy.number,
        size=copy.size,
        limit=copy.size,
        first_position=first,
        next_first=end,
        created=copy.created,
        kept=not copy.live,
        newest=newest,
        first_time=copy.first_time,
        last_time=copy.last_time,
    )


class _Pinning:
    """One attempt; what is found goes into `pinned`."""

    def __init__(self, listing: Listing, pool: Executor) -> None:
        self.pinned = Pinned(notes=[*listing.notes])
        self.listing = listing
        self.pool = pool
        self.journal = listing.journal
        self.expected = sorted(listing.manifest.expected)
        self.chosen = self._choose()
        self.told: dict[int, int] = {}
        self.newest = self.chosen[self.journal.newest] if self.journal is not None else None
        self.tail = None if self.newest is None else _read_tail(self.newest)

    def pin(self) -> Pinned:
        """See `pin`."""
        pinned = self.pinned
        judge = self._judge()
        for stretch in self._measured():
            for run in stretch.run():
                for missing, gap in judge.gaps(run):
                    (pinned.missing if missing else pinned.trimmed).append(gap)
            if stretch.low is not None:
                pinned.segments.append(self._sound(stretch.low, stretch.end if stretch.whole else None))
            pinned.segments += stretch.unreadable(self.newest)
            pinned.next_position = max(pinned.next_position, stretch.start)
        pinned.open_below = self._open_below()
        return pinned

    def _choose(self) -> dict[int, Copy]:
        """One copy of each segment, by number in order.  Others that differ are noted."""
        chosen: dict[int, Copy] = {}
        for copy in sorted(self.listing.copies(), key=lambda each: bool(each.problem)):
            best = chosen.setdefault(copy.number, copy)
            if best is not copy and _differ(best, copy):
                self.pinned.notes.append(
                    f"{copy.uri}: another copy of segment {copy.number}, which differs: {best.uri} is read"
                )
        return dict(sorted(chosen.items()))

    # -- which segments there must be ----------------------------------------------------------------------------------

    def _judge(self) -> Judge:
        named, begun_after = self._needs()
        journal = self.journal.uri if self.journal is not None else ""
        retention = files.join(journal, DIRECTORY) if journal else files.parent_of(self.listing.directories[0].uri)
        return Judge(
            manifest=self.listing.manifest,
            expected=self.expected,
            needed=sorted(named),
            begun_after=begun_after,
            oldest_kept=min((copy.number for copy in self.chosen.values() if not copy.live), default=0),
            journal=journal,
            retention=retention,
        )

    def _needs(self) -> tuple[set[int], int | None]:
        """The segments that the newest live one with an entry speaks of as needed, and its number (None: none does)."""
        copies = self.journal.copies if self.journal is not None else []
        numbers = sorted((copy.number for copy in copies), reverse=True)
        for number in numbers:
            copy = self.chosen[number]
            data = self.tail.data if self.tail is not None and copy is self.newest else _read(copy)
            if data is None:
                continue
            segment = open_segment(copy.uri, number, data)
            if segment.found.entries:
                try:
                    named = named_segments(segment)
                except Corrupt as corrupt:
                    note = f"{copy.uri}: it cannot say which segments there must be: {corrupt.what}"
                    self.pinned.notes.append(note)
                    break
                self.pinned.leftovers = sorted(n for n in numbers if n < number and n not in named)
                self.told = named
                return set(named), number
        return set(), None

    # -- positions -----------------------------------------------------------------------------------------------------

    def _measured(self) -> list[_Stretch]:
        """The stretches, with the positions at which they begin.  Raises Vanished, OSError."""
        stretches = self._stretches()
        for stretch, end in zip(stretches, self.pool.map(self._end, stretches), strict=True):
            stretch.end, stretch.whole = end
        return stretches

    def _stretches(self) -> list[_Stretch]:
        chosen = self.chosen
        readable = [copy for copy in chosen.values() if not copy.problem]
        # Where no live journal follows, what the manifests keep is what there should be.
        last = max([*chosen, *(self.expected if self.journal is None else ())])
        stretches = []
        for low, high in zip([None, *readable], [*readable, None], strict=True):
            between = range(low.number + 1 if low is not None else 1, high.number if high is not None else last + 1)
            bad = [chosen[number] for number in between if number in chosen]
            absent = [number for number in between if number not in chosen]
            stop = None
            if high is not None:
                stop = high.first_position
            elif last in absent:
                stop = self.listing.manifest.kept[last].next_position
            stretches.append(_Stretch(low, high, bad, absent, stop))
        return stretches

    def _end(self, stretch: _Stretch) -> tuple[int | None, bool]:
        """`end` and `whole` of a stretch.  Raises Vanished, OSError."""
        low, kept = stretch.low, self.listing.manifest.kept
        if low is None:
            return 0, True
        if low is self.newest and self.tail is not None:
            return self.tail.next_position, self.tail.whole
        if not stretch.bad and not stretch.absent and stretch.stop is not None:
            return stretch.stop, True
        told = self.told.get(low.number, UNTOLD)
        if told != UNTOLD:
            return told, True
        if low.next_position is not None:
            return low.next_position, True
        if low.number + 1 in kept:
            return kept[low.number + 1].first_position, True
        return _end_of(low)

    def _sound(self, copy: Copy, end: int | None) -> SegmentRef:
        """A segment that can be read."""
        tail = self.tail
        if copy is not self.newest or tail is None:
            return _ref(copy, copy.first_position, end, newest=False)
        self.pinned.torn_bytes = tail.torn_bytes
        return replace(
            _ref(copy, copy.first_position, end, newest=True),
            limit=tail.limit,
            first_time=tail.first_time,
            last_time=tail.last_time,
        )

    def _open_below(self) -> int:
        """The id limit of the first segment behind the last trimmed hole that tells one."""
        if not self.pinned.trimmed:
            return 0
        hole = self.pinned.trimmed[-1].last_segment
        behind = (next_id_at(ref) for ref in self.pinned.segments if ref.number > hole)
        return next((limit for limit in behind if limit), 0)


def _differ(best: Copy, copy: Copy) -> bool:
    if copy.problem or best.problem:
        return copy.problem != best.problem
    header = (copy.first_position, copy.created) != (best.first_position, best.created)
    return header or copy.size != best.size


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_tail(newest: Copy) -> _Tail | None:
    """Read the newest segment and see where its valid entries end; None if it cannot be read.

    Raises Vanished, OSError.
    """
    data = _read(newest)
    if data is None:
        return None
    found = open_segment(newest.uri, newest.number, data).found
    times = [entry.timestamp for entry in found.entries]
    limit, position, whole, torn = found.end, found.position, True, 0
    if found.damage:
        walked = walk(data, number=newest.number, newest=True)
        times += walked.times.tolist()
        limit, position, torn = walked.end, walked.next_position, walked.torn_bytes
        if walked.open_end:  # readers must see it too
            limit, whole = len(data), False
    return _Tail(data, limit, position, whole, torn, min(times, default=0), max(times, default=0))


def _end_of(copy: Copy) -> tuple[int | None, bool]:
    """The position behind the last record of a segment, None if it cannot be read, and whether it ends there.

    Raises Vanished, OSError.
    """
    data = _read(copy)
    if data is None:
        return None, False
    found = open_segment(copy.uri, copy.number, data).found
    if not found.damage:
        return found.position, True
    walked = walk(data, number=copy.number, newest=False)
    return walked.next_position, not walked.open_end


def _read(copy: Copy) -> bytes | None:
    """A segment's bytes, None if it cannot be read, which is noted.  Raises Vanished, OSError."""
    if copy.problem:
        return None
    try:
        return files.read(copy.uri)
    except FileNotFoundError as gone:
        raise Vanished(f"{copy.uri}: the segment is no longer there") from gone
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        copy.problem = f"the disk does not give it back: {error}"
        return None
