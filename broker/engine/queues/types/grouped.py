"""The backlog of a queue with message groups: the messages of a group go to one consumer, in their order.

    _assigned    which consumer has a group: the first that got one of its messages, until it leaves, the group is
                 closed, or all groups are dealt out anew
    _lines       the ready messages of each group

Every consumer has its view, as with selectors.  A message of another's group that a consumer comes to drops out of its
view, so that nobody waits at the head of the line for a consumer without credit; when a group becomes free, its ready
messages enter all views again.  A message that its group's owner does not take (a selector, or it has refused it) may
go to anybody, because nobody else ever could take it.

Groups may be counted (`group-buckets`): then a group is its hash, and whatever falls into the same bucket is one group.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Final
from zlib import crc32

from broker.engine.model.message import Message
from broker.engine.queues.selective import SelectiveBacklog

#: Groups of one queue whose consumer is remembered: some 10 MiB.  Beyond that the one that has been known for longest
#: and has no ready message is forgotten: its next message chooses anew.
GROUPS_MAX: Final = 65_536

#: Messages of a group that becomes free which enter the views one by one; more, and the views are made anew.
ENTERED_MAX: Final = 16


def bucket(group: str, buckets: int) -> int:
    """The same number for the same group, in every run of the broker."""
    return crc32(group.encode()) % buckets


class GroupedBacklog(SelectiveBacklog):
    """Messages ready for delivery, some in groups.  `buckets` above 0: so many groups there are.

    With `mark_first`, `first` has the messages that were the first of their group for a consumer; whoever delivers
    them takes them out.
    """

    __slots__ = ("_assigned", "_buckets", "_lines", "_mark_first", "draining", "first", "groups_max")

    lasting: ClassVar[bool] = True

    def __init__(self, messages: Iterable[Message], *, buckets: int, mark_first: bool) -> None:
        ready = list(messages)
        super().__init__(ready)
        self.first: set[int] = set()
        self.draining = False  # the groups are dealt out anew once nothing is in delivery
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

    # -- messages --------------------------------------------------------------------------------------------------

    def append(self, messages: list[Message], priority: int) -> None:
        """Add a run of new messages that share a priority."""
        self._enter(messages)
        super().append(messages, priority)

    def put_back(self, messages: list[Message]) -> None:
        """Messages return, each to its place before all younger ones of its priority."""
        self._enter(messages)
        super().put_back(messages)

    def discard(self, message: Message) -> None:
        """Take out a message that is known to be here."""
        self._leave(message)
        super().discard(message)

    def take_head(self, count: int) -> list[Message]:
        """The next messages in the order of delivery, for any consumer; they are gone from here."""
        taken = super().take_head(count)
        for message in taken:
            self._leave(message)
        return taken

    def clear(self) -> list[Message]:
        """Everything, in the order of delivery; the backlog is empty afterwards."""
        self._lines.clear()
        return super().clear()

    # -- consumers -------------------------------------------------------------------------------------------------

    def pop_for(self, key: Hashable) -> Message | None:
        """The next message that this consumer may take, or None.  A group that is nobody's becomes its own."""
        view, ready = self._views[key], self._ready
        while (message := view.pop(ready)) is not None:
            group = self._group(message)
            if not group:
                return message
            owner = self._assigned.get(group)
            if owner is None:
                self._assign(group, key, message)
            elif owner != key and self._wanted(owner, message):
                ready[message.id] = message  # not this consumer's: it stays ready, and has left this view
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

    def detach(self, key: Hashable) -> None:
        """A consumer leaves: its groups are free."""
        super().detach(key)
        free = [group for group, owner in self._assigned.items() if owner == key]
        for group in free:
            del self._assigned[group]
        self._free(free)

    def reset(self) -> None:
        """All groups are free."""
        free = list(self._assigned)
        self._assigned.clear()
        self._free(free)

    def _free(self, groups: list[str]) -> None:
        """The ready messages of these groups enter every view, from which they may have dropped."""
        messages = [message for group in groups for message in self._lines.get(group, {}).values()]
        if len(messages) > ENTERED_MAX:
            for key, view in list(self._views.items()):
                self.rematch(key, view.predicate)
            return
        for message in messages:
            for view in self._views.values():
                view.add_left(message)
