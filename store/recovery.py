"""Recovery: judges and reads the segments after a stop of any kind.

A crash can leave the last, unconfirmed batch of the newest segment incomplete in any way: sectors missing, cut off,
in any combination.  Everything else is damage.  One fact in every entry distinguishes the two: the position up to which
everything was durable when it was written.

    newest    what follows the last good entry                                   verdict
    -------   -----------------------------------------------------------------  --------------------------------
    any       nothing, or zeros                                                  good
    yes       damage, and no valid entry behind it knew the damaged one durable  torn: copied, cut off, reported
    yes       damage, and a valid entry behind it knew the damaged one durable   corrupt
    yes       damage full of bytes that only look like entries                   corrupt
    no        damage                                                             corrupt: it was complete once
    any       a valid entry out of order, a bad header, a segment of another     corrupt
              broker, a segment missing, an unknown format or record

Damage to the very last batch with nothing behind it cannot be distinguished from a torn write; it is reported as torn,
and the copy is kept.

The newest segment that has entries says which segments there must be: its first record (OPENED) names the older ones
needed then, and TRIMMED records remove some of them.  A segment that was trimmed but is still there (a crash came
first) is ignored and trimmed again.  OPENED also has the position where each of them ended, so that one cut off between
two entries is noticed even if the segment behind it no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from store import decode
from store.decode import RawRecord
from store.errors import Corrupt
from store.record import HEAD, RecordType
from store.segment import ENTRY_HEADER_BYTES, BadHeader, EntryHead, later_entries
from store.segment_directory import Segment, Source, read_segment


class State(Enum):
    """The condition of the newest segment."""

    EMPTY = "empty"
    CLEAN = "clean"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The condition in which the journal was found.

    `closed`: the broker had stopped properly.  `segment`, `end`: where the valid part of the newest segment ends, in
    bytes; `torn_bytes`: how much behind that was written but is invalid; `position`: the next one.
    """

    state: State
    closed: bool = False
    segment: int = 0
    end: int = 0
    torn_bytes: int = 0
    position: int = 0


class Recovery:
    """The verdict, and every valid record.  Raises Corrupt, and the errors of the source.

    `leftovers` are segments that were trimmed but are still there.
    `stated_ends` has the positions where older segments ended, according to the newest one; `ends` those where the
    segments that were read ended; `sizes` their bytes.
    Not `strict`: a missing segment is not an error until its records are read.
    """

    def __init__(self, source: Source, *, strict: bool = True) -> None:
        self._source = source
        self._strict = strict
        self.verdict = Verdict(State.EMPTY)
        self.broker_id = b""
        self.segments: list[int] = []
        self.leftovers: list[int] = []
        self.stated_ends: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self._newest: Segment | None = None  # until its records have been read
        present = source.segments()
        if present:
            self._judge(present)

    @property
    def last_segment(self) -> int:
        """The highest segment number in use, 0 if there is none."""
        return max([*self.segments, *self.leftovers], default=0)

    def _judge(self, present: list[int]) -> None:
        newest = present[-1]
        segment = self._newest = self._read(newest)
        found = segment.found
        self.broker_id = segment.header.broker_id
        torn = torn_bytes(segment)
        closed = bool(found.entries) and ends_closed(segment.data, found.entries[-1])
        state = State.TORN if torn else State.CLEAN
        self.verdict = Verdict(state, closed, newest, found.end, torn, found.position)
        needed = self._needed(present, segment)
        missing = sorted(needed.difference(present))
        if missing and self._strict:
            raise Corrupt(self._source.path(missing[0]), 0, "the segment is missing")
        self.segments = sorted(needed)
        self.leftovers = [n for n in present if n not in needed]

    def _read(self, number: int, behind: EntryHead | None = None) -> Segment:
        segment = read_segment(self._source, number, behind)
        if self.broker_id and segment.header.broker_id != self.broker_id:
            raise Corrupt(segment.path, 0, "the segment belongs to another broker")
        return segment

    def _needed(self, present: list[int], segment: Segment) -> set[int]:
        """The segments that must be there: those that the newest one with entries names, and those begun after it."""
        later: set[int] = set()
        for number in reversed(present):
            if number != segment.number:
                segment = self._read(number)
            later.add(number)
            if segment.found.entries:
                self.stated_ends = named_segments(segment)
                return later | self.stated_ends.keys()
        return later

    def records(self) -> Iterator[RawRecord]:
        """Every record in order of position, once.  Raises Corrupt.

        A buffer is a whole segment: do not keep it, nor slices of it as memoryviews, longer than needed.
        """
        position = previous = 0
        for number in self.segments:
            segment = self._take(number)
            if number != self.verdict.segment:
                segment.check_undamaged()
            check_follows(segment.path, number, segment.header.first_position, previous, position)
            check_end(
                segment.path, segment.found.end, segment.found.position, self.stated_ends.get(number, decode.UNSTATED)
            )
            self.ends[number] = segment.found.position
            self.sizes[number] = len(segment.data) if number != self.verdict.segment else segment.found.end
            yield from segment.records()
            position, previous = segment.found.position, number

    def _take(self, number: int) -> Segment:
        newest = self._newest
        if newest is None or newest.number != number:
            return self._read(number)
        self._newest = None
        return newest


