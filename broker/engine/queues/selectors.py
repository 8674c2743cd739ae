"""The selectors of a connection's consumers: how large all of them together may be.

A compiled selector takes memory, about 300 bytes for each operator, name and constant, and a message to a topic is
matched with those of all subscribers.  What consumers of a connection have in common counts once.
"""

from __future__ import annotations

from broker.engine.filter import Filter
from broker.engine.model.errors import TooManySelectors
from broker.engine.queues.queue import Consumer


class Selectors:
    """The selectors of each connection.

    `most`: operators, names and constants of all different ones together (`limits.selector-terms-per-connection-max`).
    A message that is matched with as many as are allowed by default takes some 10 ms.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._by_connection: dict[object, dict[Filter, set[Consumer]]] = {}

    def __len__(self) -> int:
        """How many connections have any."""
        return len(self._by_connection)

    def check(self, connection: object, filter: Filter | None) -> None:
        """Check that a connection may have another selector.  Raises TooManySelectors."""
        used = self._by_connection.get(connection, {})
        if filter is None or filter in used:
            return
        nodes = sum([each.nodes for each in used]) + filter.nodes
        if nodes > self.most:
            raise TooManySelectors(
                f"the selectors of this connection would have {nodes} operators, names and constants, of at most "
                f"{self.most} (limits.selector-terms-per-connection-max): use shorter ones, or another connection"
            )

    def add(self, consumer: Consumer) -> None:
        """Count the selector of a consumer."""
        if consumer.filter is not None:
            used = self._by_connection.setdefault(consumer.sink.transport, {})
            used.setdefault(consumer.filter, set()).add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Count it no more; no effect if it is not counted."""
        connection, filter = consumer.sink.transport, consumer.filter
        used = self._by_connection.get(connection)
        if filter is None or used is None or filter not in used:
            return
        used[filter].discard(consumer)
        if not used[filter]:
            del used[filter]
        if not used:
            del self._by_connection[connection]
