"""What operators and configuration ask for: addresses and queues by name, and what lies on a queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from broker.engine.filter import Filter
from broker.engine.model.access import Access, delete_permission
from broker.engine.model.attributes import NOTHING_ASKED, Asked
from broker.engine.model.errors import AlreadyInUse, NotFound
from broker.engine.model.message import Message, PropertyView, RoutingType
from broker.engine.model.names import TEMPORARY
from broker.engine.model.permissions import Permission
from broker.engine.queues.address import Address
from broker.engine.queues.paging import upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import alter, registry
from broker.engine.routing.definitions import address_record, queue_record


def declare(state: State, name: str, routing_types: set[RoutingType]) -> Address:
    """An address of the configuration: made if it is missing, never deleted automatically."""
    address = state.addresses.get(name)
    if address is None:
        address = registry.create_address(state, name, routing_types, configured=True)
    for routing_type in routing_types - address.routing_types:
        registry.add_routing_type(state, address, routing_type)
    if not address.configured:
        address.configured = True
        state.journal.define(address.id, address_record(address))
    return address


def declare_queue(
    state: State,
    address: Address,
    name: str,
    routing_type: RoutingType,
    *,
    durable: bool,
    filter: Filter | None,
    asked: Asked = NOTHING_ASKED,
) -> Queue:
    """A queue of the configuration, which has the attributes that are `asked`, and for the rest its settings'.

    Raises AlreadyInUse when it exists and is something else.
    """
    queue = state.queues.get(name)
    attributes = state.attributes(address, name, asked)
    if queue is None:
        queue = registry.create_queue(
            state, address, name, routing_type, durable=durable, filter=filter, configured=True, attributes=attributes
        )
    text = queue.filter.text if queue.filter else ""
    wanted = filter.text if filter else ""
    if (queue.address, queue.routing_type, queue.durable, text) != (address, routing_type, durable, wanted):
        raise AlreadyInUse(f"queue {name} exists with another address, routing type, durability or filter")
    if not queue.configured:
        queue.configured = True
        if queue.durable:
            state.journal.define(queue.id, queue_record(queue))
    if "enabled" not in asked:  # then it is an operator's business
        attributes = replace(attributes, enabled=queue.attributes.enabled)
    alter.become(state, queue, attributes)
    return queue


def find_queue(state: State, name: str) -> Queue:
    """A queue by name or FQQN.  Raises NotFound."""
    address, _, qualified = name.rpartition("::")
    queue = state.queues.get(qualified)
    if queue is None or (address and queue.address.name != address):
        raise NotFound(f"queue {name} does not exist")
    return queue


def find_subscription(state: State, name: str, access: Access) -> Queue:
    """A subscription that somebody wants to delete.  Raises Denied, and NotFound also if it is not his to know of."""
    queue = find_queue(state, name)
    if not access.sees(queue.address.name, queue.name, durable=queue.durable):
        raise NotFound(f"queue {name} does not exist")
    access.require(delete_permission(durable=queue.durable), queue.address.name, queue.name, named=name)
    return queue


def known_subscription(state: State, names: Iterable[str], access: Access) -> Queue | None:
    """The first of these subscriptions that there is, as far as somebody may know of it."""
    for name in names:
        queue = state.queues.get(name) if name else None
        if queue is not None and access.sees(queue.address.name, queue.name, durable=queue.durable):
            return queue
    return None


def make_node(state: State, routing_type: RoutingType, access: Access, use: Permission, *, private: bool) -> Address:
    """An address with a name of the broker's for somebody's own use, if anycast with its queue.  Raises Denied.

    `use` is what he wants with it, `send` or `consume`; with `private` no other connection may consume from it.

    What is permitted there is what is permitted on any address that nobody thought of: the match `#`, as a rule.
    """
    name = TEMPORARY + state.fresh_name()
    needed = [use, Permission.CREATE_ADDRESS]
    if routing_type is RoutingType.ANYCAST or use is Permission.CONSUME:
        needed.append(Permission.CREATE_NON_DURABLE_QUEUE)
    for permission in needed:
        access.require(permission, name, named="of a temporary destination")
    if len(needed) > 2:
        state.quotas.check(access.user)
    address = registry.create_address(state, name, {routing_type}, auto_created=True)
    address.owned = True
    if private:
        address.private_to = access
    if routing_type is RoutingType.ANYCAST:
        registry.create_queue(state, address, name, routing_type, durable=False, creator=access.user)
    return address


def browse(state: State, queue: Queue, filter: Filter | None) -> Iterator[tuple[Message, str]]:
    """The messages of a queue that a filter lets through, with where each is: ready, scheduled or delivering."""
    for message, place in upkeep.places(state, queue):
        if filter is None or filter.matches(PropertyView(message)):
            yield message, place
