"""Shared subscriptions: a queue for all clients that take part, which goes with the last of them.

A client takes part whether it is connected or away.  Who does is not stored: sessions say it again after a restart.
"""

from __future__ import annotations

from broker.engine.queues.state import State
from broker.engine.routing.registry import delete_queue


class SharedSubscriptions:
    """Which clients take part in each, by the name of its queue."""

    __slots__ = ("_clients", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._clients: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def join(self, queue: str, client_id: str) -> None:
        """A client takes part; harmless if it did."""
        self._clients.setdefault(queue, set()).add(client_id)

    def leave(self, queue: str, client_id: str) -> None:
        """A client takes part no more; harmless if it did not."""
        clients = self._clients.get(queue, set())
        clients.discard(client_id)
        if not clients:
            self._clients.pop(queue, None)
            self._delete(queue)

    def delete_abandoned(self, prefix: str) -> None:
        """Delete the queues with names that begin so in which no client takes part; once sessions are restored."""
        for name in [name for name in self._state.queues if name.startswith(prefix) and name not in self._clients]:
            self._delete(name)

    def _delete(self, name: str) -> None:
        queue = self._state.queues.get(name)
        if queue is not None:
            delete_queue(self._state, queue)
