"""The journal: what the engine calls.

The engine adds records to the open entry, and once a tick seals it:

    reserve -> add, add_messages, ensure_defined ... -> commit -> (writer: write, sync) -> on_durable

Promises:

1. What is added between two calls of `reserve` and `commit` lies in one entry: after a crash all of it counts, or none.
   So does what is added between `hold` and `let_go`, by whomever, unless it is added in `overtaking`: entries of that
   are written meanwhile, before the one that is held.
2. Tickets number entries.  `commit` returns the ticket that covers everything added so far, `seal_overtaking` the one
   that covers what has overtaken; when `on_durable` is called with it or a higher one, all of that is on disk.
3. `reserve` refuses (JournalFull) before anything changed.  Records added without a reservation are never refused: a
   segment may grow beyond its size, and on a full disk there is a reserve.  Moves and bulk removals may use most of it
   (`essential`), which they ask for step by step; the rest is for those who do not ask, as consumers.  If that is used
   up too, everything waits until the disk has room, and nothing more is durable before.
4. A segment can be read alone: definitions that its records refer to are repeated in it (`ensure_defined`).
5. A segment is dropped when `Space` says so, after a durable TRIMMED record; definitions that only it held are repeated
   in the same entry.  The writer works in order, so the records that made the segment dispensable are durable before
   that.  A segment half full of definitions stays until the cleaner rewrites them (`definitions`).
6. An id is allocated once in the life of a journal.  The limit of ids is written a block ahead.

Everything here runs on one thread.  It never waits for the disk, but for the first segment (`start`).  While the next
segment is still being allocated, as the current one was filled faster, that grows, and clients wait (`is_ahead`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from store import decode, record
from store.bodies import Bodies
from store.body import LargeBody
from store.decode import RawRecord
from store.definitions import Definitions
from store.errors import JournalFull
from store.log import Log
from store.record import Json, MessageLead, RecordType, StoredMessage
from store.recovery import Recovery
from store.segment import ENTRY_HEADER_BYTES, SEGMENT_HEADER_BYTES, Entry
from store.space import Space
from store.writer import Begin, Trim, Work, Writer


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """Limits of a journal; sizes in bytes, times in ms.

    `entry_bytes`: an entry larger than this is sealed between operations, so that a crash undoes little and
    confirmations are not delayed.  `slack_bytes`: room in a segment for records added without a reservation, at most an
    eighth of the segment.  `reserve_bytes`: room for removals and moves when the disk is full, at most a quarter of a
    segment.  `retry_ms`: how often to ask for room while the disk is full.  `id_block`: how many ids are announced in
    advance; half of the default lasts seconds at a million messages a second.
    """

    entry_bytes: int = 1 << 20
    slack_bytes: int = 2 << 20
    reserve_bytes: int = 8 << 20
    retry_ms: int = 1000
    id_block: int = 1 << 22


class Journal:
    """The journal of one engine.  First call `recover`, consume the records of `replay`, and call `start`."""

    def __init__(
        self,
        log: Log,
        writer: Writer,
        *,
        now: Callable[[], int],
        new_broker_id: Callable[[], bytes],
        limits: JournalLimits | None = None,
        about: Json | None = None,
    ) -> None:
        self.space = Space()
        self.abandoned = False  # nothing more is written
        self.ticket = 1
        self.durable = 0
        self.segment = 0
        self.broker_id = b""
        self.limits = limits = limits or JournalLimits()
        self.bodies = Bodies(log.bodies, self._submit, lambda: self.allocate_ids(1))
        self._log = log
        self._spare = log.spare
        self._writer = writer
        self._now = now
        self._new_broker_id = new_broker_id
        self._about = about or {}
        self._recovery: Recovery | None = None
        self._slack = min(limits.slack_bytes, log.segment_bytes // 8)
        #: Room for removals and moves when the disk is full: the limit for what is moved in one step.
        self.reserved_bytes = min(limits.reserve_bytes, log.segment_bytes // 4)
        self._last = min(self._slack, self.reserved_bytes // 4)  # of it for removals, which ask for no room
        self._asked = 0
        self._refused = False  # whether room was refused since the last segment was begun
        self._held_bytes = 0  # promised to what is still to be added to the open entry
        self.held = False  # the open entry stays open
        self.is_overtaking = False  # what is added goes into the other entry, which comes before the one that is held
        self._held_at = 0  # where the held entry would be if none overtook it
        self._held_changes = False  # it changes or deletes a definition
        self._other: tuple[list[bytes], int, int] = ([], 0, 0)  # the other entry: parts, their number, and bytes
        # The open entry, and its segment: `_used` and `_capacity` in bytes, without the open entry.
        self._parts: list[bytes] = []
        self._count = 0
        self._nbytes = 0
        self._used = 0
        self._capacity = 0
        self._position = 0
        # Submitted, not yet durable: ticket and bytes.
        self._submitted: deque[tuple[int, int]] = deque()
        self._submitted_bytes = 0
        self._definitions = Definitions(self.space, segment_bytes=log.segment_bytes)
        self.next_id = 1  # to be allocated
        self._id_limit = 1

    # -- start and end ---------------------------------------------------------------------------------------------

    def recover(self, recovery: Recovery | None = None) -> Recovery:
        """Examine the log on disk, or use the result of that.  Raises Corrupt, LogFailed."""
        self._recovery = recovery = recovery or Recovery(self._log)
        for segment in recovery.segments:
            self.space.opened(segment)
        return recovery

    def replay(self) -> Iterator[RawRecord]:
        """Yield every valid record, oldest first: (segment, position, timestamp ms, type, buffer, offset).

        Definitions and ids are noted on the way; the caller notes live messages and references in `space`.
        Raises Corrupt.
        """
        assert self._recovery is not None, "recover comes before replay"
        recovery, noted = self._recovery, int(RecordType.ADDRESS)
        segment = 0
        for raw in recovery.records():
            if raw[0] != segment:
                segment = raw[0]
                self.space.found(segment)
            if raw[3] >= noted:
                self._note(raw)
            yield raw
        if recovery.verdict.segment:  # it may have no entries
            self.space.found(recovery.verdict.segment)
        for segment in self.space.segments:
            self.space.completed(segment, recovery.sizes[segment], self.next_id, recovery.ends[segment])
            self._definitions.completed(segment)

    def _note(self, raw: RawRecord) -> None:
        segment, _, _, type, buffer, offset = raw
        if type in record.DEFINING:
            length, _, _, _, id = record.DEFINITION_FIXED.unpack_from(buffer, offset)
            self._definitions.defined(id, buffer[offset : offset + length], segment)
        elif type in record.DELETING:
            self._definitions.undefined(record.DEFINITION_FIXED.unpack_from(buffer, offset)[4], segment)
        elif type == RecordType.OPENED:
            self.next_id = max(self.next_id, decode.decode_opened(buffer, offset).next_id)
        elif type == RecordType.TRIMMED:
            dead = decode.decode_trimmed(buffer, offset).segments
            self._definitions.lost_with(set(dead))
            self.space.trimmed(dead)
        elif type == RecordType.IDS:
            self.next_id = max(self.next_id, decode.decode_ids(buffer, offset).next_id)

    def start(self) -> None:
        """Cut a torn tail and begin a new segment.  Call after everything was replayed and the bodies taken over.

        Raises Corrupt if a body is missing, LogFailed, JournalFull.
        """
        recovery, self._recovery = self._recovery, None
        assert recovery is not None, "recover and replay come before start"
        verdict = recovery.verdict
        self.bodies.restored()
        if verdict.segment:
            self._log.cut(verdict.segment, verdict.end, verdict.torn_bytes)
        self._position = verdict.position
        self.broker_id = recovery.broker_id or self._new_broker_id()
        self.segment = recovery.last_segment
        self._writer.wait_ready(self.segment + 1)
        if self._writer.error is not None:
            raise self._writer.error
        if self._spare.ready <= self.segment:
            raise JournalFull(f"a segment cannot be begun: {self._spare.lacking}")
        self._id_limit = self.next_id + self.limits.id_block
        self._roll()
        if recovery.leftovers:
            self._submit(Trim(recovery.leftovers))
        self.commit()

    def abandon(self) -> None:
        """Write nothing more: the open entry is incomplete, and memory may differ from the journal.

        Sealed entries still become durable; tickets from now on never do.
        """
        self.abandoned = True

    def finish(self) -> None:
        """Write CLOSED, and nothing after it; everything is durable once the writer is closed."""
        if not self.held:  # else its open entry is incomplete: the end is as a crash
            self.commit()
            self.add(record.closed())
            self._seal()
        self.abandoned = True

    def close(self) -> None:
        """Write CLOSED, wait until everything is durable, close the log."""
        self.finish()
        self._writer.close()
        self._log.close()

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether the open entry has no records."""
        return not self._parts

    @property
    def position(self) -> int:
        """The position of the next record."""
        return self._position + self._count + self._other[1]

    @property
    def end(self) -> int:
        """Where in `segment` the open entry's next record goes, in bytes from the segment's start.

        If the entry is held, as far as is known: `let_go` tells by how much it is behind that.
        """
        start = self._held_at if self.held and not self.is_overtaking else self._used
        return start + ENTRY_HEADER_BYTES + self._nbytes

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not durable yet."""
        return self._submitted_bytes + self._nbytes + self._other[2]

    @property
    def accepting(self) -> bool:
        """Whether new messages have room: not while the disk is full and one, perhaps a large one, was refused."""
        return not self._spare.lacking or (not self._refused and self._left() >= self.reserved_bytes)

    @property
    def lacking(self) -> str:
        """What is missing for new messages, if it is not `accepting`; else empty."""
        return "" if self.accepting else self._spare.lacking

    @property
    def is_short(self) -> bool:
        """Whether the next segment has no room of its own; see `look_for_room`."""
        return bool(self._spare.lacking)

    @property
    def has_spare(self) -> bool:
        """Whether the next segment is allocated as a whole: then nothing is refused that one has room for."""
        return not self._spare.lacking and self._spare.ready > self.segment

    @property
    def is_ahead(self) -> bool:
        """Whether the segment is nearly full before it is known whether the disk has room for the next one."""
        spare = self._spare
        return not spare.lacking and spare.ready <= self.segment and self._left() < self.reserved_bytes + self._slack

    @property
    def may_overtake(self) -> bool:
        """Whether there may be entries before the one that is held.

        Not once that has changed or deleted a definition: after a crash before its end the old one holds, as for a
        queue without the messages that were sent while it was deleted.  And the segment needs room for them; else they
        would make it ever larger.
        """
        return self.held and not self._held_changes and self._left() >= self._slack

    def _left(self) -> int:
        used = self._used + self._nbytes + self._other[2] + self._held_bytes
        return self._capacity - used - (2 if self.held else 1) * ENTRY_HEADER_BYTES

    # -- adding ----------------------------------------------------------------------------------------------------

    def reserve(self, nbytes: int, *, essential: bool = False) -> None:
        """Make sure that about `nbytes` more can be added.  Raises JournalFull, before anything changed.

        `essential`: may use the reserve; for removals and moves, which make room or concern accepted messages.  This
        seals an open entry that is large enough, so call it between operations, never within one.
        """
        if self._nbytes >= self.limits.entry_bytes and (self.is_overtaking or not self.held):
            self._seal()
        if self._left() - nbytes < self.reserved_bytes:
            self._make_room(nbytes, essential)

    def _make_room(self, nbytes: int, essential: bool) -> None:
        spare = self._spare
        following = self.segment + 1
        self._ask(following)
        left = self._left() - nbytes
        if not spare.full and spare.ready < following:  # it is being allocated
            return
        if spare.ready >= following and (essential or not spare.full):
            if left >= self._slack or self.held:  # then the segment may have to grow
                return
            # One that is smaller than a whole segment, as the disk is full, may be too small.
            refused = spare.full and spare.nbytes - SEGMENT_HEADER_BYTES - ENTRY_HEADER_BYTES - nbytes < self._last
            if not refused:
                self._seal()
                self._roll()
        else:
            # The first segment of a run on a full disk may be smaller than what is for others.
            last = min(self._last, self._capacity // 2)
            refused = left < (last if essential else self.reserved_bytes)
        if refused:
            self._refused = True
            raise JournalFull(f"{max(self._left(), 0)} bytes are left in the last segment: {spare.lacking}")

    def hold(self, nbytes: int) -> None:
        """Keep the open entry, which is empty, open until `let_go`: nothing that is added to it becomes durable before.

        About `nbytes`, which were reserved, are for what needs that; nobody else gets them (`spend_held`).
        """
        assert not self.held, "one at a time"
        assert not self._parts, "what was added before does not wait for it"
        self.held, self._held_bytes, self._held_at = True, nbytes, self._used
        self._held_changes = False

    def spend_held(self, nbytes: int) -> None:
        """Note that some of what was reserved for the held entry is in it."""
        self._held_bytes = max(self._held_bytes - nbytes, 0)

    @property
    def held_bytes(self) -> int:
        """Bytes in the open entry."""
        return self._nbytes

    @property
    def held_count(self) -> int:
        """Records in the entry that is held, or in the open one."""
        return self._other[1] if self.is_overtaking else self._count

    @contextmanager
    def overtaking(self) -> Iterator[None]:
        """Add to an entry before the one that is held, which nothing that is added may depend on."""
        assert self.held, "else there is only one entry"
        assert not self.is_overtaking, "one at a time"
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Exchange the two open entries."""
        other = self._other
        self._other = (self._parts, self._count, self._nbytes)
        self._parts, self._count, self._nbytes = other
        self.is_overtaking = not self.is_overtaking

    def seal_overtaking(self) -> int:
        """End the entry before the one that is held.  Returns the ticket that covers everything added to such ones."""
        if self._other[1]:
            with self.overtaking():
                self._seal()
        return self.ticket - 1

    def let_go(self) -> int:
        """Let the open entry be sealed again.  Returns the bytes of those that have overtaken it."""
        self.seal_overtaking()
        self._definitions.later.clear()
        self.held, self._held_bytes = False, 0
        return self._used - self._held_at

    def look_for_room(self) -> None:
        """Try again to get room, if that is due: what was missing may be there although nobody asks for any."""
        if self._spare.full:
            self._ask(self.segment + 1)

    def _ask(self, segment: int) -> None:
        """Ask for a segment; after a refusal from time to time."""
        if not self._spare.full:
            if self._spare.ready < segment:
                self._writer.hasten(segment)
            return
        now = self._now()
        if not 0 <= now - self._asked < self.limits.retry_ms:
            self._asked = now
            self._writer.prepare(segment)

    def add(self, record: bytes) -> None:
        """Add one record to the open entry."""
        if not self._parts:
            self._open_entry()
        self._parts.append(record)
        self._count += 1
        self._nbytes += len(record)

    def add_all(self, records: Sequence[bytes], nbytes: int = -1) -> None:
        """Add records to the open entry; `nbytes`: how many bytes they have, if that is known."""
        if not self._parts:
            self._open_entry()
        self._parts += records
        self._count += len(records)
        self._nbytes += nbytes if nbytes >= 0 else sum(map(len, records))

    def add_messages(self, header: bytes, flags: int, messages: Sequence[StoredMessage]) -> None:
        """Add a run of messages to the open entry: `header` from message_header, `flags` record.ANYCAST ..."""
        self.add_mixed([MessageLead(header, flags)] * len(messages), messages)

    def add_mixed(self, leads: list[MessageLead], messages: Sequence[StoredMessage]) -> None:
        """Add messages without a common header to the open entry, each with its lead."""
        if not self._parts:
            self._open_entry()
        self._stored(record.encode_mixed(self._parts, leads, messages), len(messages), 0)

    def add_copies(self, header: bytes, flags: int, messages: Sequence[StoredMessage], previous: int) -> None:
        """Add messages of segment `previous` again: they now belong to this one, which stays as long as that."""
        if not self._parts:
            self._open_entry()
        self._stored(record.encode_copies(self._parts, header, flags, messages, previous), len(messages), previous)

    def add_large(self, header: bytes, flags: int, id: int, head: bytes, body: LargeBody, previous: int = 0) -> None:
        """Add a message whose body is in a durable file; with `previous`, a copy as in `add_copies`."""
        if not self._parts:
            self._open_entry()
        self.bodies.recorded(body.reference.id)
        self._stored(record.encode_large(self._parts, header, flags, id, head, body.reference, previous), 1, previous)

    def _stored(self, nbytes: int, count: int, previous: int) -> None:
        """Count added messages, in place of those of segment `previous`, if they are copies."""
        self._nbytes += nbytes
        self._count += count
        self.space.hold(self.segment, count)
        if previous:
            self.refer(previous, released=count)

    def _open_entry(self) -> None:
        """Open an entry in `segment`, or in the next one if little room is left and it is allocated."""
        assert self.segment, "the journal is started before anything is added"
        if self._left() < self._slack and not self.held:
            following = self.segment + 1
            if self._spare.ready < following:
                self._ask(following)
            if self._spare.ready >= following:
                self._roll()

    def commit(self) -> int:
        """End the open entry and hand it to the writer.  Returns the ticket that covers everything added so far."""
        assert not self.held, "an entry that is held open is incomplete"
        if self.space.changed:
            self._trim()
        if self._parts:
            self._seal()
        self.bodies.sweep()
        return self.ticket - 1

    def _seal(self) -> None:
        if not self._parts:
            return
        entry = Entry(
            segment=self.segment,
            ticket=self.ticket,
            first=self._position,
            count=self._count,
            timestamp=self._now(),
            nbytes=self._nbytes,
            parts=self._parts,
        )
        self.ticket += 1
        self._position += self._count
        self._used += entry.length
        self._parts = []
        self._count = self._nbytes = 0
        self._submitted.append((entry.ticket, entry.length))
        self._submitted_bytes += entry.length
        self._submit(entry)

    def _submit(self, work: Work) -> None:
        if not self.abandoned:
            self._writer.submit(work)

    def on_durable(self, ticket: int) -> None:
        """Process the writer's announcement: everything up to `ticket`, or parts of bodies, are on disk."""
        assert ticket < self.ticket, "only what was submitted can be durable"
        self.durable = ticket
        self.bodies.collect()
        submitted = self._submitted
        while submitted and submitted[0][0] <= ticket:
            self._submitted_bytes -= submitted.popleft()[1]

    # -- segments --------------------------------------------------------------------------------------------------

    def _roll(self) -> None:
        """Continue in the next segment, which is allocated.  Its first record lists the segments still needed."""
        assert not self._parts, "an entry lies in one segment"
        if self._used:
            self.space.completed(self.segment, self._used, self.next_id, self._position)
            self._definitions.completed(self.segment)
        self.segment += 1
        self._used = SEGMENT_HEADER_BYTES
        self._capacity = self._spare.nbytes
        self._refused = False
        self._definitions.begin(self.segment)
        self._submit(Begin(self.segment, self.broker_id, self._position))
        opened = record.opened(self._id_limit, {n: self.space.end(n) for n in self.space.segments}, self._about)
        self.space.opened(self.segment)
        self._parts.append(opened)
        self._count = 1
        self._nbytes = len(opened)

    def refer(self, segment: int, *, released: int = 0) -> None:
        """Note that the open entry refers to a segment, of whose messages `released` have left every queue."""
        self.space.refer(self.segment, segment)
        if released:
            self.space.release(segment, released)

    def _trim(self) -> None:
        """Drop segments that are no longer needed."""
        dead = self.space.take_dead(self.segment)
        if not dead:
            return
        self.add_all(*self._definitions.repeat(self._definitions.lost_with(set(dead)), self.segment))
        self.add(record.trimmed(dead))
        self._seal()
        self._submit(Trim(dead))

    # -- definitions -----------------------------------------------------------------------------------------------

    def define(self, key: int, record: bytes) -> None:
        """Add a record of a defining type, and remember it for repetition.  `key` is its id."""
        self.add(record)
        definitions = self._definitions
        if self.is_overtaking:
            definitions.later.discard(key)
        elif self.held:
            self._held_changes |= definitions.differs(key, record)
            if key not in definitions.mentioned:
                definitions.later.add(key)
        definitions.defined(key, record, self.segment)

    def ensure_defined(self, key: int) -> None:
        """Repeat a definition unless this segment has it.  Call before a record that refers to it."""
        if not self._parts:
            self._open_entry()
        definitions = self._definitions
        if key not in definitions.mentioned or (self.is_overtaking and key in definitions.later):
            self.define(key, definitions.record(key))

    def ensure_all_defined(self, keys: Sequence[int]) -> None:
        """The same for many definitions: some 100,000 may be repeated in one go."""
        if not self._parts:
            self._open_entry()
        definitions = self._definitions
        if definitions.mentioned.issuperset(keys) and not definitions.later:
            return
        missing = list(keys)
        if not definitions.mentioned.isdisjoint(missing):
            missing = [key for key in missing if key not in definitions.mentioned]
        if self.is_overtaking and definitions.later:
            missing += [key for key in keys if key in definitions.later]
            definitions.later.difference_update(missing)
        elif self.held:
            definitions.later.update(missing)
        if missing:
            self.add_all(*definitions.repeat(missing, self.segment))

    def undefine(self, key: int, record: bytes) -> None:
        """Add the record that deletes a definition, and forget it."""
        self.add(record)
        self._held_changes |= self.held
        self._definitions.undefined(key, self.segment)

    def rewrite_definitions(self, segment: int) -> int:
        """Repeat the definitions that keep a segment from being dropped.  Returns how many there are.

        Call between operations.  If there is no room for all of them, the segment stays.
        """
        keys = self._definitions.staying_in(segment)
        with suppress(JournalFull):
            for key in keys:
                again = self._definitions.record(key)
                self.reserve(len(again), essential=True)
                self.define(key, again)
        return len(keys)

    # -- ids -------------------------------------------------------------------------------------------------------

    def allocate_ids(self, n: int) -> int:
        """Allocate `n` consecutive new ids, and return the first.  No id is ever allocated twice."""
        first = self.next_id
        self.next_id += n
        if self.next_id > self._id_limit - self.limits.id_block // 2:
            self._id_limit = self.next_id + self.limits.id_block
            if self.held and not self.is_overtaking:  # what overtakes it has ids, too
                with self.overtaking():
                    self.add(record.ids(self._id_limit))
            else:
                self.add(record.ids(self._id_limit))
        return first
