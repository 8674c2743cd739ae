"""The data source in Spark: what arrives is what the decoder gives, and what Spark is told when something is wrong."""

from __future__ import annotations

import pickle
import zipfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkAttributeError, PySparkException

from spark_jobs.journal.schema import RECORDS, SEGMENTS, Column, arrow_schema, ddl
from spark_jobs.journal.snapshot import take
from spark_jobs.reading import plan, read
from spark_jobs.source import NAME, JournalSource, open_journal, register
from spark_jobs.source_options import parse
from tests.spark_jobs.journals import Growing, raw, row_positions, rows, segments

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VIEWS = {"records": RECORDS, "segments": SEGMENTS}

#: Settings of somebody else's session.
OTHERS = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Growing:
    """A journal that nothing here changes."""
    growing = Growing(tmp_path_factory.mktemp("data"), seed=21)
    growing.run(60)
    growing.show()
    return growing


def _load(spark: SparkSession, data: Path, **options: str) -> DataFrame:
    return spark.read.format(NAME).options(**options).load(str(data))


def _sorted(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in table.to_pylist())


def test_a_session_with_settings_of_its_own(spark: SparkSession, growing: Growing) -> None:
    """What a type's name means, which zone it is, how Arrow is used: the rows are the same."""
    usual = [_sorted(_view(spark, growing.data, view)) for view in VIEWS]
    before = {name: spark.conf.get(name) for name in OTHERS}
    try:
        for name, value in OTHERS.items():
            spark.conf.set(name, value)
        assert [_sorted(_view(spark, growing.data, view)) for view in VIEWS] == usual
    finally:
        for name in OTHERS:
            spark.conf.set(name, str(before[name]))


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_spark_knows_what_columns_are_and_say(spark: SparkSession, view: dict[str, Column]) -> None:
    """Whatever a session takes a timestamp and double quotes for."""
    taken = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    for key, value in taken.items():
        spark.conf.set(key, value)
    try:
        frame = spark.createDataFrame([], ddl(view))
    finally:
        for key in taken:
            spark.conf.unset(key)
    assert [(field.name, field.dataType.simpleString(), field.metadata) for field in frame.schema.fields] == [
        (column.name, column.ddl, {"comment": column.doc}) for column in view.values()
    ]


def _view(spark: SparkSession, data: Path, view: str) -> pa.Table:
    found = _load(spark, data, view=view, columns=",".join(VIEWS[view])).toArrow()
    return found.cast(arrow_schema(VIEWS[view]))


@pytest.mark.parametrize("view", VIEWS)
def test_all_columns_of_each_view_arrive(spark: SparkSession, growing: Growing, view: str) -> None:
    """Types and values, to the microsecond, from several partitions."""
    options = {"view": view, "columns": ",".join(VIEWS[view]), "targetBytes": "40k"}
    frame = _load(spark, growing.data, **options)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        (column.name, column.ddl) for column in VIEWS[view].values()
    ]
    parsed = parse({"path": str(growing.data), **options})
    parts = plan(parsed.pinned(), parsed)
    assert frame.rdd.getNumPartitions() == len(parts) > 1
    expected = [row for part in parts for batch in read(part, parsed) for row in batch.to_pylist()]
    assert _sorted(frame.toArrow()) == sorted(str(row) for row in expected)


