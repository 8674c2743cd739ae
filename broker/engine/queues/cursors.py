"""How far the messages of a queue were matched for the consumers that accept only part of them.

Such a consumer has a cursor: up to where it has looked on each level.  What it has passed was not for it, and is not
matched again.  Nothing is matched before a consumer asks for a message, and then within the budget of the tick, so
neither a subscription nor an arrival costs more because of the selectors of others.  Consumers with equal predicates
share a cursor.  A cursor takes no memory for each message.

Messages that come in behind a cursor (they return, or were not durable yet) are noted in one log for all of them; each
looks at what it has not seen there when it asks next.  One that stands still while the log grows beyond the backlog
starts again at the head instead, which costs no more.  Where messages stay, that would send them again: there the log
drops what all have seen, and what has left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from typing import Final

from broker.engine.model.message import Message
from broker.engine.queues.level import Level
from broker.engine.queues.steps import Steps

PRIORITIES: Final = 10

#: Decides whether a consumer accepts a message.
Predicate = Callable[[Message], bool]

#: What matching a message costs, unless the predicate has a `cost` of its own; and the bytes of its headers that are
#: read in a microsecond.
MATCH_COST: Final = 4
HEAD_BYTES: Final = 16

#: Messages in the log beyond those in the backlog.
LOG_MAX: Final = 1024


def cost_of(predicate: Predicate | None) -> int:
    """What it costs to match a message whose headers are short."""
    cost: int = getattr(predicate, "cost", MATCH_COST)
    return cost


class Cursor:
    """Up to where a predicate was matched: on each level (`at`, an id) and in the log (`seen`).

    `behind` has the ids of messages that came in behind it, a heap for each priority; some may have left.  `users`
    counts its consumers.
    """

    __slots__ = ("at", "behind", "cost", "predicate", "seen", "users")

    def __init__(self, predicate: Predicate | None, seen: int) -> None:
        self.predicate = predicate
        self.cost = cost_of(predicate)
        self.at = [-1] * PRIORITIES
        self.behind: dict[int, list[int]] = {}
        self.seen = seen
        self.users = 1

    def accepts(self, message: Message) -> bool:
        """Whether the message is for its consumers."""
        return self.predicate is None or self.predicate(message)

    def spend(self, steps: Steps, message: Message) -> bool:
        """Spend what matching a message costs; returns whether any budget is left."""
        return steps.spend(self.cost + len(message.head) // HEAD_BYTES)

    def split(self, predicate: Predicate) -> Cursor:
        """A cursor at the same place, for a consumer that accepts less from now on."""
        other = Cursor(predicate, self.seen)
        other.at = self.at.copy()
        other.behind = {priority: ids.copy() for priority, ids in self.behind.items()}
        return other

    def pass_by(self, message: Message) -> None:
        """Go past the message that was found next."""
        priority = message.header.priority
        if message.id > self.at[priority]:
            self.at[priority] = message.id
        else:
            heappop(self.behind[priority])

    def note(self, message: Message) -> None:
        """Note a message that may have come in behind it."""
        priority = message.header.priority
        if message.id <= self.at[priority] and self.accepts(message):
            heappush(self.behind.setdefault(priority, []), message.id)

    def rewind(self, seen: int) -> None:
        """Start again at the head."""
        self.at = [-1] * PRIORITIES
        self.behind.clear()
        self.seen = seen


class Cursors:
    """The cursors of one backlog's consumers, under any keys that the caller chooses."""

    __slots__ = ("_by_key", "_distinct", "_floors", "_levels", "_log", "_log_from")

    def __init__(self, levels: list[Level]) -> None:
        self._levels = levels
        self._by_key: dict[Hashable, Cursor] = {}
        self._distinct: dict[Cursor, None] = {}
        self._floors: dict[Hashable, int] = {}  # if not 0
        self._log: list[Message] = []
        self._log_from = 0  # how many entries were dropped from it

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def __getitem__(self, key: Hashable) -> Cursor:
        return self._by_key[key]

    def attach(self, key: Hashable, predicate: Predicate | None, *, sharing: bool) -> None:
        """Add a consumer; with `sharing` it may get the cursor of another one."""
        cursor = next((each for each in self._distinct if sharing and each.predicate == predicate), None)
        if cursor is None:
            cursor = Cursor(predicate, self._log_end)
            self._distinct[cursor] = None
        else:
            cursor.users += 1
        self._by_key[key] = cursor

    def detach(self, key: Hashable) -> None:
        """Remove a consumer."""
        cursor = self._by_key.pop(key)
        self._floors.pop(key, None)
        cursor.users -= 1
        if not cursor.users:
            del self._distinct[cursor]

    def restrict(self, key: Hashable, predicate: Predicate) -> None:
        """Replace a consumer's predicate by one that accepts less."""
        floor, own = self._floors.get(key, 0), self._by_key[key].split(predicate)
        self.detach(key)
        self._by_key[key] = own
        self._distinct[own] = None
        self.set_floor(key, floor)

    def set_floor(self, key: Hashable, floor: int) -> None:
        """Set the priority below which a consumer gets no message."""
        if floor:
            self._floors[key] = floor
        else:
            self._floors.pop(key, None)

    def rewind(self) -> None:
        """Let all start again at the head, each when it is next asked."""
        self._log_from = self._log_end + 1
        self._log.clear()

    def next(self, key: Hashable, steps: Steps, lowest: int | None = None) -> Message | None:
        """The next message for a consumer, which it has not passed; None if there is none, or no budget is left.

        Its priority is `lowest` at least, without it the consumer's floor.
        """
        cursor = self._by_key[key]
        if cursor.seen < self._log_end:
            self._catch_up(cursor, steps)
        floor = self._floors.get(key, 0) if lowest is None else lowest
        for priority in range(PRIORITIES - 1, floor - 1, -1):
            level = self._levels[priority]
            if level.blocks and steps.left > 0:
                message = _next(level, cursor, priority, steps)
                if message is not None:
                    return message
        return None

    @property
    def _log_end(self) -> int:
        return self._log_from + len(self._log)

    def came_behind(self, messages: list[Message], size: int) -> None:
        """Note messages that came in where cursors may have been; `size`: of the backlog."""
        self._log += messages
        if len(self._log) > size + len(messages) + LOG_MAX:
            self._log_from += len(self._log)
            self._log.clear()

    def _catch_up(self, cursor: Cursor, steps: Steps) -> None:
        """Look at what came in since the cursor last looked, within the budget."""
        if cursor.seen < self._log_from:
            cursor.rewind(self._log_end)
            return
        for at in range(cursor.seen - self._log_from, len(self._log)):
            message = self._log[at]
            if not cursor.spend(steps, message):
                return
            cursor.note(message)
            cursor.seen += 1


