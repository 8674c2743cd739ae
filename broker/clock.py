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


def rest(seconds: float) -> None:
    """Sleep; only for threads other than the event loop's."""
    time.sleep(seconds)
