"""Removes many messages from a queue at once, to purge or delete it."""

from __future__ import annotations

from broker.engine.model.message import Message
from broker.engine.queues import arrival
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.paging import depage, upkeep
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State
from store.record import RemovalReason


def purge(state: State, queue: Queue, reason: RemovalReason = RemovalReason.PURGED) -> int:
    """Remove some ready and scheduled messages by name, paged ones first; returns how many, 0 if none were left.

    It removes about `purge_step_max`, so that a long queue is purged over many ticks.  Raises AlreadyInUse.
    """
    queue.check_public()
    most = state.limits.purge_step_max
    purged = upkeep.clear(state, queue, reason, most)
    if queue.tail is not None:
        if queue.tail.active:
            depage.set_floors(queue, queue.tail)
        else:
            depage.drop(state, queue)
    messages = queue.backlog.take_head(most - purged) if purged < most else []
    arrival.unwatch(state, queue, messages)
    messages += arrival.unschedule(state, queue, most - purged - len(messages))
    _remove(state, queue, messages, reason)
    queue.counters.purged += purged + len(messages)
    return purged + len(messages)


def leave_nothing(state: State, queue: Queue) -> int:
    """Remove all ready and scheduled messages of a queue (purged); returns how many."""
    messages = _empty(state, queue)
    _remove(state, queue, messages, RemovalReason.PURGED)
    purged = len(messages) + upkeep.clear(state, queue, RemovalReason.PURGED)
    queue.counters.purged += purged
    return purged


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
    _remove(state, queue, messages, RemovalReason.DELETED)
    for reservation in queue.reservations:
        reservation.queue_gone()
    upkeep.clear(state, queue, RemovalReason.DELETED)
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


def _remove(state: State, queue: Queue, messages: list[Message], reason: RemovalReason) -> None:
    for start in range(0, len(messages), upkeep.REMOVE_RUN_MAX):
        run = messages[start : start + upkeep.REMOVE_RUN_MAX]
        upkeep.begin_removals(state, queue, len(run))
        remove(state, queue, run, reason)
