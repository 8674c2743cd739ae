"""The engine's timer: one scheduled call of the event loop, for the work that is due first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker import clock

#: Longest wait, in seconds: a change of the wall clock is noticed after at most this.
SECONDS_MAX: Final = 1.0


class Timer:
    """Calls `wake` when something is due.  `next_due`: when that is, in ms since the epoch; None: never.

    `guarded` runs the timer's callback and handles its errors; `now`: the wall clock, in ms.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        next_due: Callable[[], int | None],
        wake: Callable[[], None],
        guarded: Callable[[Callable[[], None]], None],
        now: Callable[[], int] = clock.wall_ms,
    ) -> None:
        self._next_due = next_due
        self._wake = wake
        self._guarded = guarded
        self._loop = loop
        self._now = now
        self._handle: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._due = 0  # what it was set for

    def set(self) -> None:
        """Schedule the timer; call when something may be due earlier than before."""
        due = self._next_due()
        if due is None:
            return
        if self._handle is not None and self._due <= due:
            return
        at = self._loop.time() + min(max(due - self._now(), 1) / 1000, SECONDS_MAX)
        if self._handle is not None:
            if self._at <= at:
                return
            self._handle.cancel()
        self._due = due
        self._at = at  # not read from the handle: in uvloop, one that is due at once has no time
        self._handle = self._loop.call_at(at, self._guarded, self._ring)

    def stop(self) -> None:
        """Call nothing until `set` is called again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        due = self._next_due()
        if due is not None and due <= self._now():
            self._wake()
        else:
            self.set()
