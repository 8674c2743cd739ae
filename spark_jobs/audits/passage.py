"""The messages that links transferred from one broker to another, according to the journals of both.

A message that a link forwarded to another Bartleby leaves as `forwarded`.  In the entry that stores it, the receiving
broker writes a duplicate id with the sending broker, the message's id there, and the time when it was enqueued there
(docs/journal-format.md).  So each message of each broker, its `origin`, has

    left      queues that it left as `forwarded`: several routes may forward a message of a topic
    taken     its duplicate ids in the journals of all brokers; copies of a duplicate id do not count again
    arrived   the addresses of these, each with the queue that it left
    there     queues of its origin on which it still is

and, for queues that links read, `erased` (purged, or deleted with the queue) and `ended` (left for any other reason).

    outcome            when
    -----------------  ---------------------------------------------------------------------------------------------
    unknown origin     the journal of its origin is not among those given
    doubled            accepted more than once at an address from one queue, or in more places than it left
    in transit         did not arrive, and it left when the other journals ended, or later
    cannot be told     did not arrive, or arrived too often, but the relevant journals do not reach back far enough
    lost               did not arrive, in all other cases
    passed on          arrived as often as it left
    in doubt           arrived, and still there: the origin has not received the confirmation
    not recorded       arrived, but its origin has no record of it: removed since, or the queue was not durable

`judged` implements this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_jobs.audits.reading import Journal

LOST: Final = "lost"
DOUBLED: Final = "doubled"
UNDECIDED: Final = "cannot be told"
DOUBT: Final = "in doubt"
TRANSIT: Final = "in transit"
UNKNOWN: Final = "unknown origin"
UNRECORDED: Final = "not recorded"
PASSED: Final = "passed on"

#: All outcomes, worst first.
OUTCOMES: Final = (LOST, DOUBLED, UNDECIDED, DOUBT, TRANSIT, UNKNOWN, UNRECORDED, PASSED)
#: The outcomes whose messages are listed.
LISTED: Final = (LOST, DOUBLED, UNDECIDED, DOUBT, TRANSIT)

#: Tolerance for the times of two journals, in ms: they are listed one after the other, and clocks differ.
MARGIN_MS: Final = 60_000

_FORWARDED: Final = "forwarded"
_ERASED: Final = ("purged", "deleted")
_KEY: Final = ("origin", "message_id")
_LINK_ID: Final = ("link_broker_id", "link_message_id", "link_queue_id")
#: A place where a message must arrive only once: an address, with the queue it came from.
_PLACE: Final = ("broker", "address_id", "link_queue_id")


@dataclass(frozen=True, slots=True)
class Books:
    """The period that one journal covers, in ms since the epoch.

    `end`: when its last entry was sealed; `begin`: when the segment after the last trimmed hole was begun, 0 if there
    is no such hole.
    """

    origin: str
    end: int
    begin: int


def crossings(journals: Sequence[Journal]) -> DataFrame:
    """One row per message that left or arrived by a link, with its id at its origin.

    The columns are origin, message_id, queues, taken, enqueued and left_time: `queues` are those that it left; `taken`
    has (broker, address_id, link_queue_id, taken_as) for each arrival.
    """
    types = ("removed", "duplicate-id")
    columns = ("broker_id", "time", "message_id", "queue_id", "reason", "address_id", "enqueued")
    read = together([journal.records(types, (*columns, *_LINK_ID)) for journal in journals])
    arrived = F.col("link_broker_id").isNotNull()
    left = F.col("reason") == _FORWARDED
    broker = F.col("broker_id").alias("broker")
    place = F.struct(broker, "address_id", "link_queue_id", F.col("message_id").alias("taken_as"))
    events = read.where(left | arrived).select(
        F.coalesce("link_broker_id", "broker_id").alias("origin"),
        F.coalesce("link_message_id", "message_id").alias("message_id"),
        "queue_id",
        F.when(arrived, place).alias("place"),
        F.when(arrived, F.col("enqueued")).alias("enqueued"),
        F.when(left, F.col("time")).alias("left_time"),
    )
    return events.groupBy(*_KEY).agg(
        F.collect_set("queue_id").alias("queues"),
        F.collect_set("place").alias("taken"),
        F.min("enqueued").alias("enqueued"),
        F.max("left_time").alias("left_time"),
    )


def is_simple() -> Column:
    """Whether a message left once and arrived once: these need no further check."""
    return (F.size("queues") == 1) & (F.size("taken") == 1)


def link_queues(crossings: DataFrame) -> DataFrame:
    """The columns (origin, queue_id) of the queues that links read."""
    return crossings.select("origin", F.explode("queues").alias("queue_id")).distinct()


def waiting(present: DataFrame, crossings: DataFrame) -> DataFrame:
    """The columns (origin, queue_id, message_id) of messages on queues that links read, and that have not arrived.

    `present` has all messages on queues.
    """
    on_links = present.join(link_queues(crossings), ["origin", "queue_id"], "left_semi")
    return on_links.join(crossings.where(F.size("taken") > 0), [*_KEY], "left_anti")


def known(journals: Sequence[Journal], open_: DataFrame, present: DataFrame, queues: DataFrame) -> DataFrame:
    """These messages in the journals of their origins: (origin, message_id, sent, erased, ended, there)."""
    types, columns = ("message", "copied", "removed"), ("message_id", "queue_id", "reason", "sent")
    found = together([journal.records(types, ("broker_id", *columns)) for journal in journals])
    found = found.select(F.col("broker_id").alias("origin"), *columns).join(open_, [*_KEY], "left_semi")
    of_links = queues.withColumn("of_link", F.lit(True))
    left = F.col("of_link") & (F.col("reason") != _FORWARDED)
    erased = F.col("reason").isin(*_ERASED)
    ends = found.join(of_links, ["origin", "queue_id"], "left").groupBy(*_KEY)
    ended = ends.agg(
        F.min("sent").alias("sent"),
        F.count_if(left & erased).alias("erased"),
        F.count_if(left & ~erased).alias("ended"),
    )
    there = present.join(open_, [*_KEY], "left_semi").groupBy(*_KEY).agg(F.count("*").alias("there"))
    return ended.join(there, [*_KEY], "full")


def judged(open_: DataFrame, known: DataFrame, books: Sequence[Books]) -> DataFrame:
    """The `outcome` of messages, with the columns that determine it."""
    places = F.transform("taken", lambda each: F.struct(*[each[name] for name in _PLACE]))
    found = open_.join(known, [*_KEY], "left").select(
        *open_.columns,
        "sent",
        F.size("queues").alias("left"),
        F.size(F.array_distinct(places)).alias("arrived"),
        *[F.coalesce(name, F.lit(0)).alias(name) for name in ("there", "erased", "ended")],
    )
    return found.withColumn("outcome", _outcome(books))


def _outcome(books: Sequence[Books]) -> Column:
    left, arrived, there, erased = (F.col(name) for name in ("left", "arrived", "there", "erased"))
    ends = {each.origin: min((other.end for other in books if other is not each), default=0) for each in books}
    begins = {each.origin: max((other.begin for other in books if other is not each), default=0) for each in books}
    ended_then = F.unix_millis("left_time") >= _of(ends) - MARGIN_MS
    before_the_books = (_of(begins) > 0) & (F.col("sent").isNull() | (F.unix_millis("sent") <= _of(begins) + MARGIN_MS))
    not_yet_there = F.unix_millis("enqueued") >= _of({each.origin: each.end for each in books}) - MARGIN_MS
    went_by_link = F.col("sent").isNotNull() & (left + F.col("ended") > 0)
    return (
        F.when(~F.col("origin").isin(*[each.origin for each in books]), UNKNOWN)
        .when(F.size("taken") > arrived, DOUBLED)
        .when((arrived < left) & ended_then, TRANSIT)
        .when((arrived < left) & before_the_books, UNDECIDED)
        .when(arrived < left, LOST)
        .when(arrived <= left + erased, PASSED)
        .when(arrived <= left + erased + there, DOUBT)
        .when(went_by_link, DOUBLED)
        .when(not_yet_there, DOUBT)
        .when(left > 0, UNDECIDED)
        .otherwise(UNRECORDED)
    )


def _of(values: dict[str, int]) -> Column:
    """The value for a message's origin."""
    pairs = [F.lit(part) for pair in values.items() for part in pair]
    return F.create_map(*pairs)[F.col("origin")]


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """The union of these frames."""
    return reduce(DataFrame.unionByName, frames)
