"""Every record comes back as it went in, and bytes that contradict themselves are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import decode, record
from store.body import BodyReference
from store.record import DeadLetterReason, RecordError, RecordType, RemovalReason
from store.record_tables import TOGETHER_MAX, pack_array
from tests.store.examples import EXAMPLES
from tests.store.workload import Body

u8 = st.integers(0, 2**8 - 1)
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
ids = st.lists(u64, max_size=20).map(tuple)
text = st.text(max_size=40)
blob = st.binary(max_size=200)
json_object = st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | text, max_size=4)


@given(
    run=st.lists(st.tuples(u64, blob, blob), min_size=1, max_size=5),
    flags=u16,
    queue_ids=ids,
    times=st.tuples(i64, i64, i64),
    small=st.tuples(u8, u8, u8),
    strings=st.tuples(text, text, text),
    annotations=blob,
)
def test_messages(
    run: list[tuple[int, bytes, bytes]],
    flags: int,
    queue_ids: tuple[int, ...],
    times: tuple[int, int, int],
    small: tuple[int, int, int],
    strings: tuple[str, str, str],
    annotations: bytes,
) -> None:
    header = record.message_header(
        timestamp=times[0],
        expiration=times[1],
        scheduled=times[2],
        priority=small[0],
        format=small[1],
        expiry_source=small[2],
        queue_ids=queue_ids,
        address=strings[0],
        user=strings[1],
        origin=strings[2],
        annotations=annotations,
    )
    out: list[bytes] = [b"before"]
    nbytes = record.encode_messages(out, header, flags, [Body(*each) for each in run])
    data = b"".join(out)
    assert nbytes == len(data) - 6
    decoder = decode.MessageDecoder()
    offset, found = 6, []
    while offset < len(data):
        assert decode.decode(data, offset) == decoder.decode(data, offset)
        found.append(decoder.decode(data, offset))
        offset += record.HEAD.unpack_from(data, offset)[0]
    assert [(m.id, m.head, m.body) for m in found] == run
    assert {m.flags for m in found} == {flags}
    assert all(m.header is found[0].header for m in found), "a run shares its header"
    assert asdict(found[0].header) == {
        "timestamp": times[0],
        "expiration": times[1],
        "scheduled": times[2],
        "priority": small[0],
        "format": small[1],
        "expiry_source": small[2],
        "queue_ids": queue_ids,
        "address": strings[0],
        "user": strings[1],
        "origin": strings[2],
        "annotations": annotations,
    }


def there_and_back(data: bytes) -> decode.Record:
    """Decode with other bytes on both sides, and check the record's own length."""
    found = decode.decode(b"xyz" + data + b"\xff" * 8, 3)
    assert record.HEAD.unpack_from(data)[0] == len(data)
    return found


#: Values of each kind of record that is written field by field, and what writes them.
VALUES = [
    (st.builds(decode.Removed, u64, u8, ids), record.removed),
    (st.builds(decode.Counts, u64, u32, ids, st.booleans()), record.counts),
    (st.builds(decode.Delivering, u64, u64, ids), record.delivering),
    (st.builds(decode.Scheduled, u64, i64, ids), record.scheduled),
    (
        st.builds(decode.DeadLettered, u64, u64, u64, i64, i64, u32, u8, text, text, text, text, text),
        record.dead_lettered,
    ),
    (st.builds(decode.Expired, u64, u64, u64, i64, i64, u32, u8, u16, text), record.expired),
    (st.builds(decode.Dropped, u8, u32, u64, text), record.dropped),
    (st.builds(decode.Ids, u64), record.ids),
    (st.builds(decode.Trimmed, ids), record.trimmed),
    (st.builds(decode.Closed), record.closed),
    (st.builds(decode.Lost), record.lost),
]


@pytest.mark.parametrize(("values", "encode"), VALUES)
@given(st.data())
def test_fields(values: st.SearchStrategy[Any], encode: Callable[..., bytes], data: st.DataObject) -> None:
    value = data.draw(values)
    assert there_and_back(encode(**asdict(value))) == value


def test_expired_caps_the_number_of_consumers() -> None:
    value = decode.Expired(1, 2, 3, 4, 5, 6, 7, 70_000, "a")
    found = there_and_back(record.expired(**asdict(value)))
    assert isinstance(found, decode.Expired)
    assert found.consumers == 65_535


DEFINING = [getattr(record, type.name.lower()) for type in sorted(record.DEFINING | record.DELETING)]


