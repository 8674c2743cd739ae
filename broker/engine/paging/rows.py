"""Rows of a tail become messages: to be looked at, or to be the queue's own again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.engine.core import Core
from broker.engine.message import Message
from broker.engine.paging.tail import Chunk
from broker.engine.queue import Queue
from store.pages import SCRATCH_FIRST

#: A row and its message.
Row = tuple[int, Message]


def read(core: Core, queue: Queue, chunk: Chunk, rows: list[int]) -> list[Row]:
    """The messages of rows, which stay where they are; those that cannot be read are set aside, and reported."""
    kept = chunk.kept or {}
    wanted = [row for row in rows if row not in kept] if kept else rows
    ids: Sequence[int] = chunk.ids
    segments: Sequence[int] = chunk.segments
    offsets: Sequence[int] = chunk.offsets
    sizes: Sequence[int] = chunk.sizes
    if len(wanted) < len(ids):
        ids, segments = [ids[row] for row in wanted], [segments[row] for row in wanted]
        offsets, sizes = [offsets[row] for row in wanted], [sizes[row] for row in wanted]
    buffers = core.pages.read(segments, offsets, sizes)
    messages: list[Message | None] = []
    for start, stop in _by_segment(segments):
        segment = segments[start] if segments[start] < SCRATCH_FIRST else 0
        messages += core.stored.read_all(
            buffers[start:stop], ids=ids[start:stop], sizes=sizes[start:stop], segment=segment
        )
    found: list[Row] = [(row, message) for row, message in zip(wanted, messages, strict=True) if message is not None]
    if len(found) < len(wanted):
        _set_aside(core, queue, chunk, [row for row, m in zip(wanted, messages, strict=True) if m is None])
    if kept:
        found = sorted(found + [(row, kept[row]) for row in rows if row in kept], key=_row)
    return found


def _by_segment(segments: Sequence[int]) -> list[tuple[int, int]]:
    """Where runs of the same segment begin and end."""
    if not segments:
        return []
    if segments[0] == segments[-1] and segments.count(segments[0]) == len(segments):
        return [(0, len(segments))]
    cuts = [at for at in range(1, len(segments)) if segments[at] != segments[at - 1]]
    return list(zip([0, *cuts], [*cuts, len(segments)], strict=True))


def _row(found: Row) -> int:
    return found[0]


def _set_aside(core: Core, queue: Queue, chunk: Chunk, rows: list[int]) -> None:
    assert queue.tail is not None, "its chunk is looked at"
    first = chunk.ids[rows[0]]
    segment = chunk.segments[rows[0]]
    if chunk.count == len(rows):
        unwatch(core, chunk)
    queue.tail.damage(chunk, rows)
    core.report("paging.unreadable", queue=queue.name, messages=len(rows), segment=segment, first=first)


def claim(core: Core, queue: Queue, chunk: Chunk, found: list[Row]) -> list[Message]:
    """Rows that were read leave the tail: their messages are the queue's, and in memory."""
    assert queue.tail is not None, "its chunk is looked at"
    _own(core, chunk, found)
    if len(found) == chunk.count:
        unwatch(core, chunk)
        queue.tail.take(chunk)
    else:
        queue.tail.drop(chunk, [row for row, _ in found])
    return [message for _, message in found]


def _own(core: Core, chunk: Chunk, found: list[Row]) -> None:
    """Charge messages that come to memory, and let go of their scratch records."""
    segments = chunk.segments
    scratch: dict[int, int] = {}
    if chunk.kept is None:
        charged = [message for _, message in found]
    else:
        charged = [message for row, message in found if segments[row]]
    for name, messages in _by_address(charged):
        size = sum([message.size for message in messages])
        core.usage.bytes += size
        core.usage.messages += len(messages)
        address = core.addresses.get(name)
        if address is not None:
            address.size_bytes += size
            address.size_messages += len(messages)
    for row, _ in found if chunk.volatile else ():
        segment = segments[row]
        if segment >= SCRATCH_FIRST:
            scratch[segment] = scratch.get(segment, 0) + 1
    for segment, count in scratch.items():
        core.pages.release(segment, count)


def _by_address(messages: list[Message]) -> Iterator[tuple[str, list[Message]]]:
    run: list[Message] = []
    facts = None
    for message in messages:
        if message.facts is not facts:
            if run and message.facts.address != run[0].facts.address:
                yield run[0].facts.address, run
                run = []
            facts = message.facts
        run.append(message)
    if run:
        yield run[0].facts.address, run


def watch(core: Core, queue: Queue, chunk: Chunk, expiration: int) -> None:
    """A chunk has a message that expires then."""
    if expiration and (not chunk.expires or expiration < chunk.expires):
        unwatch(core, chunk)
        chunk.expires = expiration
        core.paged_expiries.add(expiration, id(chunk), (queue, chunk))


def unwatch(core: Core, chunk: Chunk) -> None:
    """Nothing in a chunk expires any more."""
    if chunk.expires:
        core.paged_expiries.remove(chunk.expires, id(chunk))
        chunk.expires = 0
