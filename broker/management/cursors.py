"""Cursors of lists: the key of the last entry shown, as an opaque text that callers return unchanged.

A cursor names a place in the list's order, not a count of entries, so that entries that stay are shown once whatever is
added or removed meanwhile.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, TypeVar

from broker.management.problems import Refused

Key = TypeVar("Key", str, int)

_WRONG: Final = "after must be what an answer of this very list gave as `next`"


def cursor(of: str, key: str | int) -> str:
    """The cursor for a place in the list `of` something."""
    text = json.dumps([of, key], ensure_ascii=False, separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place(of: str, text: str, first: Key) -> Key:
    """The key in a cursor; `first`, of the same type, for the beginning.  Raises Refused."""
    if not text:
        return first
    try:
        list_, key = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError, RecursionError):
        raise Refused("invalid-cursor", _WRONG) from None
    if list_ != of or type(key) is not type(first):
        raise Refused("invalid-cursor", _WRONG)
    return key


def after_name(names: Sequence[str], of: str, text: str, limit: int) -> tuple[Sequence[str], str | None]:
    """The sorted names after a cursor, at most `limit`, and the next cursor if there are more.  Raises Refused."""
    start = bisect_right(names, place(of, text, ""))
    chosen = names[start : start + limit]
    return chosen, cursor(of, chosen[-1]) if start + limit < len(names) else None


def after_number(numbers: Sequence[int], of: str, text: str, limit: int) -> tuple[int, str | None]:
    """The index of the first rising number after a cursor, and the next cursor if more than `limit` follow."""
    start = bisect_right(numbers, place(of, text, -1))
    return start, cursor(of, numbers[start + limit - 1]) if start + limit < len(numbers) else None
