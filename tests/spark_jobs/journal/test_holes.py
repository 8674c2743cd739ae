"""What is absent from a journal: counted to the record, and missing only if it should be there."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.journal.scan import scan_segment
from spark_jobs.journal.segments import Gap, next_id_at
from spark_jobs.journal.snapshot import take
from spark_jobs.journal.walk import UNKNOWN
from store.files import OsFiles
from store.manifest import MANIFEST, append, removed_line
from store.retention import DIRECTORY, RetentionSettings
from store.segment import segment_name, segment_number
from tests.spark_jobs.journal import making
from tests.spark_jobs.journal.conftest import Before
from tests.spark_jobs.journal.disks import (
    check,
    kept,
    live,
    path_of,
    pinned,
    truth,
    without_manifests,
    write,
)
from tests.spark_jobs.journals import dump
from tests.store.workload import BROKER_ID, DAY, Script, Station
from tests.support.sim_files import SimFiles


def remove(data: Path, *numbers: int) -> None:
    for number in numbers:
        path_of(data, number).unlink()


def segments(gaps: Iterable[Gap]) -> list[tuple[int, int]]:
    return [(gap.first_segment, gap.last_segment) for gap in gaps]


# -- missing -----------------------------------------------------------------------------------------------------------


def test_a_live_segment_that_is_missing(data: Path) -> None:
    whole = truth(data)
    number = live(data)[0]
    remove(data, number)
    snapshot = pinned(data)
    (gap,) = snapshot.missing
    assert gap == Gap(
        str(data / "journal" / segment_name(number)),
        number,
        number,
        whole[number].first,
        whole[number].records,
        f"segment {number} is missing: the broker needs it",
        whole[number - 1].created,
        whole[number + 1].created,
    )
    assert snapshot.trimmed == ()
    check(snapshot, whole)


def test_kept_segments_that_are_missing(data: Path) -> None:
    whole = truth(data)
    number = kept(data)[3]
    place = str(path_of(data, number))
    remove(data, number, number + 1)
    (gap,) = pinned(data).missing
    assert gap.uri == place
    assert gap.what == f"segments {number} to {number + 1} are missing: according to its manifest, retention keeps them"
    check(pinned(data), whole)


def test_a_day_that_somebody_removed_is_missing_if_an_older_one_is_kept(tmp_path: Path) -> None:
    data = days(tmp_path)
    _, second, third = sorted((data / "journal" / DIRECTORY).iterdir())
    numbers = sorted(segment_number(path.name) for path in second.glob("*.journal"))
    shutil.rmtree(second)
    snapshot = pinned(data)
    assert {number for gap in snapshot.missing for number in range(gap.first_segment, gap.last_segment + 1)} == {
        *numbers
    }
    assert "no manifest says" in snapshot.missing[0].what
    assert third.exists()


def test_the_oldest_days_may_go(tmp_path: Path) -> None:
    """As if a limit had taken them: an operator who needs room, or who moved them elsewhere."""
    data = days(tmp_path)
    first, second, _ = sorted((data / "journal" / DIRECTORY).iterdir())
    numbers = [segment_number(path.name) for day in (first, second) for path in day.glob("*.journal")]
    shutil.rmtree(first)
    shutil.rmtree(second)
    snapshot = pinned(data)
    assert snapshot.missing == ()
    gone = [number for gap in snapshot.trimmed for number in range(gap.first_segment, gap.last_segment + 1)]
    assert gone == sorted(numbers)
    check(snapshot, truth(data))


def days(tmp_path: Path) -> Path:
    """Three days of retention."""
    files_ = SimFiles(1)
    station = Station(files_, retention=RetentionSettings(enabled=True))
    script = Script(1)
    for _ in range(3):
        script.run(station, 30)
        station.now += DAY
    return dump(files_, tmp_path / "data")


def test_a_segment_begun_after_the_one_that_says_what_is_needed(data: Path) -> None:
    """The newest has no entry yet, so nothing can have been trimmed behind the one before it."""
    whole = truth(data)
    newest = max(whole)
    end = whole[newest].end
    for number, first in ((newest + 1, end), (newest + 3, end + 7)):
        path = data / "journal" / segment_name(number)
        path.write_bytes(making.segment([], number=number, first=first, broker=BROKER_ID))
    (gap,) = pinned(data).missing
    assert (gap.first_segment, gap.last_segment, gap.first_position, gap.records) == (newest + 2, newest + 2, end, 7)
    assert gap.what.endswith("the broker needs it")


def test_a_segment_that_had_no_records_is_no_loss(data: Path) -> None:
    newest = max(truth(data))
    end = truth(data)[newest].end
    path = data / "journal" / segment_name(newest + 2)
    path.write_bytes(making.segment([], number=newest + 2, first=end, broker=BROKER_ID))
    assert pinned(data).missing == pinned(data).trimmed == ()


def test_a_segment_that_begins_too_early(data: Path) -> None:
    """Somebody mixed journals: how much is lost cannot be said."""
    first, second, third, *_ = kept(data)[4:]
    assert third == first + 2
    day = path_of(data, first).parent
    remove(data, second)
    without_manifests(data)
    (day / segment_name(third)).write_bytes(
        making.segment([[making.message(1)]], number=third, first=1, broker=BROKER_ID)
    )
    (gap,) = pinned(data).missing
    assert (gap.first_segment, gap.records) == (second, UNKNOWN)
    assert "begins before" in gap.what


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 30))
def test_any_segments_removed_are_counted_exactly(
    original: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    data = Path(shutil.copytree(original, tmp_path_factory.mktemp("some") / "data"))
    whole = truth(data)
    gone = {number for number in list(whole)[:-1] if random.random() < random.choice((0.05, 0.3, 0.8))}
    remove(data, *gone)
    if random.random() < 0.3:
        without_manifests(data)
        snapshot = pinned(data)
        assert segments(snapshot.missing) == [
            (gap.first_segment, gap.last_segment) for gap in snapshot.missing if gap.records > 0
        ]
    else:
        snapshot = pinned(data)
        assert snapshot.trimmed == ()
        missing = {n for gap in snapshot.missing for n in range(gap.first_segment, gap.last_segment + 1)}
        assert missing == gone
    check(snapshot, whole)
    shutil.rmtree(data.parent)


# -- trimmed -----------------------------------------------------------------------------------------------------------


def test_without_retention_what_is_not_needed_is_trimmed(tmp_path: Path) -> None:
    whole = truth(write(tmp_path / "all", keep=True).data)
    data = write(tmp_path / "data", keep=False).data
    snapshot = pinned(data)
    check(snapshot, {number: whole[number] for number in whole})
    assert snapshot.missing == ()
    absent = [number for number in whole if number not in live(data)]
    assert [n for gap in snapshot.trimmed for n in range(gap.first_segment, gap.last_segment + 1)] == absent
    assert snapshot.trimmed[0].what.endswith("all messages in it had left")
    behind = next(ref for ref in snapshot.segments if ref.number > snapshot.trimmed[-1].last_segment)
    assert snapshot.open_below == next_id_at(behind) > 1


def test_a_segment_behind_a_hole_that_does_not_tell_its_ids(tmp_path: Path) -> None:
    """The next one does: what may have been given out by then includes what may have been before."""
    data = write(tmp_path / "data", keep=False).data
    hole = pinned(data).trimmed[-1].last_segment
    behind, following = (path_of(data, number) for number in live(data) if number in (hole + 1, hole + 2))
    content = bytearray(behind.read_bytes())
    content[64 + 60] ^= 1
    behind.write_bytes(content)
    snapshot = pinned(data)
    assert snapshot.open_below == next_id_at(next(ref for ref in snapshot.segments if ref.uri == str(following)))


@pytest.mark.parametrize("cut", [False, True])
def test_records_lost_at_the_end_of_a_segment_before_a_trimmed_one_are_counted(tmp_path: Path, cut: bool) -> None:
    """The newest segment says where it ended."""
    data = write(tmp_path / "data", keep=False).data
    gap = pinned(data).trimmed[-1]
    path = path_of(data, gap.first_segment - 1)
    content = bytearray(path.read_bytes())
    content[-8:] = b"" if cut else b"\xff" * 8
    path.write_bytes(content)
    ref = next(ref for ref in pinned(data).segments if ref.uri == str(path))
    found = scan_segment(ref).found
    (hole,) = found.holes
    assert found.next_position < gap.first_position
    assert (hole.first_position, hole.records) == (found.next_position, gap.first_position - found.next_position)
    assert pinned(data).trimmed[-1] == gap


def test_segments_that_a_manifest_says_were_let_go_are_trimmed(data: Path) -> None:
    """Between older ones that are kept; the missing ones beside are told apart, and counted apart."""
    whole = truth(data)
    numbers = kept(data)
    middle = next(n for n in numbers[3:] if {n - 1, n, n + 1, n + 2} <= {*numbers})
    day = path_of(data, middle).parent
    append(OsFiles(), str(day), [removed_line(middle, "off"), removed_line(middle + 2, "bytes")])
    remove(data, middle - 1, middle, middle + 1, middle + 2)
    snapshot = pinned(data)
    assert segments(snapshot.missing) == [(middle - 1, middle - 1), (middle + 1, middle + 1)]
    assert segments(snapshot.trimmed) == [(middle, middle), (middle + 2, middle + 2)]
    assert [gap.records for gap in snapshot.trimmed] == [whole[middle].records, whole[middle + 2].records]
    check(snapshot, whole)


def test_losses_that_cannot_be_told_apart_are_missing_as_a_whole(data: Path) -> None:
    whole = truth(data)
    numbers = kept(data)
    middle = next(n for n in numbers[3:] if {n - 1, n, n + 1} <= {*numbers})
    day = path_of(data, middle).parent
    without_manifests(data)
    append(OsFiles(), str(day), [removed_line(middle, "off")])
    remove(data, middle, middle + 1)
    snapshot = pinned(data)
    assert segments(snapshot.missing) == [(middle, middle + 1)]
    check(snapshot, whole)


def test_a_line_about_another_broker_counts_for_nothing(data: Path) -> None:
    number = kept(data)[2]
    manifest = path_of(data, number).parent / MANIFEST
    remove(data, number)
    lines = manifest.read_bytes().splitlines(keepends=True)
    foreign = [line.replace(BROKER_ID.hex().encode(), b"ff" * 16) for line in lines]
    about = f'"segment": {number},'.encode()
    manifest.write_bytes(b"".join(other if about in line else line for line, other in zip(lines, foreign, strict=True)))
    snapshot = pinned(data)
    assert "no manifest says" in snapshot.missing[0].what
    assert segments(snapshot.missing) == [(number, number)]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("lie", [-999, -1, 1, 999])
def test_a_manifest_that_contradicts_the_segments(data: Path, which: int, lie: int) -> None:
    """The segments count."""
    whole = truth(data)
    numbers = kept(data)
    number = next(n for n in numbers[2:] if {n - 1, n + 1, n + 2, n + 3} <= {*numbers})
    manifest = path_of(data, number).parent / MANIFEST
    remove(data, number, number + 1, number + 2)
    told, first = manifest.read_bytes(), whole[number + which].first
    lied = told.replace(f'"first_position": {first},'.encode(), f'"first_position": {first + lie},'.encode())
    assert lied != told
    manifest.write_bytes(lied)
    check(pinned(data), whole)
    assert segments(pinned(data).missing) == [(number, number + 2)]


def test_a_segment_cut_short_in_front_of_one_of_which_a_manifest_knows(data: Path) -> None:
    """What each of them lacks is told apart."""
    whole = truth(data)
    numbers = kept(data)
    number = next(n for n in live(data) if n + 1 in numbers)
    path = path_of(data, number)
    path.write_bytes(path.read_bytes()[:-8])
    remove(data, number + 1)
    snapshot = pinned(data)
    assert [(gap.first_position, gap.records) for gap in snapshot.missing] == [
        (whole[number + 1].first, whole[number + 1].records)
    ]
    check(snapshot, whole)


def test_lines_that_cannot_be_read_are_told(data: Path) -> None:
    manifest = path_of(data, kept(data)[0]).parent / MANIFEST
    manifest.write_bytes(manifest.read_bytes() + b"\0\0\n{\n")
    assert pinned(data).notes == (f"{manifest}: 2 lines cannot be read: incomplete writes, or damage",)


def test_retention_alone_misses_what_its_manifest_lists_last(data: Path) -> None:
    whole = truth(data)
    *_, before, last = kept(data)
    retention = data / "journal" / DIRECTORY
    remove(data, last)
    snapshot = take([str(retention)])
    assert last in {n for gap in snapshot.missing for n in range(gap.first_segment, gap.last_segment + 1)}
    lost = sum(gap.records for gap in snapshot.missing)
    assert lost == sum(k.records for n, k in whole.items() if n <= last and n not in kept(data))
    assert before in [ref.number for ref in snapshot.segments]


# -- segments that cannot be read --------------------------------------------------------------------------------------


def spoil(data: Path, number: int, how: str = "flip") -> None:
    path = path_of(data, number)
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes({"flip": bytes(content), "empty": b"", "other": making.segment([], number=number + 1)}[how])


@pytest.mark.parametrize("how", ["flip", "empty", "other"])
def test_a_header_that_cannot_be_read(data: Path, how: str) -> None:
    whole = truth(data)
    number = live(data)[1]
    spoil(data, number, how)
    snapshot = pinned(data)
    (ref,) = [ref for ref in snapshot.segments if ref.number == number]
    assert (ref.first_position, ref.next_first) == (whole[number].first, whole[number].end)
    assert [hole.records for hole in scan_segment(ref).found.holes] == [whole[number].records]
    assert snapshot.missing == snapshot.trimmed == ()
    check(snapshot, whole, frozenset({number}))


def test_a_newest_segment_that_cannot_be_read(data: Path) -> None:
    """The one before says what there must be."""
    whole = truth(data)
    spoil(data, max(whole))
    snapshot = pinned(data)
    newest = snapshot.segments[-1]
    assert (newest.number, newest.newest, newest.next_first) == (max(whole), True, None)
    assert newest.first_position == whole[max(whole)].first == snapshot.next_position
    remove(data, live(data)[0])
    assert len(pinned(data).missing) == 1


def test_a_segment_that_cannot_be_read_beside_one_that_is_not_there(data: Path) -> None:
    """Together they are counted."""
    whole = truth(data)
    numbers = kept(data)
    middle = next(n for n in numbers[3:] if {n - 1, n, n + 1, n + 2} <= {*numbers})
    spoil(data, middle)
    remove(data, middle + 1)
    assert segments(pinned(data).missing) == [(middle + 1, middle + 1)], "a manifest knows which is which"
    without_manifests(data)
    snapshot = pinned(data)
    (gap,) = snapshot.missing
    assert (gap.first_position, gap.records) == (whole[middle].first, whole[middle].records + whole[middle + 1].records)
    (ref,) = [ref for ref in snapshot.segments if ref.number == middle]
    assert (ref.first_position, ref.records) == (whole[middle].first, UNKNOWN)
    assert "cannot be read" in gap.what
    check(snapshot, whole, frozenset({middle}))


def test_nothing_that_can_be_read(data: Path) -> None:
    number = max(live(data))
    for path in data.rglob("*.journal"):
        if path != data / "journal" / segment_name(number):
            path.unlink()
    without_manifests(data)
    spoil(data, number)
    snapshot = pinned(data)
    assert (snapshot.broker_id, snapshot.next_position) == ("", 0)
    assert [ref.number for ref in snapshot.segments] == [number]
    assert segments(snapshot.missing) == [(1, number - 1)]
    assert snapshot.missing[0].records == UNKNOWN


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize("which", ["first live", "in front of a hole", "newest"])
def test_a_disk_that_does_not_give_a_segment_back(data: Path, before: Before, which: str) -> None:
    """Its header still comes, if it is not the first live one's."""
    whole = truth(data)
    number = {"first live": live(data)[0], "in front of a hole": live(data)[-3], "newest": max(whole)}[which]
    if which == "in front of a hole":
        remove(data, number + 1)
    bad = str(path_of(data, number))

    def failing(place: str, nbytes: int | None = None) -> None:
        if place == bad and (nbytes is None or which == "first live"):
            raise OSError(errno.EIO, "Input/output error", place)

    before("read", failing)
    snapshot = pinned(data)
    (ref,) = [ref for ref in snapshot.segments if ref.number == number]
    assert ref.first_position == whole[number].first
    if which == "first live":
        assert (ref.records, snapshot.missing) == (whole[number].records, ())
    elif which == "newest":
        assert (ref.records, snapshot.missing) == (UNKNOWN, ())
    else:
        assert ref.records == UNKNOWN
        assert [gap.records for gap in snapshot.missing] == [whole[number].records + whole[number + 1].records]


