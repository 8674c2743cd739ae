"""Calls and connections of HTTP acceptors take turns: what is long for one does not hold up the clients of the broker.

An answer about 100,000 queues is made `in_turns`.  A read of 256 KiB may hold 40,000 chunks of one byte, and anybody
may send them: a part of a read is parsed at a time, and in one turn of the event loop so many parts of all connections
as fit a budget of CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from broker.clock import thread_cpu_us

#: Bytes that are parsed at a time: 5 ms if they are chunks of one byte, else some microseconds.
PART_BYTES: Final = 8 << 10

#: Microseconds of CPU time for the parts of one turn of the event loop.
TURN_US: Final = 5_000

T = TypeVar("T")


async def in_turns(work: Iterable[T | None]) -> list[T]:
    """What some work yields, but for None.  Others are served in between, once it has used up the time of a turn."""
    found: list[T] = []
    end = thread_cpu_us() + TURN_US
    for each in work:
        if each is not None:
            found.append(each)
        if thread_cpu_us() >= end:
            await asyncio.sleep(0)
            end = thread_cpu_us() + TURN_US
    return found


class Reader(Protocol):
    """A connection that has read something."""

    def parse_part(self) -> bool:
        """Parse PART_BYTES of it at most; returns whether more can be parsed now."""


class Turns:
    """The connections that have something to parse, in the order in which they are next."""

    def __init__(self) -> None:
        self._waiting: dict[Reader, None] = {}

    def enter(self, reader: Reader) -> None:
        """Let a connection parse what it has read, soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting[reader] = None

    def leave(self, reader: Reader) -> None:
        """Forget a connection that is closed."""
        self._waiting.pop(reader, None)

    def _run(self) -> None:
        end = thread_cpu_us() + TURN_US
        while self._waiting:
            reader = next(iter(self._waiting))
            del self._waiting[reader]
            if reader.parse_part():
                self._waiting[reader] = None
            if thread_cpu_us() >= end:
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
