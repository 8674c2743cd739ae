"""Declares diverts, and deletes resources that the configuration no longer declares.

Resources of the configuration are marked as such in the journal.  One that was removed from the configuration is kept
(`config-delete-* = OFF`) or deleted with all its contents (`FORCE`), when the broker starts and when it reloads.
"""

from __future__ import annotations

from collections.abc import Collection

from broker.engine.model.settings import ConfigDelete
from broker.engine.queues.diverts import Divert, divert_record
from broker.engine.queues.state import State
from broker.engine.routing import registry
from store import record


def add_divert(state: State, divert: Divert) -> None:
    """Add a new divert, which applies from the next send on.  Raises AlreadyInUse, InvalidName."""
    state.diverts.add(divert)
    journal = state.journal
    divert.id = journal.allocate_ids(1)
    journal.define(divert.id, divert_record(divert))
    registry.refresh(state)


def remove_divert(state: State, name: str) -> None:
    """Remove a divert: messages take their usual way again.  Raises NotFound."""
    divert = state.diverts.get(name)
    state.diverts.remove(divert)
    state.journal.undefine(divert.id, record.divert_deleted(divert.id, {"name": divert.name}))
    registry.refresh(state)


def declare_divert(state: State, divert: Divert) -> None:
    """Create a divert of the configuration, or replace it if it has changed.  Raises InvalidName."""
    divert.check()
    present = state.diverts.by_name.get(divert.name)
    if present is not None:
        if present.same(divert) and present.configured:
            return
        remove_divert(state, divert.name)
    add_divert(state, divert)


def delete_undeclared(
    state: State,
    *,
    addresses: Collection[str],
    queues: Collection[str],
    diverts: Collection[str],
) -> None:
    """Delete resources that the configuration no longer has, if `FORCE` is set; it still has those named."""
    for divert in list(state.diverts.by_name.values()):
        forced = state.settings(divert.address).config_delete_diverts is ConfigDelete.FORCE
        if divert.configured and divert.name not in diverts and forced:
            state.report("config.deleted", divert=divert.name)
            remove_divert(state, divert.name)
    for queue in [queue for queue in state.queues.values() if queue.configured and queue.name not in queues]:
        if queue.address.settings.config_delete_queues is ConfigDelete.FORCE:
            state.report("config.deleted", queue=queue.name, messages=queue.message_count)
            registry.delete_named_queue(state, queue)
    for address in [each for each in state.addresses.values() if each.configured and each.name not in addresses]:
        if address.settings.config_delete_addresses is ConfigDelete.FORCE:
            state.report("config.deleted", address=address.name)
            for queue in list(address.queues):
                registry.delete_named_queue(state, queue)
            registry.delete_address(state, address)
