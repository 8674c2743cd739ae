"""The registry of addresses, queues and diverts: creates, restores and deletes them, and changes their settings.

A queue is bound to exactly one address.  A message sent to an address goes to the queues of that address and to those
of every wildcard address that matches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.errors import AlreadyInUse, NotFound, TooManyAddresses
from broker.engine.model.message import RoutingType
from broker.engine.model.settings_match import SettingsTable
from broker.engine.queues import arrival, clearing
from broker.engine.queues.address import Address, AttachedSender
from broker.engine.queues.diverts import Divert, divert_record
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.room import pageable
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork, gathered
from broker.engine.queues.types.kind import equip
from broker.engine.routing.definitions import Json, address_record, queue_record, read_address, read_queue
from store import record

#: What it costs to give an address its new settings, and to have one of its queues follow, in microseconds (`steps`).
SETTINGS_COST: Final = 4
REFRESH_COST: Final = 2

#: What it costs to delete a queue, and how many of an address are deleted at once.
DELETE_COST: Final = 50
DELETED_TOGETHER: Final = 64

#: The journal's room for an address or queue: its definition with a filter, and the record of its deletion.
DEFINITION_BYTES: Final = 1024


def check_room(state: State, *, essential: bool) -> None:
    """Make sure that the journal has room for an address or queue that somebody asks for.  Raises DiskFull.

    `essential`: it is asked for by a consumer, an operator or the broker itself.
    """
    arrival.reserve_bytes(state, DEFINITION_BYTES, essential=essential)


def create_address(
    state: State,
    name: str,
    routing_types: AbstractSet[RoutingType],
    *,
    auto_created: bool = False,
    configured: bool = False,
    internal: bool = False,
    needed: bool = False,
) -> Address:
    """Create an address that does not exist; a `needed` one even beyond the limit.

    Raises InvalidName, TooManyAddresses.
    """
    names.check_name(name)
    if not internal:
        names.check_public(name, state.syntax)
    if 0 <= state.limits.addresses_max <= len(state.addresses) and not (configured or internal or needed):
        raise TooManyAddresses(
            f"address {name} cannot be made: there are {len(state.addresses)} addresses, and limits.addresses-max"
            f" is {state.limits.addresses_max}"
        )
    address = Address(
        state.journal.allocate_ids(1),
        name,
        routing_types,
        state.settings(name),
        auto_created=auto_created,
        configured=configured,
        unbound_since=state.now,
    )
    _enter(state, address)
    state.journal.define(address.id, address_record(address))
    if state.made is not None:
        state.made.append(partial(_unmake_address, state, address))
    for watcher in state.watchers:
        watcher.address_made(address)
    return address


def ensure_address(state: State, name: str) -> Address:
    """The address of that name, created if missing, whatever the settings: for dead letters."""
    address = state.addresses.get(name)
    if address is None:
        default = state.settings(name).default_address_routing_type
        address = create_address(state, name, {default}, auto_created=True, needed=True)
    return address


def find_queue(state: State, name: str) -> Queue:
    """A queue by name or FQQN.  Raises NotFound."""
    address, _, qualified = name.rpartition("::")
    queue = state.queues.get(qualified)
    if queue is None or (address and queue.address.name != address):
        raise NotFound(f"queue {name} does not exist")
    return queue


def add_routing_type(state: State, address: Address, routing_type: RoutingType) -> None:
    """Add a routing type to those that an address's queues may have."""
    if state.made is not None:
        state.made.append(partial(_unmake_types, state, address, address.routing_types))
    address.add_routing_type(routing_type)
    state.journal.define(address.id, address_record(address))


def delete_address(state: State, address: Address) -> None:
    """Delete an address, which must have no queues.  No effect if it was deleted with its last queue."""
    if state.addresses.get(address.name) is not address:
        return
    del state.addresses[address.name]
    state.bindings.remove(address)
    if address.size_messages:
        state.room.departed[address.name] = address
    state.unused.pop(address, None)
    state.duplicates.forget(address)
    for watcher in state.watchers:
        watcher.address_gone(address)
    state.journal.undefine(address.id, record.address_deleted(address.id, {"name": address.name}))
    destination_lost(state, address)


def delete_with_queues(state: State, address: Address, then: Callable[[], None] = lambda: None) -> None:
    """Delete an address and its queues, with those that clients make meanwhile: many in steps.  Then call `then`."""
    work = _deletion(state, address, then)
    if len(state.bindings.queues(address)) > state.steps.at_most(DELETED_TOGETHER):
        state.steps.begin(("deleted address", address), gathered(work))
    else:
        for _ in work:
            pass


def _deletion(state: State, address: Address, then: Callable[[], None]) -> LongWork:
    try:
        yield from delete_in_steps(state, address)
    finally:
        then()


