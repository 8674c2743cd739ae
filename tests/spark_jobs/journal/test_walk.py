"""Where records are, and what damage is found: never a wrong record, never a wrong number of lost ones."""

from __future__ import annotations

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.journal import offsets
from spark_jobs.journal import walk as walking
from spark_jobs.journal.walk import UNKNOWN, Hole, Walk, walk
from store import record
from store import segment as segments
from store.errors import Corrupt
from store.recovery import torn_bytes
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, Scan, decode_header, scan
from store.segment_directory import open_segment
from tests.spark_jobs.journal import making, oracle
from tests.spark_jobs.journal.making import ENTRIES, entry, every_record, message, segment

Record = tuple[int, int, int, int]  # offset, position, time, type

#: Three entries of three records each, then the following segment begins.
ENTRIES_OF_THREE = [[message(3 * e + r, body=b"x" * r) for r in range(3)] for e in range(3)]
SMALL = segment(ENTRIES_OF_THREE, first=101)
NEXT = 110
STARTS = [head.offset for head in scan(SMALL, decode_header(SMALL)).entries]


def records(found: Walk) -> list[Record]:
    columns = (found.offsets, found.positions, found.times, found.types)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected(data: bytes, number: int = 1) -> list[Record]:
    return [(offset, position, time, type) for _, position, time, type, _, offset in oracle.raw(data, number)]


def older(data: bytes, *, next_first: int = NEXT) -> Walk:
    """As an older segment between two others of which all is known."""
    return walk(data, number=1, newest=False, first=101, next_first=next_first)


def lost(found: Walk) -> int:
    assert all(hole.records != UNKNOWN for hole in found.holes)
    return sum(hole.records for hole in found.holes)


def flipped(data: bytes, offset: int, mask: int = 0xFF) -> bytes:
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


# -- good segments -----------------------------------------------------------------------------------------------------


@given(ENTRIES, st.integers(0, 40), st.booleans())
def test_good_segments(entries: list[list[bytes]], zeros: int, newest: bool) -> None:
    data = segment(entries)
    found = walk(data + bytes(zeros), number=1, newest=newest)
    assert records(found) == expected(data)
    assert (found.holes, found.torn_bytes, found.unread_bytes) == ([], 0, 0)
    assert (found.entries, found.end) == (len(entries), len(data))
    assert found.next_position == 1 + sum(map(len, entries))
    assert found.header == decode_header(data)


@pytest.mark.parametrize("seed", range(3))
def test_journals_of_the_real_store(seed: int) -> None:
    journal = making.random_journal(seed)
    for number, data in journal.items():
        found = walk(data, number=number, newest=number == max(journal))
        assert records(found) == expected(data, number)
        assert found.holes == []


@pytest.mark.parametrize("chunk", [1, 7, 99, 100, 101])
def test_records_beyond_a_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "CHUNK_RECORDS", chunk)
    data = segment([[message(i, body=b"x" * (i % 90))] for i in range(100)])
    assert records(walk(data, number=1, newest=False)) == expected(data)


