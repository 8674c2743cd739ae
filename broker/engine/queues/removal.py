"""Removes messages: by name, once, and recorded in the journal (promise P3).

`remove` is the only place where a message is given up.  The caller has already taken it out of its container (backlog,
schedule, consumer).  Here the removal is journalled and counted, the segment with the message's record is released, and
its memory is no longer charged.  (`upkeep.clear_rows` does the same for messages that are only on disk.)

Many messages that no consumer has acknowledged are removed `in_steps`, oldest first: each step asks the journal for
room before anything changes, and may free a segment for later ones.  Messages without room stay on their queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues.queue import Consumer, Queue, Reservation
from broker.engine.queues.rules.queue_rules import NO_RULES
from broker.engine.queues.settling import ACKNOWLEDGED, is_long, settle_in_steps
from broker.engine.queues.state import State
from store.errors import JournalFull
from store.record import REMOVAL_BYTES, RemovalReason

T = TypeVar("T")

#: The most messages in one record of removals.
REMOVE_RUN_MAX: Final = 8192

#: Bytes of a record of removals without those of each message, and of its queue's definition.
_RECORD_BYTES: Final = 512


def in_steps(state: State, queue: Queue, items: Sequence[T], need: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Yield items, each of which `need`s some bytes to be recorded, in runs for which the journal has room.

    Ends before the first one that finds none.  Each run is to be recorded before the next one is asked for.
    """
    at, most = 0, REMOVE_RUN_MAX
    while at < len(items):
        run = items[at : at + most]
        nbytes = sum(map(need, run))
        if (len(run) == 1 or nbytes <= state.journal.reserved_bytes) and has_room(state, queue, nbytes):
            yield run
            at += len(run)
        elif len(run) == 1:
            return
        else:
            most = len(run) // 2


def has_room(state: State, queue: Queue, nbytes: int) -> bool:
    """Whether the journal has room for removals from a queue; a commit has reserved all of its room beforehand."""
    if not (nbytes and queue.durable) or state.atomic:
        return True
    try:
        state.journal.reserve(nbytes + _RECORD_BYTES, essential=True)
    except JournalFull:
        return False
    return True


def report_no_room(state: State, id: int, **where: str) -> None:
    """Report that the journal has no room for a message to leave; once until it has room for new ones again."""
    if not state.full_reported:
        state.full_reported = True
        state.report("move.disk_full", **where, message=id)


def removal_bytes_of(stored: list[Message]) -> int:
    """The bytes of one record of the removal of these messages, which are stored."""
    return _RECORD_BYTES + REMOVAL_BYTES * len(stored) if stored else 0


def removal_bytes(message: Message) -> int:
    """The bytes of a message's removal from a durable queue in the journal."""
    return REMOVAL_BYTES if message.segment else 0


def remove(
    state: State,
    queue: Queue,
    messages: list[Message],
    reason: RemovalReason,
    *,
    recorded: bool = True,
    overtakes: bool = False,
) -> None:
    """Record and count that these messages have left the queue, and forget them.

    Not `recorded`: they leave with the queue, whose deletion is the record of that.  `overtakes`: the record goes
    before the held entry; what follows from their leaving does not, such as what a producer does that has room again.
    """
    state.totals.count_left(queue, reason, len(messages))
    if queue.states:
        for message in messages:
            queue.states.pop(message.id, None)
    if queue.acquired:
        for message in messages:
            queue.acquired.pop(message.id, None)
    if queue.reserved:
        for reservation, reserved in take_reserved(queue, messages).items():
            reservation.settled([message.id for message in reserved])
    if queue.rules is not NO_RULES:
        queue.forget(messages)
    if queue.durable:
        stored = [m.id for m in messages if m.segment]
        if stored:
            queue.stored -= len(stored)
            assert queue.stored >= 0, "all of them were counted when they were stored"
            if queue.journalled:
                queue.journalled.difference_update(stored)
            if overtakes:
                with state.pending.overtake():
                    state.ledger.removed(queue, stored, reason)
            elif recorded:
                state.ledger.removed(queue, stored, reason)
    _forget(state, messages)


def take_reserved(queue: Queue, messages: list[Message]) -> dict[Reservation, list[Message]]:
    """End the reservations of these messages; returns those that were reserved, by reservation."""
    found: dict[Reservation, list[Message]] = {}
    pop = queue.reserved.pop
    for message in messages:
        reservation = pop(message.id, None)
        if reservation is not None:
            found.setdefault(reservation, []).append(message)
    return found


def settle_acknowledged(state: State) -> None:
    """Remove all messages acknowledged since the last call: one record for each consumer, for all its calls."""
    if not state.acknowledged:
        return
    acknowledged, state.acknowledged = state.acknowledged, {}
    for consumer, messages in acknowledged.items():
        consumer.settled += len(messages)
        if is_long(state, messages, ACKNOWLEDGED) and not consumer.queue.non_destructive:
            settle, transport = partial(consume, state, consumer), consumer.sink.transport
            settle_in_steps(state, consumer.queue, messages, settle, ACKNOWLEDGED, transport)
        else:
            consume(state, consumer, messages)


def consume(state: State, consumer: Consumer, messages: list[Message]) -> None:
    """Remove acknowledged deliveries, unless the queue is non-destructive."""
    queue = consumer.queue
    state.dirty[queue] = None
    if queue.non_destructive:
        return
    queue.delivering -= len(messages)
    assert queue.delivering >= 0, "they were with the consumer"
    if state.tracer is not None:
        state.tracer.acknowledged(queue, messages)
    reason = RemovalReason.FORWARDED if consumer.forwards else RemovalReason.CONSUMED
    held = state.pending.held
    if held is None or state.atomic:
        remove(state, queue, messages, RemovalReason.DELETED if queue.deleted else reason)
    elif _may_overtake(state, consumer):
        remove(state, queue, messages, reason, overtakes=True)
    else:
        with held.recording_for(state.journal, consumer.sink.transport):
            remove(state, queue, messages, RemovalReason.DELETED if queue.deleted else reason)


def _may_overtake(state: State, consumer: Consumer) -> bool:
    """Whether the removal of acknowledged deliveries may be recorded before the held entry (`held_entry`)."""
    queue = consumer.queue
    if queue.deleted or queue.rules is not NO_RULES or queue.reserved or queue.id in state.ledger.touched:
        return False
    held = state.pending.held
    if held is None or consumer.sink.journals_deliveries(consumer):
        return False
    # Else what belongs to this, such as the packet identifier that is released, may be in that entry.
    return held.acknowledgements_may_overtake(state.journal, consumer.sink.transport)


class _Share:
    """The bytes and number of those messages that belong to one address."""

    __slots__ = ("count", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.count = 0


def _forget(state: State, messages: list[Message]) -> None:
    """Drop one reference to each message; those without any left are released in the journal and discharged."""
    refer = state.journal.refer
    segment = released = 0
    shares: dict[str, _Share] = {}  # by address
    header: MessageHeader | None = None
    share = _Share()
    for message in messages:
        message.refs -= 1
        if message.segment != segment:
            if segment:
                refer(segment, released=released)
            segment, released = message.segment, 0
        if message.refs:
            continue
        if segment:
            released += 1
        if message.header is not header:
            header = message.header
            known = shares.get(header.address)
            share = known or _Share()
            if known is None:
                shares[header.address] = share
        share.nbytes += message.size
        share.count += 1
    if segment:
        refer(segment, released=released)
    for name, share in shares.items():
        state.room.discharge(name, share.nbytes, share.count)
