"""Records read one by one, and scratch files: what they keep, when they go, and what a disk can do to them."""

from __future__ import annotations

import pytest

from store.errors import ReadFailed
from store.pages import GAP_BYTES_MAX, READ_BYTES_MAX, SCRATCH_FIRST, Pages
from store.segment import segment_name
from tests.support.sim_files import Fault, SimFiles


def pages(files: SimFiles, **more: int) -> Pages:
    files.make_dir("j")
    return Pages(files, "j", lambda segment: f"j/{segment_name(segment)}", **more)


def texts(reader: Pages, segments: list[int], offsets: list[int], sizes: list[int]) -> list[bytes | None]:
    """What is read at these places."""
    texts: list[bytes | None] = []
    for data, start, stop in reader.read(segments, offsets, sizes):
        for at in range(start, stop):
            begin = offsets[at] - offsets[start]
            texts.append(None if data is None else data[begin : begin + sizes[at]])
    return texts


def is_full(pages: Pages) -> bool:
    return pages.full


def scratch_files(files: SimFiles) -> list[str]:
    return [path for path in files.paths() if path.endswith(".scratch")]


def test_neighbours_are_read_at_once(files: SimFiles) -> None:
    files.put(f"j/{segment_name(1)}", bytes(range(100)) * 1000)
    files.put(f"j/{segment_name(2)}", b"other")
    found = texts(pages(files), [1, 1, 2, 1, 1], [0, 10, 1, 20, 30 + GAP_BYTES_MAX + 5], [3, 2, 4, 5, 1])
    assert found[:4] == [b"\0\1\2", b"\12\13", b"ther", bytes(range(20, 25))]
    assert sum(step.startswith("read_range") for step in files.history) == 4


def test_a_read_has_a_limit(files: SimFiles) -> None:
    half = READ_BYTES_MAX // 2
    files.put(f"j/{segment_name(1)}", bytes(4 * half))
    found = pages(files).read([1] * 4, [0, half, 2 * half, 3 * half], [half] * 4)
    assert [(len(data or b""), start, stop) for data, start, stop in found] == [
        (READ_BYTES_MAX, 0, 2),
        (READ_BYTES_MAX, 2, 4),
    ]
    assert sum(step.startswith("read_range") for step in files.history) == 2


def test_an_absent_page_is_none_and_its_neighbours_are_not(files: SimFiles) -> None:
    files.put(f"j/{segment_name(1)}", b"0123456789")
    reader = pages(files)
    assert texts(reader, [1, 1, 3], [0, 8, 0], [2, 4, 1]) == [b"01", None, None]
    assert texts(reader, [1, 1], [0, 9], [2, 2]) == [b"01", None], "the second try is one by one"


def test_a_page_that_the_system_does_not_let_be_read_may_be_read_the_next_time(files: SimFiles) -> None:
    files.put(f"j/{segment_name(1)}", b"0123456789")
    reader = pages(files)
    files.plan(1, Fault.EIO)
    with pytest.raises(ReadFailed, match="Input/output error"):
        reader.read([1, 1], [0, 4], [2, 2])
    assert texts(reader, [1, 1], [0, 4], [2, 2]) == [b"01", b"45"]
    files.plan(1, Fault.EIO, sticky=True)
    reader.will_need(1, 0, 10)


def test_scratch_records_come_back_until_they_are_released(files: SimFiles) -> None:
    scratch = pages(files, scratch_bytes=10)
    assert scratch.write([b"ab", b"cde"], 2) == (SCRATCH_FIRST, 0)
    assert scratch.write([b"fghijk"], 1) == (SCRATCH_FIRST, 5)
    assert scratch.write([b"lm"], 1) == (SCRATCH_FIRST + 1, 0), "a file that is full is followed by another"
    segments = [SCRATCH_FIRST, SCRATCH_FIRST, SCRATCH_FIRST, SCRATCH_FIRST + 1]
    found = texts(scratch, segments, [0, 2, 5, 0], [2, 3, 6, 2])
    assert found == [b"ab", b"cde", b"fghijk", b"lm"]
    scratch.release(SCRATCH_FIRST, 2)
    assert len(scratch_files(files)) == 2
    scratch.release(SCRATCH_FIRST, 1)
    assert len(scratch_files(files)) == 1
    scratch.release(SCRATCH_FIRST + 1, 1)
    assert scratch.write([b"no"], 1) == (SCRATCH_FIRST + 1, 0), "the file that is written begins anew"


def test_a_file_that_was_empty_when_the_next_began_goes(files: SimFiles) -> None:
    scratch = pages(files, scratch_bytes=4)
    scratch.write([b"long enough"], 1)
    scratch.write([b"x"], 1)
    scratch.release(SCRATCH_FIRST, 1)
    scratch.write([b"long enough"], 1)
    scratch.write([b"y"], 1)
    assert scratch_files(files) == [f"j/{n:010d}.scratch" for n in (1, 2)]


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EIO])
def test_a_disk_without_room(files: SimFiles, fault: Fault) -> None:
    scratch = pages(files)
    assert scratch.write([b"ab"], 1) == (SCRATCH_FIRST, 0)
    files.plan(1, fault)
    assert scratch.write([b"cd"], 1) is None
    assert is_full(scratch)
    assert scratch.write([b"ef"], 1) == (SCRATCH_FIRST, 2), "over what the failed write left"
    assert not is_full(scratch)
    assert texts(scratch, [SCRATCH_FIRST] * 2, [0, 2], [2, 2]) == [b"ab", b"ef"]


def test_a_disk_without_room_is_tried_again_and_what_that_wrote_is_overwritten(files: SimFiles) -> None:
    scratch = pages(files)
    assert scratch.write([b"ab"], 1) == (SCRATCH_FIRST, 0)
    files.plan(1, Fault.ENOSPC, sticky=True)
    assert scratch.write([b"cd"], 1) is None
    assert not scratch.try_again()
    assert is_full(scratch)
    files.heal()
    assert scratch.try_again()
    assert not is_full(scratch)
    assert scratch.write([b"ef"], 1) == (SCRATCH_FIRST, 2)
    assert texts(scratch, [SCRATCH_FIRST] * 2, [0, 2], [2, 2]) == [b"ab", b"ef"]


def test_files_that_cannot_be_removed_stay_for_the_next_run(files: SimFiles) -> None:
    scratch = pages(files, scratch_bytes=1)
    scratch.write([b"ab"], 1)
    scratch.write([b"cd"], 1)
    files.plan(1, Fault.EIO)
    scratch.release(SCRATCH_FIRST, 1)
    assert len(scratch_files(files)) == 2
