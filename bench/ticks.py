"""The longest tick of a broker, in CPU of its event loop.

Run as a script in place of `python -m broker`, this is a broker whose ticks are timed: from the first event of a tick
to the last write at its end.  It writes the longest to the file that `BENCH_TICKS` names, where `LongestTick` finds it.

When many connections are lost at once, the event loop closes all their sockets, some 5 us each, and reads the errors of
more, before it does anything else.  That is part of a tick, and nothing of ours can divide it, so the longest tick
without it is told too (`own`).
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

#: Names the file.
VARIABLE: Final = "BENCH_TICKS"

#: The script.
SCRIPT: Final = Path(__file__)

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


def time_ticks(longest: LongestTick) -> None:
    """Time all ticks of this process from now on."""
    from broker.daemon.tick_driver import TickDriver
    from broker.net.connection import Connection
    from broker.net.listener import Listener
    from broker.sessions.tick import Tick

    enter, end, lose, forget = Tick.enter, TickDriver._end_tick, Connection.connection_lost, Listener._forget_some
    begun = 0  # CPU time of the event loop's thread when the tick began; 0: none is open
    lost = closing = 0  # when the last call for a lost connection returned, and the time from there to what came next

    def timed_enter(tick: Tick) -> None:
        nonlocal begun, lost
        begun = begun or time.thread_time_ns()
        lost = 0  # something else happens
        enter(tick)

    def timed_lose(connection: Connection, error: Exception | None) -> None:
        nonlocal lost, closing
        if lost:
            closing += time.thread_time_ns() - lost
        lose(connection, error)
        lost = time.thread_time_ns()

    def timed_forget(listener: Listener) -> None:
        nonlocal lost
        before, known = time.thread_time_ns(), lost
        forget(listener)
        lost = known and known + time.thread_time_ns() - before

    def timed_end(driver: TickDriver) -> None:
        nonlocal begun, lost, closing
        before = begun or time.thread_time_ns()
        begun = before  # what enters before the end belongs to this tick
        if lost:
            closing += time.thread_time_ns() - lost
        end(driver)
        now = time.thread_time_ns()
        begun = now if driver._broker.tick._open else 0
        longest.add(now - before, closing)
        lost = closing = 0

    Tick.enter, TickDriver._end_tick = timed_enter, timed_end  # type: ignore[method-assign, assignment]
    Connection.connection_lost = timed_lose  # type: ignore[method-assign, assignment]
    Listener._forget_some = timed_forget  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    from broker.__main__ import main

    time_ticks(LongestTick(Path(os.environ[VARIABLE])))
    sys.exit(main())  # type: ignore[func-returns-value]
