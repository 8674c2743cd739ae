"""Moves expired messages to the expiry address of the message's own address, or removes them by name.

On a full disk, those for which the journal has no room stay on their queue, undelivered, and are tried again later.

Any number may expire at the same moment: as many as the tick's budget allows do so in it, and few bytes of them while
much waits for the disk (`Ticks`): else everybody's confirmations would wait behind all of their copies.

Expiry addresses may form a circle: a message that expired `move.HOPS_MAX` times without an operator moving it becomes a
dead letter (`link-hops`).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import ACTUAL_EXPIRY, Message
from broker.engine.moves import dead_letter, move
from broker.engine.queues import arrival
from broker.engine.queues.address import Address
from broker.engine.queues.death import Death
from broker.engine.queues.paging import rows
from broker.engine.queues.paging.depage import READ_COST, RETRY_MS
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import in_steps, removal_bytes, remove, report_no_room
from broker.engine.queues.state import State
from store.counted import counted
from store.record import EXPIRED_BYTES, DeadLetterReason, RemovalReason

#: How many, and how many bytes beyond one message, expire together at most.
EXPIRED_TOGETHER: Final = 64
BYTES_TOGETHER: Final = 256 << 10

#: A message that moves is matched with the filters of its target to see whether any queue keeps it, and as it enters.
MATCHED_TIMES: Final = 2

#: What it costs to end one (`queues.steps`); a move costs `move.MOVE_COST`.
END_COST: Final = 6


def expire(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Expire messages already taken out of the queue's containers.  Returns those that must stay on the queue.

    A message that expires on the expiry address itself is removed, by name like any other.
    """
    staying: list[Message] = []
    moving: list[Message] = []
    ending: list[Message] = []
    for message in messages:
        name = state.room.charged(message.header.address).settings.expiry_address
        if queue.internal_owner is not None or not name or name in (queue.address.name, message.header.address):
            ending.append(message)
        elif move.hops(message) >= move.HOPS_MAX:
            staying += _end_circle(state, queue, message)
        else:
            moving.append(message)
    return staying + _move(state, queue, moving) + _end(state, queue, ending)


