"""Tracks which segments are still needed.

A segment may be dropped when nothing on disk needs its records:

1. no message stored in it is live,
2. no other record in it is needed in its own right (`pin`: remembered duplicate ids), and
3. every older segment that its records are about (removals, counts, schedules, deletions of definitions) has been
   dropped: otherwise these facts about its messages would be forgotten while the messages are still there.

Definitions that only this segment has are repeated by the journal before the segment is dropped.

By the third rule one message that is never consumed would keep all segments behind it.  So the journal is a ring: when
little of it is live, the live part of the oldest segment is copied to the newest, and the oldest is dropped.  If that
is done only while at most the fraction p of all bytes is live, then for each copied byte (1 - p) / p bytes of other
records have been written since the last round: at p = 40 % a byte of new records causes at most 0.67 copied ones.
"""

from __future__ import annotations

from collections.abc import Iterable


class Space:
    """Live messages per segment, and which segments have records about which older ones."""

    __slots__ = ("_bounds", "_bytes", "_ends", "_live", "_pinned", "_refers", "_stored", "changed")

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self._refers: dict[int, set[int]] = {}
        self._stored: dict[int, int] = {}  # all messages that were ever held, live or not
        self._pinned: dict[int, int] = {}  # bytes of needed records that are not messages
        # Of complete segments: their bytes, an id above those of all live messages in them, and the position behind
        # their last record.
        self._bytes: dict[int, int] = {}
        self._bounds: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        #: Whether a segment may have become unneeded since the last `take_dead`.
        self.changed = False

    def opened(self, segment: int) -> None:
        """Add a new segment."""
        assert segment not in self._live, "a segment is opened once"
        self._live[segment] = 0
        self._stored[segment] = 0
        self._refers[segment] = set()
        self.changed = True

    def found(self, segment: int) -> None:
        """Add a segment unless it is known already."""
        if segment not in self._live:
            self.opened(segment)

    def completed(self, segment: int, nbytes: int, bound: int, end: int) -> None:
        """Note that a segment is complete, with `nbytes` bytes.

        The ids of all live messages in it are below `bound`, the positions of its records below `end`.
        """
        self._bytes[segment] = nbytes
        self._bounds[segment] = bound
        self._ends[segment] = end

    def hold(self, segment: int, n: int) -> None:
        """Count `n` live messages in this segment."""
        self._live[segment] += n
        self._stored[segment] += n

    def release(self, segment: int, n: int) -> None:
        """Count `n` of them as no longer live: they have left every queue."""
        left = self._live[segment] - n
        assert left >= 0, "more messages released than held"
        self._live[segment] = left
        if not left:
            self.changed = True

    def pin(self, segment: int, nbytes: int) -> None:
        """Count a needed record of `nbytes` bytes that is not a message, until it is unpinned."""
        self._pinned[segment] = self._pinned.get(segment, 0) + nbytes

    def unpin(self, segment: int, nbytes: int) -> None:
        """Release a pinned record that is no longer needed, or was written again elsewhere."""
        left = self._pinned[segment] - nbytes
        assert left >= 0, "more unpinned than pinned"
        self._pinned[segment] = left
        if not left:
            del self._pinned[segment]
            self.changed = True

    def pinned(self, segment: int) -> int:
        """Bytes of pinned records in a segment."""
        return self._pinned.get(segment, 0)

    def refer(self, here: int, segment: int) -> None:
        """Note that a record in segment `here` is about something in `segment`."""
        if here != segment and segment in self._live:
            self._refers[here].add(segment)

    def live(self, segment: int) -> int:
        """How many live messages are in a segment; none if it was dropped."""
        return self._live.get(segment, 0)

    def bound(self, segment: int) -> int:
        """An id above those of all live messages in a complete segment."""
        return self._bounds[segment]

    def to_clean(self, *, files_min: int, percentage: int) -> int | None:
        """The oldest segment, if there are at least `files_min` complete ones and too little of them is live.

        The live bytes of a segment are estimated from the fraction of its messages that are live.
        """
        if len(self._bytes) < files_min:
            return None
        total = sum(self._bytes.values())
        alive = sum(
            nbytes * self._live[segment] // max(self._stored[segment], 1) for segment, nbytes in self._bytes.items()
        )
        alive += sum(nbytes for segment, nbytes in self._pinned.items() if segment in self._bytes)
        return min(self._bytes) if alive * 100 <= total * percentage else None

    def to_clean_when_full(self) -> int | None:
        """The oldest complete segment, if at most half of its messages are live: dropping it makes room."""
        oldest = min(self._bytes, default=0)
        return oldest if oldest and 2 * self._live[oldest] <= self._stored[oldest] else None

    @property
    def segments(self) -> list[int]:
        """The segments that are needed, oldest first."""
        return sorted(self._live)

    def end(self, segment: int) -> int:
        """The position behind the last record of a complete segment."""
        return self._ends[segment]

    def take_dead(self, current: int) -> list[int]:
        """Remove and return the segments older than `current` that may be dropped, oldest first."""
        self.changed = False
        dead: list[int] = []
        found = True
        while found:
            found = False
            for segment in self.segments:
                needed = self._live[segment] or self._refers[segment] or segment in self._pinned
                if segment < current and not needed:
                    self._forget(segment)
                    dead.append(segment)
                    found = True
        return sorted(dead)

    def trimmed(self, segments: Iterable[int]) -> None:
        """Forget segments that a record says were dropped."""
        for segment in segments:
            if segment in self._live:
                self._forget(segment)

    def _forget(self, segment: int) -> None:
        del self._live[segment], self._refers[segment], self._stored[segment]
        self._bytes.pop(segment, None)
        self._bounds.pop(segment, None)
        self._ends.pop(segment, None)
        for refers in self._refers.values():
            refers.discard(segment)
