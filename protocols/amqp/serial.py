"""Serial numbers of 32 bits (RFC 1982): delivery ids, delivery counts and transfer ids wrap around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MASK: Final = 0xFFFF_FFFF
HALF: Final = 0x8000_0000


def add(number: int, increment: int) -> int:
    """The number `increment` after `number`."""
    return (number + increment) & MASK


def difference(later: int, earlier: int) -> int:
    """How far `later` is after `earlier`; negative if it is before it.

    Numbers that are exactly half the circle apart have no order (RFC 1982, 3.2): the result is then -HALF.
    """
    return ((later - earlier + HALF) & MASK) - HALF


def span(first: int, last: int) -> int:
    """The length of the range from `first` to `last`, both included: 0 or less if it is reversed."""
    return difference(last, first) + 1


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two ranges, each the first number and how many, have one in common."""
    ahead = difference(other[0], one[0])
    return -other[1] < ahead < one[1]


def following(first: int, count: int) -> Sequence[int]:
    """`count` ids from `first` on."""
    if first + count <= MASK + 1:
        return range(first, first + count)
    return [(first + at) & MASK for at in range(count)]


def ranges(ids: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of the stretches of consecutive ids, in any order; none goes beyond the largest id."""
    if not ids:
        return []
    ids = sorted(ids)
    if ids[-1] - ids[0] == len(ids) - 1:
        return [(ids[0], ids[-1])]
    found: list[tuple[int, int]] = []
    first = last = ids[0]
    for id in ids:
        if id > last + 1:
            found.append((first, last))
            first = id
        last = id
    found.append((first, last))
    return found
