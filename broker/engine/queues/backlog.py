"""The ready messages of a queue, in the order of delivery.

There are ten levels, one for each priority, each in the order of ids, which rise with arrival.  So a message that
returns, or is due, takes its place before everything younger of its priority, whatever the order of the returns, and
that costs the same however many messages are there.

A consumer that accepts everything takes the first message.  One that does not has a cursor (`cursors`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from operator import attrgetter
from typing import ClassVar, Final

from broker.engine.model.message import Message
from broker.engine.queues.cursors import PRIORITIES, Cursors, KeptCursors, Predicate
from broker.engine.queues.level import Level
from broker.engine.queues.steps import Steps

#: The shared, empty level of an unused priority: most queues use one.
_NONE: Final = Level()

_ID: Final[Callable[[Message], int]] = attrgetter("id")


class Backlog:
    """Messages ready for delivery.  `len()` is exact.

    `pop` and the like return no message of a priority below `floor`: messages elsewhere (in the tail) go first.  A
    consumer with a cursor, under any key that the caller chooses, may have another floor.
    """

    __slots__ = ("_cursors", "_high", "_size", "floor", "levels")

    #: Whether every consumer has a cursor of its own, also one that accepts everything.
    own_cursors: ClassVar[bool] = False

    def __init__(self, levels: list[Level] | None = None) -> None:
        """With `levels`: takes over another backlog's messages."""
        self.levels = [_NONE] * PRIORITIES if levels is None else levels
        self._size = sum([len(block) for level in self.levels for block in level.blocks])
        self._high = PRIORITIES - 1 if self._size else -1  # no level above this one holds anything
        self._cursors: Cursors | None = None  # None: no consumer has one
        self.floor = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Message]:
        """All messages in the order of delivery."""
        for level in reversed(self.levels):
            yield from level

    def listed(self) -> list[Message]:
        """The same at once, as a list: there may be 100,000."""
        found: list[Message] = []
        for level in reversed(self.levels):
            for block in level.blocks:
                found += block
        return found

    def has(self, priority: int) -> bool:
        """Whether there is a message of this priority or a higher one."""
        return any([level.blocks for level in self.levels[priority:]])

    def count(self, priority: int) -> int:
        """How many messages there are of this priority or a higher one."""
        return sum([len(block) for level in self.levels[priority:] for block in level.blocks])

    def holds(self, message: Message) -> bool:
        """Whether a message is here."""
        return self.levels[message.header.priority].find(message.id) is not None

    def older(self, bound: int) -> Iterator[Message]:
        """The messages with ids below `bound`, in no particular order."""
        for level in self.levels:
            if level.blocks:
                yield from level.between(-1, bound, self._size)

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """At most `most` messages with ids between these two, oldest first; few others are visited."""
        found: list[Message] = []
        for level in self.levels:
            if level.blocks:
                found += level.between(after, below, most)
        found.sort(key=_ID)
        return found[:most]

    def head(self) -> Message | None:
        """The next message in the order of delivery, which stays."""
        return next(iter(self), None)

    # -- entering and leaving --------------------------------------------------------------------------------------

    def append(self, messages: list[Message], priority: int) -> None:
        """Add a run of messages that share a priority, their ids rising; hardly ever are there younger ones."""
        if not messages:
            return
        level = self.levels[priority]
        if level is _NONE:
            level = self.levels[priority] = Level()
        if messages[0].id > level.top:
            level.extend(messages)
        else:
            level.insert(messages)
            if self._cursors is not None:
                self._cursors.came_behind(messages, self._size)
        self._size += len(messages)
        if priority > self._high:
            self._high = priority

    def put_back(self, messages: list[Message]) -> None:
        """Put messages in, each before all younger ones of its priority."""
        priorities = {message.header.priority for message in messages}
        for priority in priorities:
            run = messages if len(priorities) == 1 else [m for m in messages if m.header.priority == priority]
            self.append(sorted(run, key=_ID), priority)

    def pop(self) -> Message | None:
        """Remove and return the next message, or None."""
        while self._high >= self.floor:
            level = self.levels[self._high]
            if level.blocks:
                message = level.blocks[0][0]
                level.remove_first(1)
                self._size -= 1
                return message
            self._high -= 1
        return None

    def pop_run(self, count: int, size: int) -> tuple[list[Message], int]:
        """Remove up to `count` messages, stopping once `size` bytes are reached; at least one if any.

        Returns them and their bytes.
        """
        run: list[Message] = []
        left = size
        while self._high >= self.floor and count > 0 and left > 0:
            level = self.levels[self._high]
            if not level.blocks:
                self._high -= 1
                continue
            some = level.blocks[0][:count]
            for message in some:
                left -= message.size
                if left <= 0:
                    some = some[: some.index(message) + 1]
                    break
            run += some
            level.remove_first(len(some))
            count -= len(some)
        self._size -= len(run)
        return run, size - left

    def take_head(self, count: int) -> list[Message]:
        """Remove and return the next messages in the order of delivery."""
        return self.pop_run(count, 1 << 62)[0]

    def discard(self, message: Message) -> None:
        """Remove a message that is known to be here."""
        here = self.levels[message.header.priority].remove(message.id)
        assert here, "it is in the backlog"
        self._size -= 1

    def clear(self) -> list[Message]:
        """Remove and return all messages in the order of delivery."""
        everything = list(self)
        for level in self.levels:
            level.blocks.clear()
            level.lasts.clear()
        self._size = 0
        self._high = -1
        return everything

    # -- consumers that accept some --------------------------------------------------------------------------------

    def attach(self, key: Hashable, predicate: Predicate | None) -> None:
        """Add a consumer: nothing is matched before it asks for messages."""
        if predicate is None and not self.own_cursors:
            return
        if self._cursors is None:
            self._cursors = self._new_cursors()
        self._cursors.attach(key, predicate, sharing=not self.own_cursors)

    def _new_cursors(self) -> Cursors:
        return Cursors(self.levels)

    def detach(self, key: Hashable) -> None:
        """Remove a consumer."""
        if self.is_choosy(key):
            assert self._cursors is not None, "it has a cursor"
            self._cursors.detach(key)
            if not self._cursors:
                self._cursors = None

    def restrict(self, key: Hashable, predicate: Predicate) -> None:
        """Replace a consumer's predicate by one that accepts less."""
        if not self.is_choosy(key):
            self.attach(key, predicate)
            self.set_floor(key, self.floor)
        elif self._cursors is not None:
            self._cursors.restrict(key, predicate)

    def is_choosy(self, key: Hashable) -> bool:
        """Whether a consumer has a cursor: then it gets its messages by `pop_for`."""
        return self._cursors is not None and key in self._cursors

    def set_floor(self, key: Hashable, floor: int) -> None:
        """Set the priority below which a consumer with a cursor gets no message."""
        if self._cursors is not None and key in self._cursors:
            self._cursors.set_floor(key, floor)

    def pop_for(self, key: Hashable, steps: Steps) -> Message | None:
        """Remove and return the next message for this consumer; None if there is none, or no budget is left."""
        cursors = self._cursors
        if cursors is None or key not in cursors:
            return self.pop()
        message = cursors.next(key, steps)
        if message is not None:
            cursors[key].pass_by(message)
            self.discard(message)
        return message

    def has_for(self, key: Hashable, priority: int, steps: Steps) -> bool:
        """Whether there is, or may be (no budget is left), a message of this priority or higher for this consumer."""
        cursors = self._cursors
        if cursors is None or key not in cursors:
            return self.has(priority)
        return cursors.next(key, steps, priority) is not None or steps.left <= 0


class KeptBacklog(Backlog):
    """The messages of a non-destructive queue: each consumer gets every message once, and the messages stay.

    A consumer has been sent what its cursor has passed.  Messages leave by expiry, by an operator, or because newer
    ones replace or evict them.
    """

    __slots__ = ()

    own_cursors: ClassVar[bool] = True

    def _new_cursors(self) -> Cursors:
        return KeptCursors(self.levels)

    def pop_for(self, key: Hashable, steps: Steps) -> Message | None:
        """The next message that this consumer has not been sent; it stays."""
        assert self._cursors is not None, "every consumer has a cursor"
        message = self._cursors.next(key, steps)
        if message is not None:
            self._cursors[key].pass_by(message)
        return message
