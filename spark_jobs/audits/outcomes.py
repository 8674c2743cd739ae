"""The outcome of messages: still waiting, or how they left; and for moved messages, the outcome of their successors.

A message may be on several queues: it waits as long as it is on one of them; otherwise its outcome is how it last left.
If its queue was deleted without a record about the message, the message was deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from spark_jobs.audits.reading import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WAITING: Final = "waiting"
DELETED: Final = "deleted"
MOVED: Final = "moved"
UNKNOWN: Final = "unknown"

#: Maximum number of moves that are followed: no operator moves a message that often by hand, and a rule that moves
#: messages in a circle must not keep an audit busy forever.
HOPS_MAX: Final = 16


def outcomes(messages: DataFrame, removed: DataFrame, gone: DataFrame) -> DataFrame:
    """The columns (message_id, outcome) of messages (message_id, queue_ids, connected).

    `removed` has the departures (message_id, queue_id, position, reason), also of other messages; `gone` has the
    deleted queues (queue_id).  What became of messages that are not `connected` is unknown if they did not visibly
    leave.
    """
    pairs = messages.select("message_id", F.explode("queue_ids").alias("queue_id"), "connected")
    left = (
        removed.join(pairs, ["message_id", "queue_id"])
        .groupBy("message_id", "queue_id")
        .agg(F.max("position").alias("position"), F.max_by("reason", "position").alias("reason"))
    )
    deleted = gone.select("queue_id").distinct().withColumn("deleted", F.lit(True))
    ends = pairs.join(left, ["message_id", "queue_id"], "left").join(deleted, "queue_id", "left")
    waits = F.col("position").isNull() & F.col("deleted").isNull()
    return (
        ends.groupBy("message_id")
        .agg(
            F.bool_or(waits).alias("waits"),
            F.bool_or("connected").alias("connected"),
            F.max_by("reason", "position").alias("reason"),
        )
        .select(
            "message_id",
            F.when(F.col("waits") & F.col("connected"), WAITING)
            .when(F.col("waits"), UNKNOWN)
            .otherwise(F.coalesce("reason", F.lit(DELETED)))
            .alias("outcome"),
        )
    )


def replay_outcomes(journal: Journal, moved: DataFrame, links: DataFrame, known: DataFrame) -> DataFrame:
    """The columns (message_id, replay_outcome) of moved messages (message_id): the outcomes of their successors.

    `links` (message_id, origin_message_id) has the successors, `known` (message_id, outcome) their outcomes.  Messages
    moved again are followed further.
    """
    reached = moved.select("message_id", F.col("message_id").alias("successor"), F.lit(MOVED).alias("replay_outcome"))
    if reached.isEmpty():
        return reached.drop("successor")
    successors = links.groupBy("origin_message_id").agg(F.max("message_id").alias("next"))
    ended = known.select(F.col("message_id").alias("next"), F.col("outcome").alias("next_outcome"))
    step = journal.keep(successors.join(ended, "next", "left"))
    for _ in range(HOPS_MAX):
        on = (reached["successor"] == step["origin_message_id"]) & (reached["replay_outcome"] == MOVED)
        reached = journal.keep(
            reached.join(step, on, "left").select(
                "message_id",
                F.coalesce("next", "successor").alias("successor"),
                F.when(F.col("replay_outcome") != MOVED, F.col("replay_outcome"))
                .otherwise(F.coalesce("next_outcome", F.lit(UNKNOWN)))
                .alias("replay_outcome"),
            )
        )
        if reached.where(F.col("replay_outcome") == MOVED).isEmpty():
            break
    return reached.drop("successor")
