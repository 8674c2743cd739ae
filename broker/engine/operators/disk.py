"""How full the journal's disk may become: `max-disk-usage` and `min-disk-free`, looked at every `disk-scan-period`.

Beyond its limit the disk stops those who send before it is really full, as in ActiveMQ Artemis: every address counts as
full, whatever it holds.  Consumers go on, and what they take makes room; the next look that finds enough of it lets the
producers go on.  Use is counted as `df` does: what is used, of what is used and what may still be (room that the file
system keeps for root is neither).

A disk that is really full is another matter: the journal finds that out by itself (`store.journal`, `DiskFull`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.queues.removal import release, unblock
from broker.engine.queues.state import State
from broker.engine.queues.usage import Disk

_ALARM: Final = "disk"


def exceeded(disk: Disk, usage_max: int, free_min: int) -> bool:
    """Whether the disk is beyond its limit: bytes that must be free (-1: none given), else percent used (-1: none)."""
    if free_min >= 0:
        return disk.free_bytes < free_min
    return 0 <= usage_max <= disk.percent


class DiskWatch:
    """Looks at the disk from time to time; `space` gives its used and free bytes, or raises OSError."""

    def __init__(
        self,
        state: State,
        space: Callable[[], tuple[int, int]],
        *,
        usage_max: int,
        free_min: int,
        period: int,
    ) -> None:
        self._state = state
        self._space = space
        self._usage_max = usage_max
        self._free_min = free_min
        self._period = period

    def start(self) -> None:
        """Look now, and from now on every period (ms).  Call within a tick."""
        if self._usage_max < 0 and self._free_min < 0:
            return
        self.look()
        if self._period > 0:
            self._state.alarms.at(_ALARM, self._state.now + self._period, self.start)

    def look(self) -> None:
        """Stop producers, or let them go on."""
        disk = self._state.usage.disk
        try:
            disk.used_bytes, disk.free_bytes = self._space()
        except OSError as error:  # what was seen last still holds: the journal tells whether the disk works
            self._state.report("disk.unseen", error=str(error))
            return
        full = exceeded(disk, self._usage_max, self._free_min)
        if full is disk.full:
            return
        disk.full = full
        if full:
            self._state.report("disk.full", percent=disk.percent, free=disk.free_bytes)
            return
        self._state.report("disk.room", percent=disk.percent, free=disk.free_bytes)
        unblock(self._state)
        waiting, disk.waiting = disk.waiting, {}
        release(self._state, waiting)
