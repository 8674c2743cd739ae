"""The tail by itself: chunks, their rows, and what it counts."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.paging.columns import Columns
from broker.engine.queues.paging.tail import CHUNK_BYTES_MAX, CHUNK_MESSAGES_MAX, Chunk, Tail
from tests.support.attributes import attributes_of


def tail(**settings: int) -> Tail:
    return Tail(Address(1, "a", {RoutingType.ANYCAST}, AddressSettings(**settings)))  # type: ignore[arg-type]


def ids(tail: Tail) -> list[list[int]]:
    return [[chunk.ids[row] for row in chunk.rows()] for chunk in tail.chunks()]


def test_chunks_follow_each_other_by_priority() -> None:
    paged = tail(max_read_page_messages=16)
    for id in range(1, 6):
        paged.add(4, id, 1, 100 * id, 100)
    paged.add(9, 6, 1, 600, 100)
    assert ids(paged) == [[6], [1, 2], [3, 4], [5]]
    assert paged.high == 9
    first = paged.first()
    assert first is not None
    paged.take(first)
    assert paged.high == 4
    assert (paged.messages, paged.bytes) == (5, 500)
    assert (paged.address.paged_messages, paged.address.paged_bytes) == (5, 500)


def test_a_chunk_has_its_limits() -> None:
    paged = tail()
    for id in range(1, CHUNK_MESSAGES_MAX + 2):
        paged.add(4, id, 1, id, 1)
    assert [chunk.count for chunk in paged.chunks()] == [CHUNK_MESSAGES_MAX, 1]
    large = tail()
    for id in range(1, 4):
        large.add(4, id, 1, id, CHUNK_BYTES_MAX // 2)
    assert [chunk.count for chunk in large.chunks()] == [2, 1]


def test_a_row_takes_20_bytes_and_28_with_an_expiration() -> None:
    chunk = Chunk(4, 1)
    chunk.add(1, 2, 3, 4, 0)
    assert sum(a.itemsize for a in (chunk.ids, chunk.segments, chunk.offsets, chunk.sizes)) == 20
    assert not chunk.expirations
    chunk.add(2, 2, 3, 4, 99)
    assert list(chunk.expirations or ()) == [0, 99]
    assert chunk.expirations is None or chunk.expirations.itemsize == 8


def test_rows_leave_from_the_middle_and_the_empty_chunk_with_them() -> None:
    paged = tail(max_read_page_messages=24)
    for id in range(1, 8):
        paged.add(4, id, 1, id, 10)
    first, second, _ = paged.chunks()
    paged.drop(first, [1])
    paged.drop(second, [0, 1, 2])
    assert ids(paged) == [[1, 3], [7]]
    assert (paged.messages, paged.bytes) == (3, 30)
    paged.drop(first, [0, 2])
    assert ids(paged) == [[7]]


def test_damaged_messages_are_counted_and_not_in_line() -> None:
    paged = tail()
    for id in range(1, 4):
        paged.add(4, id, 1, id, 10)
    (chunk,) = paged.chunks()
    paged.damage(chunk, [0, 2])
    assert ids(paged) == [[2]]
    assert (paged.messages, paged.bytes) == (3, 30)
    (damaged,) = paged.damaged
    assert list(damaged.ids) == [1, 3]
    paged.take(damaged)
    assert (paged.messages, paged.damaged) == (1, [])


def test_expirations_of_rows_that_are_there() -> None:
    chunk = Chunk(4, 1)
    for id, expiration in ((1, 50), (2, 0), (3, 20), (4, 70)):
        chunk.add(id, 1, id, 10, expiration)
    assert chunk.next_expiration() == 20
    assert chunk.due(50) == [0, 2]
    chunk.sizes[2] = 0
    assert chunk.next_expiration() == 50
    assert chunk.due(50) == [0]


def test_a_chunk_knows_whether_its_records_follow_each_other() -> None:
    chunk = Chunk(4, 1)
    chunk.add(1, 2, 100, 50, 0)
    chunk.add(2, 2, 150, 50, 0)
    chunk.add(3, 2, 260, 40, 0)
    assert chunk.end == 300, "an entry may begin between two of them"
    chunk.add(4, 3, 300, 50, 0)
    assert chunk.end == -1, "in another segment"
    for places in ([(2, 100), (2, 90)], [(0, 0)], [(2, 100), (0, 0)]):
        chunk = Chunk(4, 1)
        for id, (segment, offset) in enumerate(places, 1):
            chunk.add(id, segment, offset, 50, 0)
        assert chunk.end == -1, places
    moved = Chunk(4, 1)
    moved.add(1, 2, 100, 50, 0)
    moved.move(0, 9, 8, 60)
    assert moved.end == -1


#: What a row of a restored tail has: bytes before its record, its size, its segment, when it expires.
ROWS = st.tuples(st.integers(0, 3), st.integers(1, 5000), st.integers(1, 2), st.sampled_from([0, 0, 0, 7, 9]))


@given(
    earlier=st.integers(0, 3),
    parts=st.lists(st.tuples(st.sampled_from([4, 9]), st.lists(ROWS, min_size=1, max_size=40)), max_size=5),
)
def test_many_rows_at_once_are_as_one_after_the_other(
    earlier: int, parts: list[tuple[int, list[tuple[int, int, int, int]]]]
) -> None:
    one, many = (tail(max_read_page_messages=64, max_read_page_bytes=8 * 8192) for _ in range(2))
    id = offset = 0
    for paged in (one, many):
        for number in range(earlier):
            paged.add(4, 1 + number, 1, number, 1)
    id = offset = earlier
    for priority, rows in parts:
        added = Columns(array("B"))
        for gap, size, segment, expiration in rows:
            id += 1
            offset += gap
            one.add(priority, id, segment, offset, size, expiration)
            added.add_run([id], [offset], [size], segment=segment, priority=priority, expiration=expiration)
            offset += size
        chunks = many.extend(priority, added)
        assert [chunk for chunk in many.levels[priority] if chunk.ids[-1] > id - len(rows)] == chunks
    assert [state(chunk) for chunk in many.chunks()] == [state(chunk) for chunk in one.chunks()]
    assert (many.messages, many.bytes) == (one.messages, one.bytes)
    assert (many.address.paged_messages, many.address.paged_bytes) == (one.messages, one.bytes)


def state(chunk: Chunk) -> dict[str, object]:
    """All that a chunk says."""
    return attributes_of(chunk)
