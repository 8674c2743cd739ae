"""The memory used by messages and the space on disk: beyond either limit every address counts as full."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.engine.queues.address import Producer
from store.counted import counted


@dataclass(slots=True, eq=False)
class Disk:
    """The journal's disk when last measured, in bytes; `full`: beyond the limit for producers.

    `usage_max`: percent that may be used, `free_min`: bytes that must be free; -1: not set.  `free_min` counts alone if
    it is set.  `waiting` are producers without an address, which wait only for the disk.
    """

    full: bool = False
    usage_max: int = -1
    free_min: int = -1
    used_bytes: int = 0
    free_bytes: int = 0
    waiting: dict[Producer, None] = field(default_factory=dict)

    @property
    def percent(self) -> int:
        """How much of the disk is used, rounded up as `df` does; 0 before the first measurement."""
        total = self.used_bytes + self.free_bytes
        return -(-self.used_bytes * 100 // total) if total else 0

    @property
    def exceeded(self) -> bool:
        """Whether the limit is not met."""
        if self.free_min >= 0:
            return self.free_bytes < self.free_min
        return 0 <= self.usage_max <= self.percent

    @property
    def unmet(self) -> str:
        """The limit that is not met, and by what, as everybody is told."""
        if self.free_min >= 0:
            return f"the disk has {counted(self.free_bytes, 'byte')} free, min-disk-free is {self.free_min}"
        return f"{self.percent} % of the disk is used, max-disk-usage is {self.usage_max} %"


@dataclass(slots=True, eq=False)
class Usage:
    """Memory held by messages in the whole broker, in bytes, against one limit (-1: none), and the disk."""

    bytes_max: int = -1
    bytes: int = field(init=False, default=0)
    messages: int = field(init=False, default=0)
    disk: Disk = field(init=False, default_factory=Disk)

    @property
    def memory_full(self) -> bool:
        """Whether the memory limit is reached."""
        return 0 <= self.bytes_max <= self.bytes

    def has_room(self, nbytes: int) -> bool:
        """Whether no limit would be reached with `nbytes` more."""
        return not (0 <= self.bytes_max <= self.bytes + nbytes or self.disk.full)

    @property
    def full(self) -> bool:
        """Whether a limit is reached."""
        return 0 <= self.bytes_max <= self.bytes or self.disk.full
