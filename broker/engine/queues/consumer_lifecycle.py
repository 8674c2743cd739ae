"""Attaches and detaches consumers, with what that triggers on queues with special attributes."""

from __future__ import annotations

from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.errors import TooManyConsumers
from broker.engine.queues import arrival, clearing, consumer_rules
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.state import State


def check_room(name: str, attributes: QueueAttributes, consumers: int) -> None:
    """Raises TooManyConsumers if a queue that has this number of consumers may not have another."""
    if 0 <= attributes.max_consumers <= consumers:
        most = attributes.max_consumers
        raise TooManyConsumers(f"queue {name} has its max-consumers ({most}): no further consumer can attach now")


def on_attach(state: State, consumer: Consumer) -> None:
    """Attach a consumer to its queue."""
    queue = consumer.queue
    queue.attach(consumer)
    state.selectors.add(consumer)
    state.dirty[queue] = None
    consumer.note(state.notes, "CONSUMER_CREATED")
    opens = consumer_rules.attached(state, queue)
    if opens is not None:
        state.alarms.at(("delay-before-dispatch", queue.id), opens, lambda: state.dirty.update({queue: None}))


def on_detach(state: State, queue: Queue) -> None:
    """Handle the detachment of a consumer, after its messages were returned."""
    if queue.deleted:
        return
    state.dirty[queue] = None  # other consumers may get its messages now
    consumer_rules.release_groups(state, queue)
    _purge_unconsumed(state, queue)


def _purge_unconsumed(state: State, queue: Queue) -> None:
    """Purge a queue that keeps nothing without consumers; what the journal has no room for is purged later."""
    if queue.deleted or queue.consumers or not queue.attributes.purge_on_no_consumers:
        return

    def then() -> None:
        if queue.has_waiting and not queue.consumers:
            due = state.now + arrival.MOVE_RETRY_MS
            state.alarms.at(("purge-on-no-consumers", queue.id), due, lambda: _purge_unconsumed(state, queue))

    clearing.leave_nothing(state, queue, then)
