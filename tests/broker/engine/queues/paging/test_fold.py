"""Places from the journal, against a dictionary."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.queues.paging import fold
from broker.engine.queues.paging.columns import Row
from broker.engine.queues.paging.fold import Places


def row(id: int, segment: int = 1) -> Row:
    return Row(id, id % 10, segment, 8 * id, 100 + id, id % 3)


def put(places: Places, *rows: Row) -> None:
    """Rows that differ in id and place."""
    ids, offsets, sizes = [r.id for r in rows], [r.offset for r in rows], [r.size for r in rows]
    first = rows[0]
    places.put(ids, offsets, sizes, segment=first.segment, priority=first.priority, expiration=first.expiration)


def put_again(places: Places, row: Row) -> None:
    """One row."""
    places.put_again(
        row.id, row.offset, row.size, segment=row.segment, priority=row.priority, expiration=row.expiration
    )


def taken(places: Places) -> list[Row]:
    """All rows, as they leave."""
    return [rows.row(at) for rows in places.take_all() for at in range(len(rows.ids))]


def test_ids_that_rise_are_one_run_in_blocks() -> None:
    places = Places()
    count = fold.BLOCK_ROWS + 10
    for id in range(1, count + 1):
        put(places, row(id))
    places.remove([1, fold.BLOCK_ROWS + 1, count + 1])
    assert len(places) == count - 2
    assert places.segments_of([1]) == set()
    assert (places.get(fold.BLOCK_ROWS), places.get(1)) == (row(fold.BLOCK_ROWS), None)
    ids = [found.id for found in taken(places)]
    assert ids == [*range(2, fold.BLOCK_ROWS + 1), *range(fold.BLOCK_ROWS + 2, count + 1)]
    assert len(places) == 0
    assert places.get(fold.BLOCK_ROWS) is None


def test_rewritten_messages_keep_their_place_in_line() -> None:
    places = Places()
    for id in (1, 2, 3):
        put(places, row(id))
    put_again(places, row(2, segment=9))
    put(places, row(4))
    put_again(places, row(0, segment=9))
    assert [(found.id, found.segment) for found in taken(places)] == [(0, 9), (1, 1), (2, 9), (3, 1), (4, 1)]


def test_messages_of_one_run_are_put_and_removed_together() -> None:
    places = Places()
    rows = [replace(row(4, segment=2), id=id, offset=100 * id, size=id) for id in range(4, 40)]
    put(places, *rows)
    put(places, row(50, segment=3))
    assert places.segments_of([5, 6, 50, 51]) == {2, 3}
    places.remove([4, 5, 6, 9, 8, 39, 50, 50, 4])
    assert [found.id for found in taken(places)] == [7, *range(10, 39)]


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 40), min_size=1, max_size=6)), max_size=200))
def test_any_order(steps: list[tuple[bool, list[int]]]) -> None:
    places = Places()
    expected: dict[int, Row] = {}
    for segment, (puts, ids) in enumerate(steps, 1):
        if puts:
            for id in ids:
                put_again(places, row(id, segment))
                before = expected.get(id, row(id))
                expected[id] = Row(id, before.priority, segment, 8 * id, 100 + id, before.expiration)
        else:
            assert places.segments_of(ids) == {expected[id].segment for id in ids if id in expected}
            places.remove(ids)
            for id in ids:
                expected.pop(id, None)
        assert len(places) == len(expected)
        assert [places.get(id) for id in ids] == [expected.get(id) for id in ids]
        assert [id in places for id in ids] == [id in expected for id in ids]
    assert sorted(places.ids()) == sorted(expected)
    assert places.bytes == sum(each.size for each in expected.values())
    assert taken(places) == [expected[id] for id in sorted(expected)]
