"""The broker's counters, for metrics and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.queues import reading
from broker.engine.queues.counters import LEFT_COUNTERS, Counters
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State

#: Queues that are looked at in one go: less than a millisecond.
PART: Final = 256


@dataclass(slots=True)
class Figures:
    """Some queues together: their messages by state, how many are stopped, their consumers.

    `paged_bytes`: of the paged messages, on disk; `attached`: consumers whose clients are connected.
    """

    stopped: int = 0
    ready: int = 0
    paged: int = 0
    paged_bytes: int = 0
    scheduled: int = 0
    delivering: int = 0
    landing: int = 0
    consumers: int = 0
    attached: int = 0

    def add(self, queues: Iterable[Queue]) -> Figures:
        """Add the figures of some queues."""
        for queue in queues:
            self.stopped += queue.stopped
            self.ready += queue.ready
            self.scheduled += len(queue.scheduled)
            self.delivering += queue.delivering
            self.landing += queue.landing + queue.fanned
            if queue.tail is not None:
                self.paged += queue.tail.messages
                self.paged_bytes += queue.tail.bytes
            if queue.consumers:
                self.consumers += len(queue.consumers)
                self.attached += queue.attached
        return self


class Statistics:
    """The present figures of one broker."""

    def __init__(self, state: State, clock: Callable[[], int]) -> None:
        self._state = state
        self._clock = clock

    @property
    def totals(self) -> dict[str, int]:
        """Sums over all queues and addresses since the start, also deleted ones: the counters of queues by name, and

        received        messages that clients and the broker itself sent to addresses
        unroutable      of these, messages that no queue accepted
        dropped         of these, messages dropped because their address or one of their queues was full
        """
        counted = self._state.totals
        totals = {each.name: getattr(counted, each.name) for each in fields(Counters)}
        totals |= {name: counted.left[reason] for reason, name in LEFT_COUNTERS.items()}
        totals["received"] = counted.routed + counted.unrouted + counted.dropped
        totals["unroutable"] += counted.unrouted
        totals["dropped"] += counted.dropped
        return totals

    @property
    def duplicates_refused(self) -> int:
        """Messages refused as duplicates."""
        return self._state.duplicates.refused

    def figures(self) -> Iterator[Figures | None]:
        """The figures of all queues together; None after each part of them: others may be served in between."""
        figures = Figures()
        for part in self.parts():
            figures.add(part)
            yield None
        yield figures

    def parts(self) -> Iterator[list[Queue]]:
        """All queues, some at a time; without those that are deleted meanwhile."""
        queues = list(self._state.queues.values())
        for at in range(0, len(queues), PART):
            yield [queue for queue in queues[at : at + PART] if not queue.deleted]

    def oldest_age(self, queue: Queue) -> int:
        """Ms since the next message in line was sent; 0 if there is none, or the disk cannot be read."""
        try:
            first = upkeep.first(self._state, queue)
        except NotReadable:
            return 0
        return 0 if first is None else max(self._clock() - first.header.timestamp, 0)

    def lag(self, queue: Queue) -> int:
        """Ms since the oldest message on the queue was sent, next in line or with a consumer; 0: there is none."""
        held = [next(iter(each.values())).header.timestamp for each in reading.deliveries(queue) if each]
        return max([self.oldest_age(queue), *(self._clock() - sent for sent in held)])
