"""Which segments are still needed.

A segment may go when nothing on disk needs what it says:

1. no message stored in it is alive,
2. no other record in it is needed for what it says itself (`pin`: remembered duplicate ids), and
3. every older segment that its records speak about (removals, counts, schedules, deletions of definitions) is gone
   itself: otherwise what they say about its messages would be forgotten while the messages are still there.

Definitions that only it holds are the journal's business: it repeats them before the segment goes.

By the third rule one message that nobody ever consumes would keep all segments behind it.  So the journal is a ring:
when little of it is alive, what lives in the oldest segment is copied to the newest, and the oldest goes.  If that is
done only while at most the part p of all bytes is alive, then for each byte that is copied, (1 - p) / p bytes of others
have been written since the last round: at p = 40 % a byte of new records causes 0.67 copied ones at most.
"""

from __future__ import annotations

from collections.abc import Iterable


class Space:
    """Live messages per segment, and which segment speaks about which older one."""

    __slots__ = ("_bounds", "_bytes", "_ends", "_live", "_pinned", "_refers", "_stored", "changed")

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self._refers: dict[int, set[int]] = {}
        self._stored: dict[int, int] = {}  # all that were ever held, alive or not
        self._pinned: dict[int, int] = {}  # bytes of records that are needed though they are no messages
        # Of segments that are complete: their bytes, an id above those of all live messages in them, and the position
        # behind their last record.
        self._bytes: dict[int, int] = {}
        self._bounds: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        #: Something happened since the last `take_dead` that may have made a segment dispensable.
        self.changed = False

    def opened(self, segment: int) -> None:
        """A segment exists from now on."""
        assert segment not in self._live, "a segment is opened once"
        self._live[segment] = 0
        self._stored[segment] = 0
        self._refers[segment] = set()
        self.changed = True

    def found(self, segment: int) -> None:
        """There is a segment: it was opened before, or is now."""
        if segment not in self._live:
            self.opened(segment)

    def completed(self, segment: int, nbytes: int, bound: int, end: int) -> None:
        """A segment has so many bytes now and gets no more.

        The ids of all live messages in it are below `bound`, the positions of its records below `end`.
        """
        self._bytes[segment] = nbytes
        self._bounds[segment] = bound
        self._ends[segment] = end

    def hold(self, segment: int, n: int) -> None:
        """`n` messages that are alive lie in this segment."""
        self._live[segment] += n
        self._stored[segment] += n

    def release(self, segment: int, n: int) -> None:
        """`n` of them are no longer alive: they have left every queue."""
        left = self._live[segment] - n
        assert left >= 0, "more messages released than held"
        self._live[segment] = left
        if not left:
            self.changed = True

    def pin(self, segment: int, nbytes: int) -> None:
        """A record of so many bytes, not a message, is needed as long as it is not unpinned."""
        self._pinned[segment] = self._pinned.get(segment, 0) + nbytes

    def unpin(self, segment: int, nbytes: int) -> None:
        """Such a record is no longer needed, or was written anew elsewhere."""
        left = self._pinned[segment] - nbytes
        assert left >= 0, "more unpinned than pinned"
        self._pinned[segment] = left
        if not left:
            del self._pinned[segment]
            self.changed = True

    def pinned(self, segment: int) -> int:
        """Bytes of such records in a segment."""
        return self._pinned.get(segment, 0)

    def refer(self, here: int, segment: int) -> None:
        """A record in segment `here` speaks about something in `segment`."""
        if here != segment and segment in self._live:
            self._refers[here].add(segment)

    def live(self, segment: int) -> int:
        """How many messages in a segment are alive; none if it is gone."""
        return self._live.get(segment, 0)

    def bound(self, segment: int) -> int:
        """An id above those of all live messages in a segment that is complete."""
        return self._bounds[segment]

    def to_clean(self, *, files_min: int, percentage: int) -> int | None:
        """The oldest segment, if there are at least `files_min` complete ones and too little in them is alive.

        How many bytes of a segment are alive is estimated by the part of its messages that are.
        """
        if len(self._bytes) < files_min:
            return None
        total = sum(self._bytes.values())
        alive = sum(
            nbytes * self._live[segment] // max(self._stored[segment], 1) for segment, nbytes in self._bytes.items()
        )
        alive += sum(nbytes for segment, nbytes in self._pinned.items() if segment in self._bytes)
        return min(self._bytes) if alive * 100 <= total * percentage else None

    @property
    def segments(self) -> list[int]:
        """The segments that are needed, oldest first."""
        return sorted(self._live)

    def end(self, segment: int) -> int:
        """The position behind the last record of a segment that is complete."""
        return self._ends[segment]

    def take_dead(self, current: int) -> list[int]:
        """Segments older than `current` that may go, oldest first; they are forgotten here."""
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
        """A record says that these are gone."""
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
