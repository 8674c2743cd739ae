"""Damage of every kind: told, never hidden, and never a wrong record."""

from __future__ import annotations

import re
import struct

import pytest
from crc32c import crc32c

from store import inspect, record, segment
from store.errors import Corrupt, LogFailed, NewerFormat
from store.journal import Journal
from store.log import FileLog, LogSettings
from store.recovery import Recovery, State, ends_closed
from store.repair import plan as repair
from store.segment import segment_name, segment_number
from store.segment_directory import open_segment
from store.writer import InlineWriter
from tests.store.desk import Desk
from tests.store.segments import header, made, newer, of_version, packed
from tests.store.workload import BROKER_ID, DECOYS, DIRECTORY, EPOCH, LIMITS, Station
from tests.support.sim_files import Fault, SimFiles

Found = list[tuple[int, int, bytes]]

#: Bytes that are compared at a time.
PIECE = len(segment.ZEROS)


def open_log(files: SimFiles) -> FileLog:
    log = FileLog(files, DIRECTORY, LogSettings(segment_bytes=4096), now=lambda: EPOCH)
    log.open()
    return log


def records(files: SimFiles) -> tuple[State, Found]:
    """What recovery finds: the verdict, and each record's position, type and bytes.  Raises Corrupt."""
    log = open_log(files)
    try:
        recovery = Recovery(log)
        found = []
        for _, position, _, type, buffer, offset in recovery.records():
            length = int.from_bytes(buffer[offset : offset + 4], "little")
            found.append((position, type, buffer[offset : offset + length]))
        return recovery.verdict.state, found
    finally:
        log.close()


def copy(files: SimFiles) -> SimFiles:
    """The same journal on another disk."""
    other = SimFiles()
    for path in files.paths():
        if path.endswith(".journal"):
            other.put(path, files.read(path))
    return other


@pytest.fixture(scope="module")
def crashed() -> tuple[SimFiles, int]:
    """A small journal in one segment that was not closed, and where its last batch (two entries) begins."""
    files = SimFiles()
    station = Station(files)
    queue = station.new_queue("q")
    station.commit()
    station.step()
    station.send([queue], [b"one", b"two"])
    station.commit()
    station.step()
    last_batch = segment.SEGMENT_HEADER_BYTES + station.log.counters.bytes
    station.remove(queue, station.on(queue)[:1])
    station.commit()
    station.send([queue], [b"three"])
    station.commit()
    station.step()
    return files, last_batch


@pytest.fixture(scope="module")
def rolled() -> SimFiles:
    """A journal in three segments."""
    files = SimFiles()
    station = Station(files)
    queue = station.new_queue("q")
    station.send([queue], [b"first"])
    for size in (3200, 2000):
        station.send([queue], [b"x" * size])
        station.commit()
        station.step()
    station.journal.close()
    assert [p[-18:-8] for p in files.paths() if p.endswith(".journal")] == ["0000000001", "0000000002", "0000000003"]
    return files


def newest(files: SimFiles) -> str:
    return [p for p in files.paths() if p.endswith(".journal")][-1]


def check(files: SimFiles, whole: Found, confirmed: int, *, hidden: bool = False) -> str:
    """Recovery tells the damage, or finds exactly a beginning of the records, with all that were confirmed."""
    try:
        state, found = records(files)
    except Corrupt:
        return "corrupt"
    assert found == whole[: len(found)], "never a wrong record"
    if len(found) == len(whole):
        return "clean" if state is State.CLEAN else "torn"
    assert state is State.TORN or hidden
    assert len(found) >= confirmed or hidden, "a confirmed record is not given up in silence"
    return "torn"


def test_every_bit_of_a_small_journal(crashed: tuple[SimFiles, int]) -> None:
    files, last_batch = crashed
    path = newest(files)
    data = files.read(path)
    _, whole = records(copy(files))
    confirmed_before_last = 4
    used = len(data.rstrip(b"\0"))
    outcomes = []
    for offset in range(used + 16):
        for mask in (0x01, 0x80, 0xFF):
            damaged = copy(files)
            damaged.flip(path, offset, mask)
            outcome = check(damaged, whole, confirmed_before_last)
            assert outcome != "clean", f"the flip at {offset} was not noticed"
            outcomes.append((offset, outcome))
    assert all(outcome == "corrupt" for offset, outcome in outcomes if offset < last_batch), "confirmed and known to be"
    assert all(outcome == "torn" for offset, outcome in outcomes if offset >= last_batch)


