"""The writer: in order, in batches, and silent after the first failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from store.bodies import TURN_BYTES, TURN_PARTS, Abort, BodyFiles, Drop, Part, Upload
from store.errors import LogFailed, LogFull
from store.log import Counters
from store.segment import Entry
from store.spare import Spare
from store.writer import BATCH_BYTES_MAX, Begin, InlineWriter, Trim, Worker, WriterThread
from tests.support.sim_files import SimFiles


class ListLog:
    """A log that notes what is done; `fail` makes the next append fail, `gate` makes it wait."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self.counters = Counters()
        self.directory = "journal"
        self.bodies = BodyFiles(SimFiles(), "journal", keep_free=0)
        self.spare = Spare(SimFiles(), "journal", 1000, lambda doing, error: error)
        self.segment_bytes = 1000
        self.fail = False
        self.full = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def open(self) -> None: ...

    def segments(self) -> list[int]:
        return []

    def path(self, segment: int) -> str:
        return str(segment)

    def read(self, segment: int) -> bytes:
        return b""

    def cut(self, segment: int, end: int, torn_bytes: int) -> None: ...

    def allocate(self, segment: int) -> None:
        self.done.append(("allocate", segment))
        self.spare.nbytes = 1000
        self.spare.ready = segment

    def begin(self, segment: int, broker_id: bytes, first_position: int) -> None:
        self.done.append(("begin", segment))

    def append(self, entries: Sequence[Entry]) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        if self.fail:
            raise LogFailed("broken")
        if self.full:
            self.done.append(("full", [e.ticket for e in entries]))
            raise LogFull("no room")
        self.done.append(("append", [e.ticket for e in entries]))

    def trim(self, segments: Sequence[int]) -> None:
        self.done.append(("trim", list(segments)))

    def close(self) -> None: ...


@pytest.fixture
def log() -> ListLog:
    return ListLog()


def entry(ticket: int, nbytes: int = 8) -> Entry:
    return Entry(segment=1, ticket=ticket, first=ticket, count=1, timestamp=0, nbytes=nbytes, parts=[bytes(8)])


def begin(segment: int) -> Begin:
    return Begin(segment, bytes(16), 0)


def never(error: Exception) -> None:
    raise AssertionError(f"failed: {error}")


def test_gathered_entries_are_one_batch_cut_by_other_work(log: ListLog) -> None:
    announced: list[int] = []
    writer = InlineWriter(log, announced.append, never)
    for work in (begin(1), entry(1), entry(2), begin(2), entry(3), Trim([1]), entry(4)):
        writer.submit(work)
    assert log.done == []
    writer.step()
    assert log.done == [
        ("begin", 1),
        ("append", [1, 2]),
        ("begin", 2),
        ("append", [3]),
        ("trim", [1]),
        ("append", [4]),
        ("allocate", 3),
    ]
    assert announced == [2, 3, 4, 4], "again with the room for the next segment"


