"""Retention: what the manifests say of segments that are kept and let go, whenever the power is cut."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from store.errors import LogFailed, LogFull
from store.log import FileLog, LogSettings
from store.manifest import BYTES, MANIFEST, OFF, Manifest, append, removed_line
from store.record import closed
from store.retention import DIRECTORY, RetentionSettings, kept, kept_numbers, read_manifests
from store.segment import segment_number
from tests.store.segments import entry
from tests.store.workload import BROKER_ID, DAY, EPOCH
from tests.support.sim_files import Fault, SimFiles, power_cuts

HOME: Final = "/data/journal"
ROOT: Final = f"{HOME}/{DIRECTORY}"
ON: Final = RetentionSettings(enabled=True)
#: 2023-11-14 and the days after it, on which the segments are begun.
DAYS: Final = [f"date=2023-11-{14 + n}" for n in range(4)]

#: Bytes of a segment with two entries of one record.
SIZE: Final = 64 + 2 * 56


def open_log(files: SimFiles, retention: RetentionSettings, clock: list[int]) -> FileLog:
    log = FileLog(files, HOME, LogSettings(segment_bytes=4096, retention=retention), now=lambda: clock[0])
    log.open()
    return log


def write(log: FileLog, number: int, clock: list[int], *, times: tuple[int, ...] = (0, 10)) -> None:
    """A segment with one entry of one record at each time (ms from now), positions 10 a segment."""
    log.begin(number, BROKER_ID, number * len(times))
    for index, after in enumerate(times):
        log.append([entry(number, number * len(times) + index, closed(), timestamp=clock[0] + after)])


def journal(files: SimFiles, segments: int = 5, *, a_day: int = 2, retention: RetentionSettings = ON) -> FileLog:
    """A log with segments from 1 on, `a_day` of them each day."""
    clock = [EPOCH]
    log = open_log(files, retention, clock)
    for number in range(1, segments + 1):
        clock[0] = EPOCH + (number - 1) // a_day * DAY
        write(log, number, clock)
    return log


def reopened(
    files: SimFiles, *trims: list[int], days: int = 0, retention: RetentionSettings = ON, **given: Any
) -> FileLog:
    """The log of `journal` after these trims, opened again so many days later, with other settings."""
    log = journal(files, **given)
    for segments in trims:
        log.trim(segments)
    log.close()
    return open_log(files, retention, [EPOCH + days * DAY])


def lines(files: SimFiles, day: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files.read(f"{ROOT}/{day}/{MANIFEST}").splitlines()]


def test_the_manifest_of_a_day_says_what_is_in_its_segments(files: SimFiles) -> None:
    journal(files).trim([2, 1, 3])
    size = len(files.read(f"{ROOT}/{DAYS[0]}/0000000001.journal"))
    assert [line["segment"] for line in lines(files, DAYS[0])] == [2, 1]
    assert lines(files, DAYS[0])[1] == {
        "segment": 1,
        "broker_id": BROKER_ID.hex(),
        "first_position": 2,
        "next_position": 4,
        "created": EPOCH,
        "first_time": EPOCH,
        "last_time": EPOCH + 10,
        "bytes": size,
    }
    assert [line["segment"] for line in lines(files, DAYS[1])] == [3]


def test_a_segment_of_an_earlier_run_is_read_for_its_line() -> None:
    known, read = SimFiles(), SimFiles()
    journal(known).trim([1, 2])
    reopened(read).trim([1, 2])
    assert lines(read, DAYS[0]) == lines(known, DAYS[0])


def test_a_segment_that_this_run_wrote_is_not_read_again(files: SimFiles) -> None:
    log = journal(files)
    before = len(files.history)
    log.trim([1])
    assert [s for s in files.history[before:] if s.startswith("read ") and s.endswith(".journal")] == []


def test_a_segment_of_a_copy_is_synced_before_it_is_kept(files: SimFiles) -> None:
    settings = LogSettings(segment_bytes=4096, retention=ON)
    log = FileLog(files, HOME, settings, now=lambda: EPOCH, synced=False)
    log.open()
    for number in (1, 2):
        write(log, number, [EPOCH])
    log.trim([1])
    files.crash(0.0)
    [path] = kept(files, HOME)
    assert len(files.read(path)) == SIZE


@pytest.mark.parametrize("restart", [False, True])
def test_times_are_the_lowest_and_highest_though_the_clock_was_set_back(files: SimFiles, restart: bool) -> None:
    clock = [EPOCH]
    log = open_log(files, ON, clock)
    write(log, 1, clock, times=(50, 90, -40, 0))
    write(log, 2, clock, times=())
    write(log, 3, clock)
    if restart:
        log.close()
        log = open_log(files, ON, clock)
    log.trim([1, 2])
    assert [(line["first_time"], line["last_time"]) for line in lines(files, DAYS[0])] == [
        (EPOCH - 40, EPOCH + 90),
        (0, 0),
    ]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_limit_in_bytes_is_told(files: SimFiles) -> None:
    journal(files, retention=RetentionSettings(enabled=True, bytes_max=3 * SIZE)).trim([1, 2, 3, 4])
    assert kept_numbers(files, HOME) == [2, 3, 4]
    assert lines(files, DAYS[1])[-1] == {"segment": 1, "removed": "bytes"}, "it stays as long as anything"
    assert read_manifests(files, HOME).expected == {2, 3, 4}


def test_a_day_goes_with_its_last_segment(files: SimFiles) -> None:
    journal(files, retention=RetentionSettings(enabled=True, bytes_max=2 * SIZE)).trim([1, 2, 3, 4])
    assert files.list_dir(ROOT) == [DAYS[1]]
    files.crash(0.0)
    assert read_manifests(files, HOME).expected == {3, 4}


def test_age_is_told_before_the_segments_of_a_day_go(files: SimFiles) -> None:
    log = reopened(files, [1, 2], days=3, retention=RetentionSettings(enabled=True, age_days=0))
    before = len(files.history)
    log.trim([])
    steps = [step.split()[0] for step in files.history[before:]]
    assert steps.index("sync_dir") < steps.index("remove"), "the manifest is durable first"
    assert kept_numbers(files, HOME) == []
    assert files.list_dir(ROOT) == []


@pytest.mark.parametrize(("age_days", "stays"), [(-1, True), (5, True), (0, False)])
def test_a_day_that_misses_a_segment_stays_until_it_is_too_old(files: SimFiles, age_days: int, stays: bool) -> None:
    """Somebody else removed the segment: the manifest is what tells."""
    log = reopened(files, [1], days=2, retention=RetentionSettings(enabled=True, age_days=age_days))
    files.remove(f"{ROOT}/{DAYS[0]}/0000000001.journal")
    log.trim([])
    assert (DAYS[0] in files.list_dir(ROOT)) is stays
    assert read_manifests(files, HOME).expected == ({1} if stays else set())


def test_a_day_without_a_manifest_goes_too(files: SimFiles) -> None:
    """Kept by an earlier version."""
    log = reopened(files, [1], days=1, retention=RetentionSettings(enabled=True, bytes_max=0))
    files.remove(f"{ROOT}/{DAYS[0]}/{MANIFEST}")
    log.trim([])
    assert files.list_dir(ROOT) == []


def test_a_line_about_what_went_stays_as_long_as_anything_older(files: SimFiles) -> None:
    """A day without segments, but with a line about another's, is between days with some."""
    log = reopened(files, [1, 3, 5], segments=7, retention=RetentionSettings(enabled=True, bytes_max=SIZE))
    for path in kept(files, HOME)[1:]:
        files.remove(path)
    append(files, f"{ROOT}/{DAYS[1]}", [removed_line(3, BYTES)])
    append(files, f"{ROOT}/{DAYS[2]}", [removed_line(5, BYTES), removed_line(4, OFF)])
    log.trim([])
    assert files.list_dir(ROOT) == DAYS[:3]
    log.close()
    open_log(files, RetentionSettings(enabled=True, bytes_max=0), [EPOCH]).trim([])
    assert files.list_dir(ROOT) == []


