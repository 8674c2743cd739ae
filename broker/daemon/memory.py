"""Memory that messages took goes back to the system once they are gone.

glibc keeps what is freed below the end of its heap: after a backlog of 1 GB the process stays as large as it was.
`malloc_trim(0)` gives it back, at some 0.3 ms a megabyte (bodies of 1 to 50 KB), in which all clients wait: so it is
called each time so much has been freed that it is worth it, and not for more than that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

#: Bytes of messages freed since the last time, from which on memory is given back: some 20 ms.
TRIM_BYTES: Final = 64 << 20


def system_trim() -> Callable[[], object]:
    """What gives free memory back to the system; does nothing where the C library has no such call (musl, macOS)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)


class FreeMemory:
    """Watches how much messages take, and gives back what they took."""

    __slots__ = ("_highest", "_trim")

    def __init__(self, trim: Callable[[], object]) -> None:
        self._trim = trim
        self._highest = 0  # bytes, since the last time

    def look(self, used: int) -> None:
        """So many bytes are used by messages now."""
        if used > self._highest:
            self._highest = used
        elif self._highest - used >= TRIM_BYTES:
            self._highest = used
            self._trim()