class KeptCursors(Cursors):
    """Cursors of a queue whose messages stay: a cursor never starts again, or messages would be sent again."""

    __slots__ = ("_trimmed_at",)

    def __init__(self, levels: list[Level]) -> None:
        super().__init__(levels)
        self._trimmed_at = LOG_MAX

    def came_behind(self, messages: list[Message], size: int) -> None:
        """Note messages that came in where cursors may have been."""
        self._log += messages
        if len(self._log) > self._trimmed_at:
            self._trim()
            self._trimmed_at = 2 * len(self._log) + LOG_MAX

    def _trim(self) -> None:
        """Drop from the log what all have seen, what has left, and what came in again."""
        seen = min([cursor.seen for cursor in self._distinct], default=self._log_end) - self._log_from
        last = {message.id: at for at, message in enumerate(self._log)}
        kept: list[Message] = []
        before: list[int] = []  # how many are kept of those before each
        for at, message in enumerate(self._log):
            before.append(len(kept))
            if at >= seen and last[message.id] == at and self._levels[message.header.priority].find(message.id):
                kept.append(message)
        before.append(len(kept))
        for cursor in self._distinct:
            cursor.seen = self._log_from + before[cursor.seen - self._log_from]
        self._log = kept


def _next(level: Level, cursor: Cursor, priority: int, steps: Steps) -> Message | None:
    """The next message of a level for a cursor; None if there is none, or no budget is left."""
    ids = cursor.behind.get(priority)
    while ids:
        message = level.find(ids[0])
        if message is not None and cursor.accepts(message):
            return message
        heappop(ids)
        if not (steps.spend(MATCH_COST) if message is None else cursor.spend(steps, message)):
            return None
    at = cursor.at[priority]
    if at >= level.lasts[-1]:
        return None
    found: Message | None = None
    for message in level.after(at):
        if cursor.accepts(message):
            found = message
            break
        at = message.id
        if not cursor.spend(steps, message):
            break
    cursor.at[priority] = at
    return found
