"""Which segments may go, against a slow and obvious definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.space import Space


@given(
    n=st.integers(1, 7),
    live=st.lists(st.integers(1, 7)),
    refers=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7))),
    released=st.lists(st.integers(1, 7)),
)
def test_a_segment_goes_when_nothing_needs_it(
    n: int, live: list[int], refers: list[tuple[int, int]], released: list[int]
) -> None:
    space = Space()
    for segment in range(1, n + 1):
        space.opened(segment)
    held = [s for s in live if s <= n]
    for segment in held:
        space.hold(segment, 1)
    links = {(here, other) for here, other in refers if here <= n and other <= n and other < here}
    for here, other in refers:
        if here <= n:
            space.refer(here, other)
    for segment in released:
        if segment in held:
            held.remove(segment)
            space.release(segment, 1)
    upward = {(here, other) for here, other in refers if here < other <= n}
    links |= upward

    alive = set(range(1, n + 1))
    while True:
        dead = {s for s in alive if s < n and s not in held and not any((s, o) in links for o in alive)}
        if not dead:
            break
        alive -= dead
    assert space.take_dead(n) == sorted(set(range(1, n + 1)) - alive)
    assert space.segments == sorted(alive)
    assert not space.changed
    assert space.take_dead(n) == []
    assert all(space.live(s) == held.count(s) for s in alive)


def test_it_is_worth_looking_after_a_segment_was_opened_or_became_empty() -> None:
    space = Space()
    seen = []
    space.opened(1)
    seen.append(space.changed)
    space.take_dead(1)
    space.hold(1, 2)
    space.release(1, 1)
    seen.append(space.changed)
    space.release(1, 1)
    seen.append(space.changed)
    assert seen == [True, False, True]
    assert space.take_dead(1) == [], "the newest segment stays"


def test_a_pinned_segment_stays_until_all_of_it_is_unpinned() -> None:
    space = Space()
    for segment in (1, 2):
        space.opened(segment)
    space.pin(1, 10)
    space.pin(1, 5)
    assert space.pinned(1) == 15
    assert space.take_dead(2) == []
    space.unpin(1, 10)
    assert (space.pinned(1), space.take_dead(2)) == (5, [])
    space.unpin(1, 5)
    assert space.changed
    assert (space.pinned(1), space.take_dead(2)) == (0, [1])


def test_only_complete_segments_are_cleaned_and_only_from_so_many_on() -> None:
    space = Space()
    for segment in (1, 2, 3):
        space.opened(segment)
    space.completed(1, 100, 7, 20)
    assert space.to_clean(files_min=2, percentage=100) is None
    space.completed(2, 100, 9, 30)
    assert space.to_clean(files_min=2, percentage=0) == 1, "nothing in them is alive: that is no more than 0 %"
    assert (space.bound(1), space.bound(2)) == (7, 9)
    assert (space.end(1), space.end(2)) == (20, 30)


@pytest.mark.parametrize(("percentage", "cleaned"), [(29, None), (30, 1)])
def test_how_much_is_alive(percentage: int, cleaned: int | None) -> None:
    """Half of 100 bytes, none of 100 of which nothing was ever stored, and 10 that are pinned: 60 of 200."""
    space = Space()
    for segment in (1, 2, 3):
        space.opened(segment)
    space.hold(1, 4)
    space.release(1, 2)
    space.pin(2, 10)
    space.hold(3, 1)
    space.pin(3, 1000)  # that one is not complete: it counts neither way
    space.completed(1, 100, 7, 20)
    space.completed(2, 100, 7, 30)
    assert space.to_clean(files_min=2, percentage=percentage) == cleaned


@pytest.mark.parametrize(("live", "cleaned"), [(0, 1), (2, 1), (3, None)])
def test_on_a_full_disk_the_oldest_segment_is_cleaned_unless_most_of_it_is_live(live: int, cleaned: int | None) -> None:
    space = Space()
    assert space.to_clean_when_full() is None
    for segment in (1, 2):
        space.opened(segment)
    space.hold(1, 4)
    space.release(1, 4 - live)
    assert space.to_clean_when_full() is None, "only complete segments are"
    for segment in (1, 2):
        space.completed(segment, 100, 7, 20)
    assert space.to_clean_when_full() == cleaned


def test_segments_that_are_found_or_trimmed_twice_are_so_once() -> None:
    space = Space()
    for segment in (1, 1, 2):
        space.found(segment)
    space.trimmed([1, 1])
    assert space.segments == [2]


def test_removed_messages_count_no_more() -> None:
    space = Space()
    for segment in (1, 2, 3):
        space.opened(segment)
        space.completed(segment, 100, 7, 20)
    space.hold(2, 1)
    assert space.take_dead(3) == [1]
    assert space.to_clean(files_min=3, percentage=100) is None
    assert space.to_clean(files_min=2, percentage=49) is None
    assert space.to_clean(files_min=2, percentage=50) == 2
    assert (space.live(1), space.pinned(1)) == (0, 0)
