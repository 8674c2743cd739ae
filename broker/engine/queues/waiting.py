"""Limits how many messages may wait on a queue: `messages_max`, and what happens to more.

Messages wait from the moment they are stored until a consumer has them: those not yet durable, the ready ones, in
memory or paged, and the scheduled ones.  Deliveries do not count, nor do as many messages as the queue's consumers
could get at once: a burst to a client that keeps up loses nothing.

    drop_oldest    the oldest ready ones leave (DISPLACED) in the tick in which the new ones become ready
    otherwise      the new ones leave (DROPPED) in the journal entry that stores them
    memory full    new non-durable ones that no consumer could get at once leave (DROPPED): only durable ones wait on
                   disk

In each case they are recorded as having entered the queue and left it by name, so that the books balance.
"""

from __future__ import annotations

from broker.engine.model.message import Message
from broker.engine.queues.address import REPORT_AGAIN_PERCENT
from broker.engine.queues.consumer import UNLIMITED
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State
from store.record import RemovalReason


def room(queue: Queue, most: int) -> int:
    """How many more messages the queue may have if `most` may wait: below 0 if it has too many."""
    taking = 0
    for consumer in () if queue.stopped else queue.consumers:
        if consumer.credit > 0 and not consumer.paused:
            if not consumer.counted:
                return UNLIMITED
            taking += consumer.credit
    return most + taking - queue.ready - queue.paged - len(queue.scheduled) - queue.landing


def admit(state: State, queue: Queue, messages: list[Message], *, full: bool = False) -> list[Message]:
    """The messages of a run that may stay on a queue with a limit; the rest is recorded as entered and dropped.

    `full`: the messages would have to be paged.
    """
    paging = not messages[0].header.durable and (full or queue.tail is not None)
    if queue.drop_oldest and not paging:
        return messages
    free = max(room(queue, 0 if paging else queue.messages_max), 0)
    if len(messages) <= free:
        if queue.overflowing and not (full or queue.tail) and has_recovered(queue, free - len(messages)):
            queue.overflowing = False
        return messages
    left = messages[free:]
    queue.counters.dropped += len(left)
    if not queue.overflowing:
        queue.overflowing = True
        if paging:
            state.report("queue.full.memory", queue=queue.name, bytes=state.usage.bytes)
        else:
            state.report("queue.full.dropping", queue=queue.name, messages=queue.messages_max)
    remove(state, queue, left, RemovalReason.DROPPED)
    return messages[:free]


def has_recovered(queue: Queue, free: int) -> bool:
    """Whether a queue with this much room is far enough below its limit for the next overflow to be reported."""
    return free > queue.messages_max * (100 - REPORT_AGAIN_PERCENT) // 100
