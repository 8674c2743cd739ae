"""Repair: whatever is damaged, what is valid stays, and what is lost is counted."""

from __future__ import annotations

from random import Random

import pytest

from store import inspect, record, segment
from store.decode import UNSTATED
from store.errors import Corrupt, NewerFormat
from store.log import FileLog, LogSettings
from store.record import RecordType
from store.recovery import Recovery
from store.repair import plan as repair
from store.repair.plan import CannotRepair, Plan
from store.segment import segment_name
from tests.store.segments import header, made, newer, packed
from tests.store.workload import DECOYS, DIRECTORY, EPOCH, Station
from tests.support.sim_files import Crash, Fault, SimFiles

BACKUP = "/data/before"
OWN = (RecordType.OPENED, RecordType.CLOSED)


@pytest.fixture(scope="module")
def whole() -> SimFiles:
    """A journal in some segments, with messages that are alive in each."""
    files = SimFiles()
    station = Station(files)
    queue = station.new_queue("q")
    for number in range(24):
        station.send([queue], [b"%d " % number + b"x" * (300 + number * 7)])
        if number % 5 == 4:
            station.remove(queue, station.on(queue)[:2])
        station.commit()
        station.step()
    station.journal.close()
    assert len(paths(files)) >= 3
    return files


@pytest.fixture(scope="module")
def original(whole: SimFiles) -> dict[int, bytes]:
    return records(copy(whole))


def paths(files: SimFiles) -> list[str]:
    return [path for path in files.paths() if path.startswith(DIRECTORY) and path.endswith(".journal")]


def copy(files: SimFiles) -> SimFiles:
    other = SimFiles()
    for path in paths(files):
        other.put(path, files.read(path))
    return other


def records(files: SimFiles) -> dict[int, bytes]:
    """Every record that recovery finds, by position.  Raises Corrupt."""
    log = FileLog(files, DIRECTORY, LogSettings(segment_bytes=4096), now=lambda: EPOCH)
    log.open()
    try:
        found = {}
        for _, position, _, _, buffer, offset in Recovery(log).records():
            length = int.from_bytes(buffer[offset : offset + 4], "little")
            found[position] = buffer[offset : offset + length]
        return found
    finally:
        log.close()


def repaired(files: SimFiles, original: dict[int, bytes]) -> Plan:
    """Repair, and compare with what was there: each record is the same, or counted as lost."""
    before = {path: files.read(path) for path in paths(files)}
    plan = repair.plan(files, DIRECTORY, EPOCH)
    repair.apply(files, DIRECTORY, plan, BACKUP)
    assert inspect.verify(files, DIRECTORY).ok
    found = records(files)
    # Nobody knows how much is lost at the very end: the new segment begins where what is valid ends.
    found = {p: d for p, d in found.items() if p not in own(files, plan.added)}
    lost = [position for position, data in found.items() if data == record.lost()]
    assert {p: d for p, d in found.items() if p in original and p not in lost} == {
        p: d for p, d in original.items() if p in found and p not in lost
    }
    assert len(lost) == plan.records_lost
    assert sorted(found) == list(range(min(found), max(found) + 1)), "positions are dense"
    for number in set(plan.written) - set(plan.missing) - {plan.added}:
        name = segment_name(number)
        assert files.read(f"{BACKUP}/{name}") == before[f"{DIRECTORY}/{name}"]
    station = Station(files)  # and a broker starts
    assert station.journal.allocate_ids(1) > 10_000, "no id is given out again"
    with pytest.raises(CannotRepair, match="nothing to repair"):
        repair.plan(files, DIRECTORY, EPOCH)
    return plan


def own(files: SimFiles, number: int) -> range:
    """The positions in a segment."""
    data = files.read(f"{DIRECTORY}/{segment_name(number)}")
    header = segment.decode_header(data)
    return range(header.first_position, segment.scan(data, header).position)


def test_nothing_is_done_to_a_journal_that_is_well(whole: SimFiles) -> None:
    with pytest.raises(CannotRepair, match="a broker starts on this journal"):
        repair.plan(copy(whole), DIRECTORY, EPOCH)
    empty = SimFiles()
    empty.make_dir(DIRECTORY)
    with pytest.raises(CannotRepair, match="there are no segments"):
        repair.plan(empty, DIRECTORY, EPOCH)


def test_damage_anywhere(whole: SimFiles, original: dict[int, bytes]) -> None:
    """One bit in every 23rd byte of every segment: no more is lost than the entry that it lies in."""
    tried = 0
    for path in paths(whole):
        data = whole.read(path)
        entries = segment.scan(data, segment.decode_header(data)).entries
        for offset in range(0, len(data), 23):
            files = copy(whole)
            files.flip(path, offset, 1)
            if inspect.verify(files, DIRECTORY).ok:
                continue
            plan = repaired(files, original)
            tried += 1
            entry = next((entry for entry in entries if entry.offset <= offset < entry.end), None)
            if entry is not None:
                assert plan.records_lost == entry.count
                (loss,) = [loss for loss in plan.losses if loss.segment not in plan.missing]
                assert (loss.offset, loss.first_position) == (entry.offset, entry.first)
    assert tried > 100


