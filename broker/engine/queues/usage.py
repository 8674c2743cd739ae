"""What messages take of the memory, and how full the disk is: beyond either limit every address counts as full."""

from __future__ import annotations

from broker.engine.queues.address import Producer


class Disk:
    """The journal's disk as it was seen last, in bytes; `full`: beyond the limit that producers have.

    `waiting` are producers without an address, who wait for the disk alone.
    """

    __slots__ = ("free_bytes", "full", "used_bytes", "waiting")

    def __init__(self) -> None:
        self.full = False
        self.used_bytes = 0
        self.free_bytes = 0
        self.waiting: dict[Producer, None] = {}

    @property
    def percent(self) -> int:
        """How much of the disk is used, rounded up as `df` does; 0 before anybody looked."""
        total = self.used_bytes + self.free_bytes
        return -(-self.used_bytes * 100 // total) if total else 0


class Usage:
    """Memory held by messages in the whole broker, in bytes, against one limit (-1: none), and the disk."""

    __slots__ = ("bytes", "bytes_max", "disk", "messages")

    def __init__(self, bytes_max: int = -1) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self.messages = 0
        self.disk = Disk()

    @property
    def memory_full(self) -> bool:
        """Whether the limit of memory is reached."""
        return 0 <= self.bytes_max <= self.bytes

    def has_room(self, nbytes: int) -> bool:
        """Whether no limit is reached with so much more either."""
        return not (0 <= self.bytes_max <= self.bytes + nbytes or self.disk.full)

    @property
    def full(self) -> bool:
        """Whether a limit is reached."""
        return 0 <= self.bytes_max <= self.bytes or self.disk.full
