"""Rights that are taken away end what was made with them: a consumer without `consume` is closed, and its sink told.

A queue that takes only what its reader may read stays: from now on it takes what may be read now.

What it held goes back to its queue and does not count as a failed delivery.  A durable subscription stays, with what it
has; nobody gets it who may not consume it.
"""

from __future__ import annotations

from broker.engine.delivery import closing
from broker.engine.delivery.redelivery import INTERRUPTED
from broker.engine.model.access import Access
from broker.engine.model.permissions import Permission
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.state import State


def revoke(state: State) -> int:
    """Look at all consumers anew, since permissions or roles have changed; how many were closed."""
    consumers = [consumer for queue in state.queues.values() for consumer in queue.consumers]
    return sum(not recheck(state, consumer, consumer.access) for consumer in consumers)


def recheck(state: State, consumer: Consumer, access: Access) -> bool:
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
    closing.end(state, consumer, INTERRUPTED, f"permission denied: not allowed to consume from {address} any more")
    return False
