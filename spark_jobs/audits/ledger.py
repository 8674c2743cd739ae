"""The ledger: every message that entered a queue left it once, for a recorded reason, or is still there (see `rules`).

1. In one scan of the journal, Spark counts the records and judges each message individually (`queue_flows`).
2. The driver collects the counts by queue and the first faults, and draws up the balance (`rules`, `statement`).
3. Only if there are faults, another scan fetches the history of the listed messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from spark_jobs.audits import history, opening, queue_flows, rules, statement
from spark_jobs.audits.compare import BadComparison, Expected, differences
from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.frames import collect, most
from spark_jobs.audits.history import ROWS_MAX, TYPES, History
from spark_jobs.audits.opening import BadBalance, Balance
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import Journal
from spark_jobs.audits.rules import Ids, QueueBook, QueuePresent, Row
from spark_jobs.audits.statement import Figures
from spark_jobs.journal.bounds import Bounds
from spark_jobs.journal.schema import DAMAGE
from spark_jobs.journal.segments import SegmentRef, next_id_at
from spark_jobs.journal.walk import UNKNOWN
from spark_jobs.results import Coverage, Damage, Result, Section, Verdict, section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.journal.snapshot import Snapshot

#: Maximum number of messages of a closing balance in memory at a time: 32 bytes each.
SLICE_MESSAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LedgerOptions(Options):
    """The options of a ledger.

    `opening` is the directory of a balance from which to start, `save_balance` where to write the closing balance.
    `expected` is the running broker's balance: the ledger then ends exactly there.  More present messages than
    `fail_over` exceed the threshold.
    """

    opening: str | None = None
    save_balance: str | None = None
    expected: Expected | None = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        begun = self.from_position is not None or self.from_time is not None
        if self.opening is not None and begun:
            raise ValueError("opening: the range begins where the balance ends, so do not give its beginning")
        if self.expected is not None and (self.to_position is not None or self.to_time is not None):
            raise ValueError("compare: the range ends where the broker is now, so do not give its end")
        if self.expected is not None and begun:
            raise ValueError("compare: part of the journal is not enough to know the contents of the queues")
        if self.save_balance is not None and (self.addresses or begun):
            raise ValueError("save-balance: a balance covers all queues, from the beginning or from an opening balance")
        if self.save_balance is not None and self.to_time is not None:
            raise ValueError("save-balance: a balance ends at a position, not at a time")


def ledger(spark: SparkSession, snapshot: Snapshot, options: LedgerOptions) -> Result:
    """Run the audit.  Raises BadBalance, BadComparison, NoSuchAddress, OSError."""
    opened = None if options.opening is None else _open(options.opening, snapshot)
    with Journal(spark, snapshot, options, _bounds(options, opened, snapshot), connected=True) as journal:
        return Ledger(journal, options, opened).result()


def _open(directory: str, snapshot: Snapshot) -> Balance:
    balance = opening.read(directory)
    if balance.broker_id != snapshot.broker_id:
        raise BadBalance(f"{directory}: the balance belongs to broker {balance.broker_id}, the journal to another")
    if balance.position > snapshot.next_position:
        raise BadBalance(
            f"{directory}: the balance ends at position {balance.position}, but the journal ends before, at "
            f"{snapshot.next_position}"
        )
    return balance


def _bounds(options: LedgerOptions, opened: Balance | None, snapshot: Snapshot) -> Bounds:
    """The range to read; empty if nothing happened after the balance.  Raises BadBalance, BadComparison."""
    expected = options.expected
    if expected is not None and expected.broker_id != snapshot.broker_id:
        raise BadComparison(
            f"the running broker is {expected.broker_id}, but the journal belongs to {snapshot.broker_id}"
        )
    end = expected.position if expected else options.to_position
    if opened is not None and end is not None and end < opened.position:
        raise BadBalance(
            f"{options.opening}: the balance ends at position {opened.position}, but the range ends before, at {end}"
        )
    return Bounds(opened.position if opened else options.from_position, end, options.from_time, options.to_time)


class Ledger:
    """One ledger in progress."""

    def __init__(self, journal: Journal, options: LedgerOptions, opened: Balance | None) -> None:
        self.journal = journal
        self.options = options
        self.opened = opened
        self.outside = queue_flows.around(journal)
        self._read(finished=False)
        if stored_twice(self.stored, opened.below if opened else 0) or self.fault_counts:
            # If a finished message also did something in another task, this is a fault, but perhaps not the one that it
            # seems to be, or an unnoticed one: therefore, judge all messages.
            self._read(finished=True)

    def _read(self, *, finished: bool) -> None:
        journal = self.journal
        records = queue_flows.records(journal, finished=finished)
        self.records = records if finished else journal.keep(records)  # the complete records are too many to keep
        self.stored = queue_flows.stored(self.records).toArrow().to_pylist()
        messages = queue_flows.messages(self.records, self.outside, self._opening(), self._unseen())
        self.messages = journal.keep(messages)
        # Moved messages are easy to recognize, and few; but if anything seems wrong, consider all messages.
        successors = queue_flows.entries(records, self.outside) if finished else self.messages.where("moved")
        self.faults = queue_flows.faults(self.messages, successors)
        if finished:  # otherwise, its input is already kept, and faults are rare
            self.faults = journal.keep(self.faults)
        self.fault_counts = _counts(self.faults)
        definitions = self.records.where(F.col("record_type").isin("queue", "queue-deleted", "dropped", DAMAGE))
        self.definitions = journal.keep(definitions) if finished else definitions

    def _opening(self) -> DataFrame | None:
        if self.opened is None or self.options.opening is None:
            return None
        return opening.frame(self.journal.spark, self.options.opening, self.opened)

    def _unseen(self) -> list[Ids]:
        """The ids of messages that may have entered out of sight: before the range, or in segments that the broker
        removed.  Ids ascend: these ids are higher than all stored before, and lower than all stored after.
        """
        snapshot = self.journal.snapshot
        holes = [(gap.first_segment, gap.last_segment, snapshot.open_below) for gap in snapshot.trimmed]
        if self.opened is None and self.journal.begins_within:
            following = next((ref for ref in snapshot.segments if _begins_later(ref, self.journal)), None)
            holes.append((0, 0, rules.EVERYTHING if following is None else next_id_at(following)))
        opened = self.opened.below if self.opened else 0
        return [
            Ids(
                max((each["highest"] + 1 for each in self.stored if each["segment"] < first), default=opened),
                min([lowest, *(each["lowest"] for each in self.stored if each["segment"] > last)]),
            )
            for first, last, lowest in holes
        ]

    @property
    def present(self) -> DataFrame:
        """The messages that are on queues."""
        return self.messages.where(F.col("state") == rules.PRESENT)

    def result(self) -> Result:
        """The complete result."""
        options, queues = self.options, self._queues
        self.journal.check_addresses({queue.address for queue in queues.values()})
        rules.balance(queues, queue_flows.flows(self.records).toArrow().to_pylist(), self._standings())
        books = {id: book for id, book in queues.items() if options.wants(book.address or None)}
        figures = self._figures(books)
        covered = self._coverage()
        verdict = rules.verdict(
            figures.fault_counts, books.values(), whole=covered.whole, differences=len(figures.differences or ())
        )
        total = rules.total(books.values())
        past = self._history(figures)
        if options.save_balance is not None:
            self._save(options.save_balance, covered, books, verdict)
        return Result(
            audit="ledger",
            coverage=covered,
            summary=statement.summary(figures, total),
            sections=self._sections(figures, total, past),
            verdict=verdict,
            problems=statement.problems(verdict, figures, total, covered),
            exceeded=options.exceeded(total.present),
            options=self._described(),
        )

    @cached_property
    def _queues(self) -> dict[int, QueueBook]:
        """The queues by id: names, and what they had in the opening balance."""
        opened = self.opened.queues if self.opened else ()
        found = {each.queue_id: QueueBook(each.queue_id, each.name, each.address, each.messages) for each in opened}
        for row in queue_flows.queue_names(self.definitions, self.outside).toArrow().to_pylist():
            book = found.setdefault(row["queue_id"], QueueBook(row["queue_id"]))
            book.name, book.address = row["queue"] or book.name, row["address"] or book.address
            book.deleted = row["deleted"]
        return found

    def _rows(self, type: str) -> DataFrame:
        return self.definitions.where(F.col("record_type") == type)

    def _standings(self) -> list[Row]:
        """The number of messages in each state for each queue, and when the oldest one entered."""
        rows = self.messages.where(F.col("state").isin(rules.PRESENT, rules.BEFORE)).groupBy("queue_id", "state")
        counts = rows.agg(F.count("*").alias("messages"), F.min("entered_time").alias("oldest"))
        return list(collect(counts).to_pylist())

    def _described(self) -> dict[str, str]:
        options = self.options.described(self.journal.snapshot.bounds)
        if self.options.opening is not None:
            options["opening"] = self.options.opening
        return options

    def _coverage(self) -> Coverage:
        snapshot = self.journal.snapshot
        damage = self.journal.damage(self.definitions)
        if self.opened is not None:
            # Messages of the opening balance may have left in records that the broker has removed since.
            damage += [
                Damage(gap.uri, 0, gap.first_position, gap.records, f"between the opening balance and now: {gap.what}")
                for gap in snapshot.trimmed
            ]
        end, expected = snapshot.next_position, self.options.expected
        if expected is not None and expected.position > end:
            what = f"the journal ends here, but the running broker has written up to position {expected.position - 1}"
            damage.append(Damage(", ".join(snapshot.journals), 0, end, expected.position - end, what))
        return coverage(snapshot, damage)

    def _figures(self, books: dict[int, QueueBook]) -> Figures:
        """Counts of all faults, and the first faults."""
        options = self.options
        faults, counts = self.faults, self.fault_counts
        if options.addresses and counts:
            faults = faults.where(F.col("queue_id").isNull() | F.col("queue_id").isin(*books))
            counts = _counts(faults)
        worst = F.array_position(F.array(*map(F.lit, rules.FAULTS)), F.col("what"))
        worst_first = faults.orderBy(worst, "queue_id", "message_id").limit(options.top)
        figures = Figures(books, worst_first.toArrow().to_pylist() if counts else [], counts)
        figures.stored = sum(each["messages"] for each in self.stored)
        if options.expected is not None:
            asked = tuple(queue for queue in options.expected.queues if options.wants(queue.address))
            figures.differences = differences(replace(options.expected, queues=asked), books)
        return figures

    def _history(self, figures: Figures) -> Section | None:
        """The journal's records of the listed messages."""
        if not figures.faults:
            return None
        found = _history_of(self.journal, sorted({fault["message_id"] for fault in figures.faults}))
        figures.places = found.places()
        table = found.table({id: book.name for id, book in self._queues.items() if book.name})
        return section("history", "The history of these messages", table, beyond=found.beyond)

    def _dropped(self) -> Section:
        """Messages that were accepted but never on a queue."""
        sums = self.journal.addressed(self._rows("dropped")).groupBy("address", "reason")
        rows = sums.agg(F.sum("count").alias("messages"), F.sum("size").alias("bytes"))
        table, beyond = most(rows, [F.desc("messages"), F.asc("address"), F.asc("reason")], self.options.top)
        note = "These messages were unroutable (no queue wanted them) or dropped (the address was full)."
        return section("dropped", "Accepted but never on a queue", table, beyond=beyond, note=note)

    def _sections(self, figures: Figures, total: QueueBook, past: Section | None) -> tuple[Section, ...]:
        found = [
            statement.faults(figures),
            past,
            None if figures.differences is None else statement.compared(figures.differences, self.options.top),
            statement.queues(figures, patterns_given=bool(self.options.addresses)),
            statement.ways(total),
            self._dropped(),
        ]
        return tuple(section for section in found if section is not None)

    # -- the closing balance ---------------------------------------------------------------------------------------

    def _save(self, directory: str, covered: Coverage, books: dict[int, QueueBook], verdict: Verdict) -> None:
        gone = self._rows("queue-deleted").select("queue_id").distinct()
        present = self.present.join(gone, "queue_id", "left_anti")
        (row,) = present.agg(F.count("*").alias("n"), F.max("message_id").alias("top")).collect()
        queues = tuple(
            QueuePresent(book.queue_id, book.name, book.address, book.present)
            for book in sorted(books.values(), key=lambda book: book.queue_id)
            if book.present
        )
        balance = Balance(
            broker_id=covered.broker_id,
            position=covered.next_position,
            time=covered.last_time,
            messages=row["n"],
            below=(row["top"] or 0) + 1,
            verdict=verdict.value,
            queues=queues,
        )
        opening.write(directory, balance, _slices(present, row["n"]))


