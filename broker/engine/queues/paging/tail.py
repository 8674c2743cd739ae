"""The tail: ready messages of one queue that are not in memory, and scheduled ones.

A message is a row of a chunk: parallel arrays of ids, places (segment, offset, length of its record; length 0: the row
is gone) and, if any has one, expirations.  Segment 0 means that there is no place: then the message itself is among the
chunk's `kept` ones, because its record cannot be read yet, or could not be written.

Scheduled messages are rows of chunks of their own, with one more array: when each is due.  They are behind no others,
and no part of the order of delivery: when they are due they become ready, in memory or as rows of other chunks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from broker.engine.model.message import Message, size_of
from broker.engine.queues.cursors import PRIORITIES
from broker.engine.queues.paging.columns import Columns
from store.pages import SCRATCH_FIRST
from store.record import REMOVAL_BYTES

if TYPE_CHECKING:
    from broker.engine.queues.address import Address

#: The most messages and bytes of a chunk: what is read at once, in a few milliseconds.
CHUNK_MESSAGES_MAX: Final = 1024
CHUNK_BYTES_MAX: Final = 1 << 20

#: When a row that is gone is due.
_NEVER: Final = 1 << 62

#: A chunk has at most this part of the messages that may be read back and not yet delivered, so that reading one does
#: not exceed the limit by much.
CHUNK_PART: Final = 8


class Chunk(Columns):
    """Consecutive messages of one priority.  `serial` rises along the tail.

    `count` and `bytes` are those of the rows that are not gone; `expires` is when its watch is due, 0: never.
    """

    __slots__ = (
        "bytes",
        "count",
        "dues",
        "end",
        "expires",
        "kept",
        "lowest",
        "oldest",
        "priority",
        "retries",
        "serial",
        "volatile",
        "watched",
        "youngest",
    )

    def __init__(self, priority: int, serial: int) -> None:
        super().__init__()
        self.priority = priority
        self.serial = serial
        self.kept: dict[int, Message] | None = None  # by row
        self.count = 0
        self.bytes = 0
        self.oldest = 0  # the least id that was ever here
        self.youngest = 0  # the greatest
        #: The end of the last row's record, as long as all records follow each other in one segment, else -1.
        self.end = 0
        self.lowest = 0  # no row is in a journal segment before this one
        self.expires = 0
        self.dues: array[int] | None = None  # of scheduled messages
        self.watched = 0  # when its schedule is looked at next, 0: never
        self.retries = False  # they wait for redelivery: their senders scheduled nothing
        self.volatile = False  # some rows are, or were, in scratch files

    def add(self, id: int, segment: int, offset: int, size: int, expiration: int) -> None:
        """Add a row."""
        if id > self.youngest:
            self.youngest = id
        if id < self.oldest or not self.oldest:
            self.oldest = id
        if self.end >= 0:
            follows = segment and (not self.ids or (segment == self.segments[-1] and offset >= self.end))
            self.end = offset + size if follows else -1
        if expiration and self.expirations is None:
            self.begin_expirations()
        if self.expirations is not None:
            self.expirations.append(expiration)
        self.ids.append(id)
        self.segments.append(segment)
        self.offsets.append(offset)
        self.sizes.append(size)
        if segment >= SCRATCH_FIRST:
            self.volatile = True
        elif segment and (segment < self.lowest or not self.lowest):
            self.lowest = segment
        self.count += 1
        self.bytes += size

    def extend(self, others: Columns) -> None:
        """Add rows for records in the journal, with rising ids."""
        ids, segments, offsets, sizes = others.ids, others.segments, others.offsets, others.sizes
        self.youngest = max(self.youngest, ids[-1])
        self.oldest = min(self.oldest, ids[0]) if self.oldest else ids[0]
        if self.end >= 0:
            segment = segments[0]
            follows = not self.ids or (segment == self.segments[-1] and offsets[0] >= self.end)
            follows = follows and segments.count(segment) == len(segments) and offsets.tolist() == sorted(offsets)
            self.end = offsets[-1] + sizes[-1] if follows else -1
        lowest = min(segments)
        self.lowest = min(self.lowest, lowest) if self.lowest else lowest
        super().extend(others)
        self.count += len(ids)
        self.bytes += sum(sizes)

    def keep(self, row: int, message: Message) -> None:
        """Keep the row's message in memory for the time being."""
        if self.kept is None:
            self.kept = {}
        self.kept[row] = message

    def rows(self) -> list[int]:
        """The rows that are not gone."""
        sizes = self.sizes
        if self.count == len(sizes):
            return list(range(len(sizes)))
        return [row for row, size in enumerate(sizes) if size]

    def removal_bytes(self, row: int) -> int:
        """The bytes of a row's removal in the journal; a message without a place may be stored there."""
        return REMOVAL_BYTES if self.segments[row] < SCRATCH_FIRST else 0

    def due(self, now: int) -> list[int]:
        """The rows of expired messages."""
        if self.expirations is None:
            return []
        sizes = self.sizes
        return [row for row, due in enumerate(self.expirations) if 0 < due <= now and sizes[row]]

    def late(self, now: int) -> list[int]:
        """The rows of scheduled messages whose time has come."""
        assert self.dues is not None, "it has scheduled messages"
        return [row for row, due in enumerate(self.dues) if due <= now]

    def next_due(self) -> int:
        """When the first of its scheduled messages is due, 0 if none is left."""
        assert self.dues is not None, "it has scheduled messages"
        return min(self.dues) if self.count else 0

    def next_expiration(self) -> int:
        """The least expiration of its rows, 0 if none has one."""
        if self.expirations is None:
            return 0
        sizes = self.sizes
        return min((due for row, due in enumerate(self.expirations) if due and sizes[row]), default=0)

    def move(self, row: int, segment: int, offset: int, size: int) -> None:
        """Set the new place of a row whose record was copied."""
        self.bytes += size - self.sizes[row]
        self.segments[row], self.offsets[row], self.sizes[row] = segment, offset, size
        self.end = -1
        if segment >= SCRATCH_FIRST:
            self.volatile = True


