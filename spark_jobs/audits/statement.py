"""The readable ledger: from figures to the sections of a report.  Independent of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from spark_jobs.audits import rules
from spark_jobs.audits.options import TOP_MAX
from spark_jobs.audits.rules import QueueBook, Row
from spark_jobs.results import UTC, Chart, Coverage, Figure, Section, Verdict, section
from store.counted import counted

_COUNTS: Final = ("opening", "from before", "enqueued", *rules.WAYS, "with its queue", "present", "difference")

_QUEUES: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("address", pa.string()),
        *[(name, pa.int64()) for name in _COUNTS],
        ("oldest present", UTC),
        ("queue id", pa.int64()),
    ]
)

_FAULTS: Final = pa.schema(
    [
        ("fault", pa.string()),
        ("message", pa.int64()),
        ("queue", pa.string()),
        ("entered", pa.int64()),
        ("left", pa.int64()),
        ("way", pa.string()),
        ("where", pa.string()),
        ("queue id", pa.int64()),
    ]
)

_DIFFERENCES: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("address", pa.string()),
        ("in the journal", pa.int64()),
        ("in the broker", pa.int64()),
        ("difference", pa.int64()),
        ("queue id", pa.int64()),
    ]
)


@dataclass(slots=True)
class Figures:
    """The findings of a ledger.

    `faults` are the first rows of queue_flows.faults; `places` says where the records of a faulty (queue, message) are,
    as segment:offset.
    """

    books: dict[int, QueueBook]
    faults: list[Row]
    fault_counts: dict[str, int]
    places: Mapping[tuple[int, int], Sequence[str]] = field(default_factory=dict)
    stored: int = 0
    differences: list[dict[str, Any]] | None = None


def counts(book: QueueBook) -> dict[str, int]:
    """One line of the ledger, by column."""
    ways = {way: book.ways.get(way, 0) for way in rules.WAYS}
    unknown = {way: number for way, number in book.ways.items() if way not in ways}
    return {
        "opening": book.opening,
        "from before": book.before,
        "enqueued": book.enqueued,
        **ways,
        **unknown,
        "with its queue": book.outlived,
        "present": book.present,
        "difference": book.difference,
    }


def queues(figures: Figures, patterns_given: bool) -> Section:
    """One row per queue: first those that do not balance, then the busiest."""
    books = sorted(
        figures.books.values(), key=lambda b: (-abs(b.difference), -(b.opening + b.enqueued), b.name, b.queue_id)
    )
    rows = [
        {
            "queue": book.name or None,
            "address": book.address or None,
            **counts(book),
            "oldest present": book.oldest,
            "queue id": book.queue_id,
        }
        for book in books[:TOP_MAX]
    ]
    note = "opening + from before + enqueued = the ways out + with its queue + present."
    if patterns_given:
        note += " Only the queues of the requested addresses."
    beyond = max(0, len(books) - TOP_MAX)
    return section("queues", "The books of the queues", pa.Table.from_pylist(rows, _QUEUES), beyond=beyond, note=note)


def ways(total: QueueBook) -> Section:
    """The outcomes of all messages that came in."""
    said = {**{way: total.ways.get(way, 0) for way in rules.WAYS}, "present": total.present}
    if total.outlived:
        said["with its queue"] = total.outlived
    rows = [{"way": way, "messages": number} for way, number in said.items()]
    table = pa.Table.from_pylist(rows, pa.schema([("way", pa.string()), ("messages", pa.int64())]))
    return section(
        "ways", "What happened to them", table, chart=Chart("way", ("messages",), "What happened to the messages")
    )


def faults(figures: Figures) -> Section:
    """The listed faults, by message."""
    rows = []
    for fault in figures.faults:
        id = fault["queue_id"]  # None: no particular queue is concerned
        book = figures.books.get(id)
        rows.append(
            {
                "fault": fault["what"],
                "message": fault["message_id"],
                "queue": (book.name or None) if book else None,
                "entered": fault["entered"] or 0,
                "left": fault["left"] or 0,
                "way": fault["way"],
                "where": ", ".join(figures.places.get((id or 0, fault["message_id"]), ())) or None,
                "queue id": id,
            }
        )
    beyond = sum(figures.fault_counts.values()) - len(rows)
    note = "Where: segment:byte of its records." if rows else "There are none."
    return section("faults", "Faults", pa.Table.from_pylist(rows, _FAULTS), beyond=beyond, note=note)


def compared(found: list[dict[str, Any]], top: int) -> Section:
    """The queues for which journal and broker differ."""
    note = "" if found else "Journal and broker agree on every queue."
    table = pa.Table.from_pylist(found[:top], _DIFFERENCES)
    return section(
        "comparison", "Comparison with the running broker", table, beyond=max(0, len(found) - top), note=note
    )


def problems(verdict: Verdict, figures: Figures, total: QueueBook, coverage: Coverage) -> tuple[str, ...]:
    """The problems as sentences, worst first."""
    said = [f"{counted(number, 'message')}: {fault}" for fault, number in figures.fault_counts.items() if number]
    unbalanced = [book for book in figures.books.values() if book.difference]
    if unbalanced:
        which = counted(len(unbalanced), "queue does", "queues do")
        said.append(f"{which} not balance; the total difference is {total.difference:+,}")
    if figures.differences:
        said.append(f"journal and broker differ on {counted(len(figures.differences), 'queue')}")
    if verdict is Verdict.NOT_PROVABLE:
        said.insert(0, f"nothing can be proved: records are missing in {counted(len(coverage.damage), 'place')}")
    elif coverage.damage:
        said.append(
            f"records are missing in {counted(len(coverage.damage), 'place')}, but this does not explain all faults"
        )
    return tuple(said)


def summary(figures: Figures, total: QueueBook) -> dict[str, Figure]:
    """The figures of all queues together."""
    return {
        "queues": len(figures.books),
        "messages stored": figures.stored,
        **counts(total),
        "faults": sum(figures.fault_counts.values()),
    }
