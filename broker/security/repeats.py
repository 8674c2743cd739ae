"""Counts events for the audit log that clients can repeat at will: by code, user and address, in periods.

The first event of an origin in a period is written as it is; the others are counted, and their number is written at
the end of the period.  So a flood of them does not displace the logins and changes of others from the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: How long events are counted before their number is written, in ms.
PERIOD_MS: Final = 300_000

#: Origins in a period that are counted by user and address, and as many by address only; all others are counted
#: together.  So at most some 800 lines are written in a period, 200 KB.
ORIGINS_MAX: Final = 200

#: A code, the user and the address; empty: any.
Origin = tuple[str, str, str]


class Repeats:
    """The counted events of the current period; times are ms of one clock."""

    def __init__(self) -> None:
        self._since = 0
        self._counts: dict[Origin, int] = {}
        self._by_address = 0  # of these, the ones without a user because there were too many

    def note(self, code: str, fields: Mapping[str, str | int], now: int) -> bool:
        """Count an event; whether it is the first of its origin in this period, to be written as it is."""
        if not self._counts:
            self._since = now
        address = str(fields.get("remote", "")).rpartition(":")[0]
        origin = (code, str(fields.get("user", "")), address)
        if origin not in self._counts and len(self._counts) - self._by_address >= ORIGINS_MAX:
            origin = (code, "", address)
            if origin not in self._counts and self._by_address >= ORIGINS_MAX:
                origin = (code, "", "")
            self._by_address += origin not in self._counts
        first = origin not in self._counts
        self._counts[origin] = self._counts.get(origin, -1) + 1
        return first

    def is_over(self, now: int) -> bool:
        """Whether a period with events is over."""
        return bool(self._counts) and now - self._since >= PERIOD_MS

    def take(self) -> list[tuple[str, dict[str, str | int]]]:
        """The code and fields of each summary, and begin another period."""
        counts, self._counts, self._by_address = self._counts, {}, 0
        return [
            (code, {"user": user, "origin": address, "more": more})
            for (code, user, address), more in counts.items()
            if more
        ]
