"""The broker's counters, for metrics and views."""

from __future__ import annotations

from dataclasses import fields

from broker.engine.model.errors import NotReadable
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import LEFT_COUNTERS, Counters, Queue
from broker.engine.queues.state import State


class Statistics:
    """The present figures of one broker."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all queues and addresses since the start, also deleted ones: the counters of queues by name, and

        received        messages that clients and the broker itself sent to addresses
        unroutable      of these, messages that no queue accepted
        dropped         of these, messages dropped because their address or one of their queues was full
        """
        state, counted = self._state, self._state.totals
        totals = {each.name: getattr(counted, each.name) for each in fields(Counters)}
        totals |= {name: counted.left[reason] for reason, name in LEFT_COUNTERS.items()}
        totals["received"] = counted.routed + state.unrouted + state.dropped
        totals["unroutable"] += state.unrouted
        totals["dropped"] += state.dropped
        return totals

    @property
    def duplicates_refused(self) -> int:
        """Messages refused as duplicates."""
        return self._state.duplicates.refused

    @property
    def paged_messages(self) -> int:
        """Messages on disk only, counted once for each queue."""
        return sum([queue.paged for queue in self._state.paged])

    @property
    def paged_bytes(self) -> int:
        """The bytes of paged messages on disk."""
        return sum([queue.tail.bytes for queue in self._state.paged if queue.tail is not None])

    def oldest_age(self, queue: Queue) -> int:
        """Ms since the next message in line was sent; 0 if there is none, or the disk cannot be read."""
        try:
            first = upkeep.first(self._state, queue)
        except NotReadable:
            return 0
        return 0 if first is None else max(self._state.clock() - first.header.timestamp, 0)

    def lag(self, queue: Queue) -> int:
        """Ms since the oldest message on the queue was sent, next in line or with a consumer; 0: there is none."""
        held = [next(iter(each.values())).header.timestamp for each in queue.deliveries() if each]
        return max([self.oldest_age(queue), *(self._state.clock() - sent for sent in held)])
