"""The messages of a queue that wait for a consumer, in the order in which they will leave.

Ten deques, one a priority; within a priority first in, first out.  A message that comes back goes to the head of its
priority, before everything younger than itself (identities rise with arrival), so that returned messages keep their
order whatever the order of their return.

Messages also leave from the middle (expired, purged, moved by an operator).  Searching a deque for each would make a
mass expiry quadratic, so `discard` only notes the identity; the message is skipped when the head reaches it, and the
deques are rebuilt when more than half of what they hold is gone, or when that has many bytes, in memory or in files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.engine.model.message import Message

PRIORITIES: Final = 10

#: Discarded messages tolerated in the deques before a rebuild is worth it.
DISCARDED_MAX: Final = 1024

#: And their bytes: so much is kept for nobody at most, and it takes many small messages before a line is walked again.
DISCARDED_BYTES_MAX: Final = 16 << 20

#: Messages within a deque that are looked up by their number: in one of a million that takes some 10 us each, and
#: passing over half of it 3 ms.
LOOKED_UP_MAX: Final = 256

#: A level that has not been used: nothing is ever put into it.  A deque takes 760 bytes, and most queues use one level.
_NONE: Final[deque[Message]] = deque(maxlen=0)


class Backlog:
    """Messages ready for delivery.  `len()` is exact.

    No message of a priority below `floor` leaves by `pop` and its like: others go first, which are not here.
    """

    __slots__ = ("_discarded", "_discarded_bytes", "_high", "_in_order", "_levels", "_size", "floor")

    def __init__(self) -> None:
        self._levels: list[deque[Message]] = [_NONE] * PRIORITIES
        self._discarded: dict[int, None] = {}  # a set takes more, and is nearly always empty
        self._discarded_bytes = 0  # since the last rebuild
        self._size = 0
        self._high = -1  # no level above this one holds anything
        self._in_order = True  # identities rise within each level: not where a paged message came behind a younger one
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
        """Whether there is anything of this priority or a higher one."""
        if not self._discarded:
            return any(self._levels[priority:])
        discarded = self._discarded
        return any(message.id not in discarded for level in self._levels[priority:] for message in level)

    def unordered(self) -> Iterator[Message]:
        """All messages, in no order that means anything."""
        return iter(self)

    def older(self, bound: int) -> Iterator[Message]:
        """The messages with identities below `bound`, in no order that means anything; the others are not looked at."""
        discarded = self._discarded
        for level in self._levels:
            for message in level:
                if message.id >= bound:
                    if self._in_order:
                        break
                elif message.id not in discarded:
                    yield message

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """The messages with identities between these two, oldest first, at most so many; few others are looked at."""
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
        """Messages return, each to its place before all younger ones of its priority."""
        if self._discarded and any(message.id in self._discarded for message in messages):
            self._rebuild()  # its old place was not passed yet, and would be taken for the new one
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
        """The next message, or None."""
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
        """Up to `count` messages and, once `size` bytes are reached, no more; at least one if there is any."""
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
        """The next messages in the order of delivery; they are gone from here."""
        return self.pop_run(count, 1 << 62)

    def discard(self, message: Message) -> None:
        """Take out a message that is known to be here."""
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
        """Everything, in the order of delivery; the backlog is empty afterwards."""
        everything = list(self)
        for level in self._levels:
            level.clear()
        self._discarded.clear()
        self._size = 0
        self._high = -1
        return everything


def _from(level: deque[Message], start: int, most: int) -> Iterator[Message]:
    """The messages from this place on; a few are looked up one by one, for many all before them are passed over."""
    if most > LOOKED_UP_MAX:
        yield from islice(level, start, None)
        return
    for at in range(start, len(level)):  # a loop: compiled, a generator expression would be a whole list
        yield level[at]


def _identity(message: Message) -> int:
    return message.id
