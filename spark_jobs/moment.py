"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(text: str) -> int:
    """ISO 8601, UTC unless it says otherwise (a date is its first moment), in ms since the epoch.  Raises ValueError.

    What is finer is rounded up: the same whole milliseconds lie before it.
    """
    when = datetime.fromisoformat(text)
    return -((_EPOCH - when.replace(tzinfo=when.tzinfo or UTC)) // timedelta(milliseconds=1))
