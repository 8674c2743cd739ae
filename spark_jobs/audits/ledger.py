"""The ledger: every message that entered a queue has left it by name, once, or is still there.  `rules` has the rules.

How it is computed, so that the journal is read once and only little of it moves between machines:

1. one scan (`sieve`, `findings`).  What must agree within an entry is compared beside the bytes; what entered and left
   within a partition is only counted there;
2. the rest, and the opening balance, meets by (queue, message), and each such message is judged (`tally`);
3. counts by queue, and the first faults, come to the driver, which draws the balance (`rules`, `statement`);
4. only for faults, another scan fetches the history of the messages that are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from spark_jobs.audits import history, opening, rules, statement
from spark_jobs.audits.compare import BadComparison, Expected, differences
from spark_jobs.audits.coverage import coverage
from spark_jobs.audits.frames import collect
from spark_jobs.audits.history import ROWS_MAX, TYPES, History
from spark_jobs.audits.opening import BadBalance, Balance, QueuePresent
from spark_jobs.audits.options import Options
from spark_jobs.audits.reading import Journal
from spark_jobs.audits.rules import Fault, QueueBook, QueueName, Standing
from spark_jobs.audits.statement import Figures
from spark_jobs.audits.tables import section
from spark_jobs.audits.tally import Tally
from spark_jobs.journal.schema import DAMAGE
from spark_jobs.results import Coverage, Damage, Result, Section, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.journal.snapshot import Snapshot

#: Messages of a closing balance that are in memory at a time: 32 bytes each.
SLICE_MESSAGES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LedgerOptions(Options):
    """`opening`: the directory of a balance to begin with; `save_balance`: where to put the closing one.  `expected`:
    what the running broker says; the ledger then ends exactly there.  More present messages than `fail_over` exceed
    the threshold.
    """

    opening: str | None = None
    save_balance: str | None = None
    expected: Expected | None = None

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        begun = self.from_position is not None or self.from_time is not None
        if self.opening is not None and begun:
            raise ValueError("opening: the range begins where the balance ends; leave out its beginning")
        if self.expected is not None and (self.to_position is not None or self.to_time is not None):
            raise ValueError("compare: the range ends where the broker is now; leave out its end")
        if self.expected is not None and begun:
            raise ValueError("compare: what is on the queues is not known from a part of the journal")
        if self.save_balance is not None and (self.addresses or begun):
            raise ValueError("save-balance: a balance is of all queues, from the beginning or from an opening balance")
        if self.save_balance is not None and self.to_time is not None:
            raise ValueError("save-balance: a balance ends at a position, not at a time")


@dataclass(frozen=True, slots=True)
class _Within(Options):
    """Options with the bounds that a balance and the broker set.  They meet if nothing happened in between."""

    def __post_init__(self) -> None:
        """What was asked has been checked, and an empty range is none that anybody asked for."""


def ledger(spark: SparkSession, snapshot: Snapshot, options: LedgerOptions) -> Result:
    """The audit.  Raises BadBalance, BadComparison, NoSuchAddress, OSError."""
    opened = None if options.opening is None else _open(options.opening, snapshot)
    bounded = _bounded(options, opened, snapshot)
    with Journal(spark, snapshot, bounded) as journal:
        return _Ledger(journal, options, opened).result()


def _open(directory: str, snapshot: Snapshot) -> Balance:
    balance = opening.read(directory)
    if balance.broker_id != snapshot.broker_id:
        raise BadBalance(f"{directory}: the balance is of broker {balance.broker_id}, the journal of another")
    if balance.position > snapshot.next_position:
        raise BadBalance(
            f"{directory}: the balance ends at position {balance.position}, the journal already at "
            f"{snapshot.next_position}"
        )
    return balance


def _bounded(options: LedgerOptions, opened: Balance | None, snapshot: Snapshot) -> _Within:
    """The range to read, and what is asked of it.  Raises BadBalance, BadComparison."""
    expected = options.expected
    if expected is not None:
        if expected.broker_id != snapshot.broker_id:
            raise BadComparison(f"the running broker is {expected.broker_id}, the journal is {snapshot.broker_id}'s")
        if expected.position > snapshot.next_position:
            raise BadComparison(
                f"the broker was asked after the journal was looked at: it is at position {expected.position}, "
                f"the snapshot ends at {snapshot.next_position}"
            )
    end = expected.position if expected else options.to_position
    if opened is not None and end is not None and end < opened.position:
        raise BadBalance(
            f"{options.opening}: the balance ends at position {opened.position}, the range already at {end}"
        )
    return _Within(
        from_position=opened.position if opened else options.from_position,
        to_position=end,
        from_time=options.from_time,
        to_time=options.to_time,
        addresses=options.addresses,
        top=options.top,
        fail_over=options.fail_over,
    )


class _Ledger:
    """One ledger being drawn up."""

    def __init__(self, journal: Journal, options: LedgerOptions, opened: Balance | None) -> None:
        self.journal = journal
        self.options = options
        self.opened = opened
        self.tally = Tally(journal, options.opening, opened)

    def result(self) -> Result:
        """The whole."""
        options, tally = self.options, self.tally
        flows, names = tally.moved()
        self.journal.check_addresses({name.address for name in names.values()})
        standings, oldest = tally.standings()
        wanted = {id for id, name in names.items() if options.wants(name.address or None)}
        books = rules.balance(flows, standings, names.values())
        books = {id: book for id, book in books.items() if id in wanted or (id not in names and options.wants(None))}
        figures = self._figures(books, standings)
        figures.oldest = oldest
        covered = self._coverage()
        verdict = rules.verdict(
            figures.fault_counts, books.values(), whole=covered.whole, differences=len(figures.differences or ())
        )
        total = rules.total(books.values())
        told = self._history(figures, names)
        if options.save_balance is not None:
            self._save(options.save_balance, covered, books, verdict)
        return Result(
            audit="ledger",
            coverage=covered,
            summary=statement.summary(figures, total),
            sections=self._sections(figures, total, told),
            verdict=verdict,
            problems=statement.problems(verdict, figures, total, covered),
            exceeded=options.exceeded(total.present),
            options=self._described(),
        )

    def _described(self) -> dict[str, str]:
        told = self.journal.options.described()
        if self.options.opening is not None:
            told["opening"] = self.options.opening
        return told

    def _coverage(self) -> Coverage:
        damage, snapshot = self.tally.damage(), self.journal.snapshot
        if self.opened is not None:
            # What was open may have left in records that the broker has given up since.
            damage += [
                Damage(gap.uri, 0, gap.first_position, gap.records, f"between the opening balance and now: {gap.what}")
                for gap in snapshot.trimmed
            ]
        return coverage(snapshot, self.journal.options, damage)

    def _figures(self, books: dict[int, QueueBook], standings: list[Standing]) -> Figures:
        """Counts of all faults, and the first of them."""
        options = self.options
        queues = list(books) if options.addresses else None
        counts: Counter[str] = Counter()
        for standing in standings:
            if standing.state in rules.FAULTS and standing.queue_id in books:
                counts[standing.state] += standing.messages
        listed = self.tally.faults(queues, options.top) if counts else []
        died, died_counts = self.tally.death_faults(queues, options.top)
        figures = Figures(books, (listed + died)[: options.top], counts | died_counts)
        figures.stored = self.tally.stored
        if options.expected is not None:
            asked = tuple(queue for queue in options.expected.queues if options.wants(queue.address))
            figures.differences = differences(replace(options.expected, queues=asked), books)
        return figures

    def _history(self, figures: Figures, names: dict[int, QueueName]) -> Section | None:
        """What the journal says of the messages listed; with it, what is said of one that partly settled is mended."""
        if not figures.faults:
            return None
        found = _told(self.journal, sorted({fault.message_id for fault in figures.faults}))
        figures.places = found.places()
        for index, fault in enumerate(figures.faults):
            if fault.what in rules.MOVEMENT_FAULTS:
                figures.faults[index] = self._seen(figures, fault, found)
        table = found.table({id: name.name for id, name in names.items() if name.name})
        return section("history", "The history of these messages", table, beyond=found.beyond)

    def _seen(self, figures: Figures, fault: Fault, found: History) -> Fault:
        """A fault with all its movements; one of them may have settled with another, and be missing from the count."""
        entered, left = found.movements(fault.queue_id, fault.message_id)
        seen = replace(fault, entered=max(fault.entered, len(entered)), left=max(fault.left, len(left)))
        what = rules.state_of(seen, self.tally.open_below)
        if what not in rules.FAULTS or what == fault.what:
            return seen
        figures.fault_counts[fault.what] -= 1
        figures.fault_counts[what] = figures.fault_counts.get(what, 0) + 1
        return replace(seen, what=what)

    def _sections(self, figures: Figures, total: QueueBook, told: Section | None) -> tuple[Section, ...]:
        found = [
            statement.faults(figures),
            told,
            None if figures.differences is None else statement.compared(figures.differences, self.options.top),
            statement.queues(figures, patterns_given=bool(self.options.addresses)),
            statement.ways(total),
            self.tally.dropped(self.options.top),
        ]
        return tuple(section for section in found if section is not None)

    # -- the closing balance ---------------------------------------------------------------------------------------

    def _save(self, directory: str, covered: Coverage, books: dict[int, QueueBook], verdict: Verdict) -> None:
        present = self.tally.present()
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


def _told(journal: Journal, ids: list[int]) -> History:
    """The history of some messages, at most ROWS_MAX records."""
    kept = journal.keep(journal.records(TYPES, history.COLUMNS, ids=ids).where(F.col("record_type") != DAMAGE))
    rows = collect(kept.orderBy("position", "message_id").limit(ROWS_MAX)).to_pylist()
    return History(rows, max(0, kept.count() - ROWS_MAX))


def _slices(present: DataFrame, number: int) -> Iterator[pa.Table]:
    """The messages of a balance, so many at a time that the driver's memory does not depend on their number."""
    rows = present.select(
        "queue_id", "message_id", F.col("entered_position").alias("position"), F.col("entered_time").alias("time")
    )
    slices = max(1, -(-number // SLICE_MESSAGES))
    for index in range(slices):
        chosen = F.pmod(F.hash("queue_id", "message_id"), F.lit(slices)) == index
        yield collect(rows.where(chosen).orderBy("queue_id", "message_id"))
