"""Packet ids that outlive their message: those of a handshake that has begun and is not completed.

    what happens                                          record      the packet id is then
    the client has a message that was sent                RELEASED    released: the broker owes it the end
    the client has sent a message, which is published     RECEIVED    received: the same id is the same message
    the handshake is completed, either way                COMPLETED   free
    the session ends                                      none        free, with SESSION_DELETED

1. The journal is ordered.  Who calls `released` and then acknowledges the messages, in one tick, finds after a crash
   both; or RELEASED alone, and the restart removes the messages as consumed (`StoredSessions.restore`); or neither.
2. RECEIVED is in one entry with its message: both are there after a crash, or neither.
3. RELEASED and RECEIVED keep their segment as live messages do.  COMPLETED stays as long as what it completes.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.engine.client_sessions.stored_session import StoredSession
from broker.engine.queues.state import State
from store import record


class PacketIds:
    """The released and received packet ids of all sessions, in the journal."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def released(self, session: StoredSession, packet_ids: list[int]) -> None:
        """Store that the client has the messages of these packet ids.  Call it before they are acknowledged."""
        self._write(session, record.released(session.id, packet_ids), session.released, packet_ids)

    def received(self, session: StoredSession, packet_ids: list[int]) -> None:
        """Store that messages came under these packet ids.

        Call it right after they were published: what asks the journal for room in between (another publication) may
        end the entry.
        """
        self._write(session, record.received(session.id, packet_ids), session.received, packet_ids)

    def completed(self, session: StoredSession, packet_ids: list[int], *, sent: bool) -> None:
        """Store that packet ids are free again: released ones (`sent`) or received ones; others are ignored."""
        held = session.released if sent else session.received
        known = [id for id in dict.fromkeys(packet_ids) if id in held]  # one may come twice in a read
        if not known:
            return
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(record.completed(session.id, known, sent=sent))
        for id in known:
            self._free(held.pop(id))

    def free_all(self, session: StoredSession) -> None:
        """Free all packet ids of a session that was just deleted."""
        for held in (session.released, session.received):
            for segment in held.values():
                self._free(segment)
            held.clear()

    def rewrite(self, session: StoredSession, segment: int) -> None:
        """Write a session's packet ids in a segment again."""
        for held, encode in ((session.released, record.released), (session.received, record.received)):
            ids = [id for id, holder in held.items() if holder == segment]
            if ids:
                self._write(session, encode(session.id, ids), held, ids)

    def _write(self, session: StoredSession, data: bytes, held: dict[int, int], packet_ids: Sequence[int]) -> None:
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(data)
        segment = journal.segment
        for id in packet_ids:
            before = held.pop(id, 0)
            if before:
                self._free(before)
            held[id] = segment
            journal.space.hold(segment, 1)

    def _free(self, segment: int) -> None:
        """Let go of one place in a segment: the record just added replaces it."""
        self._state.journal.refer(segment, released=1)
