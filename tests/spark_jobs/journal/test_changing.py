"""Snapshots of a journal that changes while it is looked at, step by step; beside a broker at work: test_live."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs.journal import files
from spark_jobs.journal.segments import Vanished, next_id_at, read_segment
from spark_jobs.journal.snapshot import ATTEMPTS_MAX
from store.files import OsFiles
from store.manifest import MANIFEST, append, removed_line
from store.segment import segment_name
from tests.spark_jobs.journal.conftest import Before
from tests.spark_jobs.journal.disks import check, kept, live, path_of, pinned, truth
from tests.spark_jobs.journals import Growing


def once(when: Callable[[str], bool], do: Callable[[], object], times: int = 1) -> Callable[..., None]:
    """What lets something happen before the first files that answer `when` are read."""
    left = [times]

    def change(place: str, nbytes: int | None = None) -> None:
        if left[0] and when(place):
            left[0] -= 1
            do()

    return change


def move(data: Path, number: int) -> None:
    """What retention does."""
    day = path_of(data, kept(data)[0]).parent
    path_of(data, number).rename(day / segment_name(number))


@pytest.mark.parametrize("suffix", [segment_name(1)[:4], MANIFEST])
def test_a_segment_that_moves_while_it_is_looked_at(data: Path, before: Before, suffix: str) -> None:
    number = live(data)[0]
    whole = truth(data)
    before("read", once(lambda place: suffix in place, lambda: move(data, number)))
    snapshot = pinned(data)
    check(snapshot, whole)
    assert snapshot.missing == ()
    assert [ref.kept for ref in snapshot.segments if ref.number == number] == [True]


def test_a_segment_that_a_limit_removes_while_it_is_looked_at(data: Path, before: Before) -> None:
    number = min(kept(data))
    whole = truth(data)
    day = path_of(data, number).parent

    def remove() -> None:
        append(OsFiles(), str(day), [removed_line(number, "bytes")])
        path_of(data, number).unlink()

    before("read", once(lambda place: place.endswith(MANIFEST), remove))
    assert pinned(data).segments[0].number == number, "the listing came first; reading it will tell"
    snapshot = pinned(data)
    check(snapshot, whole)
    assert (snapshot.missing, [gap.first_segment for gap in snapshot.trimmed]) == ((), [number])


def test_a_segment_that_vanishes_each_time_is_told(data: Path, before: Before) -> None:
    path = path_of(data, live(data)[0])
    hidden = path.with_suffix(".hidden")

    def show(place: str) -> None:
        if hidden.exists():
            hidden.rename(path)

    before("list_dir", show)
    before("read", once(lambda place: place == str(path), lambda: path.rename(hidden), times=ATTEMPTS_MAX - 1))
    check(pinned(data), truth(data))
    before("read", once(lambda place: place == str(path), lambda: path.rename(hidden), times=ATTEMPTS_MAX))
    with pytest.raises(Vanished, match=path.name):
        pinned(data)


@pytest.mark.usefixtures("untold")
def test_a_segment_in_front_of_a_hole_that_vanishes(data: Path, before: Before) -> None:
    """Its header was there; it is looked for again, and has moved."""
    whole = truth(data)
    number = live(data)[-3]
    path = path_of(data, number)
    path_of(data, number + 1).unlink()

    def vanishing(place: str, nbytes: int | None = None) -> None:
        if place == str(path) and nbytes is None and path.exists():
            move(data, number)

    before("read", vanishing)
    snapshot = pinned(data)
    check(snapshot, whole)
    assert [ref.kept for ref in snapshot.segments if ref.number == number] == [True]


def test_a_day_that_goes_while_it_is_looked_at(data: Path, before: Before) -> None:
    whole = truth(data)

    def going(place: str) -> None:
        if "date=" in place and Path(place).exists():
            shutil.rmtree(place)

    before("list_dir", going)
    snapshot = pinned(data)
    assert not any(ref.kept for ref in snapshot.segments)
    assert snapshot.missing == ()
    check(snapshot, whole)


def test_a_segment_that_moves_between_two_listings_is_seen_twice(data: Path, before: Before) -> None:
    number = live(data)[0]
    whole = truth(data)

    def moving(place: str) -> None:
        if "date=" in place and number in live(data):
            move(data, number)

    before("list_dir", moving)
    snapshot = pinned(data)
    check(snapshot, whole)
    assert [ref.kept for ref in snapshot.segments if ref.number == number] == [True]


def test_seemingly_missing_segments_are_looked_for_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that changes while it is listed may hide a name."""
    hidden = path_of(data, live(data)[0]).name
    list_dir = files.list_dir
    calls = []

    def hiding(place: str) -> list[files.Found]:
        calls.append(place)
        return [each for each in list_dir(place) if each.name != hidden or calls.count(place) > 1]

    monkeypatch.setattr(files, "list_dir", hiding)
    snapshot = pinned(data)
    check(snapshot, truth(data))
    assert snapshot.missing == ()


def test_a_manifest_that_goes_while_it_is_looked_at(data: Path, before: Before) -> None:
    whole = truth(data)
    (manifest,) = data.rglob(MANIFEST)
    before("read", once(lambda place: place == str(manifest), manifest.unlink))
    check(pinned(data), whole)


def test_segments_are_read_where_they_moved_to(growing: Growing) -> None:
    snapshot = pinned(growing.data)
    contents = {ref.number: read_segment(ref) for ref in snapshot.segments}
    growing.run(60)
    growing.show()
    moved = [ref for ref in snapshot.segments if not ref.kept and not Path(ref.uri).exists()]
    assert moved
    assert {ref.number: read_segment(ref) for ref in snapshot.segments} == contents


def test_a_segment_that_is_gone_is_told(data: Path) -> None:
    snapshot = pinned(data)
    for number in (kept(data)[0], live(data)[0]):
        path_of(data, number).unlink()
        (ref,) = [ref for ref in snapshot.segments if ref.number == number]
        with pytest.raises(Vanished, match=segment_name(number)):
            read_segment(ref)
        with pytest.raises(Vanished):
            next_id_at(ref)
