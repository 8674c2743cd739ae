"""Maintains the indexes of a journal (see `id_index`): one for each complete segment, none for a removed one.

This is done beside a running broker, a little at a time; nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from store.files import Files
from store.id_index import IdIndexes, build, nothing
from store.reading import Segments

#: Free bytes of the disk below which no index is written: two segments' worth, which the broker needs more.
FREE_BYTES_MIN: Final = 128 << 20


class Indexer:
    """Maintains the indexes of the journal in a directory; `rest` is called every few milliseconds of work."""

    def __init__(self, files: Files, directory: str, rest: Callable[[], None] = nothing) -> None:
        self._files = files
        self._directory = directory
        self._rest = rest
        self._segments = Segments(files, directory)
        self._indexes = IdIndexes(files, directory)
        self._done: set[int] = set()  # segments that have an index, or cannot have one

    def work(self) -> int:
        """Check all segments once; returns how many indexes were made.  Raises OSError."""
        numbers = self._segments.numbers()
        self._done &= {*numbers}
        for number in {*self._indexes.numbers()} - {*numbers}:
            with suppress(FileNotFoundError):
                self._indexes.remove(number)
        made = 0
        for number in numbers:
            if number not in self._done and number != self._segments.newest:
                made += self._index(number)
        return made

    def _index(self, number: int) -> bool:
        """Make the index of a segment if it is missing; returns whether one was made."""
        index = None
        if self._indexes.read(number, self._segments.path(number)) is None:
            if self._files.space(self._directory)[1] < FREE_BYTES_MIN:
                return False
            index = build(self._segments.path(number), number, self._segments.data(number), self._rest)
            self._segments.forget()
            if index is not None:
                self._indexes.write(number, index)
        self._done.add(number)
        return index is not None
