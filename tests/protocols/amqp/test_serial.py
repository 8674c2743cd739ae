"""Serial number arithmetic (RFC 1982)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.serial import HALF, MASK, add, difference, following, overlap, ranges, span

numbers = st.integers(0, MASK)


@given(numbers, st.integers(-HALF + 1, HALF - 1))
def test_adding_and_comparing(number: int, increment: int) -> None:
    later = add(number, increment)
    assert 0 <= later <= MASK
    assert difference(later, number) == increment
    assert difference(number, later) == -increment
    assert span(number, later) == increment + 1


@given(numbers, st.integers(1, 9), st.integers(-12, 12), st.integers(1, 9))
def test_ranges_that_overlap(first: int, length: int, ahead: int, other: int) -> None:
    common = set(range(length)) & set(range(ahead, ahead + other))
    assert overlap((first, length), (add(first, ahead), other)) is bool(common)


def test_wrapping_around() -> None:
    assert add(MASK, 1) == 0
    assert add(0, -1) == MASK
    assert difference(0, MASK) == 1
    assert difference(MASK, 0) == -1
    assert span(MASK, 0) == 2
    assert span(5, 5) == 1
    assert span(5, 4) == 0


@given(numbers)
def test_numbers_half_the_circle_apart_have_no_order(number: int) -> None:
    assert difference(add(number, HALF), number) == difference(number, add(number, HALF)) == -HALF


@given(st.sampled_from([0, 7, MASK - 2, MASK]), st.integers(0, 20))
def test_following(first: int, count: int) -> None:
    assert list(following(first, count)) == [add(first, at) for at in range(count)]


@given(st.sets(st.one_of(st.integers(0, 12), st.integers(MASK - 5, MASK))), st.randoms())
def test_ranges(ids: set[int], random: Random) -> None:
    shuffled = list(ids)
    random.shuffle(shuffled)
    found = ranges(shuffled)
    assert [id for first, last in found for id in range(first, last + 1)] == sorted(ids)
    assert all(after > before + 1 for (_, before), (after, _) in pairwise(found))
