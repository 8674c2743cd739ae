"""Makes what the configuration declares, at the start and at each reload, if it is missing or different.

A reload may concern 100,000 queues: it is done in steps.  The state after each step is whole, and a start does the
same: what a crash interrupts the next start completes.

Declared resources are marked as such in the journal.  One that is no longer declared stays (`config-delete-* = OFF`) or
is deleted with all its contents (`FORCE`).  A declared resource that an operator deletes is made again at the next
reload or start.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from broker.engine.delivery.subscribe import parse_selector
from broker.engine.model.attributes import NO_ATTRIBUTES, RequestedAttributes
from broker.engine.model.errors import AlreadyInUse
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import ConfigDelete
from broker.engine.model.settings_match import SettingsTable
from broker.engine.queues.address import Address
from broker.engine.queues.definitions import address_record, queue_record
from broker.engine.queues.diverts import Divert
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork, gathered
from broker.engine.routing import alter, deletion

#: What it costs to look at a queue or an address, or to declare one, in microseconds (`steps`).
LOOK_COST: Final = 1
DECLARE_COST: Final = 50

#: Matches without a dead-letter address that a line of the log shows; a file may have one for each tenant.
MATCHES_LOGGED_MAX: Final = 20


class Configuration:
    """The configuration of one broker's resources."""

    def __init__(self, state: State) -> None:
        self._state = state
        #: The matches of settings without a dead-letter address: messages that die there are removed.
        self.without_dead_letter_address: tuple[str, ...] = ()

    def begin(self, work: LongWork) -> None:
        """Begin a change of the configuration, which is done in steps, and after those that were begun before."""
        self._state.steps.begin("configuration", gathered(work))

    def change_settings(self, settings: SettingsTable) -> None:
        """Begin to replace the address settings (`Registry.change_settings`)."""
        self.begin(self._change_settings(settings))

    def _change_settings(self, settings: SettingsTable) -> LongWork:
        yield from self._state.registry.change_settings(settings)
        self.report_settings()

    def report_settings(self) -> None:
        """Report which messages would be removed when they die, because their addresses have no dead-letter address."""
        matches = self._state.registry.settings_table.emptied("dead_letter_address")
        self.without_dead_letter_address = tuple(matches)
        if matches:
            shown = ", ".join(matches[:MATCHES_LOGGED_MAX])
            self._state.report("settings.no_dead_letter_address", matches=shown, count=len(matches))

    def set_transmission_queues(self, names: AbstractSet[str]) -> None:
        """Set the names of queues whose messages wait to be sent to another broker.

        A message that a divert forwards to such a queue keeps its original address, whose settings determine how it
        expires and dies.
        """
        self._state.registry.transmission = frozenset(names)

    def declare(self, name: str, routing_types: set[RoutingType]) -> Address:
        """Make an address of the configuration if it is missing; it is never deleted automatically."""
        address = self._state.addresses.get(name)
        if address is None:
            address = self._state.registry.create_address(name, routing_types, configured=True)
        for routing_type in routing_types - address.routing_types:
            self._state.registry.add_routing_type(address, routing_type)
        if not address.configured:
            address.configured = True
            self._state.journal.define(address.id, address_record(address))
        return address

    def declare_queue(
        self,
        address: Address,
        name: str,
        routing_type: RoutingType,
        *,
        durable: bool,
        selector: str,
        requested: RequestedAttributes = NO_ATTRIBUTES,
    ) -> Queue:
        """Make or change a queue of the configuration, with the attributes `asked`, and else those of its settings.

        As in ActiveMQ Artemis, one that exists with another routing type or filter keeps its messages.  Raises
        AlreadyInUse if it exists with another address or durability, or has consumers and another routing type.
        """
        filter = parse_selector(selector)
        queue = self._state.queues.get(name)
        attributes = self._state.registry.attributes(address, name, requested)
        if queue is None:
            queue = self._state.registry.create_queue(
                address,
                name,
                routing_type,
                durable=durable,
                filter=filter,
                configured=True,
                attributes=attributes,
            )
        else:
            queue.check_public()
            _check(queue, address, routing_type, durable=durable)
            if alter.redefine(self._state, queue, routing_type, filter):
                text = filter.text if filter else ""
                self._state.report("config.changed", queue=name, routing_type=routing_type.name, filter=text)
        if not queue.configured:
            queue.configured = True
            if queue.durable:
                self._state.journal.define(queue.id, queue_record(queue))
        if "enabled" not in requested:  # then operators decide
            attributes = replace(attributes, enabled=queue.attributes.enabled)
        alter.become(self._state, queue, attributes)
        return queue

    def declare_divert(self, divert: Divert) -> None:
        """Create a divert of the configuration, or replace it if it has changed.  Raises InvalidName."""
        divert.check()
        present = self._state.diverts.by_name.get(divert.name)
        if present is not None:
            if present.same(divert) and present.configured:
                return
            self._state.registry.remove_divert(divert.name)
        self._state.registry.add_divert(divert)

    def delete_undeclared(
        self, *, addresses: Collection[str], queues: Collection[str], diverts: Collection[str]
    ) -> LongWork:
        """Delete configured resources that are not among those named, where `FORCE` is set; never the broker's own."""
        state = self._state
        for divert in list(state.diverts.by_name.values()):
            forced = state.registry.settings(divert.address).config_delete_diverts is ConfigDelete.FORCE
            is_there = state.diverts.by_name.get(divert.name) is divert  # no operator has removed it meanwhile
            if is_there and divert.configured and divert.name not in diverts and forced:
                state.report("config.deleted", divert=divert.name)
                state.registry.remove_divert(divert.name)
            yield deletion.DELETE_COST if forced else LOOK_COST
        for queue in list(state.queues.values()):
            yield LOOK_COST
            if queue.deleted or not queue.configured or queue.internal or queue.name in queues:
                continue
            if queue.address.settings.config_delete_queues is ConfigDelete.FORCE:
                state.report("config.deleted", queue=queue.name, messages=queue.message_count)
                cost = deletion.deletion_cost(queue)
                deletion.delete_named_queue(state, queue)
                yield cost
        for address in list(state.addresses.values()):
            yield LOOK_COST
            is_there = state.addresses.get(address.name) is address
            if is_there and address.configured and address.name not in addresses:
                yield from self._delete_undeclared(address)

    def _delete_undeclared(self, address: Address) -> LongWork:
        """Delete an address and its queues, if `FORCE` is set and nothing of it is the broker's own."""
        state = self._state
        own = any(queue.internal for queue in state.bindings.queues(address))
        if own or address.settings.config_delete_addresses is not ConfigDelete.FORCE:
            return
        state.report("config.deleted", address=address.name)
        yield from deletion.delete_in_steps(state, address, deletion.delete_named_queue)


def _check(queue: Queue, address: Address, routing_type: RoutingType, *, durable: bool) -> None:
    """Raises AlreadyInUse if a queue of the configuration exists and differs in what cannot be changed."""
    name = queue.name
    if queue.address is not address:
        different = f"address {queue.address.name}, not {address.name}"
    elif queue.durable is not durable:
        different = f"durable {str(queue.durable).lower()}, not {str(durable).lower()}"
    elif queue.routing_type is not routing_type and queue.consumers:
        different = f"consumers and routing-type {queue.routing_type.name}, not {routing_type.name}"
    else:
        return
    raise AlreadyInUse(
        f"queue {name} exists with {different} as configured: configure it as it is and start the broker; then stop its"
        f" consumers, move its messages (`bartleby queue move {name} TARGET`), delete it (`bartleby queue delete"
        f" {name}`), and change the configuration"
    )
