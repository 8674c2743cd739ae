"""The trace: everything the journal says of one message, from its first id to its last.

Moves (dead letter, expiry, bringing back) give a message a new id; the links between the ids are in DEAD_LETTERED and
EXPIRED records, and in what the broker notes on the new message.  One scan gathers the links, which are few; what
belongs together is found among them, step by step both ways; a second scan reads all records of these ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from spark_jobs.audits import history
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import DAMAGE_COLUMNS, Journal
from spark_jobs.audits.tables import UTC, section
from spark_jobs.journal.schema import DAMAGE
from spark_jobs.results import Figure, Result, Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.journal.snapshot import Snapshot

#: Ids of one family that are followed: a message that was moved so often is in a circle.
IDS_MAX: Final = 1000


def trace(spark: SparkSession, snapshot: Snapshot, message_id: int, options: Options) -> Result:
    """The audit.  An id that the journal does not know gives an empty life, and a problem that says so."""
    with Journal(spark, snapshot, options) as journal:
        links = journal.keep(_links(journal))
        ids, more = _family(links, message_id)
        told = history.of(journal, ids)
        names = history.queue_names(journal, told.rows)
        coverage = journal.coverage(links)
    life = told.rows
    known = {row["message_id"] for row in life} | {row["new_message_id"] for row in life}
    problems = []
    if message_id not in known:
        problems.append(f"message {message_id} is not in what was read")
    if more:
        problems.append(f"more than {IDS_MAX} ids belong to this message; the others are left out")
    summary: dict[str, Figure] = {"message": message_id, "ids": len(ids), "records": len(life) + told.beyond}
    if life:
        summary["now"] = _end(life, names)
    lived = section("life", "What happened to it", told.table(names), beyond=told.beyond)
    return Result(
        "trace", coverage, summary, (lived, _ids(ids, life)), None, tuple(problems), options=options.described()
    )


def _links(journal: Journal) -> DataFrame:
    """(old, new) ids, and damage."""
    columns = (*DAMAGE_COLUMNS, "message_id", "new_message_id", "origin_message_id")
    records = journal.records(("message", "dead-lettered", "expired"), columns, moved=True)
    by_origin = F.col("origin_message_id").isNotNull()
    links = records.where(by_origin | F.col("new_message_id").isNotNull() | (F.col("record_type") == DAMAGE))
    return links.select(
        *DAMAGE_COLUMNS,
        F.when(by_origin, F.col("origin_message_id")).otherwise(F.col("message_id")).alias("old"),
        F.when(by_origin, F.col("message_id")).otherwise(F.col("new_message_id")).alias("new"),
    )


def _family(links: DataFrame, message_id: int) -> tuple[list[int], bool]:
    """All ids that are linked with one, in order, and whether there are more than IDS_MAX."""
    found, edge = {message_id}, {message_id}
    while edge and len(found) <= IDS_MAX:
        near = [F.lit(id) for id in sorted(edge)]
        table = links.where(F.col("old").isin(near) | F.col("new").isin(near)).select("old", "new").distinct()
        rows = table.limit(IDS_MAX + 1).toArrow()
        edge = {id for column in rows.itercolumns() for id in column.to_pylist()} - found
        found |= edge
    ordered = sorted(found)
    return ordered[:IDS_MAX], len(ordered) > IDS_MAX


def _end(life: list[dict[str, Any]], names: dict[int, str]) -> str:
    """Where it is, or how it left last."""
    places = {(row["message_id"], id) for row in life for id in (row["queue_ids"] or ())}
    removed = [row for row in life if row["record_type"] == "removed"]
    there = places - {(row["message_id"], row["queue_id"]) for row in removed}
    if there:
        return "on " + ", ".join(f"{names.get(queue) or f'queue {queue}'} as {id}" for id, queue in sorted(there))
    return str(removed[-1]["reason"]) if removed else "not known"


def _ids(ids: list[int], life: list[dict[str, Any]]) -> Section:
    """The ids under which it lived."""
    stored = {row["message_id"]: row for row in life if row["record_type"] == "message"}
    table = pa.Table.from_pylist(
        [
            {
                "message": id,
                "was": stored[id]["origin_message_id"] if id in stored else None,
                "address": stored[id]["address"] if id in stored else None,
                "stored": stored[id]["time"] if id in stored else None,
            }
            for id in ids
        ],
        schema=pa.schema([("message", pa.int64()), ("was", pa.int64()), ("address", pa.string()), ("stored", UTC)]),
    )
    return section("ids", "The ids under which it lived", table)
