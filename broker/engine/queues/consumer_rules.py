"""The rules of a queue about its consumers: which of them may get messages, and what they see.

`QueueRules` holds when deliveries begin, and the consumer that gets everything; `GroupedBacklog` who has which groups.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues.grouped import RELEASE_COST, GroupedBacklog
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork

#: How many groups become free in one step.
RELEASED_TOGETHER: Final = 512


def attached(state: State, queue: Queue) -> int | None:
    """Handle a new consumer; returns when the queue must be served even if nothing else happens, or None."""
    backlog = queue.backlog
    if queue.attributes.group_rebalance and isinstance(backlog, GroupedBacklog):
        backlog.draining = queue.attributes.group_rebalance_pause_dispatch and queue.delivering > 0
        if not backlog.draining:
            _reassign(state, queue, backlog)
    if len(queue.consumers) == 1 and not queue.delivering:
        return queue.rules.first_came(state.now)
    return None


def takers(state: State, queue: Queue) -> list[Consumer]:
    """The consumers that may get messages now."""
    if not queue.rules.is_open(len(queue.consumers), state.now):
        return []
    backlog = queue.backlog
    if isinstance(backlog, GroupedBacklog) and backlog.draining:
        if queue.delivering:
            return []
        backlog.draining = False
        _reassign(state, queue, backlog)
    candidates = _exclusive(queue) if queue.attributes.exclusive else queue.consumers
    return [consumer for consumer in candidates if consumer.credit > 0 and not consumer.paused]


def _exclusive(queue: Queue) -> list[Consumer]:
    """The consumer that gets everything: the first of the highest priority, until it leaves.

    The next one begins once no other consumer has deliveries, to preserve the order.
    """
    only = queue.rules.only
    if isinstance(only, Consumer) and not only.closed:
        return [only]
    best = max(queue.consumers, key=lambda consumer: consumer.priority)
    if queue.delivering != len(best.unacked) and not queue.non_destructive:
        return []
    queue.rules.only = best
    return [best]


def mark_first(queue: Queue, messages: list[Message]) -> list[Message]:
    """The messages as the consumer gets them: the first of a group is marked (group-first-key)."""
    name, backlog = queue.attributes.group_first_key, queue.backlog
    if not name or not isinstance(backlog, GroupedBacklog) or not (backlog.first or backlog.owed):
        return messages
    marked: list[Message] = []
    for message in messages:
        if backlog.is_first(message):
            message = copy(message)
            message.head = message.header.format.edited(message.head, (), {name: True})
        marked.append(message)
    return marked


# -- groups ------------------------------------------------------------------------------------------------------------


def _reassign(state: State, queue: Queue, backlog: GroupedBacklog) -> None:
    backlog.reset()
    release_groups(state, queue)


def release_groups(state: State, queue: Queue) -> None:
    """Free the groups that no consumer holds any more: in steps, as there may be 65,536 of them."""
    backlog, owner = queue.backlog, ("groups", queue.id)
    if isinstance(backlog, GroupedBacklog) and backlog.is_releasing and not state.steps.is_busy(owner):
        state.steps.begin(owner, _release(state, queue, backlog))


def _release(state: State, queue: Queue, backlog: GroupedBacklog) -> LongWork:
    while backlog.is_releasing and queue.backlog is backlog and not queue.deleted:
        count = backlog.release(state.steps.at_most(RELEASED_TOGETHER))
        state.dirty[queue] = None  # its consumers may get the messages that waited
        yield RELEASE_COST * count
