"""Messages on disk, in columns: their ids and the places of their records, in parallel arrays.

There may be millions of messages, so they are handled by operations on whole arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress


@dataclass(frozen=True, slots=True)
class Row:
    """A message and the place of its record."""

    id: int
    priority: int
    segment: int
    offset: int
    size: int
    expiration: int


class Columns:
    """Rows in parallel arrays; a size of 0 means that the row is gone.

    `priorities`: None if all have the same, which is stored elsewhere; `expirations`: None if none has one.
    """

    __slots__ = ("expirations", "ids", "offsets", "priorities", "segments", "sizes")

    def __init__(self, priorities: array[int] | None = None) -> None:
        self.ids: array[int] = array("Q")
        self.segments: array[int] = array("I")
        self.offsets: array[int] = array("I")
        self.sizes: array[int] = array("I")
        self.priorities = priorities
        self.expirations: array[int] | None = None

    def add_run(
        self, ids: list[int], offsets: list[int], sizes: list[int], *, segment: int, priority: int, expiration: int
    ) -> None:
        """Add rows that share segment, priority and expiration."""
        assert self.priorities is not None, "rows of several priorities"
        count = len(ids)
        if expiration:
            self.begin_expirations()
        if self.expirations is not None:
            self.expirations.extend(array("q", (expiration,)) * count)
        self.ids.fromlist(ids)
        self.offsets.fromlist(offsets)
        self.sizes.fromlist(sizes)
        self.segments.extend(array("I", (segment,)) * count)
        self.priorities.extend(array("B", (priority,)) * count)

    def extend(self, others: Columns) -> None:
        """Add the rows of others."""
        if others.expirations is not None and any(others.expirations):
            self.begin_expirations()
        if self.expirations is not None:
            self.expirations.extend(others.expirations or array("q", bytes(8 * len(others.ids))))
        self.ids.extend(others.ids)
        self.segments.extend(others.segments)
        self.offsets.extend(others.offsets)
        self.sizes.extend(others.sizes)
        if self.priorities is not None:
            assert others.priorities is not None, "both have several priorities"
            self.priorities.extend(others.priorities)

    def begin_expirations(self) -> None:
        """Begin the column of expirations, unless there is one: of the rows so far none has one."""
        if self.expirations is None:
            self.expirations = array("q", bytes(8 * len(self.ids)))

    def remove_all(self) -> None:
        """Mark all rows as gone."""
        self.sizes = array("I", bytes(4 * len(self.sizes)))

    def row(self, at: int) -> Row:
        """A row as a value."""
        assert self.priorities is not None, "its priority is known"
        expiration = 0 if self.expirations is None else self.expirations[at]
        return Row(self.ids[at], self.priorities[at], self.segments[at], self.offsets[at], self.sizes[at], expiration)

    def part(self, start: int, stop: int) -> Columns:
        """The rows from `start` up to `stop`, excluded."""
        if start == 0 and stop >= len(self.ids):
            return self
        return self._made(lambda column: column[start:stop])

    def chosen(self, mask: Sequence[int]) -> Columns:
        """The rows for which the mask is not 0."""
        if all(mask):
            return self
        return self._made(lambda column: array(column.typecode, compress(column, mask)))

    def by_priority(self) -> Iterator[tuple[int, Columns]]:
        """Each priority with its rows."""
        assert self.priorities is not None, "rows of several priorities"
        found = sorted(set(self.priorities))
        if len(found) == 1:
            yield found[0], self
            return
        for priority in found:
            yield priority, self.chosen([each == priority for each in self.priorities])

    def by_id(self) -> Columns:
        """The same rows, by rising ids."""
        order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        return self._made(lambda column: array(column.typecode, map(column.__getitem__, order)))

    def _made(self, make: Callable[[array[int]], array[int]]) -> Columns:
        """Columns made from each of these."""
        made = Columns(None if self.priorities is None else make(self.priorities))
        made.ids, made.segments = make(self.ids), make(self.segments)
        made.offsets, made.sizes = make(self.offsets), make(self.sizes)
        made.expirations = None if self.expirations is None else make(self.expirations)
        return made
