"""A replicated log, over a database in memory that fails in every way that a real one does."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.body import LargeBody
from store.errors import CopyAhead, Corrupt, IsCopy, JournalFull, LogFailed, LogFenced, LogUnknown
from store.log import FileLog, LogSettings, Place
from store.repair.plan import CannotRepair, plan
from store.replicated.database import Row
from store.replicated.following import Following, UpTo
from tests.store.desk import Desk
from tests.store.replicated.replicas import Replica
from tests.store.workload import DIRECTORY, EPOCH
from tests.support.sim_database import PASSING, SimDatabase
from tests.support.sim_files import Fault, SimFiles


@pytest.fixture
def shared() -> SimDatabase:
    return SimDatabase()


def write(replica: Replica, **what: Any) -> list[int]:
    """Send messages, and let the writer do its work; their ids."""
    ids = replica.send(**what)
    replica.step()
    return ids


def fill(replica: Replica, *, segment: int) -> None:
    """Write until the journal is in this segment."""
    while replica.journal.segment < segment:
        write(replica, size=500)


def renew(shared: SimDatabase, owner: Replica) -> None:
    """The owner says how far its log is replicated."""
    shared.connect().renew_lease("one", owner.log.owner.epoch, 5_000, owner.log.replicated)


def owner(shared: SimDatabase, name: str = "one", files: SimFiles | None = None) -> Replica:
    replica = Replica(shared, name, files)
    replica.compare()
    replica.take_over()
    return replica


def follower(shared: SimDatabase, name: str = "two", files: SimFiles | None = None) -> Replica:
    replica = Replica(shared, name, files)
    replica.compare()
    return replica


def same(one: Replica, two: Replica) -> bool:
    """Whether two copies have the same bytes, as far as both go."""
    end = min(one.copying.end, two.copying.end)
    for segment in set(one.log.segments()) & set(two.log.segments()):
        length = end.offset if segment == end.segment else -1
        mine, other = one.log.read(segment), two.log.read(segment)
        if length < 0:
            length = max(len(mine.rstrip(b"\0")), len(other.rstrip(b"\0")))
        if segment <= end.segment and mine[:length].rstrip(b"\0") != other[:length].rstrip(b"\0"):
            return False
    return True


# -- one owner after the other -----------------------------------------------------------------------------------------


def test_an_entry_that_one_has_confirmed_the_next_has(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    ids = one.send(3) + one.send(2)
    one.step()
    assert one.confirmed() == ids
    two.take_over()
    assert two.found == ids
    more = write(two)
    assert two.confirmed() == more
    assert same(one, two)


def test_a_standby_copies_what_is_replicated_and_no_more(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    write(one)
    write(one)
    two.copying.follow()
    assert two.copying.end < one.log.replicated, "the last row is not known to be replicated yet"
    renew(shared, one)
    two.copying.follow()
    assert two.copying.end == one.log.replicated
    assert two.copying.entries == shared.tables.entries


def test_segments_that_go_go_from_the_copies_too(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    for _ in range(60):
        write(one, size=500, gone=True)
    assert len(one.log.segments()) < 4
    two.copying.follow()
    two.copying.tidy()
    assert two.log.segments() == one.log.segments() == shared.connect().segments()
    two.take_over()
    assert two.send()
    assert not two.failures


def test_a_growing_log_is_read_on(shared: SimDatabase) -> None:
    """A standby that reads the journal as it comes has what one has that reads it at the end."""
    one, two = owner(shared), follower(shared)
    rounds = iter(range(40))

    def more() -> bool:
        write(one, n=2, size=300)
        two.copying.follow()
        return next(rounds, None) is not None

    source = UpTo(two.files, DIRECTORY, lambda: two.copying.end)
    following = Following(source, more)
    grown = [(raw[0], raw[1], raw[3], raw[5]) for raw in following.records()]
    again = Following(source, lambda: False)
    assert grown == [(raw[0], raw[1], raw[3], raw[5]) for raw in again.records()]
    assert (following.ends, following.sizes, following.verdict) == (again.ends, again.sizes, again.verdict)
    assert len(following.ends) > 3


def read(replica: Replica) -> list[int]:
    """The positions of all records that a reader of the copy finds.  Raises Corrupt."""
    source = UpTo(replica.files, DIRECTORY, lambda: replica.copying.end)
    return [raw[1] for raw in Following(source, lambda: False).records()]


def begin_second_segment(one: Replica, two: Replica) -> None:
    """The first one is still needed, and the copy has some of the second one."""
    one.send()
    while two.copying.end.segment < 2:
        write(one, size=500, gone=True)
        two.copying.follow()


def trim_first_segment(one: Replica) -> None:
    """Nothing needs it any more."""
    one.journal.space.release(1, 1)
    while 1 in one.log.segments():
        write(one, size=500, gone=True)


def test_a_segment_stays_until_the_copy_knows_that_it_has_gone(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    begin_second_segment(one, two)
    trim_first_segment(one)
    two.copying.tidy()
    assert 1 in two.log.segments(), "the copy still says that it needs it"
    assert two.copying.consistent
    assert read(two)
    two.take_over()
    assert 1 not in two.log.segments()
    assert read(two)


def test_a_copy_that_was_away_while_segments_went_is_not_read_before_it_knows(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    begin_second_segment(one, two)
    files = two.end()
    trim_first_segment(one)
    two = follower(shared, files=files)
    before = two.copying.consistent
    renew(shared, one)
    two.copying.follow()
    assert (before, two.copying.consistent) == (False, True)
    assert 1 not in two.log.segments()
    assert read(two)


def test_a_copy_that_missed_some_of_the_log_says_so(shared: SimDatabase) -> None:
    """What a reader has of it is no longer right: the end of a message may have been in what was missed."""
    one, two = owner(shared), follower(shared)
    begin_second_segment(one, two)
    assert two.copying.gaps == 0
    one.journal.space.release(1, 1)
    while 2 in one.log.segments():
        write(one, size=500, gone=True)
    write(one)
    two.copying.follow()
    assert two.copying.end.segment > 2
    assert two.copying.gaps == 1
    renew(shared, one)
    two.copying.follow()
    assert two.copying.consistent
    two.copying.tidy()
    assert two.log.segments() == one.log.segments()
    assert read(two)


def log_in_files() -> tuple[SimFiles, Desk]:
    """A disk with forty messages, in several segments, and its journal, which is closed."""
    files = SimFiles()
    desk = Desk(files)
    desk.start()
    for _ in range(40):
        desk.send(300)
        desk.commit()
    desk.journal.close()
    return files, desk


@pytest.mark.parametrize("faults", [[], *([fault] for fault in PASSING), ["after", "", "lost"]], ids="-".join)
def test_a_log_in_files_becomes_the_first_of_a_new_database(faults: list[str]) -> None:
    files, desk = log_in_files()
    before = {number: desk.log.read(number) for number in desk.log.segments()}
    shared = SimDatabase()
    shared.plan(2, *faults)
    one = owner(shared, files=files)
    assert len(one.found) == 40
    for number, data in before.items():
        rows = b"".join(row.data for row in shared.tables.rows[number])
        assert data.startswith(rows)
        assert not data[len(rows) :].strip(b"\0")
    two = follower(shared)
    two.take_over()
    assert two.found == one.found
    assert same(one, two)


def test_a_log_in_files_is_moved_whole_or_not_at_all() -> None:
    """The broker dies in the middle, and its files are still a log that can be moved."""
    (files, _), shared = log_in_files(), SimDatabase()
    shared.plan(2, "cut")
    with pytest.raises(LogUnknown):
        owner(shared, files=files)
    shared.reachable = True
    files.crash()
    assert shared.connect().head().end == Place(0, 0)
    assert len(owner(shared, files=files).found) == 40


# -- large bodies ------------------------------------------------------------------------------------------------------


def upload(replica: Replica, data: bytes) -> LargeBody:
    """A large body, in pieces, whole when it returns, with a message that has it."""
    bodies = replica.journal.bodies
    coming = bodies.begin(lambda: None, durable=True)
    for at in range(0, len(data), 300_000):
        bodies.write(coming, data[at : at + 300_000], last=at + 300_000 >= len(data))
        replica.step()
    return bodies.finished(coming)


def test_large_bodies_are_in_the_database_and_in_the_copies() -> None:
    shared = SimDatabase(3, fault_rate=0.2)
    data = b"".join(n.to_bytes(4, "big") for n in range(700_000))
    one, two = owner(shared), follower(shared)
    body = upload(one, data)
    id = body.reference.id
    assert shared.tables.bodies == {id: len(data)}
    assert [len(chunk) for chunk in shared.connect().read_body(id)] == [1 << 20, 1 << 20, len(data) - (2 << 20)]
    two.copying.fetch_bodies()
    assert (
        b"".join(two.log.bodies.read(id, at, min(1 << 16, len(data) - at)) for at in range(0, len(data), 1 << 16))
        == data
    )
    two.copying.fetch_bodies()  # there is nothing to do
    del body
    one.journal.commit()
    one.step()
    assert not shared.tables.bodies
    assert not shared.tables.chunks
    two.copying.fetch_bodies()
    assert two.log.bodies.sizes() == one.log.bodies.sizes() == {}


def test_an_upload_that_is_given_up_leaves_nothing(shared: SimDatabase) -> None:
    one = owner(shared)
    coming = one.journal.bodies.begin(lambda: None, durable=True)
    one.journal.bodies.write(coming, bytes(3 << 20))
    one.step()
    assert shared.tables.chunks
    one.journal.bodies.abort(coming)
    one.step()
    assert not shared.tables.chunks


def test_the_body_of_what_is_not_durable_stays_here(shared: SimDatabase) -> None:
    one = owner(shared)
    coming = one.journal.bodies.begin(lambda: None, durable=False)
    one.journal.bodies.write(coming, bytes(3 << 20), last=True)
    one.step()
    assert one.journal.bodies.finished(coming)
    assert not shared.tables.chunks


def test_a_body_that_was_cut_in_the_copy_is_fetched_again(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    body = upload(one, bytes(range(256)) * 8192)
    two.copying.fetch_bodies()
    path = two.log.bodies.path(body.reference.id)
    two.files.put(path, two.files.read(path)[:1000])
    two.copying.fetch_bodies()
    assert two.files.read(path) == bytes(range(256)) * 8192


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_a_zombie_appends_nothing(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    write(one)
    two.take_over()
    before = shared.connect().head()
    write(one)
    assert isinstance(one.failures[0], LogFenced)
    assert shared.connect().head() == before


def test_a_zombie_begins_and_trims_nothing(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    two.take_over()
    before = shared.connect().head(), shared.connect().segments()
    with pytest.raises(LogFenced):
        one.log.begin(9, b"x" * 16, 1)
    with pytest.raises(LogFenced):
        one.log.trim([1])
    assert (shared.connect().head(), shared.connect().segments()) == before


def test_an_append_under_way_when_another_takes_over_is_there_or_refused() -> None:
    """Whichever comes first at the database."""
    for broken in (False, True):
        shared = SimDatabase()
        one, two = owner(shared), follower(shared)
        one.send()
        if broken:
            shared.standby = False  # its append is made, and not replicated
            one.tries = 0
            one.writer.step()
            assert isinstance(one.failures[0], LogUnknown)
            assert one.confirmed() == []
            shared.standby = True
        two.take_over()
        assert len(two.found) == broken


# -- outcomes that are not known ---------------------------------------------------------------------------------------


def test_an_entry_that_shows_but_is_not_replicated_is_not_confirmed_until_it_is(shared: SimDatabase) -> None:
    one = owner(shared)
    one.send()
    shared.standby = False
    one.step()
    assert one.confirmed() == []
    assert isinstance(one.failures[0], LogUnknown)
    assert len(one.troubles) > 5


def test_an_entry_that_the_database_loses_was_not_confirmed(shared: SimDatabase) -> None:
    one = owner(shared)
    first = write(one)
    one.send()
    shared.standby = False
    one.step()
    shared.standby = True
    shared.fail_over()
    two = follower(shared)
    two.take_over()
    assert two.found == first == one.confirmed()


@pytest.mark.parametrize("then", ["lost", "before", "replicated", "busy", "overtaken"])
@pytest.mark.parametrize("at", [1, 2])
def test_an_entry_that_shows_is_repeated_if_the_standby_takes_over_before_it_has_it(
    shared: SimDatabase, then: str, at: int
) -> None:
    """The doubtful change is seen, and is gone while it is confirmed; `at`: 2 behind another, replicated one."""
    one = owner(shared)
    first = write(one) if at == 2 else []
    shared.plan(shared.changes + 1, "after", "", then)  # made, refused, and then confirmed
    second = write(one)
    assert one.confirmed() == first + second
    assert not one.failures
    two = follower(shared)
    two.take_over()
    assert two.found == first + second


def test_a_body_is_put_again_if_the_standby_takes_over_before_it_has_it(shared: SimDatabase) -> None:
    one = owner(shared)
    shared.plan(shared.changes + 1, "after", "lost", "lost")
    upload(one, b"x" * 1000)
    (id,) = shared.connect().bodies()
    assert b"".join(shared.connect().read_body(id)) == b"x" * 1000


def test_an_entry_that_the_copy_has_no_room_for_is_in_the_database_once() -> None:
    faults = 0
    for at in range(1, 30):
        shared = SimDatabase()
        one = owner(shared)
        one.files.plan(at, Fault.ENOSPC)
        with suppress(JournalFull):
            fill(one, segment=3)
        one.step()
        faults += one.files.faults
        sent = [id for ids in one.sent.values() for id in ids]
        assert one.confirmed() == sent
        assert not one.failures
        two = follower(shared)
        two.take_over()
        assert two.found == sent, f"no room at operation {at}"
    assert faults > 10


def test_a_database_that_lost_what_was_confirmed_is_told(shared: SimDatabase) -> None:
    one = owner(shared)
    write(one)
    files = one.end()
    old = deepcopy(shared.tables)
    one = owner(shared, files=files)
    write(one)
    files = one.end()
    shared.tables = old
    with pytest.raises(CopyAhead):
        follower(shared, "one", files)


def test_an_owner_learns_that_the_database_lost_what_was_confirmed(shared: SimDatabase) -> None:
    one = owner(shared)
    old = deepcopy(shared.tables)
    write(one)
    shared.tables = old
    write(one)
    assert isinstance(one.failures[0], LogFailed)
    assert "confirmed" in str(one.failures[0])


def test_another_brokers_copy_is_refused() -> None:
    shared, other = SimDatabase(), SimDatabase()
    one = owner(shared)
    write(one)
    files = one.end()
    stranger = owner(other)
    for row in other.tables.rows.values():
        assert row
    other.tables.broker_id = b"another broker!!"
    assert stranger.log.owner.epoch == 1
    with pytest.raises(Corrupt, match="another broker"):
        follower(other, "one", files)


def test_a_segment_that_goes_while_it_is_compared_is_let_go(shared: SimDatabase) -> None:
    one = owner(shared)
    fill(one, segment=3)
    two = follower(shared)
    two.copying.fetch(one.log.replicated)
    again = Replica(shared, "two", two.end())
    listed = again.database.segments

    def segments() -> list[int]:
        found = listed()
        shared.tables.rows.pop(1, None)
        return found

    again.database.segments = segments  # type: ignore[method-assign]
    again.compare()
    assert again.log.segments() == [2, 3]
    assert again.copying.consistent


def test_a_copy_is_not_repaired() -> None:
    files = owner(SimDatabase()).end()
    with pytest.raises(CannotRepair, match="fetches the damaged parts again"):
        plan(files, DIRECTORY, EPOCH)


def test_a_copy_is_not_taken_for_a_log_in_files() -> None:
    files = owner(SimDatabase()).end()
    log = FileLog(files, DIRECTORY, LogSettings(segment_bytes=4096), now=lambda: EPOCH)
    with pytest.raises(IsCopy, match="copy of a log in PostgreSQL"):
        log.open()


# -- copies after a power loss -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_that_lost_its_power_is_made_good(shared: SimDatabase, seed: int) -> None:
    """Its files were never synced: whatever the disk kept of them, what the database has is what counts."""
    one = owner(shared, files=SimFiles(seed))
    ids = []
    for n in range(30):
        ids += one.send(size=50 + 37 * n)
        one.step()
    one.end()
    one.files.crash()
    again = follower(shared, "one", one.files)
    again.take_over()
    assert again.found == ids
    two = follower(shared)
    two.copying.follow()
    assert same(again, two)


def written(shared: SimDatabase, segments: int = 3) -> tuple[Replica, SimFiles]:
    """An owner that has written so many segments, and the disk of a standby that has copied all of them."""
    one = owner(shared)
    fill(one, segment=segments)
    two = follower(shared)
    two.copying.fetch(one.log.replicated)
    return one, two.end()


@pytest.mark.parametrize("damaged", [b"", b"BARTLEBY", bytes(200), b"no header at all" * 10])
@pytest.mark.parametrize("number", [1, 3])
def test_a_segment_without_a_header_is_fetched_again(shared: SimDatabase, damaged: bytes, number: int) -> None:
    one, files = written(shared)
    files.put(f"{DIRECTORY}/{number:010d}.journal", damaged)
    two = follower(shared, "two", files)
    two.take_over()
    assert two.found == sorted(two.found)
    assert same(one, two)


def test_a_segment_that_is_damaged_in_the_middle_is_fetched_from_there(shared: SimDatabase) -> None:
    one, files = written(shared)
    files.flip(f"{DIRECTORY}/0000000002.journal", 1500, 0x10)
    two = follower(shared, "two", files)
    two.take_over()
    assert same(one, two)
    assert any("/torn/" in path for path in files.paths()), "what was there is kept"


def test_a_segment_that_is_not_needed_goes_whatever_it_is(shared: SimDatabase) -> None:
    one, files = written(shared)
    assert shared.connect().trim(one.log.owner.epoch, [1])
    files.put(f"{DIRECTORY}/0000000001.journal", b"nothing of it was kept")
    two = follower(shared, "two", files)
    assert 1 not in two.log.segments()


@pytest.mark.parametrize("lost", ["the last row", "the last segment", "another row in its place"])
def test_a_copy_that_has_more_than_the_database_is_told(shared: SimDatabase, lost: str) -> None:
    one, files = written(shared)
    write(one)
    two = follower(shared, "two", files)
    two.copying.fetch(one.log.replicated)
    files = two.end()
    rows = shared.tables.rows
    if lost == "the last segment":
        del rows[3]
        shared.tables.end = rows[2][-1].end
    else:
        last = rows[3].pop()
        shared.tables.end = last.place
        if lost == "another row in its place":
            rows[3].append(Row(last.place, b"x" * len(last.data), last.entries))
            shared.tables.end = last.end
    before = {path: files.read(path) for path in files.paths()}
    with pytest.raises(CopyAhead, match="but the log in the database ends at byte"):
        follower(shared, "two", files)
    assert {path: files.read(path) for path in files.paths() if "/lock" not in path} == {
        path: data for path, data in before.items() if "/lock" not in path
    }, "nothing was changed"


def test_a_copy_is_no_log_for_an_empty_database(shared: SimDatabase) -> None:
    one = owner(shared)
    write(one)
    files = one.end()
    with pytest.raises(CopyAhead, match=r"but the log in the database is empty \(is it another database or schema"):
        follower(SimDatabase(), "one", files)


def test_a_standby_is_told_as_well(shared: SimDatabase) -> None:
    one = owner(shared)
    old = deepcopy(shared.tables)
    write(one)
    two = follower(shared)
    two.copying.fetch(one.log.replicated)
    shared.tables = old
    with pytest.raises(CopyAhead):
        two.copying.follow()


@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_row_is_not_copied(shared: SimDatabase, which: int) -> None:
    """The header, or a batch of entries."""
    one = owner(shared)
    write(one)
    [rows] = shared.tables.rows.values()
    damaged = bytearray(rows[which].data)
    damaged[20] ^= 1
    rows[which] = rows[which]._replace(data=bytes(damaged))
    two = follower(shared)
    with pytest.raises(LogFailed, match=r"row at byte .* of segment 1 is damaged"):
        two.copying.fetch(one.log.replicated)


def test_a_row_that_is_missing_is_waited_for_in_vain(shared: SimDatabase) -> None:
    one = owner(shared)
    for _ in range(3):
        write(one)
    [rows] = shared.tables.rows.values()
    del rows[2]
    two = follower(shared)
    two.copying.fetch(rows[1].end)
    end = two.copying.end
    del rows[2:]
    two.copying.fetch(one.log.replicated)
    assert two.copying.end == end


def test_the_disk_fails_while_a_body_is_fetched(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    body = upload(one, bytes(400_000))
    two.files.plan(3, Fault.EIO, sticky=True)
    with pytest.raises(LogFailed, match=r"writing .*\.body: "):
        two.copying.fetch_bodies()
    two.files.heal()
    two.copying.fetch_bodies()
    assert two.log.bodies.sizes() == {body.reference.id: 400_000}


def test_a_body_that_goes_while_it_is_fetched_is_not_kept(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    body = upload(one, bytes(3 << 20))
    del shared.tables.chunks[body.reference.id, 2]
    two.copying.fetch_bodies()
    assert two.log.bodies.sizes() == {}


def test_large_bodies_come_along_from_a_log_in_files() -> None:
    files = SimFiles()
    desk = Desk(files, segment_bytes=1 << 16)
    desk.start()
    coming = desk.journal.bodies.begin(lambda: None, durable=True)
    desk.journal.bodies.write(coming, bytes(range(256)) * 9000, last=True)
    desk.commit()
    desk.log.close()
    shared = SimDatabase()
    one = Replica(shared, "one", files)
    one.compare()
    assert one.leases.take_lease("one", 5_000)
    head = one.database.claim("one")
    assert head is not None
    one.log.owner.own(head)
    one.log.publish()
    [id] = shared.tables.bodies
    assert b"".join(shared.connect().read_body(id)) == bytes(range(256)) * 9000


def test_answers_of_a_copy(shared: SimDatabase) -> None:
    one, files = written(shared)
    assert one.log.directory == DIRECTORY
    assert one.log.path(3) == f"{DIRECTORY}/0000000003.journal"
    assert one.log.counters.entries > 3
    assert one.log.copy_name() == "one"
    with pytest.raises(LogFailed, match=r"the copy ends at byte 1 of .*, the log at byte"):
        one.log.cut(3, 1, 0)
    one.log.close()
    assert follower(shared, "two", files).log.copy_name() == "two"


def test_a_segment_that_cannot_go_now_goes_with_the_next(shared: SimDatabase) -> None:
    one, _ = written(shared, 4)
    shared.plan(shared.changes + 1, "busy")
    one.log.trim([1])
    assert shared.connect().segments() == one.log.segments() == [1, 2, 3, 4]
    one.log.trim([2])
    assert shared.connect().segments() == one.log.segments() == [3, 4]


def test_a_growing_log_may_be_damaged_or_gone(shared: SimDatabase) -> None:
    one, files = written(shared, 1)
    two = follower(shared, "two", files)
    source = UpTo(two.files, DIRECTORY, lambda: two.copying.end)

    def damaged() -> bool:
        write(one)
        two.copying.fetch(one.log.replicated)
        path = two.log.path(two.copying.end.segment)
        damaged = bytearray(files.read(path))
        damaged[two.copying.end.offset - 20] ^= 0x40
        files.put(path, bytes(damaged))
        return False

    with pytest.raises(Corrupt):
        list(Following(source, damaged).records())
    files.heal()
    records = Following(source, lambda: False).records()
    assert next(records)
    files.remove(two.log.path(1))
    with pytest.raises(FileNotFoundError):
        list(records)


@pytest.mark.parametrize("segments", [1, 5])
def test_records_that_go_before_they_are_read_are_missed(shared: SimDatabase, segments: int) -> None:
    """With them what they took away: a reader that went on without them would bring it back."""
    one, two = owner(shared), follower(shared)
    begin_second_segment(one, two)

    def more() -> bool:
        newest = two.copying.end.segment
        one.journal.space.release(1, 1)
        while newest in two.log.segments() or two.copying.end.segment < newest + segments:
            write(one, size=500, gone=True)
            two.copying.fetch(one.log.replicated)
            two.copying.tidy()
        return False

    source = UpTo(two.files, DIRECTORY, lambda: two.copying.end)
    with pytest.raises(FileNotFoundError, match="before it was read"):
        list(Following(source, more).records())
    assert read(two)


def test_segments_still_to_be_read_stay(shared: SimDatabase) -> None:
    one, two = owner(shared), follower(shared)
    begin_second_segment(one, two)
    newest = two.copying.end.segment
    passes = iter(range(3))
    one.journal.space.release(1, 1)

    def more() -> bool:
        two.copying.read_to = Place(two.copying.end.segment, 0)
        for _ in range(30):
            write(one, size=500, gone=True)
            two.copying.fetch(one.log.replicated)
            two.copying.tidy()
        return next(passes, None) is not None

    two.copying.read_to = Place(0, 0)
    source = UpTo(two.files, DIRECTORY, lambda: two.copying.end)
    read_on = {raw[0] for raw in Following(source, more).records()}
    assert read_on == set(range(1, two.copying.end.segment + 1))
    assert 1 not in two.log.segments()
    assert newest not in two.log.segments()


def test_segments_that_a_copy_has_not_got_yet_are_not_read(
    shared: SimDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment is preallocated: each reading of all 64 MiB would take 40 ms."""
    one, files = written(shared, 1)
    two = follower(shared, "two", files)
    two.copying.fetch(one.log.replicated)
    read: list[int] = []
    real = files.read_range

    def read_range(path: str, offset: int, nbytes: int) -> bytes:
        data = real(path, offset, nbytes)
        read.append(len(data))
        return data

    monkeypatch.setattr(files, "read_range", read_range)
    monkeypatch.setattr(files, "read", None)
    end = Place(two.copying.end.segment, two.copying.end.offset - 1)
    assert UpTo(two.files, DIRECTORY, lambda: end).read(end.segment)
    assert read == [end.offset]


