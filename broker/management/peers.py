"""The HTTP calls on who is connected and who consumes.

    GET    /api/v1/connections?page=&size=          clients that have introduced themselves, as they came
    DELETE /api/v1/connections/ID?reason=           says goodbye to a client; what it had goes back to its queues
    GET    /api/v1/consumers?page=&size=            by their numbers, which rise
    DELETE /api/v1/consumers/ID?reason=             closes one: over STOMP and MQTT its connection, over AMQP its link

Connections are for those who manage the broker as a whole, consumers for those who manage their queues.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.engine import Connected, Consumer
from broker.engine.model.access import Access
from broker.engine.model.errors import NotFound
from broker.engine.model.permissions import Permission
from broker.management.asking import access_of, anybody, check_known, name_of, page_of
from broker.management.callers import Guarded, managed, require_whole
from broker.management.deeds import told
from broker.management.ports import Broker
from broker.management.views import Json, consumer_view

#: Characters of an operator's reason that its client gets to see.
REASON_CHARS_MAX: Final = 200


class PeerCalls:
    """The calls on one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self, guarded: Guarded) -> list[Route]:
        """The calls, each for those who may make it."""
        consumer = "/api/v1/consumers/{name}"
        return [
            Route("/api/v1/connections", guarded(self.connections, None)),
            Route("/api/v1/connections/{name}", guarded(self.dismiss, None), methods=["DELETE"]),
            Route("/api/v1/consumers", guarded(self.consumers, anybody)),
            Route(consumer, guarded(self.close_consumer, self._about_consumer), methods=["DELETE"]),
        ]

    async def connections(self, request: Request) -> Response:
        """A page of all connections."""
        check_known(request, {"page", "size"})
        page, size = page_of(request)
        everybody = self._broker.engine.connections.by_id
        shown = [_connection(each) for each in islice(everybody.values(), (page - 1) * size, page * size)]
        return JSONResponse({"connections": shown, "page": page, "size": size, "total": len(everybody)})

    async def dismiss(self, request: Request) -> Response:
        """Send a client away."""
        connected = self._broker.engine.connections.by_id.get(name_of(request))
        if connected is None:
            raise NotFound(f"connection {name_of(request)} does not exist")
        self._broker.tick.enter()
        connected.dismiss(_reason(request))
        told(request, "connection.dismissed", connection=connected.id, client=connected.remote)
        return JSONResponse(_connection(connected))

    async def consumers(self, request: Request) -> Response:
        """A page of the consumers of the queues that the caller manages."""
        check_known(request, {"page", "size"})
        page, size = page_of(request)
        everybody = [each for queue in self._broker.engine.queues.values() for each in queue.consumers]
        queues = {each.queue.name: each.queue for each in everybody}
        managing = set(await managed(access_of(request), list(queues), lambda name: (queues[name].address.name, name)))
        chosen = [each for each in everybody if each.queue.name in managing and not each.closed]
        chosen.sort(key=lambda each: each.id)
        shown = [_consumer(each) for each in chosen[(page - 1) * size : page * size]]
        return JSONResponse({"consumers": shown, "page": page, "size": size, "total": len(chosen)})

    async def close_consumer(self, request: Request) -> Response:
        """Close a consumer; what it had goes back to its queue, and does not count as failed."""
        consumer = self._consumer(name_of(request))
        assert consumer is not None, "who may close it has found it"
        shown = _consumer(consumer)
        self._broker.tick.enter()
        self._broker.engine.consumers.dismiss(consumer, _reason(request))
        told(request, "consumer.dismissed", consumer=consumer.id, queue=consumer.queue.name)
        return JSONResponse(shown)

    def _consumer(self, id: str) -> Consumer | None:
        queues = self._broker.engine.queues.values()
        return next((each for queue in queues for each in queue.consumers if str(each.id) == id), None)

    def _about_consumer(self, request: Request, access: Access) -> None:
        """Who may not manage its queue, does not know of it."""
        consumer = self._consumer(name_of(request))
        queue = None if consumer is None else consumer.queue
        if queue is None or not access.might(Permission.MANAGE, queue.address.name, queue.name):
            require_whole(access)
            raise NotFound(f"consumer {name_of(request)} does not exist")


def _reason(request: Request) -> str:
    """What its client is told."""
    check_known(request, {"reason"})
    reason = request.query_params.get("reason", "")[:REASON_CHARS_MAX]
    return f"closed by an operator: {reason}" if reason else "closed by an operator"


def _connection(connected: Connected) -> Json:
    return {
        "id": connected.id,
        "protocol": connected.protocol,
        "remote": connected.remote,
        "user": connected.access.user,
        "client_id": connected.access.client_id,
        "since": connected.since,
    }


def _consumer(consumer: Consumer) -> Json:
    queue = consumer.queue
    return consumer_view(consumer) | {"queue": queue.name, "address": queue.address.name}
