"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(text: str) -> int:
    """ISO 8601, UTC unless it says otherwise (a date is its first moment), in ms since the epoch.  Raises ValueError.

    What is finer is rounded up: the same whole milliseconds lie before it.  Digits alone (20260301) could be a date, a
    position or milliseconds: they are refused.
    """
    if text.isdigit():
        raise ValueError(f"{text} could be a date, a position or milliseconds: write 2026-03-01T12:00:00Z for a time")
    when = datetime.fromisoformat(text)
    return -((_EPOCH - when.replace(tzinfo=when.tzinfo or UTC)) // timedelta(milliseconds=1))


def milliseconds(when: datetime | None) -> int:
    """A time with its zone in ms since the epoch, 0 for none; what is finer is cut off."""
    return 0 if when is None else (when - _EPOCH) // timedelta(milliseconds=1)
