"""The issuer's keys by URL: fetched off the event loop, periodically, and when a token names a new key.

The last valid set stays in force, whatever the issuer answers later.  A token with an unknown key triggers a fetch, but
not more often than every `UNKNOWN_MS`, so that clients cannot make the broker call its issuer at will; logins in the
meantime wait for the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.engine.model.report import Report
from broker.security.tokens import KeySet
from broker.sessions.login import call_all

#: Milliseconds between fetches for unknown keys.
UNKNOWN_MS: Final = 30_000

#: Logins that wait for keys at once; further ones are refused, and can be retried.
WAITING_MAX: Final = 256

#: Gets the bytes of a URL.  Raises OSError, ValueError.
Fetch = Callable[[], bytes]


class Background(Protocol):
    """Runs fetches in a thread."""

    def aside(self, work: Callable[[], bytes], then: Callable[[bytes | BaseException], None]) -> None:
        """Run `work`, which may take seconds, in a thread; pass its result or exception to `then`, within a tick."""


class FetchedKeys:
    """The keys of one URL.  `now` is the monotonic time in ms."""

    def __init__(
        self, fetch: Fetch, aside: Background, *, report: Report, now: Callable[[], int], refresh: int
    ) -> None:
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
        """Fetch if it is due; called periodically."""
        due = self._refresh if self.present is not None else UNKNOWN_MS
        if not self._fetching and (self._asked_at is None or self._now() - self._asked_at >= due):
            self._begin()

    def renew(self, then: Callable[[], None]) -> None:
        """Call `then` once the keys are fresh: after a fetch, or at once if the last one was just done."""
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
        self._aside.aside(self._fetch, self._fetched)

    def _fetched(self, answer: bytes | BaseException) -> None:
        self._fetching = False
        fault: BaseException | None = None
        if isinstance(answer, BaseException):
            fault = answer
        else:
            try:
                self.present = KeySet(answer)
            except Exception as error:
                fault = error
        if fault is not None:  # whatever it is, the keys stay, and waiting logins continue
            self._report("security.keys_failed", error=str(fault) or type(fault).__name__)
        waiting, self._waiting = self._waiting, []
        call_all(waiting)
