"""What must agree within a segment, for the ledger: deaths and the records that explain them, new ids and messages.

Both sides of a death lie in one entry (promise P2), so one segment shows whether they agree; nothing has to meet from
several machines.  What a partition finds is a few rows:

    range   a segment that stores messages: how many, and their lowest and highest id
    gone    a queue that was deleted
    fault   a death of which the two sides differ, or a new id under which nothing is stored

Bounds choose whose agreement is asked for; the answer may lie outside, so that a range which begins in the middle of an
entry is no fault.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from spark_jobs.audits import rules
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.gather import Segment
from spark_jobs.journal.layout import Bools, Int64s, Records
from spark_jobs.journal.walk import Walk
from store.record import RecordType, RemovalReason

RANGE: Final = "range"
GONE: Final = "gone"
FAULT: Final = "fault"

#: For a range `number` counts its messages; a fault has `told` records that explain and `done` removals or messages.
SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("queue_id", pa.int64()),
        ("message_id", pa.int64()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("left", pa.int64()),
        ("count", pa.int64()),
        ("lowest", pa.int64()),
        ("highest", pa.int64()),
        ("position", pa.int64()),
        ("segment", pa.int64()),
    ]
)

#: How a message leaves that dies or expires, in the order of their codes.
_WAYS: Final = (RemovalReason.DEAD_LETTERED, RemovalReason.KILLED, RemovalReason.EXPIRED)
_WAY_OF: Final = {int(reason): code for code, reason in enumerate(_WAYS)}
_DEAD_LETTERED, _KILLED, _EXPIRED = range(len(_WAYS))


class Findings:
    """One for a partition: `add` its segments, then take the `batch` (SCHEMA)."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._rows: list[dict[str, object]] = []

    def add(self, data: bytes, walk: Walk) -> None:
        """Take in a segment: its bytes, and what `walk.walk` found there."""
        segment = Segment(data, walk)
        inside = np.zeros(len(walk.offsets), np.bool_)
        inside[self._selection.indices(walk)] = True
        messages = _records(segment, RecordType.MESSAGE)
        ids = messages.field("id")
        own = ids[inside[_indices(walk, RecordType.MESSAGE)]]
        if len(own):
            low, high = int(np.min(own)), int(np.max(own))
            self._add(RANGE, walk, count=len(own), lowest=low, highest=high)
        deleted = _indices(walk, RecordType.QUEUE_DELETED)
        for queue in Records(segment.source, RecordType.QUEUE_DELETED, walk.offsets[deleted[inside[deleted]]]).field(
            "id"
        ):
            self._add(GONE, walk, queue_id=int(queue))
        told = _Deaths.told(segment, inside)
        if told.any or _indices(walk, RecordType.REMOVED).size:
            self._compare(walk, told, _Deaths.done(segment, inside))
        self._look_for_heirs(walk, told, ids)

    def _compare(self, walk: Walk, told: _Deaths, done: _Deaths) -> None:
        """Deaths that were told and that happened, side by side; not of what no queue took, which left none."""
        left = told.keys[:, 0] > 0
        keys = np.concatenate((told.keys[left], done.keys))
        if not len(keys):
            return
        told_of = np.concatenate((np.ones(np.count_nonzero(left), np.int64), np.zeros(len(done.keys), np.int64)))
        inside = np.concatenate((told.inside[left], done.inside))
        positions = np.concatenate((told.positions[left], done.positions))
        order = np.lexsort(keys.T[::-1])
        keys, told_of, inside, positions = keys[order], told_of[order], inside[order], positions[order]
        begins = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
        all_told = np.add.reduceat(told_of, begins)
        all_done = np.diff(np.r_[begins, len(keys)]) - all_told
        asked = np.logical_or.reduceat(inside, begins)
        for what, holds in rules.of_deaths(all_told, all_done):
            for at in np.flatnonzero(holds & asked):
                queue, message, way = keys[begins[at]].tolist()
                self._add(
                    FAULT,
                    walk,
                    queue_id=queue,
                    message_id=message,
                    reason=_WAYS[way].word,
                    text=what,
                    left=int(all_done[at]),
                    position=int(positions[begins[at]]),
                )

    def _look_for_heirs(self, walk: Walk, told: _Deaths, stored: Int64s) -> None:
        """New ids that a death names, and nothing is stored under."""
        named = told.inside & (told.heirs > 0)
        heirs = told.heirs[named]
        missing = ~np.isin(heirs, stored)
        for heir, position in zip(heirs[missing].tolist(), told.positions[named][missing].tolist(), strict=True):
            self._add(FAULT, walk, message_id=heir, text=rules.NO_SUCCESSOR, position=position)

    def _add(self, kind: str, walk: Walk, **values: object) -> None:
        self._rows.append({"kind": kind, "segment": walk.number, **values})

    def batch(self) -> pa.RecordBatch:
        """All rows."""
        return pa.RecordBatch.from_pylist(self._rows, SCHEMA)


class _Deaths:
    """One side of the deaths of a segment: keys (queue, message, way) in rows, and what else is known of each."""

    __slots__ = ("heirs", "inside", "keys", "positions")

    def __init__(self, keys: Int64s, heirs: Int64s, positions: Int64s, inside: Bools) -> None:
        self.keys = keys
        self.heirs = heirs
        self.positions = positions
        self.inside = inside

    @property
    def any(self) -> bool:
        """Whether there are deaths."""
        return len(self.keys) > 0

    @classmethod
    def told(cls, segment: Segment, inside: Bools) -> _Deaths:
        """By the records that explain them."""
        parts = []
        for type in (RecordType.DEAD_LETTERED, RecordType.EXPIRED):
            indices = _indices(segment.walk, type)
            records = Records(segment.source, type, segment.walk.offsets[indices])
            heirs = records.field("new_id")
            if type == RecordType.EXPIRED:
                ways = np.full(len(heirs), _EXPIRED)
            else:
                ways = np.where(heirs > 0, _DEAD_LETTERED, _KILLED)
            keys = np.column_stack((records.field("queue_id"), records.field("old_id"), ways))
            parts.append(cls(keys, heirs, segment.walk.positions[indices], inside[indices]))
        return cls(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in ("keys", "heirs", "positions", "inside"))
        )

    @classmethod
    def done(cls, segment: Segment, inside: Bools) -> _Deaths:
        """By the removals."""
        walk = segment.walk
        indices = _indices(walk, RecordType.REMOVED)
        records = Records(segment.source, RecordType.REMOVED, walk.offsets[indices])
        deadly = np.isin(records.field("reason"), list(_WAY_OF))
        indices = indices[deadly]
        records = Records(segment.source, RecordType.REMOVED, walk.offsets[indices])
        n = records.field("n")
        codes = np.zeros(max(_WAY_OF) + 1, np.int64)
        codes[list(_WAY_OF)] = list(_WAY_OF.values())
        ways = codes[records.field("reason")]
        keys = np.column_stack((np.repeat(records.field("queue_id"), n), records.ids(), np.repeat(ways, n)))
        positions, own = np.repeat(walk.positions[indices], n), np.repeat(inside[indices], n)
        return cls(keys, np.zeros(len(keys), np.int64), positions, own)


def _indices(walk: Walk, type: int) -> Int64s:
    return np.flatnonzero(walk.types == type)


def _records(segment: Segment, type: int) -> Records:
    return Records(segment.source, type, segment.walk.offsets[_indices(segment.walk, type)])