@pytest.mark.usefixtures("untold")
@pytest.mark.parametrize("whole", [True, False], ids=["header", "all"])
def test_a_denied_segment_is_an_error(data: Path, before: Before, whole: bool) -> None:
    """Nothing is lost: whoever may read it shall."""
    number = live(data)[-3]
    remove(data, number + 1)
    bad = str(path_of(data, number))

    def denied(place: str, nbytes: int | None = None) -> None:
        if place == bad and (whole or nbytes is None):
            raise PermissionError(errno.EACCES, "Permission denied", place)

    before("read", denied)
    with pytest.raises(PermissionError):
        pinned(data)


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 30))
def test_any_segments_spoilt_or_removed_are_counted_once(
    original: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    data = Path(shutil.copytree(original, tmp_path_factory.mktemp("some") / "data"))
    whole = truth(data)
    if random.random() < 0.5:
        without_manifests(data)
    for number in list(whole)[:-1]:
        fate = random.random()
        if fate < 0.15:
            spoil(data, number, random.choice(["flip", "empty", "other"]))
        elif fate < 0.3:
            remove(data, number)
        elif fate < 0.4 and len(path_of(data, number).read_bytes()) > 200:
            path = path_of(data, number)
            path.write_bytes(path.read_bytes()[: random.randrange(64, path.stat().st_size)])
    snapshot = pinned(data)
    counted = sum(gap.records for gap in (*snapshot.missing, *snapshot.trimmed))
    for ref in snapshot.segments:
        found = scan_segment(ref).found
        counted += len(found.positions) + sum(hole.records for hole in found.holes if hole.records != UNKNOWN)
    assert counted == snapshot.next_position == max(known.end for known in whole.values())
    shutil.rmtree(data.parent)
