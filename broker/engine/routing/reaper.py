"""Auto-delete: deletes queues and addresses that were created automatically and are no longer used.

Each scan (`address-queue-scan-period`) looks once at every queue, then at the addresses without queues, some of them
each tick.  What is eligible in two scans running is deleted, so "delay 0" means between one and two periods, as in
ActiveMQ Artemis.  An address without queues of its own is in use while messages are sent to it (for queues on wildcard
addresses), while those queues hold some of its messages, while it stores some for later queues (a retroactive address),
and while it remembers duplicate ids.

Resources of the configuration are never deleted, nor are temporary destinations whose owner is connected; remaining
temporary addresses are deleted whatever the settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.engine.model.names import is_temporary
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import deletion
from store.record import RemovalReason

#: Queues, or addresses, that one tick looks at at most: some 2 ms if all of them are deleted.  To look at an address
#: whose name has 128 words may take some milliseconds, if thousands of patterns are as long.
LOOKED_AT_MAX: Final = 256

#: A queue that messages left for one of these reasons has been used.
_USED: Final = (
    RemovalReason.CONSUMED,
    RemovalReason.FORWARDED,
    RemovalReason.EXPIRED,
    RemovalReason.KILLED,
    RemovalReason.DEAD_LETTERED,
)


def scan(state: State) -> Iterator[None]:
    """One scan over all queues, then all addresses without queues; each step is for one tick."""
    for number, queue in enumerate(list(state.queues.values()), 1):
        if queue.deleted:
            continue
        if not _queue_eligible(queue, state.now):
            queue.swept = False
        elif queue.swept:
            state.report("queue.auto_deleted", queue=queue.name, address=queue.address.name)
            deletion.delete_queue(state, queue)
        else:
            queue.swept = True
        if not number % LOOKED_AT_MAX:
            yield
    for number, address in enumerate(list(state.registry.unused), 1):
        if address not in state.registry.unused:
            continue
        traffic = address.routed + address.unrouted
        if address in state.registry.senders or not _address_eligible(state, address):
            address.swept = -1
        elif address.swept == traffic:
            state.report("address.auto_deleted", address=address.name)
            state.registry.delete_address(address)
        else:
            address.swept = traffic
        if not number % LOOKED_AT_MAX or state.steps.measure() <= 0:
            yield


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
    used = queue.used or any([queue.left[reason] for reason in _USED])
    return used or settings.auto_delete_queues_skip_usage_check


def _address_eligible(state: State, address: Address) -> bool:
    settings = address.settings
    if address.owned or address.blocked or address.size_messages:
        return False
    if any([each.paged_messages for each in state.bindings.patterns(address)]):
        return False  # some of these messages may be its own
    if is_temporary(address.name):
        return True  # its owner is gone
    if not settings.auto_delete_addresses or state.duplicates.count(address) or _has_history(state, address):
        return False
    if state.now - address.unbound_since < settings.auto_delete_addresses_delay:
        return False
    used = address.bound_once or address.routed or address.unrouted
    return bool(used) or settings.auto_delete_addresses_skip_usage_check


def _has_history(state: State, address: Address) -> bool:
    """Whether messages are stored for later queues of the address, which is retroactive."""
    extras = state.diverts.extras(address)
    own = [] if extras is None else [divert for divert in extras.others if divert.internal]
    homes = [state.addresses[name] for divert in own for name in divert.forwarding]
    return any([ring.message_count for home in homes for ring in state.bindings.queues(home)])
