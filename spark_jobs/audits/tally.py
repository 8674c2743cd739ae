"""The ledger's counting: from the journal to counts by queue, and to the messages that something is wrong with."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_jobs.audits import ids, opening, rules
from spark_jobs.audits.findings import FAULT, GONE, RANGE
from spark_jobs.audits.frames import collect, most
from spark_jobs.audits.ids import Range
from spark_jobs.audits.opening import Balance
from spark_jobs.audits.reading import DAMAGE_MAX, Journal, damage_rows
from spark_jobs.audits.rules import Fault, Flow, QueueName, Standing
from spark_jobs.audits.tables import section
from spark_jobs.journal.schema import DAMAGE
from spark_jobs.results import Damage, Section

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame


class Tally:
    """What a ledger is drawn from.  `directory`: where the opening balance is, if there is one.

    `open_below` is that of `rules.judge`, `stored` the number of messages stored.
    """

    def __init__(self, journal: Journal, directory: str | None, opened: Balance | None) -> None:
        self._journal = journal
        self._opened = opened
        self.open_below = ids.open_below(journal, opened=opened is not None)
        keep_below = max(opened.below if opened else 0, self.open_below)
        self._scanned = self._scan(keep_below)
        ranges, self._deleted = self._ranges_and_deleted()
        overlap = ids.settle_above(ranges)
        if overlap > keep_below:
            # Some ids were stored twice.  Then nothing that relies on their order is known.
            self.open_below = ids.limit_told(journal, opened=opened is not None)
            self._scanned = self._scan(max(overlap, keep_below, self.open_below))
        self.stored = sum(each.messages for each in ranges)
        self._judged = journal.keep(self._judge(directory))

    def _scan(self, keep_below: int) -> DataFrame:
        return self._journal.keep(self._journal.ledger(keep_below=keep_below))

    def _ranges_and_deleted(self) -> tuple[list[Range], set[int]]:
        """The ids that the segments store, and the queues that were deleted."""
        few = self._of(RANGE, GONE).select("kind", "queue_id", "count", "lowest", "highest", "segment")
        rows = few.toArrow().to_pylist()
        ranges = [
            Range(row["segment"], row["count"], row["lowest"], row["highest"]) for row in rows if row["kind"] == RANGE
        ]
        return ranges, {row["queue_id"] for row in rows if row["kind"] == GONE}

    def _judge(self, directory: str | None) -> DataFrame:
        """Every message on its queue that did not settle within a partition, and its state."""
        pairs = self._of("open").select(
            "queue_id",
            "message_id",
            "entered",
            "left",
            "entered_position",
            "left_position",
            "entered_time",
            _opening(0),
        )
        if self._opened is not None and directory is not None:
            pairs = pairs.unionByName(self._opening_pairs(directory, self._opened))
        summed = pairs.groupBy("queue_id", "message_id").agg(
            F.sum("entered").alias("entered"),
            F.sum("left").alias("left"),
            F.sum("opening").alias("opening"),
            F.coalesce(F.min("entered_position"), F.lit(-1)).alias("entered_position"),
            F.coalesce(F.min("left_position"), F.lit(-1)).alias("left_position"),
            F.min("entered_time").alias("entered_time"),
        )
        judged = rules.judge({name: F.col(name) for name in summed.columns}, self.open_below)
        state = reduce(lambda chosen, each: F.when(each[1], each[0]).otherwise(chosen), reversed(judged), F.lit(""))
        return summed.withColumn("state", state)

    def _opening_pairs(self, directory: str, balance: Balance) -> DataFrame:
        rows = opening.frame(self._journal.spark, directory, balance)
        return rows.select(
            "queue_id",
            "message_id",
            F.lit(1).alias("entered"),
            F.lit(0).alias("left"),
            F.col("position").alias("entered_position"),
            F.lit(None).cast("bigint").alias("left_position"),
            F.col("time").alias("entered_time"),
            _opening(1),
        )

    def _of(self, *kinds: str) -> DataFrame:
        return self._scanned.where(F.col("kind").isin(*kinds))

    # -- counts ----------------------------------------------------------------------------------------------------

    def moved(self) -> tuple[list[Flow], dict[int, QueueName]]:
        """What moved on each queue, and what the queues are called."""
        sums = self._of("settled", "open").groupBy("queue_id", "reason")
        rows = sums.agg(
            F.sum("entered").alias("entered"),
            F.sum("left").alias("left"),
            F.max("queue").alias("queue"),
            F.max("address").alias("address"),
        )
        flows: list[Flow] = []
        names: dict[int, tuple[str, str]] = {
            queue.queue_id: (queue.name, queue.address) for queue in (self._opened.queues if self._opened else ())
        }
        for row in rows.toArrow().to_pylist():
            id = row["queue_id"]
            flows.append(Flow(id, row["reason"] or "", row["entered"], row["left"]))
            before = names.get(id, ("", ""))
            names[id] = (row["queue"] or before[0], row["address"] or before[1])
        return flows, {id: QueueName(id, *name, id in self._deleted) for id, name in names.items()}

    def standings(self) -> tuple[list[Standing], dict[int, datetime]]:
        """How many messages of each queue are in which state, and when the oldest present one entered."""
        rows = self._judged.groupBy("queue_id", "state").agg(
            F.count("*").alias("n"), F.sum("opening").alias("opening"), F.min("entered_time").alias("oldest")
        )
        found = collect(rows).to_pylist()
        oldest = {row["queue_id"]: row["oldest"] for row in found if row["state"] == rules.PRESENT}
        return [Standing(row["queue_id"], row["state"], row["n"], row["opening"]) for row in found], oldest

    def damage(self) -> list[Damage]:
        """What could not be read."""
        rows = self._of(DAMAGE).select(
            "segment", "offset", F.col("entered_position").alias("position"), "count", "text"
        )
        table = rows.orderBy("segment", "offset").limit(DAMAGE_MAX).toArrow()
        return damage_rows(self._journal.snapshot, table)

    def dropped(self, top: int) -> Section:
        """What was accepted and never on a queue."""
        rows = self._journal.addressed(self._of("dropped"))
        sums = rows.groupBy("address", "reason").agg(F.sum("count").alias("messages"), F.sum("bytes").alias("bytes"))
        table, beyond = most(sums, [F.desc("messages"), F.asc("address"), F.asc("reason")], top)
        note = "Accepted, and on no queue: no queue wanted them (unroutable), or the address was full (dropped)."
        return section("dropped", "Accepted but never on a queue", table, beyond=beyond, note=note)

    # -- messages --------------------------------------------------------------------------------------------------

    def faults(self, queues: list[int] | None, top: int) -> list[Fault]:
        """The first messages that moved as they must not.  `queues`: only of these, None: of all."""
        faulty = self._judged.where(F.col("state").isin(*rules.FAULTS))
        if queues is not None:
            faulty = faulty.where(F.col("queue_id").isin(queues))
        fields = ("queue_id", "message_id", "entered", "left", "entered_position", "left_position")
        rows = faulty.orderBy("queue_id", "message_id").limit(top).select("state", *fields).toArrow()
        return [Fault(what=row.pop("state"), **row) for row in rows.to_pylist()]

    def death_faults(self, queues: list[int] | None, top: int) -> tuple[list[Fault], dict[str, int]]:
        """The first deaths of which two records do not agree, and how many there are of each kind."""
        wrong = self._of(FAULT)
        if queues is not None:
            wrong = wrong.where(F.col("queue_id").isNull() | F.col("queue_id").isin(queues))
        fields = ("text", "queue_id", "message_id", "left", "reason")
        listed = wrong.orderBy("position", "message_id").limit(top).select(*fields).toArrow().to_pylist()
        found = [
            Fault(row["text"], row["queue_id"] or 0, row["message_id"], left=row["left"] or 0, way=row["reason"] or "")
            for row in listed
        ]
        if len(listed) < top:
            return found, Counter(fault.what for fault in found)
        counted = wrong.groupBy("text").agg(F.count("*").alias("n")).toArrow().to_pylist()
        return found, {row["text"]: row["n"] for row in counted}

    def present(self) -> DataFrame:
        """All messages that are on a queue."""
        gone = self._of(GONE).select("queue_id").distinct()
        return self._judged.where(F.col("state") == rules.PRESENT).join(gone, "queue_id", "left_anti")


def _opening(number: int) -> Column:
    return F.lit(number).cast("bigint").alias("opening")
