"""The messages of some segments that a ledger must examine individually, and the number of the others.

Most messages enter their queues and leave them again within a few segments, and a ledger needs only their number.
Therefore, the records of a task can be read without them.  A message is finished if it was stored once, was not moved
here from elsewhere, and then left each of its queues once, without dying or expiring.  Rows of type `finished` replace
them: for each segment that stored some

    queue_id, reason    `count` of them left the queue for this reason
    neither             `count` of them were stored, with ids from `message_id` to `new_message_id`

Most are recognized within their segment, from a few fields, and are never decoded.  The remaining records of each
segment are decoded and kept until the last segment; then messages that finished in a later segment are removed as well.
Thus, only one segment is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.journal.batch import Segment
from spark_jobs.journal.columns import REASONS
from spark_jobs.journal.decode import BATCH_ROWS, Selection, damage
from spark_jobs.journal.decode import rows as decoded
from spark_jobs.journal.layout import Bools, Int64s, Records
from spark_jobs.journal.names import Lookup
from spark_jobs.journal.scan import Scanned
from spark_jobs.journal.schema import FINISHED
from store.record import RecordType, RemovalReason

#: Maximum number of rows kept (some hundred bytes each); beyond it they are delivered, even if their messages may
#: finish later.
KEPT_ROWS_MAX: Final = 1 << 20

#: The columns of the rows that count the finished messages stored by a segment, and their aggregations.
_STORED: Final = ["segment", "count", "message_id", "new_message_id"]
_SUMS: Final = ("count", "min", "max")

#: The columns by which departures of finished messages are counted.
_LEFT: Final = ["segment", "queue_id", "reason"]

_DEATHS: Final = (RemovalReason.DEAD_LETTERED, RemovalReason.KILLED, RemovalReason.EXPIRED)


class Moves(NamedTuple):
    """Stored messages, and departures from queues.

    One element per message: `segments`, `ids`, `positions`, `annotations` (number of bytes, 0 unless it was moved), and
    `counts` (of its queues).  `queues` has the queues of all messages, concatenated.  One element per departure:
    `left_ids`, `left_queues`, `left_positions`, `reasons`.
    """

    segments: Int64s
    ids: Int64s
    positions: Int64s
    annotations: Int64s
    counts: Int64s
    queues: Int64s
    left_ids: Int64s
    left_queues: Int64s
    left_positions: Int64s
    reasons: Int64s

    @classmethod
    def of(cls, segment: Segment, stored: Int64s, removed: Int64s) -> Moves:
        """The moves of a segment, from the indices of its records."""
        walk = segment.walk
        messages = Records(segment.source, RecordType.MESSAGE, walk.offsets[stored])
        removals = Records(segment.source, RecordType.REMOVED, walk.offsets[removed])
        n = removals.field("n")
        return cls(
            np.full(len(stored), walk.number, np.int64),
            messages.field("id"),
            walk.positions[stored],
            messages.field("annotations_bytes"),
            messages.field("n"),
            messages.ids(),
            removals.ids(),
            np.repeat(removals.field("queue_id"), n),
            np.repeat(walk.positions[removed], n),
            np.repeat(removals.field("reason"), n),
        )

    def only(self, stored: Bools, left: Bools) -> Moves:
        """A selection of the messages and departures."""
        messages = [each[stored] for each in self[:5]]
        departures = [each[left] for each in self[6:]]
        return Moves._make([*messages, self.queues[np.repeat(stored, self.counts)], *departures])

    def unfinished(self) -> tuple[Bools, Bools, Int64s]:
        """Which messages are not finished, which departures are not of finished ones, and the departures' messages.

        The latter are indices, arbitrary if the message is not among these.
        """
        if not len(self.ids):
            left = len(self.left_ids)
            return np.zeros(0, np.bool_), np.ones(left, np.bool_), np.zeros(left, np.int64)
        order = np.argsort(self.ids, kind="stable")
        ascending = self.ids[order]
        found, known = Lookup(ascending).find(self.left_ids)
        message = order[found]
        entry = self._entries(message, known)
        sound = entry >= 0
        sound &= (self.left_positions > self.positions[message]) & ~np.isin(self.reasons, _DEATHS)
        left_once = np.bincount(entry[sound], minlength=len(self.queues)) == 1
        unfinished: Bools = (self.annotations > 0) | (self.counts == 0)
        unfinished[np.repeat(np.arange(len(self.ids)), self.counts)[~left_once]] = True
        unfinished[message[known & ~sound]] = True
        twice = np.flatnonzero(ascending[1:] == ascending[:-1])
        unfinished[order[twice]] = unfinished[order[twice + 1]] = True
        return unfinished, ~known | unfinished[message], message

    def _entries(self, message: Int64s, known: Bools) -> Int64s:
        """The index in `queues` of each departure of these messages, if known; -1: it never entered the queue."""
        found = np.full(len(message), -1, np.int64)
        places = (np.cumsum(self.counts) - self.counts)[message]
        behind = places + self.counts[message]
        searched = np.flatnonzero(known & (places < behind))
        while len(searched):
            here = places[searched]
            hit = self.queues[here] == self.left_queues[searched]
            found[searched[hit]] = here[hit]
            searched = searched[~hit]
            places[searched] += 1
            searched = searched[places[searched] < behind[searched]]
        return found


class _Kept(NamedTuple):
    """The unfinished rest of a segment: the moves, and a row of the selection's columns for each."""

    moves: Moves
    stored: pa.Table
    left: pa.Table