@pytest.mark.parametrize("encode", DEFINING)
def test_definitions(encode: object) -> None:
    assert callable(encode)
    definition = {"name": "Bücher", "filter": "", "n": 3}
    data = encode(7, definition)
    assert there_and_back(data) == decode.Definition(7, 0, definition)
    again = record.repeated(data)
    assert there_and_back(again) == decode.Definition(7, record.REPEATED, definition)
    assert record.repeated(again) == again


@given(u64, st.dictionaries(u64, u64), json_object)
def test_opened(next_id: int, segments: dict[int, int], about: record.Json) -> None:
    told = {n: end for n, end in segments.items() if n + 1 not in segments}
    opened = decode.Opened(next_id, tuple(segments), {**about, "ends": {str(n): end for n, end in told.items()}})
    assert there_and_back(record.opened(next_id, segments, about)) == opened
    assert opened.ends == dict.fromkeys(segments, decode.UNSTATED) | told


def test_fields_that_older_software_did_not_write_are_unknown() -> None:
    assert decode.Opened(1, (2, 3), {}).ends == {2: decode.UNSTATED, 3: decode.UNSTATED}
    with pytest.raises(RecordError, match="no object"):
        _ = decode.Opened(1, (2, 3), {"ends": [4, 5]}).ends


@given(u64, u64, st.binary(max_size=300))
def test_duplicate_id(address_id: int, message_id: int, id: bytes) -> None:
    for again in (False, True):
        made = record.duplicate_id(address_id, message_id, id, again=again)
        assert there_and_back(made) == decode.DuplicateId(address_id, message_id, id)


@given(u64, u64, st.lists(st.tuples(u64, u16), max_size=20))
def test_inflight(session_id: int, queue_id: int, sent: list[tuple[int, int]]) -> None:
    ids, packet_ids = tuple(id for id, _ in sent), tuple(packet_id for _, packet_id in sent)
    found = there_and_back(record.inflight(session_id, queue_id, ids, packet_ids))
    assert found == decode.Inflight(session_id, queue_id, ids, packet_ids)


@given(u64, st.lists(u16, max_size=20), st.booleans())
def test_packet_ids(session_id: int, packet_ids: list[int], sent: bool) -> None:
    expected = decode.Packets(session_id, True, tuple(packet_ids))
    assert there_and_back(record.released(session_id, packet_ids)) == expected
    expected = decode.Packets(session_id, False, tuple(packet_ids))
    assert there_and_back(record.received(session_id, packet_ids)) == expected
    expected = decode.Packets(session_id, sent, tuple(packet_ids))
    assert there_and_back(record.completed(session_id, packet_ids, sent=sent)) == expected


def test_a_copy_is_its_message_and_where_it_lay() -> None:
    copied = decode.decode(EXAMPLES[RecordType.COPIED], 0)
    assert isinstance(copied, decode.Copied)
    assert (copied.id, copied.flags, copied.previous, copied.head, copied.body) == (9, 1, 7, b"head", b"body")
    assert (copied.header.queue_ids, copied.header.address, copied.header.timestamp) == ((2,), "addr", 1)


@pytest.mark.parametrize("previous", [0, 7])
def test_a_message_whose_body_is_in_a_file(previous: int) -> None:
    reference = BodyReference(5, 6 << 30, 0xCAFE)
    out: list[bytes] = []
    header = record.message_header(timestamp=1, queue_ids=[2], address="addr")
    nbytes = record.encode_large(out, header, 8, 9, b"head", reference, previous)
    data = b"".join(out)
    assert nbytes == len(data)
    assert (data[4], data[5]) == (RecordType.COPIED if previous else RecordType.MESSAGE, record.LARGE_VERSION)
    found = decode.decode(data, 0)
    assert isinstance(found, decode.Message | decode.Copied)
    assert (found.id, found.flags, found.head, found.body) == (9, 8, b"head", reference)
    assert (found.header.queue_ids, found.header.address) == ((2,), "addr")
    if isinstance(found, decode.Copied):
        assert found.previous == previous


def test_there_is_an_example_of_every_type() -> None:
    assert set(EXAMPLES) == set(RecordType) == decode.KNOWN_TYPES
    assert {*BYTES, RecordType.MESSAGE} == set(RecordType), "the bytes of a message are in docs/journal-format.md"
    assert all(data[4] == type for type, data in EXAMPLES.items())


@pytest.mark.parametrize("type", RecordType)
def test_a_record_that_says_another_length_is_refused(type: RecordType) -> None:
    data = EXAMPLES[type]
    for length in {0, 7, 8, len(data) - 1, len(data) + 1, len(data) + 8, len(data) + 9} - {len(data)}:
        with pytest.raises(RecordError):
            decode.decode(length.to_bytes(4, "little") + data[4:] + bytes(8), 0)


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(RecordError, match="type 99"):
        decode.decode(b"\x08\0\0\0\x63\x01\0\0", 0)


