"""The contents of a journal on disk, recomputed the slow way: the oracle for the audits.

Plain Python over the records as `store.decode` reads them, one after the other, everything in dictionaries.  It shares
no code with the audits: if both agree, the format was understood twice in the same way.  It is for undamaged journals:
damage is an error here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from store import decode
from store.record import DeadLetterReason, RecordType, RemovalReason
from store.segment import segment_number
from store.segment_directory import open_segment


@dataclass(frozen=True, slots=True)
class Line:
    """One record and where it is.  `time` is when its entry was sealed, in ms."""

    segment: int
    offset: int
    position: int
    time: int
    type: RecordType
    record: decode.Record


def segment_paths(journal: Path, *, kept: bool) -> dict[int, Path]:
    """Return the segments of a journal directory, each once, oldest first; with those that retention has `kept`."""
    paths = [*(journal.glob("retention/date=*/*") if kept else ()), *journal.iterdir()]
    segments = {segment_number(path.name): path for path in paths}
    return {number: segments[number] for number in sorted(n for n in segments if n)}


def read(journal: Path, *, kept: bool = True) -> list[Line]:
    """Read every record of a journal directory, oldest first."""
    lines: list[Line] = []
    segments = segment_paths(journal, kept=kept)
    for number in segments:
        data = segments[number].read_bytes()
        for _, position, time, type, _, offset in open_segment(str(segments[number]), number, data).records():
            lines.append(Line(number, offset, position, time, RecordType(type), decode.decode(data, offset)))
    return lines


@dataclass(slots=True)
class Account:
    """One queue: the positions at which each message entered and left, and how it left."""

    name: str = ""
    address: str = ""
    entered: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    left: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    deleted: bool = False

    @property
    def present(self) -> set[int]:
        """The messages that are on the queue."""
        return set() if self.deleted else {id for id in self.entered if id not in self.left}

    @property
    def outlived(self) -> set[int]:
        """The messages that were on the queue when it was deleted, and have no removal."""
        return {id for id in self.entered if id not in self.left} if self.deleted else set()

    def reasons(self) -> dict[str, int]:
        """Count the messages that left, by reason."""
        counted: dict[str, int] = defaultdict(int)
        for ways in self.left.values():
            for _, reason in ways:
                counted[reason] += 1
        return dict(counted)

    def faults(self) -> dict[int, str]:
        """Return the contradictions, by message."""
        wrong: dict[int, str] = {}
        for id in self.entered.keys() | self.left.keys():
            came, went = self.entered.get(id, []), self.left.get(id, [])
            if len(came) > 1:
                wrong[id] = "entered twice"
            elif len(went) > 1:
                wrong[id] = "left twice"
            elif not came:
                wrong[id] = "left without entering"
            elif went and went[0][0] < came[0]:
                wrong[id] = "left before it entered"
        return wrong


def ledger(lines: Iterable[Line]) -> dict[int, Account]:
    """Return the account of every queue, by its id."""
    accounts: dict[int, Account] = defaultdict(Account)
    for line in lines:
        record = line.record
        if isinstance(record, decode.Message):
            for queue_id in record.header.queue_ids:
                accounts[queue_id].entered[record.id].append(line.position)
        elif isinstance(record, decode.Copied):
            for queue_id in record.header.queue_ids:
                if record.id not in accounts[queue_id].entered:  # else the record that stored it is there
                    accounts[queue_id].entered[record.id].append(line.position)
        elif isinstance(record, decode.Removed):
            for id in record.ids:
                accounts[record.queue_id].left[id].append((line.position, RemovalReason(record.reason).word))
        elif isinstance(record, decode.Definition) and line.type is RecordType.QUEUE:
            accounts[record.id].name = str(record.definition["name"])
            accounts[record.id].address = str(record.definition.get("address", ""))
        elif isinstance(record, decode.Definition) and line.type is RecordType.QUEUE_DELETED:
            accounts[record.id].deleted = True
    return dict(accounts)


def death_faults(records: Iterable[decode.Record]) -> set[tuple[str, int, int]]:
    """Return contradictions in records of deaths: (what, queue, message).  A lost successor has no queue: 0."""
    explained: Counter[tuple[int, int, str]] = Counter()
    died: Counter[tuple[int, int, str]] = Counter()
    named, stored = set(), set()
    for record in records:
        if isinstance(record, decode.Message):
            stored.add(record.id)
        elif isinstance(record, decode.DeadLettered | decode.Expired):
            way = "expired" if isinstance(record, decode.Expired) else "dead-lettered" if record.new_id else "killed"
            named.add(record.new_id)
            if record.queue_id:  # else it was on no queue, and left none
                explained[record.queue_id, record.old_id, way] += 1
        elif isinstance(record, decode.Removed):
            way = RemovalReason(record.reason).word
            if way in ("dead-lettered", "killed", "expired"):
                died.update((record.queue_id, id, way) for id in record.ids)
    return {
        *(("died without a record", queue, id) for queue, id, _ in died - explained),
        *(("record without a death", queue, id) for queue, id, _ in explained - died),
        *(("died without a successor", 0, id) for id in named - stored - {0}),
    }


@dataclass(slots=True)
class Story:
    """The journal's records about one message id."""

    message: decode.Message | None = None
    origin: int = 0
    successors: list[int] = field(default_factory=list)
    queues: set[int] = field(default_factory=set)
    left: list[tuple[int, int, str]] = field(default_factory=list)  # position, queue id, reason

    def outcome(self, gone: set[int]) -> str:
        """Return `waiting`, or how it left last; `gone` are the queues that were deleted."""
        if self.message is None:
            return "unknown"
        if self.queues - {queue_id for _, queue_id, _ in self.left} - gone:
            return "waiting"
        return max(self.left)[2] if self.left else "deleted"