def stored_twice(stored: list[dict[str, int]], below: int) -> bool:
    """Whether a segment may store an id that an earlier segment or the opening balance already has.

    Ids ascend: those of a segment (`lowest`, `highest`) are all higher than those of earlier segments.
    """
    for each in stored:
        if each["lowest"] < below:
            return True
        below = each["highest"] + 1
    return False


def _counts(faults: DataFrame) -> dict[str, int]:
    """The number of faults of each kind."""
    return {row["what"]: row["n"] for row in faults.groupBy("what").agg(F.count("*").alias("n")).collect()}


def _begins_later(ref: SegmentRef, journal: Journal) -> bool:
    """Whether a segment was begun after the range began."""
    bounds = journal.snapshot.bounds
    if bounds.from_position is not None:
        return ref.first_position != UNKNOWN and ref.first_position >= bounds.from_position
    return bounds.from_time is not None and ref.created >= bounds.from_time


def _history_of(journal: Journal, ids: list[int]) -> History:
    """The history of some messages, at most ROWS_MAX records."""
    kept = journal.keep(journal.records(TYPES, history.COLUMNS, message_ids=ids))
    rows = collect(kept.orderBy("position", "message_id").limit(ROWS_MAX)).to_pylist()
    return History(rows, max(0, kept.count() - ROWS_MAX))


def _slices(present: DataFrame, number: int) -> Iterator[pa.Table]:
    """The messages of a balance in slices, so that the driver's memory does not depend on their number."""
    rows = present.select(
        "queue_id", "message_id", F.col("entered_position").alias("position"), F.col("entered_time").alias("time")
    )
    slices = max(1, -(-number // SLICE_MESSAGES))
    for index in range(slices):
        chosen = F.pmod(F.hash("queue_id", "message_id"), F.lit(slices)) == index
        yield collect(rows.where(chosen).orderBy("queue_id", "message_id"))
