"""When a queue begins to deliver: once it has so many consumers, or so long after the first one came.

`consumers-before-dispatch` and `delay-before-dispatch`.  When the last consumer has left and nothing is in delivery any
more, everything begins anew with the next one.
"""

from __future__ import annotations


class Gate:
    """Open or not.  `consumers` open it, or `delay` ms after the first of them came (-1: never)."""

    __slots__ = ("_consumers", "_delay", "_opened", "_since")

    def __init__(self, consumers: int, delay: int) -> None:
        self._consumers = consumers
        self._delay = delay
        self._opened = False
        self._since = 0

    @property
    def rule(self) -> tuple[int, int]:
        """Consumers and delay."""
        return self._consumers, self._delay

    def open(self) -> None:
        """Deliver from now on."""
        self._opened = True

    def first_came(self, now: int) -> int | None:
        """The first consumer is there; returns when the gate opens in any case, None: never by itself."""
        self._opened = False
        self._since = now
        return now + self._delay if self._delay >= 0 else None

    def clock_jumped(self, by_ms: int) -> None:
        """It opens when it would have."""
        self._since += by_ms

    def is_open(self, consumers: int, now: int) -> bool:
        """Whether so many consumers may be served."""
        if not self._opened:
            waited = 0 <= self._delay <= now - self._since
            self._opened = consumers >= self._consumers or (waited and consumers > 0)
        return self._opened
