"""Removes messages: by name, once, and recorded in the journal (promise P3).

`remove` is the only place where a message is given up.  The caller has already taken it out of its container (backlog,
schedule, consumer).  Here the removal is journalled, the segment with the message's record is released, and its memory
is no longer charged.
"""

from __future__ import annotations

from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues.address import Producer
from broker.engine.queues.consumer import Consumer, Reservation
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store import record
from store.record import RemovalReason


def remove(state: State, queue: Queue, messages: list[Message], reason: RemovalReason) -> None:
    """Record that these messages have left the queue, and forget them."""
    if queue.states:
        for message in messages:
            queue.states.pop(message.id, None)
    if queue.acquired:
        for message in messages:
            queue.acquired.pop(message.id, None)
    if queue.reserved:
        for reservation, reserved in take_reserved(queue, messages).items():
            reservation.settled([message.id for message in reserved])
    if queue.kind is not None:
        queue.kind.left(messages)
    if queue.durable:
        stored = [m.id for m in messages if m.segment]
        if stored:
            queue.stored -= len(stored)
            if queue.journalled:
                queue.journalled.difference_update(stored)
            journal = state.journal
            if not queue.deleted:  # a transaction that outlived the queue may settle it
                journal.ensure_defined(queue.id)
            journal.add(record.removed(queue.id, reason, stored))
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
        consume(state, consumer, messages)


def consume(state: State, consumer: Consumer, messages: list[Message]) -> None:
    """Remove acknowledged deliveries, unless the queue is non-destructive."""
    queue = consumer.queue
    state.dirty[queue] = None
    if queue.non_destructive:
        return
    queue.delivering -= len(messages)
    if consumer.forwards:
        queue.counters.forwarded += len(messages)
        reason = RemovalReason.FORWARDED
    else:
        queue.counters.acknowledged += len(messages)
        reason = RemovalReason.CONSUMED
    if state.tracer is not None:
        state.tracer.acknowledged(queue, messages)
    remove(state, queue, messages, RemovalReason.DELETED if queue.deleted else reason)


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
        discharge(state, name, share.nbytes, share.count)


def discharge(state: State, name: str, size: int, count: int) -> None:
    """Count `count` messages of an address, of `size` bytes in all, as no longer in memory."""
    state.usage.bytes -= size
    state.usage.messages -= count
    state.uncharge(name, size, count)
    if state.blocking:
        unblock(state)


def unblock(state: State) -> None:
    """Unblock producers whose address has room again, now that messages have left it or the broker's memory."""
    if state.usage.full:
        return
    waiting: dict[Producer, None] = {}
    for address in [a for a in state.blocking if not a.blocks]:
        del state.blocking[address]
        waiting |= address.blocked
        address.blocked = {}
    release(state, waiting)


def release(state: State, waiting: dict[Producer, None]) -> None:
    """Unblock these producers, except those that also wait for another address."""
    for address in state.blocking:
        for producer in waiting.keys() & address.blocked.keys():
            del waiting[producer]
    for producer in waiting:
        try:
            producer.unblock()
        except BaseException as error:
            state.blame(producer.transport, error)


def stop_waiting(state: State, producer: Producer) -> None:
    """Forget a producer that has disconnected: it no longer waits for room."""
    for address in state.blocking:
        address.blocked.pop(producer, None)
    state.usage.disk.waiting.pop(producer, None)
