"""Due times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.timetable import NEVER, STALE_DUES_MAX, Soonest, Timetable


def test_empty() -> None:
    table: Timetable[int, str] = Timetable()
    assert len(table) == 0
    assert table.next_due() is None
    assert table.pop_due(1 << 60, 10) == []
    assert not table.remove(5, 1)


def test_earliest_first_and_only_what_is_due() -> None:
    table: Timetable[int, str] = Timetable()
    for due, key, value in [(30, 1, "c"), (10, 2, "a"), (20, 3, "b"), (10, 4, "A")]:
        table.add(due, key, value)
    assert table.next_due() == 10
    assert table.pop_due(9, 10) == []
    assert table.pop_due(20, 10) == ["a", "A", "b"]
    assert table.next_due() == 30
    assert len(table) == 1


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_the_limit_may_cut_a_millisecond_in_two(limit: int) -> None:
    table: Timetable[int, int] = Timetable()
    for key in range(5):
        table.add(7, key, key)
    assert table.pop_due(7, limit) == list(range(limit))
    assert len(table) == 5 - limit
    assert table.pop_due(7, 10) == list(range(limit, 5))


def test_the_same_key_at_the_same_time_replaces() -> None:
    table: Timetable[int, str] = Timetable()
    table.add(5, 1, "old")
    table.add(5, 1, "new")
    assert len(table) == 1
    assert table.pop_due(5, 9) == ["new"]


def test_a_removed_entry_leaves_nothing_behind() -> None:
    table: Timetable[int, int] = Timetable()
    for n in range(4 * STALE_DUES_MAX):
        table.add(n + 1, n, n)
        assert table.remove(n + 1, n)
    assert len(table) == 0
    assert len(table._heap) <= STALE_DUES_MAX + 1
    assert table.next_due() is None


def test_a_large_millisecond_is_listed_once() -> None:
    """However many calls empty it: a million messages may expire in the same one."""
    table: Timetable[int, int] = Timetable()
    for key in range(100):
        table.add(7, key, key)
    assert table.pop_due(7, 10) == list(range(10))
    begun = table._begun[1]
    assert table.remove(7, 15)
    assert table.pop_due(7, 10) == [*range(10, 15), *range(16, 21)]
    assert table._begun[1] is begun
    table.add(7, 15, 15)
    assert table.pop_due(7, 100) == [*range(21, 100), 15]


_steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "pop"]), st.integers(1, 8), st.integers(0, 4)))


@given(_steps)
def test_it_does_what_a_sorted_list_does(steps: list[tuple[str, int, int]]) -> None:
    table: Timetable[int, tuple[int, int]] = Timetable()
    model: dict[tuple[int, int], None] = {}
    for step, due, key in steps:
        if step == "add":
            table.add(due, key, (due, key))
            model.setdefault((due, key))
        elif step == "remove":
            assert table.remove(due, key) == ((due, key) in model)
            model.pop((due, key), None)
        else:
            expected = [item for item in sorted(model, key=lambda item: item[0]) if item[0] <= due][:key]
            assert table.pop_due(due, key) == expected
            for item in expected:
                del model[item]
        assert len(table) == len(model)
        assert table.next_due() == min((due for due, _ in model), default=None)


def test_several_timetables_share_the_soonest_of_their_times() -> None:
    soonest = Soonest()
    one: Timetable[str, str] = Timetable(soonest)
    other: Timetable[str, str] = Timetable(soonest)
    assert soonest.at == NEVER

    one.add(700, "a", "A")
    assert soonest.at == 700
    other.add(900, "b", "B")
    assert soonest.at == 700
    other.add(300, "c", "C")
    assert soonest.at == 300


def test_the_soonest_is_too_early_rather_than_too_late() -> None:
    soonest = Soonest()
    table: Timetable[str, str] = Timetable(soonest)
    table.add(300, "a", "A")
    table.remove(300, "a")
    assert soonest.at == 300, "until somebody asks the timetables"

    soonest.at = NEVER
    table.add(500, "b", "B")
    assert soonest.at == 500
