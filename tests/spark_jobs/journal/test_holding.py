"""Segments that are held open are read when nobody else can see them any more."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_jobs.journal import files, holding
from spark_jobs.journal.holding import Held
from spark_jobs.journal.snapshot import Snapshot, Vanished, next_id_at, read_segment, take
from spark_jobs.jvm import ROOT
from store.segment import segment_name
from tests.spark_jobs.journal.disks import kept, live, path_of, write


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's data directory with retention; nobody changes it."""
    return write(tmp_path_factory.mktemp("data")).data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    for path in original.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(original)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return tmp_path


@pytest.fixture
def held() -> Iterator[Held]:
    with Held() as holding:
        yield holding


def contents(snapshot: Snapshot) -> list[bytes]:
    return [read_segment(ref) for ref in snapshot.segments]


def remove(snapshot: Snapshot) -> None:
    for ref in snapshot.segments:
        Path(ref.uri).unlink()


def test_what_is_held_is_read_when_it_is_gone(data: Path, held: Held) -> None:
    whole = contents(take([str(data)]))
    snapshot = take([str(data)], held=held)
    remove(snapshot)
    assert contents(snapshot) == whole
    assert contents(Snapshot.from_json(snapshot.to_json())) == whole
    assert next_id_at(snapshot.segments[0]) > 0
    held.close()
    for ref in snapshot.segments:
        with pytest.raises(Vanished, match=segment_name(ref.number)):
            read_segment(ref)


def test_so_it_is_by_another_process(data: Path, held: Held) -> None:
    """As Spark's workers are."""
    snapshot = take([str(data)], held=held)
    remove(snapshot)
    script = (
        "import sys\n"
        "from spark_jobs.journal.snapshot import Snapshot, read_segment\n"
        "print(sum(len(read_segment(ref)) for ref in Snapshot.from_json(sys.stdin.read()).segments))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], input=snapshot.to_json(), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(told.stdout) == sum(ref.limit for ref in snapshot.segments)


def test_one_that_moves_before_it_can_be_held_is_held_where_it_is(data: Path, held: Held) -> None:
    snapshot = take([str(data)])
    number = live(data)[0]
    day = path_of(data, kept(data)[0]).parent
    whole = contents(snapshot)
    path_of(data, number).rename(day / segment_name(number))
    refs, left = held.hold(snapshot.segments)
    assert left == 0
    remove(replace(snapshot, segments=tuple(ref for ref in snapshot.segments if ref.number != number)))
    (day / segment_name(number)).unlink()
    assert [read_segment(ref) for ref in refs] == whole


def test_one_that_goes_before_it_can_be_held_is_looked_for_again(
    data: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(data, kept(data)[0])
    keep_open = files.keep_open

    def vanishing(place: str) -> files.Open:
        path.unlink(missing_ok=True)
        return keep_open(place)

    monkeypatch.setattr(files, "keep_open", vanishing)
    snapshot = take([str(data)], held=held)
    assert path.name not in {Path(ref.uri).name for ref in snapshot.segments}


def test_something_else_where_it_was_held_is_not_read(data: Path, held: Held, tmp_path: Path) -> None:
    """On another machine the same path may be anything."""
    snapshot = take([str(data)], held=held)
    remove(snapshot)
    first, second, *_ = snapshot.segments
    (tmp_path / "else").write_bytes(b"something else" * 100)
    for place in (second.held, str(tmp_path / "else"), str(tmp_path), "/proc/self/fd/0", "/proc/self/fd/99999"):
        with pytest.raises(Vanished):
            read_segment(replace(first, held=place))


def test_as_many_as_may_be_open(data: Path, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (100, 300))
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    monkeypatch.setattr(holding, "OTHERS", 297)
    snapshot = take([str(data)], held=held)
    assert asked[-1] == (300, 300)
    assert [bool(ref.held) for ref in snapshot.segments] == [True] * 3 + [False] * (len(snapshot.segments) - 3)
    assert snapshot.notes[-1].startswith(f"{len(snapshot.segments) - 3} of {len(snapshot.segments)} segments are more")
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_no_more_is_asked_for_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    for soft, hard in ((1000, 2000), (-1, -1), (100, 5000), (100, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, limits=(soft, hard): limits)
        assert files.room_for(1000) == 1000
    assert asked == [(1000, 5000), (1000, -1)]


def test_one_that_cannot_be_opened_is_left_to_who_reads_it(
    data: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(place: str) -> files.Open:
        raise OSError(errno.EIO, "the disk", place)

    monkeypatch.setattr(files, "keep_open", fail)
    assert not any(ref.held for ref in take([str(data)], held=held).segments)
