"""Reads messages for rows of a tail, to look at them or to bring them back to memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final

from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message, MessageHeader
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.queues.stored import NOTES_BYTES, Noted, notes_at
from store.errors import ReadFailed
from store.pages import GAP_BYTES_MAX, SCRATCH_FIRST, Found

#: A row and its message.
Row = tuple[int, Message]

_HEADER: Final[Callable[[Message], MessageHeader]] = attrgetter("header")


def read(state: State, queue: Queue, chunk: Chunk, rows: list[int]) -> list[Row]:
    """Read the messages of rows, which stay in the tail; damaged ones are set aside and reported.

    Raises NotReadable.
    """
    kept = chunk.kept or {}
    wanted = [row for row in rows if row not in kept] if kept else rows
    messages = _read(state, chunk, wanted)
    found: list[Row] = [(row, message) for row, message in zip(wanted, messages, strict=True) if message is not None]
    if len(found) < len(wanted):
        _set_aside(state, queue, chunk, [row for row, m in zip(wanted, messages, strict=True) if m is None])
    if kept:
        found = sorted(found + [(row, kept[row]) for row in rows if row in kept], key=itemgetter(0))
    return found


def _read(state: State, chunk: Chunk, rows: list[int]) -> list[Message | None]:
    ids: Sequence[int] = chunk.ids
    segments: Sequence[int] = chunk.segments
    offsets: Sequence[int] = chunk.offsets
    sizes: Sequence[int] = chunk.sizes
    found: list[Found] | None = None
    if len(rows) < len(ids):
        ids, segments = [ids[row] for row in rows], [segments[row] for row in rows]
        offsets, sizes = [offsets[row] for row in rows], [sizes[row] for row in rows]
    try:
        if len(rows) == len(chunk.ids):
            found = _read_whole(state, chunk)
        if found is None:
            found = state.pages.read(segments, offsets, sizes)
    except ReadFailed as error:
        raise NotReadable(f"messages on disk cannot be read for now: {error}") from error
    return state.stored.read(found, ids=ids, segments=segments, offsets=offsets, sizes=sizes)


def read_notes(state: State, chunk: Chunk, rows: Sequence[int]) -> list[Noted]:
    """Read the broker's annotations of rows' messages, without their bodies.  Damaged ones are left out.

    Raises NotReadable.
    """
    kept = chunk.kept or {}
    noted = [noted_in_memory(kept[row]) for row in rows if row in kept]
    sizes = chunk.sizes
    wanted = {row: min(sizes[row], NOTES_BYTES) for row in rows if row not in kept}
    while wanted:  # and again for those that need more bytes
        more: dict[int, int] = {}
        for (row, nbytes), result in zip(wanted.items(), _read_beginnings(state, chunk, wanted), strict=True):
            if isinstance(result, int):
                if nbytes < result <= sizes[row]:
                    more[row] = result
            elif result is not None:
                noted.append(result)
        wanted = more
    return noted


def noted_in_memory(message: Message) -> Noted:
    """The same for a message that is in memory."""
    return message.header.annotations or {}, message.header.timestamp


def _read_beginnings(state: State, chunk: Chunk, wanted: Mapping[int, int]) -> Iterator[Noted | int | None]:
    """The notes in the first bytes of these rows' records; `wanted`: bytes by row."""
    offsets, nbytes = [chunk.offsets[row] for row in wanted], [*wanted.values()]
    ids = [chunk.ids[row] for row in wanted]
    try:
        parts = state.pages.read([chunk.segments[row] for row in wanted], offsets, nbytes)
    except ReadFailed as error:
        raise NotReadable(f"messages on disk cannot be read for now: {error}") from error
    for buffer, start, stop in parts:
        first = offsets[start]
        for at in range(start, stop):
            yield None if buffer is None else notes_at(buffer, offsets[at] - first, ids[at], nbytes[at])


def _read_whole(state: State, chunk: Chunk) -> list[Found] | None:
    """Read all rows of a chunk at once; None if their records are not close together, or on an error."""
    nbytes = chunk.end - chunk.offsets[0]
    if chunk.end <= 0 or nbytes > chunk.bytes + GAP_BYTES_MAX:
        return None
    data = state.pages.read_range(chunk.segments[0], chunk.offsets[0], nbytes)
    return None if data is None else [(data, 0, len(chunk.ids))]


def _set_aside(state: State, queue: Queue, chunk: Chunk, rows: list[int]) -> None:
    assert queue.tail is not None, "its chunk is looked at"
    first = chunk.ids[rows[0]]
    segment = chunk.segments[rows[0]]
    if chunk.count == len(rows):
        state.schedule.unwatch_chunk(chunk)
    queue.tail.damage(chunk, rows)
    state.report("paging.unreadable", queue=queue.name, messages=len(rows), segment=segment, first=first)


def claim_all(state: State, queue: Queue, chunk: Chunk) -> list[Message]:
    """Read a whole chunk and take it out of the tail; damaged rows stay, set aside.  Raises NotReadable."""
    rows = chunk.rows()
    if chunk.kept is None:
        messages = _read(state, chunk, rows)
        whole = [message for message in messages if message is not None]
        if len(whole) == len(rows):
            _own(state, chunk, rows, whole)
            _leave(state, queue, chunk)
            return whole
    return claim(state, queue, chunk, read(state, queue, chunk, rows))


def claim(state: State, queue: Queue, chunk: Chunk, found: list[Row]) -> list[Message]:
    """Take rows that were read out of the tail; returns their messages, which are in memory from now on."""
    assert queue.tail is not None, "its chunk is looked at"
    segments = chunk.segments
    rows = [row for row, _ in found]
    _own(state, chunk, rows, [message for row, message in found if segments[row]])
    if len(found) == chunk.count:
        _leave(state, queue, chunk)
    else:
        queue.tail.drop(chunk, rows)
    return [message for _, message in found]


def _leave(state: State, queue: Queue, chunk: Chunk) -> None:
    assert queue.tail is not None, "its chunk leaves"
    state.schedule.unwatch_chunk(chunk)
    queue.tail.take(chunk)


def _own(state: State, chunk: Chunk, rows: list[int], messages: list[Message]) -> None:
    """Charge messages that enter memory, and release the scratch records of their rows."""
    for name, run in _by_address(messages):
        state.room.charge(name, run)
    for segment, count in Counter([chunk.segments[row] for row in rows] if chunk.volatile else ()).items():
        if segment >= SCRATCH_FIRST:
            state.pages.release(segment, count)


def _by_address(messages: list[Message]) -> Iterator[tuple[str, list[Message]]]:
    """Runs of messages of one address; only on a wildcard address does a tail have messages of several."""
    if len({header.address for header in set(map(_HEADER, messages))}) == 1:
        yield messages[0].header.address, messages
        return
    for name, run in groupby(messages, key=lambda message: message.header.address):
        yield name, list(run)
