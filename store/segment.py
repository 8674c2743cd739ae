"""Segments and entries: the layout of records in a file.

A segment file has a header of 64 bytes and then entries, one behind the other, up to zeros or the end of the file.
An entry is the atomic unit: all of its records count, or none.

    segment header   magic "BARTLEBY", version, header bytes, number, broker id, created, first position, crc
    entry            magic, length, crc | record count, first position, timestamp, durable, reserved | records | zeros

The checksum of an entry covers everything behind the checksum field, including padding, and starts from the checksum of
its segment's header.  So an entry in the wrong segment, or from another broker, is never valid.

All positions below `durable` were known to be on disk when the entry was written.  It distinguishes a torn write from
corruption: see `recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

SEGMENT_MAGIC: Final = b"BARTLEBY"
ENTRY_MAGIC: Final = b"\xe7BJ\x01"

#: The version of new segments.  It rises when a record, or a member of its JSON, gets a meaning that older software
#: must not ignore: that software then refuses the segment by name.
#:
#:     1  as first published
#:     2  a session's user owns it; its messages in flight have failed deliveries
FORMAT_VERSION: Final = 2

#: magic, version, header bytes, reserved, number, broker id, created ms, first position, reserved, crc
_SEGMENT: Final = Struct("<8sHHIQ16sqQII")
#: magic, length, crc, record count, first position, timestamp ms, durable, reserved
_ENTRY: Final = Struct("<4sIIIQqQQ")
_CRC: Final = Struct("<I")

SEGMENT_HEADER_BYTES: Final = _SEGMENT.size
ENTRY_HEADER_BYTES: Final = _ENTRY.size
_CRC_AT: Final = 8
_COVERED_AT: Final = 12
_ALIGNMENT: Final = 8
_SMALLEST_ENTRY: Final = ENTRY_HEADER_BYTES + _ALIGNMENT
_BLANK_HEADER: Final = bytes(ENTRY_HEADER_BYTES)
#: Zeros that pieces of a segment are compared with: small enough for both to fit a processor's cache.
ZEROS: Final = bytes(256 << 10)
_PADDING: Final = tuple(bytes(n) for n in range(_ALIGNMENT))

SUFFIX: Final = ".journal"
SPARE_SUFFIX: Final = ".spare"
SCRATCH_SUFFIX: Final = ".scratch"

#: Work allowed when looking for entries behind damage, in bytes checksummed (about a second).  Only bytes made to
#: look like entries cost that much; then the damage counts as corruption, which is the safe answer.
LATER_BYTES_MAX: Final = 16 << 30


class BadHeader(Exception):
    """The header of a segment is invalid; the message says why."""


class NewerHeader(BadHeader):
    """The header is intact, but of a newer format than this software knows."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """A segment's header.  `created` is in ms since the epoch; `crc` is also the seed of its entries' checksums."""

    number: int
    broker_id: bytes
    created: int
    first_position: int
    header_bytes: int
    crc: int


class Entry:
    """An entry to be written, with its first position.

    `parts` are the bytes of its records, `nbytes` their sum; `length`: bytes of the whole entry in its segment.
    """

    __slots__ = ("count", "first", "length", "nbytes", "parts", "segment", "ticket", "timestamp")

    def __init__(
        self, *, segment: int, ticket: int, first: int, count: int, timestamp: int, nbytes: int, parts: list[bytes]
    ) -> None:
        self.segment = segment
        self.ticket = ticket
        self.first = first
        self.count = count
        self.timestamp = timestamp
        self.nbytes = nbytes
        self.parts = parts
        self.length = entry_length(nbytes)


def entry_of(records: list[bytes], *, segment: int, first: int, timestamp: int) -> Entry:
    """An entry of these records, which no confirmation waits for."""
    nbytes = sum(map(len, records))
    return Entry(
        segment=segment, ticket=0, first=first, count=len(records), timestamp=timestamp, nbytes=nbytes, parts=records
    )


@dataclass(slots=True)
class EntryHead:
    """A valid entry that was read.  `offset` and `end` are in bytes from the start of the segment."""

    offset: int
    end: int
    count: int
    first: int
    timestamp: int
    durable: int


@dataclass(slots=True)
class Scan:
    """The contents of a segment: its valid entries in order, where they end, the next position, and any damage there.

    `damage` is "" if nothing but zeros, or nothing at all, follows the last entry.  `gap`: the damage is an entry that
    is valid in itself but out of order, which no torn write explains.
    """

    entries: list[EntryHead]
    end: int
    position: int
    damage: str = ""
    gap: bool = False


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"{number:010d}{SUFFIX}"


def spare_name(number: int) -> str:
    """The file name of a segment that is allocated but not in use yet."""
    return f"{number:010d}{SPARE_SUFFIX}"


def segment_number(name: str) -> int:
    """The number of the segment with this file name, 0 if it is not one."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and len(stem) >= 10 and stem.isascii() and stem.isdigit() else 0


def entry_length(nbytes: int) -> int:
    """Bytes of an entry whose records have `nbytes`."""
    return ENTRY_HEADER_BYTES + nbytes + (-nbytes & (_ALIGNMENT - 1))


