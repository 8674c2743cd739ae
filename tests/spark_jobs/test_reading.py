"""Parts of a snapshot, read without Spark: all that is there, once, and each thing that is not."""

from __future__ import annotations

import errno
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.journal import scan
from spark_jobs.journal.scan import CorruptSegment, MissingSegments
from spark_jobs.journal.segments import SegmentRef
from spark_jobs.journal.snapshot import Snapshot, Vanished, take
from spark_jobs.reading import plan, read
from spark_jobs.source_options import parse
from tests.spark_jobs.journals import Growing, iso, raw, row_positions, rows, segments


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a few dozen segments, most of them kept."""
    growing = Growing(tmp_path / "data", seed=11)
    growing.run(80)
    return growing.show()


def _rows(data: Path, **options: str) -> list[dict[str, Any]]:
    """What the data source gives, the parts one after the other; each goes through pickle, as on its way to a task."""
    parsed = parse({"path": str(data), **options})
    parts = pickle.loads(pickle.dumps(plan(parsed.pinned(), parsed)))
    return [row for part in parts for batch in read(part, parsed) for row in batch.to_pylist()]


@pytest.mark.parametrize("target", ["1", "10k", "1g"])
def test_every_record_once_however_it_is_packed(data: Path, target: str) -> None:
    found = _rows(data, columns="position,record_type", targetBytes=target)
    assert [(row["position"], row["record_type"]) for row in found] == rows(data)


def test_the_packing(data: Path) -> None:
    parsed = parse({"path": str(data), "targetBytes": "20k"})
    parts = plan(parsed.pinned(), parsed)
    assert len(parts) > 3
    assert all(sum(ref.limit for ref in part.segments) <= 20 << 10 for part in parts)
    assert [ref.number for part in parts for ref in part.segments] == [int(p.stem) for p in segments(data)]


@settings(max_examples=20)
@given(st.data())
def test_bounds_of_position(tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject) -> None:
    data = Growing(tmp_path_factory.mktemp("data"), draw.draw(st.integers(0, 5)))
    data.run(30)
    positions = [position for _, position, *_ in raw(data.show())]
    low = draw.draw(st.integers(0, positions[-1] + 2))
    high = draw.draw(st.integers(low, positions[-1] + 2))
    rows = _rows(data.data, columns="position", fromPosition=str(low), toPosition=str(high))
    assert {row["position"] for row in rows} == {p for p in positions if low <= p < high}


def test_bounds_of_time(data: Path) -> None:
    times = sorted({time for _, _, time, *_ in raw(data)})
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    rows = _rows(data, columns="position,time", fromTime=iso(low), toTime=iso(high))
    expected = {position for _, position, time, *_ in raw(data) if low <= time < high}
    assert {row["position"] for row in rows} == expected
    assert 0 < len(expected) < len(list(raw(data)))


def test_movements_are_those_of_the_records(data: Path) -> None:
    """As many in and out of each queue as the records say, whether they were settled within a part or not."""
    entered: Counter[int] = Counter()
    left: Counter[tuple[int, str]] = Counter()
    for row in _rows(data, columns="record_type,queue_ids,queue_id,reason", types="message,removed"):
        if row["record_type"] == "message":
            entered.update(row["queue_ids"])
        else:
            left[row["queue_id"], row["reason"]] += 1
    for target in ("1", "20k", "1g"):
        rows = _rows(data, view="movements", targetBytes=target)
        came: Counter[int] = Counter()
        went: Counter[tuple[int, str]] = Counter()
        for row in rows:
            came[row["queue_id"]] += row["entered"] or 0
            if row["left"]:
                went[row["queue_id"], row["reason"]] += row["left"]
        assert +came == entered
        assert went == left


def test_segments_are_one_row_each(data: Path) -> None:
    rows = _rows(data, view="segments", columns="segment,path,status,records")
    assert [row["path"] for row in rows] == [str(path) for path in segments(data)]
    assert {row["status"] for row in rows} == {"ok"}
    assert sum(row["records"] for row in rows) == len(list(raw(data)))


# -- what is not there -------------------------------------------------------------------------------------------------


def _middle(data: Path) -> Path:
    """A segment in the middle of those that lie without a hole between them."""
    found = segments(data)
    return found[len(found) // 2]


def _lost(data: Path, path: Path) -> tuple[int, int]:
    positions = [position for segment, position, *_ in raw(data) if segment == int(path.stem)]
    return positions[0], len(positions)


def test_a_missing_segment_is_counted_or_refused(data: Path) -> None:
    path = _middle(data)
    first, lost = _lost(data, path)
    path.unlink()
    with pytest.raises(MissingSegments) as refused:
        _rows(data)
    assert str(refused.value).endswith("(mode=PERMISSIVE counts what is lost and goes on)")
    with pytest.raises(MissingSegments):
        _rows(data, view="movements")
    [damage] = [row for row in _rows(data, mode="PERMISSIVE") if row["record_type"] == "damage"]
    assert (damage["position"], damage["count"], damage["offset"]) == (first, lost, None)
    assert damage["text"]
    [damage] = [row for row in _rows(data, mode="PERMISSIVE", view="movements") if row["kind"] == "damage"]
    assert (damage["entered_position"], damage["count"]) == (first, lost)
    [missing] = [row for row in _rows(data, view="segments") if row["status"] != "ok"]
    assert (missing["status"], missing["lost_records"], missing["segment"]) == ("missing", lost, int(path.stem))


def test_without_gaps_missing_segments_are_the_callers_business(data: Path) -> None:
    _middle(data).unlink()
    assert "damage" not in {row["record_type"] for row in _rows(data, gaps="false")}
    assert {row["status"] for row in _rows(data, view="segments", gaps="false")} == {"ok"}


def test_damage_within_a_segment(data: Path) -> None:
    path = _middle(data)
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    for view in ("records", "movements"):
        with pytest.raises(CorruptSegment, match=f"^{path}: "):
            _rows(data, view=view)
    [damage] = [row for row in _rows(data, mode="PERMISSIVE", types="removed") if row["record_type"] == "damage"]
    assert damage["segment"] == int(path.stem)
    assert damage["count"] > 0
    [damage] = [row for row in _rows(data, mode="PERMISSIVE", view="movements") if row["kind"] == "damage"]
    assert damage["segment"] == int(path.stem)
    assert "corrupt" in {row["status"] for row in _rows(data, view="segments")}


def _vanishing(data: Path, **options: str) -> list[dict[str, Any]]:
    """As _rows, but a segment goes between the plan and the reading."""
    parsed = parse({"path": str(data), **options})
    parts = plan(parsed.pinned(), parsed)
    _middle(data).unlink()
    return [row for part in parts for batch in read(part, parsed) for row in batch.to_pylist()]


def test_a_segment_that_vanishes_is_refused(data: Path) -> None:
    with pytest.raises(Vanished):
        _vanishing(data)


@pytest.mark.parametrize(
    ("view", "kind", "what"), [("records", "record_type", "damage"), ("movements", "kind", "damage")]
)
def test_a_segment_that_vanishes_is_counted(data: Path, view: str, kind: str, what: str) -> None:
    _, lost = _lost(data, _middle(data))
    [row] = [row for row in _vanishing(data, view=view, mode="PERMISSIVE") if row[kind] == what]
    assert (row["count"], row["text"]) == (lost, "the segment vanished while the journal was read")


def test_a_segment_that_vanishes_is_a_row_of_the_segments(data: Path) -> None:
    _, lost = _lost(data, _middle(data))
    [row] = [row for row in _vanishing(data, view="segments") if row["status"] == "missing"]
    assert row["lost_records"] == lost


def test_a_disk_that_does_not_give_it_back(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = int(_middle(data).stem)

    def read_segment(ref: SegmentRef) -> bytes:
        if ref.number == bad:
            raise OSError(errno.EIO, "Input/output error")
        return Path(ref.uri).read_bytes()

    monkeypatch.setattr(scan, "read_segment", read_segment)
    with pytest.raises(OSError, match="Input/output error"):
        _rows(data)
    [row] = [row for row in _rows(data, mode="PERMISSIVE") if row["record_type"] == "damage"]
    assert "Input/output error" in row["text"]
    [row] = [row for row in _rows(data, view="segments") if row["status"] == "unreadable"]
    assert row["segment"] == bad


def test_what_may_be_better_the_next_time_is_no_damage(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_segment(_: SegmentRef) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(scan, "read_segment", read_segment)
    with pytest.raises(PermissionError):
        _rows(data, mode="PERMISSIVE")


def test_a_pinned_snapshot_does_not_grow(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=3)
    growing.run(20)
    pinned = take([str(growing.show())])
    before = row_positions(growing.data)
    growing.run(60)
    parsed = parse({"snapshot": pinned.to_json(), "columns": "position"})
    growing.show()
    assert len(row_positions(growing.data)) > len(before)
    assert Snapshot.from_json(parsed.snapshot) == pinned
    found = [
        row["position"] for part in plan(parsed.pinned(), parsed) for b in read(part, parsed) for row in b.to_pylist()
    ]
    assert found == before
