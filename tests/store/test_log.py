"""The log of files: what it leaves on the disk, what it counts, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from store import record
from store.errors import DirectoryLocked, LogError, LogFailed, LogFull
from store.log import FileLog, LogSettings
from store.retention import RetentionSettings
from store.segment import Entry, decode_header, scan, segment_name
from tests.store import segments
from tests.store.workload import BROKER_ID, DAY, EPOCH
from tests.support.sim_files import Crash, Fault, SimFiles

HOME = "/data/journal"


class Bench:
    """A log on a simulated disk with clocks that are set by hand."""

    def __init__(
        self, *, capacity: int | None = None, segment_bytes: int = 4096, retention: RetentionSettings | None = None
    ) -> None:
        self.files = SimFiles(capacity=capacity)
        self.now = EPOCH
        self.seconds = 0.0
        self.slow: list[float] = []
        self.settings = LogSettings(
            segment_bytes=segment_bytes, slow_sync_ms=100, retention=retention or RetentionSettings()
        )
        self.log = self.another()

    def another(self) -> FileLog:
        return FileLog(
            self.files, HOME, self.settings, now=lambda: self.now, monotonic=self.tick, on_slow_sync=self.slow.append
        )

    def tick(self) -> float:
        self.seconds += 0.25
        return self.seconds

    def segments(self, count: int) -> None:
        """Begin `count` segments, a day apart, one entry each."""
        for number in range(1, count + 1):
            self.log.begin(number, BROKER_ID, number - 1)
            self.log.append([entry(number, number - 1)])
            self.now += DAY


def entry(segment: int, first: int, *records: bytes) -> Entry:
    return segments.entry(segment, first, *(records or [record.closed()]))


@pytest.fixture
def bench() -> Bench:
    """One that is open."""
    opened = Bench()
    opened.log.open()
    return opened


def test_segments_on_the_disk(bench: Bench) -> None:
    bench.log.allocate(1)
    assert bench.files.paths() == [f"{HOME}/0000000001.spare"]
    assert (bench.log.spare.ready, bench.log.spare.nbytes, bench.log.spare.full) == (1, 4096, False)
    bench.segments(2)
    assert bench.files.paths() == [f"{HOME}/0000000001.journal", f"{HOME}/0000000002.journal"]
    first, second = bench.files.read(bench.log.path(1)), bench.files.read(bench.log.path(2))
    assert len(first) == 64 + 56, "what was not used is given back"
    assert len(second) == 4096
    header = decode_header(second)
    assert (header.number, header.broker_id, header.created, header.first_position) == (2, BROKER_ID, EPOCH + DAY, 1)
    assert [(e.first, e.count, e.durable) for e in scan(second, header).entries] == [(1, 1, 1)]
    assert bench.log.segments() == [1, 2]
    bench.log.close()


def test_one_batch_is_one_write_and_one_sync(bench: Bench) -> None:
    bench.log.begin(1, BROKER_ID, 10)
    done = len(bench.files.history)
    bench.log.append([entry(1, 10, record.ids(5), record.closed()), entry(1, 12)])
    assert [line.split()[0] for line in bench.files.history[done:]] == ["write", "sync"]
    counters = bench.log.counters
    assert (counters.entries, counters.records, counters.last_batch_records) == (2, 3, 3)
    assert (counters.bytes, counters.syncs, counters.sync_seconds) == (72 + 56, 1, 0.25)
    assert bench.slow == [0.25]
    assert counters.slow_syncs == 1
    data = bench.files.read(bench.log.path(1))
    assert [e.durable for e in scan(data, decode_header(data)).entries] == [10, 10]


def test_a_fast_sync_is_not_reported() -> None:
    bench = Bench()
    bench.settings = LogSettings(segment_bytes=4096, slow_sync_ms=250)
    bench.log = bench.another()
    bench.log.open()
    bench.log.begin(1, BROKER_ID, 0)
    bench.log.append([entry(1, 0)])
    assert bench.slow == []


def test_without_clocks_nothing_is_slow(files: SimFiles) -> None:
    log = FileLog(files, HOME, now=lambda: EPOCH)
    log.open()
    assert log.segment_bytes == 64 << 20
    log.note_sync(2.0)
    assert log.counters.slow_syncs == 1


def test_two_cannot_own_a_directory(bench: Bench) -> None:
    with pytest.raises(DirectoryLocked, match="process 4242"):
        bench.another().open()
    bench.log.close()
    bench.log.close()
    bench.another().open()


def test_spares_of_an_earlier_run_go(bench: Bench) -> None:
    bench.log.allocate(7)
    bench.log.close()
    bench.another().open()
    assert bench.files.paths() == []


def test_a_full_disk_gives_a_smaller_spare_which_grows_when_there_is_room() -> None:
    bench = Bench(capacity=1500)
    log = bench.log
    log.open()
    log.allocate(1)
    assert (log.spare.ready, log.spare.nbytes, log.spare.full) == (1, 1024, True)
    log.allocate(1)
    assert (log.spare.ready, log.spare.nbytes, log.spare.full) == (1, 1024, True)
    assert bench.files.used() == 1024, "a spare that cannot grow keeps its size"
    bench.files.capacity = 2500
    log.allocate(1)
    assert (log.spare.nbytes, log.spare.full) == (2048, True)
    bench.files.capacity = None
    log.allocate(1)
    assert (log.spare.nbytes, log.spare.full) == (4096, False)
    assert bench.files.paths() == [f"{HOME}/0000000001.spare"]


def test_room_that_the_disk_does_not_have_is_not_tried() -> None:
    """A try takes all that is left, and gives it back: whoever writes something small meanwhile finds no room."""
    bench = Bench(capacity=1500)
    bench.log.open()
    bench.log.allocate(1)
    done = len(bench.files.history)
    bench.log.allocate(1)
    assert not [step for step in bench.files.history[done:] if step.startswith(("allocate", "truncate"))]
    assert [step.split()[0] for step in bench.files.history].count("allocate") == 1


def test_where_nobody_can_tell_the_room_it_is_tried() -> None:
    bench = Bench(capacity=1500)
    bench.files.unseen = True
    bench.log.open()
    for _ in range(2):
        bench.log.allocate(1)
        assert (bench.log.spare.ready, bench.log.spare.nbytes, bench.log.spare.full) == (1, 1024, True)
        assert bench.files.used() == 1024, "a spare that cannot grow keeps its size"


def test_a_64th_of_a_segment_is_the_least_to_start_with_then_a_sixteenth() -> None:
    bench = Bench(capacity=63)
    bench.log.open()
    bench.log.allocate(1)
    assert (bench.log.spare.ready, bench.log.spare.nbytes, bench.log.spare.full) == (0, 0, True)
    assert bench.files.paths() == []
    with pytest.raises(LogFull, match="the disk is full"):
        bench.log.begin(1, BROKER_ID, 0)
    bench.files.capacity = 64
    again = bench.another()
    bench.log.close()
    again.open()
    again.allocate(1)
    assert again.spare.nbytes == 64
    again.begin(1, BROKER_ID, 0)
    for free, nbytes in ((255, 0), (256, 256)):
        bench.files.capacity = 64 + free
        again.allocate(2)
        assert (again.spare.ready, again.spare.nbytes) == (2 if nbytes else 1, nbytes)


def test_room_for_a_segment_that_was_begun_already_is_not_made(bench: Bench) -> None:
    bench.log.begin(1, BROKER_ID, 0)
    bench.log.allocate(1)
    assert bench.log.spare.nbytes == 0


def test_a_segment_may_exceed_its_size() -> None:
    bench = Bench(segment_bytes=256)
    bench.log.open()
    bench.log.begin(1, BROKER_ID, 0)
    bench.log.append([entry(1, 0, record.address(1, {"name": "x" * 1000}))])
    data = bench.files.read(bench.log.path(1))
    assert scan(data, decode_header(data)).position == 1


def test_the_spare_gives_its_room_when_the_disk_is_full() -> None:
    bench = Bench(capacity=2 * 256 + 100, segment_bytes=256)
    log = bench.log
    log.open()
    log.begin(1, BROKER_ID, 0)
    log.allocate(2)
    log.append([entry(1, 0, record.address(1, {"name": "x" * 300}))])
    assert (log.spare.ready, log.spare.nbytes, log.spare.full) == (1, 0, True)
    large = [entry(1, 1, record.address(1, {"name": "x" * 300}))]
    for _ in range(2):
        with pytest.raises(LogFull, match=r"writing .*: the disk is full"):
            log.append(large)
    bench.files.capacity = None
    log.append(large)
    data = bench.files.read(log.path(1))
    assert scan(data, decode_header(data)).position == 2


def test_a_sync_that_finds_no_room_is_repeated_with_all_bytes(bench: Bench) -> None:
    log = bench.log
    log.begin(1, BROKER_ID, 0)
    bench.files.plan(2, Fault.ENOSPC)
    with pytest.raises(LogFull, match="writing"):
        log.append([entry(1, 0)])
    log.append([entry(1, 0)])
    bench.files.crash(0.0)
    data = bench.files.read(log.path(1))
    assert scan(data, decode_header(data)).position == 1


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EMFILE, Fault.ENFILE, Fault.ENOMEM])
@pytest.mark.parametrize("at", range(1, 8))
def test_a_segment_is_begun_once_nothing_is_missing(bench: Bench, at: int, fault: Fault) -> None:
    """A write needs room on file systems that copy on write; nothing failed, so nothing ends."""
    log = bench.log
    log.begin(1, BROKER_ID, 0)
    log.append([entry(1, 0)])
    log.allocate(2)
    bench.files.plan(at, fault)
    with suppress(LogFull):
        log.begin(2, BROKER_ID, 1)
    bench.files.heal()
    if bench.files.faults:
        log.begin(2, BROKER_ID, 1)
    log.append([entry(2, 1)])
    bench.files.crash(0.0)
    found = [bench.files.read(log.path(segment)) for segment in (1, 2)]
    assert [scan(data, decode_header(data)).position for data in found] == [1, 2]


@pytest.mark.parametrize(
    ("fault", "missing"),
    [
        (Fault.ENOSPC, "the disk is full"),
        (Fault.EMFILE, "the process has no file descriptors left"),
        (Fault.ENFILE, "the machine has no file descriptors left"),
        (Fault.ENOMEM, "the machine has no memory left"),
    ],
)
def test_no_room_for_another_file_is_a_full_disk(bench: Bench, fault: Fault, missing: str) -> None:
    """As when a file system has no inodes left."""
    log = bench.log
    log.begin(1, BROKER_ID, 0)
    bench.files.plan(1, fault, sticky=True)
    log.allocate(2)
    assert (log.spare.ready, log.spare.full, log.spare.lacking) == (1, True, missing)
    with pytest.raises(LogFull, match=f"beginning .*: {missing}"):
        log.begin(2, BROKER_ID, 0)
    bench.files.heal()
    log.append([entry(1, 0)])
    log.allocate(2)
    assert (log.spare.ready, log.spare.full) == (2, False)


def test_after_a_failed_sync_everything_fails(bench: Bench) -> None:
    log = bench.log
    log.begin(1, BROKER_ID, 0)
    bench.files.plan(2, Fault.EIO)
    with pytest.raises(LogError, match="writing"):
        log.append([entry(1, 0)])
    done = bench.files.operations
    with pytest.raises(LogFailed, match="failed before: writing"):
        log.append([entry(1, 0)])
    with pytest.raises(LogFailed):
        log.begin(2, BROKER_ID, 0)
    with pytest.raises(LogFailed):
        log.trim([1])
    assert bench.files.operations == done


def everything(bench: Bench) -> None:
    """Every operation of a log that touches the disk."""
    bench.log.open()
    bench.segments(4)
    bench.files.capacity = 0
    bench.files.unseen = True
    bench.log.allocate(5)
    bench.log.segments()
    bench.log.read(4)
    bench.files.capacity = None
    bench.log.cut(4, 64, 8)
    bench.log.trim([1, 2])


def test_an_error_anywhere_is_a_log_error() -> None:
    bench = Bench(capacity=100_000)
    everything(bench)
    for at in range(1, bench.files.operations + 1):
        failing = Bench(capacity=100_000)
        failing.files.plan(at, Fault.EIO)
        with pytest.raises(LogFailed, match="Input/output error"):
            everything(failing)


@pytest.mark.parametrize(
    "does",
    [FileLog.copy_name, lambda log: log.mark_as_copy("two"), lambda log: log.resume(1, b"", 64, 0)],
    ids=["copy_name", "mark_as_copy", "resume"],
)
def test_an_error_of_a_copy_is_a_log_error(bench: Bench, does: Callable[[FileLog], object]) -> None:
    bench.segments(1)
    bench.files.plan(1, Fault.EIO)
    with pytest.raises(LogFailed, match="Input/output error"):
        does(bench.log)


def test_a_disk_that_takes_no_more_files_is_full(bench: Bench) -> None:
    """Its inodes are used up."""
    bench.files.plan(1, Fault.ENOSPC, sticky=True)
    bench.log.allocate(1)
    assert (bench.log.spare.ready, bench.log.spare.nbytes, bench.log.spare.full) == (0, 0, True)
    bench.files.heal()
    bench.log.allocate(1)
    assert (bench.log.spare.ready, bench.log.spare.nbytes, bench.log.spare.full) == (1, 4096, False)


def test_an_error_while_a_spare_is_given_back() -> None:
    bench = Bench(capacity=1000)
    bench.files.unseen = True
    bench.log.open()
    bench.files.plan(3, Fault.EIO)
    with pytest.raises(LogFailed, match="giving back"):
        bench.log.allocate(1)


def test_cutting_keeps_a_copy_of_what_was_torn(bench: Bench) -> None:
    bench.segments(1)
    written = bench.files.read(bench.log.path(1))[64:].rstrip(b"\0")
    bench.log.cut(1, 64, len(written))
    torn = f"{HOME}/torn/{segment_name(1)}-64.torn"
    assert bench.files.read(torn) == written
    assert bench.files.size(bench.log.path(1)) == 64
    bench.log.cut(1, 64, 0)
    assert [p for p in bench.files.paths() if "torn" in p] == [torn]


def test_trimmed_segments_are_gone_for_good(bench: Bench) -> None:
    bench.segments(3)
    bench.log.trim([1, 2])
    bench.files.crash(0.0)
    assert [p for p in bench.files.paths() if p.endswith(".journal")] == [bench.log.path(3)]
    assert bench.log.counters.segments_trimmed == 2


# -- retention ---------------------------------------------------------------------------------------------------------


def kept(bench: Bench) -> list[str]:
    names = [p.partition("retention/")[2] for p in bench.files.paths() if "retention" in p]
    return [name for name in names if name.endswith(".journal")]


@pytest.mark.parametrize(("age_days", "left"), [(-1, 4), (30, 4), (2, 2), (1, 1), (0, 0)])
def test_kept_segments_grow_old(age_days: int, left: int) -> None:
    bench = Bench(retention=RetentionSettings(enabled=True, age_days=age_days))
    bench.log.open()
    bench.segments(5)
    bench.now -= DAY  # still the day of segment 5
    bench.log.trim([1, 2, 3, 4])
    assert [name[-10:-8] for name in kept(bench)] == ["01", "02", "03", "04"][4 - left :]
    days = {name.split("/")[0] for name in kept(bench)}
    assert set(bench.files.list_dir(f"{HOME}/retention")) == days, "empty days go"


@pytest.mark.parametrize(("bytes_max", "left"), [(-1, 4), (480, 4), (479, 3), (120, 1), (119, 0), (0, 0)])
def test_kept_segments_have_a_limit_in_bytes(bytes_max: int, left: int) -> None:
    bench = Bench(retention=RetentionSettings(enabled=True, bytes_max=bytes_max))
    bench.log.open()
    bench.segments(5)
    bench.log.trim([1, 2, 3, 4])
    assert len(kept(bench)) == left


def test_keeping_waits_while_the_disk_is_full() -> None:
    bench = Bench(retention=RetentionSettings(enabled=True))
    bench.log.open()
    bench.segments(4)
    bench.files.plan(1, Fault.ENOSPC, sticky=True)
    bench.log.trim([1])
    bench.log.trim([2])
    assert kept(bench) == []
    bench.files.heal()
    bench.log.trim([3])
    assert len(kept(bench)) == 3


def test_a_crash_passes_through(bench: Bench) -> None:
    bench.files.plan(1, Fault.CRASH)
    with pytest.raises(Crash):
        bench.log.begin(1, BROKER_ID, 0)