@given(st.lists(st.lists(making.RECORDS, min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 14))
def test_entries_are_followed_together_or_one_by_one(entries: list[list[bytes]], together: int) -> None:
    data = segment(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets, "TOGETHER_MIN", together)
        assert records(walk(data, number=1, newest=False)) == expected(data)


def test_definitions_are_read() -> None:
    found = walk(segment([every_record()]), number=1, newest=False)
    kinds = [(record.RecordType(each.type).name, each.id, each.value.get("name")) for each in found.definitions]
    assert kinds == [
        ("OPENED", 0, None),
        ("ADDRESS", 7, "shop.orders"),
        ("QUEUE", 8, "orders"),
        ("QUEUE", 9, "mail"),
        ("SESSION", 30, "meter-7"),
        ("SESSION_DELETED", 31, "older"),
        ("SESSION_PART", 32, "a/#"),
        ("SESSION_PART_DELETED", 33, "b"),
        ("DIVERT", 40, "copies"),
        ("DIVERT_DELETED", 40, "copies"),
        ("TASK", 41, "41"),
        ("TASK_DELETED", 41, "41"),
        ("QUEUE_DELETED", 9, "mail"),
        ("QUEUE_DELETED", 5, "older"),
        ("ADDRESS_DELETED", 7, "shop.orders"),
    ]


# -- every byte --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_byte_of_an_older_segment(mask: int) -> None:
    whole = expected(SMALL)
    for offset in range(len(SMALL)):
        found = older(flipped(SMALL, offset, mask))
        assert found.holes, f"the flip at {offset} was not noticed"
        read = records(found)
        assert lost(found) + len(read) == len(whole), f"the flip at {offset} is counted wrongly"
        assert set(read) <= set(whole)
        # An entry is lost whole, and none but the one that was hit; without its header the segment is.
        if offset < SEGMENT_HEADER_BYTES:
            assert read == []
        else:
            hit = sum(start <= offset for start in STARTS) - 1
            assert read == whole[: 3 * hit] + whole[3 * hit + 3 :]
            assert [(hole.offset, hole.first_position) for hole in found.holes] == [(STARTS[hit], 101 + 3 * hit)]


def test_every_truncation_of_an_older_segment() -> None:
    whole = expected(SMALL)
    for end in range(len(SMALL)):
        found = older(SMALL[:end])
        assert lost(found) + len(records(found)) == len(whole)
        assert records(found) == whole[: 3 * sum(start <= end for start in [*STARTS[1:], len(SMALL)])]


def test_records_that_cannot_be_counted_are_not() -> None:
    """Without the following segment the end is not known, without its own header and its neighbour the beginning."""
    for offset in range(SEGMENT_HEADER_BYTES):
        (hole,) = walk(flipped(SMALL, offset), number=1, newest=False).holes
        assert (hole.first_position, hole.records) == (UNKNOWN, UNKNOWN)
    (hole,) = walk(flipped(SMALL, STARTS[2]), number=1, newest=False).holes
    assert (hole.first_position, hole.records) == (107, UNKNOWN)
    (hole,) = walk(flipped(SMALL, STARTS[1]), number=1, newest=False).holes
    assert (hole.first_position, hole.records) == (104, 3)


def judged(data: bytes) -> tuple[str, Scan]:
    """What the broker would say of a newest segment."""
    segment = open_segment("p", 1, data)
    try:
        torn = torn_bytes(segment)
    except Corrupt:
        return "corrupt", segment.found
    return f"torn {torn}" if torn else "good", segment.found


@pytest.mark.parametrize("durable", [None, 101, 104])
def test_every_byte_of_the_newest_segment(durable: int | None) -> None:
    """Torn or corrupt as the broker judges it; and behind corruption it goes on."""
    data = segment(ENTRIES_OF_THREE, first=101, durable=durable)
    whole = expected(data)
    verdicts = set()
    for offset in range(SEGMENT_HEADER_BYTES, len(data)):
        damaged = flipped(data, offset, 0x10)
        verdict, scanned = judged(damaged)
        found = walk(damaged, number=1, newest=True)
        verdicts.add(verdict.split()[0])
        if verdict == "corrupt":
            (hole,) = found.holes
            assert hole.records == 3
            assert len(records(found)) == len(whole) - 3
            assert found.torn_bytes == 0
        else:
            assert found.holes == []
            assert verdict == f"torn {found.torn_bytes}"
            assert records(found) == whole[: scanned.position - 101]
    assert verdicts == ({"torn"} if durable == 101 else {"torn", "corrupt"})


@pytest.mark.parametrize("zeros", [0, 4096])
def test_every_truncation_of_the_newest_segment(zeros: int) -> None:
    for end in range(SEGMENT_HEADER_BYTES, len(SMALL)):
        data = SMALL[:end] + bytes(zeros)
        verdict, scanned = judged(data)
        found = walk(data, number=1, newest=True)
        assert found.holes == []
        assert verdict == (f"torn {found.torn_bytes}" if found.torn_bytes else "good")
        assert found.next_position == scanned.position
        assert found.end == scanned.end


def test_a_torn_batch_with_good_entries_behind_it_is_torn() -> None:
    """Its second entry was written, the first was not: neither was confirmed, so neither counts."""
    data = segment(ENTRIES_OF_THREE, first=101, durable=101)
    found = walk(flipped(data, STARTS[1] + 60), number=1, newest=True)
    assert found.holes == []
    assert len(records(found)) == 3
    assert found.torn_bytes == len(data.rstrip(b"\0")) - STARTS[1]


# -- pinned ------------------------------------------------------------------------------------------------------------


def test_records_behind_the_limit_are_not_there() -> None:
    for cut in (STARTS[1], STARTS[2]):
        found = walk(SMALL, number=1, newest=True, limit=cut)
        assert records(found) == expected(SMALL[:cut])
        assert found.holes == []
        assert found.end == cut
    assert walk(flipped(SMALL, STARTS[2]), number=1, newest=True, limit=STARTS[2]).holes == []


def test_every_byte_before_the_limit_was_valid() -> None:
    """A pinned segment is never torn: what does not validate now did when it was pinned."""
    for offset in range(SEGMENT_HEADER_BYTES, len(SMALL)):
        found = walk(flipped(SMALL, offset), number=1, newest=True, limit=len(SMALL), next_first=NEXT)
        assert lost(found) == 3
        assert found.torn_bytes == 0


@pytest.mark.parametrize("zeros", [0, 4096])
def test_a_segment_that_became_shorter_than_its_limit(zeros: int) -> None:
    data = SMALL[: STARTS[2]] + bytes(zeros)
    found = walk(data, number=1, newest=True, limit=len(SMALL))
    what = f"the entries end here, but earlier reached to byte {len(SMALL)}"
    assert found.holes == [Hole(STARTS[2], 107, UNKNOWN, what)]
    assert lost(walk(data, number=1, newest=True, limit=len(SMALL), next_first=NEXT)) == 3


def test_zeros_before_the_limit_of_an_older_segment_are_good() -> None:
    data = SMALL + bytes(512)
    assert walk(data, number=1, newest=False, limit=len(data), next_first=NEXT).holes == []


# -- kinds of damage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hit", [0, 1, 2])
def test_an_entry_of_zeros(hit: int) -> None:
    """Zeros in the middle are damage where something stands behind them; at the end they are missing entries."""
    end = STARTS[hit + 1] if hit < 2 else len(SMALL)
    data = SMALL[: STARTS[hit]] + bytes(end - STARTS[hit]) + SMALL[end:]
    found = older(data)
    (hole,) = found.holes
    assert (hole.offset, hole.first_position, hole.records) == (STARTS[hit], 101 + 3 * hit, 3)
    assert found.unread_bytes == (end - STARTS[hit] if hit < 2 else 0)


def test_a_length_that_leads_to_a_later_entry() -> None:
    """Only what was hit is lost, not the entries that its length now reaches over."""
    length = STARTS[2] - STARTS[0]
    data = SMALL[: STARTS[0] + 4] + length.to_bytes(4, "little") + SMALL[STARTS[0] + 8 :]
    assert [(hole.first_position, hole.records) for hole in older(data).holes] == [(101, 3)]


def test_two_holes() -> None:
    found = older(flipped(flipped(SMALL, STARTS[0]), STARTS[2]))
    assert [(hole.first_position, hole.records) for hole in found.holes] == [(101, 3), (107, 3)]
    assert [position for _, position, _, _ in records(found)] == [104, 105, 106]
    assert found.unread_bytes == len(SMALL.rstrip(b"\0")) - SEGMENT_HEADER_BYTES - (STARTS[2] - STARTS[1])


def test_the_following_segment_tells_what_is_missing() -> None:
    (hole,) = older(SMALL, next_first=120).holes
    what = "the entries end at position 110, but the next segment begins at 120"
    assert hole == Hole(len(SMALL), 110, 10, what)
    (hole,) = older(SMALL, next_first=105).holes
    assert (hole.first_position, hole.records) == (110, UNKNOWN)


def test_a_gap_in_the_positions() -> None:
    seed = decode_header(SMALL).crc
    data = SMALL + entry([record.closed()], seed, 115)
    for newest in (False, True):
        found = walk(data, number=1, newest=newest)
        assert found.holes == [Hole(len(SMALL), 110, 5, "an entry has position 115 where 110 must follow")]
        assert found.next_position == 116


def test_nothing_counts_twice() -> None:
    """An entry came again where another should be: misdirected, or copied by somebody."""
    first = SMALL[STARTS[0] : STARTS[1]]
    for data in (SMALL[: STARTS[1]] + first + SMALL[STARTS[1] :], SMALL[: STARTS[1]] + first + SMALL[STARTS[2] :]):
        found = older(data)
        positions = [position for _, position, _, _ in records(found)]
        assert positions == sorted(set(positions))
        assert lost(found) + len(positions) == 9
        (hole,) = found.holes
        assert hole.what == "an entry has position 101 where 104 must follow"


@pytest.mark.parametrize("other", [segment(ENTRIES_OF_THREE, first=101, number=2), SMALL], ids=["number", "broker"])
def test_entries_of_another_segment_are_not_taken(other: bytes) -> None:
    own = segment(ENTRIES_OF_THREE, first=101, broker=bytes(16))
    found = older(own[: STARTS[1]] + other[STARTS[1] : STARTS[2]] + own[STARTS[2] :])
    assert [(hole.first_position, hole.records) for hole in found.holes] == [(104, 3)]


def test_the_wrong_number() -> None:
    found = walk(SMALL, number=2, newest=False)
    assert found.header is None
    assert records(found) == []
    assert found.holes == [Hole(0, UNKNOWN, UNKNOWN, "the header is that of segment 1")]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "segment of 0 bytes is shorter than its header"),
        (SMALL[:63], "segment of 63 bytes is shorter than its header"),
        (bytes(4096), "not a segment: the magic bytes are missing"),
        (SMALL[:8] + b"\3\0" + SMALL[10:], "format version 3, this software reads up to 2"),
    ],
)
@pytest.mark.parametrize("newest", [True, False])
def test_unreadable_headers(data: bytes, what: str, newest: bool) -> None:
    found = walk(data, number=1, newest=newest, first=101, next_first=NEXT)
    assert found.holes == [Hole(0, 101, 9, what)]
    assert found.unread_bytes == len(data)


