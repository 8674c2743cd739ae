"""The backlog of a queue with message groups: the messages of a group go to one consumer, in order.

    _assigned    the holder of each group: the consumer that was the first to get one of its messages, until it leaves,
                 the group is closed, or all groups are reassigned
    _holders     what each consumer holds
    _leaving     those that hold groups no longer, which become free in steps (`release`)
    _passed      the ready messages of each group that a consumer has passed, because they were another one's

Every consumer has a cursor of its own.  When it comes to a message of another consumer's group, it passes that, so that
no consumer waits at the head of the line for one without credit.  When a group becomes free, its ready messages are
noted as come in behind the cursors or, if they are many, the cursors start again at the head.  Until then nobody gets
messages of that group, or a younger one could go before those that were passed.  A message that its group's owner does
not accept (by its selector, or because it has refused it) may go to any consumer, as otherwise none would ever get it.

Groups may be hashed (`group-buckets`): then all messages in the same bucket form one group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from itertools import islice
from typing import ClassVar, Final
from zlib import crc32

from broker.engine.model.message import Message
from broker.engine.model.names import remembered
from broker.engine.queues.backlog import Backlog
from broker.engine.queues.cursors import MATCH_COST
from broker.engine.queues.level import Level
from broker.engine.queues.steps import Steps

#: Groups of one queue whose consumer is remembered: some 20 MiB.  Beyond that the one known for longest of whose
#: messages no consumer has passed any is forgotten: its next message chooses a consumer again.
GROUPS_MAX: Final = 65_536

#: How many groups are looked at to find one to forget.
LOOKED_AT_MAX: Final = 16

#: The most messages of freed groups that are noted one by one; for more, the cursors start again at the head.
NOTED_MAX: Final = 256


#: What it costs to free a group.
RELEASE_COST: Final = 1


class Holder:
    """A consumer (None: it has left, or all groups are reassigned) and the groups that it holds."""

    __slots__ = ("groups", "key")

    def __init__(self, key: Hashable) -> None:
        self.key: Hashable | None = key
        self.groups: dict[str, None] = {}


def bucket(group: str, buckets: int) -> int:
    """The bucket of a group: the same number in every run of the broker."""
    return crc32(group.encode()) % buckets


class GroupedBacklog(Backlog):
    """Messages ready for delivery, some in groups.  `buckets` above 0: the number of groups.

    With `mark_first`, `first` has the messages that were the first of their group for a consumer, until they are
    delivered, and `owed` the groups whose first message left instead.
    """

    __slots__ = (
        "_assigned",
        "_buckets",
        "_holders",
        "_leaving",
        "_mark_first",
        "_passed",
        "draining",
        "first",
        "groups_max",
        "owed",
    )

    own_cursors: ClassVar[bool] = True

    def __init__(self, levels: list[Level], *, buckets: int, mark_first: bool) -> None:
        super().__init__(levels)
        self.first: set[int] = set()
        self.owed: set[str] = set()
        self.draining = False  # the groups are reassigned once nothing is in delivery
        self.groups_max = GROUPS_MAX
        self._buckets = buckets
        self._mark_first = mark_first
        self._assigned: dict[str, Holder] = {}
        self._holders: dict[Hashable, Holder] = {}
        self._leaving: deque[Holder] = deque()
        self._passed: dict[str, dict[int, Message]] = {}

    @property
    def groups(self) -> int:
        """How many groups have a consumer."""
        return len(self._assigned) - sum([len(holder.groups) for holder in self._leaving])

    @property
    def is_releasing(self) -> bool:
        """Whether groups wait until they are freed."""
        return bool(self._leaving)

    def _group(self, message: Message) -> str:
        group = message.header.group
        if group and self._buckets > 0:
            return f"{bucket(group, self._buckets)}"
        return remembered(group)

    def _leave(self, message: Message) -> None:
        if not self._passed:
            return
        group = self._group(message)
        passed = self._passed.get(group)
        if passed is not None and passed.pop(message.id, None) is not None and not passed:
            del self._passed[group]

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
        self._passed.clear()
        return super().clear()

    def pop_for(self, key: Hashable, steps: Steps) -> Message | None:
        """Remove and return the next message for this consumer, or None.  A free group becomes the consumer's."""
        cursors = self._cursors
        assert cursors is not None, "every consumer has a cursor"
        while (message := cursors.next(key, steps)) is not None:
            group = self._group(message)
            holder = self._assigned.get(group) if group else None
            cursors[key].pass_by(message)
            if holder is not None and holder.key != key and self._wanted(holder, message):
                self._passed.setdefault(group, {})[message.id] = message
                steps.spend(MATCH_COST)
                continue
            self.discard(message)
            if group and holder is None:
                holder = self._assign(group, key, message)
            if holder is not None and holder.key == key and message.header.closes_group:
                del self._assigned[group], holder.groups[group]
                self._free([group])
            return message
        return None

    def _wanted(self, holder: Holder, message: Message) -> bool:
        """Whether a message waits for the holder of its group, or until the group is free."""
        return holder.key is None or (self._cursors is not None and self._cursors[holder.key].accepts(message))

    def _assign(self, group: str, key: Hashable, message: Message) -> Holder:
        if len(self._assigned) >= self.groups_max:
            self._forget_one()
        holder = self._holders.get(key)
        if holder is None:
            holder = self._holders[key] = Holder(key)
        self._assigned[group] = holder
        holder.groups[group] = None
        if self._mark_first:
            self.first.add(message.id)
            self.owed.discard(group)
        return holder

    def _forget_one(self) -> None:
        """Forget the group known for longest of whose messages none was passed; the others count as newly known."""
        for other in list(islice(self._assigned, LOOKED_AT_MAX)):
            holder = self._assigned.pop(other)
            if other not in self._passed:
                del holder.groups[other]
                return
            self._assigned[other] = holder

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
        """Remove a consumer; its groups are those of nobody, and become free by `release`."""
        super().detach(key)
        holder = self._holders.pop(key, None)
        if holder is not None:
            self._leave_groups(holder)

    def reset(self) -> None:
        """Take all groups from their consumers; they become free by `release`."""
        for holder in self._holders.values():
            self._leave_groups(holder)
        self._holders.clear()

    def _leave_groups(self, holder: Holder) -> None:
        holder.key = None
        self._leaving.append(holder)

    def release(self, most: int) -> int:
        """Free some of the groups that nobody holds; returns how many were looked at."""
        free: list[str] = []
        while self._leaving and len(free) < most:
            groups = self._leaving[0].groups
            while groups and len(free) < most:
                free.append(groups.popitem()[0])
            if not groups:
                self._leaving.popleft()
        for group in free:
            del self._assigned[group]
        self._free(free)
        return len(free)

    def _free(self, groups: list[str]) -> None:
        """Let all consumers find the ready messages of these groups that some of them have passed."""
        cursors = self._cursors
        found = [self._passed.pop(group) for group in groups if group in self._passed] if self._passed else []
        if cursors is None or not found:
            return
        if sum(map(len, found)) > NOTED_MAX:
            self._passed.clear()
            cursors.rewind()
        else:
            cursors.came_behind([message for passed in found for message in passed.values()], len(self))
