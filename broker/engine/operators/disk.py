"""Limits the use of the journal's disk: `max-disk-usage` and `min-disk-free`, checked every `disk-scan-period`.

Beyond the limit producers are stopped before the disk is really full, as in ActiveMQ Artemis: every address counts as
full, whatever it holds.  Consumers continue, which makes room; the next check that finds enough of it lets the
producers continue.  Usage is computed as `df` does: used space as a share of used and available space (space that the
file system reserves for root is neither).

A disk that is really full is another matter: the journal detects that itself (`store.journal`, `DiskFull`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from broker.engine.queues.state import State

_ALARM: Final = "disk"


@dataclass(slots=True, eq=False)
class DiskWatch:
    """Checks the disk every `period` ms; `space` returns its used and free bytes, or raises OSError."""

    state: State
    space: Callable[[], tuple[int, int]]
    _: KW_ONLY
    period: int

    def start(self) -> None:
        """Check now, and every `period` ms from now on.  Call within a tick."""
        disk = self.state.usage.disk
        if disk.usage_max < 0 and disk.free_min < 0:
            return
        self.look()
        if self.period > 0:
            self.state.alarms.at(_ALARM, self.state.now + self.period, self.start)

    def look(self) -> None:
        """Check the disk, and stop or release producers."""
        disk = self.state.usage.disk
        try:
            disk.used_bytes, disk.free_bytes = self.space()
        except OSError as error:  # the last result still holds; the journal notices whether the disk works
            self.state.report("disk.check_failed", error=str(error))
            return
        full = disk.exceeded
        if full is disk.full:
            return
        disk.full = full
        if full:
            self.state.report("disk.full", percent=disk.percent, free=disk.free_bytes, limit=disk.unmet)
            return
        self.state.report("disk.room", percent=disk.percent, free=disk.free_bytes)
        self.state.room.wake_for_disk()
