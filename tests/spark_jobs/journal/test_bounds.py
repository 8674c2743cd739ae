"""What is done with a snapshot: bounds, partitions, and the way through an option of a data source."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.journal.bounds import CLOCK_SLACK_MS, UNBOUNDED, Bounds
from spark_jobs.journal.segments import Gap, SegmentRef
from spark_jobs.journal.snapshot import PARTITION_BYTES, Snapshot
from spark_jobs.journal.walk import UNKNOWN
from tests.spark_jobs.journal.disks import Truth, live, path_of, pinned, truth, without_manifests, write
from tests.store.workload import DAY, EPOCH

HOUR = 3_600_000


@pytest.fixture(scope="module", params=[True, False], ids=["kept", "trimmed"])
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Snapshot, dict[int, Truth]]:
    """A journal over three days, with one live segment missing, and the truth about what is there."""
    made = write(tmp_path_factory.mktemp("bounds") / "data", seed=2, commits=30, keep=request.param)
    for _ in range(2):
        made.station.now += DAY
        made.run(30)
    made.show()
    whole = truth(made.data)
    if request.param:
        path_of(made.data, live(made.data)[1]).unlink()
    return pinned(made.data), whole


def limits(top: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, top)


@settings(max_examples=200)
@given(data=st.data())
def test_nothing_within_the_bounds_is_left_out(found: tuple[Snapshot, dict[int, Truth]], data: st.DataObject) -> None:
    snapshot, whole = found
    times = sorted({time for known in whole.values() for _, time in known.times})
    moments = st.none() | st.sampled_from([0, *times, *(time + 1 for time in times), times[-1] + DAY])
    low, high = (data.draw(limits(snapshot.next_position + 2)) for _ in range(2))
    since, until = data.draw(moments), data.draw(moments)

    def within(position: int, time: int) -> bool:
        return (
            (low is None or position >= low)
            and (high is None or position < high)
            and (since is None or time >= since)
            and (until is None or time < until)
        )

    bounded = snapshot.bounded(from_position=low, to_position=high, from_time=since, to_time=until)
    numbers = [ref.number for ref in bounded.segments]
    assert numbers == [ref.number for ref in snapshot.segments if ref.number in numbers], "order"
    for ref in snapshot.segments:
        if any(within(*record) for record in whole[ref.number].times):
            assert ref in bounded.segments
    for gap in snapshot.missing:
        known = whole[gap.first_segment]
        lost = [position for position, time in known.times if within(position, time)]
        left = [p for cut in bounded.missing for p in range(cut.first_position, cut.first_position + cut.records)]
        assert {*lost} <= {*left}


@settings(max_examples=200)
@given(data=st.data())
def test_positions_leave_out_all_else(found: tuple[Snapshot, dict[int, Truth]], data: st.DataObject) -> None:
    snapshot, whole = found
    low, high = (data.draw(limits(snapshot.next_position + 2)) for _ in range(2))
    bounded = snapshot.bounded(from_position=low, to_position=high)
    wanted = range(low or 0, snapshot.next_position if high is None else min(high, snapshot.next_position))
    for ref in bounded.segments:
        assert any(position in wanted for position, _ in whole[ref.number].times)
    for before, after in ((snapshot.missing, bounded.missing), (snapshot.trimmed, bounded.trimmed)):
        positions = [p for gap in before for p in range(gap.first_position, gap.first_position + gap.records)]
        cut = [p for gap in after for p in range(gap.first_position, gap.first_position + gap.records)]
        assert cut == [position for position in positions if position in wanted]
        assert all(gap.records > 0 for gap in after)


def test_without_bounds_it_is_the_same(found: tuple[Snapshot, dict[int, Truth]]) -> None:
    snapshot, _ = found
    assert snapshot.bounded() == snapshot
    assert replace(snapshot.bounded(from_position=0, from_time=0), bounds=UNBOUNDED) == snapshot
    empty = replace(snapshot, segments=(*snapshot.segments, ref(999, snapshot.next_position, snapshot.next_position)))
    assert empty.bounded() == empty


def test_days_are_left_out_by_what_the_manifests_say(tmp_path: Path) -> None:
    made = write(tmp_path / "data", commits=30)
    for _ in range(2):
        made.station.now += DAY
        made.run(40)
    made.show()
    snapshot = pinned(made.data)
    second = [ref for ref in snapshot.segments if ref.kept and EPOCH + DAY <= ref.first_time < EPOCH + 2 * DAY]
    bounded = snapshot.bounded(from_time=second[0].first_time, to_time=second[-1].last_time + 1)
    assert {ref.number for ref in bounded.segments if ref.kept} == {ref.number for ref in second}
    without_manifests(made.data)
    estimated = pinned(made.data).bounded(from_time=second[0].first_time, to_time=second[-1].last_time + 1)
    assert {ref.number for ref in bounded.segments} <= {ref.number for ref in estimated.segments}
    assert len(estimated.segments) < len(snapshot.segments), "their beginnings tell something too"


def ref(number: int, first: int, end: int | None, created: int = 0, limit: int = 100) -> SegmentRef:
    return SegmentRef(f"/j/{number:010d}.journal", number, limit, limit, first, end, created)


def test_times_that_only_the_neighbours_tell() -> None:
    """An hour is allowed for a clock that was set back."""
    segments = tuple(ref(n, n * 10, n * 10 + 10, created=n * DAY) for n in range(1, 6))
    snapshot = Snapshot("ab", (), segments)
    assert CLOCK_SLACK_MS == HOUR

    def numbers(**bounds: int) -> list[int]:
        return [each.number for each in snapshot.bounded(**bounds).segments]

    assert numbers(from_time=4 * DAY + HOUR) == [3, 4, 5]
    assert numbers(from_time=4 * DAY + HOUR + 1) == [4, 5]
    assert numbers(to_time=2 * DAY - HOUR) == [1, 2]
    assert numbers(to_time=2 * DAY - HOUR + 1) == [1, 2, 3]
    assert numbers(from_time=99 * DAY) == [5], "nobody knows when the last one ends"


@pytest.mark.parametrize("jump", [400 * DAY, -400 * DAY])
def test_a_clock_that_was_wrong_for_a_while_hides_nothing(tmp_path: Path, jump: int) -> None:
    """It was put right between the beginnings of two segments, which tell it."""
    made = write(tmp_path / "data", commits=30)
    for change in (jump, DAY, DAY - jump):
        made.station.now += change
        made.run(30)
    made.show()
    without_manifests(made.data)
    whole = truth(made.data)
    lost = live(made.data)[1]
    path_of(made.data, lost).unlink()
    snapshot = pinned(made.data)
    assert any(behind.created < ref.created for ref, behind in pairwise(snapshot.segments))
    for known in whole.values():
        for position, time in known.times:
            bounded = snapshot.bounded(from_time=time, to_time=time + 1)
            gaps = [gap for gap in bounded.missing if 0 <= position - gap.first_position < gap.records]
            assert gaps or any(ref.number == known.number for ref in bounded.segments), known.number


def test_a_segment_that_cannot_be_read_stays_where_it_may_matter() -> None:
    segments = (ref(1, 0, 10, DAY), ref(2, 10, None), ref(3, 30, 40, 3 * DAY))
    snapshot = Snapshot("ab", (), segments, next_position=40)
    assert snapshot.bounded(from_position=20, to_position=25).segments == segments[1:2]
    assert snapshot.bounded(from_position=30).segments == segments[2:]
    assert snapshot.bounded(to_position=10).segments == segments[:1]
    assert snapshot.bounded(from_time=3 * DAY, to_time=3 * DAY + 1).segments == segments


def test_holes_within_bounds() -> None:
    hole = Gap("/j", 2, 2, 10, 20, "gone", since=DAY, until=3 * DAY)
    unknown = replace(hole, records=UNKNOWN)
    snapshot = Snapshot("ab", (), (), missing=(hole, unknown), trimmed=(hole,))
    for bounded in (snapshot.bounded(from_position=15, to_position=20),):
        assert bounded.missing == (replace(hole, first_position=15, records=5), unknown)
        assert bounded.trimmed == (replace(hole, first_position=15, records=5),)
    assert snapshot.bounded(from_position=30).missing == (unknown,)
    assert snapshot.bounded(to_position=10).missing == ()
    assert snapshot.bounded(from_time=3 * DAY + HOUR).missing == (hole, unknown)
    assert snapshot.bounded(from_time=3 * DAY + HOUR + 1).missing == ()
    assert snapshot.bounded(to_time=DAY - HOUR).missing == ()
    assert snapshot.bounded(to_time=DAY - HOUR + 1).missing == (hole, unknown)
    endless = replace(hole, until=0)
    assert replace(snapshot, missing=(endless,)).bounded(from_time=99 * DAY).missing == (endless,)


# -- partitions --------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(0, 50), max_size=30), target=st.integers(1, 60))
def test_partitions(sizes: list[int], target: int) -> None:
    snapshot = Snapshot("ab", (), tuple(ref(n, n, n + 1, limit=size) for n, size in enumerate(sizes, 1)))
    packed = snapshot.partitions(target)
    assert [each for part in packed for each in part] == [*snapshot.segments]
    assert all(part and (len(part) == 1 or sum(each.limit for each in part) <= target) for part in packed)
    for part, following in pairwise(packed):
        assert sum(each.limit for each in part) + following[0].limit > target, "as few as the order allows"


def test_a_partition_is_64_mib_unless_said_otherwise() -> None:
    assert PARTITION_BYTES == 64 << 20
    half = tuple(ref(n, n, n + 1, limit=32 << 20) for n in range(1, 6))
    assert [len(part) for part in Snapshot("ab", (), half).partitions()] == [2, 2, 1]
    whole = tuple(ref(n, n, n + 1, limit=(64 << 20) + 1) for n in range(1, 4))
    assert [len(part) for part in Snapshot("ab", (), whole).partitions()] == [1, 1, 1]


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_a_snapshot_goes_through_json(found: tuple[Snapshot, dict[int, Truth]]) -> None:
    snapshot, _ = found
    assert snapshot.missing or snapshot.trimmed
    snapshot = replace(snapshot, notes=("a note",), leftovers=(3,), torn_bytes=7)
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert Snapshot.from_json(Snapshot("", (), ()).to_json()) == Snapshot("", (), ())
    remote = replace(snapshot, segments=(replace(snapshot.segments[0], uri="s3://b/j/0000000001.journal?region=r"),))
    assert Snapshot.from_json(remote.to_json()) == remote


def test_ten_thousand_segments_are_less_than_a_mebibyte() -> None:
    """It is an option of a data source, and goes through the JVM."""
    segments = tuple(
        SegmentRef(
            f"/var/lib/bartleby/journal/{n:010d}.journal", n, 1 << 26, 1 << 26, n * 10**6, n * 10**6 + 10**6, EPOCH
        )
        for n in range(10_000)
    )
    assert len(Snapshot("ab", (), segments).to_json()) < 1 << 20


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"version": 1}', '{"version": 2, "parents": []}'])
def test_no_snapshot(text: str) -> None:
    with pytest.raises(ValueError, match=r"snapshot|Expecting|property name"):
        Snapshot.from_json(text)


def test_a_member_too_many_is_no_snapshot(found: tuple[Snapshot, dict[int, Truth]]) -> None:
    plain = json.loads(found[0].to_json())
    changes: list[dict[str, object]] = [{"more": 1}, {"segments": [[0]]}, {"parents": []}, {"missing": [[1]]}]
    for change in changes:
        with pytest.raises(ValueError, match="not a snapshot"):
            Snapshot.from_json(json.dumps(plain | change))


def test_bounds_within_bounds(found: tuple[Snapshot, dict[int, Truth]]) -> None:
    """One after the other is both at once, also behind the way through an option."""
    snapshot, _ = found
    one, other = Bounds(10, 500, from_time=5), Bounds(3, 40, to_time=1 << 50)
    both = snapshot.within(one).within(other)
    assert both.bounds == Bounds(10, 40, 5, 1 << 50)
    assert both.segments == snapshot.within(both.bounds).segments
    assert Snapshot.from_json(both.to_json()) == both
