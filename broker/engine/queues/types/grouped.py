"""The backlog of a queue with message groups: the messages of a group go to one consumer, in order.

    _assigned    the consumer of each group: the first that got one of its messages, until it leaves, the group is
                 closed, or all groups are reassigned
    _lines       the ready messages of each group

Every consumer has its view, as with selectors.  When a consumer comes to a message of another consumer's group, the
message drops out of its view, so that no consumer waits at the head of the line for one without credit.  When a group
becomes free, its ready messages enter all views again.  A message that its group's owner does not accept (by its
selector, or because it has refused it) may go to any consumer, as otherwise none would ever get it.

Groups may be hashed (`group-buckets`): then all messages in the same bucket form one group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Final
from zlib import crc32

from broker.engine.model.message import Message
from broker.engine.queues.selective import SelectiveBacklog

#: Groups of one queue whose consumer is remembered: some 10 MiB.  Beyond that the one known for longest that has no
#: ready message is forgotten: its next message chooses a consumer again.
GROUPS_MAX: Final = 65_536

#: The most messages of freed groups that enter the views one by one; for more, the views are rebuilt.
ENTERED_MAX: Final = 16


def bucket(group: str, buckets: int) -> int:
    """The bucket of a group: the same number in every run of the broker."""
    return crc32(group.encode()) % buckets


class GroupedBacklog(SelectiveBacklog):
    """Messages ready for delivery, some in groups.  `buckets` above 0: the number of groups.

    With `mark_first`, `first` has the messages that were the first of their group for a consumer, until they are
    delivered, and `owed` the groups whose first message left instead.
    """

    __slots__ = ("_assigned", "_buckets", "_lines", "_mark_first", "draining", "first", "groups_max", "owed")

    lasting: ClassVar[bool] = True
    sharing: ClassVar[bool] = False  # messages of other consumers' groups drop out of a view

    def __init__(self, messages: Iterable[Message], *, buckets: int, mark_first: bool) -> None:
        ready = list(messages)
        super().__init__(ready)
        self.first: set[int] = set()
        self.owed: set[str] = set()
        self.draining = False  # the groups are reassigned once nothing is in delivery
        self.groups_max = GROUPS_MAX
        self._buckets = buckets
        self._mark_first = mark_first
        self._assigned: dict[str, Hashable] = {}
        self._lines: dict[str, dict[int, Message]] = {}
        self._enter(ready)

    @property
    def groups(self) -> int:
        """How many groups have a consumer."""
        return len(self._assigned)

    def _group(self, message: Message) -> str:
        group = message.header.group
        return f"{bucket(group, self._buckets)}" if group and self._buckets > 0 else group

    def _enter(self, messages: Iterable[Message]) -> None:
        for message in messages:
            group = self._group(message)
            if group:
                self._lines.setdefault(group, {})[message.id] = message

    def _leave(self, message: Message) -> None:
        group = self._group(message)
        line = self._lines.get(group)
        if line is not None and line.pop(message.id, None) is not None and not line:
            del self._lines[group]

    def append(self, messages: list[Message], priority: int) -> None:
        """Add a run of new messages that share a priority."""
        self._enter(messages)
        super().append(messages, priority)

    def put_back(self, messages: list[Message]) -> None:
        """Put messages back, each before all younger ones of its priority."""
        self._enter(messages)
        super().put_back(messages)

    def discard(self, message: Message) -> None:
        """Remove a message that is known to be here."""
        self._leave(message)
        super().discard(message)

    def take_head(self, count: int) -> list[Message]:
        """Remove and return the next messages in the order of delivery, for any consumer."""
        taken = super().take_head(count)
        for message in taken:
            self._leave(message)
        return taken

    def clear(self) -> list[Message]:
        """Remove and return all messages in the order of delivery."""
        self._lines.clear()
        return super().clear()

    def pop_for(self, key: Hashable) -> Message | None:
        """Remove and return the next message for this consumer, or None.  A free group becomes the consumer's."""
        view, ready, floor = self._views[key], self._ready, self._floors.get(key, 0)
        while (message := view.pop(ready, floor)) is not None:
            group = self._group(message)
            if not group:
                return message
            owner = self._assigned.get(group)
            if owner is None:
                self._assign(group, key, message)
            elif owner != key and self._wanted(owner, message):
                ready[message.id] = message  # for another consumer: it stays ready, but has left this view
                continue
            self._leave(message)
            if message.header.closes_group and self._assigned.get(group) == key:
                del self._assigned[group]
                self._free([group])
            return message
        return None

    def _wanted(self, owner: Hashable, message: Message) -> bool:
        predicate = self._views[owner].predicate
        return predicate is None or predicate(message)

    def _assign(self, group: str, key: Hashable, message: Message) -> None:
        if len(self._assigned) >= self.groups_max:
            idle = next((g for g in self._assigned if g not in self._lines), "")
            self._assigned.pop(idle, None)
        self._assigned[group] = key
        if self._mark_first:
            self.first.add(message.id)
            self.owed.discard(group)

    def left(self, messages: list[Message]) -> None:
        """Handle messages leaving the queue: the first of a group may not have been delivered."""
        for message in messages:
            if message.id in self.first:
                self.first.discard(message.id)
                self.owed.add(self._group(message))

    def is_first(self, message: Message) -> bool:
        """Whether a message is the first of its group that its consumer gets; ask once, on its delivery."""
        group = self._group(message)
        if message.id not in self.first and group not in self.owed:
            return False
        self.first.discard(message.id)
        self.owed.discard(group)
        return True

    def detach(self, key: Hashable) -> None:
        """Remove a consumer and free its groups."""
        super().detach(key)
        free = [group for group, owner in self._assigned.items() if owner == key]
        for group in free:
            del self._assigned[group]
        self._free(free)

    def reset(self) -> None:
        """Free all groups."""
        free = list(self._assigned)
        self._assigned.clear()
        self._free(free)

    def _free(self, groups: list[str]) -> None:
        """Put the ready messages of these groups back in every view, from which they may have dropped."""
        messages = [message for group in groups for message in self._lines.get(group, {}).values()]
        if len(messages) > ENTERED_MAX:
            for key, view in list(self._views.items()):
                self.rematch(key, view.predicate)
            return
        for message in messages:
            for view in self._distinct:
                view.add_left(message)
