"""Where a list goes on: the key of what was shown last, in a text that callers hand back as they got it.

It names a place in the list's order, not a number of things before it, so that whatever comes and goes meanwhile, what
stays is shown once.
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
    """The text for a place in the list `of` something."""
    text = json.dumps([of, *key], ensure_ascii=False, separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place(of: str, text: str, *types: type) -> tuple[str | int, ...] | None:
    """The key that a text names, of these types; None for the beginning.  Raises Refused."""
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
    """Of sorted names those after a place, and the text for the next ones, if there are more.  Raises Refused."""
    key = place(of, text, str)
    start = 0 if key is None else bisect_right(names, str(key[0]))
    chosen = names[start : start + limit]
    return chosen, cursor(of, chosen[-1]) if start + limit < len(names) else None


def after_number(numbers: Sequence[int], of: str, text: str, limit: int) -> tuple[int, str | None]:
    """Of rising numbers the place of the first after a cursor, and the text for those after `limit` of them."""
    key = place(of, text, int)
    start = 0 if key is None else bisect_right(numbers, int(key[0]))
    return start, cursor(of, numbers[start + limit - 1]) if start + limit < len(numbers) else None
