"""Confirmations of a connection: sent once what they confirm is durable (promise P1), in order.

Receipts, acknowledgements and outcomes wait in one line per connection.  Those pending after a read has been processed
are confirmed together.  Anything behind a waiting confirmation waits too.

Many are sent in portions, the rest in the next tick if this one's budget is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from broker.engine import Engine

Item = TypeVar("Item")

#: How many are sent together, more than a read causes, and what each costs at least, in microseconds
#: (`broker.engine.queues.steps`).  The outcomes of one read are for consecutive deliveries: one frame if they are sent
#: together.  Links take turns, so that parts would have holes, and each delivery a frame.
TOGETHER: Final = 2_048
_COST: Final = 1


def _one(item: object) -> int:
    return 1


class Confirming(Protocol[Item]):
    """The connection whose confirmations they are (see Waiter)."""

    @property
    def transport(self) -> object:
        """The connection's socket."""

    def durable(self, number: int) -> None:
        """Pass it on to `Confirmations.durable`: everything up to a tick is on disk."""

    def send_confirmations(self, items: list[Item]) -> None:
        """Send these to the peer."""


class Confirmations(Generic[Item]):
    """The confirmations of one connection; `count` is what one counts as.

    They do not refer to their connection, which is passed to each call: an ended one is in no reference cycle.

    If the connection ends while it sends some, `drop` also returns what is still in the list that it was given.  So a
    connection that removes each item as it sends it leaves exactly the unsent ones.
    """

    __slots__ = ("_count", "_engine", "_sending", "_waiting", "pending")

    def __init__(self, engine: Engine, count: Callable[[Item], int] = _one) -> None:
        self.pending: list[Item] = []  # since the last `confirm`
        self._count = count
        self._engine = engine
        self._sending: list[Item] = []
        self._waiting: list[tuple[int, list[Item]]] = []  # by tick; an empty deque would cost 600 bytes

    @property
    def waiting(self) -> bool:
        """Whether a confirmation waits for the disk."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Item]:
        """Yield what waits for the disk and what is pending, in order."""
        for _, items in self._waiting:
            yield from items
        yield from self.pending

    def confirm(self, to: Confirming[Item]) -> bool:
        """Send what is pending, at once or when it is durable.  Returns whether it was sent at once."""
        if not self.pending:
            return False
        pending, self.pending = self.pending, []
        ticket = self._engine.ticks.confirmation(to)
        if ticket or self._waiting:
            self._waiting.append((ticket or self._waiting[-1][0], pending))
            return False
        if len(pending) > 1:
            self._waiting.append((0, pending))
            self.durable(to, 0)
        else:
            self._send(to, pending)
        return True

    def _send(self, to: Confirming[Item], items: list[Item]) -> None:
        self._sending = items
        to.send_confirmations(items)
        self._sending = []

    def after(self, ticket: int, item: Item) -> None:
        """Send an item once a tick is durable, after everything that waits."""
        if self._waiting and self._waiting[-1][0] == ticket:
            self._waiting[-1][1].append(item)
        else:
            self._waiting.append((ticket, [item]))

    def follow(self, to: Confirming[Item], item: Item) -> None:
        """Send an item after everything that waits for the disk, at once if nothing does."""
        if self._waiting:
            self._waiting[-1][1].append(item)
        else:
            self._send(to, [item])

    def durable(self, to: Confirming[Item], number: int) -> None:
        """Send what waited for ticks up to this one: they are on disk."""
        ticks = self._engine.ticks
        while self._waiting and self._waiting[0][0] <= number:
            items = self._waiting[0][1]
            at = count = 0
            while at < len(items) and count < TOGETHER:
                count += self._count(items[at])
                at += 1
            portion = items[:at]
            del items[:at]
            if not items:
                del self._waiting[0]
            self._send(to, portion)
            if not ticks.spend(_COST * count):
                if self._waiting and self._waiting[0][0] <= number:
                    ticks.confirm_later(to, number)
                return

    def retain(self, wanted: Callable[[Item], bool]) -> None:
        """Drop the items that are no longer wanted."""
        self.pending = list(filter(wanted, self.pending))
        self._waiting = [(ticket, list(filter(wanted, items))) for ticket, items in self._waiting]

    def drop(self) -> list[Item]:
        """Send nothing more.  Returns what was waiting, in order."""
        self.pending = []
        unsent = [*self._sending, *self]
        self._sending.clear()
        self._waiting = []
        return unsent
