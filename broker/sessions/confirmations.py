"""Confirmations of a connection: sent once what they confirm is durable (promise P1), in order.

Receipts, acknowledgements and outcomes wait in one line per connection.  Those owed after a read has been processed
are confirmed together.  Anything behind a waiting confirmation waits too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from broker.engine import Engine, Waiter

Item = TypeVar("Item")


class Confirmations(Generic[Item]):
    """The confirmations of one connection; `say` sends a list of them to the peer.

    If the connection ends while `say` runs, `drop` also returns what is still in the list that `say` was given.  So a
    `say` that removes each item as it sends it leaves exactly the unsent ones.
    """

    __slots__ = ("_engine", "_say", "_saying", "_waiting", "owed")

    def __init__(self, engine: Engine, say: Callable[[list[Item]], None]) -> None:
        self.owed: list[Item] = []  # since the last `confirm`
        self._engine = engine
        self._say = say
        self._saying: list[Item] = []
        self._waiting: list[tuple[int, list[Item]]] = []  # by tick; an empty deque would cost 600 bytes

    @property
    def waiting(self) -> bool:
        """Whether a confirmation waits for the disk."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Item]:
        """Yield what waits for the disk and what is owed, in order."""
        for _, items in self._waiting:
            yield from items
        yield from self.owed

    def confirm(self, waiter: Waiter) -> bool:
        """Send what is owed, at once or when it is durable.  Returns whether it was sent at once."""
        if not self.owed:
            return False
        owed, self.owed = self.owed, []
        ticket = self._engine.ticks.confirmation(waiter)
        if ticket or self._waiting:
            self._waiting.append((ticket or self._waiting[-1][0], owed))
            return False
        self._say_now(owed)
        return True

    def _say_now(self, items: list[Item]) -> None:
        self._saying = items
        self._say(items)
        self._saying = []

    def after(self, ticket: int, item: Item) -> None:
        """Send an item once a tick is durable, after everything that waits."""
        if self._waiting and self._waiting[-1][0] == ticket:
            self._waiting[-1][1].append(item)
        else:
            self._waiting.append((ticket, [item]))

    def follow(self, item: Item) -> None:
        """Send an item after everything that waits for the disk, at once if nothing does."""
        if self._waiting:
            self._waiting[-1][1].append(item)
        else:
            self._say_now([item])

    def durable(self, number: int) -> None:
        """Send what waited for ticks up to this one: they are on disk."""
        while self._waiting and self._waiting[0][0] <= number:
            self._say_now(self._waiting.pop(0)[1])

    def keep(self, wanted: Callable[[Item], bool]) -> None:
        """Drop the items that are no longer wanted."""
        self.owed = list(filter(wanted, self.owed))
        self._waiting = [(ticket, list(filter(wanted, items))) for ticket, items in self._waiting]

    def drop(self) -> list[Item]:
        """Send nothing more.  Returns what was waiting, in order."""
        self.owed = []
        unsent = [*self._saying, *self]
        self._saying.clear()
        self._waiting = []
        return unsent