def test_a_segment_older_than_all_kept_explains_what_went_between(files: SimFiles) -> None:
    log = journal(files, 12, a_day=20, retention=RetentionSettings())
    log.trim([3, 4, 6, 8])
    log.close()
    log = open_log(files, ON, [EPOCH])
    log.trim([9])
    assert [line for line in lines(files, DAYS[0]) if "removed" in line] == [], "nothing went between it and the newest"
    log.trim([2])
    assert [line for line in lines(files, DAYS[0]) if "removed" in line] == [
        {"segment": 3, "removed": "gone", "through": 4},
        {"segment": 6, "removed": "gone"},
        {"segment": 8, "removed": "gone"},
    ]
    log.trim([1, 7, 10])
    assert len(lines(files, DAYS[0])) == 5 + 3, "once"
    check(files)


def test_missing_segments_are_not_explained_away(files: SimFiles) -> None:
    log = journal(files)
    log.trim([3])
    files.remove(f"{ROOT}/{DAYS[1]}/0000000003.journal")
    log.trim([1])
    assert read_manifests(files, HOME).expected == {1, 3}


# -- retention off -----------------------------------------------------------------------------------------------------


def test_without_retention_nothing_is_written(files: SimFiles) -> None:
    journal(files, retention=RetentionSettings()).trim([1, 2])
    assert [path for path in files.paths() if "retention" in path] == []


