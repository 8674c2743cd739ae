"""What the broker counts, for metrics and views."""

from __future__ import annotations

from operator import attrgetter

from broker.engine.model.errors import NotReadable
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import COUNTED, Queue
from broker.engine.queues.state import State


class Statistics:
    """The numbers of one broker, as they are now."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all queues and addresses that ever were: the counters of queues by name, and

        received        messages that senders and the broker itself put on addresses
        unroutable      of these, that no queue took
        dropped         of these, dropped because their address was full
        """
        state = self._state
        counters = [state.retired, *(queue.counters for queue in state.queues.values())]
        routed = state.retired_routed + sum(map(attrgetter("routed"), state.addresses.values()))
        return {name: sum(map(attrgetter(name), counters)) for name in COUNTED} | {
            "received": routed + state.unrouted + state.dropped,
            "unroutable": state.unrouted,
            "dropped": state.dropped,
        }

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
        """Their bytes on disk."""
        return sum([queue.tail.bytes for queue in self._state.paged if queue.tail is not None])

    def oldest_age(self, queue: Queue) -> int:
        """Ms since the message that is next in line was sent; 0 when none is, or the disk cannot be read."""
        try:
            first = upkeep.first(self._state, queue)
        except NotReadable:
            return 0
        return 0 if first is None else max(self._state.clock() - first.header.timestamp, 0)

    def lag(self, queue: Queue) -> int | None:
        """Ms since the oldest message that has not left was sent, be it next in line or with a consumer; 0: none is.

        None while a consumer has a selector: such a backlog has no line to look at without sorting it.
        """
        if queue.selective is not None:
            return None
        held = [
            next(iter(consumer.unacked.values())).header.timestamp for consumer in queue.holders() if consumer.unacked
        ]
        return max([self.oldest_age(queue), *(self._state.clock() - sent for sent in held)])
