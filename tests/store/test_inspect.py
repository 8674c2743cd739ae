"""Looking at a journal: what is right, what is wrong, and nothing is touched."""

from __future__ import annotations

import pytest

from store import inspect, record, segment
from store.errors import Corrupt
from store.inspect import Status
from store.manifest import BYTES, append, removed_line
from store.retention import RetentionSettings
from store.segment import segment_name
from tests.store.segments import header, made
from tests.store.workload import BROKER_ID, DIRECTORY, EPOCH, Script, Station, death
from tests.support.sim_files import Fault, SimFiles


@pytest.fixture
def files() -> SimFiles:
    """A journal of several segments, with kept ones, closed in good order."""
    disk = SimFiles()
    station = Station(disk, retention=RetentionSettings(enabled=True))
    Script(3).run(station, 60)
    queue = station.new_queue("last")
    (id,) = station.send([queue], [b"dies"])
    station.send_to_dla(queue, id, queue)
    station.commit()
    station.journal.close()
    return disk


def segments(files: SimFiles) -> list[str]:
    return [p for p in files.paths() if p.endswith(".journal") and "retention" not in p]


def kept(files: SimFiles) -> list[str]:
    return [p for p in files.paths() if "retention" in p and p.endswith(".journal")]


def test_a_sound_journal(files: SimFiles) -> None:
    before = {path: files.read(path) for path in files.paths()}
    report = inspect.verify(files, DIRECTORY)
    assert report.ok
    assert report.closed
    assert not report.torn
    assert report.problems == []
    assert report.missing == report.leftovers == []
    assert report.broker_id == BROKER_ID.hex()
    live = [s for s in report.segments if not s.kept]
    assert [s.path for s in live] == segments(files)
    assert [s for s in report.segments if s.kept]
    assert {s.status for s in report.segments} == {Status.OK}
    assert all(s.used == s.size and s.records == s.last_position - s.first_position + 1 for s in live[:-1])
    assert all(sum(s.types.values()) == s.records for s in report.segments)
    assert all(EPOCH <= s.first_timestamp <= s.last_timestamp and s.created >= EPOCH for s in live)
    assert before == {path: files.read(path) for path in files.paths()}, "nothing was written"


def test_every_record_is_readable(files: SimFiles) -> None:
    lines = list(inspect.iter_records(files, DIRECTORY))
    assert [line.position for line in lines] == sorted({line.position for line in lines})
    by_type = {line.type: line for line in lines}
    assert lines[-1].type == "CLOSED"
    message = by_type["MESSAGE"]
    assert message.fields["address"] == "a"
    assert message.fields["head_bytes"] == 1
    assert "body" not in message.fields
    assert message.fields["queue_ids"]
    assert by_type["REMOVED"].fields["reason"] in ("consumed", "dead-lettered", "deleted")
    assert isinstance(by_type["REMOVED"].fields["ids"], list)
    assert by_type["DEAD_LETTERED"].fields["reason"] == "rejected"
    whole = [line for line in inspect.iter_records(files, DIRECTORY, bodies=True) if line.type == "MESSAGE"]
    assert all(line.fields["head"] == "h" and "body" in line.fields for line in whole)


def test_counts(files: SimFiles) -> None:
    stat = inspect.stat(files, DIRECTORY)
    lines = list(inspect.iter_records(files, DIRECTORY))
    assert stat.segments == len(segments(files))
    assert stat.records == len(lines) == sum(stat.types.values())
    assert (stat.first_position, stat.last_position) == (lines[0].position, lines[-1].position)
    assert (stat.first_timestamp, stat.last_timestamp) == (lines[0].timestamp, lines[-1].timestamp)
    assert stat.bytes == sum(files.size(p) for p in segments(files)) >= stat.used
    assert stat.used == sum(s.used for s in inspect.verify(files, DIRECTORY).segments if not s.kept)
    assert stat.kept_segments > 0
    assert stat.kept_bytes > 0
    assert stat.torn_copies == 0
    reasons = [str(line.fields["reason"]) for line in lines if line.type == "REMOVED"]
    assert set(stat.removals) == set(reasons)
    assert sum(stat.removals.values()) >= len(reasons)


