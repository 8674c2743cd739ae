"""Which segments are still needed.

A segment may go when nothing on disk needs what it says:

1. no message stored in it is alive, and
2. every older segment that its records speak about (removals, counts, schedules, deletions of definitions) is gone
   itself: otherwise what they say about its messages would be forgotten while the messages are still there.

Definitions that only it holds are the journal's business: it repeats them before the segment goes.
"""

from __future__ import annotations


class Space:
    """Live messages per segment, and which segment speaks about which older one."""

    __slots__ = ("_live", "_refers", "changed")

    def __init__(self) -> None:
        self._live: dict[int, int] = {}
        self._refers: dict[int, set[int]] = {}
        #: Something happened since the last `take_dead` that may have made a segment dispensable.
        self.changed = False

    def opened(self, segment: int) -> None:
        """A segment exists from now on."""
        assert segment not in self._live, "a segment is opened once"
        self._live[segment] = 0
        self._refers[segment] = set()
        self.changed = True

    def hold(self, segment: int, n: int) -> None:
        """`n` messages that are alive lie in this segment."""
        self._live[segment] += n

    def release(self, segment: int, n: int) -> None:
        """`n` of them are no longer alive: they have left every queue."""
        left = self._live[segment] - n
        assert left >= 0, "more messages released than held"
        self._live[segment] = left
        if not left:
            self.changed = True

    def refer(self, here: int, segment: int) -> None:
        """A record in segment `here` speaks about something in `segment`."""
        if here != segment and segment in self._live:
            self._refers[here].add(segment)

    def live(self, segment: int) -> int:
        """How many messages in a segment are alive."""
        return self._live[segment]

    @property
    def segments(self) -> list[int]:
        """The segments that are needed, oldest first."""
        return sorted(self._live)

    def take_dead(self, current: int) -> list[int]:
        """Segments older than `current` that may go, oldest first; they are forgotten here."""
        self.changed = False
        dead: list[int] = []
        found = True
        while found:
            found = False
            for segment in self.segments:
                if segment < current and not self._live[segment] and not self._refers[segment]:
                    self._forget(segment)
                    dead.append(segment)
                    found = True
        return sorted(dead)

    def _forget(self, segment: int) -> None:
        del self._live[segment], self._refers[segment]
        for refers in self._refers.values():
            refers.discard(segment)
