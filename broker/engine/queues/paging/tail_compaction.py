"""Cleaning, for messages in tails: copies those in the oldest segment forward, and updates their places.

Until the new record is durable it cannot be read: the message is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from broker.engine.model.message import Message
from broker.engine.queues.paging.admit import write_scratch
from broker.engine.queues.paging.rows import Row, read
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store import record
from store.pages import SCRATCH_FIRST

#: Called with messages on a queue that were copied forward.
Copied = Callable[[Queue, list[Message]], None]


def rows_in(queue: Queue, segment: int) -> list[tuple[Chunk, list[int]]]:
    """The rows of a queue's tail whose records are in a segment, the oldest one."""
    if queue.tail is None:
        return []
    found: list[tuple[Chunk, list[int]]] = []
    for chunk in queue.tail.all_chunks():
        if 0 < chunk.lowest <= segment:
            rows = [row for row in chunk.rows() if chunk.segments[row] == segment]
            if rows:
                found.append((chunk, rows))
            else:
                _learn_lowest(chunk)
    return found


def kept(queue: Queue) -> list[Message]:
    """The messages of a queue's tail that are in memory without a place on disk: they are cleaned like others."""
    chunks = () if queue.tail is None else queue.tail.all_chunks()
    return [m for chunk in chunks if chunk.kept for row, m in chunk.kept.items() if not chunk.segments[row]]


def size_of(chunk: Chunk, rows: list[int]) -> int:
    """Bytes of the rows' records."""
    return sum([chunk.sizes[row] for row in rows])


def copy_rows(state: State, queue: Queue, chunk: Chunk, rows: list[int], segment: int, copied_forward: Copied) -> int:
    """Copy forward those rows that are still in this segment; returns how many.  The journal has room for them.

    Raises NotReadable.
    """
    if queue.tail is None or queue.deleted:
        return 0
    staying = [row for row in rows if chunk.sizes[row] and chunk.segments[row] == segment]
    if not staying or not queue.tail.has(chunk):
        return 0
    copied = 0
    for _, same in groupby(read(state, queue, chunk, staying), key=lambda found: found[1].header):
        run = list(same)
        if queue.durable:
            _copy(state, queue, chunk, run, segment)
        elif not _to_scratch(state, queue, chunk, run, segment):
            continue
        copied += len(run)
        copied_forward(queue, [message for _, message in run])
        if queue.durable and chunk.retries:
            _restate_dues(state, queue, chunk, run)
    _learn_lowest(chunk)
    return copied


def _copy(state: State, queue: Queue, chunk: Chunk, run: list[Row], segment: int) -> None:
    journal = state.journal
    header = run[0][1].header
    messages = [message for _, message in run]
    fixed = record.COPIED_FIXED.size + state.ledger.copied(header, [queue.id], messages, segment)
    sizes = [fixed + len(message.head) + len(message.body) for message in messages]
    _moved(queue, chunk, run, journal.segment, journal.end - sum(sizes), sizes)
    for row, message in run:
        chunk.keep(row, message)
    state.pending.work.copied.append((chunk, [row for row, _ in run]))


def _restate_dues(state: State, queue: Queue, chunk: Chunk, run: list[Row]) -> None:
    """Write again when messages that wait for redelivery are due."""
    assert chunk.dues is not None, "they wait"
    by_due: dict[int, list[int]] = {}
    for row, message in run:
        by_due.setdefault(chunk.dues[row], []).append(message.id)
    state.ledger.scheduled(queue, by_due)


def _to_scratch(state: State, queue: Queue, chunk: Chunk, run: list[Row], segment: int) -> bool:
    """Move rows of a non-durable queue to a scratch file: no restart restores them.  False if that failed."""
    place, offset, sizes = write_scratch(state, [message for _, message in run])
    if place:
        _moved(queue, chunk, run, place, offset, sizes)
        state.journal.space.release(segment, len(run))
    return bool(place)


def _moved(queue: Queue, chunk: Chunk, run: list[Row], segment: int, offset: int, sizes: Sequence[int]) -> None:
    """Update the rows' places in the tail."""
    assert queue.tail is not None, "its chunk is copied"
    before = chunk.bytes
    for (row, _), size in zip(run, sizes, strict=True):
        chunk.move(row, segment, offset, size)
        offset += size
    queue.tail.counted(0, chunk.bytes - before)


def _learn_lowest(chunk: Chunk) -> None:
    segments = [segment for row in chunk.rows() if 0 < (segment := chunk.segments[row]) < SCRATCH_FIRST]
    chunk.lowest = min(segments, default=0)


def settled(chunk: Chunk, rows: list[int]) -> None:
    """Release messages kept in memory whose copied records are durable, and so can be read."""
    if chunk.kept is None:
        return
    for row in rows:
        if chunk.segments[row]:
            chunk.kept.pop(row, None)
    if not chunk.kept:
        chunk.kept = None
