"""Displacing: removes the oldest messages of a queue that exceeds its limit (see `room`), or of a ring."""

from __future__ import annotations

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message
from broker.engine.queues.paging import depage
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.room import places_left, queue_has_recovered
from broker.engine.queues.state import State
from store.record import RemovalReason


def cut(state: State, queue: Queue, *, everything: bool = False) -> None:
    """Evict the oldest messages of a ring that is too long: one for each arrival, or all beyond its size.

    One that may not grow, as memory is more than full, is too long whatever its size.
    """
    if queue.tail is not None:
        return  # older messages are being read back
    count = queue.rules.excess(queue.ready, everything=everything, crowded=state.room.overrun)
    if count:
        oldest = queue.backlog.take_head(count)
        state.schedule.unwatch(queue, oldest)
        remove(state, queue, oldest, RemovalReason.EVICTED)


def displace(state: State, queue: Queue) -> None:
    """Remove the oldest messages of a queue with `drop_oldest` until it is within its limit, wherever they are."""
    free = places_left(queue, queue.messages_max)
    if free >= 0:
        if queue.overflowing and queue_has_recovered(queue, free):
            queue.overflowing = False
        return
    displaced = depage.take_head(state, queue, -free)
    left = -free - len(displaced)
    if queue.tail is not None and queue.tail.failing:
        left = 0  # older ones are on disk, and leave when they can be read
    scheduled = state.schedule.release(queue, left)
    if len(scheduled) < left:
        scheduled += _scheduled_on_disk(state, queue, left - len(scheduled))
    displaced += scheduled
    if displaced:
        if not queue.overflowing:
            queue.overflowing = True
            state.report("queue.full.evicting", queue=queue.name, messages=queue.messages_max)
        remove(state, queue, displaced, RemovalReason.DISPLACED)


def _scheduled_on_disk(state: State, queue: Queue, count: int) -> list[Message]:
    try:
        return depage.take_scheduled(state, queue, count)
    except NotReadable:  # the queue is served again when its next message arrives
        return []
