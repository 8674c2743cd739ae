"""Salvages one segment: its valid entries, and the number of records lost between them.

Positions are dense, so a gap between two valid entries shows exactly how many records are lost.  A repaired segment has
its valid entries unchanged, byte by byte, and LOST records in place of lost ones: positions stay dense, and counting
shows what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from store import record
from store.decode import RawRecord
from store.errors import Corrupt
from store.segment import (
    BadHeader,
    EntryHead,
    Scan,
    SegmentHeader,
    decode_header,
    encode_header,
    entry_of,
    later_entries,
    pack_entries,
    read_entry,
)
from store.segment_directory import raw_records

#: LOST records in one entry: an entry stays below a megabyte.
LOST_PER_ENTRY: Final = 1 << 16

NOTHING_BEHIND: Final = "no valid entry up to the end of the segment"


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that are lost: `records` of them, from byte `offset` of a segment; -1: their number is unknown."""

    segment: int
    offset: int
    first_position: int
    records: int
    what: str


@dataclass(slots=True)
class Salvage:
    """A salvaged segment.  `kept` are its valid entries, `position` is the one that follows the last of them."""

    number: int
    header: SegmentHeader
    data: bytes
    kept: list[EntryHead] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    position: int = 0
    cut: bool = False  # there are invalid bytes between two entries, or behind the last

    @property
    def damaged(self) -> bool:
        """Whether the segment must be rewritten."""
        return bool(self.losses) or self.cut

    def records(self, path: str) -> Iterator[RawRecord]:
        """The saved records.  Raises Corrupt for one that this software cannot read."""
        return raw_records(path, self.number, self.data, Scan(self.kept, 0, self.position))

    @property
    def end(self) -> int:
        """Where the last valid entry ends, in bytes."""
        return self.kept[-1].end if self.kept else self.header.header_bytes

    def lose_to(self, position: int) -> None:
        """Note everything up to this position as lost: the next segment begins there."""
        if position > self.position:
            count = position - self.position
            self.losses.append(Loss(self.number, self.end, self.position, count, NOTHING_BEHIND))
            self.position = position

    def rebuilt(self) -> bytes:
        """The bytes of the repaired segment: the valid entries, and LOST records for the rest."""
        header = self.header
        encoded = encode_header(
            number=header.number,
            broker_id=header.broker_id,
            created=header.created,
            first_position=header.first_position,
        )
        seed = decode_header(encoded).crc
        parts: list[bytes | bytearray] = [encoded]
        pieces: list[EntryHead | Loss] = [*self.kept, *self.losses]
        pieces.sort(key=lambda piece: piece.first if isinstance(piece, EntryHead) else piece.first_position)
        time = header.created
        for piece in pieces:
            if isinstance(piece, EntryHead):
                time = piece.timestamp
                parts.append(self.data[piece.offset : piece.end])
            else:
                parts += lost_entries(self.number, seed, piece.first_position, piece.records, time)
        return b"".join(parts)


def lost_entries(number: int, seed: int, first: int, count: int, time: int) -> Iterator[bytearray]:
    """Entries of LOST records for `count` positions from `first` on."""
    lost = record.lost()
    while count > 0:
        here = min(count, LOST_PER_ENTRY)
        entry = entry_of([lost] * here, segment=number, first=first, timestamp=time)
        yield pack_entries([entry], seed, first)
        first += here
        count -= here


def salvage(path: str, number: int, data: bytes, header: SegmentHeader) -> Salvage:
    """Salvage everything valid in a segment.  Raises Corrupt for records that newer software may have written."""
    found = Salvage(number, header, data, position=header.first_position)
    offset = header.header_bytes
    with memoryview(data) as view:
        while True:
            entry = read_entry(view, offset, header.crc)
            if entry is not None and entry.first == found.position:
                _keep(path, found, entry)
                offset = entry.end
                continue
            if data.count(0, offset) == len(data) - offset:
                break
            following = _following(data, header, offset, found.position)
            if following is None:
                found.cut = True
                break
            if following.first > found.position:
                lost = following.first - found.position
                what = "no valid entry, but others behind it"
                found.losses.append(Loss(number, offset, found.position, lost, what))
                found.position = following.first
            else:
                found.cut = True  # bytes between two entries that follow each other
            offset = following.offset
    return found


def _keep(path: str, found: Salvage, entry: EntryHead) -> None:
    """Keep an entry if its records can be read."""
    try:
        for _ in raw_records(path, found.number, found.data, Scan([entry], 0, 0)):
            pass
    except Corrupt as corrupt:
        if "unknown" in corrupt.what:
            raise
        found.losses.append(Loss(found.number, entry.offset, entry.first, entry.count, corrupt.what))
    else:
        found.kept.append(entry)
    found.position = entry.first + entry.count


def _following(data: bytes, header: SegmentHeader, offset: int, position: int) -> EntryHead | None:
    """The first valid entry behind the damage whose position is at least this one."""
    try:
        return next((entry for entry in later_entries(data, header, offset) if entry.first >= position), None)
    except BadHeader:  # bytes made to look like entries: give up everything behind them
        return None
