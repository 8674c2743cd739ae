"""The backlog of a queue on which some consumers accept only part of the messages.

With selectors, one line of messages is not enough: each consumer would walk past everything that is not for it, again
and again.  So there is a view for each selector: the ids of the messages that match it, in the order of delivery.
Consumers with equal selectors share a view, and so do all those without one.  A message is in each view that matches it
and in `_ready`; delivering it removes it from `_ready`, and the other views skip its id later.  So each message is
matched once for each selector, and never again.

The view of a consumer that receives nothing would collect ids of messages delivered to others; it is rebuilt when it
holds more than twice as many as are ready.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from broker.engine.model.message import Message
from broker.engine.queues.backlog import PRIORITIES

Predicate = Callable[[Message], bool]

#: Ids tolerated in a view before a rebuild, beyond twice the messages that are ready.
STALE_MAX: Final = 1024

#: The bytes of a message's id in a view: its place in a deque.
VIEW_ENTRY_BYTES: Final = 8


@dataclass(slots=True, eq=False)
class _View:
    """The messages that match a predicate: ids by priority.  `users` counts the consumers that it serves."""

    predicate: Predicate | None
    levels: list[deque[int]] = field(init=False, default_factory=lambda: [deque() for _ in range(PRIORITIES)])
    count: int = field(init=False, default=0)
    users: int = field(init=False, default=0)

    def add(self, messages: Iterable[Message]) -> None:
        predicate = self.predicate
        for message in messages:
            if predicate is None or predicate(message):
                self.levels[message.header.priority].append(message.id)
                self.count += 1

    def add_left(self, message: Message) -> None:
        if self.predicate is not None and not self.predicate(message):
            return
        level = self.levels[message.header.priority]
        passed: list[int] = []
        while level and level[0] < message.id:
            passed.append(level.popleft())
        level.appendleft(message.id)
        level.extendleft(reversed(passed))
        self.count += 1

    def pop(self, ready: dict[int, Message], floor: int = 0) -> Message | None:
        """Remove and return the next message of this priority or a higher one."""
        for level in reversed(self.levels[floor:] if floor else self.levels):
            while level:
                self.count -= 1
                message = ready.pop(level.popleft(), None)
                if message is not None:
                    return message
        return None

    def next_in(self, ready: dict[int, Message]) -> Message | None:
        """As `pop`, but the message stays ready."""
        for level in reversed(self.levels):
            while level:
                self.count -= 1
                message = ready.get(level.popleft())
                if message is not None:
                    return message
        return None

    def has(self, ready: dict[int, Message], priority: int) -> bool:
        """Whether it has a message of this priority or a higher one; drops ids that are not ready any more."""
        for level in reversed(self.levels[priority:]):
            while level:
                if level[0] in ready:
                    return True
                level.popleft()
                self.count -= 1
        return False

    def rebuild(self, ready: dict[int, Message]) -> None:
        self.levels = [deque(i for i in dict.fromkeys(level) if i in ready) for level in self.levels]
        self.count = sum(map(len, self.levels))


#: The key of the view of all messages that `take_head` uses.
_HEAD: Final = "head"


class SelectiveBacklog:
    """Messages ready for delivery, with a view for each consumer (under any key that the caller chooses).

    `lasting`: it is needed even if no consumer has a selector.  `sharing`: consumers with equal predicates have one
    view.
    """

    __slots__ = ("_distinct", "_floors", "_in_order", "_ready", "_views")

    lasting: ClassVar[bool] = False
    sharing: ClassVar[bool] = True

    def __init__(self, messages: Iterable[Message]) -> None:
        self._ready = {message.id: message for message in messages}
        self._views: dict[Hashable, _View] = {}  # by consumer
        self._distinct: dict[_View, None] = {}
        self._floors: dict[Hashable, int] = {}  # by consumer, if not 0: see Backlog
        self._in_order: list[int] | None = None  # all ids, and some that left; made when `between` is first called

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[Message]:
        return iter(sorted(self._ready.values(), key=lambda m: (-m.header.priority, m.id)))

    def unordered(self) -> Iterator[Message]:
        """All messages, in no particular order."""
        return iter(self._ready.values())

    def older(self, bound: int) -> Iterator[Message]:
        """The messages with ids below `bound`.  Visits all messages."""
        return (message for message in self._ready.values() if message.id < bound)

    def between(self, after: int, below: int, most: int) -> list[Message]:
        """At most `most` messages with ids between these two, oldest first.

        The first call sorts all ids; later ones visit few others.
        """
        ids, ready = self._in_order, self._ready
        if ids is None:
            ids = self._in_order = sorted(ready)
        found: list[Message] = []
        for at in range(bisect_right(ids, after), len(ids)):
            if ids[at] >= below or len(found) == most:
                break
            message = ready.get(ids[at])
            if message is not None:
                found.append(message)
        return found

    def _keep_order(self, messages: list[Message], ids: list[int]) -> None:
        """Add messages to the sorted ids, or drop the list if most of its messages have left."""
        if len(ids) > 2 * len(self._ready) + STALE_MAX:
            self._in_order = None
            return
        for message in messages:
            if not ids or message.id > ids[-1]:
                ids.append(message.id)
                continue
            at = bisect_left(ids, message.id)
            if ids[at] != message.id:  # it may have left and returned
                ids.insert(at, message.id)

    @property
    def entries(self) -> int:
        """How many ids the views hold: what they cost in memory."""
        return sum([view.count for view in self._distinct])

    def attach(self, key: Hashable, predicate: Predicate | None) -> None:
        """Add a consumer: match all ready messages, once, unless another one has an equal predicate."""
        view = next((each for each in self._distinct if each.predicate == predicate), None) if self.sharing else None
        if view is None:
            view = _View(predicate)
            view.add(self)
            self._distinct[view] = None
        view.users += 1
        self._views[key] = view

    def detach(self, key: Hashable) -> None:
        """Remove a consumer."""
        self._leave_view(key)
        self._floors.pop(key, None)

    def _leave_view(self, key: Hashable) -> None:
        view = self._views.pop(key)
        view.users -= 1
        if not view.users:
            del self._distinct[view]

    def append(self, messages: list[Message], priority: int) -> None:
        """Add a run of new messages that share a priority."""
        self._ready.update((message.id, message) for message in messages)
        for view in self._distinct:
            view.add(messages)
        self._entered(messages)

    def put_back(self, messages: list[Message]) -> None:
        """Put messages back, each before all younger ones of its priority."""
        for message in messages:
            self._ready[message.id] = message
            for view in self._distinct:
                view.add_left(message)
        self._entered(messages)

    def _entered(self, messages: list[Message]) -> None:
        """Bound the views, and keep the order of ids if it is known."""
        for view in self._distinct:
            if view.count > 2 * len(self._ready) + STALE_MAX:
                view.rebuild(self._ready)
        if self._in_order is not None:
            self._keep_order(messages, self._in_order)

    def pop_for(self, key: Hashable) -> Message | None:
        """Remove and return the next message for this consumer, or None."""
        return self._views[key].pop(self._ready, self._floors.get(key, 0))

    def has_for(self, key: Hashable, priority: int) -> bool:
        """Whether there is a message of this priority or a higher one for this consumer."""
        return self._views[key].has(self._ready, priority)

    def set_floor(self, key: Hashable, floor: int) -> None:
        """Set the priority below which this consumer gets no message."""
        if floor:
            self._floors[key] = floor
        else:
            self._floors.pop(key, None)

    def rematch(self, key: Hashable, predicate: Predicate | None) -> None:
        """Replace a consumer's predicate: match all ready messages, once."""
        self._leave_view(key)
        self.attach(key, predicate)

    def take_head(self, count: int) -> list[Message]:
        """Remove and return the next messages in the order of delivery, for any consumer."""
        if _HEAD not in self._views:
            self.attach(_HEAD, None)
        view = self._views[_HEAD]
        taken: list[Message] = []
        while len(taken) < count and (message := view.pop(self._ready)) is not None:
            taken.append(message)
        return taken

    def discard(self, message: Message) -> None:
        """Remove a message that is known to be here."""
        del self._ready[message.id]

    def clear(self) -> list[Message]:
        """Remove and return all messages in the order of delivery."""
        everything = list(self)
        self._ready.clear()
        self._in_order = None
        for view in self._distinct:
            view.rebuild(self._ready)
        return everything


class KeptBacklog(SelectiveBacklog):
    """The messages of a non-destructive queue: each consumer gets every message once, and the messages stay.

    A consumer's view holds those that it has not been sent.  Messages leave by expiry, by an operator, or because newer
    ones replace or evict them.
    """

    __slots__ = ()

    lasting: ClassVar[bool] = True
    sharing: ClassVar[bool] = False  # a view is what its consumer has not been sent

    def pop_for(self, key: Hashable) -> Message | None:
        """The next message that this consumer has not been sent; it stays."""
        return self._views[key].next_in(self._ready)

    def rematch(self, key: Hashable, predicate: Predicate | None) -> None:
        """Replace a consumer's predicate, which leaves out more than before: what it was sent does not come again."""
        self._views[key].predicate = predicate
