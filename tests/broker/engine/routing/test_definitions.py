"""Addresses and queues to their records, and back."""

from __future__ import annotations

import pytest

from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.routing import definitions
from store.decode import decode_definition


@pytest.mark.parametrize("types", [{RoutingType.ANYCAST}, {RoutingType.MULTICAST}, set(RoutingType), set()])
@pytest.mark.parametrize("automatic", [False, True])
def test_addresses(types: set[RoutingType], automatic: bool) -> None:
    address = Address(7, "a.\u00e4 'x'", types, AddressSettings(), auto_created=automatic)
    stored = decode_definition(definitions.address_record(address), 0)
    read = definitions.read_address(stored.id, stored.definition)
    assert read == definitions.AddressDefinition(7, "a.\u00e4 'x'", frozenset(types), automatic)


@pytest.mark.parametrize("filter", ["", "colour = 'red'"])
def test_queues(filter: str) -> None:
    address = Address(7, "a", {RoutingType.MULTICAST}, AddressSettings())
    queue = Queue(
        8, "c.s", address, RoutingType.MULTICAST, filter=compile_filter(filter), no_local="c", auto_created=True
    )
    stored = decode_definition(definitions.queue_record(queue), 0)
    read = definitions.read_queue(stored.id, stored.definition)
    assert read == definitions.QueueDefinition(8, "c.s", "a", RoutingType.MULTICAST, filter, "c", True)


def test_a_definition_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(KeyError):
        definitions.read_queue(1, {"name": "q"})