def test_strings_have_a_limit() -> None:
    longest = "x" * record.STRING_BYTES_MAX
    assert decode.decode_message_header(record.message_header(timestamp=0, address=longest)).address == longest
    with pytest.raises(RecordError, match="address of 65536 bytes exceeds 65535"):
        record.message_header(timestamp=0, address=longest + "x")
    record.duplicate_id(1, 2, b"x" * record.STRING_BYTES_MAX)
    with pytest.raises(RecordError, match="duplicate id of 65536 bytes exceeds 65535"):
        record.duplicate_id(1, 2, b"x" * (record.STRING_BYTES_MAX + 1))
    with pytest.raises(RecordError, match="address"):
        record.dropped(1, 2, 3, "é" * 40_000)


#: The bytes of the examples: a reader of this version finds them in journals for ever.
BYTES = {
    RecordType.REMOVED: "28000000020100000100000000000000020000000200000003000000000000000400000000000000",
    RecordType.COUNTS: "28000000030100000100000000000000020000000200000003000000000000000400000000000000",
    RecordType.DELIVERING: (
        "300000000401000001000000000000000200000000000000020000000000000003000000000000000400000000000000"
    ),
    RecordType.SCHEDULED: (
        "300000000501000001000000000000000200000000000000020000000000000003000000000000000400000000000000"
    ),
    RecordType.DEAD_LETTERED: (
        "4b0000000601000001000000000000000200000000000000030000000000000004000000000000000500000000000000"
        "060000000900040004000100010001006164647274657874637275"
    ),
    RecordType.EXPIRED: (
        "3e0000000701000001000000000000000200000000000000030000000000000004000000000000000500000000000000"
        "0600000001000200040061646472"
    ),
    RecordType.DROPPED: "1e000000080100000a000000020000000300000000000000040061646472",
    RecordType.COPIED: (
        "600000000901010009000000000000000400000004000000070000000000000001000000000000000000000000000000"
        "0000000000000000040000000400000000000000010000000000000002000000000000006164647268656164626f6479"
    ),
    RecordType.ADDRESS: "1f0000001001000001000000000000007b226e616d65223a2261646472227d",
    RecordType.ADDRESS_DELETED: "1f0000001101000001000000000000007b226e616d65223a2261646472227d",
    RecordType.QUEUE: "1c0000001201000001000000000000007b226e616d65223a2271227d",
    RecordType.QUEUE_DELETED: "1c0000001301000001000000000000007b226e616d65223a2271227d",
    RecordType.DIVERT: "1c0000001401000001000000000000007b226e616d65223a2264227d",
    RecordType.DIVERT_DELETED: "1c0000001501000001000000000000007b226e616d65223a2264227d",
    RecordType.TASK: "1c0000001801000001000000000000007b226e616d65223a2264227d",
    RecordType.TASK_DELETED: "1c0000001901000001000000000000007b226e616d65223a2264227d",
    RecordType.OPENED: (
        "47000000200100000100000000000000020000001f000000020000000000000003000000000000007b2276657273696f"
        "6e223a2231222c22656e6473223a7b2233223a37307d7d"
    ),
    RecordType.CLOSED: "0800000021010000",
    RecordType.IDS: "10000000220100000100000000000000",
    RecordType.TRIMMED: "2000000023010000020000000000000001000000000000000200000000000000",
    RecordType.LOST: "0800000025010000",
    RecordType.DUPLICATE_ID: "22000000400100000100000000000000020000000000000002000000000000006964",
    RecordType.SESSION: "1c0000004101000001000000000000007b226e616d65223a2263227d",
    RecordType.SESSION_DELETED: "1c0000004301000001000000000000007b226e616d65223a2263227d",
    RecordType.INFLIGHT: (
        "34000000440100000100000000000000020000000000000002000000000000000300000000000000040000000000000005000600"
    ),
    RecordType.RELEASED: "1c000000450100000100000000000000020000000100000002000300",
    RecordType.RECEIVED: "1c000000460100000100000000000000020000000000000002000300",
    RecordType.COMPLETED: "1c000000470100000100000000000000020000000100000002000300",
    RecordType.SESSION_PART: (
        "320000004801000001000000000000007b226e616d65223a2270222c2273657373696f6e223a322c2270617274223a7b7d7d"
    ),
    RecordType.SESSION_PART_DELETED: "1c0000004901000001000000000000007b226e616d65223a2270227d",
}


