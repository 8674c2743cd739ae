"""The HTTP calls on addresses.

    GET    /api/v1/addresses?page=&size=&internal=
    GET    /api/v1/addresses/NAME                   with its queues, diverts and all of its settings
    PUT    /api/v1/addresses/NAME?routing-type=     may be given twice; refused if it exists
    DELETE /api/v1/addresses/NAME?force=            refused if it has queues, unless force=true
    POST   /api/v1/addresses/NAME/pause  .../resume    all its queues, also those that it will have
    POST   /api/v1/addresses/NAME/messages?text=&durable=&priority=&routing-type=&property=NAME:VALUE

The last one sends a message, as a client that tries whether all is well: NAME may be ADDRESS::QUEUE.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.engine import Address, Engine, Send
from broker.engine.model.access import Access
from broker.engine.model.message import PRIORITY_DEFAULT, Message, MessageHeader, PropertyView, RoutingType, group_of
from broker.engine.model.row import kebab
from broker.engine.model.settings import as_mapping
from broker.management.asking import (
    Refused,
    access_of,
    anybody,
    check_known,
    flag_of,
    name_of,
    page_of,
    routing_type_of,
)
from broker.management.callers import Guarded, managed, require_address, require_target
from broker.management.deeds import told
from broker.management.durable import durable
from broker.management.names import Names
from broker.management.ports import Broker
from broker.sessions.stomp.format import STOMP_FORMAT, encode_head
from broker.sessions.stomp.headers import is_application_header

Json = dict[str, object]

#: Queues of one address that are named; more are only counted.
QUEUES_SHOWN_MAX: Final = 1_000


class AddressCalls:
    """The calls on one broker."""

    def __init__(self, broker: Broker, names: Names) -> None:
        self._broker = broker
        self._names = names

    def routes(self, guarded: Guarded) -> list[Route]:
        """The calls, each for those who may make it."""
        path = "/api/v1/addresses/{name}"
        return [
            Route("/api/v1/addresses", guarded(self.list, anybody)),
            Route(path, guarded(self.show, _about), methods=["GET"]),
            Route(path, guarded(self.make, _about), methods=["PUT"]),
            Route(path, guarded(self.delete, _about), methods=["DELETE"]),
            Route(f"{path}/pause", guarded(self.pause, _about), methods=["POST"]),
            Route(f"{path}/resume", guarded(self.pause, _about), methods=["POST"]),
            Route(f"{path}/messages", guarded(self.send, self._about_target), methods=["POST"]),
        ]

    @property
    def _engine(self) -> Engine:
        return self._broker.engine

    def _about_target(self, request: Request, access: Access) -> None:
        require_target(access, self._broker.engine, name_of(request))

    async def list(self, request: Request) -> Response:
        """A page of the addresses that the caller manages, by name; the broker's own only if they are asked for."""
        check_known(request, {"page", "size", "internal"})
        page, size = page_of(request)
        addresses, internal = self._engine.addresses, flag_of(request, "internal")
        every = self._names.addresses(internal=internal)
        names = await managed(access_of(request), every, lambda name: (name, ""))
        shown = [
            address_counts(addresses[name]) for name in names[(page - 1) * size : page * size] if name in addresses
        ]
        return JSONResponse({"addresses": shown, "page": page, "size": size, "total": len(names)})

    async def show(self, request: Request) -> Response:
        """One address."""
        check_known(request, ())
        return JSONResponse(address_view(self._engine, self._engine.operators.address(name_of(request))))

    async def make(self, request: Request) -> Response:
        """Make an address; answered when that is on disk."""
        check_known(request, {"routing-type"})
        types = {routing_type_of(text) for text in request.query_params.getlist("routing-type")}
        self._broker.tick.enter()
        address = self._engine.operators.make_address(name_of(request), types)
        told(request, "address.made", address=address.name)
        await durable(self._broker.engine)
        return JSONResponse(address_view(self._engine, address), 201)

    async def delete(self, request: Request) -> Response:
        """Delete an address; answered when that is on disk."""
        check_known(request, {"force"})
        address, force = self._engine.operators.address(name_of(request)), flag_of(request, "force")
        queues = len(address.queues)
        self._broker.tick.enter()
        self._engine.operators.delete_address(address, with_queues=force)
        told(request, "address.deleted", address=address.name, queues=queues)
        await durable(self._broker.engine)
        return JSONResponse({"name": address.name, "queues": queues})

    async def pause(self, request: Request) -> Response:
        """Stop the deliveries of all queues on an address, or let them go on; answered when that is on disk."""
        check_known(request, ())
        address, paused = self._engine.operators.address(name_of(request)), request.url.path.endswith("/pause")
        self._broker.tick.enter()
        if self._engine.operators.pause_address(address, paused=paused):
            told(request, "address.paused" if paused else "address.resumed", address=address.name)
        await durable(self._broker.engine)
        return JSONResponse({"name": address.name, "paused": address.paused, "queues": len(address.queues)})

    async def send(self, request: Request) -> Response:
        """Send a message; answered when it is on disk."""
        check_known(request, {"text", "durable", "priority", "routing-type", "property"})
        engine = self._broker.engine
        lasting, priority = flag_of(request, "durable", default=True), _priority(request)
        head = encode_head(list(dict(map(_property, request.query_params.getlist("property"))).items()))
        named = request.query_params.get("routing-type")
        routing_type = None if named is None else routing_type_of(named)
        self._broker.tick.enter()
        address, queue = engine.destination(name_of(request), routing_type)
        header = MessageHeader(
            address.name,
            engine.formats[STOMP_FORMAT],
            durable=lasting,
            priority=priority,
            timestamp=engine.now,
            routing_type=routing_type,
            user=access_of(request).user,
        )
        header.expiration, header.expiry_source = address.settings.expiration(0, engine.now)
        message = Message(header, head, request.query_params.get("text", "").encode())
        group, closes = group_of(PropertyView(message))
        if group:
            message.header = header.in_group(group, closes=closes)
        send = Send(address, queue, routing_type, [message])
        engine.publish([send]).check()
        taken = send.routed > 0
        told(request, "address.sent", address=address.name, message=message.id, messages=int(taken))
        await durable(engine)
        return JSONResponse({"address": address.name, "message": message.id, "taken": taken}, 201)


