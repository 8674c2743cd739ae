"""Operations on messages in a tail other than delivery and expiry: browsing, moving, purging."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues import reading
from broker.engine.queues.paging.rows import Row, claim, noted_in_memory, read, read_notes
from broker.engine.queues.paging.tail import Chunk, Tail
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import in_steps, remove
from broker.engine.queues.state import State
from broker.engine.queues.stored import Noted
from store.pages import SCRATCH_FIRST
from store.record import RemovalReason

#: Messages in memory that a step looks at for each on disk: one on disk costs some five times as much.
MEMORY_PART: Final = 4

#: Messages in delivery that are put in order together, and what that costs, in microseconds (`queues.steps`).
ORDERED_TOGETHER: Final = 1_024
ORDER_COST: Final = 700

#: Number of steps for which messages in memory are found at a time.
MEMORY_AHEAD: Final = 8


def waiting(state: State, queue: Queue) -> Iterator[Message]:
    """The ready messages in the order of delivery, including those in the tail, which are read a chunk at a time.

    The iterator covers the messages present when it is made and may continue in later ticks: those read back to memory
    since then are found there, and those that left are skipped.  Raises NotReadable, which ends it.
    """
    on_disk = [] if queue.tail is None else [(chunk, _rows_of(chunk)) for chunk in queue.tail.chunks()]
    return _waiting(state, queue, queue.backlog.listed(), on_disk)


def _waiting(
    state: State, queue: Queue, in_memory: list[Message], on_disk: list[tuple[Chunk, Sequence[int]]]
) -> Iterator[Message]:
    if not on_disk:
        yield from in_memory
        return
    in_memory.reverse()
    for chunk, rows in on_disk:
        while in_memory and in_memory[-1].header.priority >= chunk.priority:
            yield in_memory.pop()
        found = read(state, queue, chunk, [row for row in rows if chunk.sizes[row]])
        if len(found) < len(rows):
            found = sorted(found + _in_memory(queue, chunk, rows), key=itemgetter(0))
        for _, message in found:
            yield message
    while in_memory:
        yield in_memory.pop()


def _rows_of(chunk: Chunk) -> Sequence[int]:
    """The rows of a chunk as they are now, in a compact form."""
    return range(len(chunk.ids)) if chunk.count == len(chunk.ids) else array("H", chunk.rows())


def _in_memory(queue: Queue, chunk: Chunk, rows: Sequence[int]) -> list[Row]:
    """Those of the rows that left the tail whose messages are ready or in delivery now."""
    gone = {chunk.ids[row]: row for row in rows if not chunk.sizes[row]}
    found = {gone[message.id]: message for message in queue.backlog if message.id in gone}
    for deliveries in reading.deliveries(queue):
        found |= {gone[id]: message for id, message in deliveries.items() if id in gone}
    return list(found.items())


def first(state: State, queue: Queue) -> Message | None:
    """The next ready message in memory or, if there is none, the first of the tail, which is read alone.

    Raises NotReadable.
    """
    message = queue.backlog.head()
    if message is not None or queue.tail is None:
        return message
    for chunk in list(queue.tail.chunks()):
        found = read(state, queue, chunk, chunk.rows()[:1])
        if found:
            return found[0][1]
    return None


def places(state: State, queue: Queue) -> Iterator[tuple[Message, str]]:
    """All messages that landed and are in no transaction, each with its place: ready, scheduled or delivering.

    They are those present at the first step, in the order of the queue: messages in delivery are where they would be if
    returned; scheduled ones come last.
    """
    return (found for found in places_in_steps(state, queue) if found is not None)


def places_in_steps(state: State, queue: Queue) -> Iterator[tuple[Message, str] | None]:
    """The same; None: it has put some more of those in delivery in order, at a cost of `ORDER_COST`."""
    held, waits = reading.held(queue), list(queue.scheduled.values())
    ready = ((message, "ready") for message in waiting(state, queue))
    on_disk = [] if queue.tail is None else [(chunk, _rows_of(chunk)) for chunk in queue.tail.scheduled_chunks()]
    runs: list[Iterator[tuple[Message, str]]] = []
    for at in range(0, len(held), ORDERED_TOGETHER):
        run = sorted(held[at : at + ORDERED_TOGETHER], key=_message_order)
        runs.append(zip(run, repeat("delivering")))
        yield None
    yield from heapq.merge(*runs, ready, key=_order) if runs else ready
    for _, message in waits:
        yield message, "scheduled"
    for chunk, rows in on_disk:
        found = read(state, queue, chunk, [row for row in rows if chunk.sizes[row]])
        if len(found) < len(rows):
            found += _in_memory(queue, chunk, rows)
        for _, message in found:
            yield message, "scheduled"


def _message_order(message: Message) -> tuple[int, int]:
    return -message.header.priority, message.id


def _order(found: tuple[Message, str]) -> tuple[int, int]:
    return _message_order(found[0])


def between(state: State, queue: Queue, after: int, below: int, most: int) -> list[Message]:
    """At most `most` ready and scheduled messages with ids between these two, oldest first.

    Those in the tail stay there until they are passed to `take`.  Raises NotReadable.
    """
    found = queue.between(after, below, most)
    tail = queue.tail
    if tail is None:
        return found
    tail.looked.clear()
    rows = _rows_between(tail, after, below, most)
    bound = found[-1].id if len(found) == most else below
    cut = rows[-1][0] if len(rows) == most else below
    for chunk, chosen in _by_chunk([each for each in rows if each[0] < bound]):
        for row, message in read(state, queue, chunk, chosen):
            tail.looked[message.id] = (chunk, row)
            found.append(message)
    found.sort(key=lambda message: message.id)
    return [message for message in found[:most] if message.id <= cut]


class NotesReader:
    """Reads the annotations of a queue's ready and scheduled messages step by step, oldest first, without bodies.

    It goes up to the id `below`, excluded, and counts messages that could not be read.  A message that leaves meanwhile
    may be found or not; all others are found once, wherever they move.
    """

    __slots__ = ("_after", "_ahead", "_at", "_below", "_known", "complete", "unreadable")

    def __init__(self, below: int) -> None:
        self.complete = False
        self.unreadable = 0
        self._below = below
        self._after = 0  # ids up to here were read
        self._ahead: list[Message] = []  # the next messages in memory, with ids up to `_known`; from `_at` on
        self._at = 0
        self._known = 0

    def step(self, state: State, queue: Queue, most: int) -> list[Noted]:
        """The notes of at most `most` messages on disk, and `MEMORY_PART` times as many in memory.

        Raises NotReadable.
        """
        if self._after >= self._known:
            self._look_ahead(queue, MEMORY_PART * most)
        in_memory = self._ahead[self._at : self._at + MEMORY_PART * most]
        last = in_memory[-1].id if len(in_memory) == MEMORY_PART * most else self._known
        rows = [] if queue.tail is None else _rows_between(queue.tail, self._after, last + 1, most)
        if len(rows) == most:
            last = rows[-1][0]
            in_memory = [message for message in in_memory if message.id <= last]
        found = [noted_in_memory(message) for message in in_memory]
        for chunk, chosen in _by_chunk(rows):
            found += read_notes(state, chunk, chosen)
        self.unreadable += len(in_memory) + len(rows) - len(found)
        self._at += len(in_memory)
        self._after = last
        if last >= self._below - 1:
            self.complete = True
            self.unreadable += 0 if queue.tail is None else sum([chunk.count for chunk in queue.tail.damaged])
        return found

    def _look_ahead(self, queue: Queue, step: int) -> None:
        """Find the next messages in memory.  Skipping those before them takes as long as looking at some hundred.

        They are found for many steps at once only if there is no tail, whose messages could enter memory meanwhile and
        be missed.
        """
        most = step if queue.tail is not None else MEMORY_AHEAD * step
        self._ahead, self._at = queue.between(self._after, self._below, most), 0
        self._known = self._ahead[-1].id if len(self._ahead) == most else self._below - 1


def chosen(state: State, queue: Queue, ids: Iterable[int]) -> dict[int, Message]:
    """Those of these messages that are ready or scheduled, as `between` finds them.  Raises NotReadable."""
    found: dict[int, Message] = {}
    looked: dict[int, tuple[Chunk, int]] = {}
    for id in ids:
        found |= {message.id: message for message in between(state, queue, id - 1, id + 1, 1)}
        if queue.tail is not None:
            looked |= queue.tail.looked
    if queue.tail is not None:
        queue.tail.looked.update(looked)
    return found


def _rows_between(tail: Tail, after: int, below: int, most: int) -> list[tuple[int, Chunk, int]]:
    """At most `most` rows with the lowest ids between these two, in order."""
    chunks = [chunk for chunk in tail.all_chunks() if chunk.oldest < below and chunk.youngest > after]
    chunks.sort(key=lambda chunk: chunk.oldest)
    rows: list[tuple[int, Chunk, int]] = []
    for chunk in chunks:
        if len(rows) >= most and chunk.oldest > rows[most - 1][0]:
            break
        ids = chunk.ids
        rows += [(ids[row], chunk, row) for row in chunk.rows() if after < ids[row] < below]
        rows.sort(key=itemgetter(0))
        del rows[most:]
    return rows


def _by_chunk(rows: list[tuple[int, Chunk, int]]) -> list[tuple[Chunk, list[int]]]:
    """The chunks of these rows, each with its own, in order."""
    found: dict[Chunk, list[int]] = {}
    for _, chunk, row in rows:
        found.setdefault(chunk, []).append(row)
    return [(chunk, sorted(chosen)) for chunk, chosen in found.items()]


def take(state: State, queue: Queue, message: Message) -> bool:
    """Take a message that `between` found in the tail out of it; False if it was not there.  It is in no container."""
    tail = queue.tail
    place = None if tail is None else tail.looked.pop(message.id, None)
    if place is None or not place[0].sizes[place[1]]:
        return False
    claim(state, queue, place[0], [(place[1], message)])
    return True


def clear(
    state: State, queue: Queue, reason: RemovalReason, most: int, *, deleting: bool = False, below: int | None = None
) -> int:
    """Remove about `most` messages in the tail in whole chunks, by name, unread; returns how many.

    `below`: only chunks whose messages all have lower ids than this one.

    Those for whose removals the journal has no room stay; if their queue is being deleted (`deleting`), they leave with
    it.
    """
    tail = queue.tail
    if tail is None:
        return 0
    before = tail.messages + tail.scheduled
    left = most
    for chunk in [*tail.chunks(), *tail.damaged, *tail.scheduled_chunks()]:
        if left <= 0:
            break
        if below is not None and chunk.youngest >= below:
            continue
        left -= chunk.count
        for rows in in_steps(state, queue, chunk.rows(), chunk.removal_bytes):
            clear_rows(state, queue, chunk, list(rows), reason)
        if chunk.count:
            if not deleting:
                break
            clear_rows(state, queue, chunk, chunk.rows(), reason, recorded=False)
    state.room.left_disk(queue.address)
    return before - tail.messages - tail.scheduled


def clear_rows(
    state: State, queue: Queue, chunk: Chunk, rows: list[int], reason: RemovalReason, *, recorded: bool = True
) -> None:
    """Remove rows of a chunk by name, unread; not `recorded`: they leave with their queue."""
    assert queue.tail is not None, "its chunk is cleared"
    ids: list[int] = []
    by_segment: Counter[int] = Counter()
    kept: list[Message] = []
    for row in rows:
        segment = chunk.segments[row]
        if not segment:
            assert chunk.kept is not None, "a message without a place is in memory"
            kept.append(chunk.kept[row])
            continue
        by_segment[segment] += 1
        if segment < SCRATCH_FIRST:
            ids.append(chunk.ids[row])
        queue.states.pop(chunk.ids[row], None)
    if len(rows) == chunk.count:
        state.schedule.unwatch_chunk(chunk)
        queue.tail.take(chunk)
    else:
        queue.tail.drop(chunk, rows)
    if ids and queue.durable:
        queue.stored -= len(ids)
        if recorded:
            state.ledger.removed(queue, ids, reason)
    for segment, count in by_segment.items():
        if segment >= SCRATCH_FIRST:
            state.pages.release(segment, count)
            continue
        state.journal.refer(segment, released=count)
    state.totals.count_left(queue, reason, len(rows) - len(kept))
    remove(state, queue, kept, reason, recorded=recorded)
