"""A small broker without a network: random operations on a journal, and what must be true after each of them.

`Station` keeps messages on queues through a real journal on a simulated disk.  Whenever it commits, it notes its state
beside the ticket.  Whatever happens to the disk, what recovery finds must be one of the states noted, and none older
than the last one that was announced as durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from store import decode, record
from store.decode import RawRecord
from store.errors import JournalFull
from store.journal import Journal, JournalLimits
from store.log import FileLog, LogSettings
from store.record import DeadLetterReason, RecordType, RemovalReason, StoredMessage
from store.recovery import Verdict
from store.retention import RetentionSettings
from store.writer import InlineWriter
from tests.support.sim_files import SimFiles

DIRECTORY = "/data/journal"
BROKER_ID = bytes(range(16))
SEGMENT_BYTES = 4096
LIMITS = JournalLimits(entry_bytes=1 << 20, slack_bytes=1 << 20, reserve_bytes=1 << 20, retry_ms=0, id_block=64)
EPOCH = 1_700_000_000_000
DAY = 86_400_000

#: So many bytes that look like entries of any length are more than may be looked at (LATER_BYTES_MAX), each claiming
#: all that follow it: the nearest of them 8 bytes, the next 16 ...
DECOYS = (1 << 16) + 1


#: A message to store.
Body = StoredMessage


def death(**fields: Any) -> bytes:
    """The record of a death, of which nothing but these fields matters."""
    others = {"queue_id": 1, "old_id": 2, "new_id": 3, "enqueued": 4, "first_failure": 5, "attempts": 6}
    texts = {"address": "addr", "text": "text", "client": "c", "remote": "r", "user": "u"}
    return record.dead_lettered(**{**others, "reason": DeadLetterReason.ADMIN, **texts, **fields})


@dataclass(slots=True)
class Held:
    """A message on its queues: the segment of its record, and per queue (delivery count, due time)."""

    segment: int
    body: bytes
    queues: dict[int, tuple[int, int]]


State = tuple[tuple[tuple[int, str], ...], tuple[tuple[int, int, int, int, bytes], ...]]


@dataclass
class Oracle:
    """Which states may be found: those noted, from the last confirmed one on.  A ticket's last state is the one."""

    noted: dict[int, State] = field(default_factory=dict)
    confirmed: int = 0
    base: State = ((), ())

    def copy(self) -> Oracle:
        """As it is now."""
        return Oracle(dict(self.noted), self.confirmed, self.base)

    def allowed(self) -> list[State]:
        """The states recovery may find."""
        before = [state for ticket, state in self.noted.items() if ticket <= self.confirmed]
        after = [state for ticket, state in self.noted.items() if ticket > self.confirmed]
        return [before[-1] if before else self.base, *after]


