"""Taking a snapshot: which segments, from which of several places, up to where; and of a journal that changes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from spark_jobs.journal.files import BadLocation
from spark_jobs.journal.segments import next_id_at, read_segment
from spark_jobs.journal.snapshot import NoJournal, SeveralBrokers, Snapshot, by_broker, take
from store import inspect
from store.decode import decode_opened
from store.files import OsFiles
from store.manifest import MANIFEST, Manifest
from store.retention import DIRECTORY
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, decode_header, scan, segment_name
from tests.spark_jobs.journal import making
from tests.spark_jobs.journal.conftest import Before
from tests.spark_jobs.journal.disks import check, kept, live, path_of, pinned, truth, without_manifests
from tests.spark_jobs.journals import Growing
from tests.store.workload import BROKER_ID

# -- a whole journal ---------------------------------------------------------------------------------------------------


def test_a_whole_journal(data: Path) -> None:
    whole = truth(data)
    snapshot = pinned(data)
    check(snapshot, whole)
    assert snapshot.broker_id == BROKER_ID.hex()
    assert snapshot.journals == (str(data),)
    assert [ref.number for ref in snapshot.segments] == [*whole]
    assert [ref.number for ref in snapshot.segments if ref.kept] == kept(data)
    assert [ref.number for ref in snapshot.segments if ref.newest] == [max(whole)]
    assert [ref.uri for ref in snapshot.segments] == [str(path_of(data, number)) for number in whole]
    assert [ref.records for ref in snapshot.segments] == [known.records for known in whole.values()]
    assert (snapshot.missing, snapshot.trimmed, snapshot.open_below) == ((), (), 0)
    assert (snapshot.torn_bytes, snapshot.leftovers, snapshot.notes) == (0, (), ())


def test_times_are_those_of_the_manifests_and_of_the_newest_segment(data: Path) -> None:
    whole = truth(data)
    for ref in pinned(data).segments:
        times = [time for _, time in whole[ref.number].times]
        known = (min(times), max(times)) if ref.kept or ref.newest else (0, 0)
        assert (ref.first_time, ref.last_time) == known


def test_kept_segments_are_not_opened(data: Path, before: Before) -> None:
    opened: list[str] = []
    before("read", lambda place, nbytes=None: opened.append(place))
    pinned(data)
    days = sorted(str(path) for path in data.rglob(MANIFEST))
    assert sorted(place for place in opened if DIRECTORY in place) == days


def test_without_manifests_it_is_the_same_but_for_the_times(data: Path) -> None:
    before = pinned(data)
    without_manifests(data)
    after = pinned(data)
    assert after.segments == tuple(
        replace(ref, first_time=0, last_time=0) if ref.kept else ref for ref in before.segments
    )
    assert (after.missing, after.trimmed) == ((), ())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keep", [True, False])
def test_random_journals(tmp_path: Path, seed: int, keep: bool) -> None:
    made = Growing(tmp_path / "data", seed, keep=keep)
    for _ in range(5):
        made.run(12)
        made.show()
        snapshot = pinned(made.data)
        check(snapshot, truth(made.data))
        assert snapshot.missing == ()
        assert keep <= (snapshot.trimmed == ())
        behind = [ref for ref in snapshot.segments for gap in snapshot.trimmed if ref.number == gap.last_segment + 1]
        assert snapshot.open_below == (next_id_at(behind[-1]) if behind else 0)


# -- the ways to name it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ["{data}", "{data}/journal", "{data}/journal/", "file://{data}", "file:{data}/journal"]
)
def test_a_journal_has_several_names(data: Path, form: str) -> None:
    assert take([form.format(data=data)]).segments == pinned(data).segments


def test_retention_alone(data: Path) -> None:
    whole = truth(data)
    snapshot = take([str(data / "journal" / DIRECTORY)])
    assert [ref.number for ref in snapshot.segments] == kept(data)
    assert not any(ref.newest for ref in snapshot.segments)
    lacking = {n: whole[n] for n in live(data) if n < max(kept(data))}
    assert sum(gap.records for gap in snapshot.missing) == sum(known.records for known in lacking.values())
    check(snapshot, {n: known for n, known in whole.items() if n <= max(kept(data))})


def test_one_day_of_retention(tmp_path: Path) -> None:
    made = Growing(tmp_path / "data", 1)
    for _ in range(3):
        made.run(30)
        made.station.now += 86_400_000
    made.show()
    days = sorted((made.data / "journal" / DIRECTORY).iterdir())
    assert len(days) == 3
    for day in days:
        snapshot = take([str(day)])
        numbers = sorted(int(path.stem) for path in day.glob("*.journal"))
        assert [ref.number for ref in snapshot.segments] == numbers
        assert all(ref.kept for ref in snapshot.segments)
        before = snapshot.trimmed[0] if snapshot.trimmed else None
        assert numbers[0] == 1 or (before is not None and before.what.endswith("before the part that is read"))
    check(take([str(day) for day in days] + [str(made.data)]), truth(made.data))


def test_a_moved_day_without_its_name_is_known_by_its_manifest(data: Path, tmp_path: Path) -> None:
    (day,) = (data / "journal" / DIRECTORY).iterdir()
    shutil.move(day, tmp_path / "archive")
    both = take([str(data), str(tmp_path / "archive")])
    check(both, truth(tmp_path))
    assert both.missing == ()
    assert all(ref.kept for ref in take([str(tmp_path / "archive")]).segments)


def test_places_that_overlap_are_one(data: Path) -> None:
    names = [str(data), str(data / "journal"), *map(str, (data / "journal" / DIRECTORY).iterdir())]
    assert replace(take(names), journals=()) == replace(pinned(data), journals=())


def test_nothing_to_read(tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoJournal, match="no segments"):
        take([str(tmp_path / "empty")])
    with pytest.raises(NoJournal, match="no such directory"):
        take([str(tmp_path / "nowhere")])
    with pytest.raises(NoJournal, match="is a file"):
        take([str(path_of(data, 1))])
    with pytest.raises(NoJournal, match="no location"):
        take([])
    with pytest.raises(NoJournal, match="nowhere"):
        take([str(data), str(tmp_path / "nowhere")])
    with pytest.raises(BadLocation):
        take(["nosuch://a/b"])


def test_several_brokers_are_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    segment = making.segment([[making.message(1)]], broker=b"x" * 16)
    (tmp_path / "other" / segment_name(1)).write_bytes(segment)
    with pytest.raises(SeveralBrokers) as refused:
        take([str(data), str(tmp_path / "other")])
    assert BROKER_ID.hex() in str(refused.value)
    assert str(tmp_path / "other" / segment_name(1)) in str(refused.value)


def test_locations_are_put_together_by_their_brokers(data: Path, tmp_path: Path) -> None:
    """One that does not tell its broker is the first one's; there may be no other."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / segment_name(1)).write_bytes(making.segment([[making.message(1)]], broker=b"x" * 16))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / segment_name(7)).write_bytes(b"nothing of a header")
    own, copy, other, torn = (str(each) for each in (data, data / "journal", tmp_path / "other", tmp_path / "torn"))
    assert by_broker([own]) == [[own]]
    assert by_broker([own, other, copy, torn]) == [[own, copy, torn], [other]]
    assert by_broker([torn, other]) == [[other, torn]]
    assert by_broker([torn, torn]) == [[torn, torn]]
    assert by_broker([]) == [[]]
    with pytest.raises(NoJournal, match="nowhere"):
        by_broker([own, str(tmp_path / "nowhere")])


