"""The issuer's keys by URL: fetched beside the event loop, again from time to time, and when a token names a new one.

The last set that was good stays in force, whatever the issuer answers later.  A token with an unknown key makes the set
be fetched at once, but not more often than `UNKNOWN_MS`, so that nobody can make the broker call its issuer at will;
those who come meanwhile wait for the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.engine.core import Report
from broker.security.tokens import KeySet

#: Milliseconds between two fetches for keys that nobody knows.
UNKNOWN_MS: Final = 30_000

#: Logins that wait for keys at once; more are refused, and may come back.
WAITING_MAX: Final = 256

#: Gets the bytes of a URL.  Raises OSError, ValueError.
Fetch = Callable[[], bytes]


class Aside(Protocol):
    """Where a fetch is done."""

    def aside(self, work: Callable[[], bytes | str], then: Callable[[bytes | str], None]) -> None:
        """Do something that may take seconds on a thread of its own, and hand over what came of it within a tick."""


class FetchedKeys:
    """The keys of one URL.  `now` is the monotonic time in ms."""

    def __init__(self, fetch: Fetch, aside: Aside, *, report: Report, now: Callable[[], int], refresh: int) -> None:
        self.present: KeySet | None = None
        self._fetch = fetch
        self._aside = aside
        self._report = report
        self._now = now
        self._refresh = refresh
        self._asked_at: int | None = None
        self._waiting: list[Callable[[], None]] = []
        self._fetching = False

    def look(self) -> None:
        """Called from time to time: fetches when that is due."""
        due = self._refresh if self.present is not None else UNKNOWN_MS
        if not self._fetching and (self._asked_at is None or self._now() - self._asked_at >= due):
            self._begin()

    def renew(self, then: Callable[[], None]) -> None:
        """Call when the keys are as new as they may be: after a fetch, or at once if the last was just now."""
        if len(self._waiting) >= WAITING_MAX:
            then()
            return
        if not self._fetching and self._asked_at is not None and self._now() - self._asked_at < UNKNOWN_MS:
            then()
            return
        self._waiting.append(then)
        if not self._fetching:
            self._begin()

    def _begin(self) -> None:
        self._fetching = True
        self._asked_at = self._now()
        self._aside.aside(self._try, self._fetched)

    def _try(self) -> bytes | str:
        try:
            return self._fetch()
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__

    def _fetched(self, answer: bytes | str) -> None:
        self._fetching = False
        try:
            if isinstance(answer, str):
                raise ValueError(answer)
            self.present = KeySet(answer)
        except ValueError as error:
            self._report("security.keys_failed", error=str(error))
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
