"""Limits the use of the journal's disk: `max-disk-usage` and `min-disk-free`, checked every `disk-scan-period`.

Beyond the limit producers are stopped before the disk is really full, as in ActiveMQ Artemis: every address counts as
full, whatever it holds.  Consumers continue, which makes room; the next check that finds enough of it lets the
producers continue.  Usage is computed as `df` does: used space as a share of used and available space (space that the
file system reserves for root is neither).

A disk that is really full is another matter: the journal detects that itself (`store.journal`, `DiskFull`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.queues.removal import release, unblock
from broker.engine.queues.state import State
from broker.engine.queues.usage import Disk

_ALARM: Final = "disk"


def exceeded(disk: Disk, usage_max: int, free_min: int) -> bool:
    """Whether the disk is beyond its limit: bytes that must be free (-1: not set), else percent used (-1: not set)."""
    if free_min >= 0:
        return disk.free_bytes < free_min
    return 0 <= usage_max <= disk.percent


class DiskWatch:
    """Checks the disk periodically; `space` returns its used and free bytes, or raises OSError."""

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
        """Check now, and every `period` ms from now on.  Call within a tick."""
        if self._usage_max < 0 and self._free_min < 0:
            return
        self.look()
        if self._period > 0:
            self._state.alarms.at(_ALARM, self._state.now + self._period, self.start)

    def look(self) -> None:
        """Check the disk, and stop or release producers."""
        disk = self._state.usage.disk
        try:
            disk.used_bytes, disk.free_bytes = self._space()
        except OSError as error:  # the last result still holds; the journal notices whether the disk works
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
