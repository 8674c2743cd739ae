"""Stored sessions: what a client finds when it returns, from another connection or after a restart.

A session belongs to a client, and through it to the user who made it (`client.Client.admit` lets nobody else in).  Its
protocol decides what it is, in JSON that means nothing here.  What becomes of its messages when something ends is said
by one table (`endings.IN_FLIGHT_OUTCOMES`), which the protocol carries out.  This room puts all of it on disk.

What is stored, and how long its record is needed:

    kind         record         written                                    needed until
    definition   SESSION        when the session begins or changes         SESSION_DELETED
    part         SESSION_PART   when one of its many parts does, such as   SESSION_PART_DELETED
                                a subscription: a change costs no more
                                than what has changed
    in flight    INFLIGHT       before a message leaves under a packet id  its message is gone    `in_flight`
    released     RELEASED       when the client has a message, and the     COMPLETED              `packet_ids`
                                end of the handshake is missing
    received     RECEIVED       with a message that the client may send    COMPLETED              `packet_ids`
                                again under the same packet id

What is done here when something happens to a client, and the ending that the table has for its messages:

    event                           here                                   ending
    it connects for the first time  open
    it returns                      change: it is connected
    another connection takes over   change, once for each connection       TAKEN_OVER
    it disconnects, or is lost      change: since when it is away          DISCONNECTED, CONNECTION_LOST
    it subscribes                   put
    it unsubscribes                 put or remove: the part stays while    UNSUBSCRIBED
                                    messages in flight are completed
    it loses the right to consume   returned (`in_flight`)                 REVOKED
    a queue is deleted              queue_deleted (`in_flight`)            QUEUE_DELETED
    the broker restarts             restore, then resume                   RESTARTED
    its session ends or expires     drop                                   SESSION_ENDED

Rules:

1. A session is its `id`, not its name: one that is dropped and opened again is another one.
2. What has begun is never refused: only `open` asks whether there is room.
3. Nothing here is confirmed before it is durable; who confirms waits for `Engine.confirmation`.
4. Nobody but this room, and `session_fold` after a restart, knows the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from broker.engine.client_sessions.in_flight import InFlight
from broker.engine.client_sessions.packet_ids import PacketIds
from broker.engine.client_sessions.stored_session import Definition, Sent, StoredSession
from broker.engine.model.errors import AlreadyInUse, DiskFull
from broker.engine.model.message import Message
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State
from store import record
from store.errors import JournalFull
from store.record import RemovalReason

#: Stands in the definitions of sessions that are reservations of links, and of no others.
RESERVED: Final = "reserved"


class StoredSessions:
    """All stored sessions, by name."""

    __slots__ = ("_by_name", "_consumed", "_state", "in_flight", "packet_ids")

    def __init__(self, state: State) -> None:
        self._by_name: dict[str, StoredSession] = {}
        self._consumed: list[tuple[Queue, Message]] = []  # found by a restart: their clients have them
        self._state = state
        self.in_flight = InFlight(state)
        self.packet_ids = PacketIds(state)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> StoredSession | None:
        """The session of that name, if there is one."""
        return self._by_name.get(name)

    def all(self) -> list[StoredSession]:
        """Every session, oldest first."""
        return list(self._by_name.values())

    def of_clients(self) -> list[StoredSession]:
        """The sessions of a protocol's clients."""
        return [session for session in self._by_name.values() if RESERVED not in session.definition]

    def reserving(self) -> list[StoredSession]:
        """The sessions of other brokers' links (`delivery.reservations`)."""
        return [session for session in self._by_name.values() if RESERVED in session.definition]

    # -- a session, from its beginning to its end ------------------------------------------------------------------

    def open(self, name: str, definition: Definition) -> StoredSession:
        """Begin a session.  Raises AlreadyInUse when there is one of that name, DiskFull."""
        if name in self._by_name:
            raise AlreadyInUse(f"there is a session of client {name} already")
        journal = self._state.journal
        session = StoredSession(0, name, definition)
        try:
            journal.reserve(len(_record_of(session)))
        except JournalFull as full:
            raise DiskFull(f"the journal has no room for another session: {full}") from full
        session.id = journal.allocate_ids(1)
        journal.define(session.id, _record_of(session))
        self._by_name[name] = session
        return session

    def change(self, session: StoredSession, definition: Definition) -> None:
        """Store what a session is from now on."""
        self._check_open(session)
        session.definition = definition
        self._define(session.id, _record_of(session))

    def put(self, session: StoredSession, key: str, definition: Definition) -> None:
        """Store what a part of a session is from now on, unless it is that already."""
        self._check_open(session)
        id, known = session.parts.get(key, (0, None))
        if known == definition:
            return
        id = id or self._state.journal.allocate_ids(1)
        session.parts[key] = id, definition
        self._define(id, record.session_part(id, {"name": key, "session": session.id, "part": definition}))

    def remove(self, session: StoredSession, key: str) -> None:
        """Store that a session no longer has a part, if it had it."""
        id, _ = session.parts.pop(key, (0, None))
        if id:
            self._state.journal.undefine(id, record.session_part_deleted(id, {"name": key}))

    def update(
        self, session: StoredSession, parts: Mapping[str, Definition | None], definition: Definition | None = None
    ) -> None:
        """Store what has changed: parts by key, None for one that is no more, and then what the session is.

        The definition comes last: earlier versions have stored the parts in it.
        """
        for key, part in parts.items():
            if part is None:
                self.remove(session, key)
            else:
                self.put(session, key, part)
        if definition is not None and definition != session.definition:
            self.change(session, definition)

    def drop(self, session: StoredSession) -> None:
        """End a session, with its parts and packet ids.  Its queues are the caller's."""
        self._check_open(session)
        del self._by_name[session.name]
        session.ended = True
        for key in list(session.parts):
            self.remove(session, key)
        self._state.journal.undefine(session.id, record.session_deleted(session.id, {"name": session.name}))
        self.packet_ids.free_all(session)

    def _check_open(self, session: StoredSession) -> None:
        assert self._by_name.get(session.name) is session, "a session that was dropped does not change"

    def _define(self, id: int, data: bytes) -> None:
        with suppress(JournalFull):  # asked for only so that a long entry ends here
            self._state.journal.reserve(len(data), essential=True)
        self._state.journal.define(id, data)

    def rewrite(self, segment: int) -> None:
        """Write the packet ids in a segment again, so that it can go."""
        for session in self._by_name.values():
            self.packet_ids.rewrite(session, segment)

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self, session: StoredSession, sent: Iterable[Sent]) -> None:
        """Restore a session that was read, with what was sent under its packet ids and is still on its queues."""
        self._by_name[session.name] = session
        for packet_id, queue, message in sent:
            if packet_id in session.released:  # the crash came between RELEASED and the acknowledgement
                self._consumed.append((queue, message))
            else:
                session.inflight[packet_id] = (queue, message)
                self.in_flight.note_sender(queue, session)

    def remove_consumed(self) -> None:
        """Remove the messages that clients had before the restart, once the journal can be written."""
        consumed, self._consumed = self._consumed, []
        for queue, message in consumed:
            self._state.schedule.unwatch(queue, [message])
            queue.backlog.discard(message)
            remove(self._state, queue, [message], RemovalReason.CONSUMED)

    def in_flight_by_queue(self) -> dict[Queue, list[Message]]:
        """Messages that were in flight before the restart, of sessions that have not been resumed."""
        found: dict[Queue, list[Message]] = {}
        for session in self._by_name.values():
            for queue, message in session.inflight.values():
                found.setdefault(queue, []).append(message)
        return found

    def resume(self, session: StoredSession, current: Callable[[], Iterable[Sent]]) -> None:
        """Leave what is in flight to the session's protocol, which says from now on what that is (`current`)."""
        session.inflight.clear()
        session.current = current


def _record_of(session: StoredSession) -> bytes:
    return record.session(session.id, {"name": session.name, "session": session.definition})
