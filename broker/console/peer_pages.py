"""The pages of connections and consumers, which can be closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from starlette.responses import Response

from broker.console.desk import Pages, Routes, authorize_whole
from broker.console.listing import table
from broker.console.visit import Visit, go_to
from broker.engine import Consumer
from broker.engine.model.errors import NotFound
from broker.management.callers import consumer_of, managed
from broker.management.models.base import REASON_CHARS_MAX
from broker.management.models.queues import consumer_shown
from broker.management.operator_log import closing_text
from broker.management.turns import in_turns

#: Columns by which consumers can be sorted.
_COLUMNS: Final[dict[str, Callable[[Consumer], int]]] = {"unacknowledged": lambda consumer: len(consumer.unacked)}


class PeerPages(Pages):
    """The connection and consumer pages of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/connections", self.connections, authorize_whole),
            ("POST", "/connections/close", self.dismiss, authorize_whole),
            ("GET", "/consumers", self.consumers, None),
            ("POST", "/consumers/close", self.close_consumer, self._authorize_consumer),
        ]

    async def connections(self, visit: Visit) -> Response:
        """The clients that have logged in, in the order in which they connected."""
        everybody = self._desk.engine.connections.by_id

        def text(id: str) -> str:
            each = everybody.get(id)
            return f"{each.access.client_id}\n{each.access.user}\n{each.remote}\n{each.protocol}" if each else ""

        found = await table(visit, list(everybody), everybody, {}, text)
        rows = [everybody[id] for id in found.names if id in everybody]
        return self._desk.page(visit, "connections.html", {"table": found, "rows": rows})

    async def dismiss(self, visit: Visit) -> Response:
        """Close a client's connection."""
        connected = self._desk.engine.connections.by_id.get(visit.text("id"))
        if connected is None:
            raise NotFound("this connection has already ended")
        self._desk.enter()
        connected.dismiss(_reason(visit))
        visit.log_action("connection.dismissed", connection=connected.id, client=connected.remote)
        visit.done(
            f"The connection from {connected.remote} was closed; its unacknowledged messages are back on their queues."
        )
        return go_to("/connections")

    async def consumers(self, visit: Visit) -> Response:
        """The consumers of the queues that the visitor manages."""
        queues = self._desk.engine.queues
        parts = self._desk.engine.statistics.parts
        consumed = await in_turns(queue.name if queue.holders() else None for part in parts() for queue in part)
        managing = await managed(visit.access, consumed, lambda name: (queues[name].address.name, name))

        def having() -> Iterator[Consumer | None]:
            for queue in map(queues.get, managing):
                yield from () if queue is None else (each for each in queue.holders() if not each.closed)
                yield None

        everybody = {str(each.id): each for each in await in_turns(having())}

        def text(id: str) -> str:
            each = everybody[id]
            return f"{each.queue.name}\n{each.client_id}\n{each.user}\n{each.remote}"

        found = await table(visit, sorted(everybody, key=int), everybody, _COLUMNS, text)
        rows = [consumer_shown(everybody[id]) for id in found.names]
        return self._desk.page(visit, "consumers.html", {"table": found, "rows": rows})

    async def close_consumer(self, visit: Visit) -> Response:
        """Close a consumer; its messages return to their queue, and the delivery does not count as failed."""
        consumer = await self._consumer(visit)
        self._desk.enter().consumers.dismiss(consumer, _reason(visit))
        visit.log_action("consumer.dismissed", consumer=consumer.id, queue=consumer.queue.name)
        visit.done(f"Consumer {consumer.id} of {consumer.queue.name} was closed.")
        return go_to("/consumers")

    async def _authorize_consumer(self, visit: Visit) -> None:
        await self._consumer(visit)

    async def _consumer(self, visit: Visit) -> Consumer:
        """The consumer; to a visitor who may not manage its queue it does not exist."""
        found = await consumer_of(visit.access, self._desk.engine, visit.text("id"))
        if found is None:
            raise NotFound("this consumer has already ended")
        return found


def _reason(visit: Visit) -> str:
    """The reason that is sent to the client."""
    return closing_text(visit.text("reason").strip()[:REASON_CHARS_MAX])
