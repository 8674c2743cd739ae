"""Every column of every record type is what a reader of one record after the other finds."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.journal.decode import Selection
from spark_jobs.journal.names import TABLE_SPAN_MAX, Lookup
from spark_jobs.journal.schema import RECORDS, arrow_schema
from store import record
from store.inspect import iter_records
from tests.spark_jobs.journal import making, oracle
from tests.spark_jobs.journal.decoding import decoded
from tests.spark_jobs.journal.making import ENTRIES, every_record, message, segment
from tests.store.workload import DIRECTORY, Script, Station
from tests.support.sim_files import SimFiles

ALL = tuple(RECORDS)


def rows(data: bytes, number: int = 1, columns: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """The view, without its nulls."""
    batches = list(decoded(data, Selection(columns), number=number))
    for batch in batches:
        assert batch.schema.equals(arrow_schema(RECORDS, columns), check_metadata=True)
        batch.validate(full=True)
    found = [row for batch in batches for row in batch.to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def test_every_record_type() -> None:
    data = segment([every_record()])
    assert {raw[3] for raw in oracle.raw(data)} == making.ALL_TYPES
    assert rows(data) == oracle.rows(data)


def test_every_column_is_filled_by_some_record() -> None:
    found: set[str] = set()
    for row in rows(segment([every_record()])):
        found |= row.keys()
    assert found == set(ALL)


@given(ENTRIES)
def test_random_records(entries: list[list[bytes]]) -> None:
    data = segment(entries)
    assert rows(data) == oracle.rows(data)


@pytest.mark.parametrize("name", ALL)
def test_a_column_alone(name: str) -> None:
    data = segment([every_record()])
    expected = [{name: row[name]} if name in row else {} for row in oracle.rows(data)]
    assert rows(data, columns=(name,)) == expected


@given(st.lists(st.sampled_from(ALL), unique=True, min_size=1))
def test_columns_come_in_the_order_asked_for(columns: list[str]) -> None:
    data = segment([every_record()])
    (batch,) = decoded(data, Selection(tuple(columns)))
    assert batch.schema.names == columns


@pytest.mark.parametrize("seed", range(4))
def test_journals_of_the_real_store(seed: int) -> None:
    segments = making.random_journal(seed)
    assert len(segments) > 1
    for number, data in segments.items():
        assert rows(data, number) == oracle.rows(data, number)


def test_columns_as_the_store_prints_them() -> None:
    files = SimFiles(7)
    station = Station(files)
    Script(7).run(station, 80)
    station.journal.close()
    printed = {line.position: line for line in iter_records(files, DIRECTORY, bodies=True)}
    paths = [path for path in files.paths() if path.endswith(".journal")]
    seen = set()
    for path in paths:
        for row in rows(files.read(path), int(path[-18:-8])):
            line = printed[row["position"]]
            seen.add(row["position"])
            assert (line.segment, line.offset) == (row["segment"], row["offset"])
            assert line.type.lower().replace("_", "-") == row["record_type"]
            assert row["message_id"] in _ids(line.fields) if "message_id" in row else True
            assert line.fields.get("queue_id", row.get("queue_id")) == row.get("queue_id")
            assert line.fields.get("body", "") == row.get("body", b"").decode("utf-8", "backslashreplace")
            if row["record_type"] in ("removed", "dead-lettered"):
                assert line.fields["reason"] == row["reason"]
    assert seen == printed.keys()


def _ids(fields: dict[str, object]) -> list[object]:
    ids = fields.get("ids", [])
    assert isinstance(ids, list)
    return [fields.get("id"), fields.get("old_id"), *ids]


# -- what is easily got wrong ------------------------------------------------------------------------------------------


def test_times_beyond_the_calendar_are_its_ends() -> None:
    data = segment([[message(1, expiration=(1 << 63) - 1), message(2, expiration=-(1 << 63)), message(3)]])
    years = [row["expiration"].year if "expiration" in row else None for row in rows(data)]
    assert years == [9999, 1, None]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_times_can_be_shown_in_every_zone(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark's `collect` does it, in the local one."""
    data = segment([[message(1, expiration=(1 << 63) - 1), message(2, expiration=-(1 << 63))]])
    moments = [row["expiration"].timestamp() for row in rows(data)]
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        shown = [datetime.fromtimestamp(moment).year for moment in moments]
    time.tzset()
    assert shown == [9999, 1]


def test_strings_that_are_not_utf8_are_shown() -> None:
    data = segment([[message(1, annotations=b"\xff{"), message(2, annotations=b"{}")]])
    assert [row["annotations"] for row in rows(data)] == ["\\xff{", "{}"]


def test_an_empty_body_is_a_body() -> None:
    (row,) = rows(segment([[message(1, body=b"")]]))
    assert row["body"] == b""
    assert row["properties"] == []


def test_properties() -> None:
    """Of STOMP unescaped as in STOMP 1.2, the first of a name that comes twice; of AMQP the application properties."""
    head = b"a:1\nb\\c:x:y\\n\\\\r\na:2\nempty:\nodd\\t:\\\n"
    properties = b"\0\x53\x74\xc1\x0a\4\xa1\1a\x54\5\xa1\1b\x40"
    heads = [(head, 1), (properties, 2), (b"\0", 2), (b"", 3)]
    (stomp, amqp, *unknown) = rows(segment([[message(1, head=head, format=format) for head, format in heads]]))
    assert stomp["properties"] == [("a", "1"), ("b:", "x:y\n\\r"), ("empty", ""), ("odd\\t", "\\")]
    assert amqp["properties"] == [("a", "5"), ("b", None)]
    assert not any("properties" in row for row in unknown)


def test_a_record_about_no_message_has_no_row() -> None:
    assert rows(segment([[record.removed(1, 1, [])]])) == []
    (row,) = rows(segment([[record.removed(1, 1, []), record.closed(), record.counts(1, 1, [])]]))
    assert row["record_type"] == "closed"


def test_the_last_name_of_a_queue_is_its_name() -> None:
    definitions = [record.queue(1, {"name": "old"}), record.removed(1, 1, [5]), record.queue(1, {"name": "new"})]
    assert [row["queue"] for row in rows(segment([[*definitions, record.queue_deleted(1, {"name": "x"})]]))] == [
        "new"
    ] * 4


def test_a_queue_of_which_only_the_deletion_is_there_has_its_name() -> None:
    (row, _) = rows(segment([[record.removed(1, 1, [5]), record.queue_deleted(1, {"name": "gone"})]]))
    assert row["queue"] == "gone"


def test_a_body_looks_the_same_wherever_it_lies() -> None:
    one, two = rows(segment([[message(1, body=b"poison"), record.removed(1, 1, [1]), message(2, body=b"poison")]]))[::2]
    assert one["body_hash"] == two["body_hash"]


@given(st.sets(st.integers(0, 1000)), st.lists(st.integers(-5, 1005)), st.booleans())
def test_lookup(known: set[int], wanted: list[int], far: bool) -> None:
    """Both ways of looking up: in a table, and by bisection when ids lie far from each other."""
    spread = known | {5000 + TABLE_SPAN_MAX} if far else known
    indices, found = Lookup(sorted(spread)).find(pa.array(wanted, pa.int64()).to_numpy())
    assert found.tolist() == [id in spread for id in wanted]
    assert [sorted(spread)[i] for i, ok in zip(indices.tolist(), found, strict=True) if ok] == [
        id for id in wanted if id in spread
    ]
