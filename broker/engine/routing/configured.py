"""What the configuration and operators declare beside queues: diverts; and what the configuration declares no longer.

Resources of the configuration are marked as such in the journal.  One that a later configuration does not have is kept
(`config-delete-* = OFF`) or deleted with all that is in it (`FORCE`), when the broker starts and when it reloads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.engine.model.settings import ConfigDelete
from broker.engine.queues.core import Core
from broker.engine.queues.diverts import Divert, divert_record
from broker.engine.queues.queue import Queue
from broker.engine.routing.router import Router
from store import record


def add_divert(router: Router, divert: Divert) -> None:
    """A divert that is not there yet; it takes part from the next send on.  Raises AlreadyInUse, InvalidName."""
    router.diverts.add(divert)
    journal = router.core.journal
    divert.id = journal.allocate_ids(1)
    journal.define(divert.id, divert_record(divert))
    router.refresh()


def remove_divert(router: Router, name: str) -> None:
    """Messages go their usual way again.  Raises NotFound."""
    divert = router.diverts.get(name)
    router.diverts.remove(divert)
    router.core.journal.undefine(divert.id, record.divert_deleted(divert.id, {"name": divert.name}))
    router.refresh()


def declare_divert(router: Router, divert: Divert) -> None:
    """A divert of the configuration: made if it is missing, made anew if it is another.  Raises InvalidName."""
    divert.check()
    present = router.diverts.by_name.get(divert.name)
    if present is not None:
        if present.same(divert) and present.configured:
            return
        remove_divert(router, divert.name)
    add_divert(router, divert)


def delete_undeclared(
    core: Core,
    router: Router,
    delete_queue: Callable[[Queue], None],
    *,
    addresses: Collection[str],
    queues: Collection[str],
    diverts: Collection[str],
) -> None:
    """Delete what was in the configuration, is not any more (the names given are), and may be deleted."""
    for divert in list(router.diverts.by_name.values()):
        forced = router.settings(divert.address).config_delete_diverts is ConfigDelete.FORCE
        if divert.configured and divert.name not in diverts and forced:
            core.report("config.deleted", divert=divert.name)
            remove_divert(router, divert.name)
    for queue in [queue for queue in router.queues.values() if queue.configured and queue.name not in queues]:
        if queue.address.settings.config_delete_queues is ConfigDelete.FORCE:
            core.report("config.deleted", queue=queue.name, messages=queue.message_count)
            delete_queue(queue)
    for address in [each for each in router.addresses.values() if each.configured and each.name not in addresses]:
        if address.settings.config_delete_addresses is ConfigDelete.FORCE:
            core.report("config.deleted", address=address.name)
            for queue in list(address.queues):
                delete_queue(queue)
            router.delete_address(address)
