"""Lists, opens and reads the segments of a journal's directory.

Both the broker and programs that inspect its journal list and open segments here.  A segment may be moved to retention/
or removed between listing and reading; then `read` raises FileNotFoundError.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, Protocol

from store import decode
from store.decode import RawRecord
from store.errors import Corrupt, NewerFormat
from store.files import Files
from store.record import HEAD, LARGE_VERSION
from store.segment import (
    ENTRY_HEADER_BYTES,
    BadHeader,
    EntryHead,
    NewerHeader,
    Scan,
    SegmentHeader,
    header_of,
    scan,
    segment_name,
    segment_number,
)

_RECORD_HEAD_BYTES: Final = HEAD.size
#: The start of a record: its length, its type and version as one number.
_START: Final = Struct("<IH")
#: The types and versions that this software reads, as such numbers.
_KNOWN: Final = frozenset(
    [type | 1 << 8 for type in decode.KNOWN_TYPES] + [type | LARGE_VERSION << 8 for type in decode.LARGE_TYPES]
)


class Source(Protocol):
    """Where segments are read from: a directory, or a log."""

    def segments(self) -> list[int]:
        """The numbers of all segments, ascending."""

    def path(self, segment: int) -> str:
        """The path of a segment, for messages."""

    def read(self, segment: int) -> bytes:
        """All bytes of a segment."""


class SegmentDirectory:
    """A directory with segments, as a Source.  Every method raises OSError as the file system does."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def segments(self) -> list[int]:
        return sorted(n for n in map(segment_number, self._files.list_dir(self._directory)) if n)

    def path(self, segment: int) -> str:
        return f"{self._directory}/{segment_name(segment)}"

    def read(self, segment: int) -> bytes:
        return self._files.read(self.path(segment))


@dataclass(slots=True)
class Segment:
    """A segment that was read.  `found` are its entries, up to its end or to the first damage."""

    path: str
    number: int
    data: bytes
    header: SegmentHeader
    found: Scan

    def records(self) -> Iterator[RawRecord]:
        """The records of the valid entries.  Raises Corrupt for one that this software cannot read."""
        return raw_records(self.path, self.number, self.data, self.found)

    def count_types(self) -> Counter[tuple[int, int]]:
        """How many records there are of each type and version.  Raises Corrupt as `records` does, in half the time."""
        data, sound = self.data, True
        unpack, shortest = _START.unpack_from, _RECORD_HEAD_BYTES
        counts: defaultdict[int, int] = defaultdict(int)
        for entry in self.found.entries:
            offset = entry.offset + ENTRY_HEADER_BYTES
            try:
                for _ in range(entry.count):
                    length, kind = unpack(data, offset)
                    counts[kind] += 1
                    offset += length
                    if length < shortest:
                        sound = False
            except StructError:  # beyond the end of the segment
                sound = False
            sound = sound and offset <= entry.end
        found = Counter({(kind & 0xFF, kind >> 8): n for kind, n in counts.items()})
        if not (sound and counts.keys() <= _KNOWN):
            deque(self.records(), maxlen=0)  # raises at the first one that cannot be read
        return found

    def check_undamaged(self) -> None:
        """Raises Corrupt if anything but zeros follows the valid entries: only the newest segment may be torn."""
        if self.found.damage:
            raise Corrupt(self.path, self.found.end, self.found.damage)


def open_segment(path: str, number: int, data: bytes, behind: EntryHead | None = None) -> Segment:
    """The segment with these bytes, with its entries, or those `behind` one.

    Raises Corrupt, NewerFormat if its header is unreadable or another segment's.
    """
    try:
        header = header_of(number, data)
    except BadHeader as bad:
        raise unreadable(path, bad) from bad
    return Segment(path, number, data, header, scan(data, header, behind))


def read_segment(source: Source, number: int, behind: EntryHead | None = None) -> Segment:
    """A segment of a source; see `open_segment`.  Raises its errors and those of the source."""
    return open_segment(source.path(number), number, source.read(number), behind)


def unreadable(path: str, bad: BadHeader) -> Corrupt:
    """The error for a segment whose header this software cannot read."""
    return (NewerFormat if isinstance(bad, NewerHeader) else Corrupt)(path, 0, str(bad))


def is_known(type: int, version: int) -> bool:
    """Whether this software reads records of a type and version."""
    return type | version << 8 in _KNOWN


def raw_records(path: str, number: int, data: bytes, found: Scan) -> Iterator[RawRecord]:
    """The records of a scanned segment.  Raises Corrupt for one that this software cannot read."""
    unpack, known, shortest = _START.unpack_from, _KNOWN, _RECORD_HEAD_BYTES
    for entry in found.entries:
        timestamp, end = entry.timestamp, entry.end
        offset = entry.offset + ENTRY_HEADER_BYTES
        for position in range(entry.first, entry.first + entry.count):
            length, kind = unpack(data, offset)
            behind = offset + length
            if length < shortest or behind > end:
                raise Corrupt(path, offset, "the records do not fill their entry")
            if kind not in known:
                what = f"record type {kind & 0xFF} version {kind >> 8} is unknown: a newer version wrote it"
                raise NewerFormat(path, offset, what)
            yield number, position, timestamp, kind & 0xFF, data, offset
            offset = behind