def test_a_segment_without_entries() -> None:
    data = segment([], first=101)
    for newest in (True, False):
        found = walk(data, number=1, newest=newest)
        assert (found.holes, found.end, found.next_position) == ([], SEGMENT_HEADER_BYTES, 101)
    assert lost(older(data)) == 9


def test_bytes_in_a_message_that_look_like_an_entry() -> None:
    """A sender who knows the journal puts a valid entry into a message: it is not taken, even when that is damaged."""
    header = segment([], first=101)
    seed = decode_header(header).crc
    forged = entry([message(666)] * 2, seed, 500)
    carrier = message(1, body=b"x" * 64 + forged)
    at = SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES + len(carrier) - len(forged)
    carrier = message(1, body=b"x" * (64 - at % 8) + forged)
    data = segment([[carrier], [message(2)], [message(3)]], first=101)
    assert data.index(forged) % 8 == 0
    for offset in range(SEGMENT_HEADER_BYTES + 8, data.index(forged)):
        if SEGMENT_HEADER_BYTES + 12 <= offset < SEGMENT_HEADER_BYTES + 16:
            continue  # the count of its records: nothing tells then where the entry ends
        found = walk(flipped(data, offset), number=1, newest=False, next_first=104)
        assert [position for _, position, _, _ in records(found)] == [102, 103], f"flip at {offset}"


