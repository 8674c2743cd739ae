"""The ready messages of a queue, in the order of delivery.

There are ten deques, one for each priority; each is first in, first out.  A returned message goes to the head of its
priority, before everything younger than itself (ids rise with arrival), so that returned messages keep their order
whatever the order of their return.

Messages also leave from the middle (expired, purged, moved by an operator).  Searching a deque for each would make a
mass expiry quadratic, so `discard` only notes the id.  The message is skipped when the head reaches it, and the deques
are rebuilt when more than half of their messages are discarded, or when those have many bytes, in memory or in files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.engine.model.message import Message

PRIORITIES: Final = 10

#: Discarded messages tolerated in the deques before a rebuild.
DISCARDED_MAX: Final = 1024

#: Their bytes tolerated: a bound on wasted memory, reached only after many small messages.
DISCARDED_BYTES_MAX: Final = 16 << 20

#: The most messages looked up in a deque by index: in a deque of a million that takes some 10 us each, while iterating
#: over half of it takes 3 ms.
LOOKED_UP_MAX: Final = 256

#: The shared, empty level of an unused priority.  A deque takes 760 bytes, and most queues use one level.
_NONE: Final[deque[Message]] = deque(maxlen=0)


class Backlog:
    """Messages ready for delivery.  `len()` is exact.

    `pop` and the like return no message of a priority below `floor`: messages elsewhere (in the tail) go first.
    """

    __slots__ = ("_discarded", "_discarded_bytes", "_high", "_in_order", "_levels", "_size", "floor")

    def __init__(self) -> None:
        self._levels: list[deque[Message]] = [_NONE] * PRIORITIES
        self._discarded: dict[int, None] = {}  # an empty set takes more memory, and this is nearly always empty
        self._discarded_bytes = 0  # since the last rebuild
        self._size = 0
        self._high = -1  # no level above this one holds anything
        self._in_order = True  # ids rise within each level; not once a paged message came behind a younger one
        self.floor = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Message]:
        """All messages in the order of delivery."""
        discarded = self._discarded
        for level in reversed(self._levels):
            for message in level:
                if message.id not in discarded:
                    yield message

    def has(self, priority: int) -> bool:
        """Whether there is a message of this priority or a higher one."""
        if not self._discarded:
            return any(self._levels[priority:])
        discarded = self._discarded
        return any(message.id not in discarded for level in self._levels[priority:] for message in level)

    def unordered(self) -> Iterator[Message]:
        """All messages, in no particular order."""
        return iter(self)

    def older(self, bound: int) -> Iterator[Message]:
        """The messages with ids below `bound`, in no particular order; hardly any others are visited."""
        discarded = self._discarded
        for level in self._levels:
            for message in level:
                if message.id >= bound:
                    if self._in_order:
                        break
                elif message.id not in discarded:
                    yield message

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """At most `most` messages with ids between these two, oldest first; few others are visited."""
        if not self._in_order:
            return sorted([m for m in self if after < m.id < below], key=_identity)[:most]
        discarded = self._discarded
        found: list[Message] = []
        for level in filter(None, self._levels):
            end = len(found) + most
            for message in _from(level, bisect_right(level, after, key=_identity), most):
                if message.id >= below or len(found) == end:
                    break
                if message.id not in discarded:
                    found.append(message)
        return sorted(found, key=_identity)[:most]

    def append(self, messages: list[Message], priority: int) -> None:
        """Add a run of new messages that share a priority."""
        level = self._levels[priority]
        if level is _NONE:
            level = self._levels[priority] = deque()
        if not (self._size or self._discarded):
            self._in_order = True
        elif level and messages and level[-1].id > messages[0].id:
            self._in_order = False
        level.extend(messages)
        self._size += len(messages)
        if priority > self._high:
            self._high = priority

    def put_back(self, messages: list[Message]) -> None:
        """Put messages back, each before all younger ones of its priority."""
        if self._discarded and any(message.id in self._discarded for message in messages):
            self._rebuild()  # else the new one would count as discarded too
        for priority in {message.header.priority for message in messages}:
            run = sorted([m for m in messages if m.header.priority == priority], key=_identity)
            level = self._levels[priority]
            if level is _NONE:
                level = self._levels[priority] = deque()
            youngest = run[-1].id
            passed: list[Message] = []
            while level and level[0].id < youngest:
                passed.append(level.popleft())
            if passed:
                run = sorted(passed + run, key=_identity)
            level.extendleft(reversed(run))
            if priority > self._high:
                self._high = priority
        self._size += len(messages)

    def pop(self) -> Message | None:
        """Remove and return the next message, or None."""
        while self._high >= self.floor:
            level = self._levels[self._high]
            while level:
                message = level.popleft()
                if self._discarded and message.id in self._discarded:
                    del self._discarded[message.id]
                    continue
                self._size -= 1
                return message
            self._high -= 1
        return None

    def pop_run(self, count: int, size: int) -> list[Message]:
        """Remove and return up to `count` messages, stopping once `size` bytes are reached; at least one if any."""
        run: list[Message] = []
        while self._high >= self.floor and count > 0 and size > 0:
            level = self._levels[self._high]
            if not level:
                self._high -= 1
                continue
            take = min(count, len(level))
            popleft = level.popleft
            discarded = self._discarded
            before = len(run)
            for _ in range(take):
                message = popleft()
                if discarded and message.id in discarded:
                    del discarded[message.id]
                    continue
                run.append(message)
                size -= message.size
                if size <= 0:
                    break
            count -= len(run) - before
        self._size -= len(run)
        return run

    def take_head(self, count: int) -> list[Message]:
        """Remove and return the next messages in the order of delivery."""
        return self.pop_run(count, 1 << 62)

    def discard(self, message: Message) -> None:
        """Remove a message that is known to be here."""
        level = self._levels[message.header.priority]
        if level and level[0] is message:
            level.popleft()
            self._size -= 1
            return
        self._discarded[message.id] = None
        self._discarded_bytes += len(message.body)
        self._size -= 1
        many = len(self._discarded) > DISCARDED_MAX and len(self._discarded) > self._size
        if many or self._discarded_bytes > DISCARDED_BYTES_MAX:
            self._rebuild()

    def _rebuild(self) -> None:
        discarded = self._discarded
        self._levels = [deque(m for m in level if m.id not in discarded) if level else _NONE for level in self._levels]
        self._discarded = {}
        self._discarded_bytes = 0

    def clear(self) -> list[Message]:
        """Remove and return all messages in the order of delivery."""
        everything = list(self)
        for level in self._levels:
            level.clear()
        self._discarded.clear()
        self._size = 0
        self._high = -1
        return everything


def _from(level: deque[Message], start: int, most: int) -> Iterator[Message]:
    """The messages from an index on; a few are looked up by index, for many the deque is iterated from its start."""
    if most > LOOKED_UP_MAX:
        yield from islice(level, start, None)
        return
    for at in range(start, len(level)):  # a loop: compiled, a generator expression would be a whole list
        yield level[at]


def _identity(message: Message) -> int:
    return message.id