def test_every_sector_zeroed(rolled: SimFiles) -> None:
    _, whole = records(copy(rolled))
    for path in [p for p in rolled.paths() if p.endswith(".journal")]:
        data = rolled.read(path)
        for start in range(0, len(data), 512):
            damaged = copy(rolled)
            damaged.put(path, data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :])
            outcome = check(damaged, whole, 0, hidden=True)
            last = path == newest(rolled)
            assert outcome == "corrupt" or last, "an older segment was complete once"


def test_every_prefix(crashed: tuple[SimFiles, int]) -> None:
    files, _ = crashed
    path = newest(files)
    data = files.read(path)
    _, whole = records(copy(files))
    lengths = set()
    for end in range(len(data)):
        damaged = copy(files)
        damaged.put(path, data[:end])
        assert check(damaged, whole, 0, hidden=True) in ("torn", "clean", "corrupt")
        if end >= segment.SEGMENT_HEADER_BYTES:
            lengths.add(len(records(damaged)[1]))
    assert lengths == {0, 1, 2, 4, 5, 6} or lengths == {0, 1, 2, 4, 5, 6, len(whole)}


def test_every_prefix_of_an_older_segment(rolled: SimFiles) -> None:
    path = f"{DIRECTORY}/{segment_name(1)}"
    data = rolled.read(path)
    for end in range(len(data)):
        damaged = copy(rolled)
        damaged.put(path, data[:end])
        with pytest.raises(Corrupt):
            records(damaged)


def test_a_torn_tail_is_cut_kept_and_told(crashed: tuple[SimFiles, int]) -> None:
    files, last_batch = crashed
    damaged = copy(files)
    path = newest(damaged)
    damaged.flip(path, last_batch + 60, 1)
    written = damaged.read(path).rstrip(b"\0")
    station = Station(damaged)
    verdict = station.verdict
    assert (verdict.state, verdict.end, verdict.torn_bytes) == (State.TORN, last_batch, len(written) - last_batch)
    assert [held.body for held in station.messages.values()] == [b"one", b"two"]
    kept = [p for p in damaged.paths() if "/torn/" in p]
    assert kept == [f"{DIRECTORY}/torn/{segment_name(1)}-{last_batch}.torn"]
    assert damaged.read(kept[0]) == written[last_batch:]
    assert damaged.size(path) == last_batch
    station.log.close()
    assert Station(damaged).verdict.state is State.CLEAN


@pytest.fixture
def alone() -> tuple[SimFiles, int]:
    """A journal, and a segment of it behind which the next one was trimmed."""
    files = SimFiles()
    station = Station(files)
    keep, queue = station.new_queue("keep"), station.new_queue("q")
    station.send([keep], [bytes(2000)])
    station.commit()
    for _ in range(12):
        station.send([queue], [bytes(1500)])
        station.commit()
        station.remove(queue, station.on(queue))
        station.commit()
        station.step()
    station.journal.close()
    there = [segment_number(path.rpartition("/")[2]) for path in files.paths() if path.endswith(".journal")]
    (number,) = [n for n in there if n and n + 1 not in there and n != max(there)]
    return files, number


def test_a_segment_that_was_cut_between_two_entries_before_a_trimmed_one(alone: tuple[SimFiles, int]) -> None:
    files, number = alone
    path = f"{DIRECTORY}/{segment_name(number)}"
    data = files.read(path)
    whole = open_segment(path, number, data).found
    _, before = records(files)
    files.put(path, data[: whole.entries[-1].offset])
    lost = whole.entries[-1].count
    gone = [record for record in before if whole.position - lost <= record[0] < whole.position]
    assert len(gone) == lost
    what = f"the segment ends at position {whole.position - lost} instead of {whole.position}: its end is missing"
    with pytest.raises(Corrupt, match=what):
        records(files)
    assert inspect.verify(files, DIRECTORY).problems == [f"{path}: {what} at byte {whole.entries[-1].offset}"]
    plan = repair.plan(files, DIRECTORY, EPOCH)
    assert [(loss.segment, loss.first_position, loss.records) for loss in plan.losses] == [
        (number, whole.position - lost, lost)
    ]
    repair.apply(files, DIRECTORY, plan, f"{DIRECTORY}/backup")
    assert inspect.verify(files, DIRECTORY).problems == []
    _, after = records(files)
    assert [record for record in after if record in before] == [record for record in before if record not in gone]