def test_too_much_that_looks_like_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "LATER_BYTES_MAX", 10_000)
    lookalike = bytearray(8)
    pack_into("<4sI", lookalike, 0, segments.ENTRY_MAGIC, 4096)
    data = SMALL[: STARTS[1]] + bytes(lookalike) * 2000 + SMALL[STARTS[1] :]
    for newest in (True, False):
        found = walk(data, number=1, newest=newest, next_first=NEXT)
        (hole,) = found.holes
        assert "too many bytes that look like entries" in hole.what
        assert (hole.first_position, hole.records) == (104, 6)
        assert found.torn_bytes == 0


# -- records that cannot be read ---------------------------------------------------------------------------------------


def patched(data: bytes, at: int, value: bytes) -> bytes:
    """A record with other bytes at this place."""
    return data[:at] + value + data[at + len(value) :]


def test_unknown_types_and_versions_are_holes_of_their_own() -> None:
    newer = [patched(message(5), 4, bytes([type])) for type in (99, 99, 10)] + [patched(message(6), 5, b"\3")]
    data = segment([[message(1), *newer[:2]], [message(2), *newer[1:], message(3)]])
    found = walk(data, number=1, newest=False)
    assert [(hole.first_position, hole.records, hole.what) for hole in found.holes] == [
        (2, 3, "record type 99 version 1 is unknown"),
        (6, 1, "record type 10 version 1 is unknown"),
        (7, 1, "record type 1 version 3 is unknown"),
    ]
    assert [position for _, position, _, _ in records(found)] == [1, 4, 8]
    assert data[found.holes[0].offset :].startswith(newer[0])


@pytest.mark.parametrize("index", range(len(every_record())))
def test_lengths_that_contradict_themselves(index: int) -> None:
    """Each type of record, eight bytes longer than its fields say; definitions have no lengths but their JSON."""
    whole = every_record()
    grown = bytearray(whole[index] + bytes(8))
    pack_into("<I", grown, 0, len(grown))
    name = record.RecordType(grown[4]).name
    data = segment([[*whole[:index], bytes(grown), *whole[index + 1 :]]])
    found = walk(data, number=1, newest=False)
    what = f"the length of a {name} record contradicts its fields"
    defining = (16, 17, 18, 19, 20, 21, 24, 25, 65, 67, 72, 73)
    if grown[4] in defining:
        what = f"the definition in a {name} record is not a JSON object"
    assert [(hole.first_position, hole.records, hole.what) for hole in found.holes] == [(index + 1, 1, what)]
    assert len(records(found)) == len(whole) - 1
    expected = sum(data[4] in (*defining, 32) for data in whole)
    assert len(found.definitions) == expected - (grown[4] in (*defining, 32))


