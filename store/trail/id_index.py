"""Indexes of segments: which messages the records of a complete segment are about, in a small file for each.

A search for a message opens only the segments with records about it.  The files are in `index/` beside the segments,
`0000000001.ids` for segment 1, wherever that is: in the journal or in retention/.

    magic, version, reserved, crc and bytes of the segment, runs, bytes of names | first ids | last ids | names | crc

Ids are those of messages that are stored, moved, removed, delivered or mentioned, and of the messages that they were
before; each run of consecutive ids is stored as its first and last.  Names are those of queues and sessions that the
segment defines, a JSON object.

Each complete segment has an index, and no removed one: `Indexer` sees to that beside a running broker, a little at a
time, and nothing waits for it.

Everything here is derived from segments, and nothing depends on it.  If an index is missing, damaged or belongs to
another segment with the same number, the segment itself is searched.  A damaged segment never gets an index, so that
the part behind the damage is searched too.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from crc32c import crc32c

from store import decode
from store.errors import Corrupt
from store.files import Files, write_all
from store.reading import Segments
from store.record import VERSION, RecordError, RecordType
from store.record_tables import BIG_ENDIAN, pack_array
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, BadHeader, EntryHead, header_of
from store.segment_directory import is_known, open_segment

DIRECTORY: Final = "index"
SUFFIX: Final = ".ids"

#: The annotation in which a copy names the message that it was made from.
ORIGIN: Final = b'"_AMQ_ORIG_MESSAGE_ID":'

#: Free bytes of the disk below which no index is written: two segments' worth, which the broker needs more.
FREE_BYTES_MIN: Final = 128 << 20

_MAGIC: Final = b"BARTLIDS"
_VERSION: Final = 1
_HEAD: Final = Struct("<8sHHIQII")
_CRC: Final = Struct("<I")

#: Records looked at between two rests: about 1 ms.
_REST_RECORDS: Final = 1_024

#: The start of a record: its length, its type and version as one number, and in a MESSAGE the id.
_KIND: Final = Struct("<IH2x")
_START: Final = Struct("<IH2xQ")
_PLAIN: Final = RecordType.MESSAGE | VERSION << 8

#: The offset of the length of a MESSAGE's annotations, and its bytes if there are none.
_NOTES_AT: Final = 64
_NO_NOTES: Final = bytes(4)

_DIGITS: Final = re.compile(rb"\d{1,20}")

#: The types of `decode.Speaking` records; and types that name queues and sessions.
SPEAKING: Final = frozenset(
    {
        RecordType.REMOVED,
        RecordType.COUNTS,
        RecordType.DELIVERING,
        RecordType.SCHEDULED,
        RecordType.DEAD_LETTERED,
        RecordType.EXPIRED,
        RecordType.INFLIGHT,
    }
)
NAMED: Final = frozenset({RecordType.QUEUE, RecordType.SESSION})

_Run = tuple[int, int]


def nothing() -> None:
    """Do nothing: the rest of callers that need none."""


@dataclass(frozen=True, slots=True)
class IdIndex:
    """The index of one segment, identified by the checksum of its header and its size in bytes; `names` are by id."""

    segment_crc: int
    segment_bytes: int
    firsts: array[int]
    lasts: array[int]
    names: dict[int, str]

    def has(self, id: int) -> bool:
        """Whether the segment has records about this message."""
        at = bisect_right(self.firsts, id) - 1
        return at >= 0 and id <= self.lasts[at]


# -- building ----------------------------------------------------------------------------------------------------------


def build(
    path: str, number: int, data: bytes, rest: Callable[[], None] = nothing, *, torn: bool = False
) -> IdIndex | None:
    """The index of segment `number`; None if it is damaged, or a newer version wrote it.

    It takes 0.2 s for 64 MiB; `rest` is called about every millisecond.  `torn`: ignore what follows the last whole
    entry, as in the newest segment.
    """
    try:
        segment = open_segment(path, number, data)
        if not torn:
            segment.check_undamaged()
        collected = _Collected(data)
        looked_at = 0
        for entry in segment.found.entries:
            collected.look(entry)
            looked_at += entry.count
            if looked_at >= _REST_RECORDS:
                looked_at = 0
                rest()
    except (Corrupt, RecordError, StructError, ValueError):
        return None
    firsts, lasts = array("Q"), array("Q")
    for first, last in _merged(sorted(collected.runs)):
        firsts.append(first)
        lasts.append(last)
    return IdIndex(segment.header.crc, len(data), firsts, lasts, collected.names)


class _Collected:
    """The ids and names collected from the records of a segment so far."""

    __slots__ = ("_data", "names", "runs")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.names: dict[int, str] = {}
        self.runs: list[_Run] = []

    def look(self, entry: EntryHead) -> None:
        """Collect from the records of an entry: the hot loop.  Raises RecordError, StructError, ValueError."""
        data, unpack, plain, notes, none = self._data, _START.unpack_from, _PLAIN, _NOTES_AT, _NO_NOTES
        offset, bound = entry.offset + ENTRY_HEADER_BYTES, len(data) - _START.size
        first, last = 1, 0  # the current run of consecutive ids
        for _ in range(entry.count):
            if offset > bound:
                length, kind, id = *_KIND.unpack_from(data, offset), 0
            else:
                length, kind, id = unpack(data, offset)
            if kind == plain and data[offset + notes : offset + notes + 4] == none:
                if id == last + 1:
                    last = id
                else:
                    self.runs.append((first, last))
                    first = last = id
            else:
                self._look_at_other(kind, offset, id)
            offset += length
        self.runs.append((first, last))
        if offset > entry.end:
            raise RecordError("the records do not fill their entry")

    def _look_at_other(self, kind: int, offset: int, id: int) -> None:
        data, type, version = self._data, kind & 0xFF, kind >> 8
        if not is_known(type, version):
            raise RecordError(f"record type {type} version {version} is unknown")
        if type in decode.LARGE_TYPES:
            _, _, start, end = decode.find_annotations(data, offset)
            self.runs += [(each, each) for each in (id, origin_in(data, offset + start, offset + end)) if each]
        elif type in NAMED:
            found = decode.decode_definition(data, offset)
            self.names[found.id] = str(found.definition.get("name", ""))
        elif type in SPEAKING:
            self.runs += _runs(ids_of(decode.decode(data, offset)))


def origin_in(data: bytes, start: int, end: int) -> int:
    """The message that a copy was made from, by the annotations in these bytes; 0: they name none."""
    at = data.find(ORIGIN, start, end)
    if at < 0:
        return 0
    digits = _DIGITS.match(data, at + len(ORIGIN), end)
    return int(digits[0]) if digits else 0


def ids_of(record: decode.Record) -> Sequence[int]:
    """The messages that a record of one of the `SPEAKING` types is about."""
    assert isinstance(record, decode.Speaking)
    if isinstance(record, decode.DeadLettered | decode.Expired):
        return [id for id in (record.old_id, record.new_id) if id]
    return record.ids


def _runs(ids: Sequence[int]) -> Iterable[_Run]:
    if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1 and tuple(ids) == tuple(range(ids[0], ids[-1] + 1)):
        return [(ids[0], ids[-1])]
    return [(id, id) for id in ids]


def _merged(runs: Iterable[_Run]) -> Iterator[_Run]:
    """The same runs, merged where they overlap or adjoin."""
    first, last = 1, 0
    for low, high in runs:
        if low > last + 1:
            if first <= last:
                yield first, last
            first = low
        last = max(last, high)
    if first <= last:
        yield first, last


# -- files -------------------------------------------------------------------------------------------------------------


def encode(index: IdIndex) -> bytes:
    """The bytes of an index file."""
    names = json.dumps(index.names, ensure_ascii=False, separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, _VERSION, 0, index.segment_crc, index.segment_bytes, len(index.firsts), len(names))
    whole = b"".join((head, pack_array("Q", index.firsts), pack_array("Q", index.lasts), names))
    return whole + _CRC.pack(crc32c(whole))


def decode_index(data: bytes) -> IdIndex | None:
    """The inverse of `encode`; None if the bytes are not a whole index of this version."""
    if len(data) < _HEAD.size + _CRC.size:
        return None
    magic, version, _, segment_crc, segment_bytes, n, names_bytes = _HEAD.unpack_from(data)
    names_at = _HEAD.size + 16 * n
    if magic != _MAGIC or version != _VERSION or len(data) != names_at + names_bytes + _CRC.size:
        return None
    with memoryview(data) as view:
        if crc32c(view[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
            return None
        firsts, lasts = (numbers_in(view[at : at + 8 * n]) for at in (_HEAD.size, _HEAD.size + 8 * n))
    names = json.loads(data[names_at : -_CRC.size])
    return IdIndex(segment_crc, segment_bytes, firsts, lasts, {int(id): name for id, name in names.items()})


def numbers_in(view: memoryview, *, swapped: bool = BIG_ENDIAN) -> array[int]:
    """The inverse of `pack_array`."""
    numbers = array("Q")
    numbers.frombytes(view)
    if swapped:
        numbers.byteswap()
    return numbers


class IdIndexes:
    """The indexes of a journal directory.  Every method raises OSError as the file system does, unless noted."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = f"{directory}/{DIRECTORY}"

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:010d}{SUFFIX}"

    def numbers(self) -> list[int]:
        """The numbers of the segments that have an index file."""
        try:
            names = self._files.list_dir(self._directory)
        except FileNotFoundError:
            return []
        return [int(name.removesuffix(SUFFIX)) for name in names if name.removesuffix(SUFFIX).isdigit()]

    def read(self, number: int, path: str) -> IdIndex | None:
        """The index of the segment at `path`; None if there is no valid one.  Never raises."""
        try:
            index = decode_index(self._files.read(self._path(number)))
            if index is None or self._files.size(path) != index.segment_bytes:
                return None
            header = header_of(number, self._files.read_range(path, 0, SEGMENT_HEADER_BYTES))
        except (OSError, BadHeader):
            return None
        return index if header.crc == index.segment_crc else None

    def write(self, number: int, index: IdIndex) -> None:
        """Store an index.  It need not be durable: a partial one is ignored."""
        self._files.make_dir(self._directory)
        path = self._path(number)
        with closing(self._files.create(f"{path}.part")) as file:
            write_all(file, encode(index), 0)
        self._files.rename(f"{path}.part", path)

    def remove(self, number: int) -> None:
        """Remove the index of a segment that no longer exists."""
        self._files.remove(self._path(number))


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
