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
from spark_jobs.journal.segments import SegmentRef, Vanished
from spark_jobs.journal.snapshot import Snapshot, take
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


def test_records_about_some_messages(data: Path) -> None:
    """Of a record about several messages only the rows of these come."""
    columns = "position,record_type,message_id"
    everything = _rows(data, columns=columns)
    ids = sorted({row["message_id"] for row in everything if row["message_id"]})[::7]
    found = _rows(data, columns=columns, messageIds=",".join(map(str, ids)))
    assert found == [row for row in everything if row["message_id"] in ids]
    assert 0 < len(found) < len(everything)
    assert _rows(data, messageIds="") == []


def test_records_that_have_something(data: Path) -> None:
    everything = _rows(data, columns="position,new_message_id,reason")
    expected = [row for row in everything if row["reason"] is not None and row["new_message_id"] is not None]
    assert _rows(data, columns="position,new_message_id,reason", notNull="reason,new_message_id") == expected != []


@pytest.mark.parametrize("target", ["1", "20k", "1g"])
def test_messages_that_came_and_went_are_counted(data: Path, target: str) -> None:
    """Without finished messages, counts and rows together are as many in and out of each queue, and as many stored."""
    options = {
        "columns": "record_type,queue_ids,queue_id,reason,count,message_id,new_message_id",
        "targetBytes": target,
    }
    everything, few = _rows(data, **options), _rows(data, finished="false", **options)
    counted = [row for row in few if row["record_type"] == "finished"]
    assert _flows(few) == _flows(everything)
    messages = sum(row["record_type"] == "message" for row in few)
    totals = [row for row in counted if row["queue_id"] is None]
    assert messages + sum(row["count"] for row in totals) == sum(row["record_type"] == "message" for row in everything)
    others = ("message", "removed", "finished")
    assert [row for row in few if row["record_type"] not in others] == [
        row for row in everything if row["record_type"] not in others
    ]
    assert (len(few) < len(everything)) or target == "1"


def _flows(rows: list[dict[str, Any]]) -> tuple[Counter[int], Counter[tuple[int, str]]]:
    """How many entered each queue, and left it by which reason."""
    entered: Counter[int] = Counter()
    left: Counter[tuple[int, str]] = Counter()
    for row in rows:
        if row["record_type"] == "message":
            entered.update(row["queue_ids"])
        elif row["record_type"] == "removed":
            left[row["queue_id"], row["reason"]] += 1
        elif row["record_type"] == "finished" and row["queue_id"] is not None:
            entered[row["queue_id"]] += row["count"]
            left[row["queue_id"], row["reason"]] += row["count"]
    return entered, left


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
    assert str(refused.value).endswith("(mode=PERMISSIVE counts the lost records and continues)")
    [damage] = [row for row in _rows(data, mode="PERMISSIVE") if row["record_type"] == "damage"]
    assert (damage["position"], damage["count"], damage["offset"]) == (first, lost, None)
    assert damage["text"]
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
    with pytest.raises(CorruptSegment, match=f"^{path}: "):
        _rows(data)
    [damage] = [
        row for row in _rows(data, mode="PERMISSIVE", types="removed", messageIds="1") if row["record_type"] == "damage"
    ]
    assert damage["segment"] == int(path.stem)
    assert damage["count"] > 0
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


def test_a_segment_that_vanishes_is_counted(data: Path) -> None:
    _, lost = _lost(data, _middle(data))
    [row] = [row for row in _vanishing(data, mode="PERMISSIVE") if row["record_type"] == "damage"]
    assert (row["count"], row["text"]) == (lost, "the segment vanished while the journal was being read")


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


def test_an_error_that_may_be_better_the_next_time_is_no_damage(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
