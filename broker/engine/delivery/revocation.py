"""Rights that are taken away end what was made with them: a consumer without `consume` is closed, and its sink told.

A queue that takes only what its reader may read stays: from now on it takes what may be read now.

What it held goes back to its queue and does not count as a failed delivery.  A durable subscription stays, with what it
has; nobody gets it who may not consume it.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.delivery.redelivery import INTERRUPTED, DeliveryOutcome
from broker.engine.model.access import Access
from broker.engine.model.permissions import Permission
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.state import State

#: Closes a consumer, and tells its sink why.
Close = Callable[[Consumer, DeliveryOutcome, str], None]


def revoke(state: State, close: Close) -> int:
    """Look at all consumers anew, since permissions or roles have changed; how many were closed."""
    consumers = [consumer for queue in state.queues.values() for consumer in queue.consumers]
    return sum(not recheck(consumer, consumer.access, close) for consumer in consumers)


def recheck(consumer: Consumer, access: Access, close: Close) -> bool:
    """Whether a consumer may go on with what its peer may do now; if not it is closed."""
    if consumer.closed:
        return False
    consumer.access = access
    reader = consumer.queue.reader
    if reader is not None:
        consumer.queue.reader = access
        if reader.user == access.user:  # else somebody who may perhaps not read what is on the queue
            return True
    address, queue = consumer.queue.address.name, consumer.queue.name
    if access.allows(Permission.CONSUME, address) and access.allows(Permission.CONSUME, address, queue):
        return True
    consumer.revoked = True
    close(consumer, INTERRUPTED, f"permission denied: not allowed to consume from {address} any more")
    return False
