"""Addresses and queues: finding them, making them when they may be made, and taking them away.

A queue hangs on exactly one address.  A message sent to an address goes to the queues of that address and to those of
every wildcard address that matches it; the list is worked out once per address and kept until a binding changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Final
from uuid import UUID

from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.access import UNRESTRICTED, Access
from broker.engine.model.attributes import NOTHING_ASKED, Asked, QueueAttributes, with_asked
from broker.engine.model.errors import AlreadyInUse, NoQueue, NotFound, RoutingTypeMismatch, TooManyAddresses
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.model.settings import AddressSettings, from_mapping
from broker.engine.model.settings_match import CACHE_RESULTS_MAX, Fields, SettingsTable
from broker.engine.queues.address import Address, AttachedSender, Targets
from broker.engine.queues.address_extras import extras_of
from broker.engine.queues.core import Core
from broker.engine.queues.diverts import Diverts
from broker.engine.queues.queue import Counters, Queue
from broker.engine.queues.queue_quotas import QueueQuotas
from broker.engine.queues.removal import unblock
from broker.engine.queues.types.factory import agreeing, equip
from broker.engine.queues.watcher import Watcher
from broker.engine.routing.bindings import Bindings
from broker.engine.routing.definitions import AddressDefinition, QueueDefinition, address_record, queue_record
from store import record

#: The settings of what the broker has for itself.
INTERNAL: Final = AddressSettings()

#: Addresses that are not made, as nothing is bound to them, which are remembered: some hundred bytes each.
PASSING_MAX: Final = 1024


class Router:
    """All addresses and queues of the broker."""

    def __init__(self, core: Core, settings: SettingsTable) -> None:
        self.core = core
        self.addresses = core.addresses
        self.queues: dict[str, Queue] = {}
        self.queues_by_id: dict[int, Queue] = {}
        self.syntax = settings.syntax
        self.diverts = Diverts(self.syntax)
        self.watchers: list[Watcher] = []
        self.senders: dict[Address, dict[AttachedSender, None]] = {}  # of those that want to be told of its end
        self._merged: dict[int, tuple[Fields, AddressSettings]] = {}  # by the identity of what was merged
        self._internal = names.internal_prefix(self.syntax)
        self._settings = settings
        self.bindings = Bindings(self.syntax)
        self.quotas = QueueQuotas()
        # What queues and addresses counted that are gone: totals never go back.
        self.retired = Counters()
        self.retired_routed = 0
        #: How many addresses there may be; -1: any number.
        self.addresses_max = -1
        #: Addresses without queues of their own that were made automatically: the reaper looks at no others.
        self.unused: dict[Address, None] = {}
        # What was sent to lately and is no address of the broker's, as no queue would get it.
        self._passing: dict[str, Address] = {}
        self._made: list[Callable[[], None]] | None = None

    # -- settings --------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> AddressSettings:
        """The merged settings of an address; what the broker has for itself has the defaults, and no limits."""
        if self.is_internal(name):
            return INTERNAL
        fields = self._settings.resolve(name)
        known = self._merged.get(id(fields))
        if known is None:
            if len(self._merged) >= CACHE_RESULTS_MAX:
                self._merged.clear()
            known = self._merged[id(fields)] = (fields, from_mapping(fields))
        return known[1]

    def keeps_dead(self, name: str) -> bool:
        """Whether some setting says that dead or expired messages go to the address of that name."""
        own = self.settings(name)
        return name in (own.dead_letter_address, own.expiry_address) or any(
            name in (fields.get("dead_letter_address"), fields.get("expiry_address"))
            for _, fields in self._settings.in_order()
        )

    def is_internal(self, name: str) -> bool:
        """Whether an address belongs to the resources of a retroactive address."""
        return name.startswith(self._internal)

    def change_settings(self, settings: SettingsTable) -> None:
        """New settings, effective at once on every address."""
        self._settings = settings
        self._merged.clear()
        for address in self.addresses.values():
            address.settings = self.settings(address.name)
            address.warned = frozenset()
            self.core.duplicates.limit(address)
            for queue in address.queues:
                queue.refresh()
        self.refresh()
        unblock(self.core)

    def refresh(self) -> None:
        """Settings or diverts have changed: look anew at what else each address does with messages."""
        self._passing.clear()
        for address in self.addresses.values():
            address.extras = extras_of(address.name, address.settings, self.diverts)

    # -- routing ---------------------------------------------------------------------------------------------------

    def candidates(self, address: Address, queue: Queue | None, routing_type: RoutingType | None) -> Targets:
        """The queues that a send may enter: one if it named one, of one kind if it asked for one, else all."""
        if queue is not None:
            if queue.deleted:
                return [], []
            anycast = queue.routing_type is RoutingType.ANYCAST
            return ([queue], []) if anycast else ([], [queue])
        targets = self.bindings.targets(address)
        if routing_type is None:
            return targets
        return (targets[0], []) if routing_type is RoutingType.ANYCAST else ([], targets[1])

    def destination(
        self,
        name: str,
        routing_type: RoutingType | None,
        *,
        access: Access = UNRESTRICTED,
        asked: Asked = NOTHING_ASKED,
        attached: bool = False,
    ) -> tuple[Address, Queue | None]:
        """Where a send goes: the address, and the queue if the name is an FQQN.  Makes what may be made.

        An address that reaches nobody is not made, unless a sender stays `attached` to it.
        For a temporary destination that is gone no queue is made: it would keep the replies to one who has left.
        Of a queue that is there and given by its full name `routing_type` says nothing.  `asked` are attributes that
        its anycast queue shall have.  Raises Denied, NotFound, InvalidName, RoutingTypeMismatch, AttributesDiffer.
        """
        address, address_name = self.addresses.get(name), name
        if address is None or not address.sendable:
            address_name, queue_name = names.split_fqqn(name)
            names.check_sendable(address_name, self.syntax)
            if queue_name is not None:
                access.require(Permission.SEND, address_name, queue_name)
                if queue_name in self.queues:
                    routing_type = None  # as in `queue_to_consume`
                queue = self._qualified(address_name, queue_name, routing_type, access, asked)
                return queue.address, queue
        access.require(Permission.SEND, address_name)
        if (address is None or not address.owned) and names.is_temporary(address_name):
            return address or self._pass(address_name), None
        if address is None:
            passing = None if attached else self._passing_to(address_name, routing_type, access)
            if passing is not None:
                return passing, None
            with self.undoing():
                address = self._auto_create_address(address_name, routing_type, access, and_queue=True)
                return self._equipped(address, routing_type, access, asked), None
        if routing_type is not None and routing_type not in address.routing_types:
            with self.undoing():
                self._admit_type(address, routing_type, access)
                return self._equipped(address, routing_type, access, asked), None
        return self._equipped(address, routing_type, access, asked), None

    def _equipped(self, address: Address, routing_type: RoutingType | None, access: Access, asked: Asked) -> Address:
        """An address that is sent to, with a queue if it is for that that messages come."""
        wanted = routing_type
        if wanted is None and len(address.routing_types) == 1:
            wanted = next(iter(address.routing_types))
        if wanted is RoutingType.ANYCAST and not any(q.routing_type is wanted for q in address.queues):
            self._auto_create_queue(address, address.name, RoutingType.ANYCAST, access, asked)
        elif asked and wanted is RoutingType.ANYCAST and address.name in self.queues:
            agreeing(self.queues[address.name], asked)
        return address

    # -- what comes to nothing -------------------------------------------------------------------------------------

    def is_current(self, address: Address) -> bool:
        """Whether `destination` would still find this address by its name."""
        return (self.addresses.get(address.name) or self._passing.get(address.name)) is address

    def _passing_to(self, name: str, routing_type: RoutingType | None, access: Access) -> Address | None:
        """An address that need not be made, as what is sent to it reaches nobody.  Raises Denied, NotFound."""
        settings = self.settings(name)
        wanted = settings.default_address_routing_type if routing_type is None else routing_type
        if wanted is not RoutingType.MULTICAST or settings.retroactive_message_count > 0:
            return None
        self._check_address(name, settings, access)
        address = self._pass(name)
        extras = address.extras
        if extras is not None and (extras.no_route or extras.exclusive or extras.others):
            return None
        return None if any(self.bindings.targets(address)) else address

    def _pass(self, name: str) -> Address:
        address = self._passing.get(name)
        if address is None:
            if len(self._passing) >= PASSING_MAX:
                self._passing.clear()
            settings = self.settings(name)
            address = self._passing[name] = Address(0, name, {RoutingType.MULTICAST}, settings)
            address.passing = True
            address.extras = extras_of(name, settings, self.diverts)
        return address

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """What is made in here goes again if it ends in a refusal: nothing remains of what was refused."""
        outer, made = self._made, list[Callable[[], None]]()
        self._made = made
        try:
            yield
        except Exception:
            while made:
                made.pop()()
            raise
        finally:
            self._made = outer
            if outer is not None:
                outer += made

    def _unmake_address(self, address: Address) -> None:
        if not address.queues:
            self.delete_address(address)

    def _unmake_queue(self, queue: Queue) -> None:
        if not (queue.deleted or queue.message_count or queue.consumers):
            self.unbind(queue)

    def _unmake_types(self, address: Address, types: frozenset[RoutingType]) -> None:
        address.routing_types = types
        self.core.journal.define(address.id, address_record(address))

    def queue_to_consume(
        self,
        name: str,
        routing_type: RoutingType | None,
        *,
        access: Access = UNRESTRICTED,
        permission: Permission = Permission.CONSUME,
        subscribing: Permission | None = None,
        asked: Asked = NOTHING_ASKED,
        partly: bool = False,
    ) -> Queue | Address:
        """What a subscription to `name` consumes: a queue, or an address on which it gets a queue of its own.

        A requested routing type decides, except of a queue that is there and given by its full name; without one, an
        address that is only multicast gives subscriptions, any other its queue.  `permission` is that of reading,
        `subscribing` that of making a subscription, asked for before an address is made for one; `asked` are attributes
        that the queue shall have.  With `partly` a wildcard address needs no `permission`: the queue takes only what
        may be read.  Raises Denied, NotFound, InvalidName, RoutingTypeMismatch, AttributesDiffer, and
        AlreadyInUse for a temporary destination of another connection.
        """
        address_name, queue_name = names.split_fqqn(name)
        names.check_name(address_name)
        names.check_public(address_name, self.syntax)
        address = self.addresses.get(address_name)
        if address is not None and address.private_to not in (None, access):
            raise AlreadyInUse(f"the temporary destination {address_name} is another connection's")
        if queue_name is not None:
            access.require(permission, address_name, queue_name)
            if queue_name in self.queues:
                routing_type = None  # whoever names a queue means that one; JMS clients always say queue (anycast)
            return self._qualified(address_name, queue_name, routing_type, access, asked)
        with self.undoing():
            if partly and self.syntax.routes(address_name):
                return self._wildcard(address_name, access, subscribing)
            return self._named(address_name, routing_type, access, permission, subscribing, asked)

    def _wildcard(self, name: str, access: Access, subscribing: Permission | None) -> Address:
        """A wildcard address for a subscription, whose subscriber may perhaps not read all that it matches."""
        address = self.addresses.get(name)
        if address is None:
            multicast = RoutingType.MULTICAST
            return self._auto_create_address(name, multicast, access, and_queue=True, subscribing=subscribing)
        self._admit_type(address, RoutingType.MULTICAST, access)
        return address

    def _named(
        self,
        address_name: str,
        routing_type: RoutingType | None,
        access: Access,
        permission: Permission,
        subscribing: Permission | None,
        asked: Asked,
    ) -> Queue | Address:
        """`queue_to_consume` for the name of an address, or of a queue that no address is called like."""
        address = self.addresses.get(address_name)
        if address is None:
            named = self.queues.get(address_name)
            if named is not None and routing_type in (None, named.routing_type):
                access.require(permission, named.address.name, named.name, named=address_name)
                return agreeing(named, asked)
        access.require(permission, address_name)
        if address is None:
            address = self._auto_create_address(
                address_name, routing_type, access, and_queue=True, subscribing=subscribing
            )
        elif routing_type is not None:
            self._admit_type(address, routing_type, access)
        if routing_type is None:
            routing_type = (
                RoutingType.MULTICAST if address.routing_types == {RoutingType.MULTICAST} else RoutingType.ANYCAST
            )
        if routing_type is RoutingType.MULTICAST:
            return address
        queue = self._anycast_queue(address, access, asked)
        access.require(permission, address.name, queue.name)
        return agreeing(queue, asked)

    def _anycast_queue(self, address: Address, access: Access, asked: Asked) -> Queue:
        anycast = [queue for queue in address.queues if queue.routing_type is RoutingType.ANYCAST]
        for queue in anycast:
            if queue.name == address.name:
                return queue
        if len(anycast) == 1:
            return anycast[0]
        if anycast:
            listed = ", ".join(sorted(queue.name for queue in anycast))
            raise NotFound(f"address {address.name} has several queues ({listed}): name one as {address.name}::QUEUE")
        return self._auto_create_queue(address, address.name, RoutingType.ANYCAST, access, asked)

    def _qualified(
        self, address_name: str, queue_name: str, routing_type: RoutingType | None, access: Access, asked: Asked
    ) -> Queue:
        queue = self.queues.get(queue_name)
        if queue is not None:
            if queue.address.name != address_name:
                raise NotFound(f"queue {queue_name} is not on address {address_name}")
            if routing_type not in (None, queue.routing_type):
                raise RoutingTypeMismatch(f"queue {queue_name} is {queue.routing_type.name}")
            return agreeing(queue, asked)
        access.require(Permission.CREATE_DURABLE_QUEUE, address_name, queue_name)
        self.quotas.check(access.user)
        with self.undoing():
            return self._make_qualified(address_name, queue_name, routing_type, access, asked)

    def _make_qualified(
        self, address_name: str, queue_name: str, routing_type: RoutingType | None, access: Access, asked: Asked
    ) -> Queue:
        address = self.addresses.get(address_name)
        if address is None:
            address = self._auto_create_address(address_name, routing_type, access)
        wanted = routing_type
        if wanted is None:
            default = address.settings.default_queue_routing_type
            wanted = default if default in address.routing_types else next(iter(address.routing_types))
        self._admit_type(address, wanted, access)
        return self._auto_create_queue(address, queue_name, wanted, access, asked)

    def _admit_type(self, address: Address, routing_type: RoutingType, access: Access) -> None:
        if routing_type in address.routing_types:
            return
        access.require(Permission.CREATE_ADDRESS, address.name)
        if not address.settings.auto_create_addresses:
            raise RoutingTypeMismatch(
                f"address {address.name} is not {routing_type.name} and auto-create-addresses is off"
            )
        self.add_routing_type(address, routing_type)

    def _auto_create_address(
        self,
        name: str,
        routing_type: RoutingType | None,
        access: Access,
        *,
        and_queue: bool = False,
        subscribing: Permission | None = None,
    ) -> Address:
        """`and_queue`: its queue is made next if it is anycast, and if it is multicast a subscription, which needs
        `subscribing`; what that needs is asked for before anything is made.
        """
        settings = self.settings(name)
        self._check_address(name, settings, access)
        wanted = settings.default_address_routing_type if routing_type is None else routing_type
        if and_queue and wanted is RoutingType.ANYCAST:
            access.require(Permission.CREATE_DURABLE_QUEUE, name)
        elif subscribing is not None:
            access.require(subscribing, name)
        if subscribing is not None or (and_queue and wanted is RoutingType.ANYCAST):
            self.quotas.check(access.user)
        return self.create_address(name, {wanted}, auto_created=True)

    def _check_address(self, name: str, settings: AddressSettings, access: Access) -> None:
        access.require(Permission.CREATE_ADDRESS, name)
        names.check_not_temporary(name)
        if not settings.auto_create_addresses:
            raise NotFound(f"address {name} does not exist and auto-create-addresses is off")

    def _auto_create_queue(
        self, address: Address, name: str, routing_type: RoutingType, access: Access, asked: Asked
    ) -> Queue:
        access.require(Permission.CREATE_DURABLE_QUEUE, address.name, "" if name == address.name else name)
        names.check_not_temporary(address.name)
        if not address.settings.auto_create_queues:
            raise NoQueue(f"queue {name} does not exist on address {address.name} and auto-create-queues is off")
        self.quotas.check(access.user)
        attributes = self.attributes(address, name, asked)
        return self.create_queue(
            address, name, routing_type, durable=True, auto_created=True, attributes=attributes, creator=access.user
        )

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
        """Make an address that does not exist; one that is `needed` also beyond the limit.

        Raises InvalidName, TooManyAddresses.
        """
        names.check_name(name)
        if not internal:
            names.check_public(name, self.syntax)
        if 0 <= self.addresses_max <= len(self.addresses) and not (configured or internal or needed):
            raise TooManyAddresses(
                f"address {name} cannot be made: there are {len(self.addresses)} addresses, and limits.addresses-max"
                f" is {self.addresses_max}"
            )
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
        self._enter(address)
        address.extras = extras_of(name, address.settings, self.diverts)
        core.journal.define(address.id, address_record(address))
        if self._made is not None:
            self._made.append(partial(self._unmake_address, address))
        for watcher in self.watchers:
            watcher.address_made(address)
        return address

    def ensure_address(self, name: str) -> Address:
        """The address of that name, made if it is missing whatever the settings say: for dead letters."""
        address = self.addresses.get(name)
        if address is None:
            default = self.settings(name).default_address_routing_type
            address = self.create_address(name, {default}, auto_created=True, needed=True)
        return address

    def add_routing_type(self, address: Address, routing_type: RoutingType) -> None:
        """Let an address have queues of another routing type too."""
        if self._made is not None:
            self._made.append(partial(self._unmake_types, address, address.routing_types))
        address.add_routing_type(routing_type)
        self.core.journal.define(address.id, address_record(address))

    def delete_address(self, address: Address) -> None:
        """Take an address away.  It must have no queues."""
        assert not address.queues, "an address with queues cannot be deleted"
        del self.addresses[address.name]
        self.unused.pop(address, None)
        self.core.duplicates.forget(address)
        for watcher in self.watchers:
            watcher.address_gone(address)
        self.retired_routed += address.routed
        self.core.journal.undefine(address.id, record.address_deleted(address.id, {"name": address.name}))
        self.destination_lost(address)

    def attach_sender(self, address: Address, sender: AttachedSender) -> None:
        """Tell a sender when the address, or a queue of it, is deleted by name; it keeps an unused address."""
        self.senders.setdefault(address, {})[sender] = None
        address.bound_once = True  # it was used

    def detach_sender(self, address: Address, sender: AttachedSender) -> None:
        """The sender is gone; harmless if it was not there."""
        attached = self.senders.get(address)
        if attached is not None:
            attached.pop(sender, None)
            if not attached:
                del self.senders[address]

    def destination_lost(self, address: Address) -> None:
        """An address, or a queue of it, was deleted by name: its senders look whether any is left."""
        for sender in list(self.senders.get(address, ())):
            sender.destination_lost()

    # -- queues ----------------------------------------------------------------------------------------------------

    def attributes(self, address: Address, name: str, asked: Asked = NOTHING_ASKED) -> QueueAttributes:
        """What a queue on an address is like when it is made: as asked for, the rest by the address's settings."""
        settings = address.settings
        if self._settings.qualified:
            settings = self.settings(f"{address.name}{names.FQQN_SEPARATOR}{name}")
        return with_asked(settings.queue_attributes, asked)

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
        attributes: QueueAttributes | None = None,
        creator: str = "",
    ) -> Queue:
        """Make a queue on an address; its routing type is added to the address's.

        Without `attributes` it has those of the address's settings.  Raises InvalidName, or AlreadyInUse when a queue
        of that name exists.
        """
        names.check_queue_name(name)
        if not internal:
            names.check_public(name, self.syntax)
        found = self.queues.get(name)
        if found is not None:
            told = f"queue {name} exists already, on address {found.address.name}"
            if found.routing_type is not routing_type:
                told += f", and is {found.routing_type.name}: it cannot be {routing_type.name} too"
            raise AlreadyInUse(told)
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
            attributes=self.attributes(address, name) if attributes is None else attributes,
            creator=creator,
        )
        equip(queue)
        self.bind(queue)
        if durable:
            self.core.journal.define(queue.id, queue_record(queue))
        if self._made is not None:
            self._made.append(partial(self._unmake_queue, queue))
        for watcher in self.watchers:
            watcher.queue_made(queue)
        return queue

    def bind(self, queue: Queue) -> None:
        """Hang a queue on its address, so that messages reach it."""
        address = queue.address
        self.queues[queue.name] = queue
        self.queues_by_id[queue.id] = queue
        address.queues.append(queue)
        address.bound_once = True
        self.unused.pop(address, None)
        self._passing.clear()
        self.bindings.bind(queue)
        self.quotas.add(queue.creator)

    def unbind(self, queue: Queue) -> None:
        """Take a queue off its address.  Its messages and consumers are the caller's."""
        address = queue.address
        queue.deleted = True
        self.retired.add(queue.counters)
        for watcher in self.watchers:
            watcher.queue_gone(queue)
        del self.queues[queue.name]
        del self.queues_by_id[queue.id]
        address.queues.remove(queue)
        if not address.queues:
            address.unbound_since = self.core.now
            self._watch(address)
        self.bindings.unbind(queue)
        self.quotas.remove(queue.creator)
        if queue.durable:
            self.core.journal.undefine(queue.id, record.queue_deleted(queue.id, {"name": queue.name}))

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore_address(self, definition: AddressDefinition) -> Address:
        """An address as the journal knows it."""
        address = Address(
            definition.id,
            definition.name,
            definition.routing_types,
            self.settings(definition.name),
            auto_created=definition.auto_created,
            configured=definition.configured,
            created=self.core.now,
            paused=definition.paused,
        )
        address.bound_once = True  # it may have been: nobody knows any more
        self._enter(address)
        return address

    def _watch(self, address: Address) -> None:
        """An address without queues may be one that nobody uses any more."""
        if not address.configured and (address.auto_created or names.is_temporary(address.name)):
            address.swept = -1
            self.unused[address] = None

    def _enter(self, address: Address) -> None:
        name = address.name
        self.addresses[name] = address
        self._passing.pop(name, None)
        self._watch(address)
        address.sendable = not (self.syntax.routes(name) or self.is_internal(name) or name == names.RETAINED)

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
            configured=definition.configured,
            created=self.core.now,
            attributes=definition.attributes,
            paused=definition.paused,
            creator=definition.creator,
        )
        equip(queue)
        queue.messages_max, queue.drop_oldest = definition.messages_max, definition.drop_oldest
        self.bind(queue)
        return queue

    def fresh_name(self) -> str:
        """A name for a queue that belongs to one subscription."""
        return str(UUID(int=self.core.random.getrandbits(128), version=4))
