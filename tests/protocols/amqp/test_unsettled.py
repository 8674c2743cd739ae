"""The unsettled deliveries of a session, against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp.serial import HALF, MASK, add
from protocols.amqp.unsettled import PORTION_MAX, Run, Unsettled

firsts = st.sampled_from([0, 5, MASK - 3, HALF - 2, HALF + 1])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 700)),
        st.tuples(st.just("each"), st.text("abc", min_size=1, max_size=5), st.integers(1, 700)),
        st.tuples(st.just("skip"), st.just(""), st.integers(1, 3)),
        st.tuples(st.sampled_from(["take", "look", "remove", "blank"]), st.integers(-20, 900), st.integers(1, 900)),
        st.tuples(st.just("forget"), st.sampled_from("abc"), st.just(0)),
    ),
    max_size=30,
)


def flat(runs: list[Run[str]]) -> list[tuple[int, str, object]]:
    """Id, link and context of each delivery of some runs."""
    return [(add(run.first, at), run.owner, context) for run in runs for at, context in enumerate(run.contexts)]


def looked_at(unsettled: Unsettled[str], first: int, length: int) -> list[Run[str]]:
    """What a look at a range finds, in portions."""
    found: list[Run[str]] = []
    while length > 0:
        some = unsettled.portion(first, length)
        assert 0 < some <= length
        found += unsettled.look(first, some)
        first, length = add(first, some), length - some
    return found


@given(firsts, steps)
def test_against_a_dictionary(first: int, script: list[tuple[str, str, int]]) -> None:
    unsettled: Unsettled[str] = Unsettled()
    model: dict[int, tuple[str, object]] = {}
    following = first
    for verb, subject, count in script:
        if verb == "add":
            contexts: list[object] = [f"{following}+{at}" for at in range(count)]
            unsettled.add(subject, following, contexts)
            model |= {add(following, at): (subject, context) for at, context in enumerate(contexts)}
            following = add(following, count)
        elif verb == "each":
            owners = [subject[at % len(subject)] for at in range(count)]
            unsettled.add_each(owners, following, [f"{following}+{at}" for at in range(count)])
            model |= {add(following, at): (owner, f"{following}+{at}") for at, owner in enumerate(owners)}
            following = add(following, count)
        elif verb == "skip":
            following = add(following, count)
        elif verb == "forget":
            gone = unsettled.forget(subject)
            numbers = [add(begin, at) for begin, length in gone for at in range(length)]
            assert numbers == [number for number, held in model.items() if held[0] == subject]
            model = {number: held for number, held in model.items() if held[0] != subject}
        else:
            begin = add(first, int(subject))
            numbers = [add(begin, at) for at in range(count)]
            expected = [(number, *model[number]) for number in numbers if number in model]
            if verb == "take":
                assert flat(unsettled.take(begin, count)) == expected
                for number, _, _ in expected:
                    del model[number]
            elif verb == "blank":
                unsettled.blank(begin, count)
                model |= {number: (owner, None) for number, owner, _ in expected}
            elif verb == "remove":
                unsettled.remove(begin, count)
                for number, _, _ in expected:
                    del model[number]
            else:
                known = [row for row in expected if row[2] is not None]
                assert flat(unsettled.look(begin, count)) == known
                assert flat(looked_at(unsettled, begin, count)) == known
        assert unsettled.count == len(model)
        assert unsettled.room(following) == HALF - ((following - next(iter(model), following)) & MASK)
    assert flat(unsettled.take(first, HALF - 1)) == [(n, *held) for n, held in model.items()]
    assert unsettled.count == 0


def test_in_order_one_by_one() -> None:
    unsettled: Unsettled[str] = Unsettled()
    unsettled.add("a", MASK, list(range(1000)))
    for number in range(1000):
        assert flat(unsettled.take(add(MASK, number), 1)) == [(add(MASK, number), "a", number)]
    assert unsettled.take(0, 100) == []
    assert unsettled.count == 0


def test_messages_one_by_one_are_one_run() -> None:
    unsettled: Unsettled[str] = Unsettled()
    for number in range(1000):
        unsettled.add("a", number, [number])
    [run, rest] = unsettled.look(0, 1000)
    assert (run.contexts, len(rest.contexts)) == (list(range(512)), 488)


def test_links_that_take_turns_do_not_split() -> None:
    a, b = "a", "b"
    unsettled: Unsettled[str] = Unsettled()
    for number in range(500):
        unsettled.add((a, b)[number % 2], number, [number])
    assert len(unsettled._stretches) == 1
    unsettled.forget(a)
    assert flat(unsettled.look(0, 4)) == [(1, "b", 1), (3, "b", 3)]
    assert unsettled.count == 250


def test_any_range_costs_no_more_than_the_runs() -> None:
    unsettled: Unsettled[str] = Unsettled()
    unsettled.add("a", 10, ["x"])
    for first in (0, 11, HALF, MASK):
        assert flat(unsettled.look(first, HALF - 1)) == ([(10, "a", "x")] if first in (0, MASK) else [])


@pytest.mark.parametrize("settled", ["look", "take"])
def test_a_range_with_holes_is_divided_into_portions(settled: str) -> None:
    unsettled: Unsettled[str] = Unsettled()
    unsettled.add("a", MASK - 500, list(range(2000)))
    for number in range(1, 2000, 2):
        unsettled.take(add(MASK - 500, number), 1)
    first, length, sizes = add(MASK - 500, -5), HALF, []
    while length:
        some = unsettled.portion(first, length)
        sizes.append(len(flat(getattr(unsettled, settled)(first, some))))
        first, length = add(first, some), length - some
    assert sum(sizes) == 1000
    assert max(sizes) == PORTION_MAX
    assert len(sizes) <= 1000 // PORTION_MAX + 2


def test_blank_entries_are_not_looked_at() -> None:
    unsettled: Unsettled[str] = Unsettled()
    unsettled.add("a", 0, list(range(10)))
    unsettled.blank(2, 3)
    assert flat(unsettled.look(0, 6)) == [(0, "a", 0), (1, "a", 1), (5, "a", 5)]
    assert unsettled.look(2, 3) == []
    assert flat(unsettled.take(1, 2)) == [(1, "a", 1), (2, "a", None)]


def test_room_for_ids() -> None:
    unsettled: Unsettled[str] = Unsettled()
    assert unsettled.room(5) == HALF
    unsettled.add("a", 5, ["x", "y"])
    assert unsettled.room(7) == HALF - 2
    assert unsettled.room(add(5, HALF - 1)) == 1
    assert unsettled.room(add(5, HALF)) == 0
    unsettled.take(5, 1)
    assert unsettled.room(add(5, HALF)) == 1
