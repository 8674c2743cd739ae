"""Searches a journal for a message's trail.

1. A segment whose index (see `id_index`) does not have the id is not opened.  A segment without an index is.
2. All bytes of an opened segment are read, but only the entry around each occurrence of the id's bytes is checked and
   decoded; records about other messages are skipped.
3. An id leads to others (`trail.links_of`), which are then searched for in all segments, including this one.
4. An occurrence outside of any valid entry is damage, and reported: it may have been a record about the message.
   Behind the end of the newest segment it is not, as the broker is writing there.  A complete segment without an index
   is checked as a whole: nothing else shows whether records about the message are missing there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Final

from store import decode
from store.errors import Corrupt
from store.files import Files
from store.reading import Segments
from store.record import RecordError, RemovalReason
from store.segment import ENTRY_MAGIC, ZEROS, BadHeader, EntryHead, Scan, header_of, read_entry, scan
from store.segment_directory import raw_records
from store.trail.id_index import ORIGIN, SPEAKING, IdIndex, IdIndexes, build, nothing
from store.trail.steps import FoundStep, Place, StepKind, Trail, deed_of, links_of, steps_of

#: The most ids of one message that are followed: a message moved so often is in a circle.
IDS_MAX: Final = 1_000

#: The most steps returned, the first ones: a message that is delivered over and over has one for each delivery.
STEPS_MAX: Final = 10_000

#: Bytes searched between two rests: some 2 ms.
PIECE_BYTES: Final = 4 << 20

#: How many possible starts of the entry around some bytes are tried, before all entries of the segment are checked.
_TRIES_MAX: Final = 16

#: How often a segment is searched again for ids newly found in it, before all its entries are read.
_PASSES_MAX: Final = 4

_ID: Final = Struct("<Q")


def find_trail(
    files: Files,
    directory: str,
    id: int,
    *,
    names: Mapping[int, str] | None = None,
    exists: Callable[[int], bool] = lambda queue: True,
    rest: Callable[[], None] = nothing,
) -> Trail:
    """The trail of a message in a journal directory and its kept segments, whether a broker runs on it or not.

    `names` are the names of queues and sessions, by id, that the caller knows; `exists` tells whether a queue still
    exists.  `rest` is called every few milliseconds.  Raises OSError as the file system does.
    """
    return _Search(files, directory, id, names or {}, exists, rest).run()


class _Search:
    def __init__(
        self,
        files: Files,
        directory: str,
        id: int,
        names: Mapping[int, str],
        exists: Callable[[int], bool],
        rest: Callable[[], None],
    ) -> None:
        self._segments = Segments(files, directory)
        self._indexes = IdIndexes(files, directory)
        self._known: dict[int, IdIndex | None] = {}
        self._names = dict(names)
        self._exists = exists
        self._rest = rest
        self._in_use: frozenset[int] = frozenset()  # when the search began
        self._ids = {id}
        self._looked: dict[int, set[int]] = {}  # the ids that were looked for in each segment
        self._found: dict[tuple[int, int], FoundStep] = {}  # by position and message
        self._problems: dict[str, None] = {}  # an ordered set

    def run(self) -> Trail:
        """Do the whole search."""
        numbers = self._segments.numbers()
        self._in_use = self._segments.in_use
        for number in numbers:
            self._known[number] = index = self._indexes.read(number, self._segments.path(number))
            self._names |= index.names if index is not None else {}
            self._rest()
        new = set(self._ids)
        wanted: dict[int, set[int]] = {}
        while True:
            for number, index in self._known.items():
                ids = {id for id in new if index is None or index.has(id)} - self._looked.get(number, set())
                if ids:
                    wanted.setdefault(number, set()).update(ids)
            if not wanted or len(self._ids) > IDS_MAX:
                break
            number = min(wanted)
            new = self._look(number, wanted.pop(number))
        self._segments.forget()
        return self._trail(numbers)

    def _look(self, number: int, ids: set[int]) -> set[int]:
        """Collect a segment's records about these ids and those that they lead to in it.  Returns the latter."""
        looked = self._looked.setdefault(number, set())
        looked |= ids
        path = self._segments.path(number)
        data = self._segments.data(number)
        if not data:
            self._add_problem(f"segment {number} went while the journal was read")
            return set()
        try:
            haystack = _Haystack(path, number, data, newest=number == self._segments.newest, rest=self._rest)
        except BadHeader as bad:
            self._add_problem(f"{path} is damaged: {bad}")
            return set()
        led_to: set[int] = set()
        passes = 0
        while ids and len(self._ids) <= IDS_MAX:
            passes += 1
            few = passes <= _PASSES_MAX
            entries = haystack.entries_with(ids, self._known[number]) if few else haystack.all_entries()
            new: set[int] = set()
            for entry in entries:
                new |= self._read(haystack, entry, ids | new)
            led_to |= new
            looked |= new
            ids = new
        if self._known[number] is None and number != self._segments.newest:
            haystack.check_whole(self._segments.first_position(number + 1))
        self._problems |= haystack.problems
        return led_to

    def _add_problem(self, problem: str) -> None:
        self._problems[problem] = None

    def _read(self, haystack: _Haystack, entry: EntryHead, ids: set[int]) -> set[int]:
        """Collect an entry's records about these ids; returns the new ids that they lead to."""
        led_to: set[int] = set()
        try:
            whole = list(haystack.records(entry))
            records = [raw for raw in whole if raw[3] in SPEAKING or raw[3] in decode.LARGE_TYPES]
            deeds = [deed for raw in whole if (deed := deed_of(raw)) is not None]
            while True:
                linked = {
                    id for _, _, _, type, data, at in records for id in _led(links_of(type, data, at), ids | led_to)
                }
                linked -= self._ids
                if not linked:
                    break
                led_to |= linked
                self._ids |= linked
            for raw in records:
                for found in steps_of(raw, ids | led_to):
                    deed = next((each for each in deeds if each.explains(found)), None)
                    found = deed.done(found) if deed is not None else found
                    self._found[(found.step.position, found.step.message)] = found
        except (Corrupt, RecordError) as wrong:
            self._add_problem(f"{haystack.path}: an entry at byte {entry.offset} cannot be read: {wrong}")
        return led_to

    # -- the result ------------------------------------------------------------------------------------------------

    def _trail(self, numbers: list[int]) -> Trail:
        found = [self._found[key] for key in sorted(self._found)]
        self._learn_names(found)
        if len(self._ids) > IDS_MAX:
            self._add_problem(f"the message had more than {IDS_MAX} ids: the others were not looked for")
        if len(found) > STEPS_MAX:
            self._add_problem(f"the journal has {len(found)} records about it: the first {STEPS_MAX} are told")
        ids = sorted(self._ids)[:IDS_MAX] if found else []
        lost = sorted({*ids} - {each.step.message for each in found if _tells_of_start(each)})
        if lost:
            missing = ", ".join(map(str, lost))
            self._add_problem(f"the journal no longer has the records that stored these ids of the message: {missing}")
        left = [each.step.reason for each in found if each.step.kind is StepKind.LEFT]
        places, vanished, deleted = self._places(found)
        for place in vanished:
            self._add_problem(f"the journal no longer has the record of how message {place.message} left {place.queue}")
        return Trail(
            ids,
            [each.named(self._names) for each in found[:STEPS_MAX]],
            places,
            "" if places or vanished else left[-1] if left else RemovalReason.DELETED.word if deleted else "",
            [*self._problems],
            len(numbers),
            len(self._looked),
        )

    def _places(self, found: Iterable[FoundStep]) -> tuple[list[Place], list[Place], list[Place]]:
        """Where the message is, and the queues that it has left without a record of that.

        The second are those whose record is lost: kept segments have no live messages, so a message stored only there
        has left.  The third were deleted while a transaction held the message.
        """
        there: dict[tuple[int, int], bool] = {}  # whether a segment in use has it
        for each in found:
            keys = [(each.step.message, queue) for queue in each.queue_ids]
            if each.step.kind in (StepKind.STORED, StepKind.COPIED):
                there |= dict.fromkeys(keys, each.step.segment in self._in_use)
            elif each.step.kind is StepKind.LEFT:
                for key in keys:
                    there.pop(key, None)
        places: tuple[list[Place], list[Place], list[Place]] = ([], [], [])
        for (id, queue), lives in there.items():
            index = 2 if not self._exists(queue) else not lives
            places[index].append(Place(id, self._names.get(queue, f"queue {queue}")))
        return places

    def _learn_names(self, found: list[FoundStep]) -> None:
        """Read the needed definitions of segments without an index."""
        for each in found:
            ids = {*each.queue_ids, each.session_id} - {0}
            number = each.step.segment
            if ids <= self._names.keys() or self._known[number] is not None:
                continue
            self._known[number] = index = build(
                self._segments.path(number), number, self._segments.data(number), self._rest, torn=True
            )
            self._names = (index.names if index is not None else {}) | self._names


