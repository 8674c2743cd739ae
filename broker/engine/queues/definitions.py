"""Encodes and decodes the journal's definitions of addresses and queues: JSON in ADDRESS and QUEUE records."""

from __future__ import annotations

from broker.engine.filter import compile_filter
from broker.engine.model.access import NOBODY
from broker.engine.model.attributes import PLAIN, QueueAttributes, as_json, from_json
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from store import record

Json = dict[str, object]


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
    if queue.reader is not None:
        definition["filtered"] = True
    return record.queue(queue.id, definition)


def read_address(id: int, definition: Json, settings: AddressSettings) -> Address:
    """The inverse of `address_record`.  Raises KeyError on a definition that lacks a field."""
    types = definition["routing-types"]
    assert isinstance(types, list)
    return Address(
        id,
        str(definition["name"]),
        frozenset(RoutingType[t] for t in types),
        settings,
        auto_created=bool(definition["auto-created"]),
        configured=bool(definition.get("configured", False)),
        paused=bool(definition.get("paused", False)),
        bound_once=True,  # it may have been: the journal does not say
    )


def read_queue(id: int, definition: Json, address: Address) -> Queue:
    """The inverse of `queue_record`.  Raises InvalidFilter, and KeyError on a definition that lacks a field."""
    return Queue(
        id,
        str(definition["name"]),
        address,
        RoutingType[str(definition["routing-type"])],
        filter=compile_filter(str(definition["filter"])),
        no_local=str(definition["no-local"]),
        auto_created=bool(definition["auto-created"]),
        messages_max=int(str(definition.get("messages-max", -1))),
        drop_oldest=bool(definition.get("drop-oldest", False)),
        attributes=read_attributes(definition),
        configured=bool(definition.get("configured", False)),
        paused=bool(definition.get("paused", False)),
        creator=str(definition.get("creator", "")),
        reader=NOBODY if definition.get("filtered") else None,  # until its session is restored (`alter.filter_for`)
    )


def read_attributes(definition: Json) -> QueueAttributes:
    """The attributes in a queue's definition."""
    attributes = definition.get("attributes")
    return from_json(attributes) if isinstance(attributes, dict) else PLAIN
