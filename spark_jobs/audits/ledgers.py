"""The ledger of several brokers' journals: each broker's own, and the messages that links transferred between them.

The tables of all ledgers are combined, with the journal as the first column.  `passage` has the rules for transferred
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.audits import passage
from spark_jobs.audits.frames import collect
from spark_jobs.audits.ledger import Ledger, LedgerOptions
from spark_jobs.audits.passage import Books
from spark_jobs.audits.reading import Journal
from spark_jobs.journal.walk import UNKNOWN
from spark_jobs.results import UTC, Chart, Coverage, Result, Section, Verdict, section
from store.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.journal.snapshot import Snapshot

#: On a queue that a link reads, and not transferred yet.
WAITING: Final = "waiting for a link"

_FAULTS: Final = (passage.LOST, passage.DOUBLED)

#: The problems: descriptions of the outcomes that need attention.
_SAID: Final = {
    passage.LOST: "lost: they left as forwarded, but none of the given journals has them",
    passage.DOUBLED: "doubled: they arrived more often than they left",
    passage.UNDECIDED: "cannot be told: the journals do not reach back far enough (turn on retention)",
    passage.UNKNOWN: "unknown origin: the sending brokers' journals are not among those given",
}

_JOURNALS: Final = pa.schema(
    [
        ("journal", pa.string()),
        ("verdict", pa.string()),
        ("broker", pa.string()),
        ("segments", pa.int64()),
        ("size (bytes)", pa.int64()),
        ("first position", pa.int64()),
        ("last position", pa.int64()),
        ("last entry", UTC),
    ]
)
_PASSAGE: Final = pa.schema(
    [("from", pa.string()), ("to", pa.string()), ("outcome", pa.string()), ("messages", pa.int64())]
)
_MESSAGES: Final = pa.schema(
    [
        ("outcome", pa.string()),
        ("message", pa.int64()),
        ("from", pa.string()),
        ("enqueued", UTC),
        ("left at", UTC),
        ("left", pa.int64()),
        ("arrived", pa.int64()),
        ("to", pa.string()),
        ("arrived as message", pa.string()),
        ("still there", pa.int64()),
    ]
)


class OneJournalOnly(ValueError):
    """An option that only the ledger of one journal accepts; the message says which and why."""


def check_several(options: LedgerOptions) -> None:
    """Check that these options are possible for the ledger of several journals.  Raises OneJournalOnly."""
    if (options.from_position, options.to_position, options.from_time, options.to_time) != (None,) * 4:
        raise OneJournalOnly(
            "--from, --to: a message may arrive long before it leaves; audit the journals one at a time"
        )
    if options.opening is not None or options.save_balance is not None:
        raise OneJournalOnly(
            "--opening, --save-balance: a balance covers one journal; audit the journals one at a time"
        )
    if options.expected is not None:
        raise OneJournalOnly("--compare: only one broker is queried; audit the journals one at a time")
    if options.addresses:
        raise OneJournalOnly("--address: links move messages to other addresses; audit the journals one at a time")


def ledgers(spark: SparkSession, snapshots: Sequence[Snapshot], options: LedgerOptions) -> Result:
    """Run the audit.  More present messages than `fail_over` on all queues together exceed the threshold.

    Raises OneJournalOnly, OSError.
    """
    check_several(options)
    with ExitStack() as stack:
        whole, connected = (
            [stack.enter_context(Journal(spark, each, options, connected=part)) for each in snapshots]
            for part in (False, True)
        )
        drawn = [Ledger(journal, options, None) for journal in connected]
        parts = {_label(each): ledger.result() for each, ledger in zip(snapshots, drawn, strict=True)}
        passed = _passed(whole, drawn, [part.coverage for part in parts.values()], options.top)
    labels = {snapshot.broker_id: _label(snapshot) for snapshot in snapshots}
    covered = _together([part.coverage for part in parts.values()])
    summed = _summed(parts.values())
    return Result(
        audit="ledger",
        coverage=covered,
        summary={"journals": len(parts), **passed.counts, **summed},
        sections=(_journals(parts), *passed.sections(labels), *_merged(parts)),
        verdict=_verdict([part.verdict for part in parts.values()], passed.counts, whole=covered.whole),
        problems=(
            *passed.problems(),
            *[f"{label}: {problem}" for label, part in parts.items() for problem in part.problems],
        ),
        exceeded=options.exceeded(summed["present"]),
        options=options.described(),
    )


def _verdict(parts: Sequence[Verdict | None], counts: Mapping[str, int], *, whole: bool) -> Verdict:
    """The verdict of the whole ledger.  If records are lost, they may be what is missing between the journals."""
    if Verdict.VIOLATED in parts:
        return Verdict.VIOLATED
    if Verdict.NOT_PROVABLE in parts or not whole:
        return Verdict.NOT_PROVABLE
    if any(counts[fault] for fault in _FAULTS):
        return Verdict.VIOLATED
    return Verdict.NOT_PROVABLE if counts[passage.UNDECIDED] else Verdict.BALANCED


# -- between the journals ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Passed:
    """The number of messages with each outcome, from where to where, and the listed messages."""

    counts: dict[str, int]
    ways: list[dict[str, Any]]
    listed: list[dict[str, Any]]

    def problems(self) -> list[str]:
        """The problems as sentences, worst first."""
        return [f"{counted(self.counts[what], 'message')}: {said}" for what, said in _SAID.items() if self.counts[what]]

    def sections(self, labels: Mapping[str, str]) -> list[Section]:
        """The sections; `labels` has the names of the journals by broker id."""

        def named(row: Mapping[str, Any]) -> dict[str, str | None]:
            to = ", ".join(sorted(labels.get(id, id) for id in row["brokers"]))
            return {"from": labels.get(row["origin"], f"broker {row['origin']}"), "to": to or None}

        ways = pa.Table.from_pylist([row | named(row) for row in self.ways], _PASSAGE)
        messages = [
            row | named(row) | {"arrived as message": ", ".join(map(str, sorted(row["taken_as"]))) or None}
            for row in self.listed
        ]
        beyond = sum(self.counts[outcome] for outcome in passage.LISTED) - len(messages)
        return [
            section(
                "passage",
                "Between the journals",
                ways,
                chart=Chart("outcome", ("messages",), "Messages transferred by links"),
            ),
            section("under-way", "Not passed on normally", pa.Table.from_pylist(messages, _MESSAGES), beyond=beyond),
        ]


def _passed(journals: Sequence[Journal], drawn: Sequence[Ledger], covered: Sequence[Coverage], top: int) -> _Passed:
    """The messages that links transferred between the journals, of which these are the ledgers."""
    keep = journals[0].keep
    crossings = keep(passage.crossings(journals))
    queues = keep(passage.link_queues(crossings))
    present = keep(_present(drawn))
    open_ = keep(crossings.where(~passage.is_simple()))
    books = [
        Books(each.broker_id, each.last_time, max((gap.until for gap in journal.snapshot.trimmed), default=0))
        for each, journal in zip(covered, journals, strict=True)
    ]
    judged = keep(passage.judged(open_, passage.known(journals, open_, present, queues), books))
    brokers = F.array_sort(F.array_distinct(F.transform("taken", lambda each: each["broker"]))).alias("brokers")
    simple = crossings.where(passage.is_simple()).select("origin", brokers, F.lit(passage.PASSED).alias("outcome"))
    waits = passage.waiting(present, crossings).select(
        "origin", F.array().cast("array<string>").alias("brokers"), F.lit(WAITING).alias("outcome")
    )
    ends = simple.unionByName(judged.select("origin", brokers, "outcome")).unionByName(waits)
    ways = ends.groupBy("origin", "brokers", "outcome").agg(F.count("*").alias("messages")).toArrow().to_pylist()
    ways.sort(key=lambda row: (row["origin"], row["brokers"], row["outcome"]))
    worst = F.array_position(F.array(*map(F.lit, passage.LISTED)), F.col("outcome"))
    listed = judged.where(F.col("outcome").isin(*passage.LISTED)).orderBy(worst, "origin", "message_id").limit(top)
    rows = listed.select(
        *("origin", "outcome", F.col("message_id").alias("message"), "left", "arrived", brokers),
        F.coalesce("sent", "enqueued").alias("enqueued"),
        F.col("left_time").alias("left at"),
        F.col("there").alias("still there"),
        F.transform("taken", lambda each: each["taken_as"]).alias("taken_as"),
    )
    counts = dict.fromkeys((passage.PASSED, WAITING, *reversed(passage.OUTCOMES[:-1])), 0)
    for row in ways:
        counts[row["outcome"]] += row["messages"]
    return _Passed(counts, ways, collect(rows).to_pylist())


def _present(drawn: Sequence[Ledger]) -> DataFrame:
    """The columns (origin, queue_id, message_id) of all messages on queues."""
    return passage.together(
        [
            ledger.present.select(F.lit(ledger.journal.snapshot.broker_id).alias("origin"), "queue_id", "message_id")
            for ledger in drawn
        ]
    )


# -- of all journals ---------------------------------------------------------------------------------------------------


def _label(snapshot: Snapshot) -> str:
    return ", ".join(snapshot.journals)


def _together(parts: Sequence[Coverage]) -> Coverage:
    """The coverage of all journals together, without positions, which belong to one journal."""
    return Coverage(
        broker_id=", ".join(part.broker_id for part in parts),
        paths=tuple(path for part in parts for path in part.paths),
        segments=sum(part.segments for part in parts),
        bytes=sum(part.bytes for part in parts),
        first_position=UNKNOWN,
        next_position=UNKNOWN,
        first_time=min(part.first_time for part in parts),
        last_time=max(part.last_time for part in parts),
        trimmed_records=sum(part.trimmed_records for part in parts),
        torn_bytes=sum(part.torn_bytes for part in parts),
        damage=tuple(place for part in parts for place in part.damage),
    )


def _summed(parts: Iterable[Result]) -> dict[str, int]:
    """The sums of the figures of all ledgers."""
    summed: dict[str, int] = {}
    for part in parts:
        for name, value in part.summary.items():
            assert isinstance(value, int), "a ledger counts"
            summed[name] = summed.get(name, 0) + value
    return summed


def _journals(parts: Mapping[str, Result]) -> Section:
    """One row per journal."""
    rows = [
        {
            "journal": label,
            "verdict": part.verdict.value if part.verdict else None,
            "broker": part.coverage.broker_id,
            "segments": part.coverage.segments,
            "size (bytes)": part.coverage.bytes,
            "first position": part.coverage.first_position,
            "last position": part.coverage.next_position - 1,
            "last entry": part.coverage.last_time * 1000,
        }
        for label, part in parts.items()
    ]
    return section("journals", "The journals", pa.Table.from_pylist(rows, _JOURNALS))


def _merged(parts: Mapping[str, Result]) -> list[Section]:
    """The sections of all ledgers; those with the same name are combined."""
    found: dict[str, dict[str, Section]] = {}
    for label, part in parts.items():
        for each in part.sections:
            found.setdefault(each.name, {})[label] = each
    return [_one(each) for each in found.values()]


def _one(each: Mapping[str, Section]) -> Section:
    first = next(iter(each.values()))
    tables = [
        part.table.add_column(0, "journal", pa.repeat(pa.scalar(label, pa.string()), len(part.table)))
        for label, part in each.items()
    ]
    notes = [part.note for part in each.values() if part.table.num_rows] or [first.note]
    note = " ".join(dict.fromkeys(note for note in notes if note))
    chart = next((part.chart for part in each.values() if part.chart is not None), None)
    return section(first.name, first.title, pa.concat_tables(tables), note=note, chart=chart)
