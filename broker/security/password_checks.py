"""Passwords, checked beside the event loop.

What was right is remembered, as a keyed digest in memory: a thousand clients that reconnect do not cost a thousand
hashes.  Clients that log in with the same password at once wait for the same hash.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.security import passwords
from broker.sessions.login import tell_all

#: Logins that wait for a thread: five seconds of two threads' work.  More are refused, and may come back.
HASHES_WAITING_MAX: Final = 256

#: Passwords that are remembered as right.
REMEMBERED_MAX: Final = 1_000

Result = TypeVar("Result")

#: Told whether a password is right; None: a bug in the broker kept it from finding out.
Checked = Callable[[bool | None], None]


class Runner(Protocol):
    """Where slow work is done.  Its callbacks run within a tick."""

    def run(self, work: Callable[[], Result], then: Callable[[Result | BaseException], None]) -> None:
        """Do something on a thread and hand over its result, or what it raised."""

    def later(self, ms: int, call: Callable[[], None]) -> None:
        """Call after some time."""


class PasswordChecks:
    """`secret` keys the digests; `failed` is told why a check could not be made."""

    def __init__(self, runner: Runner, secret: bytes, failed: Callable[[BaseException], None]) -> None:
        self._runner = runner
        self._secret = secret
        self._failed = failed
        self._right: OrderedDict[tuple[bytes, str], None] = OrderedDict()
        self._waiting: dict[tuple[bytes, str], list[Checked]] = {}

    def check(self, name: str, password: bytes, hash: str, then: Checked) -> bool:
        """Whether a password fits the hash of a user, or, for the same time, none if there is no hash.

        False: too many wait, and `then` is not called.
        """
        key = hmac.digest(self._secret, name.encode("utf-8", "replace") + b"\0" + password, "sha256")
        compared = key, hash  # a verdict is about both: the user may have another hash when it comes
        if compared in self._right:
            then(True)
        elif compared in self._waiting:
            self._waiting[compared].append(then)
        elif len(self._waiting) >= HASHES_WAITING_MAX:
            return False
        else:
            self._waiting[compared] = [then]
            self._runner.run(lambda: passwords.fits(password, hash or passwords.DECOY), partial(self._tell, compared))
        return True

    def forget(self) -> None:
        """Remember no password: users have changed."""
        self._right.clear()

    def _tell(self, compared: tuple[bytes, str], found: bool | BaseException) -> None:
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
        tell_all([partial(then, right) for then in waiting])
