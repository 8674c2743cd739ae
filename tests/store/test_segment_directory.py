"""The segments of a directory: which are there, and how each is opened."""

from __future__ import annotations

import pytest

from store import record
from store.errors import Corrupt, NewerFormat
from store.files import write_all
from store.record import RecordType
from store.segment import segment_name
from store.segment_directory import SegmentDirectory, open_segment, read_segment
from tests.store.segments import made, newer
from tests.store.workload import EPOCH
from tests.support.sim_files import SimFiles

HOME = "/journal"


CLOSED = record.closed()
SEGMENT = made([CLOSED], number=3, first=7)


def put(files: SimFiles, name: str, data: bytes = b"") -> None:
    files.make_dir(HOME)
    write_all(files.create(f"{HOME}/{name}"), data, 0)


def test_the_listing_has_segments_alone_in_their_order(files: SimFiles) -> None:
    for name in (
        segment_name(12),
        segment_name(3),
        "0000000013.spare",
        "0000000000.journal",
        "x.journal",
        "lock",
        "4.journal",
    ):
        put(files, name)
    assert SegmentDirectory(files, HOME).segments() == [3, 12]


def test_a_segment_is_opened(files: SimFiles) -> None:
    put(files, segment_name(3), SEGMENT)
    segment = read_segment(SegmentDirectory(files, HOME), 3)
    assert (segment.path, segment.number, segment.header.number) == (f"{HOME}/{segment_name(3)}", 3, 3)
    assert [raw[:4] for raw in segment.records()] == [(3, 7, EPOCH, RecordType.CLOSED)]
    segment.check_undamaged()


def test_one_that_is_gone_is_told(files: SimFiles) -> None:
    files.make_dir(HOME)
    with pytest.raises(FileNotFoundError):
        read_segment(SegmentDirectory(files, HOME), 3)


def test_the_header_of_another_segment_is_refused() -> None:
    with pytest.raises(Corrupt, match="the header is that of segment 3"):
        open_segment("p", 4, SEGMENT)


def test_a_newer_format_is_told_from_damage() -> None:
    with pytest.raises(NewerFormat):
        open_segment("p", 3, newer(SEGMENT))
    with pytest.raises(Corrupt, match="magic"):
        open_segment("p", 3, bytes(64))


def test_damage_behind_the_entries() -> None:
    segment = open_segment("p", 3, SEGMENT + b"x")
    assert len([*segment.records()]) == 1
    with pytest.raises(Corrupt) as caught:
        segment.check_undamaged()
    assert caught.value.offset == len(SEGMENT)


def test_records_are_counted_by_type_and_version() -> None:
    segment = open_segment("p", 3, made([record.removed(1, 1, [5, 6]), CLOSED, CLOSED], number=3))
    assert segment.count_types() == {(RecordType.REMOVED, 1): 1, (RecordType.CLOSED, 1): 2}


@pytest.mark.parametrize(
    ("byte", "value"),
    [(0, 0), (0, 255), (3, 255), (4, 200), (5, 9)],
    ids=["no length", "beyond the entry", "beyond the segment", "unknown type", "unknown version"],
)
def test_counting_refuses_what_reading_refuses(byte: int, value: int) -> None:
    part = bytearray(CLOSED)
    part[byte] = value
    segment = open_segment("p", 3, made([CLOSED, bytes(part), CLOSED], number=3))
    with pytest.raises(Corrupt) as read:
        list(segment.records())
    with pytest.raises(Corrupt) as counted:
        segment.count_types()
    assert (counted.value.offset, counted.value.what) == (read.value.offset, read.value.what)


def test_bytes_behind_an_entry_are_read_alone() -> None:
    """A standby reads a growing segment again and again: the entries from before are not looked at."""
    one, two = record.removed(1, 1, [5]), record.removed(1, 1, [6])
    first = open_segment("p", 3, made([one], number=3, first=7))
    entry = first.found.entries[-1]
    grown = bytearray(made([one], [two], [CLOSED], number=3, first=7))
    grown[entry.end - 1] ^= 1
    segment = open_segment("p", 3, bytes(grown), entry)
    assert [raw[1:4:2] for raw in segment.records()] == [(8, RecordType.REMOVED), (9, RecordType.CLOSED)]
    segment.check_undamaged()
    assert open_segment("p", 3, bytes(grown)).found.entries == [], "which looks at all"
