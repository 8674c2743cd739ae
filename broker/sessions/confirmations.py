"""What a connection says of what it has done, once that is true: after the disk has it (promise P1), in its order.

Receipts, acknowledgements and outcomes wait in one line a connection.  Those that are owed when a read has been looked
at are confirmed together; what follows one that waits, waits too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from broker.engine import Engine, Waiter

Item = TypeVar("Item")


class Confirmations(Generic[Item]):
    """The line of one connection; `say` tells the peer some of it.

    What ends the connection while it is said, finds in `drop` what is left of the list that `say` was given: one that
    takes out what it says leaves the rest there.
    """

    __slots__ = ("_engine", "_say", "_saying", "_waiting", "owed")

    def __init__(self, engine: Engine, say: Callable[[list[Item]], None]) -> None:
        self.owed: list[Item] = []  # for what was done since the last `confirm`
        self._engine = engine
        self._say = say
        self._saying: list[Item] = []
        self._waiting: list[tuple[int, list[Item]]] = []  # by tick; an empty deque would cost 600 bytes

    @property
    def waiting(self) -> bool:
        """Whether something waits for the disk."""
        return bool(self._waiting)

    def confirm(self, waiter: Waiter) -> bool:
        """What was done is complete: say what is owed for it, now or when it is durable; whether now."""
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
        """Say something once a tick is durable, behind all that waits."""
        if self._waiting and self._waiting[-1][0] == ticket:
            self._waiting[-1][1].append(item)
        else:
            self._waiting.append((ticket, [item]))

    def durable(self, number: int) -> None:
        """Everything up to a tick is on disk."""
        while self._waiting and self._waiting[0][0] <= number:
            self._say_now(self._waiting.pop(0)[1])

    def keep(self, wanted: Callable[[Item], bool]) -> None:
        """Forget what is not wanted any more."""
        self.owed = list(filter(wanted, self.owed))
        self._waiting = [(ticket, list(filter(wanted, items))) for ticket, items in self._waiting]

    def drop(self) -> list[Item]:
        """The peer hears nothing more: what waited, in its order."""
        self.owed = []
        unsaid = [*self._saying, *(item for _, items in self._waiting for item in items)]
        self._saying.clear()
        self._waiting = []
        return unsaid
