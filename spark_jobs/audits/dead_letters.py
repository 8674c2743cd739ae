"""The dead-letter audit: which messages died, where, why, after how long, and what happened to the dead letters.

It reads four things, each once:

1. deaths (DEAD_LETTERED), and the deleted queues;
2. the moved messages: the results of deaths, and the messages brought back;
3. how they left their queues;
4. the headers and body hashes of the dead messages, to find those that die repeatedly.

A killed message (no dead-letter address) is a death without a dead letter.  A dead letter whose message record cannot
be found (out of the range, or lost) counts as `unknown`; none is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from spark_jobs.audits import poison
from spark_jobs.audits.frames import Groups, elapsed, grouped, hour, most, quantiles, whole
from spark_jobs.audits.options import Options
from spark_jobs.audits.outcomes import MOVED, UNKNOWN, WAITING, outcomes, replay_outcomes
from spark_jobs.audits.reading import DAMAGE_COLUMNS, Journal
from spark_jobs.results import Chart, Coverage, Figure, Result, Section, section
from store.counted import counted
from store.record import DeadLetterReason

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
    "user",
    "client",
    "remote",
    "reason",
    "attempts",
    "first_failure",
)

KILLED: Final = "killed"

#: The ways in which a message that was brought back can die again.
_DIED: Final = ("dead-lettered", KILLED)

#: Maximum number of hours shown (the latest): a month.
HOURS_MAX: Final = 24 * 31

#: Up to this number of deliveries, each number has its own row; larger ones share the last row.
ATTEMPTS_MAX: Final = 50

#: Ranges of the time to death: the lower bound in ms, and the label.
DURATIONS: Final = (
    (0, "under 1 s"),
    (1_000, "1 s to 10 s"),
    (10_000, "10 s to 1 min"),
    (60_000, "1 min to 10 min"),
    (600_000, "10 min to 1 h"),
    (3_600_000, "1 h to 1 day"),
    (86_400_000, "1 day and more"),
)

#: The names of the reasons, in their order.
REASONS: Final = tuple(reason.word for reason in DeadLetterReason)

DEATHS: Final = "dead letters"

#: What is noted of a death on a link to another broker: the column, and the JSON path in the annotations.
LINK_NOTES: Final = {
    "link": "$._AMQ_DL_LINK",
    "remote broker": "$._AMQ_DL_REMOTE_BROKER",
    "remote address": "$._AMQ_DL_REMOTE_ADDRESS",
}

_GROUPINGS: Final = {
    "all": (),
    "places": ("address", "queue"),
    "reasons": ("reason",),
    "senders": ("user",),
    "consumers": ("client", "remote"),
    "links": tuple(LINK_NOTES),
    "hours": ("hour",),
    "attempts": ("deliveries",),
    "durations": ("band",),
    "outcomes": ("outcome",),
    "replay-outcomes": ("replay_outcome",),
}

#: The figures at the top, and their names there.
_SUMMARY: Final = {
    DEATHS: "dead letters and killed",
    KILLED: KILLED,
    WAITING: "still waiting",
    "brought back": "brought back",
    "then consumed": "brought back and consumed",
    "died again": "brought back and died again",
    "unknown outcome": "with unknown outcome",
}

_TIMED: Final = "Covers only messages whose first failure is known."

#: JSON path of the id under which a message first died.
_FIRST_ID: Final = "$._AMQ_DL_FIRST_MESSAGE_ID"

#: JSON path of the queue that it last left.
_ORIGIN_QUEUE: Final = "$._AMQ_ORIG_QUEUE"


def dead_letters(spark: SparkSession, snapshot: Snapshot, options: Options) -> Result:
    """Run the audit.  More deaths than `fail_over` exceed the threshold.  `addresses` are those of origin.

    Raises NoSuchAddress.
    """
    with Journal(spark, snapshot, options) as journal:
        types = ("dead-lettered", "queue-deleted")
        read = journal.keep(journal.with_damage(types, (*DAMAGE_COLUMNS, *_COLUMNS)))
        journal.check_addresses_of(read)
        covered = journal.coverage(read)
        return _result(journal, journal.keep(_deaths(journal, read, covered)), covered)


def _deaths(journal: Journal, read: DataFrame, covered: Coverage) -> DataFrame:
    """One row per death: its `outcome` and `replay_outcome`, how long it `took` (ms), and its first id (`root`)."""
    columns = ("message_id", "origin_message_id", "queue_ids", "annotations", "segment")
    first_id = F.get_json_object("annotations", _FIRST_ID).try_cast("bigint")
    messages = journal.records(("message",), columns, not_null=("origin_message_id",))
    linked = {name: F.get_json_object("annotations", path) for name, path in LINK_NOTES.items()}
    with_origins = messages.withColumns({"first": first_id, "origin_queue": origin_queue(), **linked})
    moved = journal.keep(_connected(journal, with_origins.drop("annotations"), journal.unclear(covered)))
    removed = journal.records(("removed",), ("message_id", "queue_id", "position", "reason"))
    gone = read.where(F.col("record_type") == "queue-deleted")
    known = journal.keep(outcomes(moved, removed, gone))
    replayed = replay_outcomes(journal, known.where(F.col("outcome") == MOVED), moved, known)
    roots = moved.select("message_id", "first")
    origins = moved.select(F.col("message_id").alias("new_message_id"), "origin_queue", *LINK_NOTES)
    deaths = journal.addressed(read.where(F.col("record_type") == "dead-lettered")).select(*_COLUMNS)
    return (
        deaths.join(known.withColumnRenamed("message_id", "new_message_id"), "new_message_id", "left")
        .join(replayed.withColumnRenamed("message_id", "new_message_id"), "new_message_id", "left")
        .join(roots.toDF("new_message_id", "first_by_new"), "new_message_id", "left")
        .join(roots.toDF("message_id", "first_by_old"), "message_id", "left")
        .join(origins, "new_message_id", "left")
        .withColumn("queue", F.coalesce("queue", "origin_queue"))
        .withColumn("root", F.coalesce("first_by_new", "first_by_old", "message_id"))
        .withColumn("took", elapsed("first_failure", "time"))
        .withColumn("outcome", _outcome())
        .drop("first_by_new", "first_by_old", "origin_queue")
    )


def origin_queue() -> Column:
    """The queue that a moved message was on, by its annotations: the journal knows no non-durable queue."""
    return F.get_json_object("annotations", _ORIGIN_QUEUE)


def _connected(journal: Journal, moved: DataFrame, unclear: Sequence[int]) -> DataFrame:
    """Messages with a column for whether the journal tells of all that they did (Journal.unclear)."""
    connected = ~F.col("segment").isin(*unclear)
    found = moved.withColumn("connected", connected)
    if not unclear:
        return found
    copied = journal.records(("copied",), ("segment", "message_id"), not_null=("origin_message_id",))
    again = copied.where(connected).select("message_id").distinct().withColumn("copied", F.lit(True))
    joined = found.join(again, "message_id", "left")
    return joined.withColumn("connected", F.col("connected") | F.col("copied").isNotNull()).drop("copied")


def _outcome() -> Column:
    known = F.coalesce("outcome", F.lit(UNKNOWN))
    return F.when(F.col("new_message_id").isNull(), KILLED).otherwise(known)


def _result(journal: Journal, deaths: DataFrame, coverage: Coverage) -> Result:
    options, top = journal.options, journal.options.top
    found = grouped(
        deaths.withColumn("hour", hour("time"))
        .withColumn("deliveries", F.least("attempts", F.lit(ATTEMPTS_MAX)))
        .withColumn("band", _band()),
        _GROUPINGS,
        _measures(),
        {name: top for name in _GROUPINGS}
        | {"hours": HOURS_MAX, "attempts": ATTEMPTS_MAX + 1, "durations": len(DURATIONS)},
    )
    row = {_SUMMARY[name]: number for name, number in whole(found["all"], list(_SUMMARY)).items()}
    sections = (
        _places(found["places"]),
        _oldest(deaths, top, coverage),
        _counted(found["reasons"], "reasons", "Reasons"),
        _counted(found["senders"], "senders", "Senders", note="Empty: the sender was not logged in."),
        _counted(found["consumers"], "consumers", "Last consumers", note="Empty: no consumer had the message."),
        _links(found["links"]),
        _hours(found["hours"]),
        _attempts(found["attempts"]),
        _durations(found["durations"]),
        _durations_by_address(deaths, top),
        _counted(found["outcomes"], "outcomes", "What happened to the dead letters"),
        _replay_outcomes(found["replay-outcomes"]),
        poison.section_of(journal, deaths),
    )
    exceeded = options.exceeded(row[_SUMMARY[DEATHS]])
    summary: dict[str, Figure] = {**row}
    for oldest in found["all"].table["oldest waiting"].drop_null().to_pylist():
        summary["oldest waiting since"] = oldest
        summary["oldest waiting for (s)"] = (coverage.last_time - round(oldest.timestamp() * 1000)) // 1000
    return Result("dlq", coverage, summary, sections, None, _problems(row), exceeded, options.described())


def _measures() -> list[Column]:
    """All measures of a group that any section shows."""
    outcome = F.col("outcome")
    return [
        F.count("*").alias(DEATHS),
        F.count_if(outcome == KILLED).alias(KILLED),
        F.count_if(outcome == WAITING).alias(WAITING),
        F.count_if(outcome == MOVED).alias("brought back"),
        F.count_if(F.col("replay_outcome") == "consumed").alias("then consumed"),
        F.count_if(F.col("replay_outcome").isin(*_DIED)).alias("died again"),
        F.count_if(outcome == UNKNOWN).alias("unknown outcome"),
        F.min("attempts").alias("attempts min"),
        F.round(F.avg("attempts"), 2).alias("attempts mean"),
        F.max("attempts").alias("attempts max"),
        F.min("time").alias("first death"),
        F.max("time").alias("last death"),
        F.min(F.when(outcome == WAITING, F.col("time"))).alias("oldest waiting"),
        *[F.count_if(F.col("reason") == reason).alias(reason) for reason in REASONS],
    ]


def _band() -> Column:
    """The index of the range in DURATIONS."""
    band = F.lit(None).cast("int")
    for number, (low, _) in enumerate(DURATIONS):
        band = F.when(F.col("took") >= low, number).otherwise(band)
    return band


def _problems(row: dict[str, int]) -> tuple[str, ...]:
    said = {
        "died again": ("dead letter", "brought back and died again"),
        "unknown outcome": (
            "dead letter",
            "cannot be followed: what became of the new message is not in the part of the journal that was read",
        ),
        KILLED: ("message", "killed and lost: there was no dead-letter address"),
    }
    found = {name: row[_SUMMARY[name]] for name in said if row[_SUMMARY[name]]}
    return tuple(f"{counted(number, said[name][0])} {said[name][1]}" for name, number in found.items())


def _places(found: Groups) -> Section:
    columns = ["address", "queue", DEATHS, KILLED, WAITING, "brought back", "attempts min", "attempts mean"]
    columns += ["attempts max", "first death", "last death", "oldest waiting"]
    chart = Chart("address", (DEATHS,), "Dead letters by address of origin")
    note = "Without a queue: the message was unroutable."
    return section(
        "places", "Where they died", found.table.select(columns), beyond=found.beyond, note=note, chart=chart
    )


def _oldest(deaths: DataFrame, top: int, coverage: Coverage) -> Section:
    waiting = deaths.where(F.col("outcome") == WAITING).select(
        F.col("new_message_id").alias("message"),
        F.col("message_id").alias("was"),
        "address",
        "queue",
        "reason",
        *LINK_NOTES,
        "attempts",
        F.col("time").alias("died"),
        F.round((F.lit(coverage.last_time) - F.unix_millis("time")) / 1000, 3).alias("age (s)"),
    )
    table, beyond = most(waiting, [F.asc("died"), F.asc("message")], top)
    note = "The age is the time until the last record read."
    return section("oldest", "The oldest dead letters still waiting", table, beyond=beyond, note=note)


def _counted(found: Groups, name: str, title: str, *, note: str = "") -> Section:
    """Deaths by one attribute, the most frequent value first."""
    by = list(_GROUPINGS[name])
    table = found.table.select([*by, DEATHS, "first death", "last death"])
    chart = Chart(by[0], (DEATHS,), title)
    return section(name, title, table, beyond=found.beyond, note=note, chart=chart)


def _links(found: Groups) -> Section:
    """Deaths on links, by the address at the other broker; a killed message has no record of where."""
    table = found.table.filter(pc.field("link").is_valid())
    return _counted(Groups(table, found.beyond), "links", "On links to other brokers")


def _hours(found: Groups) -> Section:
    """Deaths by hour, with a column for each reason that occurs."""
    table = found.table.sort_by("hour")
    reasons = [reason for reason in REASONS if pc.any(pc.greater(table[reason], 0)).as_py()]
    chart = Chart("hour", tuple(reasons), "Dead letters by hour (UTC)")
    shown = table.select(["hour", DEATHS, *reasons])
    return section("hours", "When they died", shown, beyond=found.beyond, chart=chart)


def _attempts(found: Groups) -> Section:
    table = found.table.select(["deliveries", DEATHS]).sort_by("deliveries")
    note = f"{ATTEMPTS_MAX} means {ATTEMPTS_MAX} or more."
    chart = Chart("deliveries", (DEATHS,), "Deliveries before death")
    return section("attempts", "How often they had been delivered", table, note=note, chart=chart)


def _durations(found: Groups) -> Section:
    timed = found.table.filter(pc.field("band").is_valid()).sort_by("band")
    words = pa.array([DURATIONS[band][1] for band in timed["band"].to_pylist()], pa.string())
    table = pa.table({"time to death": words, DEATHS: timed[DEATHS]})
    chart = Chart("time to death", (DEATHS,), "From the first failure to death")
    return section("durations", "From the first failure to death", table, note=_TIMED, chart=chart)


def _durations_by_address(deaths: DataFrame, top: int) -> Section:
    """A separate query: quantiles among the other groupings' sums would make Spark sort for all of them."""
    timed = deaths.where(F.col("took").isNotNull()).groupBy("address")
    counted = timed.agg(F.count("*").alias(DEATHS), *quantiles("took"))
    table, beyond = most(counted, [F.desc(DEATHS), F.asc("address")], top)
    return section(
        "durations-by-address", "From the first failure to death, by address", table, beyond=beyond, note=_TIMED
    )


def _replay_outcomes(found: Groups) -> Section:
    table = found.table.filter(pc.field("replay_outcome").is_valid())
    title = "What happened to those brought back"
    return _counted(Groups(table, found.beyond), "replay-outcomes", title)
