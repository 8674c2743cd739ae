"""Places from the journal, against a dictionary."""

from __future__ import annotations

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.queues.paging import fold
from broker.engine.queues.paging.fold import Places, Row


def row(id: int, segment: int = 1) -> Row:
    return Row(id, id % 10, segment, 8 * id, 100 + id, id % 3)


def test_ids_that_rise_are_one_run_in_blocks() -> None:
    places = Places()
    count = fold.BLOCK_ROWS + 10
    for id in range(1, count + 1):
        places.put(*astuple(row(id)))
    places.remove(1)
    places.remove(fold.BLOCK_ROWS + 1)
    places.remove(count + 1)
    assert len(places) == count - 2
    assert places.segment_of(1) == 0
    assert places.get(fold.BLOCK_ROWS) == row(fold.BLOCK_ROWS)
    taken = [found.id for found in places.take_all()]
    assert taken == [*range(2, fold.BLOCK_ROWS + 1), *range(fold.BLOCK_ROWS + 2, count + 1)]
    assert len(places) == 0


def test_what_is_written_anew_keeps_its_place_in_line() -> None:
    places = Places()
    for id in (1, 2, 3):
        places.put(*astuple(row(id)))
    places.put_again(*astuple(row(2, segment=9)))
    places.put(*astuple(row(4)))
    places.put_again(*astuple(row(0, segment=9)))
    assert [(found.id, found.segment) for found in places.take_all()] == [(0, 9), (1, 1), (2, 9), (3, 1), (4, 1)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=200))
def test_any_order(steps: list[tuple[bool, int]]) -> None:
    places = Places()
    expected: dict[int, Row] = {}
    for segment, (puts, id) in enumerate(steps, 1):
        if puts:
            places.put_again(*astuple(row(id, segment)))
            before = expected.get(id, row(id))
            expected[id] = Row(id, before.priority, segment, 8 * id, 100 + id, before.expiration)
        else:
            places.remove(id)
            expected.pop(id, None)
        assert len(places) == len(expected)
        assert places.segment_of(id) == (expected[id].segment if id in expected else 0)
    assert sorted(places.ids()) == sorted(expected)
    assert list(places.take_all()) == [expected[id] for id in sorted(expected)]
