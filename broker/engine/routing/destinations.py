"""Finds where a message goes and what a subscription consumes, and creates missing addresses and queues if allowed.

A name is that of an address, or an FQQN (`address::queue`).  Settings decide what is created automatically, permissions
for which clients.  Anything created for a request that is then refused is deleted again (`Registry.undoing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.engine.model import names
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.attributes import NO_ATTRIBUTES, RequestedAttributes, differences
from broker.engine.model.errors import AlreadyInUse, AttributesDiffer, NoQueue, NotFound, RoutingTypeMismatch
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.model.settings import AddressSettings
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State

#: The most passing addresses cached: those not created because nothing is bound to them; some hundred bytes each.
PASSING_MAX: Final = 1024

#: The journal's room for an address or queue: its definition with a filter, and the record of its deletion.
DEFINITION_BYTES: Final = 1024


def check_room(state: State, *, essential: bool) -> None:
    """Make sure that the journal has room for an address or queue that somebody asks for.  Raises DiskFull.

    `essential`: it is asked for by a consumer, an operator or the broker itself.
    """
    arrival.reserve_bytes(state, DEFINITION_BYTES, essential=essential)


def destination(
    state: State,
    name: str,
    routing_type: RoutingType | None,
    *,
    access: Access = UNRESTRICTED,
    asked: RequestedAttributes = NO_ATTRIBUTES,
    attached: bool = False,
) -> tuple[Address, Queue | None]:
    """Where a send goes: the address, and the queue if the name is an FQQN.  Creates what is missing, if allowed.

    An address that reaches no queue is not created, unless a sender stays `attached` to it.  Nor is a queue for a
    deleted temporary destination: it would store replies to a client that has left.  `routing_type` is ignored for an
    existing queue named in full.  `asked` are the attributes requested for its anycast queue.
    Raises Denied, NotFound, InvalidName, RoutingTypeMismatch, AttributesDiffer, AlreadyInUse, DiskFull.
    """
    address, address_name = state.addresses.get(name), name
    if address is None or not address.sendable:
        address_name, queue_name = names.split_fqqn(name)
        names.check_sendable(address_name, state.syntax)
        if queue_name is not None:
            access.require(Permission.SEND, address_name, queue_name)
            if queue_name in state.queues:
                routing_type = None  # as in `queue_to_consume`
            queue = _qualified(state, address_name, queue_name, routing_type, access, asked)
            return queue.address, queue
    access.require(Permission.SEND, address_name)
    if (address is None or not address.owned) and names.is_temporary(address_name):
        return address or _pass(state, address_name), None
    if address is None:
        passing = None if attached else _passing_to(state, address_name, routing_type, access)
        if passing is not None:
            return passing, None
        with state.registry.undoing():
            address = _auto_create_address(state, address_name, routing_type, access, and_queue=True)
            return _equipped(state, address, routing_type, access, asked), None
    if routing_type is not None and routing_type not in address.routing_types:
        with state.registry.undoing():
            _admit_type(state, address, routing_type, access)
            return _equipped(state, address, routing_type, access, asked), None
    return _equipped(state, address, routing_type, access, asked), None


def queue_to_consume(
    state: State,
    name: str,
    routing_type: RoutingType | None,
    *,
    access: Access = UNRESTRICTED,
    permission: Permission = Permission.CONSUME,
    subscribing: Permission | None = None,
    asked: RequestedAttributes = NO_ATTRIBUTES,
    partly: bool = False,
) -> Queue | Address:
    """The source of a subscription to `name`: a queue, or an address on which it gets a queue of its own.

    A requested routing type decides, except for an existing queue named in full.  Without one, an address that is only
    multicast gets a subscription, and any other address is consumed through its queue.  `permission` is the one for
    reading; `subscribing` the one for creating a subscription, checked before an address is created for it.  `asked`
    are the attributes requested for the queue.  With `partly` a wildcard address needs no `permission`: the queue
    accepts only messages that may be read.  Raises Denied, NotFound, InvalidName, RoutingTypeMismatch,
    AttributesDiffer, and AlreadyInUse for a temporary destination of another connection or a name that is taken.
    """
    address_name, queue_name = names.split_fqqn(name)
    names.check_name(address_name)
    names.check_public(address_name, state.syntax)
    address = state.addresses.get(address_name)
    if address is not None and address.private_to not in (None, access):
        raise AlreadyInUse(f"the temporary destination {address_name} belongs to another connection")
    if address is not None and address.owner not in (None, access.user):
        access.require(Permission.MANAGE_SESSIONS, address_name)
    if queue_name is not None:
        access.require(permission, address_name, queue_name)
        if queue_name in state.queues:
            routing_type = None  # the full name decides; JMS clients always ask for a queue (anycast)
        queue = _qualified(state, address_name, queue_name, routing_type, access, asked)
        queue.check_owner(access)
        return queue
    with state.registry.undoing():
        if partly and state.syntax.routes(address_name):
            return _wildcard(state, address_name, access, subscribing)
        found = _named(state, address_name, routing_type, access, permission, subscribing, asked)
        if isinstance(found, Queue):
            found.check_owner(access)
        return found


def _equipped(
    state: State, address: Address, routing_type: RoutingType | None, access: Access, asked: RequestedAttributes
) -> Address:
    """The address of a send, with its anycast queue created if the message is meant for one."""
    wanted = routing_type
    if wanted is None and len(address.routing_types) == 1:
        wanted = next(iter(address.routing_types))
    if wanted is RoutingType.ANYCAST and not any(q.routing_type is wanted for q in state.bindings.queues(address)):
        _auto_create_queue(state, address, address.name, RoutingType.ANYCAST, access, asked)
    elif asked and wanted is RoutingType.ANYCAST:
        queue = state.queues.get(address.name)
        if queue is not None and queue.address is address:
            _agreeing(queue, asked)
    return address


def full_queue_name(
    state: State, addresses: Iterable[str], queue_names: Sequence[str], access: Access, permission: Permission
) -> str:
    """`address::queue` for the first of these addresses that may have one of these queues; empty: none may.

    An address has the first of them that exists on it.  It may have the last of them if it is not just a topic: it is
    anycast too, or was not created automatically.  A client without this permission on a queue is answered as if there
    were neither the queue nor its address, or it could find out what exists.
    """
    for name in addresses:
        address = state.addresses.get(name)
        if address is None:
            continue
        found = [queue.name for queue in map(state.queues.get, queue_names) if queue and queue.address is address]
        if not (address.auto_created and address.routing_types == {RoutingType.MULTICAST}):
            found.append(queue_names[-1])
        for queue_name in found:
            if access.might(permission, name, queue_name):
                return f"{name}{names.FQQN_SEPARATOR}{queue_name}"
    return ""


def is_current(state: State, address: Address) -> bool:
    """Whether `destination` would still find this address by its name."""
    return (state.addresses.get(address.name) or state.registry.passing.get(address.name)) is address


def _passing_to(state: State, name: str, routing_type: RoutingType | None, access: Access) -> Address | None:
    """An address that need not be created because its messages reach no queue.  Raises Denied, NotFound."""
    settings = state.registry.settings(name)
    wanted = settings.default_address_routing_type if routing_type is None else routing_type
    if wanted is not RoutingType.MULTICAST or settings.retroactive_message_count > 0:
        return None
    _check_address(state, name, settings, access)
    address = _pass(state, name)
    extras = state.diverts.extras(address)
    if extras is not None and (extras.no_route or extras.exclusive or extras.others):
        return None
    return None if any(state.bindings.targets(address)) else address


def _pass(state: State, name: str) -> Address:
    address = state.registry.passing.get(name)
    if address is None:
        if len(state.registry.passing) >= PASSING_MAX:
            state.registry.passing.clear()
        settings = state.registry.settings(name)
        address = state.registry.passing[name] = Address(0, name, {RoutingType.MULTICAST}, settings, passing=True)
    return address


def _wildcard(state: State, name: str, access: Access, subscribing: Permission | None) -> Address:
    """A wildcard address for a subscription whose client may lack permission to read all that it matches."""
    address = state.addresses.get(name)
    if address is None:
        multicast = RoutingType.MULTICAST
        return _auto_create_address(state, name, multicast, access, and_queue=True, subscribing=subscribing)
    _admit_type(state, address, RoutingType.MULTICAST, access)
    return address


def _named(
    state: State,
    address_name: str,
    routing_type: RoutingType | None,
    access: Access,
    permission: Permission,
    subscribing: Permission | None,
    asked: RequestedAttributes,
) -> Queue | Address:
    """`queue_to_consume` for the name of an address or, where there is no such address, of a queue."""
    address = state.addresses.get(address_name)
    if address is None:
        named = state.queues.get(address_name)
        fits = named is not None and routing_type in (None, named.routing_type)
        # to a client that may not use it there is no such queue
        if named is not None and fits and access.allows(permission, named.address.name, named.name):
            return _agreeing(named, asked)
    access.require(permission, address_name)
    if address is None:
        address = _auto_create_address(
            state, address_name, routing_type, access, and_queue=True, subscribing=subscribing
        )
    elif routing_type is not None:
        _admit_type(state, address, routing_type, access)
    if routing_type is None:
        routing_type = (
            RoutingType.MULTICAST if address.routing_types == {RoutingType.MULTICAST} else RoutingType.ANYCAST
        )
    if routing_type is RoutingType.MULTICAST:
        return address
    queue = _anycast_queue(state, address, access, asked)
    access.require(permission, address.name, queue.name)
    return _agreeing(queue, asked)


def _anycast_queue(state: State, address: Address, access: Access, asked: RequestedAttributes) -> Queue:
    anycast = [queue for queue in state.bindings.queues(address) if queue.routing_type is RoutingType.ANYCAST]
    for queue in anycast:
        if queue.name == address.name:
            return queue
    if len(anycast) == 1:
        return anycast[0]
    if anycast:
        known = sorted(queue.name for queue in anycast if _knows(access, queue))
        listed = f" ({', '.join(known)})" if known else ""
        raise NotFound(f"address {address.name} has several queues{listed}: name one as {address.name}::QUEUE")
    return _auto_create_queue(state, address, address.name, RoutingType.ANYCAST, access, asked, consuming=True)


def _qualified(
    state: State,
    address_name: str,
    queue_name: str,
    routing_type: RoutingType | None,
    access: Access,
    asked: RequestedAttributes,
) -> Queue:
    queue = state.queues.get(queue_name)
    if queue is not None and queue.address.name == address_name:
        if routing_type not in (None, queue.routing_type):
            raise RoutingTypeMismatch(f"queue {queue_name} is {queue.routing_type.name}")
        return _agreeing(queue, asked)
    if queue is not None and _knows(access, queue):
        raise NotFound(f"queue {queue_name} is not on address {address_name}")
    access.require(Permission.CREATE_DURABLE_QUEUE, address_name, queue_name)
    state.registry.quotas.check(access.user)
    with state.registry.undoing():
        address = state.addresses.get(address_name)
        if address is None:
            address = _auto_create_address(state, address_name, routing_type, access)
        if routing_type is None:
            default = address.settings.default_queue_routing_type
            routing_type = default if default in address.routing_types else next(iter(address.routing_types))
        _admit_type(state, address, routing_type, access)
        return _auto_create_queue(state, address, queue_name, routing_type, access, asked)


def _knows(access: Access, queue: Queue) -> bool:
    """Whether a client may know of a queue on an address that it did not name."""
    return access.sees(queue.address.name, queue.name, durable=queue.durable)


def _agreeing(queue: Queue, asked: RequestedAttributes) -> Queue:
    """The queue, if it has the attributes asked for.  Raises AttributesDiffer."""
    wrong = differences(queue.attributes, asked) if asked else []
    if wrong:
        raise AttributesDiffer(f"queue {queue.name} exists, and its {' and its '.join(wrong)}")
    return queue


def _admit_type(state: State, address: Address, routing_type: RoutingType, access: Access) -> None:
    if routing_type in address.routing_types:
        return
    access.require(Permission.CREATE_ADDRESS, address.name)
    if not address.settings.auto_create_addresses:
        raise RoutingTypeMismatch(f"address {address.name} is not {routing_type.name} and auto-create-addresses is off")
    state.registry.add_routing_type(address, routing_type)


def _auto_create_address(
    state: State,
    name: str,
    routing_type: RoutingType | None,
    access: Access,
    *,
    and_queue: bool = False,
    subscribing: Permission | None = None,
) -> Address:
    """Create an address if allowed.  `and_queue`: an anycast address gets its queue next, a multicast one a
    subscription, which needs `subscribing`; the permissions for that are checked before anything is created.
    """
    settings = state.registry.settings(name)
    _check_address(state, name, settings, access)
    wanted = settings.default_address_routing_type if routing_type is None else routing_type
    if and_queue and wanted is RoutingType.ANYCAST:
        access.require(Permission.CREATE_DURABLE_QUEUE, name)
    elif subscribing is not None:
        access.require(subscribing, name)
    if subscribing is not None or (and_queue and wanted is RoutingType.ANYCAST):
        state.registry.quotas.check(access.user)
    check_room(state, essential=subscribing is not None or access is UNRESTRICTED)
    return state.registry.create_address(name, {wanted}, auto_created=True)


def _check_address(state: State, name: str, settings: AddressSettings, access: Access) -> None:
    access.require(Permission.CREATE_ADDRESS, name)
    names.check_not_temporary(name)
    if not settings.auto_create_addresses:
        raise NotFound(f"address {name} does not exist and auto-create-addresses is off")


def _auto_create_queue(
    state: State,
    address: Address,
    name: str,
    routing_type: RoutingType,
    access: Access,
    asked: RequestedAttributes,
    *,
    consuming: bool = False,
) -> Queue:
    access.require(Permission.CREATE_DURABLE_QUEUE, address.name, "" if name == address.name else name)
    names.check_not_temporary(address.name)
    if not address.settings.auto_create_queues:
        raise NoQueue(f"queue {name} does not exist on address {address.name} and auto-create-queues is off")
    state.registry.quotas.check(access.user)
    check_room(state, essential=consuming or access is UNRESTRICTED)
    taken = state.queues.get(name)
    if taken is not None and not _knows(access, taken):
        raise name_taken(name)
    attributes = state.registry.attributes(address, name, asked)
    return state.registry.create_queue(
        address, name, routing_type, durable=True, auto_created=True, attributes=attributes, creator=access.user
    )


def name_taken(name: str) -> AlreadyInUse:
    """The error for a client that may create a queue, but not know of the one that has its name, or where that is.

    It must learn that the name is taken, as names of queues are one namespace.
    """
    return AlreadyInUse(f"queue {name} cannot be created: its name is taken")


def make_temporary(
    state: State, routing_type: RoutingType, access: Access, use: Permission, *, private: bool
) -> Address:
    """Create an address for one client, with a name chosen by the broker, and its queue if anycast.

    Raises Denied, DiskFull.
    `use` is the permission that the client needs on it, `send` or `consume`; with `private` no other connection may
    consume from it.  The permissions are those of any address without an entry of its own: as a rule, of the match `#`.
    """
    name = names.TEMPORARY + state.fresh_name()
    needed = [use, Permission.CREATE_ADDRESS]
    if routing_type is RoutingType.ANYCAST or use is Permission.CONSUME:
        needed.append(Permission.CREATE_NON_DURABLE_QUEUE)
    for permission in needed:
        access.require(permission, name, named="of a temporary destination")
    if len(needed) > 2:
        state.registry.quotas.check(access.user)
    check_room(state, essential=True)
    address = state.registry.create_address(name, {routing_type}, auto_created=True)
    address.owner = access.user
    if private:
        address.private_to = access
    if routing_type is RoutingType.ANYCAST:
        state.registry.create_queue(address, name, routing_type, durable=False, creator=access.user)
    return address
