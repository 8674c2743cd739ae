"""The messages of some segments that a ledger must look at one by one, and how many the others are.

Most messages enter their queues and leave them again within a few segments, and a ledger needs but their number.  So
the records of a task can be read without them.  A message is finished if it was stored once, not moved here from
elsewhere, and left each of its queues once, behind that, without dying or expiring.  In their place stand rows of type
`finished`: for each segment that stored some

    queue_id, reason    `count` of them left the queue for this reason
    neither             `count` of them were stored, with ids from `message_id` to `new_message_id`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.journal.batch import array
from spark_jobs.journal.columns import REASONS
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.layout import Int64s, Records, Source
from spark_jobs.journal.scan import Scanned
from spark_jobs.journal.schema import FINISHED
from store.record import RecordType, RemovalReason

ALL: Final = frozenset(map(int, RecordType))

#: What enters and leaves queues; of other types every record is wanted.
MOVING: Final = frozenset({int(RecordType.MESSAGE), int(RecordType.REMOVED)})

_DEATHS: Final = (RemovalReason.DEAD_LETTERED, RemovalReason.KILLED, RemovalReason.EXPIRED)


def split(segments: Sequence[Scanned], selection: Selection) -> tuple[pa.Array, pa.RecordBatch]:
    """The ids of unfinished messages, and the rows (of the selection's columns) that stand for finished ones.

    What is not within the selection's bounds does not count.
    """
    moves = pa.concat_tables([_moves(segment, selection) for segment in segments])
    pairs = moves.group_by(["queue", "message"], use_threads=False).aggregate(
        [(name, "sum") for name in ("entered", "left", "special", "order")] + [("segment", "min"), ("reason", "max")]
    )
    once = pc.and_(pc.equal(pairs["entered_sum"], 1), pc.equal(pairs["left_sum"], 1))
    # The position of the removal less that of the entry.
    finished = pc.and_(pc.and_(once, pc.greater(pairs["order_sum"], 0)), pc.equal(pairs["special_sum"], 0))
    unfinished = pc.unique(pairs.filter(pc.invert(finished))["message"].combine_chunks())
    ended = pairs.filter(pc.invert(pc.is_in(pairs["message"], unfinished)))
    return unfinished, pa.RecordBatch.from_pylist(_rows(ended), selection.schema)


def _rows(pairs: pa.Table) -> list[dict[str, object]]:
    stored = pairs.group_by("segment_min", use_threads=False).aggregate(
        [("message", "count_distinct"), ("message", "min"), ("message", "max")]
    )
    left = pairs.group_by(["segment_min", "queue", "reason_max"], use_threads=False).aggregate([("message", "count")])
    rows = [
        {"count": row["message_count_distinct"], "message_id": row["message_min"], "new_message_id": row["message_max"]}
        | {"segment": row["segment_min"]}
        for row in stored.to_pylist()
    ]
    rows += [
        {"count": row["message_count"], "queue_id": row["queue"], "segment": row["segment_min"]}
        | {"reason": REASONS[row["reason_max"]].as_py()}
        for row in left.to_pylist()
    ]
    return [{"record_type": FINISHED, **row} for row in rows]


def _moves(segment: Scanned, selection: Selection) -> pa.Table:
    """The entries and departures of a segment, a row for each message and queue."""
    found, source = segment.found, Source(segment.data)
    indices = selection.indices(found)
    types = found.types[indices]
    stored, removed = (indices[types == type] for type in (RecordType.MESSAGE, RecordType.REMOVED))
    messages = Records(source, RecordType.MESSAGE, found.offsets[stored])
    departures = Records(source, RecordType.REMOVED, found.offsets[removed])
    n, m = messages.field("n"), departures.field("n")
    moved, reasons = messages.field("annotations_bytes") > 0, departures.field("reason")
    deadly = np.isin(reasons, [int(reason) for reason in _DEATHS])
    entries, others = np.zeros(n.sum(), np.int64), np.zeros(m.sum(), np.int64)
    return pa.table(
        {
            "queue": _column(messages.ids(), np.repeat(departures.field("queue_id"), m)),
            "message": _column(np.repeat(messages.field("id"), n), departures.ids()),
            "entered": _column(entries + 1, others),
            "left": _column(entries, others + 1),
            "special": _column(np.repeat(moved, n).astype(np.int64), np.repeat(deadly, m).astype(np.int64)),
            "order": _column(-np.repeat(found.positions[stored], n), np.repeat(found.positions[removed], m)),
            "segment": _column(entries + found.number, others + np.iinfo(np.int64).max),
            "reason": _column(entries - 1, np.repeat(reasons, m)),
        }
    )


def _column(entries: Int64s, departures: Int64s) -> pa.Array:
    return array(pa.int64(), np.concatenate((entries, departures)))
