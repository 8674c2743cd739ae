"""Decides when a queue begins to deliver: at a number of consumers, or some time after the first one attached.

These are `consumers-before-dispatch` and `delay-before-dispatch`.  After the last consumer has left and no delivery is
outstanding, the rule applies again from the next consumer on.
"""

from __future__ import annotations


class Gate:
    """Open or not.  It opens once there are `consumers`, or `delay` ms after the first attached (-1: never)."""

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
        """Note the first consumer; returns when the gate opens in any case, None: never without more consumers."""
        self._opened = False
        self._since = now
        return now + self._delay if self._delay >= 0 else None

    def clock_jumped(self, by_ms: int) -> None:
        """Shift the start of the delay after the clock has jumped."""
        self._since += by_ms

    def is_open(self, consumers: int, now: int) -> bool:
        """Whether this number of consumers may be served."""
        if not self._opened:
            waited = 0 <= self._delay <= now - self._since
            self._opened = consumers >= self._consumers or (waited and consumers > 0)
        return self._opened
