"""The manifest of kept segments: its lines, and what a power cut leaves of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import manifest
from store.manifest import MANIFEST, KeptSegment, Manifest, append, kept_line, removed_line
from tests.support.sim_files import Crash, Fault, SimFiles

DAY = "/data/journal/retention/date=2023-11-14"
PATH = f"{DAY}/{MANIFEST}"


def about(segment: int) -> KeptSegment:
    return KeptSegment(segment, "ab" * 16, segment * 10, segment * 10 + 10, 1_700_000_000_000, 5, 6, 4096)


def read(*data: bytes) -> Manifest:
    found = Manifest()
    for each in data:
        found.add(each)
    return found


def disk() -> SimFiles:
    files = SimFiles()
    files.make_dir(DAY)
    return files


def test_lines_are_json_objects() -> None:
    assert json.loads(kept_line(about(7))) == {
        "segment": 7,
        "broker_id": "ab" * 16,
        "first_position": 70,
        "next_position": 80,
        "created": 1_700_000_000_000,
        "first_time": 5,
        "last_time": 6,
        "bytes": 4096,
    }
    assert json.loads(removed_line(7, manifest.AGE)) == {"segment": 7, "removed": "age"}


def test_every_line_about_a_segment_counts_in_whatever_manifest() -> None:
    found = read(kept_line(about(1)) + kept_line(about(2)) + kept_line(about(1)), removed_line(2, manifest.BYTES))
    assert found.kept == {1: about(1), 2: about(2)}
    assert [found.why_removed(segment) for segment in (1, 2)] == ["", "bytes"]
    assert found.expected == {1}
    assert found.unreadable == 0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0\0\0",
        b"{",
        b"7",
        b"[]",
        b'{"removed": "age"}',
        b'{"segment": "7", "removed": "age"}',
        b'{"segment": 7, "removed": "age", "through": "all"}',
        b'{"segment": 7, "removed": "age", "through": null}',
        b"\xff",
        kept_line(about(7)).replace(b'"bytes"', b'"octets"').rstrip(),
        kept_line(about(7)).replace(b": 70,", b": null,").rstrip(),
    ],
)
def test_a_line_that_cannot_be_read_is_passed_over_and_counted(line: bytes) -> None:
    found = read(kept_line(about(1)) + line + b"\n" + kept_line(about(2)))
    assert (found.expected, found.unreadable) == ({1, 2}, 1)


def test_a_line_can_be_about_a_run_of_segments() -> None:
    assert removed_line(2, manifest.GONE, through=2) == removed_line(2, manifest.GONE)
    found = read(removed_line(2, manifest.GONE, through=4), kept_line(about(4)), kept_line(about(5)))
    assert [found.why_removed(segment) for segment in range(1, 6)] == ["", "gone", "gone", "gone", ""]
    assert found.expected == {5}


def test_members_that_are_not_known_are_ignored() -> None:
    newer = json.dumps(json.loads(kept_line(about(7))) | {"crc": 1}).encode() + b"\n"
    assert read(newer).kept == {7: about(7)}


@given(st.integers(0, 400))
def test_a_manifest_cut_anywhere_says_what_its_whole_lines_say(end: int) -> None:
    lines = [kept_line(about(1)), removed_line(1, manifest.AGE), kept_line(about(2))]
    cut = b"".join(lines)[:end]
    whole = [line for i, line in enumerate(lines) if len(b"".join(lines[: i + 1])) <= end]
    assert read(cut) == read(*whole)


def test_appending() -> None:
    files = disk()
    append(files, DAY, [kept_line(about(1))])
    append(files, DAY, [kept_line(about(2)), removed_line(1, manifest.AGE)])
    files.crash(0.0)
    assert files.read(PATH) == kept_line(about(1)) + kept_line(about(2)) + removed_line(1, manifest.AGE)


def test_an_unfinished_line_makes_way_for_the_next_one() -> None:
    files = disk()
    files.put(PATH, kept_line(about(1)) + kept_line(about(2))[:-20] + bytes(300))
    append(files, DAY, [kept_line(about(3))])
    files.crash(0.0)
    assert files.read(PATH) == kept_line(about(1)) + kept_line(about(3))


@pytest.mark.parametrize("before", [0, 1, 9])
def test_a_power_cut_at_every_operation(before: int) -> None:
    """What was appended before is there, the new line is or is not, and the next one is as good as ever."""
    for seed in range(20):
        at = 0
        done = False
        while not done:
            at += 1
            files = disk()
            files.random.seed(seed)
            for segment in range(before):
                append(files, DAY, [kept_line(about(segment))])
            files.plan(at, Fault.CRASH)
            try:
                append(files, DAY, [kept_line(about(100)), kept_line(about(101))])
                done = True
            except Crash:
                pass
            files.crash()
            names = files.list_dir(DAY)
            found = read(*(files.read(PATH) for _ in names))
            assert {*range(before)} <= found.expected <= {*range(before), 100, 101}
            assert not done or {100, 101} <= found.expected, "durable when it returns"
            append(files, DAY, [kept_line(about(200))])
            files.crash(0.0)
            assert read(files.read(PATH)).expected == found.expected | {200}
        assert at >= 5
