"""Memory that messages took goes back to the system once they are gone.

glibc keeps what is freed below the end of its heap: after a backlog of 1 GB the process stays as large as it was.
`malloc_trim(0)` gives it back, at some 0.3 ms a megabyte (bodies of 1 to 50 KB), in which all clients wait: so it is
called each time so much has been freed that it is worth it, and not for more than that.  What is left when a burst is
over goes back once it is calm.  Then Python lets go of the objects that it keeps to be used again, too: each of them,
wherever it lies, holds a megabyte that is free otherwise.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Final

#: Bytes of messages freed since the last time, from which on memory is given back: some 20 ms.
TRIM_BYTES: Final = 64 << 20

#: Bytes that messages have to have taken beyond what they take now for a burst.
BURST_BYTES: Final = 8 << 20

#: How long after a burst the rest of it is given back, in ms.
CALM_MS: Final = 5_000

#: Messages in memory with which Python still lets go of its spare objects: to do so it looks at each, for some 0.4 us.
LOOKED_AT_MAX: Final = 20_000

#: mallopt(3): how many heaps there are.  A thread's own one, as the journal's writer would have it, is not given back.
_M_ARENA_MAX: Final = -8


def system_trim() -> Callable[[], object]:
    """What gives free memory back to the system; does nothing where the C library has no such call (musl, macOS).

    From now on all threads use one heap.
    """
    library = ctypes.CDLL(None)
    trim, mallopt = getattr(library, "malloc_trim", None), getattr(library, "mallopt", None)
    if trim is None or mallopt is None:
        return lambda: None
    mallopt(_M_ARENA_MAX, 1)
    return lambda: trim(0)


class FreeMemory:
    """Watches how much messages take, and gives back what they took."""

    __slots__ = ("_calm_since", "_collect", "_highest", "_peak", "_trim")

    def __init__(self, trim: Callable[[], object], collect: Callable[[], object] = gc.collect) -> None:
        self._trim = trim
        self._collect = collect
        self._highest = 0  # bytes, since the last time
        self._peak = 0  # bytes, since the last calm
        self._calm_since: int | None = None  # ms; None: there was no burst

    def look(self, used: int) -> None:
        """So many bytes are used by messages now."""
        if used > self._highest:
            self._highest = used
            self._peak = max(self._peak, used)
        elif self._highest - used >= TRIM_BYTES:
            self._highest = used
            self._trim()

    def rest(self, used: int, messages: int, now: int) -> None:
        """To be called now and then, with what is used by how many messages in memory."""
        if self._peak - used < BURST_BYTES:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= CALM_MS:
            self._peak = self._highest = used
            self._calm_since = None
            if messages <= LOOKED_AT_MAX:
                self._collect()
            self._trim()
