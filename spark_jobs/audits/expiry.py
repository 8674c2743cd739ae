"""The expiry audit: which messages expired, how long they had waited, what set the expiration, were there consumers?

A message expires on each of its queues independently, so it is counted once for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from spark_jobs.audits.dead_letters import HOURS_MAX, origin_queue
from spark_jobs.audits.frames import Groups, elapsed, grouped, hour, most, quantiles, whole
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import DAMAGE_COLUMNS, Journal
from spark_jobs.results import Chart, Coverage, Result, Section, section
from store.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.journal.snapshot import Snapshot

_COLUMNS: Final = (
    "time",
    "message_id",
    "new_message_id",
    "queue_id",
    "queue",
    "address",
    "expiration",
    "expiry_source",
    "attempts",
    "enqueued",
    "consumers",
)

NEVER: Final = "never delivered"
BEFORE: Final = "delivered before"
REMOVED: Final = "removed"
NOBODY: Final = "with no consumer"
SOMEBODY: Final = "consumers present"
UNKNOWN: Final = "unknown"
EXPIRED: Final = "expired"
KEPT: Final = "kept on an expiry address"

_GROUPINGS: Final = {
    "all": (),
    "places": ("address", "queue"),
    "sources": ("source",),
    "consumers": ("consumers",),
    "destinations": ("went to",),
    "hours": ("hour",),
}

#: Columns with times in ms, and the names, titles and notes of their sections.
_TIMES: Final = (
    (
        "waited",
        "waiting",
        "How long they had waited",
        "From the broker's acceptance of the message until the expiry was noticed.",
    ),
    (
        "late",
        "lateness",
        "How late it was noticed",
        "From the expiration until the broker noticed it; message-expiry-scan-period limits this time.",
    ),
)


def expiry(spark: SparkSession, snapshot: Snapshot, options: Options) -> Result:
    """Run the audit.  More expired messages than `fail_over` exceed the threshold.  Raises NoSuchAddress."""
    with Journal(spark, snapshot, options) as journal:
        types = ("expired", "queue-deleted")
        read = journal.keep(journal.with_damage(types, (*DAMAGE_COLUMNS, *_COLUMNS)))
        journal.check_addresses_of(read)
        expired = journal.keep(_expired(journal, read))
        covered = journal.coverage(read)
        overdue = journal.keep(_overdue(journal, read, covered))
        return _result(journal, expired, overdue, covered)


def _expired(journal: Journal, read: DataFrame) -> DataFrame:
    """One row per expired message: how long it `waited` until this was noticed, how `late` (ms), and where it went."""
    moved = journal.records(("message",), ("message_id", "address", "annotations"), not_null=("origin_message_id",))
    targets = moved.select(
        F.col("message_id").alias("new_message_id"),
        F.col("address").alias("target"),
        origin_queue().alias("origin_queue"),
    )
    gone_to = F.when(F.col("new_message_id").isNull(), REMOVED).otherwise(F.coalesce("target", F.lit(UNKNOWN)))
    return (
        journal.addressed(read.where(F.col("record_type") == "expired"))
        .join(targets, "new_message_id", "left")
        .withColumn("queue", F.coalesce("queue", "origin_queue"))
        .withColumn("went to", gone_to)
        .withColumn("waited", elapsed("enqueued", "time"))
        .withColumn("late", elapsed("expiration", "time"))
        .withColumn("unread", F.when(F.coalesce("attempts", F.lit(0)) == 0, NEVER).otherwise(BEFORE))
        .withColumn("consumers", F.when(F.coalesce("consumers", F.lit(0)) == 0, NOBODY).otherwise(SOMEBODY))
        .withColumnRenamed("expiry_source", "source")
        .select(
            "message_id",
            "queue",
            "address",
            "time",
            "source",
            "went to",
            "waited",
            "late",
            "unread",
            "consumers",
        )
    )


def _overdue(journal: Journal, read: DataFrame, covered: Coverage) -> DataFrame:
    """Messages on a queue that had already expired at the end of the part that was read.

    For messages that were copied forward, the copy may be the only record.  A message in an unclear segment is only
    still there if another segment has it too (Journal.unclear).
    """
    end = covered.last_time
    columns = ("segment", "message_id", "queue_ids", "address", "expiration")
    brief = journal.records(("message", "copied"), columns, not_null=("expiration",))
    brief = brief.where(~F.col("segment").isin(*journal.unclear(covered)))
    brief = journal.addressed(brief.where(F.col("expiration") <= F.timestamp_millis(F.lit(end))))
    entered = brief.select(F.explode("queue_ids").alias("queue_id"), "message_id", "address", "expiration").distinct()
    removed = journal.records(("removed",), ("queue_id", "message_id"))
    gone = read.where(F.col("record_type") == "queue-deleted").select("queue_id").distinct()
    return (
        entered.join(removed, ["queue_id", "message_id"], "left_anti")
        .join(gone, "queue_id", "left_anti")
        .withColumn("overdue", F.lit(end) - F.unix_millis("expiration"))
    )


def _result(journal: Journal, expired: DataFrame, overdue: DataFrame, covered: Coverage) -> Result:
    options, top = journal.options, journal.options.top
    found = grouped(
        expired.withColumn("hour", hour("time")),
        _GROUPINGS,
        _measures(),
        {name: top for name in _GROUPINGS} | {"hours": HOURS_MAX},
    )
    row = whole(found["all"], [EXPIRED, NEVER, BEFORE, NOBODY, REMOVED, KEPT])
    row["past their time and still there"] = late = overdue.count()
    sections = (
        _places(found["places"]),
        _counted(found["sources"], "sources", "What set the expiration"),
        _counted(found["consumers"], "consumers", "Who could have read them"),
        _counted(found["destinations"], "destinations", "Where they went"),
        _hours(found["hours"]),
        *_times(expired, top),
        _still_there(overdue, top),
    )
    problems = (f"{counted(late, 'message')} past their expiration and still on a queue",) if late else ()
    exceeded = options.exceeded(row[EXPIRED])
    return Result("expiry", covered, {**row}, sections, None, problems, exceeded, options.described())


def _measures() -> list[Column]:
    """All measures of a group that any section shows."""
    return [
        F.count("*").alias(EXPIRED),
        F.count_if(F.col("unread") == NEVER).alias(NEVER),
        F.count_if(F.col("unread") == BEFORE).alias(BEFORE),
        F.count_if(F.col("consumers") == NOBODY).alias(NOBODY),
        F.count_if(F.col("went to") == REMOVED).alias(REMOVED),
        F.count_if(F.col("went to") != REMOVED).alias(KEPT),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    ]


def _places(found: Groups) -> Section:
    table = found.table.select(["address", "queue", EXPIRED, NEVER, BEFORE, NOBODY, "first", "last"])
    chart = Chart("address", (NEVER, BEFORE), "Expired messages by address")
    return section("places", "Where they expired", table, beyond=found.beyond, chart=chart)


def _counted(found: Groups, name: str, title: str) -> Section:
    (by,) = _GROUPINGS[name]
    table = found.table.select([by, EXPIRED, "first", "last"])
    return section(name, title, table, beyond=found.beyond, chart=Chart(by, (EXPIRED,), title))


def _hours(found: Groups) -> Section:
    table = found.table.select(["hour", EXPIRED, NEVER, BEFORE]).sort_by("hour")
    chart = Chart("hour", (NEVER, BEFORE), "Expired messages by hour (UTC)")
    return section("hours", "When they expired", table, beyond=found.beyond, chart=chart)


def _times(expired: DataFrame, top: int) -> list[Section]:
    """Quantiles of both times, by address."""
    measures = [each for name, _, _, _ in _TIMES for each in quantiles(name, f"{name} ")]
    counted = expired.groupBy("address").agg(F.count("*").alias(EXPIRED), *measures)
    table, beyond = most(counted, [F.desc(EXPIRED), F.asc("address")], top)
    names = ["min (s)", "median (s)", "p95 (s)", "max (s)"]
    return [
        section(
            name,
            title,
            table.select(["address", EXPIRED, *[f"{which} {each}" for each in names]]).rename_columns(
                ["address", EXPIRED, *names]
            ),
            beyond=beyond,
            note=note,
        )
        for which, name, title, note in _TIMES
    ]


def _still_there(overdue: DataFrame, top: int) -> Section:
    listed = overdue.select(
        F.col("message_id").alias("message"),
        "address",
        F.col("queue_id").alias("queue id"),
        "expiration",
        F.round(F.col("overdue") / 1000, 3).alias("overdue (s)"),
    )
    table, beyond = most(listed, [F.asc("expiration"), F.asc("message"), F.asc("queue id")], top)
    note = (
        "On a queue at the end of the part that was read, with an earlier expiration: not yet noticed, scheduled, or "
        "with a consumer."
    )
    return section("overdue", "Past their expiration and still there", table, beyond=beyond, note=note)
