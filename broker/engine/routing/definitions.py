"""Encodes and decodes the journal's definitions of addresses and queues: JSON in ADDRESS and QUEUE records."""

from __future__ import annotations

from dataclasses import dataclass

from broker.engine.model.attributes import PLAIN, QueueAttributes, as_json, from_json
from broker.engine.model.message import RoutingType
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from store import record

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class AddressDefinition:
    """A stored address, from which it is restored after a restart."""

    id: int
    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool
    configured: bool = False
    paused: bool = False


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A stored queue, from which it is restored after a restart."""

    id: int
    name: str
    address: str
    routing_type: RoutingType
    filter: str
    no_local: str
    auto_created: bool
    messages_max: int = -1
    drop_oldest: bool = False
    attributes: QueueAttributes = PLAIN
    configured: bool = False
    paused: bool = False
    creator: str = ""


def address_record(address: Address) -> bytes:
    """The ADDRESS record of an address."""
    definition: Json = {
        "name": address.name,
        "routing-types": sorted(t.name for t in address.routing_types),
        "auto-created": address.auto_created,
    }
    if address.configured:
        definition["configured"] = True
    if address.paused:
        definition["paused"] = True
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
    if queue.messages_max >= 0:
        definition |= {"messages-max": queue.messages_max, "drop-oldest": queue.drop_oldest}
    if queue.attributes != PLAIN:
        definition["attributes"] = as_json(queue.attributes)
    if queue.configured:
        definition["configured"] = True
    if queue.paused:
        definition["paused"] = True
    if queue.creator:
        definition["creator"] = queue.creator
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
        configured=bool(definition.get("configured", False)),
        paused=bool(definition.get("paused", False)),
    )


def read_queue(id: int, definition: Json) -> QueueDefinition:
    """The inverse of `queue_record`.  Raises KeyError on a definition that lacks a field."""
    attributes = definition.get("attributes")
    return QueueDefinition(
        id=id,
        name=str(definition["name"]),
        address=str(definition["address"]),
        routing_type=RoutingType[str(definition["routing-type"])],
        filter=str(definition["filter"]),
        no_local=str(definition["no-local"]),
        auto_created=bool(definition["auto-created"]),
        messages_max=int(str(definition.get("messages-max", -1))),
        drop_oldest=bool(definition.get("drop-oldest", False)),
        attributes=from_json(attributes) if isinstance(attributes, dict) else PLAIN,
        configured=bool(definition.get("configured", False)),
        paused=bool(definition.get("paused", False)),
        creator=str(definition.get("creator", "")),
    )
