"""Journals with one fault in them, made from good ones: an audit must find and name it.

A logical fault (a record too few, too many or changed) is written with right checksums and positions, as software with
that fault would have written it; a physical one (a bit, a file) is left as it is.

    draft = Draft.read(journal)
    draft.remove(draft.find(RecordType.REMOVED)[3])
    draft.write(elsewhere)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from store import decode, record
from store.record import HEAD, RecordType
from store.segment import (
    Entry,
    SegmentHeader,
    decode_header,
    encode_header,
    pack_entries,
    segment_name,
    segment_number,
)
from store.segment_directory import open_segment

_LENGTH = 4


@dataclass(slots=True)
class DraftEntry:
    """An entry as a list of records.  `hole`: positions left out before it."""

    timestamp: int
    durable: int
    records: list[bytes]
    hole: int = 0

    def at(self, segment: int, position: int) -> Entry:
        """Return it as the entry to write."""
        nbytes = sum(map(len, self.records))
        return Entry(
            segment=segment,
            ticket=0,
            first=position,
            count=len(self.records),
            timestamp=self.timestamp,
            nbytes=nbytes,
            parts=self.records,
        )


@dataclass(slots=True)
class DraftSegment:
    """A segment: its folder below the journal, its entries, and how many records it had when it was read.

    `hole`: positions left out before it.
    """

    folder: str
    header: SegmentHeader
    entries: list[DraftEntry]
    records: int
    hole: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a record in a draft."""

    segment: int
    entry: int
    index: int


class Draft:
    """A journal taken apart.  Segments by number, oldest first."""

    def __init__(self, segments: dict[int, DraftSegment]) -> None:
        self.segments = segments

    @classmethod
    def read(cls, journal: Path) -> Draft:
        """Read a journal into a draft, without its torn tail, if any."""
        paths = {segment_number(p.name): p for p in [*journal.glob("retention/date=*/*"), *journal.iterdir()]}
        segments: dict[int, DraftSegment] = {}
        for number in sorted(n for n in paths if n):
            data = paths[number].read_bytes()
            segment = open_segment(str(paths[number]), number, data)
            header, found = segment.header, segment.found
            records = [
                data[offset : offset + int.from_bytes(data[offset : offset + _LENGTH], "little")]
                for *_, offset in segment.records()
            ]
            entries = []
            for entry in found.entries:
                entries.append(DraftEntry(entry.timestamp, entry.durable, records[: entry.count]))
                del records[: entry.count]
            folder = str(paths[number].parent.relative_to(journal))
            segments[number] = DraftSegment(folder, header, entries, found.position - header.first_position)
        return cls(segments)

    def write(self, journal: Path) -> Path:
        """Write it to an empty directory, with new positions and right checksums.  Returns `journal`."""
        position = end = min(segment.header.first_position for segment in self.segments.values())
        for number, segment in sorted(self.segments.items()):
            position += segment.header.first_position - end + segment.hole  # the gap that trimming had left
            end = segment.header.first_position + segment.records
            header = encode_header(
                number=number,
                broker_id=segment.header.broker_id,
                created=segment.header.created,
                first_position=position,
            )
            seed = decode_header(header).crc
            data = bytearray(header)
            for draft in segment.entries:
                entry = draft.at(number, position + draft.hole)
                data += pack_entries([entry], seed, min(draft.durable, entry.first))
                position = entry.first + entry.count
            path = journal / segment.folder / segment_name(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return journal

    # -- finding ---------------------------------------------------------------------------------------------------

    def find(self, type: RecordType, fits: Callable[[decode.Record], bool] = lambda _: True) -> list[Place]:
        """Find the records of a type that fit, oldest first."""
        return [
            Place(number, e, i)
            for number, segment in sorted(self.segments.items())
            for e, entry in enumerate(segment.entries)
            for i, data in enumerate(entry.records)
            if HEAD.unpack_from(data)[1] == type and fits(decode.decode(data, 0))
        ]

    def at(self, place: Place) -> decode.Record:
        """Return the record at a place."""
        return decode.decode(self._entry(place).records[place.index], 0)

    def _entry(self, place: Place) -> DraftEntry:
        return self.segments[place.segment].entries[place.entry]

    # -- faults ----------------------------------------------------------------------------------------------------

    def remove(self, place: Place, *, renumbered: bool = True) -> None:
        """Remove a record, as if never written; not `renumbered`: its position is missing."""
        entries = self.segments[place.segment].entries
        entry = entries[place.entry]
        del entry.records[place.index]
        following = place.entry + 1
        hole = 0 if renumbered else 1
        if not entry.records:  # an entry has at least one record
            del entries[place.entry]
            following = place.entry
            hole += entry.hole
        if following < len(entries):
            entries[following].hole += hole
        elif hole:
            self.segments[min(n for n in self.segments if n > place.segment)].hole += hole

    def double(self, place: Place, *, into: int | None = None) -> None:
        """Write a record twice: again right behind itself, or at the end of segment `into`."""
        data = self._entry(place).records[place.index]
        if into is None:
            self._entry(place).records.insert(place.index, data)
        else:
            last = self.segments[into].entries[-1]
            self.segments[into].entries.append(DraftEntry(last.timestamp, last.durable, [data]))

    def replace(self, place: Place, data: bytes) -> None:
        """Replace a record."""
        self._entry(place).records[place.index] = data

    def announce(self, place: Place, next_id: int) -> None:
        """Change the first unused id of an OPENED record."""
        data = self._entry(place).records[place.index]
        self.replace(place, data[: HEAD.size] + next_id.to_bytes(8, "little") + data[HEAD.size + 8 :])

    def less(self, place: Place, id: int) -> None:
        """Remove an id from a REMOVED record, or the record if that was its only id."""
        removed = self.at(place)
        assert isinstance(removed, decode.Removed)
        ids: Sequence[int] = [other for other in removed.ids if other != id]
        if ids:
            self.replace(place, record.removed(removed.queue_id, removed.reason, ids))
        else:
            self.remove(place)


def copy(journal: Path, target: Path) -> Path:
    """Copy the journal, to damage the copy."""
    shutil.copytree(journal, target)
    return target


def path_of(journal: Path, number: int) -> Path:
    """Return the path of a segment."""
    (path,) = [*journal.glob(segment_name(number)), *journal.glob(f"retention/date=*/{segment_name(number)}")]
    return path


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit of a segment."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)
