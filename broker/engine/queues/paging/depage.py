"""Reads the tail back to memory: chunk by chunk in order, or the messages that match selectors.

In order, chunks are read while there are few messages in memory (a quarter of what `max-read-page-bytes` and
`max-read-page-messages` allow), and always if there is nothing in memory for a consumer with credit.  On a queue with
message groups they are read up to the full limits, as the messages in memory may be for other consumers.

Deliveries count as read until they are settled: at the full limits nothing more is read for a consumer that has some,
and beyond them it gets none of those in memory.  One that has none always gets more, whatever others hold.

For a consumer with a selector the tail itself is searched, each row once; `Tail.seen` records how far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import MESSAGE_OVERHEAD_BYTES, Message
from broker.engine.queues.cursors import MATCH_COST, PRIORITIES
from broker.engine.queues.grouped import GroupedBacklog
from broker.engine.queues.paging.rows import claim, claim_all, read
from broker.engine.queues.paging.tail import Chunk, Tail
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.room import is_full, may_page
from broker.engine.queues.state import State
from broker.engine.queues.steps import LongWork

#: Messages in memory at which a queue without max-read-page-messages reads no more: those just read are delivered
#: while they are still in the processor's cache, which saves a tenth of the time.
READY_MESSAGES: Final = 1024

#: How long after a read that the system refused the next one is tried, in ms: a burst of connections that has used up
#: all file descriptors is usually over by then, and a failing disk is not kept busy.
RETRY_MS: Final = 1_000

#: How long consumers must have been without messages before it is reported that they have to acknowledge, in ms.
HELD_UP_MS: Final = 60_000

#: What reading a message of the tail costs.
READ_COST: Final = 5

#: How many scheduled messages of the tail are read back in a step.
SCHEDULED_TOGETHER: Final = 256


def refill(state: State, queue: Queue, takers: list[Consumer]) -> list[Consumer]:
    """Read back messages for a queue's consumers, before the queue is served; returns those that may get some."""
    tail = queue.tail
    assert tail is not None, "the queue has a tail"
    if tail.empty:
        drop(state, queue)
        return takers
    if len(tail.seen) > len(queue.consumers):
        present = {consumer.id for consumer in queue.consumers}
        tail.seen = {id: seen for id, seen in tail.seen.items() if id in present}
    if not tail.failing:
        try:
            _bring(state, queue, tail, takers)
        except NotReadable as error:
            _try_later(state, queue, tail, error)
    set_floors(queue, tail)
    if tail.messages and _is_limit(queue, tail, queue.delivering):
        return [consumer for consumer in takers if not consumer.unacked]  # what is read for one is not for the others
    return takers


def _bring(state: State, queue: Queue, tail: Tail, takers: list[Consumer]) -> None:
    grouped = isinstance(queue.backlog, GroupedBacklog)
    for consumer in takers:
        if grouped or consumer.predicate is None:
            _fill(state, queue, tail, consumer)
    if not grouped:
        for consumer in takers:
            if consumer.predicate is not None:
                _search(state, queue, tail, consumer)


def _try_later(state: State, queue: Queue, tail: Tail, error: NotReadable) -> None:
    """Retry later, after the tail could not be read; only the queue's consumers wait."""

    def again() -> None:
        tail.failing = False
        state.dirty[queue] = None

    tail.failing = True
    state.report("paging.failed", queue=queue.name, error=str(error))
    state.alarms.at(("paging", queue.id), state.now + RETRY_MS, again)


def more(state: State, queue: Queue, takers: list[Consumer]) -> bool:
    """Whether, after a queue was served, its tail may have more for consumers that still have credit."""
    tail = queue.tail
    if tail is None or tail.high < 0 or tail.failing:
        return False
    grouped = isinstance(queue.backlog, GroupedBacklog)
    for consumer in takers:
        if consumer.credit <= 0 or consumer.paused:
            continue
        if _has_enough(queue, tail, consumer):
            _note_held_up(state, queue, tail)
            continue
        if grouped:
            chunk = tail.first()
            if chunk is not None and not _is_enough_of_groups(queue, chunk):
                return True
        elif consumer.predicate is None or _unseen(tail, consumer) >= 0:
            return True
    return False


def drop(state: State, queue: Queue) -> None:
    """Drop an empty tail: the queue is wholly in memory again."""
    queue.tail = None
    del state.paged[queue]
    queue.backlog.floor = 0
    for consumer in queue.consumers:
        queue.backlog.set_floor(consumer.id, 0)


