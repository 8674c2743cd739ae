"""Makes tails at the end of a restart, from the places of messages found in the journal.

Messages that must be in memory are read now: those that were in flight to a stored session.
So are all messages of a short queue, as those in memory keep their order whatever is returned before them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from broker.engine.model.message import MESSAGE_OVERHEAD_BYTES, Message
from broker.engine.queues.paging.admit import keep, tail_of
from broker.engine.queues.paging.columns import Columns, Row
from broker.engine.queues.paging.fold import Places
from broker.engine.queues.paging.tail import Tail
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State

#: A queue with so little is read together with others: reading each on its own would cost three system calls.
FEW_MESSAGES: Final = 16
FEW_BYTES: Final = 64 << 10

#: A queue with more is not read: clients wait for a restart, and at some 6 us a message longer than for its consumers.
READ_MESSAGES_MAX: Final = 4_096


def has_few(places: Places) -> bool:
    """Whether a queue is read together with others."""
    return 0 < len(places) <= FEW_MESSAGES and places.bytes <= FEW_BYTES


def read_together(state: State, several: Iterable[Places], pulled: dict[int, Message]) -> None:
    """Read the messages of queues that have few, and add them to `pulled`."""
    found = {id: row for places in several for id in places.ids() if (row := places.get(id)) is not None}
    pulled |= _read(state, [row for id, row in found.items() if id not in pulled])


def pull(state: State, places: Places, ids: Iterable[int]) -> dict[int, Message]:
    """Read messages into memory; returns them by id.  Those that cannot be read stay in `places`."""
    pulled = _read(state, _rows(places, ids))
    places.remove([*pulled])
    return pulled


def fits(state: State, queue: Queue, places: Places) -> bool:
    """Whether a queue is to be wholly in memory: short, within the limit of reading ahead, with room on its address."""
    settings, count = queue.address.settings, len(places)
    if count > READ_MESSAGES_MAX:
        return False
    if 0 <= settings.max_read_page_messages < count or settings.max_read_page_bytes < count * MESSAGE_OVERHEAD_BYTES:
        return False
    nbytes = places.bytes + count * MESSAGE_OVERHEAD_BYTES
    return nbytes <= settings.max_read_page_bytes and state.room.has_room(queue.address, count, nbytes)


def pull_all(state: State, places: Places, pulled: dict[int, Message]) -> dict[int, Message]:
    """Read all messages of a queue that gets no tail; `pulled` has those already read, and gets these."""
    ids = places.ids()
    pulled |= pull(state, places, [id for id in ids if id not in pulled])
    places.remove([id for id in ids if id in pulled])
    return {id: pulled[id] for id in ids if id in pulled}


def timestamps(state: State, places: Places, ids: Iterable[int]) -> dict[int, int]:
    """When these messages were sent, by id, in ms; 0 for those that cannot be read."""
    wanted = [id for id in ids if id in places]
    found = _read(state, _rows(places, wanted))
    return {id: found[id].header.timestamp if id in found else 0 for id in wanted}


def _rows(places: Places, ids: Iterable[int]) -> list[Row]:
    return [row for id in ids if (row := places.get(id)) is not None]


def _read(state: State, rows: list[Row]) -> dict[int, Message]:
    rows.sort(key=_place)
    segments, offsets, sizes = [r.segment for r in rows], [r.offset for r in rows], [r.size for r in rows]
    found = state.pages.read(segments, offsets, sizes)
    read = state.stored.read(found, ids=[r.id for r in rows], segments=segments, offsets=offsets, sizes=sizes)
    messages: dict[int, Message] = {}
    for message in read:
        if message is not None:
            message.refs = 0  # counted as its queue is filled
            messages[message.id] = message
    return messages


def _place(row: Row) -> tuple[int, int]:
    return row.segment, row.offset


def kept(state: State, places: Places, held: dict[int, Message], others: Iterable[int]) -> list[Message]:
    """The messages with large bodies in order of id, without `others`: in memory, though they belong in the tail."""
    if not len(places):
        return []
    elsewhere = set(others)
    large = [m for id, m in held.items() if not isinstance(m.body, bytes) and id not in elsewhere]
    large = [m for m in large if m.header.scheduled <= state.now]
    return sorted(large, key=lambda message: message.id)


def restore(
    state: State,
    queue: Queue,
    places: Places,
    kept: Iterable[Message],
    scheduled: Mapping[int, tuple[int, bool]],
) -> int:
    """Make the queue's tail, with the `kept` messages at their places; returns how many messages it has.

    `scheduled`: those whose time has not come, by id: when it comes, and whether they wait for redelivery.
    """
    if not len(places):
        return 0
    tail = tail_of(state, queue)
    by_segment: Counter[int] = Counter()
    waiting = deque(kept)
    for rows in places.take_all():
        by_segment.update(rows.segments)
        if scheduled:
            rows = _schedule(state, queue, tail, rows, scheduled)
        start, count = 0, len(rows.ids)
        while waiting and count and waiting[0].id < rows.ids[-1]:
            message = waiting.popleft()
            stop = bisect_left(rows.ids, message.id)
            _append(state, queue, tail, rows.part(start, stop))
            keep(state, queue, tail, message)
            start = stop
        _append(state, queue, tail, rows.part(start, count))
    for message in waiting:
        keep(state, queue, tail, message)
    for segment, count in by_segment.items():
        state.journal.space.hold(segment, count)
    state.totals.count_added(queue, tail.messages + tail.scheduled)
    return tail.messages + tail.scheduled


def _schedule(
    state: State, queue: Queue, tail: Tail, rows: Columns, scheduled: Mapping[int, tuple[int, bool]]
) -> Columns:
    """Schedule those rows whose time has not come; returns the others."""
    ready = [id not in scheduled for id in rows.ids]
    for at in [at for at, is_ready in enumerate(ready) if not is_ready]:
        row = rows.row(at)
        due, retry = scheduled[row.id]
        chunk = tail.schedule(
            row.priority, row.id, row.segment, row.offset, row.size, row.expiration, due=due, retry=retry
        )
        state.schedule.hold_chunk(queue, chunk, due)
    return rows.chosen(ready)


def _append(state: State, queue: Queue, tail: Tail, rows: Columns) -> None:
    if not rows.ids:
        return
    for priority, same in rows.by_priority():
        for chunk in tail.extend(priority, same):
            state.schedule.watch_chunk(queue, chunk, chunk.next_expiration())
