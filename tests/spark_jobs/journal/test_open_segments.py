"""Segments that are kept open are read when nobody else can see them any more."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.journal import files
from spark_jobs.journal.segments import OpenSegments, Vanished, next_id_at, read_segment
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.jvm import ROOT
from store.segment import segment_name
from tests.spark_jobs.journal.conftest import Before
from tests.spark_jobs.journal.disks import kept, live, path_of


@pytest.fixture
def opened() -> Iterator[OpenSegments]:
    with OpenSegments() as segments:
        yield segments


def contents(snapshot: Snapshot) -> list[bytes]:
    return [read_segment(ref) for ref in snapshot.segments]


def remove(snapshot: Snapshot) -> None:
    for ref in snapshot.segments:
        Path(ref.uri).unlink()


def test_an_open_file_is_read_when_it_is_gone(data: Path, opened: OpenSegments) -> None:
    whole = contents(take([str(data)]))
    snapshot = take([str(data)], opened=opened)
    remove(snapshot)
    assert contents(snapshot) == whole
    assert contents(Snapshot.from_json(snapshot.to_json())) == whole
    assert next_id_at(snapshot.segments[0]) > 0
    opened.close()
    for ref in snapshot.segments:
        with pytest.raises(Vanished, match=segment_name(ref.number)):
            read_segment(ref)


def test_so_it_is_by_another_process(data: Path, opened: OpenSegments) -> None:
    """As Spark's workers are."""
    snapshot = take([str(data)], opened=opened)
    remove(snapshot)
    script = (
        "import sys\n"
        "from spark_jobs.journal.segments import read_segment\n"
        "from spark_jobs.journal.snapshot import Snapshot\n"
        "print(sum(len(read_segment(ref)) for ref in Snapshot.from_json(sys.stdin.read()).segments))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], input=snapshot.to_json(), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(told.stdout) == sum(ref.limit for ref in snapshot.segments)


def test_one_that_moves_before_it_is_opened_is_opened_where_it_is(data: Path, opened: OpenSegments) -> None:
    snapshot = take([str(data)])
    number = live(data)[0]
    day = path_of(data, kept(data)[0]).parent
    whole = contents(snapshot)
    path_of(data, number).rename(day / segment_name(number))
    refs, left = opened.open(snapshot.segments)
    assert left == 0
    remove(replace(snapshot, segments=tuple(ref for ref in snapshot.segments if ref.number != number)))
    (day / segment_name(number)).unlink()
    assert [read_segment(ref) for ref in refs] == whole


def test_one_that_goes_before_it_is_opened_is_looked_for_again(
    data: Path, opened: OpenSegments, before: Before
) -> None:
    path = path_of(data, kept(data)[0])
    before("keep_open", lambda place, until: path.unlink(missing_ok=True))
    snapshot = take([str(data)], opened=opened)
    assert path.name not in {Path(ref.uri).name for ref in snapshot.segments}


def test_something_else_where_it_was_open_is_not_read(data: Path, opened: OpenSegments, tmp_path: Path) -> None:
    """On another machine the same path may be anything."""
    snapshot = take([str(data)], opened=opened)
    remove(snapshot)
    first, second, *_ = snapshot.segments
    (tmp_path / "else").write_bytes(b"something else" * 100)
    for place in (second.opened_at, str(tmp_path / "else"), str(tmp_path), "/proc/self/fd/0", "/proc/self/fd/99999"):
        with pytest.raises(Vanished):
            read_segment(replace(first, opened_at=place))


def test_as_many_as_may_be_open(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (100, 300))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    with OpenSegments(others=297) as opened:
        snapshot = take([str(data)], opened=opened)
    assert asked[-1] == (300, 300)
    assert [bool(ref.opened_at) for ref in snapshot.segments] == [True] * 3 + [False] * (len(snapshot.segments) - 3)
    assert snapshot.notes[-1].startswith(
        f"{len(snapshot.segments) - 3} of {len(snapshot.segments)} segments exceed the limit"
    )
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_no_more_is_asked_for_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    for soft, hard in ((1000, 2000), (-1, -1), (100, 5000), (100, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, limits=(soft, hard): limits)
        assert files.room_for(1000) == 1000
    assert asked == [(1000, 5000), (1000, -1)]


def test_one_that_cannot_be_opened_is_left_to_who_reads_it(data: Path, opened: OpenSegments, before: Before) -> None:
    def fail(place: str, until: ExitStack) -> None:
        raise OSError(errno.EIO, "the disk", place)

    before("keep_open", fail)
    assert not any(ref.opened_at for ref in take([str(data)], opened=opened).segments)