def test_columns_types_and_bounds(spark: SparkSession, growing: Growing) -> None:
    everything = [(position, type) for _, position, _, type, *_ in raw(growing.data)]
    middle = everything[len(everything) // 2][0]
    frame = _load(spark, growing.data, columns="position", types="message", fromPosition=str(middle))
    found = [row["position"] for row in frame.toArrow().to_pylist()]
    assert sorted(found) == [position for position, type in everything if position >= middle and type == 1]


def test_columns_may_come_as_a_schema(spark: SparkSession, growing: Growing) -> None:
    frame = spark.read.format(NAME).schema("message_id bigint, record_type string").load(str(growing.data))
    assert frame.columns == ["message_id", "record_type"]
    assert frame.where("record_type = 'message'").count() == sum(type == 1 for _, _, _, type, *_ in raw(growing.data))


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("message_id int", "column message_id int: it has type bigint"),
        ("colour string", "column colour string: it does not exist in view=records"),
    ],
)
def test_a_schema_that_is_not_the_views(spark: SparkSession, growing: Growing, schema: str, complaint: str) -> None:
    frame = spark.read.format(NAME).schema(schema).load(str(growing.data))
    with pytest.raises(PySparkException, match=complaint):
        frame.collect()


def test_sql(spark: SparkSession, growing: Growing) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW j USING `{NAME}` OPTIONS (path '{growing.data}')")
    [row] = spark.sql("SELECT count(*) AS n, max(position) AS last FROM j").toArrow().to_pylist()
    positions = row_positions(growing.data)
    assert (row["n"], row["last"]) == (len(positions), positions[-1])


def test_bounds_that_leave_nothing(spark: SparkSession, growing: Growing) -> None:
    assert _load(spark, growing.data, fromPosition="1000000").count() == 0


def test_two_scans_of_a_snapshot_agree(spark: SparkSession, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=22)
    growing.run(20)
    snapshot = take([str(growing.show())])
    before = row_positions(growing.data)
    assert open_journal(spark, snapshot, columns=["position"]).count() == len(before)
    growing.run(40)
    growing.show()
    assert open_journal(spark, snapshot, columns=["position"]).count() == len(before)
    assert _load(spark, growing.data, columns="position").count() == len(row_positions(growing.data)) > len(before)


def test_open_journal(spark: SparkSession, growing: Growing) -> None:
    snapshot = take([str(growing.data)])
    times = sorted({time for _, _, time, *_ in raw(growing.data)})
    low, high = times[1], times[-2]
    bounded = snapshot.bounded(from_position=9, from_time=low, to_time=high)
    frame = open_journal(spark, bounded, columns=["position"], types=["removed"])
    found = {row["position"] for row in frame.toArrow().to_pylist()}
    assert found == {p for _, p, time, type, *_ in raw(growing.data) if type == 2 and p >= 9 and low <= time < high}
    everything = open_journal(spark, snapshot, columns=["message_id", "new_message_id"]).toArrow().to_pylist()
    id = next(row["message_id"] for row in everything if row["message_id"])
    some = open_journal(spark, snapshot, columns=["message_id"], message_ids=[id]).where(f"message_id = {id}")
    assert some.count() == sum(row["message_id"] == id for row in everything)
    renamed = open_journal(spark, snapshot, columns=["message_id"], not_null=["new_message_id"])
    assert renamed.count() == sum(row["new_message_id"] is not None for row in everything)
    assert open_journal(spark, snapshot, view="segments", columns=["path"]).count() == len(segments(growing.data))


def test_questions_about_one_frame_do_not_narrow_each_other(spark: SparkSession, growing: Growing) -> None:
    """Spark plans a frame's reading once, with the filters of whichever query was planned last, if it is told any."""
    frame = _load(spark, growing.data)
    everything = frame.count()
    some = frame.where("record_type = 'removed'").union(frame.where("record_type = 'message'"))
    counts = {row["record_type"]: row["count"] for row in some.groupBy("record_type").count().toArrow().to_pylist()}
    by_type = Counter(type for _, type in rows(growing.data))
    assert counts == {name: by_type[name] for name in ("removed", "message")}
    assert frame.count() == everything == by_type.total()


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_a_journal_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=str(tmp_path / "nowhere")):
        _load(spark, tmp_path / "nowhere").count()


def test_an_option_that_cannot_be(spark: SparkSession, growing: Growing) -> None:
    with pytest.raises(PySparkException, match="colour: view=records has no such option"):
        _load(spark, growing.data, colour="red").count()
    with pytest.raises(PySparkException, match="columns=hue: possible values are broker_id, segment"):
        _load(spark, growing.data, columns="hue")


