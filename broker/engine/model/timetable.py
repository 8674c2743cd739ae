"""A schedule of items by due time, with exact removal.

Items are bucketed by their due millisecond; a heap orders the buckets.  Removing an item is one dictionary operation:
a message consumed long before it would expire leaves only an integer in the heap.  The heap is rebuilt when most of
its integers are stale.  There is no clock here: the caller passes the time.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: Heap entries tolerated beyond twice the live ones before a rebuild: keeps rebuilds rare for small tables.
STALE_DUES_MAX: Final = 1024


#: Later than any time.
NEVER: Final = 1 << 62

_NOTHING_BEGUN: Final[tuple[int, deque[Any]]] = (-1, deque(maxlen=0))


class Soonest:
    """A time before which nothing in several timetables is due, so that they are not all asked in each tick.

    An item that is added for an earlier time moves it there.  It is too early once items were removed: whoever finds it
    reached asks the timetables, and sets `at` to what they say.
    """

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = NEVER


class Timetable(Generic[K, V]):
    """Items by due time (milliseconds since the epoch), each under a key that is unique within its millisecond.

    `soonest` takes notice of the times.
    """

    __slots__ = ("_begun", "_buckets", "_heap", "_size", "_soonest")

    def __init__(self, soonest: Soonest | None = None) -> None:
        self._soonest = Soonest() if soonest is None else soonest
        self._buckets: dict[int, dict[K, V]] = {}
        self._heap: list[int] = []
        self._size = 0
        #: A bucket that did not fit into one `pop_due`, and its keys still to be popped: listing them again each time
        #: would be quadratic.
        self._begun: tuple[int, deque[K]] = _NOTHING_BEGUN

    def __len__(self) -> int:
        return self._size

    def add(self, due: int, key: K, value: V) -> None:
        """Add an item; the same key at the same time replaces the earlier value."""
        bucket = self._buckets.get(due)
        if bucket is None:
            bucket = self._buckets[due] = {}
            heappush(self._heap, due)
            if due < self._soonest.at:
                self._soonest.at = due
        if key not in bucket:
            self._size += 1
            if due == self._begun[0]:
                self._begun = _NOTHING_BEGUN
        bucket[key] = value

    def remove(self, due: int, key: K) -> bool:
        """Remove an item; False if it is not there (any more)."""
        bucket = self._buckets.get(due)
        if bucket is None or key not in bucket:
            return False
        del bucket[key]
        self._size -= 1
        if not bucket:
            del self._buckets[due]
            if len(self._heap) > 2 * len(self._buckets) + STALE_DUES_MAX:
                self._heap = list(self._buckets)
                heapify(self._heap)
        return True

    def next_due(self) -> int | None:
        """The earliest due time of any item, or None when the table is empty."""
        heap = self._heap
        while heap:
            if heap[0] in self._buckets:
                return heap[0]
            heappop(heap)
        return None

    def is_due(self, now: int) -> bool:
        """Whether the time of any item has come."""
        due = self.next_due()
        return due is not None and due <= now

    def pop_due(self, now: int, limit: int) -> list[V]:
        """Remove and return at most `limit` items whose time has come, earliest first."""
        due_items: list[V] = []
        while len(due_items) < limit:
            due = self.next_due()
            if due is None or due > now:
                break
            bucket = self._buckets[due]
            room = limit - len(due_items)
            if len(bucket) <= room:
                due_items.extend(bucket.values())
                self._size -= len(bucket)
                del self._buckets[due]
                heappop(self._heap)
                self._begun = _NOTHING_BEGUN
                continue
            due_items += self._pop_some(due, bucket, room)
        return due_items

    def _pop_some(self, due: int, bucket: dict[K, V], room: int) -> list[V]:
        """Remove and return the first `room` items of a larger bucket."""
        begun, keys = self._begun
        if begun != due or not keys:
            keys = deque(bucket)
            self._begun = due, keys
        some: list[V] = []
        while keys and len(some) < room:
            key = keys.popleft()
            if key in bucket:
                some.append(bucket.pop(key))
        self._size -= len(some)
        return some
