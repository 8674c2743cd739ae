"""The segments of a directory: which are there, and how each is opened."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from store import record
from store.errors import Corrupt, NewerFormat
from store.files import write_all
from store.record import RecordType
from store.segment import Entry, decode_header, encode_header, pack_entries, segment_name
from store.segment_directory import SegmentDirectory, open_segment, read_segment
from tests.support.sim_files import SimFiles

HOME = "/journal"


def made(number: int, *parts: bytes) -> bytes:
    """A segment with an entry of these records, or of one."""
    header = encode_header(number=number, broker_id=bytes(16), created=1, first_position=7)
    records = list(parts or [record.closed()])
    nbytes = sum(map(len, records))
    entry = Entry(segment=number, ticket=1, first=7, count=len(records), timestamp=2, nbytes=nbytes, parts=records)
    return header + bytes(pack_entries([entry], decode_header(header).crc, 7))


def put(files: SimFiles, name: str, data: bytes = b"") -> None:
    files.make_dir(HOME)
    write_all(files.create(f"{HOME}/{name}"), data, 0)


def test_the_listing_has_segments_alone_in_their_order(files: SimFiles) -> None:
    for name in (segment_name(12), segment_name(3), "0000000013.spare", "0000000000.journal", "x.journal", "lock"):
        put(files, name)
    assert SegmentDirectory(files, HOME).segments() == [3, 12]


def test_a_segment_is_opened(files: SimFiles) -> None:
    put(files, segment_name(3), made(3))
    segment = read_segment(SegmentDirectory(files, HOME), 3)
    assert (segment.path, segment.number, segment.header.number) == (f"{HOME}/{segment_name(3)}", 3, 3)
    assert [raw[:4] for raw in segment.records()] == [(3, 7, 2, record.RecordType.CLOSED)]
    segment.check_undamaged()


def test_one_that_is_gone_is_told(files: SimFiles) -> None:
    files.make_dir(HOME)
    with pytest.raises(FileNotFoundError):
        read_segment(SegmentDirectory(files, HOME), 3)


def test_the_header_of_another_segment_is_refused() -> None:
    with pytest.raises(Corrupt, match="the header is that of segment 4"):
        open_segment("p", 3, made(4))


def test_a_newer_format_is_told_from_damage() -> None:
    newer = bytearray(made(3)[:60])
    newer[8] = 2
    with pytest.raises(NewerFormat):
        open_segment("p", 3, bytes(newer) + crc32c(bytes(newer)).to_bytes(4, "little"))
    with pytest.raises(Corrupt, match="magic"):
        open_segment("p", 3, bytes(64))


def test_damage_behind_the_entries() -> None:
    segment = open_segment("p", 3, made(3) + b"x")
    assert len([*segment.records()]) == 1
    with pytest.raises(Corrupt) as caught:
        segment.check_undamaged()
    assert caught.value.offset == len(made(3))


def test_records_are_counted_by_type_and_version() -> None:
    segment = open_segment("p", 3, made(3, record.removed(1, 1, [5, 6]), record.closed(), record.closed()))
    assert segment.count_types() == {(RecordType.REMOVED, 1): 1, (RecordType.CLOSED, 1): 2}


@pytest.mark.parametrize(
    ("byte", "value"),
    [(0, 0), (0, 255), (3, 255), (4, 200), (5, 9)],
    ids=["no length", "beyond the entry", "beyond the segment", "unknown type", "unknown version"],
)
def test_counting_refuses_what_reading_refuses(byte: int, value: int) -> None:
    part = bytearray(record.closed())
    part[byte] = value
    segment = open_segment("p", 3, made(3, record.closed(), bytes(part), record.closed()))
    with pytest.raises(Corrupt) as read:
        list(segment.records())
    with pytest.raises(Corrupt) as counted:
        segment.count_types()
    assert (counted.value.offset, counted.value.what) == (read.value.offset, read.value.what)
