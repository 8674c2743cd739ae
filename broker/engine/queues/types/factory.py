"""From attributes to the rules of a queue: none for a plain one."""

from __future__ import annotations

from broker.engine.model.attributes import Asked, QueueAttributes, differences
from broker.engine.model.errors import AttributesDiffer
from broker.engine.queues.queue import Queue
from broker.engine.queues.types.kind import Kind


def has_rules(attributes: QueueAttributes) -> bool:
    """Whether such a queue does anything that the plain one's path does not know."""
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
    """Give a queue the rules that its attributes need."""
    queue.kind = Kind(queue) if has_rules(queue.attributes) else None


def agreeing(queue: Queue, asked: Asked) -> Queue:
    """The queue, if it is what was asked for.  Raises AttributesDiffer."""
    wrong = differences(queue.attributes, asked) if asked else []
    if wrong:
        raise AttributesDiffer(f"queue {queue.name} exists, and its {' and its '.join(wrong)}")
    return queue
