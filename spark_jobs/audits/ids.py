"""How the ids of messages lie in a journal, and what follows for the ledger.

Ids ascend: a message gets its id when it is stored, so those of a segment are all higher than those of the segments
before it.  From that follows what a ledger may take for settled, and what it cannot know:

- A message that settles within a partition is counted and forgotten there.  If another segment stores the same ids
  again, which is a fault, it would not be noticed; the ranges of the segments show it, and then nothing settles that
  might be concerned (`settle_above`).
- A message may leave that entered where nobody can look any more: before the range, or in a segment that the broker
  gave up.  It has a lower id than all that is stored behind (`open_below`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from spark_jobs.audits import rules
from spark_jobs.audits.reading import Journal, bounds
from spark_jobs.journal.decode import Selection
from spark_jobs.journal.gather import Segment
from spark_jobs.journal.layout import Records
from spark_jobs.journal.snapshot import UNKNOWN, SegmentRef, Vanished, next_id_at, read_segment
from spark_jobs.journal.walk import walk
from store.record import RecordType


@dataclass(frozen=True, slots=True)
class Range:
    """The messages stored in a segment: how many, and their lowest and highest id."""

    segment: int
    messages: int
    lowest: int
    highest: int


def settle_above(found: Iterable[Range]) -> int:
    """The id below which no message may settle within a partition: what two segments may both have stored."""
    highest = overlap = 0
    for each in sorted(found, key=lambda each: each.segment):
        if each.lowest <= highest:
            overlap = max(overlap, min(highest, each.highest) + 1)
        highest = max(highest, each.highest)
    return overlap


def limit_told(journal: Journal, *, opened: bool) -> int:
    """The id below which a message may have entered where nobody can look any more, as the broker tells it.

    It tells generously: ids are announced in blocks.  0 if everything can be looked at.  `opened`: there is an opening
    balance, so that nothing is unknown of what was before the range.
    """
    snapshot = journal.snapshot
    if not opened and journal.begins_within:
        following = next((ref for ref in snapshot.segments if _begins_later(ref, journal)), None)
        return rules.EVERYTHING if following is None else next_id_at(following)
    return snapshot.open_below if snapshot.trimmed else 0


def open_below(journal: Journal, *, opened: bool) -> int:
    """The same, exactly: the lowest id that is stored behind what cannot be looked at.  Reads a segment if need be."""
    told = limit_told(journal, opened=opened)
    if not told:
        return 0
    hole = max((gap.last_segment for gap in journal.snapshot.trimmed), default=0)
    lowest = next(_lowest(journal, [ref for ref in journal.snapshot.segments if ref.number > hole]), told)
    return min(told, lowest)


def _begins_later(ref: SegmentRef, journal: Journal) -> bool:
    """Whether a segment was begun when the range had begun."""
    options = journal.options
    if options.from_position is not None:
        return ref.first_position != UNKNOWN and ref.first_position >= options.from_position
    return options.from_time is not None and ref.created >= options.from_time


def _lowest(journal: Journal, refs: Iterable[SegmentRef]) -> Iterator[int]:
    """The lowest id stored in each segment that stores one within the range.

    One that has gone since the snapshot was taken is passed over: whoever reads the movements tells that it is missing.
    """
    selection = Selection((), frozenset({int(RecordType.MESSAGE)}), bounds(journal.options))
    for ref in refs:
        try:
            data = read_segment(ref)
        except Vanished:
            continue
        found = walk(data, number=ref.number, newest=ref.newest, limit=ref.limit)
        indices = selection.indices(found)
        if len(indices):
            records = Records(Segment(data, found).source, RecordType.MESSAGE, found.offsets[indices])
            yield int(np.min(records.field("id")))
