"""Returns the memory of messages to the system once they are gone.

glibc keeps memory that is freed below the end of its heap: after a backlog of 1 GB the process stays as large as it
was.  `malloc_trim(0)` returns it, at some 0.3 ms per megabyte (bodies of 1 to 50 KB), while all clients wait.  So it is
called in small steps, each time enough has been freed to be worth it.  The rest is returned some seconds after a burst.
Then Python's free lists are emptied too: each spare object, wherever it lies, can keep an otherwise free megabyte from
being returned.

Python's collector of cycles visits the objects that are new since its last collection, and all older ones now and then.
A backlog is millions of objects and no cycles, so small collections follow each other quickly (`COLLECTED_AFTER`), and
old objects are visited only when few messages are in memory, and there are few queues.  What lives long must therefore
end without cycles; above all a connection, or strangers could fill the memory (tests/support/cycles.py).
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final

#: Return memory when this many bytes of messages were freed since the last time: takes some 5 ms.
TRIM_BYTES: Final = 16 << 20

#: It was a burst if messages used this many bytes more than now.
BURST_BYTES: Final = 8 << 20

#: How long after a burst the rest of its memory is returned, in ms.
CALM_MS: Final = 5_000

#: Python's spare objects are released only with at most this many messages in memory: the garbage collector visits
#: each, for some 0.4 us.
LOOKED_AT_MAX: Final = 20_000

#: For how many messages a queue counts, with its address and its consumer: a collection takes 4 us for one.
QUEUE_AS_MESSAGES: Final = 10

#: After how many new objects the collector visits them; after how many such visits more than none it visits all those
#: again; after how many of the latter it visits everything, which is the last resort (`FULL_AFTER`).  Few of a read's
#: objects are left when 5,000 more have been made, so most are never visited.  While 230,000 messages with annotations
#: are made (700,000 objects), the longest collection takes 0.7 ms of CPU and all of them 35 ms, on Python 3.11; with
#: (5_000, 1) 0.9 and 41, with (7_500, 0) 1.1 and 37, with (10_000, 5) 5 and 66.
COLLECTED_AFTER: Final = 5_000, 0, 100_000

#: After how many collections of the second kind everything is visited, if few messages are in memory.  At 10,000
#: objects each, these are 30 million that have become old.
FULL_AFTER: Final = 3_000

#: mallopt(3): the number of heaps.  The heap of another thread, such as the journal's writer, would not be returned.
_M_ARENA_MAX: Final = -8


def collect_and_exempt() -> None:
    """Collect garbage, and exempt the objects that are left from later collections: they will live long."""
    gc.collect()
    gc.freeze()


def system_trim() -> Callable[[], object]:
    """Return a function that returns free memory to the system; it does nothing without glibc (musl, macOS).

    From now on, all threads use one heap.
    """
    library = ctypes.CDLL(None)
    trim, mallopt = getattr(library, "malloc_trim", None), getattr(library, "mallopt", None)
    if trim is None or mallopt is None:
        return lambda: None
    mallopt(_M_ARENA_MAX, 1)
    return lambda: trim(0)


class FreeMemory:
    """Watches how much memory messages use, and returns it when they are gone."""

    __slots__ = ("_calm_since", "_collect", "_counts", "_highest", "_peak", "_trim")

    def __init__(
        self,
        trim: Callable[[], object],
        collect: Callable[[], object] = gc.collect,
        counts: Callable[[], tuple[int, int, int]] = gc.get_count,
    ) -> None:
        self._trim = trim
        self._collect = collect
        self._counts = counts
        self._highest = 0  # bytes, since the last time
        self._peak = 0  # bytes, since the last calm
        self._calm_since: int | None = None  # ms; None: there was no burst

    def look(self, used: int) -> None:
        """Note how many bytes messages use now, and return memory if enough was freed."""
        if used > self._highest:
            self._highest = used
            self._peak = max(self._peak, used)
        elif self._highest - used >= TRIM_BYTES:
            self._highest = used
            self._trim()

    def trim_after_burst(self, used: int, messages: int, now: int, *, queues: int = 0) -> None:
        """Return the rest of a burst's memory, and collect old cycles.

        Call it now and then, with the bytes and the number of messages in memory, and the number of queues.
        """
        few = messages + QUEUE_AS_MESSAGES * queues <= LOOKED_AT_MAX
        if few and self._counts()[2] >= FULL_AFTER:
            self._collect()
        if self._peak - used < BURST_BYTES:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= CALM_MS:
            self._peak = self._highest = used
            self._calm_since = None
            if few:
                self._collect()
            self._trim()
