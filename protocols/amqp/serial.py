"""Serial numbers of 32 bits (RFC 1982): delivery ids, delivery counts and transfer ids wrap around."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFF_FFFF
HALF: Final = 0x8000_0000


def add(number: int, increment: int) -> int:
    """The number `increment` after `number`."""
    return (number + increment) & MASK


def difference(later: int, earlier: int) -> int:
    """How far `later` is after `earlier`; negative if it is before it.

    Numbers that are just half the circle apart have no order (RFC 1982, 3.2): the answer is then -HALF.
    """
    return ((later - earlier + HALF) & MASK) - HALF


def span(first: int, last: int) -> int:
    """How many numbers the range from `first` to `last` has, both included: 0 or less if it is reversed."""
    return difference(last, first) + 1