def one_entry(position: int, durable: int, *records: bytes, first: bool = True) -> bytes:
    """A segment with one entry as no broker would write it, or the entry alone."""
    return (header() if first else b"") + packed(header(), position, *records, durable=durable)


OPENED = record.opened(1, {}, {})


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "shorter than its header"),
        (bytes(64), "magic"),
        (one_entry(0, 0, record.closed()), "first record is not OPENED"),
        (one_entry(5, 0, OPENED), "position 5 where 0 must follow"),
        (one_entry(0, 0, OPENED) + one_entry(9, 1, record.closed(), first=False), "position 9 where 1 must follow"),
        (one_entry(0, 0, OPENED, b"\x08\0\0\0\x63\x01\0\0"), "record type 99 version 1 is unknown"),
        (one_entry(0, 0, OPENED, b"\x08\0\0\0\x21\x02\0\0"), "record type 33 version 2 is unknown"),
        (one_entry(0, 0, OPENED, b"\x07\0\0\0\x21\x01\0\0"), "do not fill"),
        (one_entry(0, 0, OPENED, b"\x99\0\0\0\x21\x01\0\0"), "do not fill"),
        (one_entry(0, 0, record.opened(1, {7: 1}, {})), "0000000007.journal: the segment is missing"),
    ],
)
def test_damage_that_no_crash_explains(files: SimFiles, data: bytes, what: str) -> None:
    files.put(f"{DIRECTORY}/{segment_name(1)}", data)
    with pytest.raises(Corrupt, match=re.escape(what)):
        records(files)


def test_a_newer_format_is_named() -> None:
    data = bytearray(one_entry(0, 0, OPENED))
    data[8] = 3
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", bytes(data))
    with pytest.raises(Corrupt, match="format version 3, this software reads up to 2"):
        records(files)


def test_the_first_format_is_read() -> None:
    written = header()
    start = written[:8] + struct.pack("<H", 1) + written[10:60]
    head = start + struct.pack("<I", crc32c(start))
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", head + packed(head, 0, OPENED))
    _, found = records(files)
    assert [found[0][2]] == [OPENED]


def test_records_of_a_newer_version_are_not_damaged() -> None:
    """Nobody is told to repair it: that would throw it away."""
    for data in (newer(one_entry(0, 0, OPENED)), one_entry(0, 0, OPENED, b"\x08\0\0\0\x63\x01\0\0")):
        files = SimFiles()
        files.put(f"{DIRECTORY}/{segment_name(1)}", data)
        with pytest.raises(NewerFormat, match="a newer version wrote it; nothing is damaged: start that") as raised:
            records(files)
        assert "repair" not in str(raised.value)


def test_a_format_that_nobody_has_ever_written_is_damage() -> None:
    files = SimFiles()
    files.put(f"{DIRECTORY}/{segment_name(1)}", of_version(one_entry(0, 0, OPENED), 0))
    with pytest.raises(Corrupt, match="format version 0, this software reads up to") as raised:
        records(files)
    assert not isinstance(raised.value, NewerFormat)


@pytest.mark.parametrize(
    ("last", "closed"),
    [([record.closed()], True), ([OPENED, record.closed()], True), ([record.closed(), OPENED], False)],
)
def test_a_segment_is_closed_by_the_last_record_of_its_last_entry(last: list[bytes], closed: bool) -> None:
    data = made([OPENED], last)
    entries = segment.scan(data, segment.decode_header(data)).entries
    assert ends_closed(data, entries[-1]) is closed


def test_a_segment_under_another_number(rolled: SimFiles) -> None:
    damaged = copy(rolled)
    damaged.put(f"{DIRECTORY}/{segment_name(2)}", rolled.read(f"{DIRECTORY}/{segment_name(1)}"))
    with pytest.raises(Corrupt, match=r"0000000002\.journal: the header is that of segment 1"):
        records(damaged)


def test_a_segment_of_another_broker(rolled: SimFiles) -> None:
    damaged = copy(rolled)
    damaged.put(f"{DIRECTORY}/{segment_name(1)}", header(broker_id=bytes(16)))
    with pytest.raises(Corrupt, match="another broker"):
        records(damaged)


