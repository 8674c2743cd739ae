"""Reading times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(text: str) -> int:
    """Convert an ISO 8601 time to ms since the epoch.  Raises ValueError.

    It is in UTC unless it has a zone; a date is its first moment.  Fractions of milliseconds are rounded up, so that
    the same whole milliseconds are before it.  Digits alone (20260301) are refused: they could be a date, a position or
    milliseconds.
    """
    if text.isdigit():
        raise ValueError(f"{text} could be a date, a position or milliseconds: write 2026-03-01T12:00:00Z for a time")
    when = datetime.fromisoformat(text)
    return -((_EPOCH - when.replace(tzinfo=when.tzinfo or UTC)) // timedelta(milliseconds=1))


def milliseconds(when: datetime | None) -> int:
    """A time with a zone, in ms since the epoch, 0 for None; fractions are cut off."""
    return 0 if when is None else (when - _EPOCH) // timedelta(milliseconds=1)
