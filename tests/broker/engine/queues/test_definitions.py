"""Addresses and queues to their records, and back."""

from __future__ import annotations

import pytest

from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues import definitions
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from store.decode import decode_definition


@pytest.mark.parametrize("types", [{RoutingType.ANYCAST}, {RoutingType.MULTICAST}, set(RoutingType), set()])
@pytest.mark.parametrize("automatic", [False, True])
def test_addresses(types: set[RoutingType], automatic: bool) -> None:
    address = Address(7, "a.\u00e4 'x'", types, AddressSettings(), auto_created=automatic, paused=not automatic)
    record = definitions.address_record(address)
    stored = decode_definition(record, 0)
    read = definitions.read_address(stored.id, stored.definition, address.settings)
    assert (read.id, read.name, read.routing_types, read.auto_created) == (7, "a.\u00e4 'x'", types, automatic)
    assert definitions.address_record(read) == record


@pytest.mark.parametrize("filter", ["", "colour = 'red'"])
def test_queues(filter: str) -> None:
    address = Address(7, "a", {RoutingType.MULTICAST}, AddressSettings())
    queue = Queue(
        8, "c.s", address, RoutingType.MULTICAST, filter=compile_filter(filter), no_local="c", auto_created=True
    )
    record = definitions.queue_record(queue)
    stored = decode_definition(record, 0)
    read = definitions.read_queue(stored.id, stored.definition, address)
    assert (read.id, read.name, read.address, read.routing_type) == (8, "c.s", address, RoutingType.MULTICAST)
    assert (read.filter, read.no_local, read.auto_created) == (compile_filter(filter), "c", True)
    assert definitions.queue_record(read) == record


def test_a_definition_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(KeyError):
        definitions.read_queue(1, {"name": "q"}, Address(7, "a", set(), AddressSettings()))
