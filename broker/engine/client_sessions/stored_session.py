"""One stored session, as a value: see `sessions` for what is stored of it, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.engine.model.message import Message
from broker.engine.queues.queue import Queue

Definition = dict[str, object]

#: A message in flight: its packet id, the queue that it came from, the message.
Sent = tuple[int, Queue, Message]


class StoredSession:
    """A session in the journal.

    `parts`: by key, the id of its record, and its definition.
    `released` and `received`: by packet id, the segment of its record (`packet_ids`).
    `current` says what is in flight.  After a restart that is `inflight`, by packet id in the order of the messages,
    until the session's protocol has taken it (`StoredSessions.resume`).
    """

    __slots__ = ("current", "definition", "ended", "id", "inflight", "name", "parts", "received", "released")

    def __init__(self, id: int, name: str, definition: Definition) -> None:
        self.id = id
        self.name = name
        self.definition = definition
        self.parts: dict[str, tuple[int, Definition]] = {}
        self.ended = False
        self.inflight: dict[int, tuple[Queue, Message]] = {}
        self.current: Callable[[], Iterable[Sent]] = self._restored
        self.released: dict[int, int] = {}
        self.received: dict[int, int] = {}

    def _restored(self) -> Iterable[Sent]:
        return [(packet_id, queue, message) for packet_id, (queue, message) in self.inflight.items()]
