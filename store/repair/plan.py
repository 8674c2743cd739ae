"""Repairs a journal on which a broker does not start: everything valid stays, and losses are listed and counted.

`plan` only reads.  It finds the segments that there must be, salvages each (`salvage`), and plans:

    in a segment            LOST records replace lost records
    a missing segment       is recreated from LOST records
    a bad header            the same: without its checksum no entry of the segment can be trusted
    a large body            its message leaves its queues by name (killed), its record stays
    the end                 a new segment follows.  It names the existing segments and the first unused id (far above
                            all that can have been used, as the record of that may be among the lost), and completes
                            the definitions of queues that have messages, and of their addresses

`apply` first copies every file that it will replace, durably, and then replaces them one by one, each in one step, the
new segment last; the remains of a large body go to torn/.  Stopped at any point, it can be run again.

People must judge what a loss means: a lost message is gone, and a message whose removal is lost is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from store import decode, record
from store.bodies import body_name, body_path, sizes
from store.body_check import Needed, check_bodies
from store.decode import RawRecord
from store.files import Files, write_file
from store.inspect import verify
from store.log import COPY
from store.record import RecordType, RemovalReason
from store.repair.salvage import NOTHING_BEHIND, Loss, Salvage, salvage
from store.segment import (
    BadHeader,
    NewerHeader,
    SegmentHeader,
    decode_header,
    encode_header,
    entry_of,
    header_of,
    pack_entries,
    segment_name,
)
from store.segment_directory import SegmentDirectory, unreadable

#: Ids left unused for each lost record: it may have reserved a block of so many.
IDS_PER_RECORD: Final = 1 << 22

_DEFINITIONS: Final = frozenset(
    {RecordType.ADDRESS, RecordType.ADDRESS_DELETED, RecordType.QUEUE, RecordType.QUEUE_DELETED}
)

#: The members of a queue's definition (docs/journal-format.md) beside name and address.
_PLAIN_QUEUE: Final[record.Json] = {"routing-type": "ANYCAST", "filter": "", "no-local": "", "auto-created": False}

#: The suffix of a new file's name until it is complete.
PARTIAL_SUFFIX: Final = ".repair"


class CannotRepair(Exception):
    """There is nothing to repair, or a repair is impossible; the message says why."""


@dataclass(slots=True)
class Plan:
    """The plan of a repair.

    `written`: the new bytes of segments by number; `missing`: those of them that do not exist; `added`: the number of
    the new segment.  `queues`: names of queues that are defined again because they have messages.  `messages`: ids of
    messages whose large bodies, with the numbers `bodies`, are lost.
    """

    losses: list[Loss] = field(default_factory=list)
    written: dict[int, bytes] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    bodies: set[int] = field(default_factory=set)
    added: int = 0

    @property
    def records_lost(self) -> int:
        """How many records are lost for certain."""
        return sum(max(loss.records, 0) for loss in self.losses)


def plan(files: Files, directory: str, now: int) -> Plan:
    """Plan the repair of a journal.  Raises CannotRepair, OSError, NewerFormat, Corrupt."""
    source = SegmentDirectory(files, directory)
    present = source.segments()
    if not present:
        raise CannotRepair(f"{directory}: there are no segments")
    if COPY in files.list_dir(directory):
        raise CannotRepair(
            f"{directory} is a copy of a log in PostgreSQL: start the broker, which fetches the damaged parts again"
        )
    if verify(files, directory).ok:
        raise CannotRepair(f"{directory}: a broker starts on this journal: there is nothing to repair")
    made = Plan()
    saved = {number: _read(source, number, made) for number in present}
    known = [each for each in saved.values() if each is not None]
    if not known:
        raise CannotRepair(f"{directory}: no segment has a valid header, so no entry can be trusted")
    ((like, _),) = Counter(each.header.broker_id for each in known).most_common(1)
    for each in known:
        if each.header.broker_id != like:
            saved[each.number] = None
            made.losses.append(Loss(each.number, 0, -1, -1, "the segment belongs to another broker"))
    header = next(each.header for each in known if each.header.broker_id == like)
    ends = _needed(source, saved)
    segments = [_segment(number, saved, header, made) for number in sorted(ends)]
    _join(segments, ends, made)
    made.losses += [loss for each in segments for loss in each.losses]
    made.losses.sort(key=lambda loss: (loss.segment, loss.offset))
    for each in segments:
        if each.damaged or each.number in made.missing or saved.get(each.number) is None:
            made.written[each.number] = each.rebuilt()
    _conclude(files, directory, segments, made, max(present[-1], segments[-1].number) + 1, now)
    return made


def _read(source: SegmentDirectory, number: int, made: Plan) -> Salvage | None:
    """Salvage a segment; None if nothing of it can be saved.  Raises NewerFormat."""
    data = source.read(number)
    try:
        header = header_of(number, data)
    except NewerHeader as newer:
        raise unreadable(source.path(number), newer) from newer
    except BadHeader as bad:
        made.losses.append(Loss(number, 0, -1, -1, str(bad)))
        return None
    return salvage(source.path(number), number, data, header)


def _needed(source: SegmentDirectory, saved: dict[int, Salvage | None]) -> dict[int, int]:
    """The segments that there must be: those that the newest one with such a record names, and all after it.

    Each has the position behind its last record, UNSTATED if that is unknown.
    """
    later: dict[int, int] = {}
    for number in sorted(saved, reverse=True):
        each = saved[number]
        later[number] = decode.UNSTATED
        if each is None:
            continue
        named: dict[int, int] | None = None
        for index, raw in enumerate(each.records(source.path(number))):
            if index == 0 and raw[3] == RecordType.OPENED and each.kept[0].first == each.header.first_position:
                named = decode.decode_opened(raw[4], raw[5]).ends
            elif raw[3] == RecordType.TRIMMED and named is not None:
                for trimmed in decode.decode_trimmed(raw[4], raw[5]).segments:
                    named.pop(trimmed, None)
        if named is not None:
            return later | named
    return later


def _segment(number: int, saved: dict[int, Salvage | None], like: SegmentHeader, made: Plan) -> Salvage:
    """A needed segment, or an empty one in its place, whose first position is yet to be found."""
    found = saved.get(number)
    if found is not None:
        return found
    if number not in saved:
        made.missing.append(number)
        made.losses.append(Loss(number, 0, -1, -1, "the segment is missing"))
    header = SegmentHeader(number, like.broker_id, like.created, -1, like.header_bytes, 0)
    return Salvage(number, header, b"", position=-1)


def _join(segments: list[Salvage], ends: dict[int, int], made: Plan) -> None:
    """Note records lost where a segment does not reach the next one, or its known end."""
    before: Salvage | None = None
    for at, each in enumerate(segments):
        if each.header.first_position < 0:
            meets = before is not None and before.number == each.number - 1
            following = next((s.header.first_position for s in segments[at + 1 :] if s.header.first_position >= 0), 0)
            first = before.position if before is not None and (meets or not following) else following
            each.header = replace(each.header, first_position=first)
            each.position = first
        if before is not None and before.number == each.number - 1:
            before.lose_to(each.header.first_position)
        each.lose_to(ends[each.number])
        before = each
    last = segments[-1]
    if last.cut and last.data.count(0, last.end) < len(last.data) - last.end:
        made.losses.append(Loss(last.number, last.end, last.position, -1, NOTHING_BEHIND))
    # The losses of a segment with an unknown beginning are known now if those of its neighbours are.
    known = {loss.segment for each in segments for loss in each.losses}
    made.losses = [loss for loss in made.losses if loss.segment not in known]


# -- the segment at the end ------------------------------------------------------------------------------------------


class _Kept:
    """The ids, addresses and queues found in the saved records."""

    def __init__(self, raws: Iterator[RawRecord]) -> None:
        self.next_id = 1
        self.addresses: dict[int, record.Json] = {}
        self.queues: dict[int, record.Json] = {}
        self._deleted: set[int] = set()
        self._held: dict[int, set[int]] = {}
        self.large = Needed()
        for raw in raws:
            self.large.note(raw)
            self._note(raw[3], raw[4], raw[5])

    def _note(self, type: int, buffer: bytes, offset: int) -> None:
        if type in (RecordType.MESSAGE, RecordType.COPIED):
            message = decode.decode(buffer, offset)
            assert isinstance(message, decode.Message | decode.Copied)
            self.next_id = max(self.next_id, message.id + 1)
            for queue in message.header.queue_ids:
                self._held.setdefault(queue, set()).add(message.id)
        elif type == RecordType.REMOVED:
            removed = decode.decode_removed(buffer, offset)
            self._held.get(removed.queue_id, set()).difference_update(removed.ids)
        elif type in _DEFINITIONS:
            self._define(type, decode.decode_definition(buffer, offset))
        elif type == RecordType.OPENED:
            self.next_id = max(self.next_id, decode.decode_opened(buffer, offset).next_id)
        elif type == RecordType.IDS:
            self.next_id = max(self.next_id, decode.decode_ids(buffer, offset).next_id)

    def _define(self, type: int, found: decode.Definition) -> None:
        table = self.addresses if type in (RecordType.ADDRESS, RecordType.ADDRESS_DELETED) else self.queues
        table.pop(found.id, None)  # the latest one is the last in the table
        if type in (RecordType.ADDRESS, RecordType.QUEUE):
            table[found.id] = found.definition
        else:
            self._deleted.add(found.id)

    @property
    def undefined(self) -> list[int]:
        """Queues that have messages but that no record defines or deletes."""
        known = self.queues.keys() | self._deleted
        return sorted(queue for queue, held in self._held.items() if held and queue not in known)


def _amend(kept: _Kept, next_id: int, made: Plan) -> tuple[list[bytes], int]:
    """Records that complete the definitions, and the next unused id."""
    amending: list[bytes] = []
    for table, delete in ((kept.addresses, record.address_deleted), (kept.queues, record.queue_deleted)):
        latest = {definition["name"]: id for id, definition in table.items()}
        for id, definition in list(table.items()):
            if latest[definition["name"]] != id:  # another one has the name: this one must have been deleted
                amending.append(delete(id, {"name": definition["name"]}))
                del table[id]
    for queue in kept.undefined:
        name = f"recovered.{queue}"
        made.queues.append(name)
        kept.queues[queue] = {"name": name, "address": name, **_PLAIN_QUEUE}
        amending.append(record.queue(queue, kept.queues[queue]))
    there = {definition["name"] for definition in kept.addresses.values()}
    for definition in kept.queues.values():
        name = str(definition.get("address", ""))
        if name and name not in there:
            there.add(name)
            types = [definition["routing-type"]]
            amending.append(record.address(next_id, {"name": name, "routing-types": types, "auto-created": False}))
            next_id += 1
    return amending, next_id


def _send_to_dla(files: Files, directory: str, kept: _Kept, made: Plan) -> list[bytes]:
    """Records that remove messages whose large bodies are missing or damaged."""
    wrong = check_bodies(files, directory, kept.large, contents=True).wrong
    burying = []
    for id, reference, queues in kept.large.messages:
        if reference.id in wrong:
            made.messages.append(id)
            made.bodies.add(reference.id)
            burying += [record.removed(queue, RemovalReason.KILLED, [id]) for queue in sorted(queues)]
    return burying


def _conclude(files: Files, directory: str, segments: list[Salvage], made: Plan, number: int, now: int) -> None:
    source = SegmentDirectory(files, directory)
    kept = _Kept(raw for each in segments for raw in each.records(source.path(each.number)))
    unused = kept.next_id + (made.records_lost + 1) * IDS_PER_RECORD
    amending, next_id = _amend(kept, unused, made)
    about: record.Json = {"software": "bartleby journal repair", "lost": made.records_lost}
    burying = _send_to_dla(files, directory, kept, made)
    parts = [record.opened(next_id, {each.number: each.position for each in segments}, about), *amending, *burying]
    last = segments[-1]
    first = last.position
    header = encode_header(number=number, broker_id=last.header.broker_id, created=now, first_position=first)
    entry = entry_of(parts, segment=number, first=first, timestamp=now)
    made.written[number] = header + bytes(pack_entries([entry], decode_header(header).crc, first))
    made.added = number


# -- doing it --------------------------------------------------------------------------------------------------------


def apply(files: Files, directory: str, made: Plan, backup: str) -> None:
    """Carry a plan out; `backup` is a directory that does not exist yet, for the files that are replaced.

    Call it with the journal locked.  Raises OSError; then run `plan` and `apply` again, with another backup.
    """
    source = SegmentDirectory(files, directory)
    files.make_dir(backup)
    replaced = [n for n in made.written if n != made.added and n not in made.missing]
    for number in replaced:
        _write(files, f"{backup}/{segment_name(number)}", source.read(number))
    files.sync_dir(backup)
    for id in sorted(made.bodies & sizes(files, directory).keys()):
        files.make_dir(f"{directory}/torn")
        files.rename(body_path(directory, id), f"{directory}/torn/{body_name(id)}")
    for number in sorted(made.written):  # the new segment has the highest number
        _write(files, source.path(number), made.written[number])
        files.sync_dir(directory)


def _write(files: Files, path: str, data: bytes) -> None:
    """Write a file, whole or not at all."""
    partial = f"{path}{PARTIAL_SUFFIX}"
    write_file(files, partial, data)
    files.rename(partial, path)
