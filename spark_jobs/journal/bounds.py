"""Bounds: which positions and times of a journal to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_jobs.journal.layout import Bools
from spark_jobs.journal.segments import Gap
from spark_jobs.journal.walk import UNKNOWN, Hole, Walk, inside

#: How far a clock may have been set back within a segment, in ms, without the segment being left out wrongly.  This
#: matters if no manifest has the times of a segment's entries, so that only the creation times of its neighbours are
#: known.  If these show that it was set back, no segment next to that is left out.
CLOCK_SLACK_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Half-open ranges of positions and of times (ms since the epoch); None means open."""

    from_position: int | None = None
    to_position: int | None = None
    from_time: int | None = None
    to_time: int | None = None

    def within(self, other: Bounds) -> Bounds:
        """The intersection of both."""
        return Bounds(
            _furthest(max, self.from_position, other.from_position),
            _furthest(min, self.to_position, other.to_position),
            _furthest(max, self.from_time, other.from_time),
            _furthest(min, self.to_time, other.to_time),
        )

    def have(self, found: Walk) -> Bools:
        """Which records of a segment are within the bounds."""
        wanted = inside(found.positions, self.from_position, self.to_position)
        return wanted & inside(found.times, self.from_time, self.to_time)

    def holes(self, found: Walk) -> list[Hole]:
        """The holes of a segment that may affect the range: all but those whose positions are known to be outside."""
        parts = (hole.within(self.from_position, self.to_position) for hole in found.holes)
        return [part for part in parts if part is not None]

    def meet(self, first: int, end: int | None, first_time: int, last_time: int | None) -> bool:
        """Whether records at positions from `first` to below `end`, at these times, may be within; None means open."""
        end = None if end is None else max(end, first + 1)  # a segment without records is treated as having one
        behind = None if last_time is None else last_time + 1
        return _overlap(first, end, self.from_position, self.to_position) and _overlap(
            first_time, behind, self.from_time, self.to_time
        )

    def cut(self, gaps: Sequence[Gap]) -> Iterator[Gap]:
        """The gaps that may be within, cut to the range of positions; their times are not known exactly."""
        for gap in gaps:
            first, end = gap.first_position, None
            if gap.records != UNKNOWN:
                end = first + gap.records
                first = first if self.from_position is None else max(first, self.from_position)
                end = end if self.to_position is None else min(end, self.to_position)
            if (end is None or first < end) and self.meet(first, end, *sealed_between(gap.since, gap.until)):
                yield gap if end is None else replace(gap, first_position=first, records=end - first)


#: No bound.
UNBOUNDED: Final = Bounds()


def sealed_between(since: int, until: int) -> tuple[int, int | None]:
    """When entries may have been sealed that were written between the beginnings of two segments (0: unknown).

    If the clock was set back in between, it may be any time.
    """
    if until and until < since:
        return 0, None
    return since - CLOCK_SLACK_MS, until + CLOCK_SLACK_MS if until else None


def _furthest(of: Callable[[list[int]], int], one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return of(given) if given else None


def _overlap(first: int, end: int | None, low: int | None, high: int | None) -> bool:
    """Whether two half-open ranges overlap; None means open."""
    bottom = first if low is None else max(first, low)
    return all(top is None or bottom < top for top in (end, high))
