"""Stored sessions: what a client that comes back finds as it left it.

A session of a protocol that promises more than a connection lasts (MQTT) is state of four kinds, each with records
of its own (docs/journal-format.md):

    definition   what the protocol must know of the session: JSON that means nothing here.  SESSION, repeated and
                 trimmed like the definitions of queues; SESSION_DELETED ends it
    parts        the same in pieces, each under a key: what a session may have a thousand of (subscriptions), so that
                 a change costs what has changed.  SESSION_PART, a definition of its own; SESSION_PART_DELETED
    in flight    which message left under which packet id.  INFLIGHT, before the message leaves: after a crash the same
                 message leaves under the same id, marked as sent before
    packet ids   owed beyond the message: RELEASED (the client has the message, the broker owes it the end of the
                 handshake), RECEIVED (the client sent it, and may send it again).  COMPLETED ends both

Rules:

1. The journal is ordered.  A caller of `released` that then acknowledges the messages, in this order and in one tick,
   finds after a crash both; or RELEASED alone, and the restart removes the message as consumed; or neither.
2. An INFLIGHT record is needed as long as its message is on disk, and means nothing when the message is gone.  So
   nothing is written when a message is acknowledged.  When it goes back to its queue instead, `returned` says so.
3. RELEASED and RECEIVED keep their segments as live messages do; COMPLETED stays as long as what it completes.
4. Of several INFLIGHT records about a message on a queue, or about a packet id, the last one holds.

What is confirmed waits for `Engine.confirmation`, as everything.  `session_fold` reads these records after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from broker.engine.model.errors import AlreadyInUse, DiskFull
from broker.engine.model.message import Message
from broker.engine.queues import arrival
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State, Waiter
from store import record
from store.errors import JournalFull
from store.record import RemovalReason

Definition = dict[str, object]

#: Stands in the definitions of sessions that are reservations of links, and of no others.
RESERVED: Final = "reserved"

#: Sessions that ended and are still noted as senders of a queue, beyond its consumers, before they are looked through.
ENDED_MAX: Final = 16

#: A delivery in flight: its packet id, the queue that it came from, the message.
Sent = tuple[int, Queue, Message]


class StoredSession:
    """A session in the journal.  Its identity is `id`: one that is dropped and opened again is another one.

    `parts`: by key, the id of its record, and its definition.
    `inflight` is what was in flight before a restart, by packet id in the order of the messages, until the session's
    protocol takes it over.  `current` is asked for what is in flight now, when a message's records are written anew.
    `released` and `received` are the packet ids owed (see above), each with the segment of its record.
    """

    __slots__ = ("current", "definition", "ended", "id", "inflight", "name", "parts", "received", "released")

    def __init__(self, id: int, name: str, definition: Definition) -> None:
        self.id = id
        self.name = name
        self.definition = definition
        self.parts: dict[str, tuple[int, Definition]] = {}
        self.ended = False
        self.inflight: dict[int, tuple[Queue, Message]] = {}
        self.current: Callable[[], Iterable[Sent]] = self._inherited
        self.released: dict[int, int] = {}
        self.received: dict[int, int] = {}

    def _inherited(self) -> Iterable[Sent]:
        return [(packet_id, queue, message) for packet_id, (queue, message) in self.inflight.items()]


class InFlight:
    """The messages in flight of all sessions, in the journal."""

    __slots__ = ("_senders", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._senders: dict[Queue, dict[StoredSession, None]] = {}  # who has, or had, its deliveries in flight

    def sending(
        self, session: StoredSession, queue: Queue, messages: list[Message], packet_ids: list[int], waiter: Waiter
    ) -> int:
        """Record that deliveries leave under these packet ids, one each, in this order.

        Returns what must be durable before they may leave: the number of a tick, of which `waiter` is told; 0 if
        nothing must, because the journal does not have these messages.  A sink may call this while it is handed them.
        """
        assert len(messages) == len(packet_ids), "a packet id for each message"
        if not self.sent(session, queue, messages, packet_ids):
            return 0
        work = self._state.work
        work.waiters[waiter] = None
        return work.number

    def sent(
        self, session: StoredSession, queue: Queue, messages: Sequence[Message], packet_ids: Sequence[int]
    ) -> bool:
        """The same, for callers that wait by themselves; False if nothing must be durable."""
        if not self._record_sent(session, queue, messages, packet_ids):
            return False
        self.note_sender(queue, session)
        return True

    def _record_sent(
        self, session: StoredSession, queue: Queue, messages: Sequence[Message], packet_ids: Sequence[int]
    ) -> bool:
        """Write INFLIGHT for those messages that are stored; whether there are any."""
        if not queue.durable or queue.deleted:
            return False
        stored = [message.id for message in messages if message.segment]
        if not stored:
            return False
        if len(stored) < len(messages):
            packet_ids = [id for id, message in zip(packet_ids, messages, strict=True) if message.segment]
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.ensure_defined(queue.id)
        journal.add(record.inflight(session.id, queue.id, stored, packet_ids))
        self._refer(messages)
        return True

    def note_sender(self, queue: Queue, session: StoredSession) -> None:
        """A session has deliveries of a queue in flight."""
        senders = self._senders.setdefault(queue, {})
        if session not in senders:
            senders[session] = None
            if len(senders) > len(queue.consumers) + ENDED_MAX:
                self._senders[queue] = {sender: None for sender in senders if not sender.ended}

    def _refer(self, messages: Iterable[Message]) -> None:
        """A record just added speaks about these messages."""
        journal = self._state.journal
        for segment in {message.segment for message in messages}:
            if segment:
                journal.refer(segment)

    def returned(self, session: StoredSession, messages: list[Message], packet_ids: list[int]) -> None:
        """Record that deliveries are no longer in flight although they were not acknowledged.

        Call it before they are given back, or rejected, with the packet ids under which they were sent.
        """
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(record.completed(session.id, packet_ids, sent=True))
        self._refer(messages)

    def copied(self, queue: Queue, messages: list[Message]) -> None:
        """Messages have been written anew: so is what says that they are in flight."""
        senders = self._senders.get(queue)
        if not senders:
            return
        copied = {message.id for message in messages}
        for session in senders:
            if session.ended:
                continue
            sent = [each for each in session.current() if each[1] is queue and each[2].id in copied]
            if sent:
                self._record_sent(session, queue, [message for _, _, message in sent], [id for id, _, _ in sent])

    def queue_gone(self, queue: Queue) -> None:
        """A queue was deleted."""
        self._senders.pop(queue, None)


class StoredSessions:
    """All stored sessions, by name."""

    __slots__ = ("_by_name", "_state", "_unsettled", "in_flight")

    def __init__(self, state: State) -> None:
        self.in_flight = InFlight(state)
        self._state = state
        self._by_name: dict[str, StoredSession] = {}
        self._unsettled: list[tuple[Queue, Message]] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[StoredSession]:
        """Every session, oldest first."""
        return list(self._by_name.values())

    def of_clients(self) -> list[StoredSession]:
        """Those that clients have of a protocol's."""
        return [session for session in self._by_name.values() if RESERVED not in session.definition]

    def reserving(self) -> list[StoredSession]:
        """Those that links of other brokers have (`delivery.reservations`)."""
        return [session for session in self._by_name.values() if RESERVED in session.definition]

    def get(self, name: str) -> StoredSession | None:
        """The session of that name, if there is one."""
        return self._by_name.get(name)

    # -- the session -----------------------------------------------------------------------------------------------

    def open(self, name: str, definition: Definition) -> StoredSession:
        """Record a new session.  Raises AlreadyInUse when there is one of that name, DiskFull."""
        if name in self._by_name:
            raise AlreadyInUse(f"there is a session of client {name} already")
        journal = self._state.journal
        session = StoredSession(0, name, definition)
        data = self._record(session)
        try:
            journal.reserve(len(data))
        except JournalFull as full:
            raise DiskFull(f"the journal has no room for another session: {full}") from full
        session.id = journal.allocate_ids(1)
        journal.define(session.id, self._record(session))
        self._by_name[name] = session
        return session

    def change(self, session: StoredSession, definition: Definition) -> None:
        """Record what a session is from now on; never refused."""
        assert self._by_name.get(session.name) is session, "a session that was dropped does not change"
        session.definition = definition
        self._define(session.id, self._record(session))

    def _define(self, id: int, data: bytes) -> None:
        with suppress(JournalFull):  # asked for only so that a long entry ends here
            self._state.journal.reserve(len(data), essential=True)
        self._state.journal.define(id, data)

    def put(self, session: StoredSession, key: str, definition: Definition) -> None:
        """Record what a part of a session is from now on, unless it is that already; never refused."""
        assert self._by_name.get(session.name) is session, "a session that was dropped does not change"
        id, known = session.parts.get(key, (0, None))
        if known == definition:
            return
        id = id or self._state.journal.allocate_ids(1)
        session.parts[key] = id, definition
        self._define(id, record.session_part(id, {"name": key, "session": session.id, "part": definition}))

    def remove(self, session: StoredSession, key: str) -> None:
        """Record that a session has a part no longer, if it had."""
        id, _ = session.parts.pop(key, (0, None))
        if id:
            self._state.journal.undefine(id, record.session_part_deleted(id, {"name": key}))

    def update(
        self, session: StoredSession, parts: Mapping[str, Definition | None], definition: Definition | None = None
    ) -> None:
        """Record what has changed: parts by key, None for one that is no more, and then what the session is.

        In this order, as a session of earlier versions has its parts in its definition.
        """
        for key, part in parts.items():
            if part is None:
                self.remove(session, key)
            else:
                self.put(session, key, part)
        if definition is not None and definition != session.definition:
            self.change(session, definition)

    def drop(self, session: StoredSession) -> None:
        """End a session, its parts and its packet ids with it.  Its queues are the caller's."""
        assert self._by_name.get(session.name) is session, "a session is dropped once"
        del self._by_name[session.name]
        session.ended = True
        journal = self._state.journal
        for key in list(session.parts):
            self.remove(session, key)
        journal.undefine(session.id, record.session_deleted(session.id, {"name": session.name}))
        for held in (session.released, session.received):
            for segment in held.values():
                self._give_up(segment)
            held.clear()

    def _record(self, session: StoredSession) -> bytes:
        return record.session(session.id, {"name": session.name, "session": session.definition})

    # -- packet ids ------------------------------------------------------------------------------------------------

    def released(self, session: StoredSession, packet_ids: list[int]) -> None:
        """Record that the client has the messages of these packet ids.  Call it before they are acknowledged."""
        self._hold(session, record.released(session.id, packet_ids), session.released, packet_ids)

    def received(self, session: StoredSession, packet_ids: list[int]) -> None:
        """Record that messages came under these packet ids.

        In one journal entry with the messages themselves, if it is called right after they were published: whatever
        asks the journal for room in between (another publication) may end the entry.
        """
        self._hold(session, record.received(session.id, packet_ids), session.received, packet_ids)

    def completed(self, session: StoredSession, packet_ids: list[int], *, sent: bool) -> None:
        """Record that packet ids are free again: `released` ones (`sent`) or `received` ones; others are ignored."""
        held = session.released if sent else session.received
        known = [id for id in dict.fromkeys(packet_ids) if id in held]  # one may come twice in a read
        if not known:
            return
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(record.completed(session.id, known, sent=sent))
        for id in known:
            self._give_up(held.pop(id))

    def _hold(self, session: StoredSession, data: bytes, held: dict[int, int], packet_ids: Sequence[int]) -> None:
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(data)
        segment = journal.segment
        for id in packet_ids:
            before = held.pop(id, 0)
            if before:
                self._give_up(before)
            held[id] = segment
            journal.space.hold(segment, 1)

    def _give_up(self, segment: int) -> None:
        """A packet id in this segment is settled by the record just added."""
        self._state.journal.refer(segment, released=1)

    def forward(self, segment: int) -> None:
        """Write anew the packet ids in a segment, so that it can go."""
        for session in self._by_name.values():
            for held, write in ((session.released, record.released), (session.received, record.received)):
                ids = [id for id, holder in held.items() if holder == segment]
                if ids:
                    self._hold(session, write(session.id, ids), held, ids)

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self, session: StoredSession, sent: Iterable[Sent]) -> None:
        """A session as the journal knows it, with the deliveries in flight that are still on their queues."""
        self._by_name[session.name] = session
        for packet_id, queue, message in sent:
            if packet_id in session.released:
                self._unsettled.append((queue, message))
            else:
                session.inflight[packet_id] = (queue, message)
                self.in_flight.note_sender(queue, session)

    def take_over(self, session: StoredSession, current: Callable[[], Iterable[Sent]]) -> None:
        """The session's protocol has what was in flight before a restart, and says from now on what is (`current`)."""
        session.inflight.clear()
        session.current = current

    def in_flight_by_queue(self) -> dict[Queue, list[Message]]:
        """Deliveries in flight before the restart that their sessions have not taken over yet."""
        found: dict[Queue, list[Message]] = {}
        for session in self._by_name.values():
            for queue, message in session.inflight.values():
                found.setdefault(queue, []).append(message)
        return found

    def settle_restored(self) -> None:
        """Remove the messages that clients had before the restart (rule 1).  The journal must run."""
        unsettled, self._unsettled = self._unsettled, []
        for queue, message in unsettled:
            arrival.unwatch(self._state, queue, [message])
            queue.backlog.discard(message)
            queue.counters.acknowledged += 1
            remove(self._state, queue, [message], RemovalReason.CONSUMED)
