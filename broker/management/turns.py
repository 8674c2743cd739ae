"""Calls and connections of HTTP acceptors take turns: what is long for one does not hold up the clients of the broker.

An answer about 100,000 queues is made `in_turns`.  A read of 256 KiB may hold 40,000 chunks of one byte, and anybody
may send them: a part of a read is parsed at a time.  Sixty callers may ask at the same moment.  So in one turn of the
event loop, as many parts of all connections are parsed, and steps of all calls done, as fit a budget of CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterable
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from broker.clock import thread_cpu_us

#: Bytes that are parsed at a time: 5 ms if they are chunks of one byte, else some microseconds.
PART_BYTES: Final = 8 << 10

#: Microseconds of CPU time for one turn of the event loop.
TURN_US: Final = 5_000

#: Calls that are woken together: most of those that fit a turn.
WOKEN_MAX: Final = 16

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
    """Connections that have something to parse and calls that wait to go on, in the order in which they are next.

    All of them share the time of a turn.  Whatever parsing takes, one call goes on in each turn, and one probe.
    """

    def __init__(self) -> None:
        self._readers: dict[Reader, None] = {}
        self._probes = _Line()
        self._calls = _Line()
        self._running = False
        self._left = 0  # microseconds of this turn

    def enter(self, reader: Reader) -> None:
        """Let a connection parse what it has read, soon."""
        self._readers[reader] = None
        self._begin()

    def leave(self, reader: Reader) -> None:
        """Forget a connection that is closed."""
        self._readers.pop(reader, None)

    def run(self, call: Coroutine[Any, Any, None], *, probe: bool = False) -> Awaitable[None]:
        """Run a call to its end, each of its steps between two waits in a turn; a `probe` goes before others."""
        return _InTurns(self, self._probes if probe else self._calls, call)

    async def next(self) -> None:
        """Wait for a turn and take what is left of it."""
        await self.wait(self._calls)
        self._left = 0

    async def wait(self, line: _Line) -> None:
        """Wait for a turn in this line."""
        place, goes_on = object(), asyncio.get_running_loop().create_future()
        try:
            while True:
                line.waiting[place] = goes_on
                self._begin()
                await goes_on
                if self._left > 0 or line.first:
                    line.first = False
                    return
                goes_on = asyncio.get_running_loop().create_future()
        finally:
            del line.waiting[place]

    def used(self, microseconds: int) -> None:
        """A step has used up some of this turn."""
        self._left -= microseconds

    def _begin(self) -> None:
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        end = thread_cpu_us() + TURN_US
        try:
            self._parse(end)
        finally:  # a fault at one connection is reported, and the others go on
            self._left = end - thread_cpu_us()
            for line in (self._probes, self._calls):
                line.wake()
            self._running = bool(self._readers or self._probes.waiting or self._calls.waiting)
            if self._running:
                asyncio.get_running_loop().call_soon(self._run)  # after those that go on

    def _parse(self, end: int) -> None:
        while self._readers:
            reader = next(iter(self._readers))
            del self._readers[reader]
            if reader.parse_part():
                self._readers[reader] = None
            if thread_cpu_us() >= end:
                return


class _Line:
    """Who waits for a turn, in order.  Some are woken together; those whose time does not come keep their place."""

    __slots__ = ("first", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[object, asyncio.Future[None]] = {}
        self.first = False  # nobody in it has gone on in this turn

    def wake(self) -> None:
        """Begin a turn."""
        self.first = True
        for goes_on in islice(self.waiting.values(), WOKEN_MAX):
            if not goes_on.done():
                goes_on.set_result(None)


class _InTurns(Awaitable[None]):
    """A call that waits for a turn before each of its steps, and measures them."""

    __slots__ = ("_call", "_line", "_turns")

    def __init__(self, turns: Turns, line: _Line, call: Coroutine[Any, Any, None]) -> None:
        self._turns = turns
        self._line = line
        self._call = call

    def __await__(self) -> Generator[Any, Any, None]:
        error: BaseException | None = None
        while True:
            if error is None:
                try:
                    yield from self._turns.wait(self._line).__await__()
                except BaseException as raised:  # it is cancelled
                    error = raised
            begun = thread_cpu_us()
            try:
                waiting = self._call.send(None) if error is None else self._call.throw(error)
            except StopIteration:
                return
            finally:
                self._turns.used(thread_cpu_us() - begun)
            error = None
            if waiting is not None:  # else it only lets others run
                try:
                    yield waiting
                except BaseException as raised:
                    error = raised
