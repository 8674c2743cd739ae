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

Key = TypeVar("Key", bound=tuple[str | int, ...])

_WRONG: Final = "after must be what an answer of this very list gave as `next`"


def cursor(of: str, *key: str | int) -> str:
    """The cursor for a place in the list `of` something."""
    text = json.dumps([of, *key], ensure_ascii=False, separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place(of: str, text: str, *types: type) -> tuple[str | int, ...] | None:
    """The key in a cursor, of these types; None for the beginning.  Raises Refused."""
    if not text:
        return None
    try:
        found = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        list_, *key = found
    except (ValueError, TypeError, RecursionError):
        raise Refused("invalid-cursor", _WRONG) from None
    if list_ != of or [type(each) for each in key] != list(types):
        raise Refused("invalid-cursor", _WRONG)
    return tuple(key)


def after_name(names: Sequence[str], of: str, text: str, limit: int) -> tuple[Sequence[str], str | None]:
    """The sorted names after a cursor, at most `limit`, and the next cursor if there are more.  Raises Refused."""
    key = place(of, text, str)
    start = 0 if key is None else bisect_right(names, str(key[0]))
    chosen = names[start : start + limit]
    return chosen, cursor(of, chosen[-1]) if start + limit < len(names) else None


def after_number(numbers: Sequence[int], of: str, text: str, limit: int) -> tuple[int, str | None]:
    """The index of the first rising number after a cursor, and the next cursor if more than `limit` follow."""
    key = place(of, text, int)
    start = 0 if key is None else bisect_right(numbers, int(key[0]))
    return start, cursor(of, numbers[start + limit - 1]) if start + limit < len(numbers) else None
