"""What is asked for comes, in batches of a bounded size; damage is a row or an error; a segment is a row."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.journal import decode
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.decode import BATCH_ROWS, Condition, Selection
from spark_jobs.journal.inspect import inspect
from spark_jobs.journal.scan import CorruptSegment
from spark_jobs.journal.schema import DEFAULT_RECORDS, RECORDS, SEGMENTS, arrow_schema
from store import record
from store.record import RecordType
from store.segment import decode_header, scan
from tests.spark_jobs.journal import making, oracle
from tests.spark_jobs.journal.decoding import decoded, scanned
from tests.spark_jobs.journal.making import CREATED, every_record, message, segment

COLUMNS = ("position", "record_type", "message_id")


def batches(data: bytes, selection: Selection | None = None, **more: Any) -> list[pa.RecordBatch]:
    return list(decoded(data, selection or Selection(COLUMNS), **more))


def positions(data: bytes, **bounds: Any) -> list[int]:
    """Of the rows within bounds."""
    selection = Selection(("position",), bounds=Bounds(**bounds))
    return [row["position"] for batch in batches(data, selection) for row in batch.to_pylist()]


# -- selections --------------------------------------------------------------------------------------------------------


def test_the_default_columns() -> None:
    (batch,) = batches(segment([every_record()]), Selection())
    assert batch.schema.names == list(DEFAULT_RECORDS)


@given(st.frozensets(st.sampled_from(sorted(making.ALL_TYPES))))
def test_types(types: frozenset[int]) -> None:
    data = segment([every_record(), every_record()])
    wanted = [raw[1] for raw in oracle.raw(data) if raw[3] in types]
    found = [row["position"] for batch in batches(data, Selection(COLUMNS, types)) for row in batch.to_pylist()]
    assert sorted(set(found)) == wanted


@given(st.one_of(st.none(), st.integers(0, 50)), st.one_of(st.none(), st.integers(0, 50)))
def test_positions(start: int | None, end: int | None) -> None:
    data = segment([every_record(), every_record()])
    wanted = [raw[1] for raw in oracle.raw(data) if (start or 0) <= raw[1] < (1000 if end is None else end)]
    assert sorted(set(positions(data, from_position=start, to_position=end))) == wanted


def test_times() -> None:
    data = segment([[message(1)], [message(2)], [message(3)], [message(4)]], times=[10, 20, 15, 30])
    assert positions(data, from_time=15) == [2, 3, 4]
    assert positions(data, to_time=20) == [1, 3]
    assert positions(data, from_time=15, to_time=16) == [3]


def test_nothing_selected() -> None:
    data = segment([every_record()])
    assert batches(data, Selection(COLUMNS, types=frozenset())) == []
    assert batches(segment([])) == []


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("message_id", (12,)), lambda row: row["message_id"] == 12),
        (Condition("message_id", (12, 5)), lambda row: row["message_id"] in (12, 5)),
        (Condition("address"), lambda row: row["address"] is not None),
    ],
)
def test_conditions(condition: Condition, holds: Callable[[dict[str, Any]], bool]) -> None:
    """The rows for which it holds come, and no others."""
    columns = ("position", "message_id", "address", "priority", "sent")
    data = segment([every_record()])
    rows = [row for batch in batches(data, Selection(columns)) for row in batch.to_pylist()]
    wanted = [row for row in rows if holds(row)]
    found = [row for batch in batches(data, Selection(columns, conditions=(condition,))) for row in batch.to_pylist()]
    assert 0 < len(wanted) < len(rows)
    assert found == wanted


def test_conditions_must_all_hold() -> None:
    data = segment([[message(id, user="u" if id % 3 else "") for id in range(1, 20)]])
    both = (Condition("message_id", (3, 4, 5, 99)), Condition("user"))
    found = batches(data, Selection(("message_id",), conditions=both))
    assert [row["message_id"] for batch in found for row in batch.to_pylist()] == [4, 5]


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_are_bounded_in_rows() -> None:
    many = list(range(1, 2 * BATCH_ROWS + 6))
    data = segment([[message(1)] * 10, [record.removed(1, 1, many)], [record.closed()]])
    found = batches(data)
    assert [len(batch) for batch in found] == [10, BATCH_ROWS, BATCH_ROWS, 5, 1]
    assert [row["message_id"] for batch in found[1:4] for row in batch.to_pylist()] == many


def test_a_full_batch() -> None:
    for n in (BATCH_ROWS, BATCH_ROWS + 1):
        data = segment([[record.closed()] * n])
        assert [len(batch) for batch in batches(data)] == [BATCH_ROWS, 1][: n - BATCH_ROWS + 1]


def test_batches_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BATCH_BYTES", 5000)
    data = segment([[message(i, body=bytes(1000)) for i in range(12)], [message(13, body=bytes(20_000))]])
    found = batches(data, Selection(("body", "position")))
    assert [row["position"] for batch in found for row in batch.to_pylist()] == list(range(1, 14))
    assert [len(batch) for batch in found] == [4, 4, 4, 1]


@given(making.ENTRIES, st.integers(1, 4), st.integers(1, 300))
def test_batches_put_together_are_the_whole(entries: list[list[bytes]], rows: int, nbytes: int) -> None:
    data = segment(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "BATCH_ROWS", rows)
        patch.setattr(decode, "BATCH_BYTES", nbytes)
        found = batches(data, Selection(tuple(RECORDS)))
    assert all(0 < len(batch) <= rows for batch in found)
    schema = arrow_schema(RECORDS)
    assert all(batch.schema.equals(schema) for batch in found)
    assert pa.Table.from_batches(found, schema).to_pylist() == [
        {name: row.get(name) for name in RECORDS} for row in oracle.rows(data)
    ]


def test_batches_as_spark_moves_them() -> None:
    """Through the stream format, slices and all."""
    data = segment([[record.removed(1, 1, list(range(1, BATCH_ROWS + 100))), *every_record()]])
    found = batches(data, Selection(tuple(RECORDS)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(RECORDS)) as stream:
        for batch in found:
            stream.write_batch(batch)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert read.equals(pa.Table.from_batches(found))


def test_duckdb_reads_batches() -> None:
    records = pa.Table.from_batches(batches(segment([every_record()]), Selection()))
    with duckdb.connect() as connection:
        connection.register("records", records)
        found = connection.sql(
            "select reason, count(*) from records where record_type = 'removed' group by 1 order by 1"
        )
        assert found.fetchall() == [("consumed", 2), ("killed", 1)]


# -- damage ------------------------------------------------------------------------------------------------------------

DAMAGED = segment([[message(1), message(2)], [message(3)], [message(4)]], first=11)
HIT = scan(DAMAGED, decode_header(DAMAGED)).entries[1].offset
DAMAGED = DAMAGED[:HIT] + b"?" + DAMAGED[HIT + 1 :]


def test_strict_reading_says_what_and_where() -> None:
    stream = decoded(DAMAGED, Selection(COLUMNS), path="dir/1.journal")
    with pytest.raises(CorruptSegment) as raised:
        next(stream)
    assert str(raised.value) == (
        f"dir/1.journal: no valid entry, but bytes that are not zero at byte {HIT} of {len(DAMAGED)}, "
        "2 records before it"
    )
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_damage_as_rows() -> None:
    found = batches(DAMAGED, Selection(tuple(RECORDS)), strict=False, next_first=20)
    rows = [{name: value for name, value in row.items() if value is not None} for row in found[0].to_pylist()]
    damage = {"broker_id": making.BROKER.hex(), "segment": 1, "record_type": "damage"}
    assert rows == [
        {**damage, "offset": HIT, "position": 13, "count": 1, "text": "no valid entry, but bytes that are not zero"},
        {
            **damage,
            "offset": len(DAMAGED),
            "position": 15,
            "count": 5,
            "text": "the entries end at position 15, but the next segment begins at 20",
        },
    ]
    assert [row["position"] for batch in found[1:] for row in batch.to_pylist()] == [11, 12, 14]
    assert found[0].schema.equals(arrow_schema(RECORDS))


def test_damage_of_unknown_size() -> None:
    (batch,) = batches(b"", strict=False)
    assert batch.to_pylist() == [{"position": None, "record_type": "damage", "message_id": None}]
    (batch,) = batches(b"", Selection(("count", "text", "broker_id")), strict=False)
    what = "segment of 0 bytes is shorter than its header"
    assert batch.to_pylist() == [{"count": None, "text": what, "broker_id": None}]


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (Selection(COLUMNS), True),
        (Selection(COLUMNS, frozenset({RecordType.EXPIRED})), True),
        (Selection(COLUMNS, conditions=(Condition("message_id", (4,)),)), True),
        (Selection(COLUMNS, bounds=Bounds(from_time=CREATED + 99)), True),
        (Selection(COLUMNS, bounds=Bounds(from_position=13)), True),
        (Selection(COLUMNS, bounds=Bounds(from_position=14)), False),
        (Selection(COLUMNS, bounds=Bounds(to_position=13)), False),
        (Selection(COLUMNS, bounds=Bounds(to_position=14)), True),
    ],
)
def test_damage_is_hidden_only_by_positions(selection: Selection, told: bool) -> None:
    rows = [row for batch in batches(DAMAGED, selection, strict=False) for row in batch.to_pylist()]
    assert ("damage" in [row["record_type"] for row in rows]) is told
    if told:
        with pytest.raises(CorruptSegment):
            batches(DAMAGED, selection)
    else:
        assert batches(DAMAGED, selection) == batches(DAMAGED, selection, strict=False)


def test_damage_of_unknown_place_is_always_told() -> None:
    for selection in (Selection(COLUMNS, bounds=Bounds(1000)), Selection(COLUMNS, bounds=Bounds(to_position=0))):
        with pytest.raises(CorruptSegment):
            batches(b"", selection)
    to_the_end = DAMAGED[: HIT + 4]
    with pytest.raises(CorruptSegment):
        batches(to_the_end, Selection(COLUMNS, bounds=Bounds(1000)))
    assert batches(to_the_end, Selection(COLUMNS, bounds=Bounds(1000)), next_first=15) == []


def test_a_torn_tail_is_no_damage() -> None:
    (batch,) = batches(DAMAGED[: HIT + 60], newest=True)
    assert batch["position"].to_pylist() == [11, 12]


NEWER = record.closed()[:4] + bytes([99]) + record.closed()[5:]
SCATTERED = segment([[message(1), NEWER], [message(2), message(3), NEWER], [NEWER, message(4)]])


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [(None, None, (2, 3)), (2, 7, (2, 3)), (3, None, (5, 2)), (3, 6, (5, 1)), (None, 5, (2, 1)), (6, 7, (6, 1))],
)
def test_records_that_cannot_be_read_are_told_where_they_are(
    start: int | None, end: int | None, told: tuple[int, int]
) -> None:
    """They are one hole, however far apart, and each counts only within the bounds."""
    selection = Selection(("position", "offset", "count", "record_type"), bounds=Bounds(start, end))
    (damage,) = (
        row
        for batch in batches(SCATTERED, selection, strict=False)
        for row in batch.to_pylist()
        if row["record_type"] == "damage"
    )
    assert (damage["position"], damage["count"]) == told
    assert SCATTERED[damage["offset"] :].startswith(NEWER)
    with pytest.raises(CorruptSegment, match=f"at byte {damage['offset']} of"):
        batches(SCATTERED, selection)


@pytest.mark.parametrize(("start", "end"), [(3, 5), (7, None), (None, 2)])
def test_records_that_cannot_be_read_elsewhere_are_no_obstacle(start: int | None, end: int | None) -> None:
    found = positions(SCATTERED, from_position=start, to_position=end)
    assert found == [position for position in (1, 3, 4, 7) if (start or 0) <= position < (end or 99)]


# -- a segment as a row ------------------------------------------------------------------------------------------------

GOOD = segment([[message(1), message(2)], [message(3)]], first=11, times=[CREATED + 7, CREATED + 5])
LAST = scan(GOOD, decode_header(GOOD)).entries[1].offset


def inspected(data: bytes, **more: Any) -> dict[str, Any]:
    batch = inspect(scanned(data, **more))
    assert batch.schema.equals(arrow_schema(SEGMENTS))
    (row,) = batch.to_pylist()
    return dict(row)


def test_a_good_segment() -> None:
    moment = datetime.fromtimestamp(CREATED / 1000, UTC)
    assert inspected(GOOD + bytes(100)) == {
        "path": "p",
        "segment": 1,
        "broker_id": making.BROKER.hex(),
        "created": moment,
        "size": len(GOOD) + 100,
        "used": len(GOOD),
        "entries": 2,
        "records": 3,
        "first_position": 11,
        "last_position": 13,
        "first_time": moment.replace(microsecond=7000),
        "last_time": moment.replace(microsecond=5000),
        "status": "ok",
        "error_offset": None,
        "unread_bytes": 0,
        "lost_records": 0,
        "error": None,
    }


@pytest.mark.parametrize(
    ("data", "more", "found"),
    [
        (b"", {}, ("empty", 0, None, 0, 0)),
        (b"", {"first": 11, "next_first": 14}, ("empty", 0, 3, 0, 0)),
        (b"x" * 100, {}, ("unreadable", 100, None, 0, 0)),
        (GOOD[:80], {"newest": True}, ("torn-tail", 13, 0, 0, 64)),
        (GOOD[: LAST + 49], {"newest": True}, ("torn-tail", 49, 0, 2, LAST)),
        (GOOD[: LAST + 49], {"next_first": 14}, ("corrupt", 49, 1, 2, LAST)),
        (GOOD[: LAST + 49], {}, ("corrupt", 49, None, 2, LAST)),
        (GOOD, {"next_first": 15}, ("corrupt", 0, 1, 3, len(GOOD))),
        (GOOD, {"limit": LAST, "newest": True}, ("ok", 0, 0, 2, None)),
        (segment([]), {}, ("ok", 0, 0, 0, None)),
    ],
)
def test_statuses(data: bytes, more: dict[str, Any], found: tuple[object, ...]) -> None:
    row = inspected(data, **more)
    names = ("status", "unread_bytes", "lost_records", "records", "error_offset")
    assert tuple(row[name] for name in names) == found
    assert (row["error"] is None) == (row["status"] == "ok")
    assert (row["last_position"] is None) == (row["records"] == 0)