# -- everything at once ------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
def test_whatever_goes_wrong_nothing_confirmed_is_lost_and_nobody_else_writes(seed: int) -> None:
    random = Random(seed)
    shared = SimDatabase(seed, fault_rate=random.choice((0.0, 0.05, 0.3)))
    confirmed: list[int] = []
    sent: set[int] = set()
    files: dict[str, SimFiles] = {}
    zombies: list[Replica] = []
    for turn in range(random.randint(2, 5)):
        name = random.choice(("one", "two"))
        replica = Replica(shared, name, files.pop(name, None))
        try:
            replica.compare()
            replica.take_over()
        except LogUnknown:  # nothing of it counts
            files[name] = replica.end()
            continue
        assert set(confirmed) <= set(replica.found) <= sent, f"seed {seed}, turn {turn}"
        assert len(set(replica.found)) == len(replica.found)
        for _ in range(random.randint(0, 12)):
            try:
                sent.update(replica.send(random.randint(1, 3), size=random.randint(1, 900)))
            except JournalFull:  # the writer has stopped
                assert replica.writer.error is not None
                break
            if random.random() < 0.8:
                replica.step()
            if zombies and random.random() < 0.3:
                zombie = random.choice(zombies)
                if not zombie.failures:
                    write(zombie)
                    assert isinstance(zombie.failures[0], LogFenced)
                assert set(zombie.confirmed()) <= set(replica.found), f"seed {seed}: a zombie"
            if replica.failures:
                break
        confirmed += replica.confirmed()
        if random.random() < 0.3:
            shared.fail_over()
        if random.random() < 0.5:
            zombies.append(replica)
            files.pop(name, None)
        else:
            files[name] = replica.end()
    last = Replica(shared, "last")
    shared.fault_rate = 0.0
    last.compare()
    last.take_over()
    assert set(confirmed) <= set(last.found) <= sent


def test_places_are_ordered_and_told() -> None:
    assert Place(1, 500) < Place(2, 0) < Place(2, 64)
    assert str(Place(2, 64)) == "byte 64 of segment 2"
