"""Throttling of logins: failed logins of one origin delay its next ones, which slows guessing without affecting others.

After the n-th failure in a row an origin waits `delay * 2^(n-1)`, at most `WAIT_MS_MAX`.  Its attempts are then handled
one after the other, over all of its connections; one that would have to wait longer than that is refused unchecked.  A
successful login, or ten minutes of silence, clears the failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

#: The longest wait, in ms: within the ten seconds that a client has to log in.
WAIT_MS_MAX: Final = 5_000

#: Silence after which failures are forgotten, in ms.
FORGET_MS: Final = 600_000

#: Origins remembered, some 200 bytes each; above this the one that failed first is forgotten.
ORIGINS_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class _Failures:
    count: int = 0
    free_at: int = 0  # when the next attempt may be checked
    last: int = 0


class Throttle:
    """Delays logins by origin.  `delay` is the wait after a first failure, in ms; 0: no waits."""

    def __init__(self, monotonic_ms: Callable[[], int], delay: int) -> None:
        self._now = monotonic_ms
        self.delay = delay
        self._origins: dict[str, _Failures] = {}

    def reserve(self, origin: str) -> int | None:
        """How long an attempt has to wait, in ms; None: too long, refuse it."""
        failures = self._of(origin)
        if failures is None or not self.delay:
            return 0
        now = self._now()
        wait = max(failures.free_at - now, 0)
        if wait > WAIT_MS_MAX:
            return None
        failures.free_at = now + wait + self._penalty(failures)
        return wait

    def failed(self, origin: str) -> int:
        """Note a failed attempt; return how long to wait before answering, in ms."""
        if not self.delay:
            return 0
        key = block(origin)
        failures = self._of(origin)
        if failures is None:
            if len(self._origins) >= ORIGINS_MAX:
                del self._origins[next(iter(self._origins))]
            failures = self._origins[key] = _Failures()
        failures.count += 1
        failures.last = self._now()
        wait = self._penalty(failures)
        failures.free_at = max(failures.free_at, failures.last + wait)
        return wait

    def succeeded(self, origin: str) -> None:
        """Clear the failures after a successful login."""
        self._origins.pop(block(origin), None)

    def _penalty(self, failures: _Failures) -> int:
        return min(self.delay << min(max(failures.count - 1, 0), 20), WAIT_MS_MAX)

    def _of(self, origin: str) -> _Failures | None:
        key = block(origin)
        failures = self._origins.get(key)
        if failures is not None and self._now() - failures.last > FORGET_MS:
            del self._origins[key]
            return None
        return failures


def block(origin: str) -> str:
    """The block of addresses that belongs to one client: for IPv6, where each client has 2^64, the first half."""
    if ":" not in origin:
        return origin
    try:
        address = ip_address(origin.partition("%")[0])
    except ValueError:
        return origin
    if not isinstance(address, IPv6Address):
        return origin
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
