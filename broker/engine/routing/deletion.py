"""Deletes queues with their messages and consumers, and addresses with their queues; many in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.queues import clearing
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import settle_acknowledged
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork, gathered

#: What it costs to delete a queue, and how many of an address are deleted at once.
DELETE_COST: Final = 50
DELETED_TOGETHER: Final = 64


def delete_queue(state: State, queue: Queue) -> None:
    """Delete a queue: remove its messages by name (deleted) and close its consumers.  No effect if it is deleted.

    Many messages leave in steps, after their queue.

    A client that loses its consumer may disconnect, and that deletes its other queues: another one of those that are
    being deleted may be among them.  Raises AlreadyInUse if the queue is the broker's own.
    """
    if queue.deleted:
        return
    state.mark = NO_WAY_BACK
    settle_acknowledged(state)
    many = queue.message_count > state.steps.at_most(clearing.REMOVED_TOGETHER)
    consumers, messages = clearing.detach_all(state, queue)
    work = clearing.empty(state, queue, messages)
    if many:
        state.registry.unbind(queue)
        state.steps.begin(("deleted", queue), work)
    else:
        for _ in work:
            pass
        state.registry.unbind(queue)
    for consumer in consumers:
        state.notify_closed(consumer, f"queue {queue.name} was deleted")


def deletion_cost(queue: Queue) -> int:
    """What it costs, in microseconds, to delete a queue with those of its messages that leave at once (`steps`)."""
    return DELETE_COST + clearing.REMOVE_COST * min(queue.message_count, clearing.REMOVED_TOGETHER)


def delete_named_queue(state: State, queue: Queue) -> None:
    """Delete a queue by name, as an operator does: senders attached to its address are notified too."""
    delete_queue(state, queue)
    state.registry.destination_lost(queue.address)


def delete_with_queues(state: State, address: Address, then: Callable[[], None] = lambda: None) -> None:
    """Delete an address and its queues, with those that clients make meanwhile: many in steps.  Then call `then`."""
    work = _deletion(state, address, then)
    if len(state.bindings.queues(address)) > state.steps.at_most(DELETED_TOGETHER):
        state.steps.begin(("deleted address", address), gathered(work))
    else:
        for _ in work:
            pass


def _deletion(state: State, address: Address, then: Callable[[], None]) -> LongWork:
    try:
        yield from delete_in_steps(state, address)
    finally:
        then()


def delete_in_steps(state: State, address: Address, delete: Callable[[State, Queue], None] | None = None) -> LongWork:
    """Delete an address and its queues, each by `delete`; at the end all those that clients have made meanwhile."""
    delete = delete or delete_queue
    for queue in list(state.bindings.queues(address)):  # there may be 100,000
        cost = deletion_cost(queue)
        delete(state, queue)
        yield cost
    for queue in list(state.bindings.queues(address)):
        delete(state, queue)
    state.registry.delete_address(address)
