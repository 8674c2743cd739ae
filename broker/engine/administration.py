"""What operators and configuration ask for: addresses and queues by name, and what lies on a queue."""

from __future__ import annotations

from collections.abc import Iterator

from broker.engine.address import Address
from broker.engine.errors import AlreadyInUse, NotFound
from broker.engine.filter import Filter
from broker.engine.message import Message, PropertyView, RoutingType
from broker.engine.queue import Queue
from broker.engine.router import Router


def declare(router: Router, name: str, routing_types: set[RoutingType]) -> Address:
    """An address of the configuration: made if it is missing, never deleted automatically."""
    address = router.addresses.get(name)
    if address is None:
        address = router.create_address(name, routing_types, configured=True)
    for routing_type in routing_types - address.routing_types:
        router.add_routing_type(address, routing_type)
    address.configured = True
    return address


def declare_queue(
    router: Router, address: Address, name: str, routing_type: RoutingType, *, durable: bool, filter: Filter | None
) -> Queue:
    """A queue of the configuration.  Raises AlreadyInUse when it exists and is something else."""
    queue = router.queues.get(name)
    if queue is None:
        queue = router.create_queue(address, name, routing_type, durable=durable, filter=filter, configured=True)
    text = queue.filter.text if queue.filter else ""
    wanted = filter.text if filter else ""
    if (queue.address, queue.routing_type, queue.durable, text) != (address, routing_type, durable, wanted):
        raise AlreadyInUse(f"queue {name} exists with another address, routing type, durability or filter")
    queue.configured = True
    return queue


def find_queue(router: Router, name: str) -> Queue:
    """A queue by name or FQQN.  Raises NotFound."""
    address, _, qualified = name.rpartition("::")
    queue = router.queues.get(qualified)
    if queue is None or (address and queue.address.name != address):
        raise NotFound(f"queue {name} does not exist")
    return queue


def browse(queue: Queue, filter: Filter | None) -> Iterator[tuple[Message, str]]:
    """The messages of a queue that a filter lets through, with where each is: ready, scheduled or delivering."""
    for message, place in queue.places():
        if filter is None or filter.matches(PropertyView(message)):
            yield message, place
