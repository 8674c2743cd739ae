"""Messages in flight: which message left for which session under which packet id.

After a crash the same message leaves under the same packet id, marked as sent before.  In the life of a message here,
only what could not be told from the message itself is written:

    what happens                      record
    it is sent                        INFLIGHT, which is durable before it leaves
    it is acknowledged                none: with the message, INFLIGHT has lost its meaning
    it is returned, or rejected       COMPLETED: it stays or moves, but is no longer in flight
    the cleaner copies its record     INFLIGHT again: it must be on disk as long as the message is
    its queue is deleted              none: its messages go

1. Of several INFLIGHT records about a message on a queue, or about a packet id, the last one holds.
2. A message that is not stored, or whose queue is not durable, needs no record: after a crash there is no such message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.engine.client_sessions.stored_session import StoredSession
from broker.engine.model.message import Message
from broker.engine.queues.pending import Waiter
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store import record

#: Sessions that ended and are still noted as senders of a queue, beyond its consumers, before they are looked through.
ENDED_MAX: Final = 16


class InFlight:
    """The messages in flight of all sessions, in the journal."""

    __slots__ = ("_senders", "_state")

    def __init__(self, state: State) -> None:
        self._senders: dict[Queue, dict[StoredSession, None]] = {}  # those with messages of a queue in flight, or once
        self._state = state

    def sending(
        self, session: StoredSession, queue: Queue, messages: list[Message], packet_ids: list[int], waiter: Waiter
    ) -> int:
        """Store that messages leave under these packet ids, one each, in this order.

        Returns the number of the tick that must be durable first, of which `waiter` is told; 0 if nothing must be.
        A sink may call this while it is handed the messages.
        """
        if not self.sent(session, queue, messages, packet_ids):
            return 0
        work = self._state.pending.work
        work.waiters[waiter] = None
        return work.number

    def sent(
        self, session: StoredSession, queue: Queue, messages: Sequence[Message], packet_ids: Sequence[int]
    ) -> bool:
        """As `sending`, for callers that wait by themselves; False if nothing must be durable."""
        assert len(messages) == len(packet_ids), "a packet id for each message"
        if not self._write(session, queue, messages, packet_ids):
            return False
        self.note_sender(queue, session)
        return True

    def returned(self, session: StoredSession, messages: list[Message], packet_ids: list[int]) -> None:
        """Store that messages are no longer in flight although they were not acknowledged.

        Call it before they are returned or rejected, with the packet ids under which they were sent.
        """
        journal = self._state.journal
        journal.ensure_defined(session.id)
        journal.add(record.completed(session.id, packet_ids, sent=True))
        self._refer(messages)

    def copied(self, queue: Queue, messages: list[Message]) -> None:
        """Write again what is in flight of messages whose records were copied forward."""
        copied = {message.id for message in messages}
        for session in self._senders.get(queue, ()):
            if session.ended:
                continue
            sent = [each for each in session.current() if each[1] is queue and each[2].id in copied]
            if sent:
                self._write(session, queue, [message for _, _, message in sent], [id for id, _, _ in sent])

    def queue_deleted(self, queue: Queue) -> None:
        """Forget who has messages of a deleted queue in flight."""
        self._senders.pop(queue, None)

    def note_sender(self, queue: Queue, session: StoredSession) -> None:
        """Note that a session has messages of a queue in flight."""
        senders = self._senders.setdefault(queue, {})
        if session in senders:
            return
        senders[session] = None
        if len(senders) > len(queue.consumers) + ENDED_MAX:
            self._senders[queue] = {sender: None for sender in senders if not sender.ended}

    def _write(
        self, session: StoredSession, queue: Queue, messages: Sequence[Message], packet_ids: Sequence[int]
    ) -> bool:
        """Write INFLIGHT for those messages that need it (rule 2); whether there are any."""
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

    def _refer(self, messages: Iterable[Message]) -> None:
        """Keep the record just added as long as the segments of these messages."""
        journal = self._state.journal
        for segment in {message.segment for message in messages}:
            if segment:
                journal.refer(segment)