def test_it_works_while_a_broker_writes() -> None:
    files = SimFiles()
    station = Station(files)
    script = Script(4)
    for _ in range(20):
        script.run(station, 3)
        report = inspect.verify(files, DIRECTORY)
        assert report.ok
        assert not report.closed
        assert len(list(inspect.iter_records(files, DIRECTORY))) == inspect.stat(files, DIRECTORY).records


def test_a_half_written_entry_is_normal_at_the_end_only() -> None:
    files = SimFiles()
    station = Station(files)
    Script(4).run(station, 30)
    whole = len(list(inspect.iter_records(files, DIRECTORY)))
    path = segments(files)[-1]
    end = len(files.read(path).rstrip(b"\0")) + 16
    files.put(path, files.read(path)[:end] + segment.ENTRY_MAGIC + b"\x60\0\0\0" + bytes(20) + b"half")
    report = inspect.verify(files, DIRECTORY)
    assert report.ok
    assert report.torn
    torn = report.segments[-1]
    assert (torn.status, torn.error) == (Status.TORN, "no valid entry, but bytes that are not zero")
    assert torn.used == torn.error_offset <= end
    assert torn.unread_bytes > 0
    assert len(list(inspect.iter_records(files, DIRECTORY))) == whole
    station.log.close()
    Station(files)
    assert inspect.stat(files, DIRECTORY).torn_copies == 1


def test_damage_is_named(files: SimFiles) -> None:
    path = segments(files)[1]
    files.flip(path, 200, 0xFF)
    report = inspect.verify(files, DIRECTORY)
    assert not report.ok
    bad = report.segments[1]
    assert bad.status is Status.CORRUPT
    assert report.problems == [f"{path}: {bad.error} at byte {bad.error_offset}"]
    assert 64 <= bad.error_offset <= 200
    assert bad.unread_bytes > 0
    with pytest.raises(Corrupt, match=r"no valid entry"):
        list(inspect.iter_records(files, DIRECTORY))
    assert inspect.stat(files, DIRECTORY).segments == len(segments(files))


def test_damage_in_the_newest_that_was_durable(files: SimFiles) -> None:
    path = segments(files)[-1]
    files.flip(path, 70, 0xFF)
    report = inspect.verify(files, DIRECTORY)
    assert [s.status for s in report.segments if s.path == path] == [Status.CORRUPT]
    assert len(report.problems) == 1
    assert "knew it durable" in report.problems[0]


def test_damage_in_a_kept_segment(files: SimFiles) -> None:
    path = kept(files)[0]
    files.flip(path, 100, 1)
    report = inspect.verify(files, DIRECTORY)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(path)


def test_a_torn_end_of_a_kept_segment_is_damage(files: SimFiles) -> None:
    """It was complete when it was kept."""
    path = kept(files)[0]
    files.put(path, files.read(path)[:-8])
    report = inspect.verify(files, DIRECTORY)
    assert len(report.problems) == 1
    assert report.problems[0].startswith(f"{path}: no valid entry")
    assert [s.status for s in report.segments if s.path == path] == [Status.CORRUPT]


def test_nothing_is_said_of_a_segment_whose_header_is_wrong(files: SimFiles) -> None:
    path = segments(files)[1]
    size = files.size(path)
    files.flip(path, 0, 1)
    (found,) = [s for s in inspect.verify(files, DIRECTORY).segments if s.path == path]
    assert found == inspect.SegmentReport(
        path, int(path[-18:-8]), status=Status.CORRUPT, size=size, unread_bytes=size, error=found.error
    )
    assert (found.created, found.used, found.entries, found.records, found.error_offset) == (0, 0, 0, 0, 0)
    assert (found.first_position, found.last_position, found.first_timestamp, found.last_timestamp) == (0, 0, 0, 0)


def test_a_kept_segment_that_is_no_longer_there_is_told_and_no_problem(files: SimFiles) -> None:
    gone, back, *_ = kept(files)
    assert inspect.verify(files, DIRECTORY).kept_missing == []
    files.remove(gone)
    files.put(f"{DIRECTORY}/{back[-18:]}", files.read(back))
    files.remove(back)
    report = inspect.verify(files, DIRECTORY)
    assert report.kept_missing == [int(gone[-18:-8])], "one that is still in the journal is not missing"
    assert report.ok


