"""The ledger's queries on the records of a journal, as DataFrames:

    flows              the number of records that put messages on each queue or took them off, by reason
    messages           what each message did on each queue, its state, and contradictions about its death
    lost_successors    messages that should live on under a new id, but do not
    faults             everything that is wrong
    stored             the ids of the messages that each segment stores

`flows` counts records and `messages` judges messages: if the books balance, two ways to count agree.

Most messages come and go within the segments of one task.  They are not sent to Spark individually, but counted in rows
of type `finished` (see the option of the source).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from spark_jobs.audits import rules
from spark_jobs.audits.reading import DAMAGE_COLUMNS, Journal
from spark_jobs.audits.rules import Ids
from spark_jobs.journal.schema import FINISHED
from spark_jobs.journal.snapshot import PARTITION_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Number of tasks per core if finished messages are left out: more than one, as some cores finish earlier.
TASKS_PER_CORE: Final = 2

#: Maximum size of what one task reads if finished messages are left out.
TASK_BYTES_MAX: Final = 8 * PARTITION_BYTES

_ENTRIES: Final = ("message", "copied")
_DEATHS: Final = ("dead-lettered", "expired")
_TYPES: Final = (*_ENTRIES, "removed", *_DEATHS, "queue", "queue-deleted", "dropped")
_OF_MESSAGES: Final = (
    "time",
    "message_id",
    "new_message_id",
    "origin_message_id",
    "queue_id",
    "queue_ids",
    "reason",
)
_COLUMNS: Final = (*DAMAGE_COLUMNS, *_OF_MESSAGES, "queue", "address", "size", "previous_segment")


def records(journal: Journal, *, finished: bool) -> DataFrame:
    """All records that a ledger needs, and damage.  `finished`: also include finished messages individually.

    A COPIED record counts only if the segment of the original is gone: then it is the only record of the message's
    entry. Within a range, it says nothing about the time before.
    """
    bounds, segments = journal.snapshot.bounds, journal.snapshot.segments
    first = segments[0].number if segments and bounds.from_position is None and bounds.from_time is None else 0
    # The more a task reads, the more messages have come and gone within it; but no core should wait for another.
    tasks = TASKS_PER_CORE * journal.spark.sparkContext.defaultParallelism
    nbytes = None if finished else min(max(journal.snapshot.bytes // tasks, PARTITION_BYTES), TASK_BYTES_MAX)
    found = journal.with_damage(_TYPES, _COLUMNS, finished=finished, target_bytes=nbytes)
    return found.where(~_is("copied") | (F.col("previous_segment") < first))


def around(journal: Journal) -> DataFrame:
    """Records outside the range in the same segments: of an entry that the range cuts, and definitions of queues."""
    return journal.outside(("message", "removed", *_DEATHS, "queue"), ("position", *_OF_MESSAGES, "queue", "address"))


def stored(records: DataFrame) -> DataFrame:
    """(segment, messages, lowest, highest): the number of messages that each segment stores, and their range of ids."""
    finished = _is(FINISHED) & F.col("queue_id").isNull()
    number = F.when(finished, F.col("count")).otherwise(1)
    highest = F.when(finished, F.col("new_message_id")).otherwise(F.col("message_id"))
    ids = F.min("message_id").alias("lowest"), F.max(highest).alias("highest")
    messages = records.where(_is("message") | finished).groupBy("segment")
    return messages.agg(F.sum(number).alias("messages"), *ids).orderBy("segment")


def flows(records: DataFrame) -> DataFrame:
    """(queue_id, reason, entered, left): the numbers of records that put a message on each queue, or took one off."""
    number = F.when(_is(FINISHED), F.col("count")).otherwise(1)
    entered = F.when(_is(*_ENTRIES, FINISHED), number).otherwise(0)
    left = F.when(_is("removed", FINISHED), number).otherwise(0)
    moving = records.where(_is(*_ENTRIES, "removed") | (_is(FINISHED) & F.col("queue_id").isNotNull()))
    each = moving.select(_queues(), "reason", entered.alias("entered"), left.alias("left"))
    return each.groupBy("queue_id", "reason").agg(F.sum("entered").alias("entered"), F.sum("left").alias("left"))


def messages(records: DataFrame, outside: DataFrame, opening: DataFrame | None, unseen: Sequence[Ids]) -> DataFrame:
    """The way of each message through each queue, and its `state` (rules.state), without those that came and went.

    `outside` has records outside the range, `opening` the messages of an opening balance (opening.SCHEMA).

    For each way to die, `WAY explained` counts the records that explain it, and `WAY died` the removals.  Both are in
    one entry (promise P2), of which the range may contain only a part; `asked` says whether it contains any.
    `successor` is the new id in such a record; `moved`: the message had another id before.
    """
    inside = F.lit(True).alias("inside")
    records_of_both = records.select("record_type", "position", *_OF_MESSAGES, inside).unionByName(
        outside.select("record_type", "position", *_OF_MESSAGES, F.lit(False).alias("inside"))
    )
    about = records_of_both.where(_is(*_ENTRIES, "removed", *_DEATHS))
    events = about.select(_queues(), *[name for name in about.columns if name not in ("queue_id", "queue_ids")])
    if opening is not None:
        present = opening.withColumn("record_type", F.lit("message")).withColumn("inside", F.lit(True))
        events = events.unionByName(present, allowMissingColumns=True)
    entered = F.col("inside") & _is(*_ENTRIES)
    left = F.col("inside") & _is("removed")
    done = events.groupBy("queue_id", "message_id").agg(
        F.count_if(entered).alias("entered"),
        F.count_if(left).alias("left"),
        F.min(F.when(entered, F.col("position"))).alias("entered_position"),
        F.min(F.when(left, F.col("position"))).alias("left_position"),
        F.min(F.when(entered, F.col("time"))).alias("entered_time"),
        F.max(F.when(F.col("inside"), F.col("new_message_id"))).alias("successor"),
        F.bool_or(F.col("origin_message_id").isNotNull()).alias("moved"),
        F.bool_or(F.col("inside") & ~_is(*_ENTRIES)).alias("asked"),
        *[F.count_if(_explains(way)).alias(f"{way} explained") for way in rules.DEATHS],
        *[F.count_if(_is("removed") & (F.col("reason") == way)).alias(f"{way} died") for way in rules.DEATHS],
    )
    judged = done.withColumn("state", rules.state(unseen))
    came_and_went = F.col("state").isin(rules.GONE, rules.NOTHING) & F.col("successor").isNull() & ~F.col("moved")
    for way in rules.DEATHS:
        came_and_went &= F.col(f"{way} explained") == F.col(f"{way} died")
    return judged.where(~came_and_went)


def lost_successors(messages: DataFrame, stored: DataFrame) -> DataFrame:
    """(message_id): the new ids named by deaths that none of the `stored` messages has."""
    named = messages.where("successor IS NOT NULL").select(F.col("successor").alias("message_id"))
    return named.join(stored.select("message_id"), "message_id", "left_anti")


def entries(records: DataFrame, outside: DataFrame) -> DataFrame:
    """(message_id): all messages that these records store."""
    return (
        records.select("record_type", "message_id")
        .unionByName(outside.select("record_type", "message_id"))
        .where(_is(*_ENTRIES))
    )


def faults(messages: DataFrame, stored: DataFrame) -> DataFrame:
    """One row per fault: (what, queue_id, message_id, entered, left, way).  `stored`: see lost_successors."""
    moved = F.struct(
        F.when(F.col("state").isin(*rules.MOVEMENT_FAULTS), F.col("state")).alias("what"),
        "entered",
        "left",
        F.lit(None).cast("string").alias("way"),
    )
    died = [
        F.struct(
            F.when(F.col("asked") & F.col("queue_id").isNotNull(), rules.death_fault(way)).alias("what"),
            F.lit(0).cast("bigint").alias("entered"),
            F.col(f"{way} died").alias("left"),
            F.lit(way).alias("way"),
        )
        for way in rules.DEATHS
    ]
    found = messages.select("queue_id", "message_id", F.inline(F.array(moved, *died))).where("what IS NOT NULL")
    lost = lost_successors(messages, stored).withColumn("what", F.lit(rules.NO_SUCCESSOR))
    return found.unionByName(lost, allowMissingColumns=True)


def queue_names(records: DataFrame, outside: DataFrame) -> DataFrame:
    """(queue_id, queue, address, deleted): the queues that are defined or deleted here.

    A segment defines its queues at its beginning, which may be before the range.
    """
    columns = ("record_type", "queue_id", "queue", "address")
    inside = records.select(*columns).where(_is("queue", "queue-deleted"))
    defined = inside.unionByName(outside.select(*columns).where(_is("queue")))
    names = (F.max(F.when(_is("queue"), F.col(name))).alias(name) for name in ("queue", "address"))
    return defined.groupBy("queue_id").agg(*names, F.bool_or(_is("queue-deleted")).alias("deleted"))


def _is(*types: str) -> Column:
    return F.col("record_type").isin(*types)


def _queues() -> Column:
    """The queues that a record is about, one row each."""
    return F.explode(F.when(_is(*_ENTRIES), F.col("queue_ids")).otherwise(F.array("queue_id"))).alias("queue_id")


def _explains(way: str) -> Column:
    """Whether a record explains why a message died in this way."""
    lives_on = F.col("new_message_id").isNotNull()
    return {
        "dead-lettered": _is("dead-lettered") & lives_on,
        "killed": _is("dead-lettered") & ~lives_on,
        "expired": _is("expired"),
    }[way]
