"""Gives a queue the rules that its attributes need; a plain queue needs none."""

from __future__ import annotations

from broker.engine.model.attributes import Asked, QueueAttributes, differences
from broker.engine.model.errors import AttributesDiffer
from broker.engine.queues.queue import Queue
from broker.engine.queues.types.kind import Kind


def has_rules(attributes: QueueAttributes) -> bool:
    """Whether a queue with these attributes needs rules that a plain queue does not have."""
    return bool(
        attributes.key
        or attributes.ring_size >= 0
        or attributes.purge_on_no_consumers
        or attributes.exclusive
        or attributes.consumers_before_dispatch > 0
        or attributes.group_rebalance
        or attributes.group_first_key
    )


def equip(queue: Queue) -> None:
    """Set `queue.kind` as its attributes require."""
    queue.kind = Kind(queue) if has_rules(queue.attributes) else None


def agreeing(queue: Queue, asked: Asked) -> Queue:
    """The queue, if it has the attributes asked for.  Raises AttributesDiffer."""
    wrong = differences(queue.attributes, asked) if asked else []
    if wrong:
        raise AttributesDiffer(f"queue {queue.name} exists, and its {' and its '.join(wrong)}")
    return queue
