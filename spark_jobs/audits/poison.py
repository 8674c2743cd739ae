"""Poison: messages that die repeatedly, under one id or several.

A candidate is anything that two or more deaths have in common: the body, a key chosen by the sender, or one message
that died more than once because it was brought back or was on several queues.  It is an indication, not a proof:
messages of one group may die for different reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from spark_jobs.audits.frames import most
from spark_jobs.results import Section, section

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from spark_jobs.audits.reading import Journal

#: The keys, and the headers in which senders write them; the first one present counts.
KEYS: Final[dict[str, tuple[str, ...]]] = {
    "duplicate id": ("_AMQ_DUPL_ID",),
    "correlation id": ("JMSCorrelationID", "correlation-id"),
    "message id": ("message-id", "JMSMessageID"),
    "group": ("JMSXGroupID", "_AMQ_GROUP_ID"),
}
BODY: Final = "body"
CHAIN: Final = "same message"

#: Minimum number of deaths of a candidate.
DEATHS_MIN: Final = 2

#: Maximum number of killed messages whose content is looked up.  For dead letters there is no limit: their copies are
#: few and easy to recognize; a killed message looks like any other.
KILLED_MAX: Final = 10_000

#: Maximum number of characters shown of a key, which a client chose; keys are compared in full.
KEY_CHARACTERS_MAX: Final = 100


def section_of(journal: Journal, deaths: DataFrame) -> Section:
    """The candidates.  `deaths` has message_id, new_message_id, root, address, reason and time."""
    # A dead letter has the body and headers of the dead message, and may exist even if that message's record does not.
    body = F.coalesce("new_message_id", "message_id").alias("content_id")
    died = deaths.select(body, "root", "address", "reason", "time")
    found = _contents(journal, deaths).withColumnRenamed("message_id", "content_id")
    hash = F.when(F.col("body_bytes") > 0, F.col("body_hash"))  # an empty body does not identify anything
    headers = [_key(key, F.coalesce(*[F.col("properties")[name] for name in names])) for key, names in KEYS.items()]
    keys = F.array(_key(CHAIN, F.col("root").cast("string")), _key(BODY, hash), *headers)
    keyed = died.join(found, "content_id", "left").select(F.inline(keys), "root", "address", "reason", "time")
    counted = journal.keep(
        keyed.where(F.col("value").isNotNull())
        .groupBy("key", "value")
        .agg(
            F.count("*").alias("deaths"),
            F.count_distinct("root").alias("messages"),
            F.min("address").alias("address"),
            F.count_distinct("address").alias("addresses"),
            F.min("time").alias("first death"),
            F.max("time").alias("last death"),
            F.max_by("reason", "time").alias("last reason"),
        )
        .where(F.col("deaths") >= DEATHS_MIN)
    )
    order = [F.desc("deaths"), F.desc("last death"), F.asc("key"), F.asc("value")]
    shown = counted.withColumn("value", F.substring("value", 1, KEY_CHARACTERS_MAX))
    table, beyond = most(shown, order, journal.options.top)
    note = "What two or more deaths have in common: bodies by hash, messages that were brought back by their first id."
    return section("poison", "Poison candidates", table, beyond=beyond, note=note)


def _contents(journal: Journal, deaths: DataFrame) -> DataFrame:
    """Headers and bodies of dead letters, together with all other moved messages, and of killed messages.

    A dead letter is in the entry of its death; a killed message may have been copied forward before it died.
    """
    columns = ("message_id", "origin_message_id", "body_bytes", "body_hash", "properties")
    contents = journal.records(("message",), columns, not_null=("origin_message_id",))
    killed = _killed(deaths)
    if killed:
        others = journal.records(("message", "copied"), columns, message_ids=killed)
        contents = contents.unionByName(others).dropDuplicates(["message_id"])
    return contents


def _killed(deaths: DataFrame) -> list[int]:
    """The latest killed messages: no copy has their content."""
    killed = deaths.where(F.col("new_message_id").isNull()).orderBy(F.desc("time"), F.desc("message_id"))
    found: list[int] = killed.limit(KILLED_MAX).select("message_id").toArrow()["message_id"].to_pylist()
    return found


def _key(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), F.when(value != "", value).alias("value"))