@dataclass(slots=True, eq=False)
class Landing:
    """A run that will be paged once it is durable, and the place of its records.

    `segment` is 0 for messages that are not durable.
    """

    messages: list[Message]
    segment: int
    offset: int
    sizes: Sequence[int]
    nbytes: int = 0  # of all records, or of the messages in memory

    def __post_init__(self) -> None:
        self.nbytes = sum(self.sizes) if self.sizes else size_of(self.messages)

    def first(self, messages: list[Message]) -> Landing:
        """The same for these messages, its first ones."""
        if len(messages) == len(self.messages):
            return self
        return Landing(messages, self.segment, self.offset, self.sizes[: len(messages)])


class Tail:
    """The tail of one queue.  `messages` counts the ready ones, including `damaged` chunks, `scheduled` the others.

    `bytes` (of records) counts all of it.
    """

    __slots__ = (
        "_bytes_max",
        "_high",
        "_messages_max",
        "_serial",
        "address",
        "bytes",
        "damaged",
        "failing",
        "held_up",
        "landing",
        "levels",
        "looked",
        "messages",
        "scheduled",
        "seen",
        "waiting",
    )

    def __init__(self, address: Address) -> None:
        settings = address.settings
        self.address = address
        self.levels: list[deque[Chunk]] = [deque() for _ in range(PRIORITIES)]
        self.damaged: list[Chunk] = []
        self.landing: deque[Landing] = deque()
        self.messages = 0
        self.scheduled = 0
        self.bytes = 0
        #: The chunks of scheduled messages, by priority and whether they wait for redelivery.
        self.waiting: dict[tuple[int, bool], list[Chunk]] = {}
        #: How far each consumer with a selector has looked, by its id: serial and row, by priority.
        self.seen: dict[int, list[tuple[int, int]]] = {}
        #: The places of the messages that were last looked at, by id (see `upkeep.between`).
        self.looked: dict[int, tuple[Chunk, int]] = {}
        #: The disk cannot be read for now; an alarm ends this, and reading is tried again.
        self.failing = False
        #: How many messages the queue had delivered when its consumers last held all that may be read.
        self.held_up = -1
        self._high = -1  # no level above this one has a chunk
        self._serial = 0
        most = settings.max_read_page_messages
        self._messages_max = CHUNK_MESSAGES_MAX if most < 0 else min(max(most // CHUNK_PART, 1), CHUNK_MESSAGES_MAX)
        self._bytes_max = min(max(settings.max_read_page_bytes // CHUNK_PART, 1), CHUNK_BYTES_MAX)

    def expect(self, landing: Landing) -> None:
        """Expect a run: it counts towards the page limits of the address already."""
        self.landing.append(landing)
        self._count_expected(landing, 1)

    def arrived(self) -> Landing:
        """The first of the runs that were expected."""
        landing = self.landing.popleft()
        assert landing.messages, "an empty run is not expected"
        self._count_expected(landing, -1)
        return landing

    def expect_nothing(self) -> None:
        """Expect none of them any more."""
        while self.landing:
            self.arrived()

    def _count_expected(self, landing: Landing, sign: int) -> None:
        self.address.landing_messages += sign * len(landing.messages)
        self.address.landing_bytes += sign * landing.nbytes

    @property
    def active(self) -> bool:
        """Whether there are ready messages, or some are about to enter: others have to go behind them."""
        return self.messages > 0 or bool(self.landing)

    @property
    def empty(self) -> bool:
        """Whether the queue needs no tail."""
        return not (self.messages or self.landing or self.scheduled)

    @property
    def high(self) -> int:
        """The highest priority with messages that can be read, -1 if there are none."""
        while self._high >= 0 and not self.levels[self._high]:
            self._high -= 1
        return self._high

    def chunks(self) -> Iterator[Chunk]:
        """All chunks of ready messages that can be read, in the order of delivery."""
        for level in reversed(self.levels):
            yield from level

    def scheduled_chunks(self) -> list[Chunk]:
        """All chunks of scheduled messages."""
        return [chunk for chunks in self.waiting.values() for chunk in chunks] if self.scheduled else []

    def all_chunks(self) -> Iterator[Chunk]:
        """All chunks that can be read."""
        yield from self.chunks()
        yield from self.scheduled_chunks()

    def has(self, chunk: Chunk) -> bool:
        """Whether a chunk has not left."""
        if chunk.dues is not None:
            return chunk in self.waiting.get((chunk.priority, chunk.retries), ())
        return chunk in self.levels[chunk.priority]

    def due_of(self, id: int) -> int:
        """When a scheduled message is due, 0 if there is none with this id."""
        for chunk in self.scheduled_chunks():
            if chunk.oldest <= id <= chunk.youngest and id in chunk.ids:
                row, dues = chunk.ids.index(id), chunk.dues
                if chunk.sizes[row] and dues is not None:
                    return dues[row]
        return 0

    def first(self) -> Chunk | None:
        """The next chunk."""
        high = self.high
        return self.levels[high][0] if high >= 0 else None

    def open_chunk(self, priority: int) -> Chunk:
        """The chunk for the next message of this priority."""
        level = self.levels[priority]
        if level:
            last = level[-1]
            if len(last.ids) < self._messages_max and last.bytes < self._bytes_max:
                return last
        self._serial += 1
        chunk = Chunk(priority, self._serial)
        level.append(chunk)
        if priority > self._high:
            self._high = priority
        return chunk

    def add(self, priority: int, id: int, segment: int, offset: int, size: int, expiration: int = 0) -> Chunk:
        """Add a message behind all others of its priority; returns the chunk, in which it is the last row."""
        chunk = self.open_chunk(priority)
        chunk.add(id, segment, offset, size, expiration)
        self.counted(1, size)
        return chunk

    def schedule(
        self,
        priority: int,
        id: int,
        segment: int,
        offset: int,
        size: int,
        expiration: int,
        *,
        due: int,
        retry: bool,
    ) -> Chunk:
        """Add a scheduled message; returns its chunk.  `retry`: it waits for redelivery."""
        chunks = self.waiting.setdefault((priority, retry), [])
        chunk = chunks[-1] if chunks else None
        if chunk is None or len(chunk.ids) >= self._messages_max or chunk.bytes >= self._bytes_max:
            self._serial += 1
            chunk = Chunk(priority, self._serial)
            chunk.dues, chunk.retries = array("q"), retry
            chunks.append(chunk)
        assert chunk.dues is not None
        chunk.add(id, segment, offset, size, expiration)
        chunk.dues.append(due)
        self._counted(chunk, 1, size)
        return chunk

    def extend(self, priority: int, rows: Columns) -> list[Chunk]:
        """Add messages with rising ids, whose records are in the journal, as `add` does; returns their chunks."""
        chunks: list[Chunk] = []
        start, count, sizes = 0, len(rows.ids), rows.sizes
        while start < count:
            chunk = self.open_chunk(priority)
            stop = min(start + self._messages_max - len(chunk.ids), count)
            room = self._bytes_max - chunk.bytes
            ends = [*accumulate(sizes[start:stop])]
            if ends[-1] > room:
                stop = start + bisect_left(ends, room) + 1
            chunk.extend(rows.part(start, stop))
            chunks.append(chunk)
            start = stop
        self.counted(count, sum(sizes))
        return chunks

    def _counted(self, chunk: Chunk, messages: int, nbytes: int) -> None:
        if chunk.dues is not None:
            self.scheduled += messages
            self.messages -= messages
        self.counted(messages, nbytes)

    def counted(self, messages: int, nbytes: int) -> None:
        """Add to the counts of ready messages, and of bytes."""
        self.messages += messages
        self.bytes += nbytes
        assert self.messages >= 0, "a row leaves once"
        assert self.bytes >= 0, "with the bytes that it came with"
        self.address.paged_messages += messages
        self.address.paged_bytes += nbytes

    def take(self, chunk: Chunk) -> None:
        """Remove a whole chunk."""
        if not chunk.count:
            return
        self._remove(chunk)
        self._counted(chunk, -chunk.count, -chunk.bytes)
        chunk.remove_all()
        chunk.count = chunk.bytes = 0

    def drop(self, chunk: Chunk, rows: list[int]) -> None:
        """Remove rows of a chunk."""
        if not rows:
            return
        sizes, dues, nbytes = chunk.sizes, chunk.dues, 0
        for row in rows:
            assert sizes[row], "a row leaves once"
            nbytes += sizes[row]
            sizes[row] = 0
            if dues is not None:
                dues[row] = _NEVER
            if chunk.kept is not None:
                chunk.kept.pop(row, None)
        chunk.count -= len(rows)
        chunk.bytes -= nbytes
        self._counted(chunk, -len(rows), -nbytes)
        if not chunk.count:
            self._remove(chunk)

    def _remove(self, chunk: Chunk) -> None:
        level = self.levels[chunk.priority]
        if chunk.dues is not None:
            chunks = self.waiting[chunk.priority, chunk.retries]
            chunks.remove(chunk)
            if not chunks:
                del self.waiting[chunk.priority, chunk.retries]
        elif chunk in self.damaged:
            self.damaged.remove(chunk)
        elif level[0] is chunk:
            level.popleft()
        else:
            level.remove(chunk)

    def damage(self, chunk: Chunk, rows: list[int]) -> None:
        """Move rows of a chunk that cannot be read to the damaged ones."""
        self._serial += 1
        aside = Chunk(chunk.priority, self._serial)
        for row in rows:
            aside.add(chunk.ids[row], chunk.segments[row], chunk.offsets[row], chunk.sizes[row], 0)
        self.drop(chunk, rows)
        self.damaged.append(aside)
        self.counted(aside.count, aside.bytes)