def test_an_entry_of_another_segment_is_never_valid(rolled: SimFiles) -> None:
    """A misdirected write: the right place, the right position, but made for another segment."""
    damaged = copy(rolled)
    path = newest(rolled)
    other = header(first=segment.decode_header(rolled.read(path)).first_position)
    body = rolled.read(path)[64:]
    damaged.put(path, other[:16] + rolled.read(path)[16:64] + body)
    assert records(damaged)[1] == records(copy(rolled))[1]
    scanned = segment.scan(other + body, segment.decode_header(other))
    assert scanned.entries == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_segment(rolled: SimFiles, number: int) -> None:
    damaged = SimFiles()
    for path in copy(rolled).paths():
        if not path.endswith(segment_name(number)):
            damaged.put(path, rolled.read(path))
    with pytest.raises(Corrupt, match=f"{segment_name(number)}: the segment is missing"):
        records(damaged)


@pytest.mark.parametrize("first", [1, 1000])
def test_a_segment_that_begins_at_the_wrong_position(rolled: SimFiles, first: int) -> None:
    damaged = copy(rolled)
    damaged.put(f"{DIRECTORY}/{segment_name(2)}", header(2, first))
    with pytest.raises(Corrupt, match="begins at position"):
        records(damaged)


def test_too_much_that_looks_like_entries(crashed: tuple[SimFiles, int]) -> None:
    """Each claims all bytes behind it: together more than may be looked at."""
    files, last_batch = crashed
    damaged = copy(files)
    path = newest(damaged)
    whole, decoy = damaged.read(path)[:last_batch], segment.ENTRY_MAGIC + b"\xff" * 4
    damaged.put(path, whole + decoy * 50)
    assert records(damaged)[0] is State.TORN
    damaged.put(path, whole + decoy * DECOYS)
    with pytest.raises(Corrupt, match="look like entries"):
        records(damaged)


def test_a_segment_begun_without_an_entry_is_of_no_account(files: SimFiles) -> None:
    """The power went between the header and the first entry, several times."""
    for _ in range(3):
        log = open_log(files)
        writer = InlineWriter(log, lambda ticket: None, lambda error: None)
        journal = Journal(log, writer, now=lambda: EPOCH, new_broker_id=lambda: BROKER_ID, limits=LIMITS)
        journal.recover()
        assert list(journal.replay()) == []
        journal.start()
        log.begin(journal.segment, BROKER_ID, 0)
        files.crash(1.0)
    station = Station(files)
    assert station.journal.segment == 4
    station.new_queue("q")
    station.commit()
    station.step()
    station.log.close()
    assert [s for s in files.paths() if s.endswith(".journal")] == [f"{DIRECTORY}/{segment_name(4)}"]
    assert Station(files).queues


def test_a_segment_that_cannot_be_read(rolled: SimFiles) -> None:
    damaged = copy(rolled)
    log = open_log(damaged)
    damaged.plan(2, Fault.EIO)
    with pytest.raises(LogFailed, match=r"reading /data/journal/0000000003\.journal"):
        Recovery(log)


def test_the_message_says_where_what_and_what_to_do() -> None:
    corrupt = Corrupt("/data/journal/0000000007.journal", 64, "no valid entry")
    assert str(corrupt) == (
        "/data/journal/0000000007.journal: no valid entry at byte 64; "
        "inspect it with: bartleby journal verify /data/journal; repair it with: bartleby journal repair /data/journal"
    )
    assert Corrupt("x.journal", 0, "?").command == "bartleby journal repair ."


def test_an_empty_directory() -> None:
    assert records(SimFiles()) == (State.EMPTY, [])


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_zeros_up_to_the_end_are_told_from_others(length: int) -> None:
    data = b"x" + bytes(length)
    assert segment.only_zeros(data, 1)
    assert segment.only_zeros(data, len(data))
    assert not segment.only_zeros(data, 0)
    if length:
        assert not segment.only_zeros(data[:-1] + b"x", 1)
        assert not segment.only_zeros(data[:1] + b"x" + data[2:], 1)


class CountedFiles(SimFiles):
    """Which paths were read whole."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[str] = []

    def read(self, path: str) -> bytes:
        self.whole.append(path)
        return super().read(path)


@pytest.mark.parametrize("torn", [False, True])
def test_a_start_reads_each_segment_once(torn: bool) -> None:
    files = CountedFiles()
    desk = Desk(files)
    desk.start()
    while desk.journal.segment < 3:
        desk.send(100)
        desk.commit()
    if torn:
        path = desk.log.path(3)
        files.put(path, files.read(path).rstrip(b"\0") + bytes(8) + b"torn")
    desk.log.close()
    files.whole.clear()
    Desk(files).start()
    assert files.whole == [desk.log.path(number) for number in (3, 1, 2)]
    assert any("/torn/" in path for path in files.paths()) is torn