def delete_in_steps(state: State, address: Address, delete: Callable[[State, Queue], None] | None = None) -> LongWork:
    """Delete an address and its queues, each by `delete`; at the end all those that clients have made meanwhile."""
    delete = delete or delete_queue
    for queue in list(state.bindings.queues(address)):  # there may be 100,000
        cost = deletion_cost(queue)
        delete(state, queue)
        yield cost
    for queue in list(state.bindings.queues(address)):
        delete(state, queue)
    delete_address(state, address)


def _watch(state: State, address: Address) -> None:
    """Add an address without queues to those that auto-delete looks at."""
    if not address.configured and (address.auto_created or names.is_temporary(address.name)):
        address.swept = -1
        state.unused[address] = None


def _enter(state: State, address: Address) -> None:
    name = address.name
    address.wildcard = state.syntax.routes(name)
    state.addresses[name] = address
    state.bindings.add(address)
    state.room.take_over(address)
    state.passing.pop(name, None)
    _watch(state, address)
    address.sendable = not (state.syntax.routes(name) or state.is_internal(name) or name == names.RETAINED)


def create_queue(
    state: State,
    address: Address,
    name: str,
    routing_type: RoutingType,
    *,
    durable: bool,
    filter: Filter | None = None,
    no_local: str = "",
    auto_created: bool = False,
    temporary: bool = False,
    configured: bool = False,
    internal: bool = False,
    shared: bool = False,
    attributes: QueueAttributes | None = None,
    creator: str = "",
) -> Queue:
    """Create a queue on an address; its routing type is added to the address's.

    Without `attributes` it has those of the address's settings.  Raises InvalidName, or AlreadyInUse if a queue of
    that name exists.
    """
    names.check_queue_name(name)
    if not internal:
        names.check_public(name, state.syntax)
    if not shared:
        names.check_not_shared(name)
    found = state.queues.get(name)
    if found is not None:
        problem = f"queue {name} exists already, on address {found.address.name}"
        if found.routing_type is not routing_type:
            problem += f", and is {found.routing_type.name}: it cannot be {routing_type.name} too"
        raise AlreadyInUse(problem)
    if routing_type not in address.routing_types:
        add_routing_type(state, address, routing_type)
    queue = Queue(
        state.journal.allocate_ids(1),
        name,
        address,
        routing_type,
        durable=durable,
        filter=filter,
        no_local=no_local,
        auto_created=auto_created,
        temporary=temporary,
        configured=configured,
        unused_since=state.now,
        attributes=state.attributes(address, name) if attributes is None else attributes,
        creator=creator,
    )
    equip(queue)
    bind(state, queue)
    if durable:
        state.journal.define(queue.id, queue_record(queue))
    if state.made is not None:
        state.made.append(partial(_unmake_queue, state, queue))
    for watcher in state.watchers:
        watcher.queue_made(queue)
    return queue


def bind(state: State, queue: Queue) -> None:
    """Bind a queue to its address, so that messages reach it."""
    address = queue.address
    state.queues[queue.name] = queue
    state.queues_by_id[queue.id] = queue
    address.bound_once = True
    state.unused.pop(address, None)
    state.passing.clear()
    state.bindings.bind(queue)
    state.quotas.add(queue.creator)


def unbind(state: State, queue: Queue) -> None:
    """Unbind a queue from its address.  Its messages and consumers are left to the caller."""
    address = queue.address
    queue.deleted = True
    for watcher in state.watchers:
        watcher.queue_gone(queue)
    del state.queues[queue.name]
    del state.queues_by_id[queue.id]
    state.bindings.unbind(queue)
    if not state.bindings.queues(address):
        address.unbound_since = state.now
        _watch(state, address)
    if not pageable(queue):
        state.room.wake()  # it may have been the one that could not page
    state.quotas.remove(queue.creator)
    if queue.durable:
        state.journal.undefine(queue.id, record.queue_deleted(queue.id, {"name": queue.name}))


def delete_queue(state: State, queue: Queue) -> None:
    """Delete a queue: remove its messages by name (deleted) and close its consumers.  No effect if it is deleted.

    Many messages leave in steps, after their queue.

    A client that loses its consumer may disconnect, and that deletes its other queues: another one of those that are
    being deleted may be among them.  Raises AlreadyInUse if the queue is the broker's own.
    """
    if queue.deleted:
        return
    state.mark = NO_WAY_BACK
    settle_acknowledged(state)
    many = queue.message_count > state.steps.at_most(clearing.REMOVED_TOGETHER)
    consumers, messages = clearing.detach_all(state, queue)
    work = clearing.empty(state, queue, messages)
    if many:
        unbind(state, queue)
        state.steps.begin(("deleted", queue), work)
    else:
        for _ in work:
            pass
        unbind(state, queue)
    for consumer in consumers:
        state.notify_closed(consumer, f"queue {queue.name} was deleted")


def deletion_cost(queue: Queue) -> int:
    """What it costs, in microseconds, to delete a queue with those of its messages that leave at once (`steps`)."""
    return DELETE_COST + clearing.REMOVE_COST * min(queue.message_count, clearing.REMOVED_TOGETHER)