def test_a_batch_is_bounded(log: ListLog) -> None:
    announced: list[int] = []
    writer = InlineWriter(log, announced.append, never)
    for ticket in range(1, 6):
        writer.submit(entry(ticket, BATCH_BYTES_MAX // 2))
    writer.step()
    assert announced == [2, 4, 5]


def test_trimming_before_any_segment_was_begun_asks_for_no_room(log: ListLog) -> None:
    writer = InlineWriter(log, never_announced, never)
    writer.submit(Trim([4]))
    writer.close()
    assert log.done == [("trim", [4])]


def never_announced(ticket: int) -> None:
    raise AssertionError(f"announced: {ticket}")


def test_room_that_was_asked_for_is_made_at_the_next_step(log: ListLog) -> None:
    writer = InlineWriter(log, never_announced, never)
    writer.prepare(7)
    assert log.spare.ready == 0
    writer.step()
    assert log.spare.ready == 7


def test_waiting_for_room_announces_nothing_yet(log: ListLog) -> None:
    announced: list[int] = []
    writer = InlineWriter(log, announced.append, never)
    writer.submit(entry(1))
    writer.wait_ready(3)
    assert log.done == [("append", [1]), ("allocate", 3)]
    assert announced == []
    writer.step()
    assert announced == [1]


def test_a_failure_is_told_once_and_ends_everything(log: ListLog) -> None:
    announced: list[int] = []
    failures: list[Exception] = []
    writer = InlineWriter(log, announced.append, failures.append)
    log.fail = True
    writer.submit(entry(1))
    writer.step()
    log.fail = False
    writer.submit(entry(2))
    writer.prepare(5)
    writer.step()
    assert announced == []
    assert log.done == []
    assert [str(f) for f in failures] == ["broken"]
    assert writer.error is failures[0]


def test_a_failure_while_waiting_for_room_is_told_by_the_next_step(log: ListLog) -> None:
    failures: list[Exception] = []
    writer = InlineWriter(log, never_announced, failures.append)
    log.fail = True
    writer.submit(entry(1))
    writer.wait_ready(2)
    assert failures == []
    writer.step()
    assert len(failures) == 1


# -- the thread --------------------------------------------------------------------------------------------------------


def started(log: ListLog, announce: Callable[[int], None], failed: Callable[[Exception], None]) -> WriterThread:
    writer = WriterThread(log, announce, failed)
    writer.start()
    return writer


def test_the_thread_writes_in_groups_while_it_is_busy(log: ListLog) -> None:
    announced: list[int] = []
    writer = started(log, announced.append, never)
    log.gate.clear()
    writer.submit(entry(1))
    assert log.entered.wait(10)
    for ticket in range(2, 100):
        writer.submit(entry(ticket))
    log.gate.set()
    writer.close()
    assert log.done == [("append", [1]), ("append", list(range(2, 100)))]
    assert announced == [1, 99]


def test_the_thread_makes_room(log: ListLog) -> None:
    writer = started(log, never_announced, never)
    writer.wait_ready(3)
    assert log.spare.ready == 3
    writer.prepare(4)
    writer.close()
    assert log.spare.ready == 4


@pytest.mark.parametrize("waiting", [False, True])
def test_the_thread_ends_with_its_failure(log: ListLog, waiting: bool) -> None:
    failures: list[Exception] = []
    told = threading.Event()

    def failed(error: Exception) -> None:
        failures.append(error)
        told.set()

    writer = started(log, never_announced, failed)
    log.fail = True
    log.gate.clear()
    writer.submit(entry(1))
    assert log.entered.wait(10)
    if waiting:
        threading.Timer(0.01, log.gate.set).start()
        writer.wait_ready(9)
    else:
        log.gate.set()
    assert told.wait(10)
    log.fail = False
    writer.submit(entry(2))
    writer.close()
    assert [str(f) for f in failures] == ["broken"]
    assert log.done == []


def test_a_large_body_goes_after_the_entries_before_it_and_a_part_of_one_need_not_wait(log: ListLog) -> None:
    files = SimFiles()
    log.bodies = BodyFiles(files, "journal", keep_free=0)
    path = log.bodies.path(7)
    files.put(path, b"body")
    seen: list[bool] = []
    append = log.append

    def look(entries: Sequence[Entry]) -> None:
        append(entries)
        seen.append(path in files.paths())

    log.append = look  # type: ignore[method-assign]
    told: list[int] = []
    writer = InlineWriter(log, told.append, lambda error: None)
    upload = Upload(8, lambda: None, durable=True)
    for work in (entry(1), Drop([7]), entry(2), Part(upload, b"x", last=True), entry(3)):
        writer.submit(work)
    writer.step()
    assert seen == [True, False]
    assert told == [1, 3, 3], "the first entry, the others, the part that they did not wait for"
    assert files.paths() == [log.bodies.path(8)]


def test_an_upload_that_is_broken_off_goes_in_its_turn_and_asks_for_no_room(log: ListLog) -> None:
    files = SimFiles()
    log.bodies = BodyFiles(files, "journal", keep_free=0)
    writer = InlineWriter(log, lambda ticket: None, never)
    upload = Upload(8, lambda: None, durable=True)
    writer.submit(begin(1))
    writer.submit(Part(upload, b"x"))
    writer.step()
    assert files.paths() == [log.bodies.path(8)]
    log.done.clear()
    writer.submit(Abort(upload))
    writer.step()
    assert (files.paths(), log.done) == ([], [])


def test_an_entry_waits_for_one_turn_of_the_bodies_at_most(log: ListLog) -> None:
    """Limits: one sync of bodies, or TURN_BYTES or TURN_PARTS, before an entry; however many bodies are half sent."""
    files = SimFiles()
    log.bodies = bodies = BodyFiles(files, "journal", keep_free=0, open_max=2)
    worker = Worker(log, lambda ticket: None)
    uploads = [Upload(8 + n, lambda: None, durable=True, owner="evil") for n in range(100)]
    worker.work([Part(upload, b"x") for upload in uploads])
    ticket, before = 0, -1
    while worker.unfinished:
        assert bodies.syncs - before <= 2
        before, ticket = bodies.syncs, ticket + 1
        worker.work([entry(ticket)])
        assert log.done[-1] == ("append", [ticket])
    assert ticket > 90, "each of these files was closed for another"
    assert (len(files.paths()), bodies.syncs) == (100, 98)


@pytest.mark.parametrize(
    ("parts", "nbytes", "turns"),
    [(TURN_PARTS, 1, 1), (TURN_PARTS + 1, 1, 2), (2, TURN_BYTES, 2), (2, TURN_BYTES - 1, 1)],
)
def test_a_turn_is_bounded(log: ListLog, parts: int, nbytes: int, turns: int) -> None:
    worker = Worker(log, lambda ticket: None)
    upload = Upload(8, lambda: None, durable=True)
    worker.work([Part(upload, bytes(nbytes)) for _ in range(parts)])
    done = 1
    while worker.unfinished:
        worker.work(())
        done += 1
    assert done == turns


def test_owners_of_uploads_take_turns(log: ListLog) -> None:
    """However much one sends, another waits for one turn of it."""
    worker = Worker(log, lambda ticket: None)
    evil, good = (Upload(n, lambda: None, durable=True, owner=n) for n in (8, 9))
    worker.work([Part(evil, bytes(TURN_BYTES)) for _ in range(10)] + [Part(good, b"x", last=True)])
    worker.work(())
    assert [upload.id for upload, _, _ in log.bodies.results] == [8, 9]
    worker.work([Abort(evil)])
    while worker.unfinished:
        worker.work(())
    assert log.bodies.nbytes == 1, "an abort follows the parts of its upload"


def test_the_thread_finishes_the_bodies_before_it_ends(log: ListLog) -> None:
    writer = started(log, lambda ticket: None, never)
    upload = Upload(8, lambda: None, durable=True)
    for _ in range(3):
        writer.submit(Part(upload, bytes(TURN_BYTES)))
    writer.submit(Part(upload, b"", last=True))
    writer.close()
    reference = log.bodies.results[-1][2]
    assert reference is not None
    assert reference.nbytes == 3 * TURN_BYTES


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_a_batch_without_room_waits_with_all_that_follow_and_is_tried_again_as_it_was(log: ListLog) -> None:
    announced: list[int] = []
    writer = InlineWriter(log, announced.append, never)
    log.full = True
    for work in (begin(1), entry(1), entry(2), begin(2), entry(3)):
        writer.submit(work)
    writer.step()
    writer.submit(entry(4))
    writer.step()
    assert announced == []
    log.full = False
    writer.step()
    assert log.done == [
        ("begin", 1),
        ("full", [1, 2]),
        ("full", [1, 2]),
        ("append", [1, 2]),
        ("begin", 2),
        ("append", [3, 4]),
        ("allocate", 3),
    ]
    assert announced == [2, 4, 4]


def test_a_batch_without_room_when_the_writer_closes_is_a_failure(log: ListLog) -> None:
    failures: list[Exception] = []
    writer = InlineWriter(log, never_announced, failures.append)
    log.full = True
    writer.submit(entry(1))
    writer.step()
    assert failures == []
    writer.close()
    assert [type(failure) for failure in failures] == [LogFull]


def test_the_thread_tries_again_until_there_is_room(log: ListLog) -> None:
    durable = threading.Event()
    writer = WriterThread(log, lambda ticket: durable.set() if ticket == 2 else None, never, room_retry=0.001)
    log.full = True
    writer.start()
    writer.submit(entry(1))
    writer.submit(entry(2))
    assert log.entered.wait(10)
    log.entered.clear()
    assert log.entered.wait(10), "it tries again"
    log.full = False
    assert durable.wait(10)
    writer.close()


def test_the_thread_gives_up_when_it_is_closed(log: ListLog) -> None:
    failures: list[Exception] = []
    writer = WriterThread(log, never_announced, failures.append, room_retry=3600)
    log.full = True
    writer.start()
    writer.submit(entry(1))
    assert log.entered.wait(10)
    writer.close()
    assert [type(failure) for failure in failures] == [LogFull]
    assert len([what for what, _ in log.done if what == "full"]) >= 2, "a last time"