def test_switched_off_the_newest_day_tells_what_was_not_kept(files: SimFiles) -> None:
    reopened(files, [1, 3], retention=RetentionSettings()).trim([2, 4])
    files.crash(0.0)
    assert lines(files, DAYS[1])[1:] == [{"segment": 2, "removed": "off"}, {"segment": 4, "removed": "off"}]
    assert kept_numbers(files, HOME) == [1, 3]


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_a_limit_makes_the_room_to_tell_what_it_took(files: SimFiles) -> None:
    log = reopened(files, [1, 2, 3], a_day=5, retention=RetentionSettings(enabled=True, bytes_max=2 * SIZE))
    files.capacity = files.used()
    log.trim([])
    assert kept_numbers(files, HOME) == [2, 3]
    assert lines(files, DAYS[0])[-1] == {"segment": 1, "removed": "bytes"}


def test_a_limit_goes_on_while_keeping_waits(files: SimFiles) -> None:
    log = reopened(files, [1, 2, 3], a_day=5, retention=RetentionSettings(enabled=True, bytes_max=2 * SIZE))
    files.capacity = files.used()
    log.trim([4])
    assert (kept_numbers(files, HOME), log.segments()) == ([2, 3], [4, 5])
    files.capacity += 1000
    log.trim([])
    assert (kept_numbers(files, HOME), log.segments()) == ([3, 4], [5])


def test_segments_that_retention_does_not_keep_make_the_room_to_record_it(files: SimFiles) -> None:
    log = reopened(files, [1], a_day=5, retention=RetentionSettings())
    files.capacity = files.used()
    log.trim([2])
    assert lines(files, DAYS[0])[-1] == {"segment": 2, "removed": "off"}
    assert log.segments() == [3, 4, 5]


@pytest.mark.parametrize("settings", [RetentionSettings(), RetentionSettings(enabled=True, age_days=0)])
def test_removing_does_not_fail_for_want_of_room_to_tell_it(files: SimFiles, settings: RetentionSettings) -> None:
    log = reopened(files, [1], a_day=5, days=2, retention=settings)
    files.plan(1, Fault.ENOSPC, sticky=True)
    log.trim([] if settings.enabled else [2])
    assert files.faults >= 2, "tried twice"
    assert kept_numbers(files, HOME) == ([] if settings.enabled else [1])
    assert log.segments() == ([2, 3, 4, 5] if settings.enabled else [3, 4, 5])


def test_on_a_full_disk_too_a_disk_that_fails_stops_the_log() -> None:
    outcomes = []
    for at in range(1, 30):
        files = SimFiles(at)
        log = reopened(files, [1], a_day=5, retention=RetentionSettings())
        files.capacity = files.used()
        files.plan(at, Fault.EIO)
        try:
            log.trim([2])
        except LogFailed:
            outcomes.append(False)
        else:
            files.heal()
            outcomes.append(True)
            assert log.segments() == [3, 4, 5]
            assert lines(files, DAYS[0])[-1] == {"segment": 2, "removed": "off"}
    full = outcomes.index(True)  # the fault met the write for which there was no room
    assert False in outcomes[full:], "it met the second one too"
    assert outcomes[-1], "beyond the last operation nothing fails"


# -- crashes and faults ------------------------------------------------------------------------------------------------


def work(files: SimFiles, settings: RetentionSettings) -> None:
    """Segments over three days, trimmed out of order, with retention off, on, off, and on again with limits."""
    clock = [EPOCH]
    log = open_log(files, RetentionSettings(), clock)
    for number in range(1, 6):
        clock[0] = EPOCH + (number - 1) // 2 * DAY
        write(log, number, clock)
    log.trim([2])
    log.close()
    log = open_log(files, ON, clock)
    write(log, 6, clock)
    log.trim([3])
    log.trim([1])
    log.close()
    log = open_log(files, RetentionSettings(), clock)
    log.trim([4])
    log.close()
    finish(files, settings, clock)


