"""Where the records of a segment are, and which parts cannot be read.

A segment is read entry by entry, and the checksum of each is verified.  If only zeros or nothing follow the last entry,
this is the end.  Otherwise, the rest is

    newest segment   a torn tail if no valid entry after it says that the missing one was durable: normal, no damage
    other segments   damage

The rules are those of docs/journal-format.md.  Where the broker would stop, a walk notes a hole and continues after it:

1. Positions are dense.  The position of the next valid entry tells how many records are lost in the hole; at the end
   of a segment, the first position of the next one tells it.
2. After damage, a walk first looks for an entry at the place where the damaged one should end according to its length;
   otherwise at the next place with a valid entry.  So bytes within a message that look like an entry are not mistaken
   for one as long as the length of the surrounding entry can be read.
3. An entry at a position that was already passed is ignored: nothing counts twice.
4. A record of a valid entry that this software cannot read (a newer type, contradictory lengths, invalid JSON) is a
   hole of its own; the records next to it count.
5. If the header is unreadable, nothing in the segment can be trusted: all of it is one hole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import numpy as np

from spark_jobs.journal import layout
from spark_jobs.journal.layout import PIECES, Bools, Bytes, Int64s, Records, Source
from spark_jobs.journal.offsets import record_offsets
from store.decode import KNOWN_TYPES, LARGE_TYPES
from store.record import LARGE_VERSION, VERSION, Json, RecordType
from store.segment import (
    ENTRY_HEADER_BYTES,
    ENTRY_MAGIC,
    LATER_BYTES_MAX,
    BadHeader,
    EntryHead,
    Scan,
    SegmentHeader,
    header_of,
    later_entries,
    read_entry,
    scan,
)

#: Value of `Hole.records` and `Hole.first_position` if unknown.
UNKNOWN: Final = -1

_ENTRY_START: Final = Struct("<4sI4xI")
_WITH_JSON: Final = [type for type, pieces in PIECES.items() if any(name == "json" for name, _, _ in pieces)]

#: The types that can be read, without the substitute that a repair writes for lost records.
_KNOWN: Final = np.isin(np.arange(256), [*KNOWN_TYPES - {RecordType.LOST}])


#: Number of records that are processed together: their data stays in a core's cache.
CHUNK_RECORDS: Final = 1 << 14


def inside(numbers: Int64s, low: int | None, high: int | None) -> Bools:
    """Which numbers are at least `low` and below `high`; None means open."""
    wanted = np.ones(len(numbers), np.bool_)
    if low is not None:
        wanted &= numbers >= low
    if high is not None:
        wanted &= numbers < high
    return wanted


@dataclass(frozen=True, slots=True)
class Hole:
    """Lost records at byte `offset`: `records` is their number, `first_position` the position of the first.

    Their positions are consecutive, unless `scattered` has the offset and the position of each.
    """

    offset: int
    first_position: int
    records: int
    what: str
    scattered: tuple[Int64s, Int64s] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, offsets: Int64s, positions: Int64s, what: str) -> Hole:
        """A hole of records that need not be consecutive."""
        return cls(int(offsets[0]), int(positions[0]), len(positions), what, (offsets, positions))

    def within(self, low: int | None, high: int | None) -> Hole | None:
        """The part that may affect positions from `low` on and below `high` (None: open); None if there is none.

        A hole with consecutive positions is not cut.
        """
        if self.scattered is not None:
            offsets, positions = self.scattered
            wanted = inside(positions, low, high)
            return Hole.of(offsets[wanted], positions[wanted], self.what) if wanted.any() else None
        if self.first_position == UNKNOWN:
            return self
        before = low is not None and self.records != UNKNOWN and self.first_position + self.records <= low
        behind = high is not None and self.first_position >= high
        return None if before or behind else self


@dataclass(frozen=True, slots=True)
class Definition:
    """The JSON object of the record at byte `offset`: an address, queue, session, deletion, or OPENED (id 0)."""

    offset: int
    type: int
    id: int
    value: Json


@dataclass(slots=True)
class Walk:
    """The contents of a segment.  The four arrays have one element per record, in order of position.

    `header` is None if it cannot be read: then there are no records.  `offsets` are in bytes from the start of the
    segment, `times` are those of the entries in ms since the epoch.  `entries` is the number of valid entries, `end`
    the byte offset after the last of them, `next_position` the position that follows it.  `torn_bytes` is the torn tail
    of the newest segment, `unread_bytes` the size of the holes between entries.  `definitions` and `holes` are in the
    order of the segment.
    """

    number: int
    header: SegmentHeader | None = None
    offsets: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    positions: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    types: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    entries: int = 0
    end: int = 0
    next_position: int = 0
    torn_bytes: int = 0
    unread_bytes: int = 0
    definitions: list[Definition] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)

    @property
    def open_end(self) -> bool:
        """Whether there is damage after the last entry: only the next segment can tell how much is lost there."""
        return bool(self.holes) and self.holes[-1].offset >= self.end


def walk(
    data: bytes,
    *,
    number: int,
    newest: bool,
    next_first: int | None = None,
    first: int | None = None,
    limit: int | None = None,
) -> Walk:
    """The records of segment `number`.

    `next_first` is the first position of the next segment, if there must be no gap between the two (no trimmed
    segment); `first` is the first position that this one should have, in case its header cannot be read.  Nothing after
    byte `limit` is read.  With a limit, the newest segment is pinned: everything before it was valid once, so that
    anything wrong there is damage.
    """
    found = Walk(number)
    try:
        found.header = header_of(number, data)
    except BadHeader as bad:
        lost = UNKNOWN if first is None or next_first is None else max(next_first - first, 0)
        found.unread_bytes = len(data)
        found.holes.append(Hole(0, UNKNOWN if first is None else first, lost, str(bad)))
        return found
    source = Source(data if limit is None else data[:limit])
    entries = _find_entries(source.data, found.header, found, newest=newest and limit is None)
    _check_end(found, next_first, limit if newest else None)
    _find_records(source, entries, found)
    _check_records(source, found)
    _read_definitions(source, found)
    found.holes.sort(key=lambda hole: hole.offset)
    return found


# -- entries ---------------------------------------------------------------------------------------------------------


def _find_entries(data: bytes, header: SegmentHeader, found: Walk, *, newest: bool) -> list[EntryHead]:
    """All valid entries in order.  Also sets their end, the torn tail, and the holes."""
    entries: list[EntryHead] = []
    following: EntryHead | None = None
    while True:
        part = scan(data, header, following)
        entries += part.entries
        found.next_position = part.position
        if not part.damage:
            break
        what, written = part.damage, len(data.rstrip(b"\0"))
        if newest and not part.gap and _is_torn(data, header, part):
            found.torn_bytes = written - part.end
            break
        try:
            following = _behind(data, header, part)
        except BadHeader as bad:
            following, what = None, f"{what}; {bad}"
        found.unread_bytes += (written if following is None else following.offset) - part.end
        lost = UNKNOWN if following is None else following.first - part.position
        found.holes.append(Hole(part.end, part.position, lost, what))
        if following is None:
            break
        entries.append(following)
    found.entries = len(entries)
    found.end = entries[-1].end if entries else header.header_bytes
    return entries


def _is_torn(data: bytes, header: SegmentHeader, part: Scan) -> bool:
    """Whether damage in the newest segment may be an incomplete write."""
    try:
        later = later_entries(data, header, part.end, LATER_BYTES_MAX)
        return all(each.durable <= part.position for each in later)
    except BadHeader:
        return False


def _behind(data: bytes, header: SegmentHeader, part: Scan) -> EntryHead | None:
    """The entry with which to continue after damage, None if there is none.  Raises BadHeader like `later_entries`."""
    if len(data) - part.end >= ENTRY_HEADER_BYTES:
        magic, length, count = _ENTRY_START.unpack_from(data, part.end)
        if magic == ENTRY_MAGIC and length >= ENTRY_HEADER_BYTES:
            with memoryview(data) as view:
                following = read_entry(view, part.end + length, header.crc)
            if following is not None and following.first == part.position + count:
                return following
    later = later_entries(data, header, part.end, LATER_BYTES_MAX)
    return next((entry for entry in later if entry.first >= part.position), None)


def _check_end(found: Walk, next_first: int | None, limit: int | None) -> None:
    """Check that the entries reach as far as they should, and count the records lost at the end."""
    position = found.next_position
    lost = UNKNOWN if next_first is None or next_first < position else next_first - position
    last = found.holes[-1] if found.holes else None
    if last is not None and last.records == UNKNOWN:
        found.holes[-1] = Hole(last.offset, last.first_position, lost, last.what)
    elif next_first is not None and next_first != position:
        what = f"the entries end at position {position}, but the next segment begins at {next_first}"
        found.holes.append(Hole(found.end, position, lost, what))
    elif limit is not None and found.end < limit:
        what = f"the entries end here, but earlier reached to byte {limit}"
        found.holes.append(Hole(found.end, position, lost, what))


# -- records ---------------------------------------------------------------------------------------------------------


def _find_records(source: Source, entries: Sequence[EntryHead], found: Walk) -> None:
    """Find the records of the entries.  Adds holes where they do not fill their entry."""
    found.offsets, counts, strays = record_offsets(source, entries)
    firsts = np.array([entry.first for entry in entries], np.int64)
    times = np.array([entry.timestamp for entry in entries], np.int64)
    found.positions = np.repeat(firsts - (np.cumsum(counts) - counts), counts) + np.arange(len(found.offsets))
    found.times = np.repeat(times, counts)
    found.holes += [Hole(*stray, "the records do not fill their entry") for stray in strays]


def _check_records(source: Source, found: Walk) -> None:
    """Determine the types of the records.  Unreadable ones are removed: one hole for each type and version."""
    found.types = np.zeros(len(found.offsets), np.uint8)
    sound = np.zeros(len(found.offsets), np.bool_)
    for start in range(0, len(sound), CHUNK_RECORDS):
        chunk = slice(start, start + CHUNK_RECORDS)
        found.types[chunk], sound[chunk] = _judge(source, found.offsets[chunk])
    if sound.all():
        return
    unsound = np.flatnonzero(~sound)
    heads = source.rows(found.offsets[unsound], layout.HEAD)
    for type, version in np.unique(heads[["type", "version"]]).tolist():
        what = f"record type {type} version {version} is unknown"
        if type == RecordType.LOST:
            what = "lost: a repair of the journal could not recover it"
        elif _KNOWN[type] and (version == VERSION or (version == LARGE_VERSION and type in LARGE_TYPES)):
            what = f"the length of a {RecordType(type).name} record contradicts its fields"
        _note_records(found, unsound[(heads["type"] == type) & (heads["version"] == version)], what)
    _keep(found, sound)


def _judge(source: Source, offsets: Int64s) -> tuple[Bytes, Bools]:
    """The types of records, and which of them can be read."""
    heads = source.rows(offsets, layout.HEAD)
    types = heads["type"].copy()
    sound = _KNOWN[types] & (heads["version"] == VERSION)
    if not sound.all():
        sound |= (heads["version"] == LARGE_VERSION) & np.isin(types, list(LARGE_TYPES))
    if sound.all():
        return types, ~layout.misfits(source, offsets, types, heads["length"])
    sound[sound] = ~layout.misfits(source, offsets[sound], types[sound], heads["length"][sound])
    return types, sound


def _read_definitions(source: Source, found: Walk) -> None:
    wrong = np.zeros(len(found.offsets), np.bool_)
    for type in _WITH_JSON:
        indices = np.flatnonzero(found.types == type)
        records = Records(source, type, found.offsets[indices])
        ids = np.zeros(len(indices), np.int64) if type == RecordType.OPENED else records.field("id")
        starts, sizes = records.span("json")
        for index, id, start, size in zip(indices, ids, starts, sizes, strict=True):
            try:
                value = json.loads(source.data[start : start + size])
            except ValueError:
                value = None
            if isinstance(value, dict):
                found.definitions.append(Definition(int(found.offsets[index]), type, int(id), value))
            else:
                wrong[index] = True
    found.definitions.sort(key=lambda definition: definition.offset)
    for type in np.unique(found.types[wrong]).tolist():
        what = f"the definition in a {RecordType(type).name} record is not a JSON object"
        _note_records(found, np.flatnonzero(wrong & (found.types == type)), what)
    if wrong.any():
        _keep(found, ~wrong)


def _note_records(found: Walk, indices: Int64s, what: str) -> None:
    found.holes.append(Hole.of(found.offsets[indices], found.positions[indices], what))


def _keep(found: Walk, mask: Bools) -> None:
    found.offsets, found.positions = found.offsets[mask], found.positions[mask]
    found.times, found.types = found.times[mask], found.types[mask]