def encode_header(*, number: int, broker_id: bytes, created: int, first_position: int) -> bytes:
    """A segment's header."""
    fields = (SEGMENT_MAGIC, FORMAT_VERSION, SEGMENT_HEADER_BYTES, 0, number, broker_id, created, first_position, 0)
    blank = _SEGMENT.pack(*fields, 0)
    return blank[:-4] + _CRC.pack(crc32c(blank[:-4]))


def decode_header(data: bytes) -> SegmentHeader:
    """The header at the start of `data`.  Raises BadHeader; its subclass NewerHeader means that nothing is damaged."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise BadHeader(f"segment of {len(data)} bytes is shorter than its header")
    magic, version, header_bytes, _, number, broker_id, created, first, _, crc = _SEGMENT.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        raise BadHeader("not a segment: the magic bytes are missing")
    whole = crc32c(data[: SEGMENT_HEADER_BYTES - 4]) == crc
    if not 1 <= version <= FORMAT_VERSION:
        what = f"format version {version}, this software reads up to {FORMAT_VERSION}"
        if whole and version > FORMAT_VERSION:  # a bit that flipped would show in the checksum
            raise NewerHeader(f"{what}: a newer version wrote it")
        raise BadHeader(what)
    if not whole or header_bytes != SEGMENT_HEADER_BYTES:
        raise BadHeader("the header's checksum is wrong")
    return SegmentHeader(number, broker_id, created, first, header_bytes, crc)


def header_of(number: int, data: bytes) -> SegmentHeader:
    """The header at the start of segment `number`.  Raises BadHeader, also if it is the header of another one."""
    header = decode_header(data)
    if header.number != number:
        raise BadHeader(f"the header is that of segment {header.number}")
    return header


def pack_entries(entries: Sequence[Entry], seed: int, durable: int) -> bytearray:
    """The bytes of entries, one behind the other.  `seed` is their segment's checksum; each gets `durable`."""
    parts: list[bytes] = []
    for entry in entries:
        parts.append(_BLANK_HEADER)
        parts += entry.parts
        parts.append(_PADDING[-entry.nbytes & (_ALIGNMENT - 1)])
    packed = bytearray().join(parts)
    offset = 0
    with memoryview(packed) as view:
        for entry in entries:
            length = entry.length
            assert durable <= entry.first, "an entry cannot be durable before it is written"
            fields = (entry.count, entry.first, entry.timestamp, durable, 0)
            _ENTRY.pack_into(packed, offset, ENTRY_MAGIC, length, 0, *fields)
            crc = crc32c(view[offset + _COVERED_AT : offset + length], seed)
            _CRC.pack_into(packed, offset + _CRC_AT, crc)
            offset += length
    assert offset == len(packed), "the parts of an entry do not add up to its length"
    return packed


def read_entry(view: memoryview, offset: int, seed: int) -> EntryHead | None:
    """The entry at `offset`, None if there is no valid one."""
    if len(view) - offset < _SMALLEST_ENTRY:
        return None
    magic, length, crc, count, first, timestamp, durable, _ = _ENTRY.unpack_from(view, offset)
    end = offset + length
    if magic != ENTRY_MAGIC or length < _SMALLEST_ENTRY or length % _ALIGNMENT or end > len(view):
        return None
    if crc32c(view[offset + _COVERED_AT : end], seed) != crc:
        return None
    return EntryHead(offset, end, count, first, timestamp, durable)


def only_zeros(data: bytes, offset: int) -> bool:
    """Whether nothing but zeros follows; compared piece by piece, ten times as fast as byte by byte."""
    piece = len(ZEROS)
    return all(ZEROS.startswith(data[at : at + piece]) for at in range(offset, len(data), piece))


def scan(data: bytes, header: SegmentHeader, behind: EntryHead | None = None) -> Scan:
    """Read a segment's entries, or those `behind` one, to their end or to the first damage."""
    position = header.first_position if behind is None else behind.first + behind.count
    offset = header.header_bytes if behind is None else behind.end
    entries: list[EntryHead] = []
    with memoryview(data) as view:
        while True:
            entry = read_entry(view, offset, header.crc)
            if entry is None:
                break
            if entry.first != position:
                what = f"an entry has position {entry.first} where {position} must follow"
                return Scan(entries, offset, position, what, gap=True)
            entries.append(entry)
            position += entry.count
            offset = entry.end
    if only_zeros(data, offset):
        return Scan(entries, offset, position)
    return Scan(entries, offset, position, "no valid entry, but bytes that are not zero")


def later_entries(
    data: bytes, header: SegmentHeader, offset: int, bytes_max: int = LATER_BYTES_MAX
) -> Iterator[EntryHead]:
    """Valid entries anywhere behind `offset`.  Raises BadHeader if too many bytes only look like entries."""
    allowed = bytes_max
    at = data.find(ENTRY_MAGIC, offset)
    with memoryview(data) as view:
        while at >= 0:
            if at % _ALIGNMENT == 0 and len(data) - at >= _SMALLEST_ENTRY:
                (length,) = _CRC.unpack_from(data, at + 4)
                allowed -= min(length, len(data) - at)
                if allowed < 0:
                    raise BadHeader("too many bytes that look like entries behind the damage")
                entry = read_entry(view, at, header.crc)
                if entry is not None:
                    yield entry
            at = data.find(ENTRY_MAGIC, at + 1)
