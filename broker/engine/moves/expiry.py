"""Moves expired messages to the expiry address of the message's own address, or removes them by name.

Expiry addresses may form a circle: a message that expired `move.HOPS_MAX` times without an operator moving it becomes a
dead letter (`link-hops`).
"""

from __future__ import annotations

from functools import partial

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import ACTUAL_EXPIRY, Message
from broker.engine.moves import dead_letter, move
from broker.engine.queues import arrival
from broker.engine.queues.paging import rows
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import remove
from broker.engine.queues.state import State
from store import record
from store.counted import counted
from store.record import DeadLetterReason, RemovalReason


def expire(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Expire messages already taken out of the queue's containers.  Returns those that must stay on the queue.

    A message that expires on the expiry address itself is removed, by name like any other.
    """
    staying: list[Message] = []
    expired = DeadLetterReason.EXPIRED.word
    for message in messages:
        home = state.charged(message.header.address)
        name = home.settings.expiry_address
        placed: move.Placed | None = None
        text = f"expired on {queue.name}, noticed {state.now - message.header.expiration} ms later"
        if queue.internal_owner is not None:
            queue.internal_owner.expired(message)
        elif name and name not in (queue.address.name, message.header.address):
            if move.hops(message) >= move.HOPS_MAX:
                staying += _end_circle(state, queue, message)
                continue
            target = dead_letter.target_of(
                state, name, message, automatic=home.settings.auto_create_expiry_resources, expiry=True
            )
            annotations = move.annotate(message, queue, reason=expired, text=text, now=state.now)
            annotations[ACTUAL_EXPIRY] = state.now
            placed = move.place_at(state, target, message, annotations)
            if placed is None:
                staying.append(message)
                continue
        elif "expiry" not in queue.address.warned:
            queue.address.warned |= {"expiry"}
            state.report("message.expired_unkept", queue=queue.name, message=message.id)
        queue.counters.expired += 1
        target_name = placed.address.name if placed is not None else ""
        dead_letter.note(state, "MESSAGE_EXPIRED", queue, message, target_name, expired, text)
        if placed is not None:
            move.move(state, queue, [placed], RemovalReason.EXPIRED, partial(_record_expiry, state, queue))
        else:
            _record_expiry(state, queue, message, None)
            remove(state, queue, [message], RemovalReason.EXPIRED)
    return staying


def _end_circle(state: State, queue: Queue, message: Message) -> list[Message]:
    """End a message's circle of expiry addresses: dead-letter it the first time, kill it if it comes round again."""
    hops = move.hops(message)
    text = f"moved {counted(hops, 'time')}, at last expired on {queue.name}: expiry addresses form a circle"
    reason = DeadLetterReason.LINK_HOPS
    name = dead_letter.settings_of(state, queue, message).dead_letter_address
    if hops == move.HOPS_MAX and name not in (None, "", queue.address.name, message.header.address):
        return dead_letter.send_to_dla(state, queue, [message], reason=reason, text=text, consumer=None)
    dead_letter.kill(state, queue, message, reason, text, None)
    return []


def _record_expiry(state: State, queue: Queue, message: Message, copy: Message | None) -> None:
    """Record the expiry of a message that was placed elsewhere or, without a copy, is removed."""
    if state.tracer is not None:
        state.tracer.expired(message, copy, queue)
    queue_id = move.recorded_queue(state, queue, message, copy)
    if queue_id is None:
        return
    state.journal.add(
        record.expired(
            queue_id=queue_id,
            old_id=message.id,
            new_id=copy.id if copy is not None else 0,
            enqueued=message.header.timestamp,
            expiration=message.header.expiration,
            attempts=queue.delivery_count(message.id),
            source=message.header.expiry_source,
            consumers=queue.attached,
            address=message.header.address,
        )
    )


def expire_due(state: State, limit: int) -> bool:
    """Expire at most `limit` due messages in memory; True if there may be more."""
    due = state.expiries.pop_due(state.now, limit)
    by_queue: dict[Queue, list[Message]] = {}
    for queue, message in due:
        queue.backlog.discard(message)
        queue.expiring -= 1
        by_queue.setdefault(queue, []).append(message)
    for queue, messages in by_queue.items():
        if queue.kind is not None:
            queue.kind.left(messages)  # before the copies of others may arrive there
    for queue, messages in by_queue.items():
        arrival.keep_for_later(state, queue, expire(state, queue, messages))
    return len(due) == limit


def expire_paged(state: State, limit: int) -> bool:
    """Expire about `limit` due messages on disk; True if there may be more."""
    expired = 0
    while expired < limit:
        due = state.paged_expiries.pop_due(state.now, 1)
        if not due:
            return False
        queue, chunk = due[0]
        chunk.expires = 0
        late = chunk.due(state.now)[:limit]
        try:
            found = rows.read(state, queue, chunk, late)
        except NotReadable as error:
            state.report("paging.failed", queue=queue.name, error=str(error))
            rows.watch(state, queue, chunk, state.now + RETRY_MS)
            continue
        messages = rows.claim(state, queue, chunk, found)
        rows.watch(state, queue, chunk, chunk.next_expiration())
        expired += len(messages)
        arrival.keep_for_later(state, queue, expire(state, queue, messages))
    return True
