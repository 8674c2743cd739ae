"""A growing journal as a stream: each record once, whatever happens to the files between two triggers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles

from spark_jobs.journal.scan import MissingSegments
from spark_jobs.reading import read
from spark_jobs.source_options import BadOption, SourceOptions, parse
from spark_jobs.stream import JournalStreamReader, WrongJournal
from tests.spark_jobs.journals import Growing, dead_letters, iso, raw, row_positions, segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Offset = dict[str, str | int]
ALL = ReadAllAvailable()


class Query:
    """What Spark does with a stream reader, without Spark: offsets go through JSON, and a restart makes it anew."""

    def __init__(self, data: Path, **options: str) -> None:
        self.options: SourceOptions = parse(
            {"path": str(data), "columns": "position,record_type,count,text"} | options, stream=True
        )
        self.reader = JournalStreamReader(self.options)
        self.committed: Offset = json.loads(json.dumps(self.reader.initialOffset()))
        self.rows: list[dict[str, Any]] = []

    def move(self, data: Path) -> None:
        """Go on from the checkpoint with the journal in another place."""
        self.options = replace(self.options, paths=(str(data),))
        self.restart()

    def restart(self, *, now: bool = False) -> None:
        """Go on from the checkpoint; `now`: as Trigger.AvailableNow."""
        self.reader = JournalStreamReader(self.options)
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def batch(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        parts = self.reader.partitions(start, end)
        return [row for part in parts for batch in read(part, self.options) for row in batch.to_pylist()]

    def trigger(self, limit: ReadLimit = ALL) -> int:
        """One micro-batch; returns its number of rows."""
        end: Offset = json.loads(json.dumps(self.reader.latestOffset(self.committed, limit)))
        if end == self.committed:
            return 0
        rows = self.batch(self.committed, end)
        self.rows += rows
        self.committed = end
        return len(rows)

    @property
    def positions(self) -> list[int]:
        return [row["position"] for row in self.rows]


def test_an_offset_is_a_position(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=1)
    growing.run(10)
    query = Query(growing.show())
    broker = growing.station.journal.broker_id.hex()
    end = row_positions(growing.data)[-1] + 1
    assert query.committed == {"broker": broker, "since": end, "segment": 0, "position": row_positions(growing.data)[0]}
    newest = int(segments(growing.data)[-1].stem)
    assert query.reader.latestOffset(query.committed, ALL) == query.committed | {"segment": newest, "position": end}
    assert query.reader.reportLatestOffset() is not None


@settings(max_examples=30)
@given(st.data())
def test_each_record_once(tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject) -> None:
    """While the journal grows, with half-written ends, segments that move, limits and restarts in between."""
    growing = Growing(tmp_path_factory.mktemp("data"), draw.draw(st.integers(0, 1000), label="seed"))
    growing.run(3)
    growing.show()
    query = Query(growing.data)
    for _ in range(draw.draw(st.integers(1, 6), label="triggers")):
        growing.run(draw.draw(st.integers(0, 25), label="commits"))
        growing.show(half_written=draw.draw(st.booleans(), label="half"))
        if draw.draw(st.booleans(), label="restart"):
            query.restart()
        query.trigger(draw.draw(st.sampled_from([ALL, ReadMaxFiles(1), ReadMaxFiles(3)]), label="limit"))
    growing.show()
    query.restart()
    while query.trigger(ReadMaxFiles(draw.draw(st.integers(1, 40), label="files"))):
        pass
    assert query.positions == row_positions(growing.data)


def test_a_half_written_entry_comes_with_a_later_trigger(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=5)
    growing.run(10)
    query = Query(growing.show(half_written=True))
    query.trigger()
    whole = row_positions(growing.data)
    assert query.positions == whole
    growing.show()
    assert len(row_positions(growing.data)) > len(whole)
    query.trigger()
    assert query.positions == row_positions(growing.data)


def test_a_batch_that_is_repeated_is_the_same(tmp_path: Path) -> None:
    """After a crash Spark repeats the last batch, and by then its segments have moved."""
    growing = Growing(tmp_path / "data", seed=6)
    growing.run(20)
    query = Query(growing.show())
    start = query.committed
    query.trigger()
    before = {path: path.parent.name for path in segments(growing.data)}
    growing.run(60)
    growing.show()
    assert any(path.parent.name == "journal" and not path.exists() for path in before), "a segment has moved"
    query.restart()
    assert query.batch(start, query.committed) == query.rows


def test_a_segment_moves_between_the_plan_and_the_reading(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=6)
    growing.run(20)
    query = Query(growing.show())
    end = query.reader.latestOffset(query.committed, ALL)
    parts = query.reader.partitions(query.committed, end)
    there = row_positions(growing.data)
    growing.run(60)
    growing.show()
    rows = [row for part in parts for batch in read(part, query.options) for row in batch.to_pylist()]
    assert [row["position"] for row in rows] == there


def test_limits_count_segments(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=7)
    growing.run(40)
    query = Query(growing.show(), maxSegments="2")
    assert query.reader.getDefaultReadLimit() == ReadMaxFiles(2)
    query.trigger(ReadMaxFiles(2))
    numbers = {segment for segment, position, *_ in raw(growing.data) if position in set(query.positions)}
    assert len(numbers) == 2
    assert Query(growing.data).reader.getDefaultReadLimit() == ALL


def test_where_a_stream_begins(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=8)
    growing.run(30)
    data = growing.show()
    there = row_positions(data)
    latest = Query(data, fromPosition="latest")
    middle = Query(data, fromPosition=str(there[10]))
    times = sorted({time for _, _, time, *_ in raw(data)})
    timed = Query(data, fromTime=iso(times[len(times) // 2]))
    growing.run(5)
    growing.show()
    for query in (latest, middle, timed):
        query.trigger()
    everything = row_positions(data)
    assert latest.positions == [position for position in everything if position > there[-1]]
    assert middle.positions == [position for position in everything if position >= there[10]]
    since = min(position for _, position, time, *_ in raw(data) if time >= times[len(times) // 2])
    assert timed.positions == [position for position in everything if position >= since]
    with pytest.raises(BadOption, match=rf"the journal ends before position {everything[-1] + 1}$"):
        Query(data, fromPosition=str(everything[-1] + 2))


def test_available_now_ends(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=9)
    growing.run(20)
    query = Query(growing.show())
    query.restart(now=True)
    there = row_positions(growing.data)
    growing.run(20)
    growing.show()
    while query.trigger(ReadMaxFiles(3)):
        pass
    assert query.positions == there


# -- what the stream has lost ------------------------------------------------------------------------------------------


def _lossy(directory: Path) -> Growing:
    """A broker that keeps nothing."""
    growing = Growing(directory, seed=12, keep=False)
    growing.run(30)
    growing.show()
    return growing


def test_segments_gone_before_the_stream_began_are_no_loss(tmp_path: Path) -> None:
    growing = _lossy(tmp_path / "data")
    there = row_positions(growing.data)
    assert len(set(there)) < there[-1], "segments have been trimmed"
    query = Query(growing.data)
    query.trigger()
    assert query.positions == there


def test_unread_segments_are_reported(tmp_path: Path) -> None:
    growing = _lossy(tmp_path / "data")
    strict, tolerant = Query(growing.data), Query(growing.data, mode="PERMISSIVE")
    for query in (strict, tolerant):
        query.trigger()
    end = strict.positions[-1] + 1
    growing.run(100)
    growing.show()
    there = [position for position in row_positions(growing.data) if position >= end]
    lost = there[-1] + 1 - end - len(set(there))
    assert lost > 0, "segments have been trimmed"
    with pytest.raises(MissingSegments, match=r"the broker removed .*journal\.retention"):
        strict.trigger()
    tolerant.trigger()
    damage = [row for row in tolerant.rows if row["record_type"] == "damage"]
    assert sum(row["count"] for row in damage) == lost
    records = [row["position"] for row in tolerant.rows if row["record_type"] != "damage"]
    assert records[len(strict.positions) :] == there


def test_segments_that_a_power_cut_took_back_are_reported(tmp_path: Path) -> None:
    """The stream was faster than the disk: the journal goes on below what it has delivered."""
    growing = Growing(tmp_path / "data", seed=13)
    growing.run(10)
    growing.power_cut(tmp_path / "seen")
    strict, tolerant = Query(tmp_path / "seen"), Query(tmp_path / "seen", mode="PERMISSIVE")
    for query in (strict, tolerant):
        query.trigger()
        query.move(growing.data)
    cut = row_positions(growing.data)[-1] + 1
    last = strict.positions[-1]
    assert last >= cut, "something was delivered that is lost"
    refused = f"^records {cut} to {last} were delivered .* a power cut .* new checkpoint$"
    with pytest.raises(WrongJournal, match=refused):  # before the broker is back ...
        strict.trigger()
    growing.run(30)
    growing.show()
    with pytest.raises(WrongJournal, match=refused):  # ... and when it has written more than was lost
        strict.trigger()
    tolerant.rows.clear()
    tolerant.trigger()
    [damage] = [row for row in tolerant.rows if row["record_type"] == "damage"]
    assert (damage["position"], damage["count"]) == (cut, last + 1 - cut)
    records = [row["position"] for row in tolerant.rows if row["record_type"] != "damage"]
    assert records == [position for position in row_positions(growing.data) if position >= cut]


def test_a_checkpoint_of_another_journal(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=1)
    growing.run(5)
    query = Query(growing.show())
    query.committed["broker"] = "ff" * 16
    with pytest.raises(WrongJournal, match=r"of broker ffff.*start the query with a new checkpoint"):
        query.trigger()
    with pytest.raises(WrongJournal):
        query.batch(query.committed, query.committed | {"position": 9})


# -- in Spark ----------------------------------------------------------------------------------------------------------


def _start(spark: SparkSession, data: Path, sink: Path, each: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """The dead letters of a journal, up to now."""
    options = {"types": "dead-lettered", "columns": "position,message_id,new_message_id"}
    frame = spark.readStream.format("bartleby-journal").options(**options).load(str(data))
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(sink / "checkpoint"))
    return writer.trigger(availableNow=True).start()


class Sink:
    """Remembers the rows of each batch; a batch that is repeated replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        self.fail = False

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = frame.toArrow().to_pylist()
        self.batches[number] = [(row["position"], row["message_id"], row["new_message_id"]) for row in rows]
        if self.fail:
            raise RuntimeError("the sink is full")

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)


def test_each_dead_letter_once_over_restarts_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    growing = Growing(tmp_path / "data", seed=14)
    sink = Sink()
    found = 0
    for number in range(3):
        growing.run(40)
        growing.show(half_written=number % 2 == 0)
        sink.fail = number == 1
        query = _start(spark, growing.data, tmp_path, sink)
        if sink.fail:
            with pytest.raises(Exception, match="the sink is full"):
                query.awaitTermination()
        else:
            query.awaitTermination()
            assert sink.rows == dead_letters(growing.data)
            assert len(sink.rows) > found
            found = len(sink.rows)
    assert len({path.parent for path in segments(growing.data)}) > 1, "some segments have moved to retention"


def test_a_loss_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    growing = _lossy(tmp_path / "data")
    _start(spark, growing.data, tmp_path, Sink()).awaitTermination()
    growing.run(100)
    growing.show()
    query = _start(spark, growing.data, tmp_path, Sink())
    with pytest.raises(Exception, match="turn on retention"):
        query.awaitTermination()