def _tells_of_start(found: FoundStep) -> bool:
    """Whether a step shows how its message began: it was stored, or was on no durable queue and never stored."""
    kind = found.step.kind
    ended = kind in (StepKind.DIED, StepKind.EXPIRED)
    return kind in (StepKind.STORED, StepKind.COPIED) or (ended and not found.queue_ids)


def _led(links: tuple[int, ...], ids: set[int]) -> tuple[int, ...]:
    return tuple(id for id in links if id) if not ids.isdisjoint(links) else ()


def _written_bytes(data: bytes) -> int:
    """Bytes of a segment before the zeros of its allocation, in which a search takes six times as long.

    Less than a piece of zeros may be included.
    """
    end = len(data)
    while end >= len(ZEROS) and data[end - len(ZEROS) : end] == ZEROS:
        end -= len(ZEROS)
    return end


class _Haystack:
    """A segment being searched.  `problems` report damage at places that were searched for.  Raises BadHeader."""

    def __init__(self, path: str, number: int, data: bytes, *, newest: bool, rest: Callable[[], None]) -> None:
        self.path = path
        self.problems: dict[str, None] = {}
        self._number = number
        self._data = data
        self._header = header_of(number, data)
        self._newest = newest
        self._rest = rest
        self._scan: Scan | None = None
        self._end = _written_bytes(data)

    def entries_with(self, ids: Iterable[int], index: IdIndex | None) -> list[EntryHead]:
        """The valid entries that contain the bytes of these ids, in order."""
        found: dict[int, EntryHead] = {}
        for id in ids:
            before = len(found)
            for needle in (_ID.pack(id), ORIGIN + b"%d" % id):
                at = self._header.header_bytes
                while (at := self._find(needle, at)) >= 0:
                    entry = self._around(at)
                    if entry is None:
                        self._add_damage(at)
                        at += 1
                    else:
                        found[entry.offset] = entry
                        at = entry.end
            if len(found) == before and index is not None and index.has(id):  # found when the index was made
                self._add_damage(self._header.header_bytes)
        return [found[offset] for offset in sorted(found)]

    def _find(self, needle: bytes, start: int) -> int:
        """The next occurrence of some bytes, -1 if there is none."""
        for at in range(start, self._end, PIECE_BYTES):
            found = self._data.find(needle, at, at + PIECE_BYTES + len(needle) - 1)
            if found >= 0:
                return found
            self._rest()
        return -1

    def _around(self, at: int) -> EntryHead | None:
        """The valid entry that contains this byte; None if there is none."""
        begin = at + 1
        with memoryview(self._data) as view:
            for _ in range(_TRIES_MAX):
                begin = self._data.rfind(ENTRY_MAGIC, 0, begin)
                entry = read_entry(view, begin, self._header.crc) if begin > 0 and not begin % 8 else None
                if entry is not None and entry.end > at:
                    return entry
                if entry is not None or begin < 0:
                    break
        entries = self.all_entries()
        index = bisect_right(entries, at, key=lambda entry: entry.offset) - 1
        return entries[index] if index >= 0 and entries[index].end > at else None

    def all_entries(self) -> list[EntryHead]:
        """All valid entries before any damage."""
        return self._scanned().entries

    def _scanned(self) -> Scan:
        if self._scan is None:
            self._scan = scan(self._data, self._header)
            self._rest()
        return self._scan

    def _add_damage(self, at: int) -> None:
        found = self._scanned()
        if not found.damage or (self._newest and at >= found.end):
            return  # the broker is writing there, or a crash has torn it
        self._add_loss(found.end)

    def _add_loss(self, at: int) -> None:
        self.problems[f"{self.path} is damaged at byte {at}: records about the message may be lost there"] = None

    def check_whole(self, position: int | None) -> None:
        """Report damage unless the entries reach the segment's end; `position`: where the next one begins, if known."""
        found = self._scanned()
        self._add_damage(found.end)
        if position is not None and found.position < position:
            self._add_loss(found.end)

    def records(self, entry: EntryHead) -> Iterable[decode.RawRecord]:
        """The records of an entry.  Raises Corrupt."""
        self._rest()
        one = Scan([entry], entry.end, entry.first + entry.count)
        return raw_records(self.path, self._number, self._data, one)