@pytest.mark.parametrize("type", BYTES)
def test_the_bytes_stay_what_they_are(type: RecordType) -> None:
    assert EXAMPLES[type].hex() == BYTES[type]


def test_the_flags_stay_what_they_are() -> None:
    assert (record.ANYCAST, record.MULTICAST, record.GROUPED, record.VOLATILE) == (2, 4, 8, 16)


def test_copies_have_the_lengths_that_they_say() -> None:
    out: list[bytes] = []
    header = record.message_header(timestamp=1, queue_ids=[2], address="addr")
    run = [Body(9, b"head", b"body"), Body(10, b"longer head", b"")]
    nbytes = record.encode_copies(out, header, 1, run, 7)
    data = b"".join(out)
    assert nbytes == len(data)
    first = decode.decode(data, 0)
    second = decode.decode(data, int.from_bytes(data[:4], "little"))
    assert isinstance(first, decode.Copied)
    assert isinstance(second, decode.Copied)
    assert [(each.id, each.head, each.body) for each in (first, second)] == [
        (9, b"head", b"body"),
        (10, b"longer head", b""),
    ]


@pytest.mark.parametrize("type", RecordType)
def test_a_record_that_is_cut_off_is_refused(type: RecordType) -> None:
    data = EXAMPLES[type]
    for before in (b"", bytes(64)):
        assert decode.decode(before + data, len(before)) == decode.decode(data, 0)
        for end in range(len(data)):
            with pytest.raises(RecordError):
                decode.decode(before + data[:end], len(before))


def test_facts_that_are_cut_off_are_refused() -> None:
    header = record.message_header(timestamp=1, queue_ids=[2], address="addr", user="u")
    for end in range(len(header)):
        with pytest.raises(RecordError):
            decode.decode_message_header(header[:end])


def test_reasons_have_words() -> None:
    assert RemovalReason.DEAD_LETTERED.word == "dead-lettered"
    assert DeadLetterReason.NOT_AUTHORISED.word == "not-authorised"


@pytest.mark.parametrize("n", [TOGETHER_MAX, TOGETHER_MAX + 1, 1000])
def test_many_numbers(n: int) -> None:
    """Few are packed in one struct, many as an array: the bytes are the same."""
    ids, packet_ids = tuple(range(2**64 - n, 2**64)), tuple(range(n))
    raw = b"".join(id.to_bytes(8, "little") for id in ids)
    assert record.removed(1, 2, ids)[24:] == raw
    assert there_and_back(record.removed(1, 2, ids)) == decode.Removed(1, 2, ids)
    assert there_and_back(record.completed(1, packet_ids, sent=False)) == decode.Packets(1, False, packet_ids)
    inflight = record.inflight(1, 2, ids, packet_ids)
    assert inflight[32:] == raw + b"".join(id.to_bytes(2, "little") for id in packet_ids)
    assert there_and_back(inflight) == decode.Inflight(1, 2, ids, packet_ids)
    header = record.message_header(timestamp=1, queue_ids=ids)
    assert decode.decode_message_header(header).queue_ids == ids


@pytest.mark.parametrize(("code", "nbytes"), [("Q", 8), ("H", 2)])
def test_the_bytes_are_the_same_on_a_big_endian_machine(code: str, nbytes: int) -> None:
    """There an array is packed the other way round, and swapped: here the swap shows."""
    numbers = range(TOGETHER_MAX + 1)
    assert pack_array(code, numbers) == b"".join(n.to_bytes(nbytes, "little") for n in numbers)
    assert pack_array(code, numbers, swapped=True) == b"".join(n.to_bytes(nbytes, "big") for n in numbers)


@pytest.mark.parametrize("copied", [False, True])
def test_annotations_are_found_without_the_rest_of_the_record(copied: bool) -> None:
    notes = b'{"_AMQ_DL_REASON":"rejected"}'
    header = record.message_header(timestamp=7, queue_ids=[1, 2], address="a", user="u", origin="o", annotations=notes)
    parts: list[bytes] = []
    if copied:
        record.encode_copies(parts, header, 0, [Body(9, b"head", b"body")], 3)
    else:
        record.encode_messages(parts, header, 0, [Body(9, b"head", b"body")])
    raw = b"".join(parts)
    id, when, start, end = decode.find_annotations(b"xy" + raw[:76], 2)
    assert (id, when, raw[start:end]) == (9, 7, notes)
    longer = (len(raw) + 1).to_bytes(4, "little") + raw[4:]
    for wrong in (longer, record.removed(1, RemovalReason.CONSUMED, range(20))):
        with pytest.raises(RecordError):
            decode.find_annotations(wrong, 0)
