"""Reads messages back one by one, for paging, and writes non-durable ones to scratch files.

A message that waits beyond the memory limit is known by its place: segment, offset and length of its record.  Durable
messages are in the journal's segments.  Others are written to scratch files beside them, one behind the other, as
MESSAGE records; their segments have numbers from SCRATCH_FIRST on.  A scratch file is removed when nothing in it is
needed, and the next run of the broker removes any that are left.

Nothing here changes the journal.  A record that is missing or incomplete is returned as None, and left where it is.  If
the system refuses to read it, nothing is known of it (ReadFailed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from store.errors import ReadFailed
from store.files import File, Files, write_all
from store.segment import SCRATCH_SUFFIX

#: The first number of a scratch segment; the journal's would reach it after 128 PiB.
SCRATCH_FIRST: Final = 1 << 31

#: Bytes of a scratch file: as a segment, so that one remaining message does not keep much.
SCRATCH_BYTES: Final = 64 << 20

#: The largest gap between two records, in bytes, that is read along with them: as much as a disk's read-ahead.
GAP_BYTES_MAX: Final = 32 << 10

#: The most bytes of one read, unless a record is larger: two such buffers are in memory at a time.
READ_BYTES_MAX: Final = 4 << 20

#: Bytes that must fit before a full disk counts as having room again: enough for some messages.
TRIED_BYTES: Final = 1 << 20

#: A buffer, and the range of indexes (start, stop) of the requested records in it; it begins with the first of them.
#: None: they are not there.
Found = tuple[bytes | None, int, int]


class Pages:
    """The messages on disk of one journal; `path` says where a segment is.

    `full`: the last attempt to write failed, most likely for lack of room.
    """

    def __init__(
        self, files: Files, directory: str, path: Callable[[int], str], *, scratch_bytes: int = SCRATCH_BYTES
    ) -> None:
        self.full = False
        self._files = files
        self._directory = directory
        self._path = path
        self._scratch_bytes = scratch_bytes
        self._scratch = SCRATCH_FIRST - 1  # the newest
        self._file: File | None = None
        self._end = 0
        self._needed: dict[int, int] = {}

    def _where(self, segment: int) -> str:
        if segment < SCRATCH_FIRST:
            return self._path(segment)
        return f"{self._directory}/{segment - SCRATCH_FIRST:010d}{SCRATCH_SUFFIX}"

    def read(self, segments: Sequence[int], offsets: Sequence[int], sizes: Sequence[int]) -> list[Found]:
        """The records at these places, in order, each whole or not at all.  Raises ReadFailed.

        Neighbours are read together or, if that fails, one by one.
        """
        found: list[Found] = []
        start, count = 0, len(segments)
        while start < count:
            stop = self._together(segments, offsets, sizes, start)
            first = offsets[start]
            data = self.read_range(segments[start], first, offsets[stop - 1] + sizes[stop - 1] - first)
            if data is not None or stop - start == 1:
                found.append((data, start, stop))
            else:
                found += [(self.read_range(segments[n], offsets[n], sizes[n]), n, n + 1) for n in range(start, stop)]
            start = stop
        return found

    def _together(self, segments: Sequence[int], offsets: Sequence[int], sizes: Sequence[int], start: int) -> int:
        """The end of the records that are read with the one at `start`."""
        segment, first = segments[start], offsets[start]
        end = first + sizes[start]
        for at in range(start + 1, len(segments)):
            offset = offsets[at]
            if segments[at] != segment or not end <= offset <= end + GAP_BYTES_MAX:
                return at
            end = offset + sizes[at]
            if end - first > READ_BYTES_MAX:
                return at
        return len(segments)

    def read_range(self, segment: int, offset: int, nbytes: int) -> bytes | None:
        """A range of a segment's bytes; None if they are not all there.  Raises ReadFailed."""
        path = self._where(segment)
        try:
            data = self._files.read_range(path, offset, nbytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReadFailed(f"{path}: {error.strerror or error}") from error
        return data if len(data) == nbytes else None

    def will_need(self, segment: int, offset: int, nbytes: int) -> None:
        """Announce that this part of a segment will be read soon.  Errors are left for the read to find."""
        try:
            self._files.will_need(self._where(segment), offset, nbytes)
        except OSError:
            return

    def write(self, parts: list[bytes], count: int) -> tuple[int, int] | None:
        """Write `count` records, one behind the other, to a scratch file; returns its segment and the first's offset.

        None if that failed: the next write overwrites what it left.
        """
        data = b"".join(parts)
        try:
            if self._file is None or self._end >= self._scratch_bytes:
                self._begin()
            assert self._file is not None
            write_all(self._file, data, self._end)
        except OSError:
            self.full = True
            return None
        self.full = False
        place = (self._scratch, self._end)
        self._end += len(data)
        self._needed[self._scratch] += count
        return place

    def try_again(self) -> bool:
        """Whether a scratch file can be written again; the next record overwrites what is written here."""
        place = self.write([bytes(TRIED_BYTES)], 0)
        if place is None:
            return False
        self._end = place[1]
        return True

    def _begin(self) -> None:
        """Continue in a new file."""
        file = self._files.create(self._where(self._scratch + 1))
        if self._file is not None:
            self._file.close()
            self._drop_if_unneeded(self._scratch, current=False)
        self._file = file
        self._scratch += 1
        self._end = 0
        self._needed[self._scratch] = 0

    def release(self, segment: int, count: int) -> None:
        """Release `count` records in a scratch file that are no longer needed."""
        left = self._needed[segment] - count
        assert left >= 0, "more records released than written"
        self._needed[segment] = left
        self._drop_if_unneeded(segment, current=segment == self._scratch)

    def _drop_if_unneeded(self, segment: int, *, current: bool) -> None:
        """Remove a file if nothing in it is needed; the current one is overwritten from its start instead."""
        if self._needed[segment]:
            return
        if current:
            self._end = 0
            return
        del self._needed[segment]
        try:
            self._files.remove(self._where(segment))
        except OSError:  # the next run of the broker removes it
            return
