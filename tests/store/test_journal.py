"""The journal as the engine sees it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from store import decode, record
from store.errors import JournalFull, LogError
from store.files import OsFiles
from store.journal import Journal
from store.log import FileLog, LogSettings
from store.record import RecordType, RemovalReason
from store.recovery import State
from store.writer import InlineWriter, WriterThread
from tests.store.desk import Desk
from tests.store.workload import BROKER_ID, DIRECTORY, EPOCH, Body, Station, reopened
from tests.support.sim_files import Fault, SimFiles


def test_a_life(fresh: Desk) -> None:
    assert fresh.start() == []
    assert (fresh.journal.segment, fresh.journal.ticket, fresh.journal.durable) == (1, 2, 1)
    assert fresh.journal.broker_id == BROKER_ID
    journal = fresh.journal
    assert fresh.empty()
    journal.define(1, record.queue(1, {"name": "q"}))
    assert not fresh.empty()
    assert journal.commit() == 2
    assert (fresh.empty(), journal.ticket, journal.durable) == (True, 3, 1)
    assert journal.commit() == 2, "nothing new: what was added is covered by the last entry"
    journal.add(record.removed(1, RemovalReason.CONSUMED, [7]))
    assert journal.commit() == 3
    assert journal.pending_bytes > 0
    fresh.writer.step()
    assert fresh.announced == [1, 1, 3]
    assert (journal.durable, journal.pending_bytes) == (3, 0)
    journal.close()
    found = Desk(fresh.files).start()
    assert [(s, p, t) for s, p, t, _ in found] == [
        (1, 0, RecordType.OPENED),
        (1, 1, RecordType.QUEUE),
        (1, 2, RecordType.REMOVED),
        (1, 3, RecordType.CLOSED),
    ]
    opened = found[0][3]
    assert isinstance(opened, decode.Opened)
    assert opened.about == {"version": "1.2", "ends": {}}


def test_records_are_added_one_by_one_or_together(desk: Desk) -> None:
    some = [record.duplicate_id(1, id, b"id") for id in (7, 8, 9)]
    desk.journal.add_all(some[:2])
    desk.journal.add(some[2])
    desk.journal.add_all(some)
    desk.commit()
    found = [each for *_, each in desk.again() if isinstance(each, decode.DuplicateId)]
    assert [each.message_id for each in found] == [7, 8, 9, 7, 8, 9]


def test_an_abandoned_journal_writes_nothing_more(desk: Desk) -> None:
    desk.send(10)
    desk.commit()
    desk.send(20)
    desk.journal.abandon()
    assert desk.commit() > desk.journal.durable
    assert [type for _, _, type, _ in desk.again()] == [RecordType.OPENED, RecordType.MESSAGE]


def test_a_segment_is_referred_to_whatever_becomes_of_its_messages(desk: Desk) -> None:
    first = desk.journal.segment
    desk.send(10)
    desk.journal.refer(first)
    assert desk.journal.space.live(first) == 1
    desk.journal.refer(first, released=1)
    assert desk.journal.space.live(first) == 0


@pytest.mark.parametrize(("segment_bytes", "reserved"), [(1 << 20, 1 << 16), (4096, 1024)])
def test_reserved_bytes_are_at_most_a_quarter_of_a_segment(segment_bytes: int, reserved: int) -> None:
    assert Desk(segment_bytes=segment_bytes, reserve_bytes=1 << 16).journal.reserved_bytes == reserved


def test_the_verdicts(fresh: Desk) -> None:
    assert fresh.journal.recover().verdict.state is State.EMPTY
    list(fresh.journal.replay())
    fresh.journal.start()
    fresh.journal.close()
    fresh = Desk(fresh.files)
    verdict = fresh.journal.recover().verdict
    assert (verdict.state, verdict.closed, verdict.position) == (State.CLEAN, True, 2)
    list(fresh.journal.replay())
    fresh.journal.start()
    fresh.writer.step()
    fresh.log.close()
    verdict = Desk(fresh.files).journal.recover().verdict
    assert (verdict.state, verdict.closed, verdict.segment) == (State.CLEAN, False, 2)


def test_a_start_always_begins_a_segment_and_cuts_the_old_one(desk: Desk) -> None:
    desk.send(10)
    desk.commit()
    desk.log.close()
    assert desk.files.size(desk.log.path(1)) == 4096
    other = Desk(desk.files)
    other.start()
    assert other.journal.segment == 2
    assert desk.files.size(desk.log.path(1)) < 300


def test_ids_are_announced_a_block_ahead_and_never_come_back() -> None:
    desk = Desk(id_block=100)
    desk.start()
    given = [desk.journal.allocate_ids(n) for n in (1, 10, 39)]
    assert given == [1, 2, 12]
    assert desk.journal.empty, "the first half of a block costs nothing"
    assert desk.journal.allocate_ids(1) == 51
    assert not desk.empty()
    desk.commit()
    found = [r for _, _, _, r in desk.again()]
    assert [r.next_id for r in found if isinstance(r, decode.Opened | decode.Ids)] == [101, 152]
    desk.files.crash(1.0)
    desk = Desk(desk.files)
    desk.start()
    assert desk.journal.allocate_ids(1000) >= 152


def test_an_entry_is_cut_between_operations_only() -> None:
    desk = Desk(segment_bytes=1 << 16, entry_bytes=500)
    desk.start()
    desk.send(400)
    desk.journal.reserve(10)
    desk.send(400)
    assert desk.journal.ticket == 2
    desk.journal.reserve(10)
    assert desk.journal.ticket == 3
    assert desk.empty()
    desk.journal.reserve(10)
    assert desk.journal.commit() == 2


def test_a_segment_is_left_when_what_is_reserved_does_not_fit(desk: Desk) -> None:
    desk.journal.reserve(3000)
    desk.send(2800)
    assert desk.journal.segment == 1
    desk.journal.reserve(800)
    assert desk.journal.segment == 2, "the open entry ended in the old segment"
    desk.send(800)
    desk.commit()
    messages = [(s, p) for s, p, t, _ in desk.again() if t == RecordType.MESSAGE]
    assert [s for s, _ in messages] == [1, 2]


def test_a_segment_is_left_before_an_entry_when_little_is_left(desk: Desk) -> None:
    desk.send(3400)
    desk.commit()
    assert desk.journal.segment == 1
    desk.journal.add(record.removed(1, RemovalReason.CONSUMED, [99]))
    assert desk.journal.segment == 2


def test_records_added_without_asking_are_never_refused(desk: Desk) -> None:
    for _ in range(3):
        desk.send(9000)
        desk.send(9000)
    desk.commit()
    assert desk.journal.segment == 1
    assert desk.files.size(desk.log.path(1)) > 54_000
    assert sum(t == RecordType.MESSAGE for _, _, t, _ in desk.again()) == 6


def test_segments_are_filled_faster_than_the_writer_works(desk: Desk) -> None:
    for _ in range(5):
        desk.journal.reserve(3000)
        desk.send(3000)
        desk.journal.commit()
    assert desk.journal.segment == 5
    assert desk.announced == [1, 1], "nothing is announced within a call"
    desk.writer.step()
    assert desk.journal.durable == desk.journal.ticket - 1


@pytest.fixture
def slow() -> Desk:
    """A journal whose disk is slower than its clients."""
    desk = Desk(hastens=False)
    desk.start()
    return desk


def test_a_segment_grows_until_the_next_one_is_allocated(slow: Desk) -> None:
    """Nothing waits for a disk that is slower than the clients; they do, when they hear of it."""
    desk, journal = slow, slow.journal
    ahead = []
    for _ in range(5):
        journal.reserve(2000)
        desk.send(2000)
        journal.commit()
        ahead.append((journal.segment, journal.is_ahead))
    assert ahead == [(1, False), (2, False), (2, True), (2, True), (2, True)]
    assert desk.announced == [1, 1], "nothing is announced within a call"
    desk.writer.step()
    assert desk.journal.durable == desk.journal.ticket - 1
    assert not journal.is_ahead
    assert desk.files.size(desk.log.path(2)) > 8000
    journal.reserve(2000)
    assert journal.segment == 3
    desk.commit()
    assert sum(t == RecordType.MESSAGE for _, _, t, _ in desk.again()) == 5


def test_a_segment_grows_beyond_what_is_for_removals_until_it_is_known_that_the_disk_is_full(slow: Desk) -> None:
    """Then everything waits for room, and what was sealed is written when there is some."""
    desk, journal = slow, slow.journal
    for _ in range(2):
        journal.reserve(2000)
        desk.send(2000)
        journal.commit()
    desk.files.capacity = desk.files.used()
    for _ in range(3):
        journal.reserve(2000)
        desk.send(2000)
        journal.commit()
    assert (journal.segment, journal.is_ahead, journal.accepting) == (2, True, True)
    desk.writer.step()
    assert (journal.is_ahead, journal.accepting) == (False, False)
    for essential in (False, True):
        with pytest.raises(JournalFull):
            journal.reserve(100, essential=essential)
    assert journal.durable < journal.ticket - 1
    desk.files.capacity = None
    desk.now += 1000
    journal.look_for_room()
    desk.writer.step()
    desk.writer.step()
    assert journal.durable == journal.ticket - 1
    assert desk.failures == []
    journal.reserve(2000)
    assert journal.segment == 3
    assert sum(t == RecordType.MESSAGE for _, _, t, _ in desk.again()) == 5


# -- definitions -------------------------------------------------------------------------------------------------------


def names(found: list[tuple[int, int, int, decode.Record]], segment: int) -> list[tuple[str, bool]]:
    return [
        (str(r.definition["name"]), bool(r.flags & record.REPEATED))
        for s, _, t, r in found
        if isinstance(r, decode.Definition) and s == segment and t == RecordType.QUEUE
    ]


def test_a_definition_is_repeated_once_in_each_segment_that_mentions_it(desk: Desk) -> None:
    journal = desk.journal
    journal.define(1, record.queue(1, {"name": "a"}))
    journal.define(2, record.queue(2, {"name": "b"}))
    journal.ensure_defined(1)
    desk.send(3400)
    desk.commit()
    journal.ensure_defined(1)
    journal.ensure_defined(1)
    desk.send(3400)
    desk.commit()
    journal.ensure_defined(2)
    journal.define(2, record.queue(2, {"name": "B"}))
    desk.commit()
    found = desk.again()
    assert names(found, 1) == [("a", False), ("b", False)]
    assert names(found, 2) == [("a", True)]
    assert names(found, 3) == [("b", True), ("B", False)]


def test_definitions_only_in_a_segment_that_goes_are_repeated_first(desk: Desk) -> None:
    desk.journal.define(1, record.queue(1, {"name": "a"}))
    desk.journal.define(2, record.queue(2, {"name": "b"}))
    desk.journal.define(2, record.queue(2, {"name": "B"}))
    desk.send(3300, gone=True)
    desk.commit()
    desk.journal.add(record.closed())
    desk.commit()
    assert desk.journal.space.segments == [2]
    assert desk.files.paths()[0] == desk.log.path(2)
    assert names(desk.again(), 2) == [("a", True), ("B", True)]


def test_a_deletion_stays_as_long_as_a_segment_that_says_otherwise(desk: Desk) -> None:
    desk.journal.define(1, record.queue(1, {"name": "a"}))
    desk.send(3300)
    desk.commit()
    desk.journal.undefine(1, record.queue_deleted(1, {"name": "a"}))
    desk.send(3300, gone=True)
    desk.commit()
    desk.send(3300)
    desk.commit()
    assert desk.journal.space.segments == [1, 2, 3], "2 holds no message, but the deletion"
    desk.log.close()
    other = Desk(desk.files)
    other.start()
    assert other.journal.space.segments[-1] == 4
    with pytest.raises(KeyError):
        other.journal.ensure_defined(1)


def test_deleting_what_is_not_defined_does_no_harm(desk: Desk) -> None:
    desk.journal.undefine(5, record.address_deleted(5, {}))
    desk.commit()
    assert [t for _, _, t, _ in desk.again()] == [RecordType.OPENED, RecordType.ADDRESS_DELETED]


# -- trimming ----------------------------------------------------------------------------------------------------------


def test_a_segment_that_was_trimmed_but_is_still_there_is_ignored_and_trimmed_again(files: SimFiles) -> None:
    station = Station(files)
    queue = station.new_queue("q")
    sent = station.send([queue], [bytes(3000)])
    station.commit()
    station.step()
    old = f"{DIRECTORY}/0000000001.journal"
    before = files.read(old)
    station.send([queue], [bytes(3000)])
    station.remove(queue, sent)
    station.commit()
    station.step()
    assert old not in files.paths()
    files.put(old, before)
    files.crash(1.0)
    station = reopened(files, station.oracle)
    assert 1 not in {segment for segment, _, _ in station.records}
    assert old not in files.paths()


# -- full --------------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_stores_and_takes_removals() -> None:
    desk = Desk(SimFiles(capacity=4096 + 200), reserve_bytes=1 << 20, retry_ms=1000)
    desk.start()
    journal = desk.journal
    assert desk.accepting()
    desk.send(1000)
    desk.commit()
    journal.reserve(500)
    assert desk.accepting()
    desk.send(1500)
    desk.commit()
    with pytest.raises(JournalFull, match=r"\d+ bytes are left in the last segment: the disk is full"):
        journal.reserve(1000)
    assert journal.empty, "nothing has changed"
    assert not desk.accepting(), "whoever is refused is right to look at the status"
    journal.reserve(500, essential=True)
    journal.add(record.removed(1, RemovalReason.CONSUMED, list(range(60))))
    desk.commit()
    assert not desk.accepting()
    with pytest.raises(JournalFull):
        journal.reserve(1500, essential=True)
    assert desk.failures == []


@pytest.mark.parametrize(("capacity", "has"), [(None, True), (4096 + 200, False)])
def test_whether_a_whole_next_segment_is_allocated(capacity: int | None, has: bool) -> None:
    desk = Desk(SimFiles(capacity=capacity), reserve_bytes=512)
    desk.start()
    assert desk.journal.has_spare is has


def test_moves_leave_room_for_removals_on_a_full_disk() -> None:
    """Moves ask for room and may be refused; removals do not ask."""
    desk = Desk(SimFiles(capacity=4096 + 200), reserve_bytes=1 << 20)
    desk.start()
    while desk.journal.end < 4096 - 1000:
        desk.journal.reserve(100, essential=True)
        desk.send(16)
        desk.commit()
    with pytest.raises(JournalFull):
        desk.journal.reserve(700, essential=True)
    desk.journal.add(record.removed(1, RemovalReason.CONSUMED, list(range(40))))
    desk.commit()
    assert desk.failures == []


def test_room_is_asked_for_again_after_a_while() -> None:
    files = SimFiles(capacity=4096 + 100)
    desk = Desk(files, retry_ms=1000)
    desk.start()
    desk.send(3200)
    desk.commit()
    with pytest.raises(JournalFull):
        desk.journal.reserve(1000)
    files.capacity = None
    desk.writer.step()
    desk.journal.reserve(1000)
    assert desk.journal.segment == 2

    desk.send(3200)
    desk.commit()
    files.capacity = files.used()
    desk.journal.reserve(1000)
    desk.send(3200)
    desk.commit()
    with pytest.raises(JournalFull):
        desk.journal.reserve(1000)
    files.capacity = None
    for _ in range(3):
        desk.writer.step()
        with pytest.raises(JournalFull):
            desk.journal.reserve(1000)
    desk.now += 1000
    with pytest.raises(JournalFull):
        desk.journal.reserve(1000)
    desk.writer.step()
    desk.journal.reserve(1000)
    assert desk.accepting()


def test_room_is_looked_for_although_nobody_asks_for_any() -> None:
    files = SimFiles(capacity=4096 + 100)
    desk = Desk(files, retry_ms=1000)
    desk.start()
    desk.journal.look_for_room()
    desk.send(3200)
    desk.commit()
    with pytest.raises(JournalFull):
        desk.journal.reserve(1000)
    desk.writer.step()
    files.capacity = None
    desk.now += 1000
    desk.writer.step()
    assert not desk.accepting()
    desk.journal.look_for_room()
    desk.writer.step()
    assert desk.accepting()
    done = files.operations
    desk.journal.look_for_room()
    desk.writer.step()
    assert files.operations == done, "there is room"


def test_removals_go_on_in_a_small_spare() -> None:
    files = SimFiles(capacity=4096 + 1100)
    desk = Desk(files)
    desk.start()
    assert (desk.log.spare.nbytes, desk.log.spare.full) == (1024, True)
    desk.send(2800)
    desk.commit()
    for too_much in (1500, 900, 750):
        with pytest.raises(JournalFull):
            desk.journal.reserve(too_much, essential=True)
    assert desk.journal.segment == 1
    desk.journal.reserve(600, essential=True)
    assert desk.journal.segment == 2
    desk.journal.add(record.removed(1, RemovalReason.CONSUMED, [1]))
    desk.commit()
    with pytest.raises(JournalFull):
        desk.journal.reserve(600)
    assert desk.failures == []


def test_no_room_to_begin() -> None:
    desk = Desk(SimFiles(capacity=63))
    with pytest.raises(JournalFull, match="a segment cannot be begun: the disk is full"):
        desk.start()


@pytest.mark.parametrize(("at", "doing"), [(1, "looking at"), (2, "allocating")])
def test_a_disk_that_fails_at_the_start(fresh: Desk, at: int, doing: str) -> None:
    fresh.journal.recover()
    list(fresh.journal.replay())
    fresh.files.plan(at, Fault.EIO)
    with pytest.raises(LogError, match=doing):
        fresh.journal.start()


# -- a segment that takes more than it was made for --------------------------------------------------------------------


def test_an_entry_goes_on_in_a_segment_that_is_nearly_full_while_there_is_no_other() -> None:
    """What is added without asking is never refused: the segment grows."""
    desk = Desk(SimFiles(capacity=4096 + 100), retry_ms=1000)
    desk.start()
    desk.send(3300)
    desk.commit()
    before = desk.journal.position
    desk.send(200)
    desk.commit()
    assert (desk.journal.segment, desk.journal.position) == (1, before + 1)
    assert desk.failures == []


def test_copies_count_as_what_they_take() -> None:
    desk = Desk(SimFiles())
    desk.start()
    desk.send(100)
    (id,) = [desk.journal.allocate_ids(1) - 1]
    desk.commit()
    before = desk.journal.pending_bytes
    desk.journal.add_copies(record.message_header(timestamp=1), 0, [Body(id, b"", b"x" * 500)], 1)
    assert desk.journal.pending_bytes - before > 500
    desk.commit()
    assert desk.failures == []


def written(desk: Desk, commits: int) -> int:
    """Bytes of so many small commits, in a journal that allocates no further ahead than it has to."""
    before = sum(desk.files.size(path) for path in desk.files.paths())
    begun = desk.journal.segment
    for _ in range(commits):
        desk.journal.reserve(100)
        desk.journal.add(record.removed(1, RemovalReason.CONSUMED, [7]))
        desk.commit()
    after = sum(desk.files.size(path) for path in desk.files.paths())
    return max((desk.journal.segment - begun) * 4096, after - before)


def test_more_definitions_than_a_segment_holds_are_not_written_again_and_again(desk: Desk) -> None:
    for id in range(2, 202):
        desk.journal.reserve(200)
        desk.journal.define(id, record.queue(id, {"name": f"queue {id} {'x' * 80}"}))
        desk.commit()
    assert desk.journal.segment < 15, "26 KB of them"
    assert written(desk, 200) < 200 * 150
    desk.log.close()
    again = Desk(desk.files)
    found = again.start()
    assert len({each.id for _, _, _, each in found if isinstance(each, decode.Definition)}) == 200
    assert written(again, 200) < 200 * 150
    journal = again.journal
    for segment in journal.space.segments[:-1]:
        journal.rewrite_definitions(segment)
    assert journal.rewrite_definitions(journal.segment) == 0
    again.commit()
    oldest = journal.space.segments[0]
    assert oldest > 10, "they have all moved, and the segments that they were in are gone"
    for id in range(2, 202):
        journal.undefine(id, record.queue_deleted(id, {"name": "x"}))
    again.commit()
    written(again, 60)
    assert len(journal.space.segments) <= 2, "nothing stays for what is deleted"


# -- on a real disk, with the thread -----------------------------------------------------------------------------------


def test_the_thread_on_a_real_disk(tmp_path: Path) -> None:
    def open_journal() -> tuple[Journal, list[int]]:
        log = FileLog(OsFiles(), str(tmp_path / "journal"), LogSettings(segment_bytes=1 << 16), now=lambda: EPOCH)
        log.open()
        announced: list[int] = []
        failures: list[Exception] = []
        writer = WriterThread(log, announced.append, failures.append)
        writer.start()
        journal = Journal(log, writer, now=lambda: EPOCH, new_broker_id=lambda: bytes(range(16)))
        journal.recover()
        return journal, announced

    journal, announced = open_journal()
    assert list(journal.replay()) == []
    journal.start()
    for n in range(500):
        journal.reserve(1000)
        first = journal.allocate_ids(3)
        run = [Body(first + i, b"", b"%d" % n * 100) for i in range(3)]
        journal.add_messages(record.message_header(timestamp=n), 0, run)
        ticket = journal.commit()
    journal.close()
    assert announced[-1] == ticket + 1
    assert announced == sorted(announced)
    again, _ = open_journal()
    assert again.broker_id == b""
    records = [r for r in again.replay() if r[3] == RecordType.MESSAGE]
    assert len(records) == 1500
    again.start()
    assert again.broker_id == journal.broker_id
    again.close()


def test_recovery_is_fast(tmp_path: Path) -> None:
    """A rough bound, far above what is measured: something quadratic would not pass."""
    log = FileLog(OsFiles(), str(tmp_path), now=lambda: EPOCH)
    log.open()
    writer = InlineWriter(log, lambda ticket: None, lambda error: None)
    journal = Journal(log, writer, now=lambda: EPOCH, new_broker_id=lambda: BROKER_ID)
    journal.recover()
    list(journal.replay())
    journal.start()
    run = [Body(i, b"", bytes(100)) for i in range(1000)]
    for _ in range(50):
        journal.reserve(200_000)
        journal.add_messages(record.message_header(timestamp=1, queue_ids=[1], address="a"), 0, run)
    journal.close()
    log.open()
    started = time.process_time()
    again = Journal(log, writer, now=lambda: EPOCH, new_broker_id=lambda: BROKER_ID)
    again.recover()
    decoder = decode.MessageDecoder()
    messages = [decoder.decode(r[4], r[5]) for r in again.replay() if r[3] == RecordType.MESSAGE]
    assert len(messages) == 50_000
    assert time.process_time() - started < 5
    log.close()


# -- entries that are held open ----------------------------------------------------------------------------------------


def test_an_entry_that_is_held_open_is_not_cut() -> None:
    desk = Desk(segment_bytes=1 << 14, entry_bytes=500)
    desk.start()
    journal = desk.journal
    before = journal.ticket
    journal.hold(0)
    for _ in range(30):
        journal.reserve(1000)
        desk.send(900)
    assert (journal.ticket, journal.segment) == (before, 1), "the segment grows"
    journal.let_go()
    assert journal.commit() == before
    journal.reserve(1000)
    assert journal.segment == 2


def test_room_promised_to_an_entry_is_nobody_elses_on_a_full_disk() -> None:
    desk = Desk(SimFiles(capacity=4096 + 200), reserve_bytes=1 << 20)
    desk.start()
    journal = desk.journal
    journal.reserve(2000)
    journal.hold(2000)
    with pytest.raises(JournalFull):
        journal.reserve(1000)
    journal.let_go()
    journal.reserve(1000)


def test_a_stop_in_the_middle_of_an_entry_is_as_a_crash(desk: Desk) -> None:
    desk.send(10)
    desk.commit()
    desk.journal.hold(0)
    desk.send(10)
    desk.journal.close()
    desk.files.crash(1.0)
    again = Desk(desk.files)
    found = [each for _, _, _, each in again.start()]
    assert sum(isinstance(each, decode.Message) for each in found) == 1
    assert not any(isinstance(each, decode.Closed) for each in found)


def test_entries_that_overtake_a_held_one_are_durable_before(desk: Desk) -> None:
    desk.commit()
    journal = desk.journal
    position = journal.position
    journal.hold(0)
    late = journal.next_id
    desk.send(10)
    with journal.overtaking():
        early = journal.next_id
        desk.send(20)
        place = journal.end
    assert journal.position == position + 2
    assert journal.seal_overtaking() == journal.ticket - 1
    desk.writer.step()
    assert journal.durable == journal.ticket - 1
    lost = Desk(desk.files.fork(1))
    assert [each.id for _, _, _, each in lost.start() if isinstance(each, decode.Message)] == [early]
    before = journal.end
    moved = journal.let_go()
    assert journal.end == before + moved
    assert moved >= place - (before - journal.held_bytes)
    desk.commit()
    desk.files.crash(1.0)
    again = Desk(desk.files)
    assert [each.id for _, _, _, each in again.start() if isinstance(each, decode.Message)] == [early, late]


def test_ids_that_are_allocated_while_an_entry_is_held_are_never_allocated_again() -> None:
    desk = Desk(id_block=100)
    desk.start()
    journal = desk.journal
    journal.hold(0)
    journal.allocate_ids(80)  # here the limit of ids moves
    journal.allocate_ids(40)
    with journal.overtaking():
        desk.send(10)
    journal.seal_overtaking()
    desk.writer.step()
    desk.files.crash()
    again = Desk(desk.files, id_block=100)
    again.start()
    assert again.journal.next_id >= journal.next_id
