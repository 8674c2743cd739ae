"""The segments of a journal's directory: which there are, and how each is opened and read.

Segments are listed and opened here, by the broker as well as by what looks at a journal beside it.  A segment may
move to retention/, or go, between two looks; `read` raises FileNotFoundError then.
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
    NewerHeader,
    Scan,
    SegmentHeader,
    header_of,
    scan,
    segment_name,
    segment_number,
)

_RECORD_HEAD_BYTES: Final = HEAD.size
#: Of a record: its length, its type and version together.
_START: Final = Struct("<IH")
#: What this software reads, as they are there.
_KNOWN: Final = frozenset(
    [type | 1 << 8 for type in decode.KNOWN_TYPES] + [type | LARGE_VERSION << 8 for type in decode.LARGE_TYPES]
)


class Source(Protocol):
    """Where segments are read from: a directory, or a log."""

    def segments(self) -> list[int]:
        """The numbers of all segments, ascending."""

    def path(self, segment: int) -> str:
        """Where a segment is, for people."""

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
    """A segment that was read.  `found` is what it holds, up to its end or to where it is damaged."""

    path: str
    number: int
    data: bytes
    header: SegmentHeader
    found: Scan

    def records(self) -> Iterator[RawRecord]:
        """The records of the valid entries.  Raises Corrupt when one is not what this software can read."""
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
            deque(self.records(), maxlen=0)  # it raises at the first that cannot be read
        return found

    def check_undamaged(self) -> None:
        """Raises Corrupt if anything but zeros follows the valid entries: the newest segment alone may be torn."""
        if self.found.damage:
            raise Corrupt(self.path, self.found.end, self.found.damage)


def open_segment(path: str, number: int, data: bytes) -> Segment:
    """The segment with these bytes.  Raises Corrupt, NewerFormat for a header that is not its own, or not readable."""
    try:
        header = header_of(number, data)
    except BadHeader as bad:
        raise unreadable(path, bad) from bad
    return Segment(path, number, data, header, scan(data, header))


def read_segment(source: Source, number: int) -> Segment:
    """A segment of a source.  Raises as `open_segment`, and as the source does."""
    return open_segment(source.path(number), number, source.read(number))


def unreadable(path: str, bad: BadHeader) -> Corrupt:
    """What to raise for a segment without a header that this software reads."""
    return (NewerFormat if isinstance(bad, NewerHeader) else Corrupt)(path, 0, str(bad))


def is_known(type: int, version: int) -> bool:
    """Whether this software reads records of a type and version."""
    return type | version << 8 in _KNOWN


def raw_records(path: str, number: int, data: bytes, found: Scan) -> Iterator[RawRecord]:
    """The records of a scanned segment.  Raises Corrupt when one is not what this software can read."""
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
