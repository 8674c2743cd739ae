"""Closes consumers, and returns their unsettled messages to their queues."""

from __future__ import annotations

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.queues import consumer_lifecycle
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.routing import registry


def close(state: State, consumer: Consumer, how: DeliveryOutcome) -> None:
    """Detach a consumer and return its unacknowledged messages; a temporary queue is deleted with its last consumer."""
    if consumer.closed:
        return
    state.mark = NO_WAY_BACK
    settle_acknowledged(state)
    consumer.closed = True
    queue = consumer.queue
    messages = consumer.settle_all()
    if not queue.deleted:
        queue.detach(consumer, state.now)
    consumer.note(state.notes, "CONSUMER_CLOSED")
    redelivery.leave(state, consumer, messages, how)
    if consumer.reservation is not None:
        consumer.reservation.detached(consumer)
    consumer_lifecycle.on_detach(state, queue)
    if queue.temporary and not queue.consumers and not queue.deleted:
        registry.delete_queue(state, queue)


def end(state: State, consumer: Consumer, how: DeliveryOutcome, reason: str) -> None:
    """Close a consumer on the broker's initiative, and tell its sink why."""
    close(state, consumer, how)
    state.tell_closed(consumer, reason)
