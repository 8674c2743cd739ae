"""Throttling of logins: failed logins slow guessing without keeping others behind the same address out.

After the n-th failure in a row with a user name from an address, that name waits there `delay * 2^(n-1)`, at most
`WAIT_MS_MAX`.  Its attempts from there are then handled one after the other, over all connections; one that would have
to wait longer than that is refused unchecked.  A successful login with that name, or ten minutes of silence of the
address, clears its failures, and no other's.  The answers to failures wait as long as all failures of the address
together demand, so that trying many names is slow too; a right password is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

#: The longest wait, in ms: within the ten seconds that a client has to log in.
WAIT_MS_MAX: Final = 5_000

#: Silence after which failures are forgotten, in ms.
FORGET_MS: Final = 600_000

#: Origins remembered; above this the one whose last failure is longest ago is forgotten.
ORIGINS_MAX: Final = 2_000

#: Names remembered of one origin, some 200 bytes each; above this the one with the fewest failures is forgotten, so
#: that names that are tried once do not displace one that is tried again and again.  To displace it, so many others
#: have to be tried as often within ten minutes; each attempt costs a hash, and so many are not made in this time.
NAMES_MAX: Final = 4_096

#: The same of all origins, some 13 MB; above this an origin with the most names forgets one.
ALL_NAMES_MAX: Final = 65_536


@dataclass(slots=True, eq=False)
class _Failures:
    count: int = 0
    free_at: int = 0  # when the next attempt may be checked


@dataclass(slots=True, eq=False)
class _Origin:
    count: int = 0  # of all names, the forgotten ones too
    last: int = 0
    names: dict[int, _Failures] = field(default_factory=dict)  # by the hash of the name, the last to fail at the end
    by_count: dict[int, dict[int, None]] = field(default_factory=dict)  # these hashes, by their number of failures

    def add(self, name: int, failures: _Failures) -> None:
        """Count a failure of a name that is not there, or has been removed for this."""
        failures.count += 1
        self.names[name] = failures
        self.by_count.setdefault(failures.count, {})[name] = None

    def remove(self, name: int) -> _Failures | None:
        """Remove a name, if it is there."""
        failures = self.names.pop(name, None)
        if failures is not None:
            alike = self.by_count[failures.count]
            del alike[name]
            if not alike:
                del self.by_count[failures.count]
        return failures


class Throttle:
    """Delays logins by origin and user name.  `delay` is the wait after a first failure, in ms; 0: no waits."""

    def __init__(self, monotonic_ms: Callable[[], int], delay: int) -> None:
        self._now = monotonic_ms
        self.delay = delay
        self._origins: dict[str, _Origin] = {}
        self._names = 0  # of all origins

    def reserve(self, origin: str, name: str) -> int | None:
        """How long an attempt has to wait, in ms; None: too long, refuse it."""
        found = self._of(origin)
        failures = found.names.get(hash(name)) if found is not None else None
        if failures is None or not self.delay:
            return 0
        now = self._now()
        wait = max(failures.free_at - now, 0)
        if wait > WAIT_MS_MAX:
            return None
        failures.free_at = now + wait + self._penalty(failures.count)
        return wait

    def failed(self, origin: str, name: str) -> int:
        """Note a failed attempt; return how long to wait before answering, in ms."""
        if not self.delay:
            return 0
        found = self._of(origin) or _Origin()
        self._origins.pop(block(origin), None)
        if len(self._origins) >= ORIGINS_MAX:
            self._forget(next(iter(self._origins)))
        self._origins[block(origin)] = found
        found.count += 1
        found.last = self._now()
        failures = found.remove(hash(name))
        if failures is None:
            if len(found.names) >= NAMES_MAX:
                self._forget_name(found)
            elif self._names >= ALL_NAMES_MAX:
                self._forget_name(max(self._origins.values(), key=lambda each: len(each.names)))
            failures = _Failures()
            self._names += 1
        found.add(hash(name), failures)
        failures.free_at = max(failures.free_at, found.last + self._penalty(failures.count))
        return self._penalty(found.count)

    def succeeded(self, origin: str, name: str) -> None:
        """Clear the failures of a user name after a successful login with it."""
        found = self._of(origin)
        if found is not None:
            cleared = found.remove(hash(name))
            if cleared is not None:
                found.count -= cleared.count
                self._names -= 1
            if not found.count:
                self._forget(block(origin))

    def _penalty(self, count: int) -> int:
        return min(self.delay << min(max(count - 1, 0), 20), WAIT_MS_MAX)

    def _of(self, origin: str) -> _Origin | None:
        key = block(origin)
        found = self._origins.get(key)
        if found is not None and self._now() - found.last > FORGET_MS:
            self._forget(key)
            return None
        return found

    def _forget(self, key: str) -> None:
        self._names -= len(self._origins.pop(key).names)

    def _forget_name(self, origin: _Origin) -> None:
        """Forget the name with the fewest failures, or one that has not been tried for long."""
        name = next(iter(origin.names))
        if origin.names[name].free_at >= self._now() - FORGET_MS:
            name = next(iter(origin.by_count[min(origin.by_count)]))
        origin.remove(name)
        self._names -= 1


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
