"""Closes consumers, and returns their unsettled messages to their queues.

A change of permissions closes the consumers whose client has lost `consume`.  Their messages do not count as failed
deliveries.  A durable subscription stays, with its messages, which only permitted clients can consume.  A queue that
accepts only messages its reader may read stays too, and from now on accepts those that may be read now.  Thousands may
have to be rechecked: that is done in steps, and until a queue's consumers are, it delivers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import INTERRUPTED, DeliveryOutcome
from broker.engine.model.access import Access
from broker.engine.model.permissions import Permission
from broker.engine.queues import consumer_lifecycle
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork
from broker.engine.routing import alter, deletion

#: What it costs to recheck a consumer, and perhaps to close it, in microseconds (`queues.steps`).
RECHECK_COST: Final = 5

#: What it costs to close a consumer, perhaps with its queue, in microseconds.
CLOSE_COST: Final = 30


def close(state: State, consumer: Consumer, how: DeliveryOutcome) -> None:
    """Detach a consumer and return its unacknowledged messages; a temporary queue is deleted with its last consumer."""
    state.closing.pop(consumer, None)
    if not consumer.closed:  # with its queue, perhaps
        _close(state, consumer, how)
    consumer.detach_sink()


def _close(state: State, consumer: Consumer, how: DeliveryOutcome) -> None:
    state.mark = NO_WAY_BACK
    settle_acknowledged(state)
    consumer.closed = True
    state.selectors.remove(consumer)
    queue = consumer.queue
    deliveries = consumer.take_all()
    if not queue.deleted:
        queue.detach(consumer, state.now)
    consumer.note(state.notes, "CONSUMER_CLOSED")
    redelivery.leave(state, consumer, deliveries, how)
    if consumer.reservation is not None:
        consumer.reservation.detached(consumer)
    consumer_lifecycle.on_detach(state, queue)
    if queue.temporary and not queue.consumers and not queue.deleted:
        deletion.delete_queue(state, queue)


def close_all(
    state: State, consumers: Mapping[Consumer, DeliveryOutcome], transport: object, then: Callable[[], None]
) -> None:
    """Close the consumers of a connection that has ended, in steps; then call `then`.

    Until its turn a consumer gets nothing, and its sink is told nothing.
    """
    for consumer, how in consumers.items():
        if not consumer.closed:
            consumer.paused = True
            state.closing[consumer] = partial(close, state, consumer, how)
    if consumers:
        state.steps.begin(("closing", transport), _close_each(state, consumers, then), transport)
    else:
        then()


def _close_each(state: State, consumers: Iterable[Consumer], then: Callable[[], None]) -> LongWork:
    for consumer in consumers:
        close_now = state.closing.get(consumer)
        if close_now is not None:
            close_now()
            yield CLOSE_COST
    then()


def finish(state: State, queue: Queue) -> None:
    """Close now what is still to be closed of a queue that stays: a subscriber may come back at once."""
    if state.closing and not queue.temporary:
        for consumer in [each for each in queue.consumers if each in state.closing]:
            state.closing[consumer]()


def end(state: State, consumer: Consumer, how: DeliveryOutcome, reason: str) -> None:
    """Close a consumer on the broker's initiative, and tell its sink why."""
    hears = state.closing.pop(consumer, None) is None
    if not consumer.closed:
        _close(state, consumer, how)
    if hears:
        state.notify_closed(consumer, reason)
    else:
        consumer.detach_sink()


def revoke(state: State, then: Callable[[int], None]) -> None:
    """Recheck all consumers after a change of permissions or roles; `then` is called with how many were closed."""
    for queue in state.queues.values():
        if queue.consumers:
            state.unchecked.update(dict.fromkeys(queue.consumers))
    state.steps.begin("permissions", _recheck_all(state, then))


def _recheck_all(state: State, then: Callable[[int], None]) -> LongWork:
    closed = 0
    while state.unchecked:
        consumer = next(iter(state.unchecked))
        closed += not recheck(state, consumer, consumer.access)
        state.dirty[consumer.queue] = None
        yield RECHECK_COST
    then(closed)


def recheck(state: State, consumer: Consumer, access: Access) -> bool:
    """Whether a consumer may continue with its client's present permissions; if not, close it."""
    state.unchecked.pop(consumer, None)
    if consumer.closed:
        return False
    consumer.access = access
    if consumer.queue.reader is not None and alter.filter_for(state, consumer.queue, access):
        return True
    address, queue = consumer.queue.address.name, consumer.queue.name
    if access.allows(Permission.CONSUME, address) and access.allows(Permission.CONSUME, address, queue):
        return True
    consumer.revoked = True
    end(state, consumer, INTERRUPTED, f"permission denied: not allowed to consume from {address} any more")
    return False
