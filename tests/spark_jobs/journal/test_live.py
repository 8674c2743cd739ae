"""Snapshots beside a broker that writes, trims, keeps and lets go, with its own thread on a real disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore, Thread

import pytest

from spark_jobs.journal.scan import scan_segment
from spark_jobs.journal.snapshot import Snapshot, take
from store import record
from store.files import OsFiles
from store.journal import Journal
from store.log import FileLog, LogSettings
from store.record import RemovalReason, StoredMessage
from store.retention import RetentionSettings
from store.writer import WriterThread
from tests.store.workload import BROKER_ID, EPOCH

SEGMENT_BYTES = 64 << 10
SNAPSHOTS = 15
#: What the broker does during one snapshot: several segments full.
MESSAGES = 150


class Broker(Thread):
    """Messages come and go in a thread of its own, as many as it is allowed."""

    def __init__(self, directory: Path, retention: RetentionSettings) -> None:
        super().__init__(name="broker")
        self.stopped = False
        self.allowed = Semaphore(0)
        self.done = Semaphore(0)
        self.failure: BaseException | None = None
        self.now = EPOCH
        settings = LogSettings(segment_bytes=SEGMENT_BYTES, retention=retention)
        log = FileLog(OsFiles(), str(directory), settings, now=lambda: self.now)
        log.open()
        self.writer = WriterThread(log, lambda ticket: None, self.fail)
        self.writer.start()
        self.journal = Journal(log, self.writer, now=lambda: self.now, new_broker_id=lambda: BROKER_ID)
        self.journal.recover()
        assert list(self.journal.replay()) == []
        self.journal.start()
        self.writer.wait_ready(2)  # the first segment is there

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Meanwhile it takes so many messages."""
        self.allowed.release(MESSAGES)
        yield
        for _ in range(MESSAGES):
            assert self.done.acquire(timeout=60)

    def fail(self, failure: BaseException) -> None:
        self.failure = failure

    def run(self) -> None:
        try:
            self.work()
            self.journal.close()
        except BaseException as failure:
            self.fail(failure)

    def work(self) -> None:
        journal = self.journal
        queue = journal.allocate_ids(1)
        journal.define(queue, record.queue(queue, {"name": "q"}))
        waiting: list[tuple[int, int]] = []
        while self.allowed.acquire() and not self.stopped and self.failure is None:
            self.now += 60_000
            journal.reserve(2000)
            journal.ensure_defined(queue)
            first = journal.allocate_ids(1)
            header = record.message_header(timestamp=self.now, queue_ids=[queue], address="a")
            journal.add_messages(header, record.ANYCAST, [StoredMessage(first, b"", bytes(1500))])
            waiting.append((first, journal.segment))
            if len(waiting) > 30:
                for id, segment in (waiting.pop(7), waiting.pop(0)):
                    journal.add(record.removed(queue, RemovalReason.CONSUMED, [id]))
                    journal.refer(segment, released=1)
            self.writer.wait_ready(journal.segment)
            journal.commit()
            self.done.release()


@pytest.fixture
def beside(tmp_path: Path) -> Callable[[RetentionSettings, Callable[[Path, Broker], None]], None]:
    """Runs something beside a broker."""

    def run(retention: RetentionSettings, work: Callable[[Path, Broker], None]) -> None:
        broker = Broker(tmp_path / "journal", retention)
        broker.start()
        try:
            work(tmp_path, broker)
        finally:
            broker.stopped = True
            broker.allowed.release()
            broker.join()
        assert broker.failure is None
        final = take([str(tmp_path)])
        assert final.missing == ()
        assert final.torn_bytes == 0

    return run


def read_all(snapshot: Snapshot) -> int:
    """All positions are where the snapshot says.  Returns how many segments had vanished."""
    vanished = 0
    for ref in snapshot.segments:
        segment = scan_segment(ref)
        if segment.lost:
            vanished += 1
            continue
        assert segment.found.holes == []
        assert segment.found.positions.tolist() == list(range(ref.first_position, ref.next_first or 0))
    return vanished


def test_with_all_segments_kept_nothing_is_ever_missing(
    beside: Callable[[RetentionSettings, Callable[[Path, Broker], None]], None],
) -> None:
    def work(data: Path, broker: Broker) -> None:
        last = 0
        for _ in range(SNAPSHOTS):
            with broker.busy():
                snapshot = take([str(data)])
                assert read_all(snapshot) == 0
            assert (snapshot.missing, snapshot.trimmed) == ((), ())
            assert snapshot.segments[0].first_position == 0
            assert snapshot.next_position >= last
            last = snapshot.next_position
        assert any(ref.kept for ref in snapshot.segments)

    beside(RetentionSettings(enabled=True), work)


@pytest.mark.parametrize(
    "retention",
    [
        RetentionSettings(),
        RetentionSettings(enabled=True, age_days=0),
        RetentionSettings(enabled=True, bytes_max=3 * SEGMENT_BYTES),
    ],
)
def test_segments_that_the_broker_gives_up_meanwhile_are_not_missing(
    beside: Callable[[RetentionSettings, Callable[[Path, Broker], None]], None], retention: RetentionSettings
) -> None:
    def work(data: Path, broker: Broker) -> None:
        trimmed = 0
        for _ in range(SNAPSHOTS):
            with broker.busy():
                snapshot = take([str(data)])
                read_all(snapshot)
            assert snapshot.missing == ()
            trimmed += bool(snapshot.trimmed)
            lost = sum(gap.records for gap in snapshot.trimmed)
            assert lost + sum(ref.records for ref in snapshot.segments) == snapshot.next_position
        assert trimmed > SNAPSHOTS // 2

    beside(retention, work)
