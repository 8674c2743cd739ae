"""How many messages may wait on a queue: `messages_max`, and what becomes of more.

Messages wait from the moment they are stored until a consumer has them: those on their way through the journal, the
ready and the scheduled ones.  What is in delivery does not count, nor does what the queue's consumers could take at
once: a burst to a client that keeps up loses nothing.

    drop_oldest    the oldest that are ready leave (EVICTED) as soon as the new ones are
    else           the new ones leave (DROPPED) in the journal entry that stores them

Either way they entered the queue and left it by name, so that the books balance.
"""

from __future__ import annotations

from typing import Final

from broker.engine.consumer import UNLIMITED
from broker.engine.core import Core
from broker.engine.message import Message
from broker.engine.queue import Queue
from broker.engine.removal import remove
from store.record import RemovalReason

#: A queue that overflowed is reported anew once it was this part of its limit full, in percent: not at every message
#: while it stands at its limit.
REPORT_AGAIN_PERCENT: Final = 50


def room(queue: Queue) -> int:
    """How many messages more the queue may have: below 0 if it has too many."""
    taking = 0
    for consumer in () if queue.stopped else queue.consumers:
        if consumer.credit > 0 and not consumer.paused:
            if not consumer.counted:
                return UNLIMITED
            taking += consumer.credit
    return queue.messages_max + taking - queue.ready - len(queue.scheduled) - queue.landing


def admit(core: Core, queue: Queue, messages: list[Message]) -> list[Message]:
    """What of a run may enter a queue that has a limit; the rest has entered it and left it again."""
    free = max(room(queue), 0)
    if queue.drop_oldest or len(messages) <= free:
        if queue.overflowing and free - len(messages) > queue.messages_max * (100 - REPORT_AGAIN_PERCENT) // 100:
            queue.overflowing = False
        return messages
    left = messages[free:]
    queue.counters.dropped += len(left)
    if not queue.overflowing:
        queue.overflowing = True
        core.report("queue.full.dropping", queue=queue.name, messages=queue.messages_max)
    remove(core, queue, left, RemovalReason.DROPPED)
    return messages[:free]


def surplus(core: Core, queue: Queue) -> list[Message]:
    """The oldest messages of a queue that has too many, taken out of the line: the caller removes them (EVICTED)."""
    count = -room(queue)
    if count <= 0:
        return []
    evicted = queue.take_head(count)
    for id in list(queue.scheduled)[: count - len(evicted)]:
        due, message = queue.scheduled.pop(id)
        core.schedule.remove(due, (queue.id, id))
        evicted.append(message)
    queue.counters.evicted += len(evicted)
    if not queue.overflowing:
        queue.overflowing = True
        core.report("queue.full.evicting", queue=queue.name, messages=queue.messages_max)
    return evicted