@pytest.mark.parametrize("at", range(3))
def test_a_missing_segment(whole: SimFiles, original: dict[int, bytes], at: int) -> None:
    files = copy(whole)
    gone = paths(whole)[:-1][at % (len(paths(whole)) - 1)]
    damaged = SimFiles()
    for path in paths(files):
        if path != gone:
            damaged.put(path, files.read(path))
    plan = repaired(damaged, original)
    assert plan.missing == [segment.segment_number(gone.rpartition("/")[2])]


@pytest.mark.parametrize("at", range(3))
def test_a_bad_header_costs_the_segment(whole: SimFiles, original: dict[int, bytes], at: int) -> None:
    files = copy(whole)
    path = paths(whole)[at]
    files.flip(path, 20, 1)
    plan = repaired(files, original)
    # With the newest one it is lost as well that an older one was given up: that one counts as missing then.
    assert {loss.segment for loss in plan.losses} - {*plan.missing} == {segment.segment_number(path[-18:])}


def test_a_segment_of_another_broker(whole: SimFiles, original: dict[int, bytes]) -> None:
    files = copy(whole)
    path = paths(whole)[1]
    number = segment.segment_number(path[-18:])
    first = own(files, number).start
    theirs = header(number, first, bytes(16))
    files.put(path, theirs + packed(theirs, first, record.queue(5_000, {"name": "theirs"})))
    plan = repaired(files, original)
    assert plan.records_lost
    assert {loss.segment for loss in plan.losses} == {number}
    assert "theirs" not in Station(files.fork(0)).queues.values()


def test_a_segment_in_the_place_of_another(whole: SimFiles, original: dict[int, bytes]) -> None:
    files = copy(whole)
    one, other = paths(whole)[:2]
    files.put(other, files.read(one))
    plan = repaired(files, original)
    assert {loss.segment for loss in plan.losses} == {segment.segment_number(other[-18:])}


def test_no_header_is_valid(whole: SimFiles) -> None:
    files = copy(whole)
    for path in paths(files):
        files.flip(path, 20, 1)
    with pytest.raises(CannotRepair, match="no segment has a valid header"):
        repair.plan(files, DIRECTORY, EPOCH)


def test_queues_whose_definition_is_lost_are_defined(whole: SimFiles) -> None:
    """The messages on them are not lost with it."""
    first = paths(whole)[0]
    data = whole.read(first)
    at = next(line.offset for line in inspect.iter_records(whole, DIRECTORY) if line.type == "QUEUE")
    only = SimFiles()
    only.put(first, data)
    only.flip(first, at, 1)
    plan = repair.plan(only, DIRECTORY, EPOCH)
    repair.apply(only, DIRECTORY, plan, BACKUP)
    assert [name.partition(".")[0] for name in plan.queues] == ["recovered"]
    station = Station(only)
    assert list(station.queues.values()) == plan.queues
    assert station.messages


def test_segments_of_newer_software_are_left_to_it() -> None:
    unknown = bytearray(record.closed())
    unknown[4] = 250
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", made([record.opened(1, {}, {}), bytes(unknown)], first=1))
    with pytest.raises(Corrupt, match="record type 250 version 1 is unknown"):
        repair.plan(files, DIRECTORY, EPOCH)


def test_a_segment_of_a_newer_format_is_left_to_it(whole: SimFiles) -> None:
    """Not one byte is given up, whatever else is wrong."""
    files = copy(whole)
    newest = paths(files)[-1]
    files.put(newest, newer(files.read(newest)))
    files.flip(paths(files)[0], 200, 1)
    with pytest.raises(NewerFormat, match="a newer version wrote it"):
        repair.plan(files, DIRECTORY, EPOCH)


@pytest.mark.parametrize("fault", [Fault.CRASH, Fault.EIO])
def test_a_fault_in_the_middle(whole: SimFiles, original: dict[int, bytes], fault: Fault) -> None:
    """Stopped at any operation, the next run finishes it, and nothing more is lost."""
    at = 0
    while True:
        at += 1
        files = SimFiles(at)
        for path in paths(whole):
            files.put(path, whole.read(path))
        for path in paths(whole)[:2]:
            files.flip(path, 200, 1)
        plan = repair.plan(files, DIRECTORY, EPOCH)
        files.plan(at, fault)
        try:
            repair.apply(files, DIRECTORY, plan, BACKUP)
            if not files.faults:
                break
        except (Crash, OSError):
            pass
        files.crash()
        if not inspect.verify(files, DIRECTORY).ok:
            repair.apply(files, DIRECTORY, repair.plan(files, DIRECTORY, EPOCH), f"{BACKUP}-2")
        found = records(files)
        assert sum(data == record.lost() for data in found.values()) <= plan.records_lost
        assert all(data == original[p] for p, data in found.items() if p in original and data != record.lost())
    assert at > 5


