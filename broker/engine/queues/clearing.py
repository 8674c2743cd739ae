"""Removes many messages from a queue at once, to purge or delete it.

A purge ends where the journal has no room; the rest stays.  A deletion is never refused: messages whose own removals
find no room leave with their queue.  A queue with many messages is deleted before them: it is gone at once, and its
messages leave in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message
from broker.engine.queues import arrival
from broker.engine.queues.paging import depage, upkeep
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.removal import in_steps, removal_bytes, remove
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork
from store.record import REMOVAL_BYTES, RemovalReason

#: How many messages are removed in a step, and what each costs, in microseconds (`steps`).
REMOVED_TOGETHER: Final = 1_024
REMOVE_COST: Final = 2


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


def leave_nothing(state: State, queue: Queue, then: Callable[[], None] = lambda: None) -> None:
    """Remove all ready and scheduled messages of a queue (purged), in steps, as far as there is room; then call `then`.

    Until that is done nothing is delivered: a consumer that comes meanwhile gets only what comes later too.
    """
    queue.returning += 1
    below = state.journal.allocate_ids(1)  # larger than that of any message so far
    state.steps.begin(("purged", queue), _purging(state, queue, below, queue.counters.added, then))


def _purging(state: State, queue: Queue, below: int, added: int, then: Callable[[], None]) -> LongWork:
    together = state.steps.at_most(REMOVED_TOGETHER)
    while not queue.deleted and queue.has_waiting:
        state.mark = NO_WAY_BACK
        if queue.counters.added == added:
            removed = _clear(state, queue, RemovalReason.PURGED, together)
        else:
            removed = _clear_older(state, queue, below, together)
        if not removed:
            break
        yield REMOVE_COST * removed
    queue.returning -= 1
    if not queue.deleted:
        state.dirty[queue] = None
        then()


def _clear_older(state: State, queue: Queue, below: int, most: int) -> int:
    """Remove about `most` messages with ids below this one (purged), as far as there is room; returns how many."""
    removed = 0
    found = [message for message in queue.between(-1, below, most) if message.id < below]
    for run in in_steps(state, queue, found, removal_bytes):
        for message in run:
            arrival.take_out(state, queue, message)
        remove(state, queue, list(run), RemovalReason.PURGED)
        removed += len(run)
    if not found and queue.tail is not None:
        removed = upkeep.clear(state, queue, RemovalReason.PURGED, most, below=below)
    return removed


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
    return removed


def _clear_waiting(state: State, queue: Queue, reason: RemovalReason, most: int) -> int:
    """Remove ready messages in memory, then scheduled ones, as far as there is room; returns how many."""
    removed = 0
    need = REMOVAL_BYTES if queue.stored else 0
    places = range(max(min(most, queue.ready + len(queue.scheduled)), 0))
    for run in in_steps(state, queue, places, lambda _: need):
        messages = queue.backlog.take_head(len(run))
        state.schedule.unwatch(queue, messages)
        messages += state.schedule.release(queue, len(run) - len(messages))
        remove(state, queue, messages, reason)
        removed += len(messages)
    return removed


def detach_all(state: State, queue: Queue) -> tuple[list[Consumer], list[Message]]:
    """Detach the consumers of a queue that is about to be deleted; returns them, and what was landing or in delivery.

    Raises AlreadyInUse if the queue is the broker's own.
    """
    queue.check_public()
    messages = state.pending.landing_on(queue)
    for queues, run, page in state.pending.on_their_way() if queue.fanned else ():
        if queue in queues:
            arrival.enter_from_many(state, queue, run, page)
    queue.landing = 0
    if queue.tail is not None:
        queue.tail.expect_nothing()
    closed = list(queue.consumers)
    for consumer in closed:
        held = consumer.take_all()
        if not queue.non_destructive:  # there, a consumer's messages are still on the queue
            queue.delivering -= len(held)
            messages += held.values()
        consumer.closed = True
        state.selectors.remove(consumer)
        queue.detach(consumer, state.now)
        consumer.note(state.notes, "CONSUMER_CLOSED")
    for reservation in queue.reservations:
        kept = reservation.stand_in.settle_all()
        queue.delivering -= len(kept)
        messages += kept
    return closed, messages


def empty(state: State, queue: Queue, messages: list[Message]) -> LongWork:
    """Remove all messages of a queue that is being deleted, by name; `messages` are in none of its containers."""
    together = state.steps.at_most(REMOVED_TOGETHER)
    for reservation in queue.reservations:
        reservation.queue_gone()
    messages.reverse()
    while messages:
        some = messages[-together:]
        del messages[-together:]
        _delete(state, queue, some)
        yield REMOVE_COST * len(some)
    while queue.tail is not None and not queue.tail.empty:
        yield REMOVE_COST * upkeep.clear(state, queue, RemovalReason.DELETED, together, deleting=True)
    if queue.tail is not None:
        depage.drop(state, queue)  # nothing in memory is below a floor any more
    while queue.ready or queue.scheduled:
        some = queue.backlog.take_head(together)
        state.schedule.unwatch(queue, some)
        some += state.schedule.release(queue, together - len(some))
        _delete(state, queue, some)
        yield REMOVE_COST * len(some)
    state.dirty.pop(queue, None)
    state.dirty_later.pop(queue, None)
    state.unreached.pop(queue, None)


def _delete(state: State, queue: Queue, messages: list[Message]) -> None:
    recorded = 0
    for run in in_steps(state, queue, messages, removal_bytes):
        remove(state, queue, list(run), RemovalReason.DELETED)
        recorded += len(run)
    if recorded < len(messages):
        remove(state, queue, messages[recorded:], RemovalReason.DELETED, recorded=False)