def unpage(state: State, queue: Queue) -> LongWork:
    """Read back the whole tail, for a queue that may not have one any more.  Raises NotReadable.

    Messages about to enter the tail will become ready in memory instead.
    """
    while (tail := queue.tail) is not None and not may_page(queue.attributes):
        tail.expect_nothing()
        if (chunk := tail.first()) is not None:
            yield READ_COST * len(load(state, queue, chunk))
        elif tail.scheduled:
            together = state.steps.at_most(SCHEDULED_TOGETHER)
            yield READ_COST * len(take_scheduled(state, queue, together, state.schedule.hold))
        else:
            drop(state, queue)


def take_scheduled(
    state: State, queue: Queue, count: int, use: Callable[[Queue, Message, int], None] | None = None
) -> list[Message]:
    """Remove and return at most `count` scheduled messages on disk; `use` gets each with its time.

    Raises NotReadable.
    """
    taken: list[Message] = []
    for chunk in queue.tail.scheduled_chunks() if queue.tail is not None and count > 0 else ():
        assert chunk.dues is not None
        found = read(state, queue, chunk, chunk.rows()[: count - len(taken)])
        due = {message.id: chunk.dues[row] for row, message in found}
        for message in claim(state, queue, chunk, found):
            taken.append(message)
            if use is not None:
                use(queue, message, due[message.id])
    return taken


def take_head(state: State, queue: Queue, count: int) -> list[Message]:
    """Remove and return the next ready messages in the order of delivery, in memory or paged.

    Fewer if the tail cannot be read for now: the queue is served again later.
    """
    tail = queue.tail
    if tail is not None:
        set_floors(queue, tail)
    taken = queue.backlog.take_head(count)
    while len(taken) < count and tail is not None and not tail.failing and (chunk := tail.first()) is not None:
        try:
            load(state, queue, chunk)
        except NotReadable as error:
            _try_later(state, queue, tail, error)
            break
        set_floors(queue, tail)
        taken += queue.backlog.take_head(count - len(taken))
    state.schedule.unwatch(queue, taken)
    return taken


def _fill(state: State, queue: Queue, tail: Tail, consumer: Consumer) -> None:
    while (chunk := tail.first()) is not None:
        if _is_enough(queue, chunk, parts=4) and queue.backlog.has_for(consumer.id, chunk.priority, state.steps):
            return
        if isinstance(queue.backlog, GroupedBacklog) and _is_enough_of_groups(queue, chunk):
            return
        if _has_enough(queue, tail, consumer):
            return
        load(state, queue, chunk)
        following = tail.first()
        if following is not None and following.lowest:
            first, last = following.offsets[0], following.offsets[-1] + following.sizes[-1]
            state.pages.will_need(following.segments[0], first, max(last - first, following.bytes))


def _is_enough_of_groups(queue: Queue, chunk: Chunk) -> bool:
    """Whether memory holds all that may be read back, whoever it is for; what the chunk goes before does not count."""
    return _is_enough(queue, chunk, parts=1) and _is_enough(queue, chunk, queue.backlog.count(chunk.priority), parts=1)


def _is_enough(queue: Queue, chunk: Chunk, ready: int = -1, *, parts: int) -> bool:
    """Whether memory holds at least 1/`parts` of what may be read back; `ready` messages, if not all count."""
    if ready < 0:
        ready = queue.ready
    settings = queue.address.settings
    each = chunk.bytes // max(chunk.count, 1) + MESSAGE_OVERHEAD_BYTES
    most = settings.max_read_page_messages
    enough = READY_MESSAGES if most < 0 else most // parts
    return ready * each >= settings.max_read_page_bytes // parts or ready >= max(enough, 1)


def _has_enough(queue: Queue, tail: Tail, consumer: Consumer) -> bool:
    """Whether nothing is read for a consumer until it acknowledges: it has deliveries, and the queue's are too many."""
    return bool(consumer.unacked) and _is_limit(queue, tail, queue.ready + queue.delivering)


def _is_limit(queue: Queue, tail: Tail, held: int) -> bool:
    """Whether so many messages of a queue in memory are as many as may be read back."""
    settings, address = queue.address.settings, queue.address
    if 0 <= settings.max_read_page_messages <= held:
        return True
    nbytes, count = address.size_bytes, address.size_messages
    if not count:  # of a queue of a wildcard address: all is charged elsewhere
        chunk = tail.first()
        nbytes, count = (0, 1) if chunk is None else (chunk.bytes + MESSAGE_OVERHEAD_BYTES * chunk.count, chunk.count)
    return held * nbytes // count >= settings.max_read_page_bytes