def _move(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Move expired messages to their expiry addresses.  Returns those for which there is no room or no queue."""
    staying: list[Message] = []
    tried = 0
    for run in in_steps(state, queue, messages, _bytes_to_move):
        staying += [message for message in run if not _moved(state, queue, message)]
        tried += len(run)
    return staying + _without_room(state, queue, messages[tried:])


def _moved(state: State, queue: Queue, message: Message) -> bool:
    settings = state.room.charged(message.header.address).settings
    name, automatic = settings.expiry_address, settings.auto_create_expiry_resources
    assert name, "it has an expiry address"
    target = dead_letter.target_of(state, name, message, automatic=automatic, expiry=True)
    annotations = move.annotate(message, queue, _death(state, queue, message), state.now)
    annotations[ACTUAL_EXPIRY] = state.now
    placed = move.place_at(state, target, message, annotations)
    if placed is None:
        return False
    _note(state, queue, message, target.name)
    move.move(state, queue, [placed], RemovalReason.EXPIRED, partial(_record_expiry, state, queue))
    return True


def _bytes_to_move(message: Message) -> int:
    """At least the bytes in the journal of an expiry with a copy."""
    needed = removal_bytes(message)
    return needed and needed + EXPIRED_BYTES + message.size


def _without_room(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Report messages for which the journal has no room, and return them."""
    if messages:
        report_no_room(state, messages[0].id, queue=queue.name)
    return messages


def _end(state: State, queue: Queue, messages: list[Message]) -> list[Message]:
    """Remove expired messages that no expiry address keeps.  Returns those for which the journal has no room."""
    ended = 0
    for run in in_steps(state, queue, messages, _bytes_needed):
        for message in run:
            if queue.internal_owner is not None:
                queue.internal_owner.expired(message)
            elif "expiry" not in queue.address.warned:
                queue.address.warned |= {"expiry"}
                state.report("message.expired_unkept", queue=queue.name, message=message.id)
            _note(state, queue, message, "")
            _record_expiry(state, queue, message, None)
        remove(state, queue, list(run), RemovalReason.EXPIRED)
        state.steps.spend(END_COST * len(run))
        ended += len(run)
    return _without_room(state, queue, messages[ended:])


def _bytes_needed(message: Message) -> int:
    """The bytes in the journal of an expiry without a copy."""
    needed = removal_bytes(message)
    return needed and needed + EXPIRED_BYTES + len(message.header.address.encode())


def _note(state: State, queue: Queue, message: Message, target: str) -> None:
    dead_letter.note(state, "MESSAGE_EXPIRED", queue, message, target, _death(state, queue, message))


def _death(state: State, queue: Queue, message: Message) -> Death:
    late = state.now - message.header.expiration
    return Death(DeadLetterReason.EXPIRED, f"expired on {queue.name}, noticed {late} ms later")


def _end_circle(state: State, queue: Queue, message: Message) -> list[Message]:
    """End a message's circle of expiry addresses: dead-letter it the first time, kill it if it comes round again."""
    hops = move.hops(message)
    text = f"moved {counted(hops, 'time')}, at last expired on {queue.name}: expiry addresses form a circle"
    death = Death(DeadLetterReason.LINK_HOPS, text)
    name = dead_letter.settings_of(state, queue, message).dead_letter_address
    if hops == move.HOPS_MAX and name not in (None, "", queue.address.name, message.header.address):
        return dead_letter.send_to_dla(state, queue, [message], death)
    return [] if dead_letter.kill(state, queue, message, death) else [message]


def _record_expiry(state: State, queue: Queue, message: Message, copy: Message | None) -> None:
    """Record the expiry of a message that was placed elsewhere or, without a copy, is removed."""
    if state.tracer is not None:
        state.tracer.expired(message, copy, queue)
    state.ledger.expired(queue, message, copy)


def expire_due(state: State) -> bool:
    """Expire due messages in memory, as far as the budget and the disk allow; True if there may be more."""
    while state.steps.left > 0:
        due = _pop_due(state, _most(state, move.MOVE_COST))
        if not due:
            return False
        _expire_together(state, due)
        if state.pending.disk_is_busy:
            break
    return True


def _pop_due(state: State, most: int) -> list[tuple[Queue, Message]]:
    due: list[tuple[Queue, Message]] = []
    nbytes, left = 0, state.steps.left
    while len(due) < most and nbytes < BYTES_TOGETHER and left > 0:
        next_due = state.schedule.expiries.pop_due(state.now, 1)
        if not next_due:
            break
        due += next_due
        message = next_due[0][1]
        nbytes += message.size
        left -= move.MOVE_COST + _match_cost(state, state.room.charged(message.header.address))
    return due


def _match_cost(state: State, address: Address) -> int:
    """What it costs to match an expired message of an address with the filters of its expiry address.

    There may be thousands: one for each address whose messages expire (`auto-create-expiry-resources`).
    """
    if not state.bindings.filtering:
        return 0
    target = state.addresses.get(address.settings.expiry_address or "")
    return MATCHED_TIMES * state.bindings.match_cost(target) if target is not None else 0


def _most(state: State, cost: int) -> int:
    """Return how many may expire together, if each moves at this cost: the last ones of a tick must fit its budget."""
    return max(min(EXPIRED_TOGETHER, state.steps.left // cost), 1)


def _expire_together(state: State, due: list[tuple[Queue, Message]]) -> None:
    by_queue: dict[Queue, list[Message]] = {}
    for queue, message in due:
        queue.backlog.discard(message)
        queue.expiring -= 1
        by_queue.setdefault(queue, []).append(message)
    for queue in [queue for queue in by_queue if queue.deleted]:
        remove(state, queue, by_queue.pop(queue), RemovalReason.DELETED)
    for queue, messages in by_queue.items():
        queue.forget(messages)  # before the copies of others may arrive there
    for queue, messages in by_queue.items():
        arrival.hold_for_retry(state, queue, expire(state, queue, messages))


def expire_paged(state: State) -> bool:
    """Expire due messages on disk, as far as the budget and the disk allow; True if there may be more."""
    while state.steps.left > 0:
        due = state.schedule.paged_expiries.pop_due(state.now, 1)
        if not due:
            return False
        queue, chunk = due[0]
        chunk.expires = 0
        if queue.deleted:  # all of it leaves
            continue
        late = chunk.due(state.now)[: _most(state, READ_COST + move.MOVE_COST + _match_cost(state, queue.address))]
        state.steps.spend(READ_COST * len(late) + 1)
        try:
            expired = _expire_rows(state, queue, chunk, late)
            again = chunk.next_expiration() if expired else state.now + arrival.MOVE_RETRY_MS
        except NotReadable as error:
            state.report("paging.failed", queue=queue.name, error=str(error))
            again = state.now + RETRY_MS
        state.schedule.watch_chunk(queue, chunk, again)
        if state.pending.disk_is_busy:
            break
    return True


def _expire_rows(state: State, queue: Queue, chunk: Chunk, late: list[int]) -> bool:
    """Expire rows of a tail, for which there must be room before they enter memory; False: some stay.

    Raises NotReadable.
    """
    expired = 0
    for run in in_steps(state, queue, late, partial(_bytes_needed_on_disk, queue, chunk)):
        messages = rows.claim(state, queue, chunk, rows.read(state, queue, chunk, list(run)))
        expired += len(run)
        staying = expire(state, queue, messages)
        arrival.hold_for_retry(state, queue, staying)
        if staying:
            return False
    if expired < len(late):
        report_no_room(state, chunk.ids[late[expired]], queue=queue.name)
    return expired == len(late)


def _bytes_needed_on_disk(queue: Queue, chunk: Chunk, row: int) -> int:
    """About the bytes in the journal of the expiry of a message in a tail."""
    needed = chunk.removal_bytes(row)
    if needed and queue.address.settings.expiry_address:
        needed += chunk.sizes[row]
    return needed and needed + EXPIRED_BYTES + len(queue.address.name)
