"""The tail comes back to memory: chunk by chunk in its order, or picked by selectors.

In order, chunks are read while the messages in memory are few (a quarter of what `max-read-page-bytes` and
`max-read-page-messages` allow), and always when there is nothing else for a consumer that wants something.  On a queue
with message groups they are read up to all of what is allowed: what is there may be for others.

A consumer with a selector looks through the tail itself, each row once; `Tail.seen` has how far it came.
"""

from __future__ import annotations

from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import MESSAGE_OVERHEAD_BYTES, Message
from broker.engine.queues import arrival
from broker.engine.queues.backlog import PRIORITIES
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.paging.rows import claim, claim_all, read
from broker.engine.queues.paging.tail import Chunk, Tail
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.types.grouped import GroupedBacklog

#: Messages in memory with which a queue without a limit of messages reads no more: what was just read is delivered
#: before the processor's cache has lost it, which is worth a tenth of the time.
READY_MESSAGES: Final = 1024

#: How long after a read that the system refused the next one comes, in ms: a burst of connections that has taken all
#: files is over by then, as a rule, and a disk that does not answer is not kept busy.
RETRY_MS: Final = 1_000

#: Chunks that selectors look at in one tick: some 20 ms.
SEARCHED_MAX: Final = 4


def refill(state: State, queue: Queue, takers: list[Consumer]) -> None:
    """Before a queue is served: bring back what its consumers are to get."""
    tail = queue.tail
    assert tail is not None, "the queue has a tail"
    if not tail.active:
        drop(state, queue)
        return
    grouped = isinstance(queue.selective, GroupedBacklog)
    if len(tail.seen) > len(queue.consumers):
        present = {consumer.id for consumer in queue.consumers}
        tail.seen = {id: seen for id, seen in tail.seen.items() if id in present}
    if not tail.failing:
        try:
            _bring(state, queue, tail, takers, grouped=grouped)
        except NotReadable as error:
            _try_later(state, queue, tail, error)
    _set_floors(queue, tail, grouped=grouped)


def _bring(state: State, queue: Queue, tail: Tail, takers: list[Consumer], *, grouped: bool) -> None:
    for consumer in takers:
        if grouped or consumer.predicate is None:
            _fill(state, queue, tail, consumer)
    if not grouped:
        budget = SEARCHED_MAX
        for consumer in takers:
            if consumer.predicate is not None:
                budget = _search(state, queue, tail, consumer, budget)


def _try_later(state: State, queue: Queue, tail: Tail, error: NotReadable) -> None:
    """The disk, or the system, does not let the tail be read: its consumers wait, and nobody else."""

    def again() -> None:
        tail.failing = False
        state.dirty[queue] = None

    tail.failing = True
    state.report("paging.failed", queue=queue.name, error=str(error))
    state.alarms.at(("paging", queue.id), state.now + RETRY_MS, again)


def more(queue: Queue, takers: list[Consumer]) -> bool:
    """After a queue was served: whether its tail may have more for those who could still take some."""
    tail = queue.tail
    if tail is None or tail.high < 0 or tail.failing:
        return False
    grouped = isinstance(queue.selective, GroupedBacklog)
    for consumer in takers:
        if consumer.credit <= 0 or consumer.paused:
            continue
        if grouped:
            chunk = tail.first()
            if chunk is not None and not _is_enough(queue, chunk, parts=1):
                return True
        elif consumer.predicate is None or _unseen(tail, consumer) >= 0:
            return True
    return False


def drop(state: State, queue: Queue) -> None:
    """The tail is empty: the queue is all in memory again."""
    queue.tail = None
    del state.paged[queue]
    queue.backlog.floor = 0
    if queue.selective is not None:
        for consumer in queue.consumers:
            queue.selective.set_floor(consumer.id, 0)


def unpage(state: State, queue: Queue) -> None:
    """Bring everything back, because the queue becomes one that cannot have a tail.  Raises NotReadable."""
    tail = queue.tail
    while tail is not None and (chunk := tail.first()) is not None:
        load(state, queue, chunk)


def take_head(state: State, queue: Queue, count: int) -> list[Message]:
    """The next ready messages in the order of delivery, wherever they are, taken out of the line."""
    taken = queue.take_head(count)
    tail = queue.tail
    while len(taken) < count and tail is not None and (chunk := tail.first()) is not None:
        load(state, queue, chunk)
        _set_floors(queue, tail, grouped=isinstance(queue.selective, GroupedBacklog))
        taken += queue.take_head(count - len(taken))
    arrival.unwatch(state, queue, taken)
    return taken


