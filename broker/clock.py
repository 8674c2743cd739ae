"""The only module that reads a clock or makes random numbers; all others have them passed in."""

from __future__ import annotations

import random
import time


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def wall_ns() -> int:
    """Nanoseconds since the epoch."""
    return time.time_ns()


def monotonic_ms() -> int:
    """Milliseconds of a clock that never goes back; its zero is arbitrary."""
    return time.monotonic_ns() // 1_000_000


def chance() -> random.Random:
    """A generator seeded by the operating system."""
    return random.Random()


def monotonic_seconds() -> float:
    """Seconds of the clock that never goes back, for measuring."""
    return time.monotonic()


def cpu_seconds() -> float:
    """Seconds of processor time that this process has used."""
    return time.process_time()


def thread_cpu_us() -> int:
    """Microseconds of processor time that the calling thread has used."""
    return time.thread_time_ns() // 1_000


class ThreadCpu:
    """The processor time that a thread has used, in microseconds.  To be made and called by that thread.

    The kernel is asked only if it may be as much as the caller wants to know: a thread uses no more than passes by the
    other clock, which is read ten times as fast.
    """

    def __init__(self) -> None:
        self._ask()

    def _ask(self) -> None:
        self._used = thread_cpu_us()
        self._ahead = time.monotonic_ns() // 1_000 - self._used

    def __call__(self, enough: int) -> int:
        """Return the time if it is `enough` or more, else that or a value in between."""
        used = time.monotonic_ns() // 1_000 - self._ahead
        if used < enough:
            return used
        self._ask()
        return self._used


def rest(seconds: float) -> None:
    """Sleep; only for threads other than the event loop's."""
    time.sleep(seconds)