def delete_named_queue(state: State, queue: Queue) -> None:
    """Delete a queue by name, as an operator does: senders attached to its address are notified too."""
    delete_queue(state, queue)
    destination_lost(state, queue.address)


def restore_address(state: State, id: int, definition: Json) -> Address:
    """Restore an address from its definition in the journal."""
    address = read_address(id, definition, state.settings(str(definition["name"])))
    address.unbound_since = state.now
    _enter(state, address)
    return address


def restore_queue(state: State, id: int, definition: Json) -> Queue:
    """Restore a durable queue from its definition in the journal.  Raises InvalidFilter."""
    queue = read_queue(id, definition, state.addresses[str(definition["address"])])
    queue.unused_since = state.now
    equip(queue)
    bind(state, queue)
    return queue


@contextmanager
def undoing(state: State) -> Iterator[None]:
    """A context that deletes everything created in it if it ends with an exception."""
    outer, made = state.made, list[Callable[[], None]]()
    state.made = made
    try:
        yield
    except Exception:
        while made:
            made.pop()()
        raise
    finally:
        state.made = outer
        if outer is not None:
            outer += made


def undo(state: State, address: Address, made: list[Callable[[], None]]) -> None:
    """Delete what was created for a send to this address that came to nothing, unless somebody uses it by now."""
    if address in state.senders or address.configured or address.routed or address.unrouted:
        return
    if any([queue.used or queue.configured or queue.message_count for queue in state.bindings.queues(address)]):
        return
    while made:
        made.pop()()


def _unmake_address(state: State, address: Address) -> None:
    if not state.bindings.queues(address):
        delete_address(state, address)


def _unmake_queue(state: State, queue: Queue) -> None:
    if not (queue.deleted or queue.message_count or queue.consumers):
        unbind(state, queue)


def _unmake_types(state: State, address: Address, types: AbstractSet[RoutingType]) -> None:
    if state.addresses.get(address.name) is not address:
        return
    address.routing_types = types | {queue.routing_type for queue in state.bindings.queues(address)}
    state.journal.define(address.id, address_record(address))


def attach_sender(state: State, address: Address, sender: AttachedSender) -> None:
    """Notify a sender when the address, or a queue of it, is deleted by name; until detached it keeps the address."""
    state.senders.setdefault(address, {})[sender] = None
    address.bound_once = True  # it was used


def detach_sender(state: State, address: Address, sender: AttachedSender) -> None:
    """Detach a sender; no effect if it is not attached."""
    attached = state.senders.get(address)
    if attached is not None:
        attached.pop(sender, None)
        if not attached:
            del state.senders[address]


def destination_lost(state: State, address: Address) -> None:
    """Notify the senders of an address that it, or a queue of it, was deleted by name."""
    for sender in list(state.senders.get(address, ())):
        sender.destination_lost()


def keeps_dead(state: State, name: str) -> bool:
    """Whether some setting names this address as its dead-letter or expiry address."""
    return name in state.settings_table.values("dead_letter_address", "expiry_address")


def dead_letter_queues(state: State) -> list[Queue]:
    """The queues of all dead-letter and expiry addresses, by name."""
    names = state.settings_table.values("dead_letter_address", "expiry_address")
    addresses = [state.addresses[name] for name in names if isinstance(name, str) and name in state.addresses]
    return sorted(
        [queue for address in addresses for queue in state.bindings.queues(address)], key=lambda queue: queue.name
    )


def change_settings(state: State, settings: SettingsTable) -> LongWork:
    """Replace the settings: at once for what is created from now on, in steps for the addresses that exist.

    Each address gets all of its new settings in one step; its queues, of which it may have 100,000, may follow later.
    """
    state.use_settings(settings)
    state.passing.clear()
    for address in (*state.addresses.values(), *state.room.departed.values()):
        address.settings = state.merged_settings(address.name)
        address.warned = frozenset()
        address.extras_version = -1
        state.duplicates.limit(address)
        yield SETTINGS_COST
        for queue in list(state.bindings.queues(address)):
            queue.refresh()
            yield REFRESH_COST
    state.passing.clear()
    state.room.wake()


# -- diverts -----------------------------------------------------------------------------------------------------------


def add_divert(state: State, divert: Divert) -> None:
    """Add a new divert, which applies from the next send on.  Raises AlreadyInUse, InvalidName."""
    state.diverts.add(divert)
    journal = state.journal
    divert.id = journal.allocate_ids(1)
    journal.define(divert.id, divert_record(divert))
    state.passing.clear()


def remove_divert(state: State, name: str) -> None:
    """Remove a divert: messages take their usual way again.  Raises NotFound."""
    divert = state.diverts.get(name)
    state.diverts.remove(divert)
    state.journal.undefine(divert.id, record.divert_deleted(divert.id, {"name": divert.name}))
    state.passing.clear()
