"""The tick: everything that happens between two looks at the sockets, ended once.

Whatever happens first in a tick (bytes arrive, the journal announces, a timer is due) calls `enter`, which reads the
clock and asks for `end` to be called soon.  `end` lets the engine finish the tick and then flushes each outlet that
was touched: one write per connection per tick.  The turn is driven by the event loop in the daemon, and by hand in
simulations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.engine.engine import Engine


class Outlet(Protocol):
    """Where a session's bytes go."""

    def flush(self) -> None:
        """Write what the session has to send."""

    def pause_reading(self) -> None:
        """Take no more bytes from the peer for now."""

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""


class Turn:
    """The current tick.  `wake` asks the driver to call `end` as soon as this turn of its loop is over."""

    def __init__(self, engine: Engine, wake: Callable[[], None]) -> None:
        self.engine = engine
        self._wake = wake
        self._open = False
        self._touched: dict[Outlet, None] = {}

    def enter(self) -> None:
        """Begin the tick unless it has begun."""
        if not self._open:
            self._open = True
            self.engine.begin_tick()
            self._wake()

    def touch(self, outlet: Outlet) -> None:
        """This outlet has something to write at the end of the tick."""
        self._touched[outlet] = None

    def end(self) -> None:
        """Finish the tick; another one follows at once if there is more to do."""
        if not self._open:
            self.engine.begin_tick()
        more = self.engine.end_tick()
        self._open = False
        touched, self._touched = self._touched, {}
        flushed = 0
        try:
            for outlet in touched:
                flushed += 1
                outlet.flush()
        except Exception:  # our bug in one session costs nobody else: the others' turn comes at once
            self._touched = dict.fromkeys([*touched][flushed:]) | self._touched
            self.enter()
            raise
        if more:
            self.enter()