def _about(request: Request, access: Access) -> None:
    require_address(access, name_of(request))


def _priority(request: Request) -> int:
    text = request.query_params.get("priority", str(PRIORITY_DEFAULT))
    if text not in set("0123456789"):
        raise Refused(400, "invalid-parameter", f"priority must be a number from 0 to 9, not {text[:100]!r}")
    return int(text)


def _property(text: str) -> tuple[bytes, bytes]:
    name, separator, value = text.partition(":")
    if not (name and separator):
        raise Refused(400, "invalid-parameter", f"property must be NAME:VALUE, not {text[:100]!r}")
    if not is_application_header(name.encode()):
        raise Refused(400, "invalid-parameter", f"property {name[:100]!r} is set by the broker only")
    return name.encode(), value.encode()


def address_counts(address: Address) -> Json:
    """An address in a list: what it is, what it holds, and what became of messages sent to it since the start."""
    return {
        "name": address.name,
        "routing_types": sorted(kind.name for kind in address.routing_types),
        "queues": len(address.queues),
        "messages": address.size_messages,
        "bytes": address.size_bytes,
        "full": address.full,
        "paused": address.paused,
        "auto_created": address.auto_created,
        "configured": address.configured,
        "routed": address.routed,
        "unrouted": address.unrouted,
        "dropped": address.dropped,
    }


def address_view(engine: Engine, address: Address) -> Json:
    """An address on its own: also its queues and diverts by name, and all settings that apply to it."""
    settings = {kebab(name): _setting(value) for name, value in as_mapping(address.settings).items()}
    extras = address.extras
    diverts = [] if extras is None else [*extras.exclusive, *extras.others]
    return address_counts(address) | {
        "id": address.id,
        "internal": engine.operators.is_own(address),
        "stopped_producers": len(address.blocked),
        "queue_names": [queue.name for queue in address.queues[:QUEUES_SHOWN_MAX]],
        "divert_names": sorted(divert.name for divert in diverts),
        "settings": settings,
    }


def _setting(value: object) -> object:
    return value.name if isinstance(value, RoutingType) else value