# -- several copies ----------------------------------------------------------------------------------------------------


def test_a_live_segment_is_preferred_to_a_kept_one(data: Path) -> None:
    number = live(data)[0]
    day = path_of(data, kept(data)[0]).parent
    shutil.copy(path_of(data, number), day / segment_name(number))
    snapshot = pinned(data)
    assert [ref.kept for ref in snapshot.segments if ref.number == number] == [False]
    assert snapshot.notes == ()
    check(snapshot, truth(data))


def test_of_two_live_journals_the_one_that_goes_on_longest_is_the_journal(growing: Growing, tmp_path: Path) -> None:
    shutil.copytree(growing.data, tmp_path / "backup")
    growing.run(20)
    growing.show()
    whole = truth(growing.data)
    for paths in ([growing.data, tmp_path / "backup"], [tmp_path / "backup", growing.data]):
        snapshot = take([str(path) for path in paths])
        check(snapshot, whole)
        assert {Path(ref.uri).parents[-1 - len(tmp_path.parts)].name for ref in snapshot.segments if not ref.kept} == {
            "data"
        }
        (newest,) = [ref for ref in snapshot.segments if ref.newest]
        assert newest.uri == str(path_of(growing.data, max(whole)))


def test_of_two_journals_that_end_with_the_same_segment_it_is_the_one_with_more_in_it(tmp_path: Path) -> None:
    """A backup of a moment ago has files of the same names and sizes."""
    entries = [[making.message(number)] for number in range(1, 6)]
    for name, known in (("backup", 3), ("data", 5), ("older", 1)):
        content = making.segment(entries[:known])
        (tmp_path / name / "journal").mkdir(parents=True)
        (tmp_path / name / "journal" / segment_name(1)).write_bytes(content + bytes(4096 - len(content)))
    for names in permutations(("backup", "data", "older")):
        snapshot = take([str(tmp_path / name) for name in names])
        assert [ref.uri for ref in snapshot.segments] == [str(path_of(tmp_path / "data", 1))]
        assert snapshot.next_position == 6


