"""Revocation: closes consumers whose client has lost the permission `consume`, and tells their sinks.

The messages that such a consumer held go back to its queue and do not count as failed deliveries.  A durable
subscription stays, with its messages, which only permitted clients can consume.  A queue that accepts only messages its
reader may read stays too, and from now on accepts those that may be read now.
"""

from __future__ import annotations

from broker.engine.delivery import closing
from broker.engine.delivery.redelivery import INTERRUPTED
from broker.engine.model.access import Access
from broker.engine.model.permissions import Permission
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.state import State


def revoke(state: State) -> int:
    """Recheck all consumers after a change of permissions or roles; returns how many were closed."""
    consumers = [consumer for queue in state.queues.values() for consumer in queue.consumers]
    return sum(not recheck(state, consumer, consumer.access) for consumer in consumers)


def recheck(state: State, consumer: Consumer, access: Access) -> bool:
    """Whether a consumer may continue with its client's present permissions; if not, close it."""
    if consumer.closed:
        return False
    consumer.access = access
    reader = consumer.queue.reader
    if reader is not None:
        consumer.queue.reader = access
        if reader.user == access.user:  # another user may lack permission to read what is on the queue
            return True
    address, queue = consumer.queue.address.name, consumer.queue.name
    if access.allows(Permission.CONSUME, address) and access.allows(Permission.CONSUME, address, queue):
        return True
    consumer.revoked = True
    closing.end(state, consumer, INTERRUPTED, f"permission denied: not allowed to consume from {address} any more")
    return False
