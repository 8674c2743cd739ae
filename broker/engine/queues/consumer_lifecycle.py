"""Consumers come and go: what that means to a queue that is not plain."""

from __future__ import annotations

from broker.engine.model.attributes import QueueAttributes
from broker.engine.model.errors import TooManyConsumers
from broker.engine.queues import clearing
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State


def check_room(name: str, attributes: QueueAttributes, consumers: int) -> None:
    """Whether a queue with so many consumers takes another one.  Raises TooManyConsumers."""
    if 0 <= attributes.max_consumers <= consumers:
        most = attributes.max_consumers
        raise TooManyConsumers(f"queue {name} has its max-consumers ({most}): no further consumer can attach now")


def on_attach(state: State, consumer: Consumer) -> None:
    """A consumer comes to its queue."""
    queue = consumer.queue
    queue.attach(consumer)
    state.dirty[queue] = None
    consumer.note(state.notes, "CONSUMER_CREATED")
    if queue.kind is None:
        return
    opens = queue.kind.attached(state.now)
    if opens is not None:
        state.alarms.at(("delay-before-dispatch", queue.id), opens, lambda: state.dirty.update({queue: None}))


def on_detach(state: State, queue: Queue) -> None:
    """A consumer has gone, and what it had is back."""
    if queue.deleted:
        return
    state.dirty[queue] = None  # what was for this consumer may be for another now
    if queue.attributes.purge_on_no_consumers and not queue.consumers:
        clearing.leave_nothing(state, queue)
