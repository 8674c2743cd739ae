"""The registry of addresses, queues and diverts: creates, restores and deletes them, and says what settings they have.

A queue is bound to exactly one address.  A message sent to an address goes to the queues of that address and to those
of every wildcard address that matches it.  A queue is deleted with its messages and consumers by `routing.deletion`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Final

from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.attributes import NO_ATTRIBUTES, QueueAttributes, RequestedAttributes, with_requested
from broker.engine.model.errors import AlreadyInUse, NotFound, TooManyAddresses
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from broker.engine.model.notes import NOTIFICATIONS
from broker.engine.model.settings import AddressSettings, from_mapping
from broker.engine.model.settings_match import CACHE_RESULTS_MAX, Fields, SettingsTable
from broker.engine.queues.address import Address, AttachedSender
from broker.engine.queues.bindings import Bindings
from broker.engine.queues.definitions import Json, address_record, queue_record, read_address, read_queue
from broker.engine.queues.divert_table import Diverts
from broker.engine.queues.diverts import Divert, divert_record
from broker.engine.queues.duplicates import Duplicates
from broker.engine.queues.queue import Queue
from broker.engine.queues.queue_quotas import QueueQuotas
from broker.engine.queues.room import Room, pageable
from broker.engine.queues.steps import LongWork
from broker.engine.queues.watcher import Watcher
from store import record
from store.journal import Journal

#: What it costs to give an address its new settings, and to have one of its queues follow, in microseconds (`steps`).
SETTINGS_COST: Final = 4
REFRESH_COST: Final = 2

#: The settings of the broker's internal addresses.
INTERNAL: Final = AddressSettings()


class Registry:
    """The addresses, queues and diverts of one engine.  `now` returns the time of the tick."""

    __slots__ = (
        "_bindings",
        "_diverts",
        "_duplicates",
        "_internal",
        "_journal",
        "_limits",
        "_merged",
        "_now",
        "_room",
        "_syntax",
        "addresses",
        "made",
        "passing",
        "queues",
        "queues_by_id",
        "quotas",
        "senders",
        "settings_table",
        "transmission",
        "unused",
        "watchers",
    )

    def __init__(
        self,
        settings: SettingsTable,
        limits: Limits,
        journal: Journal,
        bindings: Bindings,
        diverts: Diverts,
        duplicates: Duplicates,
        room: Room,
        *,
        addresses: dict[str, Address],
        queues: dict[str, Queue],
        now: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._journal = journal
        self._bindings = bindings
        self._diverts = diverts
        self._duplicates = duplicates
        self._room = room
        self._now = now
        self._syntax = settings.syntax
        self._internal = names.internal_prefix(settings.syntax)
        self._merged: dict[int, tuple[Fields, AddressSettings]] = {}  # by the identity of the fields
        self.settings_table = settings
        self.addresses = addresses
        self.queues = queues
        self.queues_by_id: dict[int, Queue] = {}
        self.quotas = QueueQuotas()
        self.watchers: list[Watcher] = []
        #: The senders attached to each address, to be notified when it is deleted.
        self.senders: dict[Address, dict[AttachedSender, None]] = {}
        #: Automatically created addresses without queues of their own: the only ones that the reaper looks at.
        self.unused: dict[Address, None] = {}
        #: Addresses recently sent to but not created, because no queue would get the messages.
        self.passing: dict[str, Address] = {}
        #: Names of queues whose messages wait to be sent to another broker, and still belong to their original address.
        self.transmission: AbstractSet[str] = frozenset()
        #: Calls that undo what was created within `undoing`.
        self.made: list[Callable[[], None]] | None = None
        self._hide()

    # -- addresses -------------------------------------------------------------------------------------------------

    def create_address(
        self,
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
            names.check_public(name, self._syntax)
        if 0 <= self._limits.addresses_max <= len(self.addresses) and not (configured or internal or needed):
            raise TooManyAddresses(
                f"address {name} cannot be made: there are {len(self.addresses)} addresses, and limits.addresses-max"
                f" is {self._limits.addresses_max}"
            )
        address = Address(
            self._journal.allocate_ids(1),
            name,
            routing_types,
            self.settings(name),
            auto_created=auto_created,
            configured=configured,
            unbound_since=self._now(),
        )
        self._enter(address)
        self._journal.define(address.id, address_record(address))
        if self.made is not None:
            self.made.append(partial(self._unmake_address, address))
        for watcher in self.watchers:
            watcher.address_made(address)
        return address

    def ensure_address(self, name: str) -> Address:
        """The address of that name, created if missing, whatever the settings: for dead letters."""
        address = self.addresses.get(name)
        if address is None:
            default = self.settings(name).default_address_routing_type
            address = self.create_address(name, {default}, auto_created=True, needed=True)
        return address

    def add_routing_type(self, address: Address, routing_type: RoutingType) -> None:
        """Add a routing type to those that an address's queues may have."""
        if self.made is not None:
            self.made.append(partial(self._unmake_types, address, address.routing_types))
        address.add_routing_type(routing_type)
        self._journal.define(address.id, address_record(address))

    def delete_address(self, address: Address) -> None:
        """Delete an address, which must have no queues.  No effect if it was deleted with its last queue."""
        if self.addresses.get(address.name) is not address:
            return
        del self.addresses[address.name]
        self._bindings.remove(address)
        if address.size_messages:
            self._room.departed[address.name] = address
        self.unused.pop(address, None)
        self._duplicates.forget(address)
        for watcher in self.watchers:
            watcher.address_gone(address)
        self._journal.undefine(address.id, record.address_deleted(address.id, {"name": address.name}))
        self.destination_lost(address)

    def _enter(self, address: Address) -> None:
        name = address.name
        address.wildcard = self._syntax.routes(name)
        self.addresses[name] = address
        self._bindings.add(address)
        self._room.take_over(address)
        self.passing.pop(name, None)
        self._watch(address)
        address.sendable = not (self._syntax.routes(name) or self.is_internal(name) or name == names.RETAINED)

    def _watch(self, address: Address) -> None:
        """Add an address without queues to those that auto-delete looks at."""
        if not address.configured and (address.auto_created or names.is_temporary(address.name)):
            address.swept = -1
            self.unused[address] = None

    def restore_address(self, id: int, definition: Json) -> Address:
        """Restore an address from its definition in the journal."""
        address = read_address(id, definition, self.settings(str(definition["name"])))
        address.unbound_since = self._now()
        self._enter(address)
        return address

    # -- queues ----------------------------------------------------------------------------------------------------

    def create_queue(
        self,
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
            names.check_public(name, self._syntax)
        if not shared:
            names.check_not_shared(name)
        found = self.queues.get(name)
        if found is not None:
            problem = f"queue {name} exists already, on address {found.address.name}"
            if found.routing_type is not routing_type:
                problem += f", and is {found.routing_type.name}: it cannot be {routing_type.name} too"
            raise AlreadyInUse(problem)
        if routing_type not in address.routing_types:
            self.add_routing_type(address, routing_type)
        queue = Queue(
            self._journal.allocate_ids(1),
            name,
            address,
            routing_type,
            durable=durable,
            filter=filter,
            no_local=no_local,
            auto_created=auto_created,
            temporary=temporary,
            configured=configured,
            unused_since=self._now(),
            attributes=self.attributes(address, name) if attributes is None else attributes,
            creator=creator,
        )
        self.bind(queue)
        if durable:
            self._journal.define(queue.id, queue_record(queue))
        if self.made is not None:
            self.made.append(partial(self._unmake_queue, queue))
        for watcher in self.watchers:
            watcher.queue_made(queue)
        return queue

    def find_queue(self, name: str) -> Queue:
        """A queue by name or FQQN.  Raises NotFound."""
        address, _, qualified = name.rpartition("::")
        queue = self.queues.get(qualified)
        if queue is None or (address and queue.address.name != address):
            raise NotFound(f"queue {name} does not exist")
        return queue

    def bind(self, queue: Queue) -> None:
        """Bind a queue to its address, so that messages reach it."""
        address = queue.address
        self.queues[queue.name] = queue
        assert queue.id not in self.queues_by_id, "the id of a queue is its identity"
        self.queues_by_id[queue.id] = queue
        address.bound_once = True
        self.unused.pop(address, None)
        self.passing.clear()
        self._bindings.bind(queue)
        self.quotas.add(queue.creator)

    def unbind(self, queue: Queue) -> None:
        """Unbind a queue from its address.  Its messages and consumers are left to the caller."""
        address = queue.address
        queue.deleted = True
        for watcher in self.watchers:
            watcher.queue_gone(queue)
        del self.queues[queue.name]
        del self.queues_by_id[queue.id]
        self._bindings.unbind(queue)
        if not self._bindings.queues(address):
            address.unbound_since = self._now()
            self._watch(address)
        if not pageable(queue):
            self._room.wake()  # it may have been the one that could not page
        self.quotas.remove(queue.creator)
        if queue.durable:
            self._journal.undefine(queue.id, record.queue_deleted(queue.id, {"name": queue.name}))

    def restore_queue(self, id: int, definition: Json) -> Queue:
        """Restore a durable queue from its definition in the journal.  Raises InvalidFilter."""
        queue = read_queue(id, definition, self.addresses[str(definition["address"])])
        queue.unused_since = self._now()
        self.bind(queue)
        return queue

    def dead_letter_queues(self) -> list[Queue]:
        """The queues of all dead-letter and expiry addresses, by name."""
        names = self.settings_table.values("dead_letter_address", "expiry_address")
        addresses = [self.addresses[name] for name in names if isinstance(name, str) and name in self.addresses]
        return sorted(
            [queue for address in addresses for queue in self._bindings.queues(address)], key=lambda queue: queue.name
        )

    def keeps_dead(self, name: str) -> bool:
        """Whether some setting names this address as its dead-letter or expiry address."""
        return name in self.settings_table.values("dead_letter_address", "expiry_address")

    # -- settings --------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> AddressSettings:
        """The settings that an address has, or would have if it existed."""
        address = self.addresses.get(name)
        return self.merged_settings(name) if address is None else address.settings

    def merged_settings(self, name: str) -> AddressSettings:
        """The settings in force for a name; the broker's internal addresses have the defaults, and no limits.

        While they are being replaced, an address may still have those from before (`change_settings`).
        """
        if self.is_internal(name):
            return INTERNAL
        fields = self.settings_table.resolve(name)
        known = self._merged.get(id(fields))
        if known is None:
            if len(self._merged) >= CACHE_RESULTS_MAX:
                self._merged.clear()
            known = self._merged[id(fields)] = (fields, from_mapping(fields))
        return known[1]

    def use_settings(self, settings: SettingsTable) -> None:
        """Replace the settings, but for those of addresses that exist."""
        self.settings_table = settings
        self._merged.clear()
        self._hide()

    def _hide(self) -> None:
        """Hide from patterns that begin with a wildcard what is about other addresses and other clients."""
        self._bindings.hide({NOTIFICATIONS, *self.settings_table.values("dead_letter_address", "expiry_address")})

    def is_internal(self, name: str) -> bool:
        """Whether an address belongs to the resources of a retroactive address."""
        return name.startswith(self._internal)

    def attributes(self, address: Address, name: str, asked: RequestedAttributes = NO_ATTRIBUTES) -> QueueAttributes:
        """The attributes of a new queue on an address: those asked for, the rest from the address's settings."""
        settings = address.settings
        if self.settings_table.qualified:
            settings = self.settings(f"{address.name}{names.FQQN_SEPARATOR}{name}")
        return with_requested(settings.queue_attributes, asked)

    def change_settings(self, settings: SettingsTable) -> LongWork:
        """Replace the settings: at once for what is created from now on, in steps for the addresses that exist.

        Each address gets all of its new settings in one step; its queues, perhaps 100,000, may follow later.
        """
        self.use_settings(settings)
        self.passing.clear()
        for address in (*self.addresses.values(), *self._room.departed.values()):
            address.settings = self.merged_settings(address.name)
            address.warned = frozenset()
            address.extras_version = -1
            self._duplicates.limit(address)
            yield SETTINGS_COST
            for queue in list(self._bindings.queues(address)):
                queue.refresh()
                yield REFRESH_COST
        self.passing.clear()
        self._room.wake()

    # -- what is undone --------------------------------------------------------------------------------------------

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """A context that deletes everything created in it if it ends with an exception."""
        outer, made = self.made, list[Callable[[], None]]()
        self.made = made
        try:
            yield
        except Exception:
            while made:
                made.pop()()
            raise
        finally:
            self.made = outer
            if outer is not None:
                outer += made

    def undo(self, address: Address, made: list[Callable[[], None]]) -> None:
        """Delete what was created for a send to this address that came to nothing, unless somebody uses it by now."""
        if address in self.senders or address.configured or address.routed or address.unrouted:
            return
        if any([queue.used or queue.configured or queue.message_count for queue in self._bindings.queues(address)]):
            return
        while made:
            made.pop()()

    def _unmake_address(self, address: Address) -> None:
        if not self._bindings.queues(address):
            self.delete_address(address)

    def _unmake_queue(self, queue: Queue) -> None:
        if not (queue.deleted or queue.message_count or queue.consumers):
            self.unbind(queue)

    def _unmake_types(self, address: Address, types: AbstractSet[RoutingType]) -> None:
        if self.addresses.get(address.name) is not address:
            return
        address.routing_types = types | {queue.routing_type for queue in self._bindings.queues(address)}
        self._journal.define(address.id, address_record(address))

    # -- attached senders ------------------------------------------------------------------------------------------

    def attach_sender(self, address: Address, sender: AttachedSender) -> None:
        """Notify a sender when the address, or a queue of it, is deleted by name; attached, it keeps the address."""
        self.senders.setdefault(address, {})[sender] = None
        address.bound_once = True  # it was used

    def detach_sender(self, address: Address, sender: AttachedSender) -> None:
        """Detach a sender; no effect if it is not attached."""
        attached = self.senders.get(address)
        if attached is not None:
            attached.pop(sender, None)
            if not attached:
                del self.senders[address]

    def destination_lost(self, address: Address) -> None:
        """Notify the senders of an address that it, or a queue of it, was deleted by name."""
        for sender in list(self.senders.get(address, ())):
            sender.destination_lost()

    # -- diverts ---------------------------------------------------------------------------------------------------

    def add_divert(self, divert: Divert) -> None:
        """Add a new divert, which applies from the next send on.  Raises AlreadyInUse, InvalidName."""
        self._diverts.add(divert)
        journal = self._journal
        divert.id = journal.allocate_ids(1)
        journal.define(divert.id, divert_record(divert))
        self.passing.clear()

    def remove_divert(self, name: str) -> None:
        """Remove a divert: messages take their usual way again.  Raises NotFound."""
        divert = self._diverts.get(name)
        self._diverts.remove(divert)
        self._journal.undefine(divert.id, record.divert_deleted(divert.id, {"name": divert.name}))
        self.passing.clear()
