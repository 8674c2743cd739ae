"""How fast Spark reads a journal: warm, on all cores, beside DuckDB on the same columns exported to Parquet.

Java and a worker of Python's take turns with what one core of Spark's is given, and would use two of the machine's.  So
with fewer cores than there are, everything is kept to as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.audit.books import Books
from bench.audit.decode import LEDGER, Row, best
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.scan import records
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.results import Verdict
from spark_jobs.session import spark_session
from spark_jobs.source import open_journal, register

#: Million records a second and core that Spark must reach.
TARGET: Final = 0.7


def measure(directory: Path, books: Books, rounds: int, cores: int | None) -> list[Row]:
    """The best of `rounds` for each case, the first round, which warms everything up, not counted.

    The ledger must balance and know as many messages as the journal has: a fast wrong answer is worth nothing.
    """
    snapshot = take([str(directory)])
    machine = sorted(os.sched_getaffinity(0))
    used = cores or len(machine)
    rows = []
    os.sched_setaffinity(0, machine[:used])
    with spark_session("bench", master=f"local[{used}]") as spark:
        register(spark)
        for name, run in _cases(spark, snapshot, books).items():
            run()
            seconds, count = best(run, rounds)
            rows.append(Row(f"{name}, {used} cores", seconds, books.records, books.bytes, count))
    os.sched_setaffinity(0, machine)
    return rows + _duckdb(directory, books, rounds)


def _cases(spark: SparkSession, snapshot: Snapshot, books: Books) -> dict[str, Callable[[], int]]:
    def by_type() -> int:
        counts = open_journal(spark, snapshot, columns=("record_type",)).groupBy("record_type").count().collect()
        return sum(row["count"] for row in counts)

    def columns() -> int:
        frame = open_journal(spark, snapshot, columns=LEDGER)
        return int(frame.agg(F.sum("message_id"), F.max("time"), F.count("reason")).collect()[0][2])

    def books_balance() -> int:
        result = ledger(spark, snapshot, LedgerOptions())
        assert result.verdict is Verdict.BALANCED, result.problems
        return books.messages

    return {"Spark: count by record type": by_type, "Spark: ledger columns": columns, "ledger": books_balance}


def _duckdb(directory: Path, books: Books, rounds: int) -> list[Row]:
    """The ledger's question asked of the same columns as Parquet, the export not counted."""
    path = directory / "records.parquet"
    _export(directory, path)
    query = f"""
        WITH moves AS (
            SELECT unnest(queue_ids) AS queue_id, message_id, 1 AS entered, 0 AS gone FROM '{path}'
            WHERE record_type = 'message'
            UNION ALL
            SELECT queue_id, message_id, 0, 1 FROM '{path}' WHERE record_type = 'removed'
        ), pairs AS (SELECT queue_id, message_id, sum(entered) AS e, sum(gone) AS g FROM moves GROUP BY ALL)
        SELECT queue_id, sum(e), sum(g) FROM pairs GROUP BY ALL
    """
    with duckdb.connect() as connection:
        seconds, count = best(lambda: len(connection.execute(query).fetchall()), rounds)
    return [Row("DuckDB on Parquet: the same balance", seconds, books.records, path.stat().st_size, count)]


def _export(directory: Path, path: Path) -> None:
    if path.exists():
        return
    selection = Selection(LEDGER)
    writer = None
    for batch in records(take([str(directory)]), selection):
        if writer is None:
            writer = pq.ParquetWriter(path, batch.schema, compression="zstd")
        writer.write_batch(batch)
    assert writer is not None, "a generated journal has records"
    writer.close()


def missed(rows: list[Row], cores: int | None) -> list[str]:
    """The targets that are not met."""
    used = cores or os.cpu_count() or 1
    held = [row for row in rows if row.name.startswith("Spark")]
    return [
        f"{row.name}: {row.records_s / 1e6 / used:.2f} of {TARGET} million records/s and core"
        for row in held
        if row.records_s < TARGET * 1e6 * used
    ]
