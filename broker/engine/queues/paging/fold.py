"""Collects the places of a queue's messages while the journal is read after a restart, to make tails of them.

Ids rise along the journal with two exceptions: messages that were published together but routed differently, and those
that were copied forward (COPIED).  So there are a few runs with rising ids; a message is appended to the first run that
ends below it, and found by bisection in each.  A message takes 21 bytes, or 29 if any near it expires, whether it was
removed since or not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Final

from broker.engine.queues.paging.columns import Columns, Row

#: The usual number of rows of a block, whose memory is freed at once while a tail is made from them.
BLOCK_ROWS: Final = 1 << 16


class _Run:
    """Blocks with rising ids, the first id of each block, and the last id of all."""

    __slots__ = ("blocks", "firsts", "last")

    def __init__(self) -> None:
        self.blocks: list[Columns] = []
        self.firsts: list[int] = []
        self.last = 0

    def block(self, id: int) -> Columns:
        """The block to which rows from this id on are added; it is above all others."""
        if not self.blocks or len(self.blocks[-1].ids) >= BLOCK_ROWS:
            self.blocks.append(Columns(array("B")))
            self.firsts.append(id)
        return self.blocks[-1]

    def find(self, id: int) -> tuple[Columns, int] | None:
        """The block and row of a message, if it is here."""
        if id > self.last:
            return None
        at = bisect_right(self.firsts, id) - 1
        if at < 0:
            return None
        block = self.blocks[at]
        row = bisect_left(block.ids, id)
        if row < len(block.ids) and block.ids[row] == id and block.sizes[row]:
            return block, row
        return None


class Places:
    """The places of one queue's messages."""

    __slots__ = ("_count", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """Bytes of the records of all messages."""
        return sum([sum(block.sizes) for run in self._runs for block in run.blocks])

    def put(
        self, ids: list[int], offsets: list[int], sizes: list[int], *, segment: int, priority: int, expiration: int
    ) -> None:
        """Add new messages with rising ids, all in one segment."""
        run = self._run_below(ids[0])
        run.block(ids[0]).add_run(ids, offsets, sizes, segment=segment, priority=priority, expiration=expiration)
        run.last = ids[-1]
        self._count += len(ids)

    def _run_below(self, id: int) -> _Run:
        for run in self._runs:
            if run.last < id:
                return run
        self._runs.append(_Run())
        return self._runs[-1]

    def put_again(self, id: int, offset: int, size: int, *, segment: int, priority: int, expiration: int) -> None:
        """Set the place of a message that was copied forward, whether its earlier place is known or not."""
        found = self._find(id)
        if found is None:
            self.put([id], [offset], [size], segment=segment, priority=priority, expiration=expiration)
            return
        block, at = found
        block.segments[at], block.offsets[at], block.sizes[at] = segment, offset, size

    def get(self, id: int) -> Row | None:
        """A message, if it is there."""
        found = self._find(id)
        return None if found is None else found[0].row(found[1])

    def segments_of(self, ids: Sequence[int]) -> set[int]:
        """The segments of these messages, as far as they are here."""
        segments: set[int] = set()
        for block, start, stop in self._spans(ids):
            segments.update(block.segments[start:stop])
        return segments

    def remove(self, ids: Sequence[int]) -> None:
        """Remove messages; no effect for those that are not here."""
        for block, start, stop in self._spans(ids):
            block.sizes[start:stop] = array("I", bytes(4 * (stop - start)))
            self._count -= stop - start

    def _spans(self, ids: Sequence[int]) -> Iterator[tuple[Columns, int, int]]:
        """The places of these messages, as far as they are here: for each stretch, its block, first row and end.

        Most messages leave in order of arrival, so stretches are long.
        """
        at, count = 0, len(ids)
        while at < count:
            found = self._find(ids[at])
            at += 1
            if found is None:
                continue
            block, start = found
            rows, sizes, stop, end = block.ids, block.sizes, start + 1, len(block.ids)
            while at < count and stop < end and rows[stop] == ids[at] and sizes[stop]:
                stop += 1
                at += 1
            yield block, start, stop

    def _find(self, id: int) -> tuple[Columns, int] | None:
        for run in self._runs:
            found = run.find(id)
            if found is not None:
                return found
        return None

    def __contains__(self, id: int) -> bool:
        return self._find(id) is not None

    def ids(self) -> list[int]:
        """The ids of all messages, in no particular order."""
        blocks = [block for run in self._runs for block in run.blocks]
        return [id for block in blocks for id in compress(block.ids, block.sizes)]

    def take_all(self) -> Iterator[Columns]:
        """Remove and return all messages in order of id, block by block."""
        runs, self._runs = self._runs, []
        self._count = 0
        for run in runs:
            run.blocks.reverse()  # so that each block can be freed once it is passed
        while runs := [run for run in runs if run.blocks]:
            most = min([run.blocks[-1].ids[-1] for run in runs])
            parts = [part for run in runs if (part := _up_to(run.blocks, most)) is not None]
            rows = parts[0]
            if len(parts) > 1:
                rows = Columns(array("B"))
                for part in parts:
                    rows.extend(part)
                rows = rows.by_id()
            rows = rows.chosen(rows.sizes)
            if rows.ids:
                yield rows


def _up_to(blocks: list[Columns], most: int) -> Columns | None:
    """Remove and return the rows of the last block up to this id, or None."""
    block = blocks.pop()
    count = bisect_right(block.ids, most)
    if count < len(block.ids):
        blocks.append(block.part(count, len(block.ids)))
    return block.part(0, count) if count else None
