"""Where the records of entries begin: each is found by the length of the previous one in its entry.

This is a chain, which only a loop can follow.  But there are many entries, and thus many chains: all of them are
followed at once, with one numpy operation per step.  When few entries have records left, they are followed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import Final

import numpy as np

from spark_jobs.journal.layout import Int64s, Source
from store.record import HEAD
from store.segment import ENTRY_HEADER_BYTES, EntryHead

#: Minimum number of entries to follow together; fewer are faster one by one: a step costs as much as 60 records in a
#: loop.
TOGETHER_MIN: Final = 64

_LENGTH: Final = Struct("<I")
_PADDING_MAX: Final = 7

#: Records that cannot be found: the byte offset where the first should begin, its position, and their number.
Stray = tuple[int, int, int]


def record_offsets(source: Source, entries: Sequence[EntryHead]) -> tuple[Int64s, Int64s, list[Stray]]:
    """Where the records of entries begin, how many each entry has, and which cannot be found.

    If a record's length leads out of its entry, the records after it in the entry are lost.
    """
    starts = np.array([entry.offset + ENTRY_HEADER_BYTES for entry in entries], np.int64)
    ends = np.array([entry.end for entry in entries], np.int64)
    counts = np.array([entry.count for entry in entries], np.int64)
    if (counts * HEAD.size <= ends - starts).all():
        try:
            offsets, reached = _follow(source, starts, counts)
        except (IndexError, StructError):
            return _follow_warily(source.data, entries)
        left = ends - reached
        if ((left >= 0) & (left <= _PADDING_MAX)).all() and (offsets <= len(source.data) - HEAD.size).all():
            return offsets, counts, []
    return _follow_warily(source.data, entries)


def _follow(source: Source, starts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Where records begin, and where the last of each entry ends.  Raises IndexError, struct.error beyond the data."""
    offsets = np.empty(counts.sum(), np.int64)
    order = np.argsort(-counts, kind="stable")
    at, longest = starts[order], counts[order]
    slots = (np.cumsum(counts) - counts)[order]
    steps = int(longest[TOGETHER_MIN - 1]) if len(longest) >= TOGETHER_MIN else 0
    going = np.searchsorted(-longest, -np.arange(steps))
    for step, n in enumerate(going.tolist()):
        here = at[:n]
        offsets[slots[:n] + step] = here
        here += source.lengths(here)
    unpack = _LENGTH.unpack_from
    for index in np.flatnonzero(longest > steps).tolist():
        offset = int(at[index])
        chain = [offset]
        append = chain.append
        for _ in repeat(None, int(longest[index]) - steps):
            offset += unpack(source.data, offset)[0]
            append(offset)
        at[index] = chain.pop()
        slot = int(slots[index]) + steps
        offsets[slot : slot + len(chain)] = chain
    reached = np.empty_like(at)
    reached[order] = at
    return offsets, reached


def _follow_warily(data: bytes, entries: Sequence[EntryHead]) -> tuple[Int64s, Int64s, list[Stray]]:
    """The same, record by record, if something does not fit."""
    offsets: list[int] = []
    counts: list[int] = []
    strays: list[Stray] = []
    for entry in entries:
        offset = entry.offset + ENTRY_HEADER_BYTES
        before = len(offsets)
        while len(offsets) - before < entry.count and entry.end - offset >= HEAD.size:
            (length,) = _LENGTH.unpack_from(data, offset)
            if not HEAD.size <= length <= entry.end - offset:
                break
            offsets.append(offset)
            offset += length
        count = len(offsets) - before
        counts.append(count)
        if count < entry.count or entry.end - offset > _PADDING_MAX:
            strays.append((offset, entry.first + count, entry.count - count))
    return np.array(offsets, np.int64), np.array(counts, np.int64), strays