def test_a_copy_that_differs_is_told(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "journal" / DIRECTORY, tmp_path / "archive")
    first, second, third = kept(data)[:3]
    shorter, other, broken = (path_of(tmp_path / "archive", number) for number in (first, second, third))
    shorter.write_bytes(shorter.read_bytes()[:-8])
    other.write_bytes(making.segment([[making.message(1)]], number=second, broker=BROKER_ID))
    broken.write_bytes(b"")
    for paths in ([data, tmp_path / "archive"], [data / "journal", tmp_path / "archive"]):
        snapshot = take([str(path) for path in paths])
        check(snapshot, truth(data))
        assert [note.partition(":")[0] for note in snapshot.notes] == [str(shorter), str(other), str(broken)]
        assert all(note.endswith("which is used") for note in snapshot.notes)


def test_a_copy_that_can_be_read_is_preferred(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "journal" / DIRECTORY, tmp_path / "archive")
    whole = truth(data)
    number = kept(data)[3]
    path_of(data, number).write_bytes(b"")
    snapshot = take([str(data), str(tmp_path / "archive")])
    check(snapshot, whole)
    assert [ref.uri for ref in snapshot.segments if ref.number == number] == [
        str(path_of(tmp_path / "archive", number))
    ]
    assert len(snapshot.notes) == 1


# -- the newest segment ------------------------------------------------------------------------------------------------


def newest_of(data: Path) -> tuple[Path, bytes]:
    path = path_of(data, max(live(data)))
    return path, path.read_bytes()


def test_the_newest_segment_is_pinned_where_its_valid_entries_end(growing: Growing) -> None:
    before = pinned(growing.data)
    (newest,) = [ref for ref in before.segments if ref.newest]
    content = read_segment(newest)
    assert len(content) == newest.limit < newest.size
    assert scan(content, decode_header(content)).position == newest.next_first == before.next_position
    growing.run(3)
    growing.show()
    assert read_segment(newest) == content, "whatever the broker writes behind it"
    assert pinned(growing.data).next_position > before.next_position


def test_a_torn_tail_is_no_damage(growing: Growing) -> None:
    growing.run(3)
    growing.show(half_written=True)
    snapshot = pinned(growing.data)
    report = inspect.verify(OsFiles(), str(growing.journal))
    assert report.torn
    assert snapshot.torn_bytes == report.segments[len(live(growing.data)) - 1].unread_bytes > 0
    assert snapshot.missing == ()
    (newest,) = [ref for ref in snapshot.segments if ref.newest]
    content = read_segment(newest)
    assert scan(content, decode_header(content)).damage == ""
    growing.show()
    assert snapshot.next_position < pinned(growing.data).next_position


