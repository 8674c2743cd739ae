"""How a message leaves: by name, once, and in the journal (promise P3).

`remove` is the only place where a message is given up.  The caller has already taken it out of the container where it
was (backlog, schedule, consumer); here the journal learns of it, the segment that holds its record is released, and
the memory it was charged for is given back.
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
            if not queue.deleted:  # else settled by a transaction that outlived the queue
                journal.ensure_defined(queue.id)
            journal.add(record.removed(queue.id, reason, stored))
    _forget(state, messages)


def take_reserved(queue: Queue, messages: list[Message]) -> dict[Reservation, list[Message]]:
    """Of these messages, those that are reserved, by whom; from now on they are not."""
    found: dict[Reservation, list[Message]] = {}
    pop = queue.reserved.pop
    for message in messages:
        reservation = pop(message.id, None)
        if reservation is not None:
            found.setdefault(reservation, []).append(message)
    return found


def settle_acknowledged(state: State) -> None:
    """Remove what was acknowledged since the last call: a consumer's deliveries in one record, however it said so."""
    if not state.acknowledged:
        return
    acknowledged, state.acknowledged = state.acknowledged, {}
    for consumer, messages in acknowledged.items():
        consumer.settled += len(messages)
        consume(state, consumer, messages)


def consume(state: State, consumer: Consumer, messages: list[Message]) -> None:
    """Deliveries were acknowledged: they leave, unless the queue keeps its messages."""
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
    """What an address has of some messages: their bytes, and how many they are."""

    __slots__ = ("count", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.count = 0


def _forget(state: State, messages: list[Message]) -> None:
    """Drop one reference to each message; those without any are given back to the journal and to their address."""
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
    """So many messages of an address, of together `size` bytes, are no longer in memory."""
    state.usage.bytes -= size
    state.usage.messages -= count
    address = state.addresses.get(name)
    if address is not None:  # else deleted while a queue on a wildcard address still held its messages
        address.size_bytes -= size
        address.size_messages -= count
    if state.blocking:
        unblock(state)


def unblock(state: State) -> None:
    """Let producers go on whose address has room: its own messages left, or others' that filled the memory."""
    if state.usage.full:
        return
    waiting: dict[Producer, None] = {}
    for address in [a for a in state.blocking if not a.blocks]:
        del state.blocking[address]
        waiting |= address.blocked
        address.blocked = {}
    release(state, waiting)


def release(state: State, waiting: dict[Producer, None]) -> None:
    """Let these producers go on, but for those that wait for another address too."""
    for address in state.blocking:
        for producer in waiting.keys() & address.blocked.keys():
            del waiting[producer]
    for producer in waiting:
        try:
            producer.unblock()
        except BaseException as error:
            state.blame(producer.transport, error)


def stop_waiting(state: State, producer: Producer) -> None:
    """A producer has gone: it waits for no room any more."""
    for address in state.blocking:
        address.blocked.pop(producer, None)
    state.usage.disk.waiting.pop(producer, None)