@pytest.fixture
def damaged(tmp_path: Path) -> Growing:
    """A journal with a flipped bit in one segment, and another that is missing."""
    growing = Growing(tmp_path / "data", seed=23)
    growing.run(60)
    growing.show()
    found = segments(growing.data)
    flipped, gone = found[len(found) // 3], found[len(found) // 2]
    content = bytearray(flipped.read_bytes())
    content[100] ^= 4
    flipped.write_bytes(content)
    gone.unlink()
    return growing


def test_damage_stops_a_strict_scan(spark: SparkSession, damaged: Growing) -> None:
    with pytest.raises(PySparkException, match="mode=PERMISSIVE counts the lost records"):
        _load(spark, damaged.data).count()
    with pytest.raises(
        PySparkException, match=r"CorruptSegment: .*\.journal: .* at byte \d+ of \d+, \d+ records before"
    ):
        _load(spark, damaged.data, gaps="false").count()


def test_damage_is_counted_to_the_record(spark: SparkSession, damaged: Growing, tmp_path: Path) -> None:
    before = {position for _, position, *_ in raw(damaged.show(at=tmp_path / "whole"))}
    records = _load(spark, damaged.data, mode="PERMISSIVE", columns="position,record_type")
    there = {row["position"] for row in records.where("record_type <> 'damage'").toArrow().to_pylist()}
    frame = _load(spark, damaged.data, mode="PERMISSIVE").where("record_type = 'damage'")
    rows = frame.select("count", "text").toArrow().to_pylist()
    assert len(rows) == 2
    assert all(row["text"] for row in rows)
    assert sum(row["count"] for row in rows) == len(before - there) > 0
    statuses = Counter(row["status"] for row in _load(spark, damaged.data, view="segments").toArrow().to_pylist())
    assert statuses["corrupt"] == statuses["missing"] == 1


def test_the_journal_in_the_paths_of_several_kinds(spark: SparkSession, growing: Growing) -> None:
    """The data directory, the journal, live and kept apart: the same records, none of them twice."""
    expected = len(row_positions(growing.data))
    paths: list[Any] = [growing.journal, f"{growing.journal},{growing.data}", growing.data.as_uri()]
    paths.append(f"{growing.journal / 'retention'},{growing.journal}")
    for path in paths:
        assert _load(spark, path).count() == expected
    both = [str(growing.journal / "retention"), str(growing.journal)]
    assert spark.read.format("bartleby-journal").load(both).count() == expected


def test_register_twice_is_harmless(spark: SparkSession, growing: Growing) -> None:
    register(spark)
    register(spark)
    assert _load(spark, growing.data).count() > 0


def test_executors_import_the_code_by_its_name() -> None:
    """What is sent with each task is a name, not the code."""
    assert len(pickle.dumps(JournalSource)) < 100


def test_a_second_session_beside_one_that_knows_the_source(spark: SparkSession, growing: Growing) -> None:
    other = spark.newSession()
    register(other)
    assert _load(other, growing.data).count() == _load(spark, growing.data).count()
    spark.createDataFrame([], "nothing int")  # the active session is again that of the other tests


class ConnectSession:
    """What there is of a session of Spark Connect; `code` are the files in what it was sent."""

    def __init__(self) -> None:
        self.code: list[str] = []
        self.registered: list[object] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)

    @property
    def sparkContext(self) -> None:
        raise PySparkAttributeError("not supported in Spark Connect")

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:
        assert pyfile
        with zipfile.ZipFile(path) as archive:
            self.code += archive.namelist()


def test_a_session_of_spark_connect_gets_the_code() -> None:
    session: Any = ConnectSession()
    register(session)
    register(session)
    assert session.registered == [JournalSource]
    assert session.code.count("spark_jobs/source.py") == 1