def finish(files: SimFiles, settings: RetentionSettings, clock: list[int]) -> None:
    """All but the newest segment are trimmed, those first that had been before a crash."""
    log = open_log(files, settings, clock)
    log.trim(log.segments()[:-1])
    clock[0] += DAY
    write(log, 7, clock)
    log.trim(log.segments()[:-1])
    log.close()


def check(files: SimFiles) -> Manifest:
    """What is not there has a word about it, if anything older is kept: an audit takes nothing for missing."""
    found = read_manifests(files, HOME)
    there = {*live_numbers(files), *kept_numbers(files, HOME)}
    assert found.expected <= there
    oldest = min(kept_numbers(files, HOME), default=max(there, default=0))
    gone = {*range(oldest, max(there, default=0))} - there
    assert {number for number in gone if not found.why_removed(number)} == set()
    return found


@pytest.mark.parametrize(
    "settings",
    [
        ON,
        RetentionSettings(),
        RetentionSettings(enabled=True, age_days=0),
        RetentionSettings(enabled=True, bytes_max=2 * SIZE),
        RetentionSettings(enabled=True, bytes_max=0),
    ],
)
def test_a_power_cut_at_every_operation(settings: RetentionSettings) -> None:
    whole = SimFiles()
    whole.make_dir(HOME)
    with power_cuts(whole, lambda: None) as cuts:
        work(whole, settings)
    check(whole)
    for at, (before, _) in enumerate(cuts):
        for seed in range(3):
            files = before.fork(seed * 10_000 + at)
            files.crash()
            found = check(files)
            if settings == ON:
                assert {*kept_numbers(files, HOME)} <= found.kept.keys(), "told before it moves"
            newest = max([*kept_numbers(files, HOME), *live_numbers(files)], default=0)
            finish_after(files, settings, newest)
            found = check(files)
            assert found.unreadable <= 1, "at most the line that was being written"


def live_numbers(files: SimFiles) -> list[int]:
    return [number for number in map(segment_number, files.list_dir(HOME)) if number]


def finish_after(files: SimFiles, settings: RetentionSettings, newest: int) -> None:
    """A start after the crash: what is left is trimmed, limits apply."""
    clock = [EPOCH + DAY]
    log = open_log(files, settings, clock)
    write(log, newest + 1, clock)
    log.trim(live_numbers(files)[:-1])
    log.close()
    if settings.enabled and settings.bytes_max >= 0:
        assert sum(files.size(path) for path in kept(files, HOME)) <= settings.bytes_max


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.EMFILE, Fault.ENOMEM, Fault.SHORT])
def test_a_fault_at_every_operation(fault: Fault) -> None:
    settings = RetentionSettings(enabled=True, bytes_max=2 * SIZE)
    whole = SimFiles()
    whole.make_dir(HOME)
    before = whole.operations
    work(whole, settings)
    failed = 0
    for at in [operation - before for operation in whole.hit_by(fault) if operation > before]:
        files = SimFiles(at)
        files.make_dir(HOME)
        files.plan(at, fault)
        try:
            work(files, settings)
        except (LogFailed, LogFull):
            failed += 1
        assert files.faults
        files.heal()
        check(files)
        files.crash()
        check(files)
    assert (failed > 0) is (fault is not Fault.SHORT)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fault", [Fault.EMFILE, Fault.ENOMEM])
def test_a_trim_goes_on_where_it_stopped(fault: Fault, enabled: bool) -> None:
    """Whatever was done when descriptors or memory ran out is not done twice, and is durable in the end."""
    settings = RetentionSettings(enabled=enabled)

    def trimmed(at: int) -> SimFiles:
        files, clock = SimFiles(at), [EPOCH]
        files.make_dir(HOME)
        log = open_log(files, settings, clock)
        for number in range(1, 5):
            write(log, number, clock)
        if at:
            files.plan(at, fault)
        log.trim([1, 2])
        files.heal()
        if files.faults:
            log.trim([])
        files.crash(keep=0.0)
        assert live_numbers(files) == [3, 4], f"{fault} at {at}"
        assert len(kept(files, HOME)) == (2 if enabled else 0)
        return files

    hit = sum(trimmed(at).faults for at in range(1, 40))
    assert hit >= 4, "there was something to fail"