def _note_held_up(state: State, queue: Queue, tail: Tail) -> None:
    """Report after a while that the queue's consumers hold all that may be read, unless they got more meanwhile."""
    delivered = queue.counters.delivered
    if tail.held_up == delivered:
        return

    def look() -> None:
        if queue.tail is tail and queue.counters.delivered == delivered and not queue.stopped:
            waiting = [each for each in queue.consumers if each.credit > 0 and not each.paused]
            if any([_has_enough(queue, tail, each) for each in waiting]):
                state.report("paging.held_up", queue=queue.name, messages=queue.delivering)

    tail.held_up = delivered
    state.alarms.at(("held up", queue.id), state.now + HELD_UP_MS, look)


def has_room_for(state: State, queue: Queue, chunk: Chunk, rows: list[int]) -> bool:
    """Whether memory has room for rows of a chunk of scheduled messages."""
    nbytes = sum([chunk.sizes[row] for row in rows]) + MESSAGE_OVERHEAD_BYTES * len(rows)
    address = queue.address
    return (
        state.usage.fits(nbytes) and not is_full(address, len(rows), nbytes) and not _is_enough(queue, chunk, parts=1)
    )


def load(state: State, queue: Queue, chunk: Chunk) -> list[Message]:
    """Read a whole chunk back to memory, behind the messages there."""
    messages = claim_all(state, queue, chunk)
    state.steps.spend(READ_COST * len(messages))
    if messages:
        make_ready(state, queue, messages, chunk)
    return messages


def make_ready(state: State, queue: Queue, messages: list[Message], chunk: Chunk) -> None:
    """Put messages of a chunk, which have left it, into memory."""
    if not queue.grouped and queue.attributes.groups and any(message.header.group for message in messages):
        queue.begin_groups()
    queue.backlog.put_back(messages)
    if chunk.expirations is not None:
        state.schedule.watch(queue, messages)


def _search(state: State, queue: Queue, tail: Tail, consumer: Consumer) -> None:
    """Search the tail for a consumer, if memory has nothing for it, within the budget of the tick."""
    assert consumer.predicate is not None, "a consumer without a predicate needs no search"
    while state.steps.left > 0:
        priority = _unseen(tail, consumer)
        if priority < 0 or queue.backlog.has_for(consumer.id, priority, state.steps):
            break
        if _has_enough(queue, tail, consumer):
            break
        seen = tail.seen.setdefault(consumer.id, [(0, 0)] * PRIORITIES)
        chunk, start = _next_chunk(tail, priority, seen[priority])
        found = read(state, queue, chunk, [row for row in chunk.rows() if row >= start])
        state.steps.spend((READ_COST + MATCH_COST) * len(found) + 1)
        seen[priority] = (chunk.serial, len(chunk.ids))
        wanted = [(row, message) for row, message in found if consumer.predicate(message)]
        if wanted:
            make_ready(state, queue, claim(state, queue, chunk, wanted), chunk)


def _unseen(tail: Tail, consumer: Consumer) -> int:
    """The highest priority not wholly searched for a consumer with a selector, -1 if all are."""
    seen = tail.seen.get(consumer.id)
    for priority in range(tail.high, -1, -1):
        level = tail.levels[priority]
        if level and (seen is None or (level[-1].serial, len(level[-1].ids)) > seen[priority]):
            return priority
    return -1


def _next_chunk(tail: Tail, priority: int, seen: tuple[int, int]) -> tuple[Chunk, int]:
    """The first chunk that was not wholly searched, and from which row on."""
    serial, row = seen
    for chunk in tail.levels[priority]:
        if chunk.serial > serial:
            return chunk, 0
        if chunk.serial == serial and len(chunk.ids) > row:
            return chunk, row
    raise AssertionError("something has not been seen")


def set_floors(queue: Queue, tail: Tail) -> None:
    """Set the priority below which each consumer gets nothing from memory, as the tail has or may have higher ones."""
    grouped = isinstance(queue.backlog, GroupedBacklog)
    high = max(tail.high, 0)
    queue.backlog.floor = high
    for consumer in queue.consumers:
        if grouped or consumer.predicate is None:
            queue.backlog.set_floor(consumer.id, high)
        else:
            queue.backlog.set_floor(consumer.id, max(_unseen(tail, consumer), 0))
