"""Which messages of a queue are in memory, for those who only look."""

from __future__ import annotations

from broker.engine.model.message import Message
from broker.engine.queues.queue import Queue


def held(queue: Queue) -> list[Message]:
    """All messages in delivery, also those that are settled in steps, but none of open transactions."""
    found: list[Message] = []
    if not queue.non_destructive:
        for holder in queue.holders():
            found += holder.unacked.values()
        for each in queue.leaving:
            found += each
    return found


def deliveries(queue: Queue) -> list[dict[int, Message]]:
    """The deliveries by id, also those that are settled in steps, but none of open transactions."""
    found = [holder.unacked for holder in queue.holders()]
    return found + [{message.id: message for message in each} for each in queue.leaving]


def older(queue: Queue, bound: int) -> list[Message]:
    """All messages in memory that landed and are in no transaction, with ids below `bound`."""
    found = list(queue.backlog.older(bound))
    found += [m for _, m in queue.scheduled.values() if m.id < bound]
    for held in () if queue.non_destructive else deliveries(queue):
        found += [m for m in held.values() if m.id < bound]
    return found
