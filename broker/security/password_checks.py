"""Checking passwords outside the event loop.

Correct passwords are remembered as keyed digests in memory, so that a thousand reconnecting clients do not cost a
thousand hashes.  Clients that log in with the same password at the same time wait for the same hash.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.security import passwords
from broker.sessions.login import call_all

#: Maximum number of logins waiting for a thread: five seconds of work for two threads.  Others are refused, and may
#: retry.
HASHES_WAITING_MAX: Final = 256

#: Maximum number of passwords remembered as correct.
REMEMBERED_MAX: Final = 1_000

Result = TypeVar("Result")

#: Called with whether a password is correct; None if a bug in the broker prevented the check.
Checked = Callable[[bool | None], None]


class Runner(Protocol):
    """Runs slow work on threads.  Its callbacks run within a tick."""

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """Run `work` on a thread, and pass its result or exception to `then`."""

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """Call a function after some time."""


class PasswordChecks:
    """Checks passwords; `secret` is the key of the digests; `failed` is called with the exception if a check breaks."""

    def __init__(self, runner: Runner, secret: bytes, failed: Callable[[BaseException], None]) -> None:
        self._runner = runner
        self._secret = secret
        self._failed = failed
        self._right: OrderedDict[tuple[bytes, str], None] = OrderedDict()
        self._waiting: dict[tuple[bytes, str], list[Checked]] = {}

    def check(self, name: str, password: bytes, hash: str, then: Checked) -> bool:
        """Check a password against the hash of a user; without a hash, the check fails after the same time.

        Returns False if too many checks are waiting; `then` is not called in this case.
        """
        key = hmac.digest(self._secret, name.encode("utf-8", "replace") + b"\0" + password, "sha256")
        compared = key, hash  # a result is about both: by then, the user may have another hash
        if compared in self._right:
            then(True)
        elif compared in self._waiting:
            self._waiting[compared].append(then)
        elif len(self._waiting) >= HASHES_WAITING_MAX:
            return False
        else:
            self._waiting[compared] = [then]
            self._runner.run(lambda: passwords.fits(password, hash or passwords.DECOY), partial(self._answer, compared))
        return True

    def forget(self) -> None:
        """Forget all passwords, because users have changed."""
        self._right.clear()

    def _answer(self, compared: tuple[bytes, str], found: bool | BaseException) -> None:
        waiting = self._waiting.pop(compared)
        if isinstance(found, BaseException):
            self._failed(found)
            right = None
        else:
            right = found and bool(compared[1])
            if right:
                if len(self._right) >= REMEMBERED_MAX:
                    self._right.popitem(last=False)
                self._right[compared] = None
        call_all([partial(then, right) for then in waiting])
