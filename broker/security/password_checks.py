"""Checking passwords outside the event loop.

Correct passwords are remembered as keyed digests in memory, so that a thousand reconnecting clients do not cost a
thousand hashes.  Clients that log in with the same password at the same time wait for the same hash.

Addresses take turns, so that a flood of logins from one of them delays and refuses only its own.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.security import passwords
from broker.security.throttle import block
from broker.sessions.login import call_all

#: Maximum number of hashes that are made or wait for it: five seconds of work for two threads.  Beyond this the
#: address that has most of them waiting loses its newest; its clients may retry.
HASHES_WAITING_MAX: Final = 256

#: Maximum number of passwords remembered as correct.
REMEMBERED_MAX: Final = 1_000

Result = TypeVar("Result")


class Verdict(Enum):
    """What a check has found."""

    RIGHT = auto()
    WRONG = auto()
    FAULT = auto()  # a bug in the broker prevented the check
    TOO_MANY = auto()  # too many checks are waiting


#: Called with what a check has found.
Checked = Callable[[Verdict], None]

#: A keyed digest of name and password, and the hash that they are compared with: by the time of a result, the user may
#: have another one.
_Compared = tuple[bytes, str]


class Runner(Protocol):
    """Runs slow work on `threads` threads.  Its callbacks run within a tick."""

    threads: int

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """Run `work` on a thread, and pass its result or exception to `then`."""

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """Call a function after some time."""


@dataclass(slots=True, eq=False)
class _Hash:
    """A hash to be made, and who waits for it, by address."""

    work: Callable[[], bool]
    waiting: dict[str, list[Checked]] = field(default_factory=dict)


class PasswordChecks:
    """Checks passwords; `secret` is the key of the digests; `failed` is called with the exception if a check breaks."""

    def __init__(self, runner: Runner, secret: bytes, failed: Callable[[BaseException], None]) -> None:
        self._runner = runner
        self._secret = secret
        self._failed = failed
        self._right: OrderedDict[_Compared, None] = OrderedDict()
        self._hashes: dict[_Compared, _Hash] = {}
        self._made: set[_Compared] = set()  # of these, the ones on a thread
        # The others by address, oldest first; the address whose turn is next comes first.
        self._turns: OrderedDict[str, dict[_Compared, None]] = OrderedDict()

    def check(self, origin: str, name: str, password: bytes, hash: str, then: Checked) -> None:
        """Check a password against the hash of a user; without a hash, the check fails after the same time."""
        key = hmac.digest(self._secret, name.encode("utf-8", "replace") + b"\0" + password, "sha256")
        compared, address = (key, hash), block(origin)
        if compared in self._right:
            then(Verdict.RIGHT)
            return
        found = self._hashes.get(compared)
        if found is None:
            while len(self._hashes) >= HASHES_WAITING_MAX:
                if not self._displace(address):
                    then(Verdict.TOO_MANY)
                    return
            found = self._hashes[compared] = _Hash(lambda: passwords.fits(password, hash or passwords.DECOY))
        found.waiting.setdefault(address, []).append(then)
        if compared not in self._made:
            # Another address may have queued the same one: it is made when the first of them has its turn.
            self._turns.setdefault(address, {})[compared] = None
            self._start()

    def forget(self) -> None:
        """Forget all passwords, because users have changed."""
        self._right.clear()

    def _displace(self, address: str) -> bool:
        """Refuse the newest hash of the address that has most waiting; False: it would have no fewer than this one."""
        most = max(self._turns, key=lambda each: len(self._turns[each]), default=address)
        if most == address or len(self._turns[most]) <= len(self._turns.get(address, ())) + 1:
            return False
        compared = next(reversed(self._turns[most]))
        found = self._hashes[compared]
        refused = found.waiting.pop(most)
        self._take_out(most, compared)
        if not found.waiting:
            del self._hashes[compared]
        call_all([partial(then, Verdict.TOO_MANY) for then in refused])
        return True

    def _take_out(self, address: str, compared: _Compared) -> None:
        queued = self._turns[address]
        del queued[compared]
        if not queued:
            del self._turns[address]

    def _start(self) -> None:
        """Give the threads work, one hash of each address in turn."""
        while self._turns and len(self._made) < self._runner.threads:
            address = next(iter(self._turns))
            compared = next(iter(self._turns[address]))
            self._turns.move_to_end(address)
            found = self._hashes[compared]
            for each in found.waiting:
                self._take_out(each, compared)
            self._made.add(compared)
            self._runner.run(found.work, partial(self._answer, compared))

    def _answer(self, compared: _Compared, found: bool | BaseException) -> None:
        self._made.discard(compared)
        waiting = self._hashes.pop(compared).waiting
        if isinstance(found, BaseException):
            self._failed(found)
            verdict = Verdict.FAULT
        else:
            verdict = Verdict.RIGHT if found and compared[1] else Verdict.WRONG
            if verdict is Verdict.RIGHT:
                if len(self._right) >= REMEMBERED_MAX:
                    self._right.popitem(last=False)
                self._right[compared] = None
        self._start()
        call_all([partial(then, verdict) for each in waiting.values() for then in each])