# -- in order ----------------------------------------------------------------------------------------------------------


def _fill(state: State, queue: Queue, tail: Tail, consumer: Consumer) -> None:
    while (chunk := tail.first()) is not None:
        if _is_enough(queue, chunk, parts=4) and _has(queue, consumer, chunk.priority):
            return
        if isinstance(queue.selective, GroupedBacklog) and _is_enough(queue, chunk, parts=1):
            return
        load(state, queue, chunk)
        following = tail.first()
        if following is not None and following.lowest:
            first, last = following.offsets[0], following.offsets[-1] + following.sizes[-1]
            state.pages.will_need(following.segments[0], first, max(last - first, following.bytes))


def _is_enough(queue: Queue, chunk: Chunk, *, parts: int) -> bool:
    """Whether memory has one of so many parts of what may be read back."""
    settings = queue.address.settings
    each = chunk.bytes // max(chunk.count, 1) + MESSAGE_OVERHEAD_BYTES
    most = settings.max_read_page_messages
    enough = READY_MESSAGES if most < 0 else most // parts
    return queue.ready * each >= settings.max_read_page_bytes // parts or queue.ready >= max(enough, 1)


def _has(queue: Queue, consumer: Consumer, priority: int) -> bool:
    """Whether there is something for the consumer in memory that goes before the tail."""
    if queue.selective is None:
        return queue.backlog.has(priority)
    return queue.selective.has_for(consumer.id, priority)


def load(state: State, queue: Queue, chunk: Chunk) -> list[Message]:
    """A whole chunk becomes ready in memory, behind what is there."""
    messages = claim_all(state, queue, chunk)
    if messages:
        _append(state, queue, messages, chunk)
    return messages


def _append(state: State, queue: Queue, messages: list[Message], chunk: Chunk) -> None:
    if not queue.grouped and queue.attributes.groups and any(message.header.group for message in messages):
        queue.begin_groups()
    queue.append(messages, chunk.priority)
    if chunk.expirations is not None:
        arrival.watch(state, queue, messages)


# -- by selectors ------------------------------------------------------------------------------------------------------


def _search(state: State, queue: Queue, tail: Tail, consumer: Consumer, budget: int) -> int:
    """Look for messages that the consumer takes, if memory has none for it; how many chunks more may be looked at."""
    assert consumer.predicate is not None, "who takes everything need not look"
    while budget > 0:
        priority = _unseen(tail, consumer)
        if priority < 0 or (queue.selective is not None and queue.selective.has_for(consumer.id, priority)):
            break
        seen = tail.seen.setdefault(consumer.id, [(0, 0)] * PRIORITIES)
        chunk, start = _next_chunk(tail, priority, seen[priority])
        budget -= 1
        found = read(state, queue, chunk, [row for row in chunk.rows() if row >= start])
        seen[priority] = (chunk.serial, len(chunk.ids))
        wanted = [(row, message) for row, message in found if consumer.predicate(message)]
        if wanted:
            _append(state, queue, claim(state, queue, chunk, wanted), chunk)
    return budget


def _unseen(tail: Tail, consumer: Consumer) -> int:
    """The highest priority of which a consumer with a selector has not seen everything, -1 if it has."""
    seen = tail.seen.get(consumer.id)
    for priority in range(tail.high, -1, -1):
        level = tail.levels[priority]
        if level and (seen is None or (level[-1].serial, len(level[-1].ids)) > seen[priority]):
            return priority
    return -1


def _next_chunk(tail: Tail, priority: int, seen: tuple[int, int]) -> tuple[Chunk, int]:
    """The first chunk that was not wholly seen, and from which row on."""
    serial, row = seen
    for chunk in tail.levels[priority]:
        if chunk.serial > serial:
            return chunk, 0
        if chunk.serial == serial and len(chunk.ids) > row:
            return chunk, row
    raise AssertionError("something has not been seen")


def _set_floors(queue: Queue, tail: Tail, *, grouped: bool) -> None:
    """What each consumer may not go below, because the tail has, or may have, something of a higher priority for it."""
    high = max(tail.high, 0)
    queue.backlog.floor = high
    if queue.selective is None:
        return
    for consumer in queue.consumers:
        if grouped or consumer.predicate is None:
            queue.selective.set_floor(consumer.id, high)
        else:
            queue.selective.set_floor(consumer.id, max(_unseen(tail, consumer), 0))
