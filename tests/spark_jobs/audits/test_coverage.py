"""How much of a journal an audit covers."""

from __future__ import annotations

from spark_jobs.audits.coverage import coverage
from spark_jobs.journal.segments import SegmentRef
from spark_jobs.journal.snapshot import Snapshot
from tests.store.workload import DAY


def ref(number: int, created: int, last_time: int = 0) -> SegmentRef:
    return SegmentRef(f"/j/{number:010d}.journal", number, 100, 100, number * 10, None, created, last_time=last_time)


def test_it_ends_when_the_last_entry_was_sealed_though_the_clock_was_ahead_before() -> None:
    """Otherwise everything that expires would be past its time, and what has just left would be lost."""
    ahead = (ref(1, DAY), ref(2, 400 * DAY, 401 * DAY), ref(3, 2 * DAY, 3 * DAY))
    assert coverage(Snapshot("ab", (), ahead)).last_time == 3 * DAY
    assert coverage(Snapshot("ab", (), ahead).bounded(to_time=2 * DAY)).last_time == 2 * DAY


def test_a_last_segment_of_unknown_time_is_not_the_end_of_time() -> None:
    assert coverage(Snapshot("ab", (), (ref(1, DAY, 2 * DAY), ref(2, 0)))).last_time == 2 * DAY
    assert coverage(Snapshot("ab", (), ())).last_time == 0
