"""Failed logins of one origin make its next ones wait: trying passwords out gets slow, and costs nobody else.

After the n-th failure in a row an origin waits `delay * 2^(n-1)`, at most `WAIT_MS_MAX`; its attempts then come one
after the other, however many connections they come by, and one that would have to wait longer than that is refused
without being looked at.  A right login, or ten minutes of silence, forget the failures.
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

#: Origins remembered, some 200 bytes each; beyond it the one that failed first is forgotten.
ORIGINS_MAX: Final = 10_000


@dataclass(slots=True, eq=False)
class _Failures:
    count: int = 0
    free_at: int = 0  # when the next attempt may be looked at
    last: int = 0


class Throttle:
    """`delay` is the wait after a first failure, in ms; 0: nobody ever waits."""

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
        """An attempt failed; how long to wait before saying so, in ms."""
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
        """A right login."""
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
    """Whom an address belongs to: of IPv6, where everybody has 2^64, the first half."""
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
