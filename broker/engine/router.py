"""Addresses and queues: finding them, making them when they may be made, and taking them away.

A queue hangs on exactly one address.  A message sent to an address goes to the queues of that address and to those of
every wildcard address that matches it; the list is worked out once per address and kept until a binding changes.
"""

from __future__ import annotations

from uuid import UUID

from broker.engine import names
from broker.engine.address import Address
from broker.engine.core import Core
from broker.engine.definitions import AddressDefinition, QueueDefinition, address_record, queue_record
from broker.engine.errors import AlreadyInUse, InvalidName, NotFound, RoutingTypeMismatch
from broker.engine.filter import Filter, compile_filter
from broker.engine.message import ORIG_ADDRESS, RoutingType
from broker.engine.queue import Counters, Queue
from broker.engine.removal import unblock
from broker.engine.settings import AddressSettings, from_mapping
from broker.engine.settings_match import SettingsTable
from broker.engine.topics import Topics
from store import record

Targets = tuple[list[Queue], list[Queue]]


class Router:
    """All addresses and queues of the broker."""

    def __init__(self, core: Core, settings: SettingsTable) -> None:
        self.core = core
        self.addresses = core.addresses
        self.queues: dict[str, Queue] = {}
        self.queues_by_id: dict[int, Queue] = {}
        self._settings = settings
        self._wildcards: Topics[Queue] = Topics()
        self._version = 0
        # What queues and addresses counted that are gone: totals never go back.
        self.retired = Counters()
        self.retired_routed = 0
        self.retired_unrouted = 0
        self.retired_dropped = 0

    # -- settings --------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> AddressSettings:
        """The merged settings of an address."""
        return from_mapping(self._settings.resolve(name))

    def change_settings(self, settings: SettingsTable) -> None:
        """New settings, effective at once on every address."""
        self._settings = settings
        for address in self.addresses.values():
            address.settings = self.settings(address.name)
            address.warned.clear()
        unblock(self.core)

    # -- routing ---------------------------------------------------------------------------------------------------

    def targets(self, address: Address) -> Targets:
        """The anycast and the multicast queues that messages sent to an address may enter."""
        if address.targets_version != self._version:
            queues = list(address.queues)
            queues += [queue for queue in self._wildcards.match(address.name) if queue.address is not address]
            address.targets = (
                [queue for queue in queues if queue.routing_type is RoutingType.ANYCAST],
                [queue for queue in queues if queue.routing_type is RoutingType.MULTICAST],
            )
            address.targets_version = self._version
        return address.targets

    def reaches(self, name: str, queue: Queue) -> bool:
        """Whether messages sent to an address of that name may enter the queue."""
        return queue.address.name == name or queue in self._wildcards.match(name)

    def candidates(self, address: Address, queue: Queue | None, routing_type: RoutingType | None) -> Targets:
        """The queues that a send may enter: one if it named one, of one kind if it asked for one, else all."""
        if queue is not None:
            if queue.deleted:
                return [], []
            anycast = queue.routing_type is RoutingType.ANYCAST
            return ([queue], []) if anycast else ([], [queue])
        targets = self.targets(address)
        if routing_type is None:
            return targets
        return (targets[0], []) if routing_type is RoutingType.ANYCAST else ([], targets[1])

    def destination(self, name: str, routing_type: RoutingType | None) -> tuple[Address, Queue | None]:
        """Where a send goes: the address, and the queue if the name is an FQQN.  Makes what may be made.

        Raises NotFound, InvalidName, RoutingTypeMismatch.
        """
        address_name, queue_name = names.split_fqqn(name)
        names.check_sendable(address_name)
        if queue_name is not None:
            queue = self._qualified(address_name, queue_name, routing_type)
            return queue.address, queue
        address = self.addresses.get(address_name)
        if address is None:
            address = self._auto_create_address(address_name, routing_type)
        elif routing_type is not None:
            self._admit_type(address, routing_type)
        wanted = routing_type
        if wanted is None and len(address.routing_types) == 1:
            wanted = next(iter(address.routing_types))
        if wanted is RoutingType.ANYCAST and not any(q.routing_type is wanted for q in address.queues):
            self._auto_create_queue(address, address_name, RoutingType.ANYCAST)
        return address, None

    def queue_to_consume(self, name: str, routing_type: RoutingType | None) -> Queue | Address:
        """What a subscription to `name` consumes: a queue, or an address on which it gets a queue of its own.

        A requested routing type decides; without one, an address that is only multicast gives subscriptions, any
        other its queue.  Raises NotFound, InvalidName, RoutingTypeMismatch.
        """
        address_name, queue_name = names.split_fqqn(name)
        names.check_name(address_name)
        if queue_name is not None:
            return self._qualified(address_name, queue_name, routing_type)
        address = self.addresses.get(address_name)
        if address is None:
            named = self.queues.get(address_name)
            if named is not None and routing_type in (None, named.routing_type):
                return named
            address = self._auto_create_address(address_name, routing_type)
        elif routing_type is not None:
            self._admit_type(address, routing_type)
        if routing_type is None:
            routing_type = (
                RoutingType.MULTICAST if address.routing_types == {RoutingType.MULTICAST} else RoutingType.ANYCAST
            )
        if routing_type is RoutingType.MULTICAST:
            return address
        return self._anycast_queue(address)

    def _anycast_queue(self, address: Address) -> Queue:
        anycast = [queue for queue in address.queues if queue.routing_type is RoutingType.ANYCAST]
        for queue in anycast:
            if queue.name == address.name:
                return queue
        if len(anycast) == 1:
            return anycast[0]
        if anycast:
            listed = ", ".join(sorted(queue.name for queue in anycast))
            raise NotFound(f"address {address.name} has several queues ({listed}): name one as {address.name}::QUEUE")
        return self._auto_create_queue(address, address.name, RoutingType.ANYCAST)

    def _qualified(self, address_name: str, queue_name: str, routing_type: RoutingType | None) -> Queue:
        queue = self.queues.get(queue_name)
        if queue is not None:
            if queue.address.name != address_name:
                raise NotFound(f"queue {queue_name} is on address {queue.address.name}, not on {address_name}")
            if routing_type not in (None, queue.routing_type):
                raise RoutingTypeMismatch(f"queue {queue_name} is {queue.routing_type.name}")
            return queue
        address = self.addresses.get(address_name)
        if address is None:
            address = self._auto_create_address(address_name, routing_type)
        wanted = routing_type
        if wanted is None:
            default = address.settings.default_queue_routing_type
            wanted = default if default in address.routing_types else next(iter(address.routing_types))
        self._admit_type(address, wanted)
        return self._auto_create_queue(address, queue_name, wanted)

    def _admit_type(self, address: Address, routing_type: RoutingType) -> None:
        if routing_type in address.routing_types:
            return
        if not address.settings.auto_create_addresses:
            raise RoutingTypeMismatch(
                f"address {address.name} is not {routing_type.name} and auto-create-addresses is off"
            )
        self.add_routing_type(address, routing_type)

    def _auto_create_address(self, name: str, routing_type: RoutingType | None) -> Address:
        settings = self.settings(name)
        if not settings.auto_create_addresses:
            raise NotFound(f"address {name} does not exist and auto-create-addresses is off")
        wanted = settings.default_address_routing_type if routing_type is None else routing_type
        return self.create_address(name, {wanted}, auto_created=True)

    def _auto_create_queue(self, address: Address, name: str, routing_type: RoutingType) -> Queue:
        if not address.settings.auto_create_queues:
            raise NotFound(f"queue {name} does not exist on address {address.name} and auto-create-queues is off")
        return self.create_queue(address, name, routing_type, durable=True, auto_created=True)

    # -- addresses -------------------------------------------------------------------------------------------------

    def create_address(
        self, name: str, routing_types: set[RoutingType], *, auto_created: bool = False, configured: bool = False
    ) -> Address:
        """Make an address that does not exist.  Raises InvalidName."""
        names.check_name(name)
        core = self.core
        address = Address(
            core.journal.allocate_ids(1),
            name,
            routing_types,
            self.settings(name),
            auto_created=auto_created,
            configured=configured,
            created=core.now,
        )
        self.addresses[name] = address
        core.journal.define(address.id, address_record(address))
        return address

    def ensure_address(self, name: str) -> Address:
        """The address of that name, made if it is missing whatever the settings say: for dead letters."""
        address = self.addresses.get(name)
        if address is None:
            default = self.settings(name).default_address_routing_type
            address = self.create_address(name, {default}, auto_created=True)
        return address

    def add_routing_type(self, address: Address, routing_type: RoutingType) -> None:
        """Let an address have queues of another routing type too."""
        address.routing_types.add(routing_type)
        self.core.journal.define(address.id, address_record(address))

    def delete_address(self, address: Address) -> None:
        """Take an address away.  It must have no queues."""
        assert not address.queues, "an address with queues cannot be deleted"
        del self.addresses[address.name]
        self.retired_routed += address.routed
        self.retired_unrouted += address.unrouted
        self.retired_dropped += address.dropped
        self.core.journal.undefine(address.id, record.address_deleted(address.id, {"name": address.name}))

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
    ) -> Queue:
        """Make a queue on an address; its routing type is added to the address's.

        Raises InvalidName, or AlreadyInUse when a queue of that name exists.
        """
        names.check_queue_name(name)
        if name in self.queues:
            raise AlreadyInUse(f"queue {name} exists already, on address {self.queues[name].address.name}")
        if routing_type not in address.routing_types:
            self.add_routing_type(address, routing_type)
        queue = Queue(
            self.core.journal.allocate_ids(1),
            name,
            address,
            routing_type,
            durable=durable,
            filter=filter,
            no_local=no_local,
            auto_created=auto_created,
            temporary=temporary,
            configured=configured,
            created=self.core.now,
        )
        self.bind(queue)
        if durable:
            self.core.journal.define(queue.id, queue_record(queue))
        return queue

    def bind(self, queue: Queue) -> None:
        """Hang a queue on its address, so that messages reach it."""
        address = queue.address
        self.queues[queue.name] = queue
        self.queues_by_id[queue.id] = queue
        address.queues.append(queue)
        address.bound_once = True
        address.swept = False
        if names.is_wildcard(address.name):
            self._wildcards.add(address.name, queue)
            self._version += 1
        else:
            address.targets_version = -1

    def unbind(self, queue: Queue) -> None:
        """Take a queue off its address.  Its messages and consumers are the caller's."""
        address = queue.address
        queue.deleted = True
        self.retired.add(queue.counters)
        del self.queues[queue.name]
        del self.queues_by_id[queue.id]
        address.queues.remove(queue)
        if not address.queues:
            address.unbound_since = self.core.now
        if names.is_wildcard(address.name):
            self._wildcards.remove(address.name, queue)
            self._version += 1
        else:
            address.targets_version = -1
        if queue.durable:
            self.core.journal.undefine(queue.id, record.queue_deleted(queue.id, {"name": queue.name}))

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore_address(self, definition: AddressDefinition) -> Address:
        """An address as the journal knows it."""
        address = Address(
            definition.id,
            definition.name,
            set(definition.routing_types),
            self.settings(definition.name),
            auto_created=definition.auto_created,
            created=self.core.now,
        )
        self.addresses[definition.name] = address
        return address

    def restore_queue(self, definition: QueueDefinition, filter: Filter | None) -> Queue:
        """A durable queue as the journal knows it."""
        queue = Queue(
            definition.id,
            definition.name,
            self.addresses[definition.address],
            definition.routing_type,
            filter=filter,
            no_local=definition.no_local,
            auto_created=definition.auto_created,
            created=self.core.now,
        )
        self.bind(queue)
        return queue

    def ensure_letter_queue(self, target: Address, source: str, *, expiry: bool) -> None:
        """The queue on a dead-letter or expiry address that keeps what comes from `source`."""
        settings = self.settings(source)
        prefix = settings.expiry_queue_prefix if expiry else settings.dead_letter_queue_prefix
        suffix = settings.expiry_queue_suffix if expiry else settings.dead_letter_queue_suffix
        name = f"{prefix}{source}{suffix}"
        if name in self.queues:
            return
        literal = source.replace("'", "''")
        filter = compile_filter(f"{ORIG_ADDRESS} = '{literal}'")
        routing_type = target.settings.default_queue_routing_type
        try:
            self.create_queue(target, name, routing_type, durable=True, filter=filter, auto_created=True)
        except InvalidName as invalid:
            self.core.report("move.queue_refused", queue=name, error=str(invalid))

    def fresh_name(self) -> str:
        """A name for a queue that belongs to one subscription."""
        return str(UUID(int=self.core.random.getrandbits(128), version=4))
