"""The totals since the start, including those of deleted queues and addresses: they never decrease."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.engine.queues.queue import Queue
from store.record import RemovalReason


@dataclass(slots=True, eq=False)
class Totals:
    """The `Counters` of all queues and addresses together: nobody has to look at 100,000 of them."""

    added: int = 0
    delivered: int = 0
    redelivered: int = 0
    routed: int = 0
    unrouted: int = 0
    dropped: int = 0
    left: list[int] = field(default_factory=lambda: [0] * (max(RemovalReason) + 1))

    def count_added(self, queue: Queue, messages: int) -> None:
        """Count messages that enter a queue."""
        queue.counters.added += messages
        self.added += messages

    def count_delivered(self, queue: Queue, messages: int, redelivered: int = 0) -> None:
        """Count messages that are sent to a consumer, and how many of them were delivered before."""
        queue.counters.delivered += messages
        self.delivered += messages
        if redelivered:
            queue.counters.redelivered += redelivered
            self.redelivered += redelivered

    def count_left(self, queue: Queue, reason: RemovalReason, messages: int) -> None:
        """Count messages that leave a queue: part of `removal.remove`, and of nothing else but its like on disk."""
        queue.count_left(reason, messages)
        self.left[reason] += messages
