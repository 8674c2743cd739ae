"""Removes many messages from a queue at once, to purge or delete it.

A purge ends where the journal has no room; the rest stays.  A deletion is never refused: messages whose own removals
find no room leave with their queue.
"""

from __future__ import annotations

from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message
from broker.engine.queues import arrival
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.paging import depage, upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import in_steps, removal_bytes, remove
from broker.engine.queues.state import State
from store.record import REMOVAL_BYTES, RemovalReason


def purge(state: State, queue: Queue, reason: RemovalReason = RemovalReason.PURGED) -> int:
    """Remove some ready and scheduled messages by name, paged ones first; returns how many, 0 if none were left.

    It removes about `purge_step_max`, so that a long queue is purged over many ticks.  Raises AlreadyInUse, and
    DiskFull if the journal has no room for any removal.
    """
    queue.check_public()
    purged = _clear(state, queue, reason, state.limits.purge_step_max)
    if not purged and queue.has_waiting:
        raise DiskFull(f"the journal has no room to record removals from queue {queue.name}")
    return purged


def leave_nothing(state: State, queue: Queue) -> int:
    """Remove all ready and scheduled messages of a queue (purged), as far as there is room; returns how many."""
    return _clear(state, queue, RemovalReason.PURGED, queue.message_count)


def _clear(state: State, queue: Queue, reason: RemovalReason, most: int) -> int:
    """Remove about `most` messages, paged ones first, as far as there is room; returns how many."""
    removed = upkeep.clear(state, queue, reason, most)
    if queue.tail is not None:
        if queue.tail.empty:
            depage.drop(state, queue)
        else:
            depage.set_floors(queue, queue.tail)
    if not queue.paged:
        removed += _clear_waiting(state, queue, reason, most - removed)
    queue.counters.purged += removed
    return removed


def _clear_waiting(state: State, queue: Queue, reason: RemovalReason, most: int) -> int:
    """Remove ready messages in memory, then scheduled ones, as far as there is room; returns how many."""
    removed = 0
    need = REMOVAL_BYTES if queue.stored else 0
    places = range(max(min(most, queue.ready + len(queue.scheduled)), 0))
    for run in in_steps(state, queue, places, lambda _: need):
        messages = queue.backlog.take_head(len(run))
        arrival.unwatch(state, queue, messages)
        messages += arrival.unschedule(state, queue, len(run) - len(messages))
        remove(state, queue, messages, reason)
        removed += len(messages)
    return removed


def empty_and_detach(state: State, queue: Queue) -> list[Consumer]:
    """Empty a queue that is about to be deleted: remove its messages by name, and detach its consumers; returns those.

    Raises AlreadyInUse if the queue is the broker's own.
    """
    queue.check_public()
    messages = _empty(state, queue)
    messages += state.landing_on(queue)
    queue.landing = 0
    closed = list(queue.consumers)
    for consumer in closed:
        held = consumer.settle_all()
        if not queue.non_destructive:  # there, a consumer's messages are still on the queue
            queue.delivering -= len(held)
            messages += held
        consumer.closed = True
        queue.detach(consumer, state.now)
        consumer.note(state.notes, "CONSUMER_CLOSED")
    for reservation in queue.reservations:
        kept = reservation.stand_in.settle_all()
        queue.delivering -= len(kept)
        messages += kept
    recorded = 0
    for run in in_steps(state, queue, messages, removal_bytes):
        remove(state, queue, list(run), RemovalReason.DELETED)
        recorded += len(run)
    remove(state, queue, messages[recorded:], RemovalReason.DELETED, recorded=False)
    for reservation in queue.reservations:
        reservation.queue_gone()
    upkeep.clear(state, queue, RemovalReason.DELETED, deleting=True)
    if queue.tail is not None:
        depage.drop(state, queue)
    state.dirty.pop(queue, None)
    state.dirty_later.pop(queue, None)
    return closed


def _empty(state: State, queue: Queue) -> list[Message]:
    """Take all ready and scheduled messages out of their containers."""
    messages = queue.clear()
    for message in messages:
        if message.header.expiration:
            state.expiries.remove(message.header.expiration, (queue.id, message.id))
    return messages + arrival.unschedule(state, queue, len(queue.scheduled))