def rows(segments: Iterable[Scanned], selection: Selection) -> Iterator[pa.RecordBatch]:
    """The selection's rows of these segments without finished messages, and the rows that count these.

    Only records within the selection's bounds count.  The selection must not have conditions.
    """
    kept: list[_Kept] = []
    for scanned in segments:
        segment = Segment(scanned.data, scanned.found)
        yield from damage(segment, selection)
        indices = selection.indices(scanned.found)
        types = scanned.found.types[indices]
        stored, removed = types == RecordType.MESSAGE, types == RecordType.REMOVED
        yield from decoded(segment, indices[~(stored | removed)], selection)
        left, finished = _split(segment, indices[stored], indices[removed], selection)
        yield finished
        kept.append(left)
        if sum(len(each.stored) + len(each.left) for each in kept) > KEPT_ROWS_MAX:
            yield from _given_out(kept, selection)
            kept.clear()
    yield from _given_out(kept, selection)


def _split(segment: Segment, stored: Int64s, removed: Int64s, selection: Selection) -> tuple[_Kept, pa.RecordBatch]:
    """The unfinished rest of a segment's records, and the rows that count the others."""
    moves = Moves.of(segment, stored, removed)
    open_messages, open_departures, message = moves.unfinished()
    n = Records(segment.source, RecordType.REMOVED, segment.walk.offsets[removed]).field("n")
    record = np.repeat(np.arange(len(removed)), n)
    wanted = np.zeros(len(removed), np.bool_)
    wanted[record[open_departures]] = True
    messages = pa.Table.from_batches(decoded(segment, stored[open_messages], selection), selection.schema)
    departures = pa.Table.from_batches(decoded(segment, removed[wanted], selection), selection.schema)
    departures = departures.filter(pa.array(open_departures[wanted[record]]))
    kept = _Kept(moves.only(open_messages, open_departures), messages, departures)
    return kept, _standing(moves, open_messages, open_departures, message, selection)


def _given_out(kept: Sequence[_Kept], selection: Selection) -> Iterator[pa.RecordBatch]:
    """All kept rows, without messages that finished in a later segment, and the rows that count these."""
    if not kept:
        return
    moves = Moves(*map(np.concatenate, zip(*(each.moves for each in kept), strict=True)))
    open_messages, open_departures, message = moves.unfinished()
    yield _standing(moves, open_messages, open_departures, message, selection)
    for tables, mask in (
        ([each.stored for each in kept], open_messages),
        ([each.left for each in kept], open_departures),
    ):
        yield from pa.concat_tables(tables).filter(pa.array(mask)).combine_chunks().to_batches(BATCH_ROWS)


def _standing(
    moves: Moves, open_messages: Bools, open_departures: Bools, message: Int64s, selection: Selection
) -> pa.RecordBatch:
    """The rows that count finished messages."""
    stored = pa.table({"segment": moves.segments, "message_id": moves.ids}).filter(pa.array(~open_messages))
    sums = stored.group_by("segment", use_threads=False).aggregate([("message_id", each) for each in _SUMS])
    found = sums.rename_columns(_STORED).to_pylist()
    finished = ~open_departures
    columns = moves.segments[message[finished]], moves.left_queues[finished], moves.reasons[finished]
    left = pa.table(dict(zip(_LEFT, columns, strict=True))).group_by(_LEFT, use_threads=False)
    ways = left.aggregate([([], "count_all")]).rename_columns([*_LEFT, "count"])
    found += [{**row, "reason": REASONS[row["reason"]].as_py()} for row in ways.to_pylist()]
    return pa.RecordBatch.from_pylist([{"record_type": FINISHED, **row} for row in found], selection.schema)
