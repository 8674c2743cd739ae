"""Work that may be long is done in steps, some in each tick, so that no client waits for another's (promise P6).

A tick has a budget of CPU time.  Whatever may touch many messages, queues or consumers spends it, and leaves the rest
to the next tick once nothing is `left`.  The unit is a microsecond.  Costs are counted, as they are on an ordinary
machine; what the CPU has really used since the tick began counts if it is more: it may be slow or busy, and a client's
verbs take time before they spend anything.  Simulations measure nothing, so the same verbs take the same steps there.

Two ways to use it:

    spend       a loop that continues by itself in the next tick (a queue that is served again, alarms that are due)
                spends what each round costs, and ends when `spend` says so
    begin       any other work is a generator, which does a little and yields the cost of that; each tick resumes it
    add         the same, but it begins at the end of the tick: thousands may be added in one

Work of one owner is done in order.  Owners take turns: one with much to do does not hold up another.  A long commit
takes every other turn, as others may wait for its end.  Work begun in earlier ticks has half of the budget: what is
left of a consumer's acknowledgements would else wait for all that producers send meanwhile, and messages pile up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Final

#: Some work: yields what it did since it last yielded costs, in microseconds.  Does about a `STEP` at most.
LongWork = Generator[int, None, None]

#: What a step of some work may cost.
STEP: Final = 1_000

#: What verbs and work may cost in a tick, with parsing and routing: half of the 20 ms that others may wait.
BUDGET: Final = 10_000

#: What a tick has at least for anything but verbs, whatever these have used up.
BUDGET_MIN: Final = 2_000

#: The same for deliveries.  One costs a third of what publishing the message does, so that producers which use up all
#: the rest are still outrun: if they were not, messages would pile up, and each cost more than in an empty queue.
DELIVERIES_MIN: Final = 6_000

#: How many messages of long work are treated together at most, whatever the work says.
TOGETHER_MAX: Final = 8_192

#: Small costs are only counted until they have reached this.
_MEASURED_AFTER: Final = 250


def _unmeasured(_: int) -> int:
    return 0


def gathered(work: LongWork) -> LongWork:
    """The same work, which yields many small costs, in steps of about a STEP."""
    gathered = 0
    for cost in work:
        gathered += cost
        if gathered >= STEP:
            yield gathered
            gathered = 0
    if gathered:
        yield gathered


class Steps:
    """The budget of the tick, and the work that continues in the next one.

    `cpu` returns the CPU time that the thread has used, in microseconds (`broker.clock.ThreadCpu`); constant: costs are
    only counted.  `budget`, in microseconds, is what verbs and work have in the next ticks, `budget_min` what work has
    at least, `deliveries_min` what deliveries have; `together_max`: how many messages are treated together at most.
    `first`: the owner whose work takes every other turn.
    """

    __slots__ = (
        "_cpu",
        "_end",
        "_kept",
        "_lines",
        "_next",
        "_others",
        "budget",
        "budget_min",
        "deliveries_min",
        "first",
        "left",
        "together_max",
    )

    def __init__(self, cpu: Callable[[int], int] = _unmeasured) -> None:
        self._cpu = cpu
        self.budget = BUDGET
        self.budget_min = BUDGET_MIN
        self.deliveries_min = DELIVERIES_MIN
        self.together_max = TOGETHER_MAX
        self.first: Hashable = None
        self._others = False  # it is the turn of others
        self._lines: dict[Hashable, deque[tuple[LongWork, object]]] = {}  # by owner, with the connections to blame
        self._kept = 0  # of this tick's budget for work begun earlier
        self._grant(self.budget)

    def __len__(self) -> int:
        """How many owners have work to do."""
        return len(self._lines)

    def refill(self) -> None:
        """Begin a tick."""
        self._kept = self.budget // 2 if self._lines else 0
        self._grant(self.budget - self._kept)

    def ensure(self, least: int) -> None:
        """Have so much left at least, so that nothing stands still."""
        if self.measure(least) < least:
            self._grant(least)

    def _grant(self, budget: int) -> None:
        self.left = budget
        self._end = self._cpu(0) + budget  # the CPU time at which it is used up
        self._next = budget - _MEASURED_AFTER  # when so much is left, it is measured

    def spend(self, cost: int) -> bool:
        """Spend some of the budget; returns whether any is left."""
        self.left -= cost
        if self.left < self._next:
            self.measure()
        return self.left > 0

    def reserve(self, cost: int) -> None:
        """Spend what will be done at the end of the tick, in addition to what was done."""
        self.left -= cost
        self._end -= cost

    def measure(self, enough: int = 0) -> int:
        """Spend what the CPU has used beyond the costs that were counted, if that leaves only `enough`, or less.

        Returns what is left; less than that, but more than `enough`, if the CPU did other things meanwhile.
        """
        left = self._end - self._cpu(self._end - enough)
        if left <= enough:
            self.left = min(self.left, left)
        self._next = self.left - _MEASURED_AFTER
        return min(self.left, left)

    def at_most(self, together: int) -> int:
        """How many messages may be treated together by work that would treat so many."""
        return min(together, self.together_max)

    def begin(self, owner: Hashable, work: LongWork, transport: object = None) -> None:
        """Begin some work: now, as far as the budget goes, unless the same owner has unfinished work.

        `transport`: the connection that an exception of a later step costs; None: none.
        """
        line = self._lines.get(owner)
        if line is not None:
            line.append((work, transport))
            return
        while self.measure() > 0:
            cost = next(work, None)
            if cost is None:
                return
            self.left -= cost
        self._lines[owner] = deque([(work, transport)])

    def add(self, owner: Hashable, work: LongWork, transport: object = None) -> None:
        """Begin some work at the end of the tick, behind the unfinished work of the same owner."""
        self._lines.setdefault(owner, deque()).append((work, transport))

    def is_busy(self, owner: Hashable) -> bool:
        """Whether an owner has unfinished work."""
        return owner in self._lines

    def run(self, step: Callable[[LongWork, object], int | None]) -> None:
        """Continue what was begun earlier, in turns, while there is budget.

        `step` resumes some work and returns the cost of that, None at its end; it does not raise.
        """
        if self.measure() > 0:
            self.left += self._kept
            self._end += self._kept
            self._next += self._kept
        else:
            self._grant(self._kept)
        self._kept = 0
        self.ensure(self.budget_min)
        while self._lines and self.measure() > 0:
            owner = self.first if self.first in self._lines and not self._others else next(iter(self._lines))
            self._others = not self._others
            line = self._lines[owner]
            cost = step(*line[0])
            if cost is None:
                line.popleft()
            else:
                self.left -= cost
            del self._lines[owner]
            if line:
                self._lines[owner] = line  # behind the others