def stories(lines: Iterable[Line]) -> dict[int, Story]:
    """Return the story of every message, by id."""
    found: dict[int, Story] = defaultdict(Story)
    for line in lines:
        record = line.record
        if isinstance(record, decode.Message):
            story = found[record.id]
            story.message = record
            story.queues.update(record.header.queue_ids)
            annotations = json.loads(record.header.annotations or b"{}")
            story.origin = int(annotations.get("_AMQ_ORIG_MESSAGE_ID", 0))
            if story.origin:
                found[story.origin].successors.append(record.id)
        elif isinstance(record, decode.Removed):
            for id in record.ids:
                found[id].left.append((line.position, record.queue_id, RemovalReason(record.reason).word))
    return found


@dataclass(frozen=True, slots=True)
class Death:
    """A DEAD_LETTERED record, the outcome of the dead letter, and, if it was replayed, that of the replayed message."""

    line: Line
    record: decode.DeadLettered
    queue: str
    reason: str
    outcome: str
    replay_outcome: str


def deaths(lines: list[Line]) -> list[Death]:
    """Return all dead letters, in order."""
    books, told = ledger(lines), stories(lines)
    gone = {id for id, account in books.items() if account.deleted}
    found = []
    for line in lines:
        record = line.record
        if isinstance(record, decode.DeadLettered):
            outcome = told[record.new_id].outcome(gone) if record.new_id else "killed"
            replay_outcome = _replay_outcome(told, record.new_id, gone) if outcome == "moved" else ""
            word = DeadLetterReason(record.reason).word
            found.append(Death(line, record, books[record.queue_id].name, word, outcome, replay_outcome))
    return found


def _replay_outcome(told: dict[int, Story], id: int, gone: set[int]) -> str:
    """Return the final outcome of a message that was moved, however often."""
    outcome = "moved"
    while outcome == "moved":
        successors = told[id].successors
        if not successors:
            return "unknown"
        id = max(successors)
        outcome = told[id].outcome(gone)
    return outcome


@dataclass(frozen=True, slots=True)
class Expiry:
    """An EXPIRED record.  Times in ms; `waited` from the enqueueing, `late` from the expiration, until noticed."""

    line: Line
    record: decode.Expired
    queue: str
    waited: int
    late: int


def expiries(lines: list[Line]) -> list[Expiry]:
    """Return all expired messages, in order."""
    books = ledger(lines)
    return [
        Expiry(
            line,
            line.record,
            books[line.record.queue_id].name,
            line.time - line.record.enqueued,
            line.time - line.record.expiration,
        )
        for line in lines
        if isinstance(line.record, decode.Expired)
    ]


def family(lines: Iterable[Line], id: int) -> set[int]:
    """Return all ids that a message has had: its predecessors and successors, across moves."""
    told = stories(lines)
    first = id
    while told[first].origin:
        first = told[first].origin
    found, todo = set(), [first]
    while todo:
        found.add(todo[-1])
        todo += told[todo.pop()].successors
    return found
