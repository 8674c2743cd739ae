"""Auto-delete: queues and addresses that were made automatically and that nobody uses any more go away.

Each scan looks at everything once (`address-queue-scan-period`); what is eligible in two scans running is deleted, so
"delay 0" means between one and two periods, as in ActiveMQ Artemis.  Resources of the configuration are never touched,
nor are temporary destinations of somebody who is there; what is left of the others goes whatever the settings say.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.address import Address
from broker.engine.core import Core
from broker.engine.names import is_temporary
from broker.engine.queue import Queue
from broker.engine.router import Router


def scan(core: Core, router: Router, delete_queue: Callable[[Queue], None]) -> None:
    """One scan over all queues, then all addresses."""
    for queue in list(router.queues.values()):
        if not _queue_eligible(queue, core.now):
            queue.swept = False
        elif queue.swept:
            core.report("queue.auto_deleted", queue=queue.name, address=queue.address.name)
            delete_queue(queue)
        else:
            queue.swept = True
    for address in list(router.addresses.values()):
        if not _address_eligible(address, core.now):
            address.swept = False
        elif address.swept:
            core.report("address.auto_deleted", address=address.name)
            router.delete_address(address)
        else:
            address.swept = True


def _queue_eligible(queue: Queue, now: int) -> bool:
    settings = queue.address.settings
    wanted = settings.auto_delete_queues if queue.auto_created else settings.auto_delete_created_queues
    if queue.configured or queue.temporary or not wanted:
        return False
    if queue.consumers or now - queue.unused_since < settings.auto_delete_queues_delay:
        return False
    allowed = settings.auto_delete_queues_message_count
    if allowed >= 0 and queue.message_count > allowed:
        return False
    counters = queue.counters
    used = queue.used or counters.acknowledged or counters.expired or counters.killed or counters.dead_lettered
    return bool(used) or settings.auto_delete_queues_skip_usage_check


def _address_eligible(address: Address, now: int) -> bool:
    settings = address.settings
    if address.configured or address.owned or address.queues or address.blocked:
        return False
    if is_temporary(address.name):
        return True  # its owner is gone
    if not (address.auto_created and settings.auto_delete_addresses):
        return False
    if now - address.unbound_since < settings.auto_delete_addresses_delay:
        return False
    return address.bound_once or settings.auto_delete_addresses_skip_usage_check
