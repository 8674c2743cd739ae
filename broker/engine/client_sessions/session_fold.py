"""Folds the journal's records of stored sessions after a restart (`sessions` has the theory)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.client_sessions.stored_session import Definition, StoredSession
from broker.engine.model.message import Message
from broker.engine.queues.queue import Queue
from store import decode
from store.space import Space


@dataclass(slots=True)
class _Folded:
    """One session: its definition, the packet ids still owed with their segments, and those that became free.

    `freed`: by the broker's packet id, the number and the segment of the last record that completed it.
    """

    name: str
    definition: Definition
    released: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    freed: dict[int, tuple[int, int]] = field(default_factory=dict)


#: A message in flight: the session's id, the packet id, and the number of the record.
_Flight = tuple[int, int, int]


class SessionFold:
    """The sessions while the records are read.

    A record is folded with its segment and its place in a buffer.  Those of an undefined session, in a repaired
    journal, are ignored.  `inflight` is by queue id and message id, like all else known of a message: the code that
    folds a message's removal removes it there.
    """

    def __init__(self, space: Space) -> None:
        self.inflight: dict[int, dict[int, _Flight]] = {}
        self._space = space
        self._sessions: dict[int, _Folded] = {}
        self._parts: dict[int, tuple[int, str, Definition]] = {}  # by id: the session's id, the key, the part
        self._number = 0

    def define(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a SESSION record."""
        stored = decode.decode_definition(buffer, offset)
        name = str(stored.definition["name"])
        definition = cast(Definition, stored.definition["session"])
        known = self._sessions.get(stored.id)
        if known is None:
            self._sessions[stored.id] = _Folded(name, definition)
        else:
            known.definition = definition

    def delete(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a SESSION_DELETED record."""
        self._sessions.pop(decode.decode_definition(buffer, offset).id, None)

    def define_part(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a SESSION_PART record; a repeated one may come before its session's."""
        stored = decode.decode_definition(buffer, offset)
        of, name, part = (stored.definition[member] for member in ("session", "name", "part"))
        self._parts[stored.id] = cast(int, of), str(name), cast(Definition, part)

    def delete_part(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a SESSION_PART_DELETED record."""
        self._parts.pop(decode.decode_definition(buffer, offset).id, None)

    def send(self, sent: decode.Inflight) -> None:
        """Fold an INFLIGHT record."""
        self._number += 1
        inflight = self.inflight.setdefault(sent.queue_id, {})
        for id, packet_id in zip(sent.ids, sent.packet_ids, strict=True):
            inflight[id] = (sent.session_id, packet_id, self._number)

    def release(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a RELEASED record."""
        self._owe(segment, decode.decode_packets(buffer, offset), received=False)

    def receive(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a RECEIVED record."""
        self._owe(segment, decode.decode_packets(buffer, offset), received=True)

    def _owe(self, segment: int, packets: decode.Packets, *, received: bool) -> None:
        session = self._sessions.get(packets.session_id)
        if session is not None:
            held = session.received if received else session.released
            self._settle(segment, packets, held)
            held.update(dict.fromkeys(packets.packet_ids, segment))

    def complete(self, segment: int, buffer: bytes, offset: int) -> None:
        """Fold a COMPLETED record."""
        packets = decode.decode_packets(buffer, offset)
        self._number += 1
        session = self._sessions.get(packets.session_id)
        if session is None:
            return
        self._settle(segment, packets, session.released if packets.sent else session.received)
        if packets.sent:
            session.freed.update(dict.fromkeys(packets.packet_ids, (self._number, segment)))

    def _settle(self, segment: int, packets: decode.Packets, held: dict[int, int]) -> None:
        """Replace earlier records of these packet ids by one in `segment`."""
        for packet_id in packets.packet_ids:
            before = held.pop(packet_id, 0)
            if before:
                self._space.refer(segment, before)

    def finish(self, sessions: StoredSessions, queues: dict[int, Queue], held: dict[int, dict[int, Message]]) -> None:
        """Restore the sessions.  `queues`, by id, have their messages already; `held` has those of each by id."""
        sent = self._sent(queues, held)
        parts: dict[int, dict[str, tuple[int, Definition]]] = {}
        for part_id, (of, key, definition) in sorted(self._parts.items()):
            parts.setdefault(of, {})[key] = part_id, definition
        for id, folded in self._sessions.items():
            session = StoredSession(id, folded.name, folded.definition)
            session.parts = parts.get(id, {})
            session.released, session.received = folded.released, folded.received
            for segment in [*folded.released.values(), *folded.received.values()]:
                self._space.hold(segment, 1)
            found = sorted(sent.get(id, {}).items(), key=lambda each: each[1][2].id)
            sessions.restore(session, [(packet_id, queue, message) for packet_id, (_, queue, message) in found])

    def _sent(
        self, queues: dict[int, Queue], held: dict[int, dict[int, Message]]
    ) -> dict[int, dict[int, tuple[int, Queue, Message]]]:
        """The messages in flight by session and packet id: the record's number, the queue, the message ready there."""
        sent: dict[int, dict[int, tuple[int, Queue, Message]]] = {}
        for queue_id, inflight in self.inflight.items():
            queue = queues.get(queue_id)
            if queue is None:
                continue
            for id, (session_id, packet_id, number) in inflight.items():
                message = held[queue_id].get(id)
                session = self._sessions.get(session_id)
                if message is None or session is None:
                    continue
                freed, segment = session.freed.get(packet_id, (0, 0))
                if number < freed:
                    self._space.refer(segment, message.segment)
                    continue
                of_session = sent.setdefault(session_id, {})
                known = of_session.get(packet_id)
                if not queue.due_of(id) and (known is None or known[0] < number):
                    of_session[packet_id] = (number, queue, message)
        return sent