def test_a_repair_that_is_done_is_durable(whole: SimFiles) -> None:
    files = copy(whole)
    files.flip(paths(whole)[1], 100, 1)
    repair.apply(files, DIRECTORY, repair.plan(files, DIRECTORY, EPOCH), BACKUP)
    done = {path: files.read(path) for path in files.paths()}
    files.crash(keep=0.0)
    assert {path: files.read(path) for path in files.paths()} == done
    assert inspect.verify(files, DIRECTORY).ok


def test_random_damage(whole: SimFiles, original: dict[int, bytes]) -> None:
    """Several wounds at once, of any size."""
    for seed in range(60):
        chance = Random(seed)
        files = copy(whole)
        for _ in range(chance.randrange(1, 5)):
            path = chance.choice(paths(files))
            data = bytearray(files.read(path))
            start = chance.randrange(64, len(data))
            data[start : start + chance.randrange(1, 900)] = chance.randbytes(1) * 8
            files.put(path, bytes(data))
        if not inspect.verify(files, DIRECTORY).ok:
            print(f"seed {seed}")
            repaired(files, original)


def test_two_queues_of_one_name_and_ids_and_deletions_that_were_kept() -> None:
    """The deletion of the first queue lay in what was lost: the second has its name, so the first was deleted."""
    one = [record.opened(100, {}, {}), record.ids(5_000), record.queue(7, {"name": "q"})]
    gone: record.Json = {"name": "gone"}
    two = [record.queue(8, gone), record.queue_deleted(8, gone), record.queue(9, {"name": "q"})]
    path, files = f"{DIRECTORY}/{segment_name(1)}", SimFiles()
    files.put(path, made(one, two, [record.closed()], [record.queue(10, {"name": "last"})]))
    files.flip(path, len(made(one, two)) + 40, 1)
    plan = repair.plan(files, DIRECTORY, EPOCH)
    repair.apply(files, DIRECTORY, plan, BACKUP)
    station = Station(files)
    assert sorted(station.queues.items()) == [(9, "q"), (10, "last")]
    assert station.journal.allocate_ids(1) >= 5_000


def test_a_kept_entry_whose_records_do_not_fill_it_is_lost() -> None:
    """Its checksum is right: some software wrote it so."""
    short = (9_999).to_bytes(4, "little") + record.closed()[4:]
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", made([record.opened(100, {}, {})], [short]))
    plan = repair.plan(files, DIRECTORY, EPOCH)
    assert [(loss.what, loss.records) for loss in plan.losses] == [("the records do not fill their entry", 1)]
    repair.apply(files, DIRECTORY, plan, BACKUP)
    assert inspect.verify(files, DIRECTORY).ok


def test_an_address_whose_record_is_lost_is_defined_once_for_all_its_queues() -> None:
    queue = {"address": "shared", "routing-type": "ANYCAST"}
    lost = [record.opened(100, {}, {})], [record.ids(200)]
    path, files = f"{DIRECTORY}/{segment_name(1)}", SimFiles()
    files.put(path, made(*lost, [record.queue(7, {"name": "q", **queue}), record.queue(8, {"name": "r", **queue})]))
    files.flip(path, len(made(*lost)) - 1, 1)
    repair.apply(files, DIRECTORY, repair.plan(files, DIRECTORY, EPOCH), BACKUP)
    lines = list(inspect.iter_records(files, DIRECTORY))
    assert len([line for line in lines if line.type == "ADDRESS"]) == 1


def _older(*pieces: bytes) -> SimFiles:
    """A journal whose older segment has these bytes behind its header, and up to two records."""
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", header() + b"".join(pieces))
    opened = record.opened(100, {1: UNSTATED, 2: UNSTATED}, {})
    files.put(f"{DIRECTORY}/{segment_name(2)}", made([opened], number=2, first=2))
    return files


#: Two entries of one record each, of segment 1.
ONE = packed(header(), 0, record.opened(100, {1: UNSTATED}, {}))
TWO = packed(header(), 1, record.queue(7, {"name": "q"}))


def test_bytes_between_entries_that_follow_each_other_cost_no_record() -> None:
    files = _older(ONE, b"anything" * 3, TWO)
    plan = repair.plan(files, DIRECTORY, EPOCH)
    assert plan.losses == []
    assert plan.written[1] == header() + ONE + TWO
    repair.apply(files, DIRECTORY, plan, BACKUP)
    assert inspect.verify(files, DIRECTORY).ok
    assert Station(files).queues == {7: "q"}


def test_entries_behind_too_many_bytes_that_look_like_entries_are_given_up() -> None:
    decoy = segment.ENTRY_MAGIC + b"\xff" * 4
    assert repair.plan(_older(ONE, decoy * 50, TWO), DIRECTORY, EPOCH).records_lost == 0
    files = _older(ONE, decoy * DECOYS, TWO)
    plan = repair.plan(files, DIRECTORY, EPOCH)
    assert plan.records_lost == 1
    repair.apply(files, DIRECTORY, plan, BACKUP)
    assert Station(files).queues == {}
