"""Puts new messages into the tails of their queues.

A durable message enters the tail once it is durable; its record is in the journal anyway.  A non-durable one is written
to a scratch file; if that fails, it stays in memory within the tail, and the senders to its address wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.engine.model.attributes import PLAIN
from broker.engine.model.message import Message, MessageHeader, PagedMessage
from broker.engine.queues.paging.tail import Landing, Tail
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import pageable
from broker.engine.queues.state import State
from store import record
from store.body import LargeBody

#: How often a scratch file that could not be written is tried again, in ms.
SCRATCH_RETRY_MS: Final = 5_000

_ALARM: Final = "scratch"


def choose(state: State, header: MessageHeader, queues: list[Queue], *, full: bool) -> list[Queue]:
    """The queues in whose tails new messages belong; `full`: they are to wait on disk (`room`).

    On a queue with `messages_max`, non-durable messages do not wait on disk (`room`), unless durable ones that came
    before them do.
    """
    scheduled = header.scheduled > state.now  # then nothing has to go behind what is in the tail
    if full and header.durable:
        return [each for each in queues if (each.attributes is PLAIN and not each.internal_owner) or pageable(each)]
    return [
        each
        for each in queues
        if ((full and each.messages_max < 0) or (not scheduled and _is_active(each))) and pageable(each)
    ]


def _is_active(queue: Queue) -> bool:
    """Whether messages are in the tail, or on their way: others have to go behind them."""
    return queue.paging > 0 or (queue.tail is not None and queue.tail.active)


def tail_of(state: State, queue: Queue) -> Tail:
    """The queue's tail, created if it has none."""
    if queue.tail is None:
        queue.tail = Tail(queue.address)
        state.paged[queue] = None
    return queue.tail


def expect(
    state: State, queue: Queue, admitted: list[Message], run: list[Message], header_bytes: int, end: int
) -> None:
    """Note that the first messages of a run enter the tail once durable; `end` is the run's end in the journal."""
    tail_of(state, queue).expect(place(state, admitted, run, header_bytes, end))


def place(state: State, admitted: list[Message], run: list[Message], header_bytes: int, end: int) -> Landing:
    """The place of the first messages of a run in the journal, where its end is `end`."""
    fixed = record.MESSAGE_FIXED.size + header_bytes
    sizes = [fixed + len(message.head) + len(message.body) for message in run]
    landing = Landing(admitted, run[0].segment, end - sum(sizes), sizes[: len(admitted)])
    large = isinstance(run[0].body, LargeBody)  # whose record has no body
    assert large or landing.offset >= 0, "its records lie in one segment, one behind the other"
    if state.pending.held is not None and not state.journal.is_overtaking:
        state.pending.held.paged.append(landing)
    return landing


def expect_scratch(state: State, queue: Queue, messages: list[Message]) -> None:
    """Note that messages which are not stored enter the tail behind a run that must be durable first."""
    tail_of(state, queue).expect(Landing(messages, 0, 0, ()))


def enter(state: State, queue: Queue, messages: list[Message], landing: Landing | None) -> None:
    """Put messages of one run into the tail, ready or scheduled.

    `landing` is None for messages that the journal does not have.
    """
    header = messages[0].header
    tail = tail_of(state, queue)
    state.dirty[queue] = None
    due = header.scheduled if header.scheduled > state.now else 0
    if not queue.address.paged_messages:
        state.report("address.full.paging", address=queue.address.name, bytes=state.usage.bytes)
    if not isinstance(messages[0].body, bytes):  # only its object keeps the body's file, and it costs little memory
        keep(state, queue, tail, messages[0])
        return
    if landing is None or not landing.segment:
        segment, offset, sizes = write_scratch(state, messages)
        if not segment:
            state.report("paging.scratch_failed", address=header.address)
            _try_later(state)
    else:
        segment, offset, sizes = landing.segment, landing.offset, landing.sizes
    priority, expiration = header.priority, header.expiration
    for message, size in zip(messages, sizes, strict=True):
        if due:
            chunk = tail.schedule(priority, message.id, segment, offset, size, expiration, due=due, retry=False)
            state.schedule.hold_chunk(queue, chunk, due)
        else:
            chunk = tail.add(priority, message.id, segment, offset, size, expiration)
            if expiration:
                state.schedule.watch_chunk(queue, chunk, expiration)
        if segment:
            offset += size
        else:
            chunk.keep(len(chunk.ids) - 1, message)
    if segment:
        _let_go(state, header, messages)


def hold_back(state: State, queue: Queue, message: Message, due: int) -> bool:
    """Schedule a message of the queue on disk only, if memory is full and its record can be read there."""
    address = state.room.charged(message.header.address)
    if not state.room.is_tight(address) or not pageable(queue) or not isinstance(message.body, bytes):
        return False
    if message.segment:
        if not isinstance(message, PagedMessage) or not message.offset:
            return False  # it was never on disk only: such messages fit into memory when they came
        segment, offset, size = message.segment, message.offset, message.nbytes
    else:
        if not (isinstance(message, PagedMessage) or state.room.pages(address)):
            return False  # an address that does not page writes only what was on disk before
        segment, offset, sizes = write_scratch(state, [message])
        if not segment:
            return False
        size = sizes[0]
    header = message.header
    retry = due != header.scheduled
    tail = tail_of(state, queue)
    chunk = tail.schedule(header.priority, message.id, segment, offset, size, header.expiration, due=due, retry=retry)
    state.schedule.hold_chunk(queue, chunk, due)
    _let_go(state, header, [message])
    return True


def keep(state: State, queue: Queue, tail: Tail, message: Message) -> None:
    """Give a message a place in the tail but keep it in memory: its record is not read."""
    header = message.header
    chunk = tail.add(header.priority, message.id, 0, 0, message.size, header.expiration)
    if header.expiration:
        state.schedule.watch_chunk(queue, chunk, header.expiration)
    chunk.keep(len(chunk.ids) - 1, message)


def write_scratch(state: State, messages: list[Message]) -> tuple[int, int, Sequence[int]]:
    """Write a run to a scratch file; returns segment, offset and sizes, the first two 0 if that failed."""
    header = messages[0].header
    parts: list[bytes] = []
    lead = state.ledger.lead(header, [])
    record.encode_mixed(parts, [lead] * len(messages), messages)
    place = state.pages.write(parts, len(messages))
    if place is None:
        return 0, 0, [message.size for message in messages]
    return *place, [lead.nbytes + len(message.head) + len(message.body) for message in messages]


def _try_later(state: State) -> None:
    """Try the scratch file again from time to time: senders that wait for it send nothing that would."""
    state.alarms.at(_ALARM, state.now + SCRATCH_RETRY_MS, partial(_try_again, state))


def _try_again(state: State) -> None:
    if not state.usage.disk.full and state.pages.try_again():
        state.room.wake()
    else:
        _try_later(state)


def _let_go(state: State, header: MessageHeader, messages: list[Message]) -> None:
    """Release the messages of a run from memory for this queue: its tail holds their records from now on."""
    shared = size = 0
    segment = messages[0].segment
    for message in messages:
        message.refs -= 1
        if message.refs:
            shared += 1
        else:
            size += message.size
    if shared and segment:
        state.journal.space.hold(segment, shared)
    if shared < len(messages):
        state.room.discharge(header.address, size, len(messages) - shared)
