"""Operators' actions on addresses, queues and diverts, by name.

Each verb checks everything before it changes anything.  Internal addresses and queues (`names.check_public`, a queue
with an internal owner) can be neither made nor deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from broker.engine.client_sessions.client import client_of
from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.filter import Filter
from broker.engine.model import names
from broker.engine.model.attributes import NO_ATTRIBUTES, RequestedAttributes
from broker.engine.model.errors import AlreadyInUse, NotFound, RoutingTypeMismatch
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.address import Address
from broker.engine.queues.diverts import Divert
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import alter, deletion, destinations
from store.counted import counted


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A queue to be made.  `address` empty: the queue's name; `routing_type` None: that of the address.

    With `make_address` the address is made if it is missing, and gets the routing type if it lacks it.
    """

    name: str
    address: str = ""
    routing_type: RoutingType | None = None
    durable: bool = True
    filter: Filter | None = None
    requested: RequestedAttributes = field(default_factory=lambda: NO_ATTRIBUTES)
    make_address: bool = False


class Administration:
    """Operators' actions on one broker."""

    def __init__(self, state: State, sessions: StoredSessions) -> None:
        self._state = state
        self._sessions = sessions

    # -- addresses -------------------------------------------------------------------------------------------------

    def address(self, name: str) -> Address:
        """An address by name.  Raises NotFound."""
        address = self._state.addresses.get(name)
        if address is None:
            raise NotFound(f"address {name} does not exist")
        return address

    def is_own(self, address: Address) -> bool:
        """Whether an address is internal to the broker."""
        queues = self._state.bindings.queues(address)
        return self._state.registry.is_internal(address.name) or any(queue.internal for queue in queues)

    def make_address(self, name: str, routing_types: AbstractSet[RoutingType]) -> Address:
        """Make an address that does not exist yet; without `routing_types` it gets the default of its settings.

        Raises InvalidName, AlreadyInUse, TooManyAddresses.
        """
        if name in self._state.addresses:
            raise AlreadyInUse(f"address {name} exists already")
        destinations.check_room(self._state, essential=True)
        return self._state.registry.create_address(
            name, routing_types or {self._state.registry.settings(name).default_address_routing_type}
        )

    def add_routing_types(self, address: Address, routing_types: AbstractSet[RoutingType]) -> None:
        """Add routing types to an address.  Raises InvalidName."""
        names.check_public(address.name, self._state.syntax)
        for routing_type in sorted(routing_types - address.routing_types):
            self._state.registry.add_routing_type(address, routing_type)

    def delete_address(self, address: Address, *, with_queues: bool, then: Callable[[], None] = lambda: None) -> None:
        """Delete an address; `with_queues` also deletes all its queues, with their messages, many in steps.

        Then `then` is called.  Raises AlreadyInUse, InvalidName.
        """
        names.check_public(address.name, self._state.syntax)
        queues = self._state.bindings.queues(address)
        for queue in queues:
            queue.check_public()
        if queues and not with_queues:
            raise AlreadyInUse(f"address {address.name} has {counted(len(queues), 'queue')}: force deletes all")
        deletion.delete_with_queues(self._state, address, then)

    def pause_address(self, address: Address, *, paused: bool) -> bool:
        """Pause or resume the deliveries of all queues on an address.  Returns whether that changed anything."""
        return alter.pause_address(self._state, address, paused=paused)

    # -- queues ----------------------------------------------------------------------------------------------------

    def make_queue(self, wanted: NewQueue) -> Queue:
        """Make a queue that does not exist yet.  Raises InvalidName, AlreadyInUse, NotFound, RoutingTypeMismatch."""
        names.check_queue_name(wanted.name)
        names.check_public(wanted.name, self._state.syntax)
        if wanted.name in self._state.queues:
            raise AlreadyInUse(f"queue {wanted.name} exists already")
        name = wanted.address or wanted.name
        address = self._state.addresses.get(name)
        if address is None and not wanted.make_address:
            raise NotFound(f"address {name} does not exist: create it first, or ask for it with make-address")
        types = frozenset[RoutingType]() if address is None else address.routing_types
        routing_type = wanted.routing_type
        if routing_type is None:
            default = self._state.registry.settings(name).default_queue_routing_type
            routing_type = default if default in types or not types else next(iter(types))
        if address is not None and routing_type not in types and not wanted.make_address:
            raise RoutingTypeMismatch(f"address {name} is not {routing_type.name}")
        with self._state.registry.undoing():
            address = address or self.make_address(name, {routing_type})
            destinations.check_room(self._state, essential=True)
            return self._state.registry.create_queue(
                address,
                wanted.name,
                routing_type,
                durable=wanted.durable,
                filter=wanted.filter,
                attributes=self._state.registry.attributes(address, wanted.name, wanted.requested),
            )

    def delete_queue(self, queue: Queue, *, with_messages: bool) -> None:
        """Delete a queue; `with_messages` also one that has messages, which are deleted with it, or consumers.

        Raises AlreadyInUse.
        """
        self.check_deletable(queue, with_messages=with_messages)
        deletion.delete_named_queue(self._state, queue)

    def check_deletable(self, queue: Queue, *, with_messages: bool) -> None:
        """Check that a queue may be deleted in this way.  Raises AlreadyInUse."""
        queue.check_public()
        if not with_messages and (queue.message_count or queue.consumers):
            away = len(queue.consumers) - queue.attached
            offline = f", of which {counted(away, 'is an offline session', 'are offline sessions')}" if away else ""
            raise AlreadyInUse(
                f"queue {queue.name} has {counted(queue.message_count, 'message')} and"
                f" {counted(len(queue.consumers), 'consumer')}{offline}: force deletes all"
            )

    def pause(self, queue: Queue, *, paused: bool) -> bool:
        """Pause or resume a queue's deliveries.  Returns whether that changed anything."""
        return alter.pause(self._state, queue, paused=paused)

    def change(self, queue: Queue, requested: RequestedAttributes) -> bool:
        """Change some attributes of a queue.  Returns whether that changed anything.  Raises AlreadyInUse."""
        return alter.change(self._state, queue, requested)

    def check_changeable(self, queue: Queue, requested: RequestedAttributes) -> None:
        """Check that a queue may get these attributes now.  Raises AlreadyInUse."""
        alter.check(queue, requested)

    def is_of_client(self, queue: Queue) -> bool:
        """Whether a client made a queue by sending or subscribing, and will make it again when it returns."""
        made = queue.auto_created or queue.temporary or bool(queue.creator) or queue.reader is not None
        return made or names.is_temporary(queue.address.name) or self._is_subscription(queue)

    def _is_subscription(self, queue: Queue) -> bool:
        """Whether a queue belongs to a subscription of a stored session."""
        if queue.routing_type is not RoutingType.MULTICAST:
            return False
        return queue.is_shared_subscription or self._sessions.get(client_of(queue.name)) is not None

    # -- diverts ---------------------------------------------------------------------------------------------------

    def add_divert(self, divert: Divert) -> None:
        """Add a divert, which takes effect with the next send.  Raises AlreadyInUse, InvalidName."""
        names.check_public(divert.name, self._state.syntax)
        self._state.registry.add_divert(divert)

    def replace_divert(self, divert: Divert) -> None:
        """Replace the divert of the same name.  Raises NotFound, InvalidName."""
        names.check_public(divert.name, self._state.syntax)
        divert.check()
        self._state.registry.remove_divert(divert.name)
        self._state.registry.add_divert(divert)

    def remove_divert(self, name: str) -> None:
        """Remove a divert.  Raises NotFound, InvalidName."""
        names.check_public(name, self._state.syntax)
        self._state.registry.remove_divert(name)

    def diverts_of(self, address: Address) -> list[Divert]:
        """Return the diverts that watch an address, by name."""
        return self._state.diverts.of(address.name)

    def lacking_queues(self, divert: Divert) -> list[str]:
        """Return the forwarding addresses of a divert on which no queue would get a copy."""
        return [name for name in divert.forwarding if not self._has_queue(name)]

    def _has_queue(self, name: str) -> bool:
        address = self._state.addresses.get(name)
        if address is None:  # the first copy makes it, and its queue if it is anycast
            settings = self._state.registry.settings(name)
            return settings.auto_create_queues and settings.default_address_routing_type is RoutingType.ANYCAST
        return any(self._state.bindings.targets(address))

    # -- settings --------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> AddressSettings:
        """Return the settings that an address of this name has, or would have."""
        return self._state.registry.settings(name)

    def all_settings(self) -> list[tuple[str, Mapping[str, object]]]:
        """Return all matches of settings, the most specific first, each with its values (None: not set)."""
        return list(self._state.registry.settings_table.in_order())

    def setting_layers(self, name: str) -> list[tuple[str, Mapping[str, object]]]:
        """Return the matches that apply to an address, the most specific first, with their values (None: not set)."""
        return self._state.registry.settings_table.matching(name)

    def keeps_dead(self, name: str) -> bool:
        """Whether an address is the dead-letter or expiry address of any settings."""
        return self._state.registry.keeps_dead(name)
