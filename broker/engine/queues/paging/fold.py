"""Tails from the journal: where the messages of one queue lie, while its records are read after a restart.

Ids rise along the journal but for two things: messages that were published together and took different ways, and those
that were written anew (COPIED).  So there are a few runs with rising ids; a message is appended to the first that ends
below it, and found by bisection in each.  29 bytes a message, whether it was removed since or not.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Final

#: Rows of a block: what is given back at once while a tail is made of them.
BLOCK_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Row:
    """A message and the place of its record."""

    id: int
    priority: int
    segment: int
    offset: int
    size: int
    expiration: int


@dataclass(slots=True, eq=False)
class _Block:
    """Rows in parallel arrays; a size of 0 means that the row is gone."""

    ids: array[int] = field(default_factory=lambda: array("Q"))
    segments: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("I"))
    sizes: array[int] = field(default_factory=lambda: array("I"))
    priorities: array[int] = field(default_factory=lambda: array("B"))
    expirations: array[int] = field(default_factory=lambda: array("q"))

    def row(self, at: int) -> Row:
        """A row as a value."""
        return Row(
            self.ids[at],
            self.priorities[at],
            self.segments[at],
            self.offsets[at],
            self.sizes[at],
            self.expirations[at],
        )


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks with rising ids."""

    blocks: list[_Block] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    last: int = 0

    def append(self, id: int, priority: int, segment: int, offset: int, size: int, expiration: int) -> None:
        """Add a row with an id above all others."""
        if not self.blocks or len(self.blocks[-1].ids) >= BLOCK_ROWS:
            self.blocks.append(_Block())
            self.firsts.append(id)
        block = self.blocks[-1]
        block.ids.append(id)
        block.segments.append(segment)
        block.offsets.append(offset)
        block.sizes.append(size)
        block.priorities.append(priority)
        block.expirations.append(expiration)
        self.last = id

    def find(self, id: int) -> tuple[_Block, int] | None:
        """Where a message is, if it is here."""
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

    def rows(self) -> Iterator[Row]:
        """All rows, once: each block is given up as it is passed."""
        self.blocks.reverse()
        while self.blocks:
            block = self.blocks.pop()
            for at, size in enumerate(block.sizes):
                if size:
                    yield block.row(at)


class Places:
    """Where the messages of one queue lie."""

    __slots__ = ("_count", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """The records of all messages."""
        return sum([sum(block.sizes) for run in self._runs for block in run.blocks])

    def put(self, id: int, priority: int, segment: int, offset: int, size: int, expiration: int) -> None:
        """A message that was not there."""
        self._count += 1
        for run in self._runs:
            if run.last < id:
                run.append(id, priority, segment, offset, size, expiration)
                return
        run = _Run()
        run.append(id, priority, segment, offset, size, expiration)
        self._runs.append(run)

    def put_again(self, id: int, priority: int, segment: int, offset: int, size: int, expiration: int) -> None:
        """A message was written anew, whether its earlier place is known or not."""
        found = self._find(id)
        if found is None:
            self.put(id, priority, segment, offset, size, expiration)
            return
        block, at = found
        block.segments[at], block.offsets[at], block.sizes[at] = segment, offset, size

    def get(self, id: int) -> Row | None:
        """A message, if it is there."""
        found = self._find(id)
        return None if found is None else found[0].row(found[1])

    def segment_of(self, id: int) -> int:
        """The segment of a message, 0 if it is not there."""
        found = self._find(id)
        return 0 if found is None else found[0].segments[found[1]]

    def remove(self, id: int) -> None:
        """A message is no longer there; harmless if it never was."""
        found = self._find(id)
        if found is not None:
            found[0].sizes[found[1]] = 0
            self._count -= 1

    def _find(self, id: int) -> tuple[_Block, int] | None:
        for run in self._runs:
            found = run.find(id)
            if found is not None:
                return found
        return None

    def ids(self) -> list[int]:
        """The ids of all messages, in no order."""
        blocks = (block for run in self._runs for block in run.blocks)
        return [id for block in blocks for id, size in zip(block.ids, block.sizes, strict=True) if size]

    def take_all(self) -> Iterator[Row]:
        """All messages in the order of their ids; nothing is here afterwards."""
        runs, self._runs = self._runs, []
        self._count = 0
        if len(runs) == 1:
            return runs[0].rows()
        return merge(*(run.rows() for run in runs), key=_id)


def _id(row: Row) -> int:
    return row.id