def test_a_kept_segment_that_a_limit_takes_while_it_is_looked_at(
    files: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, *others = kept(files)
    gone = path

    def size(path: str) -> int:
        return len(read(path))

    def read(path: str) -> bytes:
        if path == gone and path in files.paths():
            files.remove(path)
            append(files, path.rpartition("/")[0], [removed_line(int(path[-18:-8]), BYTES)])
        return SimFiles.read(files, path)

    monkeypatch.setattr(files, "read", read)
    monkeypatch.setattr(files, "size", size)
    report = inspect.verify(files, DIRECTORY)
    assert (report.problems, report.kept_missing) == ([], [])
    assert path not in [segment.path for segment in report.segments]
    gone = others[0]
    assert inspect.stat(files, DIRECTORY).kept_segments == len(others) - 1


@pytest.mark.parametrize("listings", [0, 1, 2])
def test_a_day_that_goes_while_it_is_looked_at(files: SimFiles, monkeypatch: pytest.MonkeyPatch, listings: int) -> None:
    """`listings`: how often it is still there when it is listed."""
    (day,) = {path.rpartition("/")[0] for path in files.paths() if "retention" in path}
    listed = 0

    def list_dir(path: str) -> list[str]:
        nonlocal listed
        listed += path == day
        if path == day and listed > listings:
            raise FileNotFoundError(path)
        return SimFiles.list_dir(files, path)

    def read(path: str) -> bytes:
        if path.startswith(day) and listed >= listings:
            raise FileNotFoundError(path)
        return SimFiles.read(files, path)

    monkeypatch.setattr(files, "list_dir", list_dir)
    monkeypatch.setattr(files, "read", read)
    report = inspect.verify(files, DIRECTORY)
    assert (report.problems, report.kept_missing) == ([], [])
    assert any(segment.kept for segment in report.segments) is (listings == 2)


def test_a_missing_segment(files: SimFiles) -> None:
    path = segments(files)[1]
    files.remove(path)
    report = inspect.verify(files, DIRECTORY)
    assert report.missing == [int(path[-18:-8])]
    assert f"{path}: the segment is missing" in report.problems


@pytest.mark.parametrize("damaged", [False, True])
def test_a_leftover_is_no_problem(files: SimFiles, damaged: bool) -> None:
    old = kept(files)[0]
    path = f"{DIRECTORY}/{old[-18:]}"
    files.put(path, files.read(old))
    files.flip(path, 100, damaged)
    report = inspect.verify(files, DIRECTORY)
    assert (report.problems, report.leftovers) == ([], [int(old[-18:-8])])
    assert path not in [s.path for s in report.segments]


def test_bad_headers(files: SimFiles) -> None:
    first, second, *_ = segments(files)
    files.flip(first, 0, 1)
    files.put(second, files.read(segments(files)[-1]))
    report = inspect.verify(files, DIRECTORY)
    assert [s.status for s in report.segments[:2]] == [Status.CORRUPT, Status.CORRUPT]
    assert "magic" in report.problems[0]
    assert "the header is that of segment" in report.problems[1]
    with pytest.raises(Corrupt, match="magic"):
        list(inspect.iter_records(files, DIRECTORY))
    assert inspect.stat(files, DIRECTORY).segments == len(segments(files))


def test_another_brokers_segment_and_a_wrong_position(files: SimFiles) -> None:
    path = segments(files)[1]
    number = int(path[-18:-8])
    files.put(path, header(number, broker_id=bytes(16)))
    report = inspect.verify(files, DIRECTORY)
    assert f"{path}: the segment belongs to another broker at byte 0" in report.problems
    assert any(p.startswith(f"{path}: the segment begins at position 0") for p in report.problems)
    assert inspect.stat(files, DIRECTORY).segments == len(segments(files))


def test_a_newest_segment_with_a_bad_header(files: SimFiles) -> None:
    path = segments(files)[-1]
    files.put(path, b"")
    report = inspect.verify(files, DIRECTORY)
    assert report.problems == [f"{path}: segment of 0 bytes is shorter than its header at byte 0"]


def test_a_segment_that_cannot_be_read(files: SimFiles) -> None:
    path = segments(files)[-1]
    files.plan(3, Fault.EIO, sticky=False)
    report = inspect.verify(files, DIRECTORY)
    assert report.ok, "the second attempt to read it succeeded"
    readings = [n for n in range(1, 60) if _unreadable(files, n)]
    assert readings
    assert path in segments(files)


def _unreadable(files: SimFiles, at: int) -> bool:
    """Whether an error at this operation makes a segment unreadable; one while listing is an OSError."""
    files.plan(at, Fault.EIO)
    try:
        report = inspect.verify(files, DIRECTORY)
    except OSError:
        return False
    finally:
        files.heal()
    return any(s.status is Status.UNREADABLE for s in report.segments)


class Vanishing(SimFiles):
    """A disk on which a segment goes away just before it is read, a number of times."""

    times = 0

    def read(self, path: str) -> bytes:
        if self.times and path.endswith(segment_name(2)):
            self.times -= 1
            raise FileNotFoundError(path)
        return super().read(path)


@pytest.fixture
def vanishing() -> Vanishing:
    files = Vanishing()
    station = Station(files)
    Script(3).run(station, 30)
    station.journal.close()
    return files


def test_a_segment_that_vanishes_is_looked_for_again(vanishing: Vanishing) -> None:
    vanishing.times = 4
    assert inspect.verify(vanishing, DIRECTORY).ok
    assert vanishing.times == 0
    vanishing.times = 5
    with pytest.raises(Corrupt, match="vanishing"):
        inspect.verify(vanishing, DIRECTORY)


def test_a_segment_that_vanishes_is_left_out(vanishing: Vanishing) -> None:
    lines = list(inspect.iter_records(vanishing, DIRECTORY))
    vanishing.times = 1
    rest = list(inspect.iter_records(vanishing, DIRECTORY))
    assert rest == [line for line in lines if line.segment != 2]
    vanishing.times = 1
    assert inspect.stat(vanishing, DIRECTORY).records == len(rest)


def test_no_directory_and_no_segments() -> None:
    files = SimFiles()
    with pytest.raises(FileNotFoundError):
        inspect.verify(files, DIRECTORY)
    files.make_dir(DIRECTORY)
    assert inspect.verify(files, DIRECTORY) == inspect.Report()
    assert inspect.stat(files, DIRECTORY) == inspect.Stat()
    assert list(inspect.iter_records(files, DIRECTORY)) == []


def test_a_segment_without_entries() -> None:
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", header())
    assert inspect.verify(files, DIRECTORY).ok
    assert inspect.stat(files, DIRECTORY).segments == 1


def odd(*records: bytes) -> SimFiles:
    """A journal with records as no broker would write them, in a valid entry."""
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", made([record.opened(1, {}, {}), *records]))
    return files


def test_reasons_of_other_software_are_numbers() -> None:
    files = odd(record.removed(1, 99, [5]), death(reason=98))
    assert [line.fields.get("reason") for line in inspect.iter_records(files, DIRECTORY)] == [None, 99, 98]
    assert inspect.stat(files, DIRECTORY).removals == {"99": 1}


def test_records_that_contradict_themselves() -> None:
    liar = record.removed(1, 1, [5])
    files = odd(record.closed(), liar[:20] + b"\x02" + liar[21:], record.closed())
    with pytest.raises(Corrupt, match="REMOVED record of 32 bytes holds 40"):
        list(inspect.iter_records(files, DIRECTORY))
    assert inspect.stat(files, DIRECTORY).types == {"OPENED": 1, "CLOSED": 1, "REMOVED": 1}


def test_records_of_other_software() -> None:
    files = odd(b"\x08\0\0\0\x63\x01\0\0")
    assert inspect.verify(files, DIRECTORY).problems == [
        f"{DIRECTORY}/{segment_name(1)}: record type 99 version 1 is unknown: a newer version wrote it"
        f" at byte {64 + 48 + len(record.opened(1, {}, {}))}"
    ]
    assert inspect.stat(files, DIRECTORY).types == {"OPENED": 1}
