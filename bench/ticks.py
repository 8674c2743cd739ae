"""The longest tick of a broker, in CPU of its event loop.

Run as a script in place of `python -m broker`, this is a broker whose ticks are timed: from the first event of a tick
to the last write at its end.  It writes the longest to the file that `BENCH_TICKS` names, where `LongestTick` finds it.

When many connections are lost at once, the event loop closes all their sockets, some 5 us each, and reads the errors of
more, before it does anything else.  That is part of a tick, and nothing of ours can divide it, so the longest tick
without it is told too (`own`).  To read the clock costs more than to note a lost connection, so only some of those
calls are timed, for all of them.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

#: Names the file.
VARIABLE: Final = "BENCH_TICKS"

#: The script.
SCRIPT: Final = Path(__file__)

#: One in so many calls for lost connections is timed.
_SAMPLED: Final = 16

#: How often the clock is read to know what reading it costs.
_CLOCK_READS: Final = 1_000

_FORMAT: Final = struct.Struct("=QQ")  # nanoseconds: of the longest tick, and of the longest without the loop's part


class LongestTick:
    """The longest tick since the last `reset`, in a file that both processes map."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b" if path.exists() else "w+b") as file:
            file.truncate(_FORMAT.size)
            self._map = mmap.mmap(file.fileno(), _FORMAT.size)

    def reset(self) -> None:
        """Forget it."""
        _FORMAT.pack_into(self._map, 0, 0, 0)

    def add(self, nanoseconds: int, of_the_loop: int = 0) -> None:
        """Note a tick, and how much of it the event loop used to close sockets."""
        longest, own = _FORMAT.unpack_from(self._map)
        _FORMAT.pack_into(self._map, 0, max(longest, nanoseconds), max(own, nanoseconds - of_the_loop))

    @property
    def milliseconds(self) -> float:
        """How long it was."""
        nanoseconds: int = _FORMAT.unpack_from(self._map)[0]
        return nanoseconds / 1e6

    @property
    def own_milliseconds(self) -> float:
        """How long the longest was without what the event loop did alone."""
        nanoseconds: int = _FORMAT.unpack_from(self._map)[1]
        return nanoseconds / 1e6


class _Losses:
    """Runs of lost connections, which the event loop tells of one after the other: its own part of their CPU time."""

    def __init__(self) -> None:
        self.inside = False  # a call of ours
        self._clock_cost = min(-time.thread_time_ns() + time.thread_time_ns() for _ in range(_CLOCK_READS))
        self._begun = self._lost = self._ours = 0  # CPU time at the begin of a run (0: none), and of our calls in it
        self._closing = 0

    def lose(self, call: Callable[[], None]) -> None:
        """Make the call for a lost connection."""
        self._begun = self._begun or time.thread_time_ns()
        self._lost += 1
        self.inside = True
        if self._lost % _SAMPLED:
            call()
        else:
            before = time.thread_time_ns()
            call()
            self._ours += _SAMPLED * max(time.thread_time_ns() - before - self._clock_cost, 0)
        self.inside = False

    def forget(self, call: Callable[[], None]) -> None:
        """Make another call of ours, which may come in the middle of a run."""
        before = time.thread_time_ns()
        call()
        self._ours += time.thread_time_ns() - before

    def end_run(self) -> None:
        """Something else happens."""
        if self._begun:
            self._closing += max(time.thread_time_ns() - self._begun - self._ours, 0)
        self._begun = self._lost = self._ours = 0

    def take(self) -> int:
        """Return the event loop's part since the last call, in nanoseconds."""
        closing, self._closing = self._closing, 0
        return closing


def time_ticks(longest: LongestTick) -> None:
    """Time all ticks of this process from now on."""
    from broker.daemon.tick_driver import TickDriver
    from broker.net.connection import Connection
    from broker.net.listener import Listener
    from broker.sessions.tick import Tick

    enter, end, lose, forget = Tick.enter, TickDriver._end_tick, Connection.connection_lost, Listener._forget_some
    begun = 0  # CPU time of the event loop's thread when the tick began; 0: none is open
    losses = _Losses()

    def timed_enter(tick: Tick) -> None:
        nonlocal begun
        if not losses.inside:
            losses.end_run()
        begun = begun or time.thread_time_ns()
        enter(tick)

    def timed_end(driver: TickDriver) -> None:
        nonlocal begun
        before = begun or time.thread_time_ns()
        begun = before  # what enters before the end belongs to this tick
        losses.end_run()
        end(driver)
        now = time.thread_time_ns()
        begun = now if driver._broker.tick._open else 0
        longest.add(now - before, losses.take())

    Tick.enter, TickDriver._end_tick = timed_enter, timed_end  # type: ignore[method-assign, assignment]

    def timed_lose(connection: Connection, error: Exception | None) -> None:
        losses.lose(partial(lose, connection, error))

    def timed_forget(listener: Listener) -> None:
        losses.forget(partial(forget, listener))

    Connection.connection_lost = timed_lose  # type: ignore[method-assign, assignment]
    Listener._forget_some = timed_forget  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    from broker.__main__ import main

    time_ticks(LongestTick(Path(os.environ[VARIABLE])))
    sys.exit(main())  # type: ignore[func-returns-value]
