"""The calls to list and close the connections of logged-in clients, and their consumers.

Connections are for callers who manage the broker as a whole, consumers for those who manage their queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from starlette.requests import Request

from broker.engine import Consumer, Queue
from broker.engine.model.access import Access
from broker.engine.model.errors import NotFound
from broker.management.callers import consumer_of, managed
from broker.management.calls import CallerAccess, Calls, anybody, authorize_whole
from broker.management.cursors import after_number, cursor, place
from broker.management.models.base import LIMIT_DEFAULT, After, Id, Limit, Reason
from broker.management.models.broker import ConnectionList, ConnectionShown, connection_shown
from broker.management.models.queues import ConsumerList, ConsumerShown, consumer_shown
from broker.management.operator_log import closing_text, log_action
from broker.management.ports import Broker
from broker.management.turns import in_turns


class ConnectionCalls:
    """The calls on one broker's connections."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections = broker.engine.connections

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/connections", self.list, authorize=authorize_whole)
        calls.add("DELETE", "/connections/{id}", self.close, authorize=authorize_whole)

    async def list(self, limit: Limit = LIMIT_DEFAULT, after: After = "") -> ConnectionList:
        """The clients that have logged in, in the order in which they connected."""
        everybody = self._connections.by_id
        start, next = after_number([each.number for each in everybody.values()], "connections", after, limit)
        shown = [connection_shown(each) for each in islice(everybody.values(), start, start + limit)]
        return ConnectionList(connections=shown, next=next, total=len(everybody))

    async def close(self, request: Request, id: Id, reason: Reason = "") -> ConnectionShown:
        """Close a client's connection; its unacknowledged messages return to their queues."""
        connected = self._connections.by_id.get(id)
        if connected is None:
            raise NotFound(f"connection {id} does not exist")
        self._broker.tick.enter()
        connected.dismiss(closing_text(reason))
        log_action(request, "connection.dismissed", connection=connected.id, client=connected.remote)
        return connection_shown(connected)


class ConsumerCalls:
    """The calls on one broker's consumers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        calls.add("GET", "/consumers", self.list, authorize=anybody)
        calls.add("DELETE", "/consumers/{id}", self.close, authorize=self._authorize)

    async def _authorize(self, id: Id, access: CallerAccess) -> None:
        await self._consumer(access, id)

    async def _consumer(self, access: Access, id: str) -> Consumer:
        """The consumer; to a caller who may not manage its queue it does not exist."""
        found = await consumer_of(access, self._engine, id)
        if found is None:
            raise NotFound(f"consumer {id} does not exist")
        return found

    async def list(self, access: CallerAccess, limit: Limit = LIMIT_DEFAULT, after: After = "") -> ConsumerList:
        """The consumers of the queues that the caller manages, by ascending id.

        They include those that hold messages for AMQP links whose connections have ended.
        """
        first, queues = place("consumers", after, -1), self._engine.queues
        names = [queue.name for queue in await in_turns(self._consumed())]
        managing = set(await managed(access, names, lambda name: (queues[name].address.name, name)))
        found = await in_turns(self._consumers(managing))
        chosen = nsmallest(limit + 1, [each for each in found if each.id > first], key=lambda each: each.id)
        next = cursor("consumers", chosen[limit - 1].id) if len(chosen) > limit else None
        shown = await in_turns(consumer_shown(each) for each in chosen[:limit])
        return ConsumerList(consumers=shown, next=next, total=len(found))

    def _consumed(self) -> Iterator[Queue | None]:
        """The queues that have consumers; None after each part of all queues."""
        for part in self._engine.statistics.parts():
            yield from (queue for queue in part if queue.holders())
            yield None

    def _consumers(self, names: set[str]) -> Iterator[Consumer | None]:
        """The consumers of these queues; None for those that are gone."""
        for queue in map(self._engine.queues.get, names):
            yield from () if queue is None else (each for each in queue.holders() if not each.closed)
            yield None

    async def close(self, request: Request, access: CallerAccess, id: Id, reason: Reason = "") -> ConsumerShown:
        """Close a consumer: over AMQP its link, over STOMP and MQTT its connection.

        Its unacknowledged messages return to their queue, and the delivery does not count as failed.  Messages kept for
        a disconnected link go to other consumers.
        """
        consumer = await self._consumer(access, id)
        shown = consumer_shown(consumer)
        self._broker.tick.enter()
        self._engine.consumers.dismiss(consumer, closing_text(reason))
        log_action(request, "consumer.dismissed", consumer=consumer.id, queue=consumer.queue.name)
        return shown
