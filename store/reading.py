"""Reads a journal with its kept segments, oldest first, whether a broker runs on it or not.  Nothing is written.

A segment may be moved to retention/ or removed between listing and reading: it is read from its new place, or skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.decode import RawRecord
from store.files import Files
from store.retention import kept
from store.segment import SEGMENT_HEADER_BYTES, BadHeader, header_of, segment_number
from store.segment_directory import SegmentDirectory, open_segment


class Segments:
    """The segments of a journal directory.

    `in_use`: those not in retention/; all messages on queues were stored, or copied, in one of them.  `newest`: the one
    that a broker writes to, or last wrote to; 0: there is none.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._live = SegmentDirectory(files, directory)
        self._paths: dict[int, str] = {}
        self.in_use: frozenset[int] = frozenset()
        self.newest = 0
        self._last: tuple[int, str, bytes] = (0, "", b"")

    def numbers(self) -> list[int]:
        """The numbers of all segments, kept ones too, ascending.  Raises OSError."""
        self._look()
        return sorted(self._paths)

    def _look(self) -> None:
        """List kept segments first: one that is moved meanwhile is still found at its old place."""
        paths = kept(self._files, self._directory)
        live = self._live.segments()
        self.in_use = frozenset(live)
        self.newest = max(live, default=0)
        self._paths = {segment_number(path.rpartition("/")[2]): path for path in paths}
        self._paths |= {number: self._live.path(number) for number in live}

    def path(self, number: int) -> str:
        """The path of a segment when last listed."""
        return self._paths[number]

    def first_position(self, number: int) -> int | None:
        """The position where a segment begins; None if it is missing, or its header cannot be read."""
        path = self._paths.get(number)
        try:
            head = self._files.read_range(path, 0, SEGMENT_HEADER_BYTES) if path else b""
            return header_of(number, head).first_position
        except (OSError, BadHeader):
            return None

    def forget(self) -> None:
        """Free the memory of the segment that was read last."""
        self._last = (0, "", b"")

    def data(self, number: int) -> bytes:
        """All bytes of a segment; none if it was removed meanwhile.  Raises OSError."""
        if self._last[0] != number:
            self._last = (number, *self._read(number))
        return self._last[2]

    def _read(self, number: int) -> tuple[str, bytes]:
        for _ in range(2):
            path = self._paths.get(number)
            if path is None:
                break
            try:
                return path, self._files.read(path)
            except FileNotFoundError:
                self._look()
        return "", b""

    def records(self, number: int) -> Iterator[RawRecord]:
        """The records of a segment, without a torn tail in the newest.  Raises Corrupt, OSError."""
        data = self.data(number)
        if not data:
            return
        segment = open_segment(self._last[1], number, data)
        yield from segment.records()
        if number < self.newest:
            segment.check_undamaged()
