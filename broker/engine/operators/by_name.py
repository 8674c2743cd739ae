"""What operators make and delete by name: addresses and queues.

A verb checks everything before it changes anything.  What is the broker's own (`names.check_public`, a queue with an
internal owner) is nobody's to make or delete.  What the configuration declares and an operator deletes is made again
at the next reload or start.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.attributes import NOTHING_ASKED, Asked
from broker.engine.model.errors import AlreadyInUse, NotFound, RoutingTypeMismatch
from broker.engine.model.message import RoutingType
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import registry


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A queue that somebody wants.  `address` empty: that of its name; `routing_type` None: what the address has.

    With `make_address` the address is made if it is missing, and gets the routing type if it lacks it.
    """

    name: str
    address: str = ""
    routing_type: RoutingType | None = None
    durable: bool = True
    filter: Filter | None = None
    asked: Asked = field(default_factory=lambda: NOTHING_ASKED)
    make_address: bool = False


def find_address(state: State, name: str) -> Address:
    """Raises NotFound."""
    address = state.addresses.get(name)
    if address is None:
        raise NotFound(f"address {name} does not exist")
    return address


def is_own(state: State, address: Address) -> bool:
    """Whether the broker has an address for itself."""
    return state.is_internal(address.name) or any(queue.internal for queue in address.queues)


def make_address(state: State, name: str, routing_types: AbstractSet[RoutingType]) -> Address:
    """An address that does not exist yet; without routing types it has its settings' default one.

    Raises InvalidName, AlreadyInUse, TooManyAddresses.
    """
    if name in state.addresses:
        raise AlreadyInUse(f"address {name} exists already")
    return registry.create_address(state, name, routing_types or {state.settings(name).default_address_routing_type})


def delete_address(state: State, address: Address, delete_queue: Callable[[Queue], None], *, with_queues: bool) -> None:
    """Delete an address, `with_queues` with all its queues, their messages by name.

    Raises AlreadyInUse, InvalidName.
    """
    names.check_public(address.name, state.syntax)
    for queue in address.queues:
        queue.check_public()
    if address.queues and not with_queues:
        raise AlreadyInUse(f"address {address.name} has {len(address.queues)} queues, which would be deleted with it")
    for queue in list(address.queues):
        delete_queue(queue)
    if state.addresses.get(address.name) is address:  # else it went with its last queue
        registry.delete_address(state, address)


def make_queue(state: State, wanted: NewQueue) -> Queue:
    """A queue that does not exist yet.  Raises InvalidName, AlreadyInUse, NotFound, RoutingTypeMismatch."""
    names.check_queue_name(wanted.name)
    names.check_public(wanted.name, state.syntax)
    if wanted.name in state.queues:
        raise AlreadyInUse(f"queue {wanted.name} exists already, on address {state.queues[wanted.name].address.name}")
    name = wanted.address or wanted.name
    address = state.addresses.get(name)
    if address is None and not wanted.make_address:
        raise NotFound(f"address {name} does not exist: make it first, or ask for it with make-address")
    types = frozenset[RoutingType]() if address is None else address.routing_types
    routing_type = wanted.routing_type
    if routing_type is None:
        default = state.settings(name).default_queue_routing_type
        routing_type = default if default in types or not types else next(iter(types))
    if address is not None and routing_type not in types and not wanted.make_address:
        raise RoutingTypeMismatch(f"address {name} is not {routing_type.name}")
    with registry.undoing(state):
        address = address or make_address(state, name, {routing_type})
        return registry.create_queue(
            state,
            address,
            wanted.name,
            routing_type,
            durable=wanted.durable,
            filter=wanted.filter,
            attributes=state.attributes(address, wanted.name, wanted.asked),
        )


def delete_queue(queue: Queue, delete: Callable[[Queue], None], *, with_messages: bool) -> None:
    """Delete a queue; `with_messages` also one that has messages, which leave by name, or consumers.

    Raises AlreadyInUse.
    """
    check_deletable(queue, with_messages=with_messages)
    delete(queue)


def check_deletable(queue: Queue, *, with_messages: bool) -> None:
    """Raises AlreadyInUse if the queue may not be deleted so."""
    queue.check_public()
    if not with_messages and (queue.message_count or queue.consumers):
        raise AlreadyInUse(
            f"queue {queue.name} has {queue.message_count} messages and {len(queue.consumers)} consumers,"
            " which would go with it: force deletes them too"
        )
