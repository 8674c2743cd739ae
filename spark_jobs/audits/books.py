"""The ledger without Spark: one process, numpy and Arrow, the same rules.

For journals that one machine reads in a moment: a test's, a small broker's.  Everything is one partition, so nothing
can hide between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.audits import rules
from spark_jobs.audits.findings import FAULT, GONE, RANGE, Findings
from spark_jobs.audits.rules import Fault, Flow, QueueBook, QueueName, Standing
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.movements import Movements
from spark_jobs.journal.schema import DAMAGE, MOVEMENTS, arrow_schema
from spark_jobs.journal.snapshot import Snapshot, read_segment
from spark_jobs.journal.walk import walk
from spark_jobs.results import Verdict

_COUNTED: Final = ("settled", "open")


@dataclass(frozen=True, slots=True)
class SegmentData:
    """A segment in memory.  `next_first`: the first position of the following one, if the two must meet."""

    number: int
    data: bytes
    newest: bool = False
    next_first: int | None = None
    path: str = ""


@dataclass(slots=True)
class Books:
    """What the ledger says, and why.  `books` by queue id; `damage` as sentences."""

    verdict: Verdict
    books: dict[int, QueueBook]
    faults: list[Fault]
    damage: list[str] = field(default_factory=list)
    present: dict[int, set[int]] = field(default_factory=dict)


def books(snapshot: Snapshot) -> Books:
    """The ledger of a snapshot.  Raises OSError."""
    segments = (
        SegmentData(ref.number, read_segment(ref), ref.newest, ref.next_first, ref.uri) for ref in snapshot.segments
    )
    missing = [f"{gap.uri}: {gap.what}" for gap in snapshot.missing]
    hole = max((gap.last_segment for gap in snapshot.trimmed), default=0)
    return books_of(segments, open_below=snapshot.open_below, hole=hole, missing=missing)


def books_of(
    segments: Iterable[SegmentData], *, open_below: int = 0, hole: int = 0, missing: Iterable[str] = ()
) -> Books:
    """The ledger of some segments, in order.

    `hole` is the last segment that the broker gave up, and `open_below` the id below which a message may have entered
    there; `missing` are holes that nothing explains.
    """
    moved, told = _read(segments)
    behind = (row["lowest"] for row in told if row["kind"] == RANGE and row["segment"] > hole)
    open_below = min(open_below, min(behind, default=open_below))  # ids ascend
    damage = [*missing, *moved.filter(pc.field("kind") == DAMAGE)["text"].to_pylist()]
    pairs = _pairs(moved.filter(pc.field("kind") == "open"))
    state = rules.states({name: pairs[name].to_numpy() for name in pairs.column_names}, open_below)
    pairs = pairs.append_column("state", pa.array(state, pa.string()))
    gone = {row["queue_id"] for row in told if row["kind"] == GONE}
    found = rules.balance(_flows(moved), _standings(pairs), _names(moved, gone))
    faults = [*_movement_faults(pairs), *_death_faults(told)]
    counts = {what: sum(fault.what == what for fault in faults) for what in rules.FAULTS}
    verdict = rules.verdict(counts, found.values(), whole=not damage)
    return Books(verdict, found, faults, damage, _present(pairs, gone))


def _read(segments: Iterable[SegmentData]) -> tuple[pa.Table, list[dict[str, Any]]]:
    """The movements, and the findings."""
    read = list(segments)
    movements = Movements(first_segment=read[0].number if read else 0)
    findings = Findings(Selection(()))
    for each in read:
        found = walk(each.data, number=each.number, newest=each.newest, next_first=each.next_first)
        movements.add(each.data, found)
        findings.add(each.data, found)
    return pa.Table.from_batches(movements.batches(), arrow_schema(MOVEMENTS)), findings.batch().to_pylist()


def _pairs(moves: pa.Table) -> pa.Table:
    """Every (queue, message) that did not settle, with how often and when it moved."""
    summed = moves.group_by(["queue_id", "message_id"]).aggregate(
        [("entered", "sum"), ("left", "sum"), ("entered_position", "min"), ("left_position", "min")]
    )
    first = {name: pc.fill_null(summed[f"{name}_min"], -1) for name in ("entered_position", "left_position")}
    counts = {name: summed[f"{name}_sum"] for name in ("entered", "left")}
    return pa.table({"queue_id": summed["queue_id"], "message_id": summed["message_id"], **counts, **first})


def _flows(moved: pa.Table) -> Iterator[Flow]:
    sums = moved.group_by(["kind", "queue_id", "reason"]).aggregate([("entered", "sum"), ("left", "sum")])
    for row in sums.to_pylist():
        if row["kind"] in _COUNTED:
            yield Flow(row["queue_id"], row["reason"] or "", row["entered_sum"], row["left_sum"])


def _standings(pairs: pa.Table) -> Iterator[Standing]:
    for row in pairs.group_by(["queue_id", "state"]).aggregate([("message_id", "count")]).to_pylist():
        yield Standing(row["queue_id"], row["state"], row["message_id_count"], 0)


def _names(moved: pa.Table, gone: set[int]) -> Iterator[QueueName]:
    found = moved.group_by(["kind", "queue_id"]).aggregate([("queue", "max"), ("address", "max")])
    for row in found.to_pylist():
        if row["kind"] == "settled":
            yield QueueName(row["queue_id"], row["queue_max"] or "", row["address_max"] or "", row["queue_id"] in gone)


def _present(pairs: pa.Table, gone: set[int]) -> dict[int, set[int]]:
    """The messages on each queue."""
    found: dict[int, set[int]] = {}
    for row in pairs.filter(pc.field("state") == rules.PRESENT).to_pylist():
        if row["queue_id"] not in gone:
            found.setdefault(row["queue_id"], set()).add(row["message_id"])
    return found


def _movement_faults(pairs: pa.Table) -> Iterator[Fault]:
    for row in pairs.filter(pc.field("state").isin(list(rules.MOVEMENT_FAULTS))).to_pylist():
        yield Fault(what=row.pop("state"), **row)


def _death_faults(told: list[dict[str, Any]]) -> Iterator[Fault]:
    for row in told:
        if row["kind"] == FAULT:
            queue_id, way = row["queue_id"] or 0, row["reason"] or ""
            yield Fault(row["text"], queue_id, row["message_id"], left=row["left"] or 0, way=way)
