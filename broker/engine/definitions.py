"""The journal's definitions of addresses and queues: JSON in ADDRESS and QUEUE records, both ways."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine.address import Address
from broker.engine.message import RoutingType
from broker.engine.queue import Queue
from store import record

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class AddressDefinition:
    """What makes an address again after a restart."""

    id: int
    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """What makes a queue again after a restart."""

    id: int
    name: str
    address: str
    routing_type: RoutingType
    filter: str
    no_local: str
    auto_created: bool


def address_record(address: Address) -> bytes:
    """The ADDRESS record of an address."""
    definition: Json = {
        "name": address.name,
        "routing-types": sorted(t.name for t in address.routing_types),
        "auto-created": address.auto_created,
    }
    return record.address(address.id, definition)


def queue_record(queue: Queue) -> bytes:
    """The QUEUE record of a durable queue."""
    definition: Json = {
        "name": queue.name,
        "address": queue.address.name,
        "routing-type": queue.routing_type.name,
        "filter": queue.filter.text if queue.filter else "",
        "no-local": queue.no_local,
        "auto-created": queue.auto_created,
    }
    return record.queue(queue.id, definition)


def read_address(id: int, definition: Json) -> AddressDefinition:
    """The inverse of `address_record`.  Raises KeyError on a definition that lacks a field."""
    types = definition["routing-types"]
    assert isinstance(types, list)
    return AddressDefinition(
        id=id,
        name=str(definition["name"]),
        routing_types=frozenset(RoutingType[t] for t in types),
        auto_created=bool(definition["auto-created"]),
    )


def read_queue(id: int, definition: Json) -> QueueDefinition:
    """The inverse of `queue_record`.  Raises KeyError on a definition that lacks a field."""
    return QueueDefinition(
        id=id,
        name=str(definition["name"]),
        address=str(definition["address"]),
        routing_type=RoutingType[str(definition["routing-type"])],
        filter=str(definition["filter"]),
        no_local=str(definition["no-local"]),
        auto_created=bool(definition["auto-created"]),
    )