class Station:
    """See the module.  Opening it recovers what is on the disk; without `start` that is all it does."""

    def __init__(
        self,
        files: SimFiles,
        *,
        now: int = EPOCH,
        retention: RetentionSettings | None = None,
        start: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.files = files
        self.now = now
        self.oracle = Oracle()
        self.failures: list[Exception] = []
        self.queues: dict[int, str] = {}
        self.messages: dict[int, Held] = {}
        self.highest_id = 0
        settings = LogSettings(segment_bytes=segment_bytes, retention=retention or RetentionSettings())
        self.log = FileLog(files, DIRECTORY, settings, now=lambda: self.now)
        self.log.open()
        self.writer = InlineWriter(self.log, self._announce, self.failures.append)
        self.journal = Journal(
            self.log,
            self.writer,
            now=lambda: self.now,
            new_broker_id=lambda: BROKER_ID,
            limits=LIMITS,
            about={"version": "test"},
        )
        self.verdict: Verdict = self.journal.recover().verdict
        self.records: list[tuple[int, int, int]] = []
        for raw in self.journal.replay():
            self.records.append((raw[0], raw[1], raw[3]))
            self._fold(raw)
        self.oracle.base = self.state()
        if start:
            self.journal.start()
            self.writer.step()

    def _announce(self, ticket: int) -> None:
        assert not self.failures, "nothing is announced after a failure"
        assert ticket >= self.oracle.confirmed, "tickets are announced in order"
        self.oracle.confirmed = ticket
        self.journal.on_durable(ticket)

    # -- recovery --------------------------------------------------------------------------------------------------

    def _fold(self, raw: RawRecord) -> None:
        segment, _, _, type, buffer, offset = raw
        found = decode.decode(buffer, offset)
        if isinstance(found, decode.Message):
            queues = dict.fromkeys(found.header.queue_ids, (0, 0))
            assert isinstance(found.body, bytes)
            self.messages[found.id] = Held(segment, found.body, queues)
            self.journal.space.hold(segment, 1)
            self.highest_id = max(self.highest_id, found.id)
        elif isinstance(found, decode.Removed):
            self._gone(found.queue_id, found.ids, segment)
        elif isinstance(found, decode.Counts):
            self._set(found.queue_id, found.ids, segment, count=found.count)
        elif isinstance(found, decode.Scheduled):
            self._set(found.queue_id, found.ids, segment, due=found.due)
        elif isinstance(found, decode.Definition):
            if type == RecordType.QUEUE:
                self.queues[found.id] = str(found.definition["name"])
                self.highest_id = max(self.highest_id, found.id)
            else:
                self.queues.pop(found.id, None)

    def _gone(self, queue: int, ids: tuple[int, ...] | list[int], here: int) -> None:
        for id in ids:
            held = self.messages.get(id)
            if held is None:
                continue
            held.queues.pop(queue, None)
            self.journal.space.refer(here, held.segment)
            if not held.queues:
                self.journal.space.release(held.segment, 1)
                del self.messages[id]

    def _set(
        self, queue: int, ids: tuple[int, ...], here: int, *, count: int | None = None, due: int | None = None
    ) -> None:
        for id in ids:
            held = self.messages.get(id)
            if held is not None and queue in held.queues:
                old_count, old_due = held.queues[queue]
                new = (old_count if count is None else count, old_due if due is None else due)
                held.queues[queue] = new
                self.journal.space.refer(here, held.segment)

    def state(self) -> State:
        """Everything that must survive."""
        messages = [
            (id, queue, count, due, held.body)
            for id, held in self.messages.items()
            for queue, (count, due) in held.queues.items()
        ]
        return tuple(sorted(self.queues.items())), tuple(sorted(messages))

    # -- operations ------------------------------------------------------------------------------------------------

    def new_queue(self, name: str) -> int:
        id = self.journal.allocate_ids(1)
        self.journal.define(id, record.queue(id, {"name": name}))
        self.queues[id] = name
        return id

    def rename_queue(self, id: int, name: str) -> None:
        self.journal.define(id, record.queue(id, {"name": name}))
        self.queues[id] = name

    def delete_queue(self, id: int) -> None:
        self.remove(id, self.on(id), RemovalReason.DELETED)
        self.journal.undefine(id, record.queue_deleted(id, {"name": self.queues.pop(id)}))

    def on(self, queue: int) -> list[int]:
        """The ids of the messages on a queue, in order."""
        return [id for id, held in self.messages.items() if queue in held.queues]

    def send(self, queues: list[int], bodies: list[bytes], *, essential: bool = False) -> list[int]:
        """Raises JournalFull."""
        journal = self.journal
        journal.reserve(sum(len(b) + 200 for b in bodies), essential=essential)
        first = journal.allocate_ids(len(bodies))
        run = [Body(first + i, b"h", body) for i, body in enumerate(bodies)]
        for queue in queues:
            journal.ensure_defined(queue)
        header = record.message_header(timestamp=self.now, queue_ids=queues, address="a", user="u")
        journal.add_messages(header, record.ANYCAST, run)
        for each, body in zip(run, bodies, strict=True):
            self.messages[each.id] = Held(journal.segment, body, dict.fromkeys(queues, (0, 0)))
        return [each.id for each in run]

    def remove(self, queue: int, ids: list[int], reason: RemovalReason = RemovalReason.CONSUMED) -> None:
        if ids:
            self.journal.ensure_defined(queue)
            self.journal.add(record.removed(queue, reason, ids))
            self._gone(queue, ids, self.journal.segment)

    def count(self, queue: int, ids: list[int], count: int) -> None:
        self.journal.ensure_defined(queue)
        self.journal.add(record.counts(queue, count, ids))
        self._set(queue, tuple(ids), self.journal.segment, count=count)

    def schedule(self, queue: int, ids: list[int], due: int) -> None:
        self.journal.ensure_defined(queue)
        self.journal.add(record.scheduled(queue, due, ids))
        self._set(queue, tuple(ids), self.journal.segment, due=due)

    def send_to_dla(self, queue: int, id: int, grave: int) -> None:
        """Move a message in one entry."""
        (new,) = self.send([grave], [self.messages[id].body], essential=True)
        fields = {"queue_id": queue, "old_id": id, "new_id": new, "enqueued": self.now}
        self.journal.add(death(**fields, reason=DeadLetterReason.REJECTED))
        self.remove(queue, [id], RemovalReason.DEAD_LETTERED)

    def note(self) -> State:
        """Between operations: if the open entry ends here, this is its state."""
        state = self.oracle.noted[self.journal.ticket] = self.state()
        return state

    def commit(self, state: State | None = None) -> int:
        """`state`: what `note` has returned since the last operation."""
        ticket = self.journal.commit()
        self.oracle.noted[ticket] = self.state() if state is None else state
        return ticket

    def step(self) -> None:
        self.writer.step()


class Script:
    """Random operations.  The same seed does the same things, as long as the disk does."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.refused = 0

    def run(self, station: Station, commits: int) -> None:
        """Do operations; each commit is one or a few.  One message is never consumed, and has a segment alone."""
        if not station.queues:
            eternal = station.new_queue("eternal")
            station.note()
            station.send([eternal], [bytes(3300)])
            station.commit()
        for _ in range(commits):
            if station.writer.error is not None:
                return
            for _ in range(self.random.choice((1, 1, 1, 3))):
                self._operate(station)
                noted = station.note()
            station.commit(noted)
            station.now += self.random.choice((0, 1, 50))
            if self.random.random() < 0.7:
                station.step()
        station.step()

    def _operate(self, station: Station) -> None:
        random = self.random
        queues = list(station.queues)[1:]
        if len(queues) < 2 or (len(queues) < 5 and random.random() < 0.05):
            station.new_queue(f"q{random.randrange(1000)}")
            return
        queue = random.choice(queues)
        waiting = station.on(queue)
        try:
            self._one(station, queue, waiting, random.choice(queues))
        except JournalFull:
            self.refused += 1

    def _one(self, station: Station, queue: int, waiting: list[int], other: int) -> None:
        random = self.random
        chance = random.random()
        if not waiting or chance < 0.4:
            bodies = [random.randbytes(random.choice((0, 10, 100, 700))) for _ in range(random.randrange(1, 6))]
            station.send(sorted({queue, other}) if chance < 0.1 else [queue], bodies)
        elif chance < 0.75:
            station.remove(queue, waiting[: random.randrange(1, len(waiting) + 1)])
        elif chance < 0.82:
            station.count(queue, waiting[:2], random.randrange(1, 9))
        elif chance < 0.87:
            station.schedule(queue, waiting[:1], station.now + 1000)
        elif chance < 0.95:
            station.send_to_dla(queue, waiting[0], other)
        elif chance < 0.98:
            station.rename_queue(queue, f"r{random.randrange(1000)}")
        else:
            station.delete_queue(queue)


def reopened(files: SimFiles, oracle: Oracle, highest_id: int = 0, *, start: bool = True) -> Station:
    """Start again on what is on the disk, and check it against what was noted."""
    station = Station(files, start=start)
    found = station.oracle.base
    assert found in oracle.allowed(), "the state found was never noted, or is older than what was confirmed"
    for (before, last, _), (segment, position, _) in pairwise(station.records):
        assert position > last, "positions ascend"
        assert segment != before or position == last + 1, "positions are dense within a segment"
    if start:
        assert station.journal.allocate_ids(1) > max(highest_id, station.highest_id), "ids are never reused"
    return station