def test_damage_in_the_middle_of_the_newest_segment_does_not_end_it(growing: Growing) -> None:
    growing.run(3)
    growing.show()
    whole = pinned(growing.data)
    path, content = newest_of(growing.data)
    entries = scan(content, decode_header(content)).entries
    at = next(entry for entry in entries if entries[-1].durable > entry.first).offset
    path.write_bytes(content[: at + 20] + b"\xff" + content[at + 21 :])
    snapshot = pinned(growing.data)
    ends = [(ref.number, ref.limit, ref.first_position, ref.next_first) for ref in snapshot.segments]
    assert ends == [(ref.number, ref.limit, ref.first_position, ref.next_first) for ref in whole.segments]
    assert (snapshot.next_position, snapshot.torn_bytes) == (whole.next_position, 0)


def test_damage_that_no_torn_write_explains_is_left_to_be_seen(tmp_path: Path) -> None:
    """An entry that comes a second time, at the very end."""
    data = making.segment([[making.message(1)], [making.message(2)]])
    doubled = data + data[64 : 64 + (len(data) - 64) // 2]
    (tmp_path / segment_name(1)).write_bytes(doubled)
    (newest,) = take([str(tmp_path)]).segments
    assert (newest.limit, newest.next_first) == (len(doubled), None)


def test_a_newest_segment_without_entries(data: Path) -> None:
    """Begun, and the power went: what there must be is said by the one before."""
    before = pinned(data)
    number = max(live(data)) + 1
    empty = making.segment([], number=number, first=before.next_position, broker=BROKER_ID) + bytes(4032)
    (data / "journal" / segment_name(number)).write_bytes(empty)
    snapshot = pinned(data)
    assert (snapshot.missing, snapshot.next_position) == ((), before.next_position)
    assert [ref.number for ref in snapshot.segments if ref.newest] == [number]
    gone = live(data)[0]
    path_of(data, gone).unlink()
    assert [gap.first_segment for gap in pinned(data).missing] == [gone]
    between = live(data)[-2]
    path_of(data, between).unlink()
    assert [gap.first_segment for gap in pinned(data).missing] == [gone, between], "it was the one that said it"


def test_leftovers_are_read_and_told(data: Path) -> None:
    number = kept(data)[2]
    path_of(data, number).rename(data / "journal" / segment_name(number))
    snapshot = pinned(data)
    assert snapshot.leftovers == (number,)
    check(snapshot, truth(data))


# -- ids ---------------------------------------------------------------------------------------------------------------


def test_the_ids_that_may_have_been_given_out(data: Path) -> None:
    snapshot = pinned(data)
    found = [next_id_at(ref) for ref in snapshot.segments]
    at = SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES
    assert found == [decode_opened(Path(ref.uri).read_bytes(), at).next_id for ref in snapshot.segments]
    assert found == sorted(found)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no segment" * 20,
        making.segment([]),
        making.segment([[making.message(1)]]),
        making.segment([[making.message(1)]])[:-1],
        making.segment([[b"\x09\0\0\0\x20\x01\0\0\0"]]),
    ],
)
def test_a_segment_that_does_not_tell_its_ids(tmp_path: Path, data: Path, content: bytes) -> None:
    path = tmp_path / segment_name(1)
    path.write_bytes(content)
    ref = replace(pinned(data).segments[0], uri=str(path), number=1, size=len(content), limit=len(content))
    assert next_id_at(ref) == 0


# -- whatever a crash leaves -------------------------------------------------------------------------------------------


def test_the_manifests_agree_with_the_segments(data: Path) -> None:
    """Else the tests of this module would prove little."""
    told = Manifest()
    for path in data.rglob(MANIFEST):
        told.add(path.read_bytes())
    assert sorted(told.kept) == kept(data)
    for number, known in truth(data).items():
        if number in told.kept:
            line = told.kept[number]
            assert (line.first_position, line.next_position, line.created) == (known.first, known.end, known.created)
            assert line.bytes == path_of(data, number).stat().st_size


def test_a_snapshot_says_nothing_of_segments_it_does_not_have() -> None:
    empty = Snapshot("", (), ())
    assert empty.partitions() == []
    assert empty.bounded(from_position=1, to_time=1).segments == ()