def named_segments(segment: Segment) -> dict[int, int]:
    """The older segments that this one names as needed, each with the position behind its last record.

    The position is UNSTATED if older software began this segment.  Raises Corrupt.
    """
    named: dict[int, int] = {}
    trims = any(type == RecordType.TRIMMED for type, _ in segment.count_types())
    for index, raw in enumerate(islice(segment.records(), None if trims else 1)):
        if index == 0 and raw[3] == RecordType.OPENED:
            named.update(decode.decode_opened(segment.data, raw[5]).ends)
        elif index == 0:
            raise Corrupt(segment.path, raw[5], "the first record is not OPENED")
        elif raw[3] == RecordType.TRIMMED:
            for trimmed in decode.decode_trimmed(segment.data, raw[5]).segments:
                named.pop(trimmed, None)
    return named


def check_follows(path: str, segment: int, first: int, previous: int, position: int) -> None:
    """Check that a segment begins where the one before it ends, or later if segments between were trimmed.

    Raises Corrupt.
    """
    if first < position or (segment == previous + 1 and previous and first != position):
        raise Corrupt(path, 0, f"the segment begins at position {first} where {position} must follow")


def check_end(path: str, offset: int, position: int, stated: int) -> None:
    """Check that a segment ends where the newest one says.  Raises Corrupt."""
    if stated not in (decode.UNSTATED, position):
        raise Corrupt(path, offset, f"the segment ends at position {position} instead of {stated}: its end is missing")


def torn_bytes(segment: Segment) -> int:
    """Bytes of the newest segment's torn tail, 0 if there is none.  Raises Corrupt for any other damage."""
    path, data, found = segment.path, segment.data, segment.found
    if not found.damage:
        return 0
    if found.gap:
        raise Corrupt(path, found.end, found.damage)
    try:
        for later in later_entries(data, segment.header, found.end):
            if later.durable > found.position:
                raise Corrupt(path, found.end, f"{found.damage}; the entry at byte {later.offset} knew it durable")
    except BadHeader as bad:
        raise Corrupt(path, found.end, str(bad)) from bad
    return len(data.rstrip(b"\0")) - found.end


def ends_closed(data: bytes, entry: EntryHead) -> bool:
    """Whether the last record of an entry is CLOSED."""
    length = type = 0
    offset = entry.offset + ENTRY_HEADER_BYTES
    for _ in range(entry.count):
        offset += length
        length, type, _, _ = HEAD.unpack_from(data, offset)
    return type == RecordType.CLOSED