@pytest.mark.parametrize("index", range(len(every_record())))
def test_records_too_short_for_their_fields(index: int) -> None:
    whole = every_record()
    short = bytearray(whole[index][:8])
    pack_into("<I", short, 0, 8)
    closed = short[4] == record.RecordType.CLOSED
    found = walk(segment([[*whole[:index], bytes(short), *whole[index + 1 :]]]), number=1, newest=False)
    assert [(hole.first_position, hole.records) for hole in found.holes] == ([] if closed else [(index + 1, 1)])


@pytest.mark.parametrize("type", sorted(making.ALL_TYPES - {record.RecordType.CLOSED}))
def test_a_segment_that_ends_with_a_record_too_short(type: int) -> None:
    found = walk(segment([[patched(record.closed(), 4, bytes([type]))]]), number=1, newest=False)
    assert [(hole.first_position, hole.records) for hole in found.holes] == [(1, 1)]


@pytest.mark.parametrize("definition", [b"[1]", b"{", b"\xff", b""])
def test_definitions_that_are_no_json_object(definition: bytes) -> None:
    broken = record.queue(1, {})[:-2] + definition
    broken = patched(broken, 0, len(broken).to_bytes(4, "little"))
    found = walk(segment([[message(1), broken, record.queue(2, {"name": "q"})]]), number=1, newest=False)
    assert [(hole.first_position, hole.records) for hole in found.holes] == [(2, 1)]
    assert [each.id for each in found.definitions] == [2]


@pytest.mark.parametrize("together", [1, 2, 64])
@pytest.mark.parametrize("length", [0, 4, 7, 9, 1000, 0xFFFFFFFF])
@pytest.mark.parametrize("last", [False, True])
def test_records_that_do_not_fill_their_entry(
    length: int, last: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record's length leads nowhere: what is behind it in its entry is lost, the entries around it are not."""
    monkeypatch.setattr(offsets, "TOGETHER_MIN", together)
    odd = patched(record.closed(), 0, length.to_bytes(4, "little"))
    middle = [message(1), odd] if last else [message(1), odd, message(2)]
    data = segment([[message(3)], middle, [message(4)]], first=101)
    found = walk(data, number=1, newest=False, next_first=101 + 2 + len(middle))
    assert lost(found) + len(records(found)) == 2 + len(middle)
    assert found.holes
    read = [position for _, position, _, _ in records(found)]
    assert {101, 102, 102 + len(middle)} <= set(read)
    assert found.holes[0].offset >= data.index(odd)


@pytest.mark.parametrize("count", [0, 1, 3, 1 << 31])
def test_a_count_that_is_not_that_of_the_records(count: int) -> None:
    seed = decode_header(SMALL).crc
    data = SMALL + entry([message(1), message(2)], seed, 110, count=count)
    found = walk(data, number=1, newest=False)
    (hole,) = found.holes
    assert hole.what == "the records do not fill their entry"
    assert len(records(found)) == 9 + min(count, 2)
    assert (hole.first_position, hole.records) == (110 + min(count, 2), count - min(count, 2))


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """Any bytes anywhere: nothing but a walk comes back, no wrong record in it, and the positions add up."""
    whole = segment(data.draw(ENTRIES), first=101)
    following = 101 + len(expected(whole))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 60))] = data.draw(st.binary(max_size=60))
    newest = data.draw(st.booleans())
    found = walk(bytes(damaged), number=1, newest=newest, first=101, next_first=None if newest else following)
    true = contents(whole, expected(whole))
    read = contents(bytes(damaged), records(found))
    assert read.items() <= true.items()
    assert found.positions.tolist() == sorted(read)
    if not newest and all(hole.records != UNKNOWN for hole in found.holes):
        assert lost(found) + len(read) == following - 101


def contents(data: bytes, read: list[Record]) -> dict[int, tuple[int, int, bytes]]:
    """Time, type and bytes of records, by their positions."""
    lengths = [int.from_bytes(data[offset : offset + 4], "little") for offset, _, _, _ in read]
    return {
        position: (time, type, data[offset : offset + length])
        for (offset, position, time, type), length in zip(read, lengths, strict=True)
    }


def test_a_reference_to_a_large_body_has_its_length() -> None:
    data = segment([[message(1), patched(message(6, body=b"x" * 24), 5, b"\2"), patched(message(7), 5, b"\2")]])
    found = walk(data, number=1, newest=False)
    assert [(hole.first_position, hole.records, hole.what) for hole in found.holes] == [
        (3, 1, "the length of a MESSAGE record contradicts its fields"),
    ]
