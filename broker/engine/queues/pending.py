"""The work of ticks that waits until their journal entries are durable.

A tick is one turn of the engine's driver.  Within it verbs change state and add records to the open journal
entry; at its end the entry is sealed.  Four things wait until the entry is durable:

    landing     messages stored in the entry, which become ready on their queues (on strict queues they are ready at
                once, see `arrival.stored`); on many queues some at a time (`FanOut`)
    copied      paged messages copied in the entry (cleaning), which can be read there
    held        deliveries journalled in the entry (strict mode), which are sent
    waiters     sessions with confirmations to send, which the engine's driver tells

They are collected by tick and released in order (promise P1).  While an entry is held open, what overtakes it is
collected apart (`overtaking`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final, Protocol

from broker.engine.model.message import Message
from broker.engine.queues.held_entry import HeldEntry
from broker.engine.queues.ledger import Ledger
from broker.engine.queues.paging.tail import Chunk, Landing
from broker.engine.queues.queue import Consumer, Queue
from store.journal import Journal

#: More ticks than an entry is ever held: work that waits for it has a number behind that of all that overtakes it.
TICKS_HELD_MAX: Final = 1 << 40


class Waiter(Protocol):
    """Waits for a ticket to become durable."""

    @property
    def transport(self) -> object:
        """The connection to close if it raises; None: there is none."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""


#: Deliveries that await the journal: the consumer, the messages, and whether some of them expire.
Held = tuple[Consumer, list[Message], bool]


#: A run that lands on some queues, and its place in the journal if it is for many of them and is to be paged there.
OnTheWay = tuple[list[Queue], list[Message], Landing | None]


@dataclass(slots=True, eq=False)
class Work:
    """The work of a tick that waits for its journal entries to become durable.

    `number` counts ticks; `ticket` is the last journal entry of the tick, known when it is sealed.
    """

    number: int
    ticket: int = 0
    landing: list[OnTheWay] = field(default_factory=list)
    copied: list[tuple[Chunk, list[int]]] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    waiters: dict[Waiter, None] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether anything waits."""
        return bool(self.landing or self.held or self.waiters or self.copied)


@dataclass(slots=True, eq=False)
class FanOut:
    """A run of messages, durable if it must be, that lands on many queues, in their order: on some in each tick.

    `number`: the tick in which it came; `page`: its place if it is to be paged; `landed`: on how many queues it is.
    What comes to one of the others later is another one, behind it: on a single queue, as a run that is for many has at
    least two (`Queue.behind`).
    """

    number: int
    queues: list[Queue]
    messages: list[Message]
    page: Landing | None
    landed: int = 0

    def has_still(self, queue: Queue) -> bool:
        """Whether it has still to land on a queue."""
        return queue in islice(self.queues, self.landed, None)


class Unfinished:
    """The connections that have settled more deliveries than a tick allows, and who waits for that (`settling`)."""

    __slots__ = ("_waiters", "_works")

    def __init__(self) -> None:
        self._works: dict[object, int] = {}  # how many, by connection
        self._waiters: dict[object, dict[Waiter, None]] = {}

    def __len__(self) -> int:
        return len(self._works)

    def begin(self, transport: object) -> None:
        """Note some work of a connection; None: nobody waits for it."""
        if transport is not None:
            self._works[transport] = self._works.get(transport, 0) + 1

    def end(self, transport: object) -> dict[Waiter, None]:
        """Note its end; returns those to be told once that is durable."""
        left = self._works.pop(transport, 1) - 1
        if not left:
            return self._waiters.pop(transport, {})
        self._works[transport] = left
        return {}

    def postpone(self, waiter: Waiter) -> bool:
        """Whether a waiter's connection has unfinished work; it is told later then."""
        transport = waiter.transport
        if transport is None or transport not in self._works:
            return False
        self._waiters.setdefault(transport, {})[waiter] = None
        return True


class Pending:
    """The ticks whose journal entries are not durable, and the one that goes on.

    `bytes_max`: how much may wait for the disk before it counts as busy.
    """

    __slots__ = (
        "_bytes_max",
        "_journal",
        "_ledger",
        "disk_has_announced",
        "fans",
        "held",
        "landed",
        "overtaking",
        "paging",
        "unfinished",
        "waiting",
        "work",
    )

    def __init__(self, journal: Journal, ledger: Ledger, bytes_max: int) -> None:
        self._journal = journal
        self._ledger = ledger
        self._bytes_max = bytes_max
        self.work = Work(1)
        self.waiting: deque[Work] = deque()
        #: The entry of a long commit, which stays open for several ticks, and the work of this tick that does not wait.
        self.held: HeldEntry | None = None
        self.overtaking: Work | None = None
        #: Runs of messages that are durable and become ready as far as the budget of each tick goes, those for one
        #: queue, and in their order those for many.
        self.landed: OrderedDict[Queue, list[list[Message]]] = OrderedDict()
        self.fans: deque[FanOut] = deque()
        self.paging = 0  # how many runs for many queues are on their way that will be paged
        self.unfinished = Unfinished()
        #: The disk has caught up a bit since the last tick: what waits while it is busy may go on for a step.
        self.disk_has_announced = False

    @property
    def disk_is_busy(self) -> bool:
        """Whether so much waits for the disk, which clients need too, that work which can wait adds nothing.

        A full disk is not busy: it announces nothing, and what adds to the journal may be what makes room there.
        """
        return self._journal.pending_bytes > self._bytes_max and not self._journal.is_short

    @property
    def is_landing(self) -> bool:
        """Whether durable messages have still to land on some queues."""
        return bool(self.landed or self.fans)

    def is_under_way(self, tick: int) -> bool:
        """Whether the journal entries of that tick may not be durable yet."""
        return tick >= (self.waiting[0] if self.waiting else self.overtaking or self.work).number

    def landing_on(self, queue: Queue, tick: float = inf) -> list[Message]:
        """The messages of a queue that have not landed, in order of arrival, of ticks up to this one.

        Searches all messages that are not yet durable.
        """
        if not (queue.landing or queue.fanned):
            return []
        found = [message for run in self.landed.get(queue, ()) for message in run]
        if queue.fanned or queue.behind:
            found += [m for fan in self.fans if fan.number <= tick and fan.has_still(queue) for m in fan.messages]
        works = [work for work in self._works() if work.number <= tick]
        return found + [m for work in works for queues, run, _ in work.landing if queue in queues for m in run]

    def _works(self) -> list[Work]:
        """The work of all ticks that is not durable, as it will land."""
        return [*self.waiting, *((self.work,) if self.overtaking is None else (self.overtaking, self.work))]

    def on_their_way(self) -> Iterator[tuple[Iterable[Queue], list[Message], Landing | None]]:
        """The runs that have not landed on many queues, these, and where they are to be paged: as a rule none."""
        for fan in self.fans:
            if len(fan.queues) > 1:
                yield islice(fan.queues, fan.landed, None), fan.messages, fan.page
        for work in self._works():
            yield from [each for each in work.landing if len(each[0]) > 1]

    def stored_on_their_way(self) -> dict[Queue, int]:
        """How many of them are in the journal, by queue, beyond `Queue.stored`."""
        found: dict[Queue, int] = {}
        for queues, run, _ in self.on_their_way():
            if run[0].segment:
                for queue in queues:
                    if queue.durable:
                        found[queue] = found.get(queue, 0) + len(run)
        return found

    # -- entries that are held open (see `held_entry`) --------------------------------------------------------------

    def hold(self, nbytes: int) -> None:
        """Begin an entry that stays open for several ticks, for which so many bytes are reserved."""
        number, work = self.work.number, self.work
        if not self._journal.empty or work.waits:
            self._seal(work, self._journal.commit())
            number += 1
        self._journal.hold(nbytes)
        self.work = Work(number + TICKS_HELD_MAX)
        self.held = HeldEntry(self._journal.next_id, number)
        self._ledger.touched.clear()

    def let_go(self) -> None:
        """Let the entry be sealed with this tick."""
        self.seal_overtaking()
        held, self.held = self.held, None
        behind = self._journal.let_go()
        assert held is not None, "it is held"
        for landing in held.paged:
            landing.offset += behind

    @contextmanager
    def overtake(self) -> Iterator[None]:
        """Record something in an entry before the one that is held."""
        assert self.held is not None, "else there is only one entry"
        if self.overtaking is None:
            self.overtaking = Work(self.held.next_number())
        with self._journal.overtaking():
            yield

    def seal_overtaking(self) -> None:
        """End the entry of what has overtaken the held one in this tick."""
        work, self.overtaking = self.overtaking, None
        if work is not None:
            self._seal(work, self._journal.seal_overtaking())

    def _seal(self, work: Work, ticket: int) -> None:
        work.ticket = ticket
        self.waiting.append(work)

    def seal(self) -> None:
        """End the entry of this tick, if there is anything in it or waits for it."""
        work = self.work
        if self._journal.empty and not work.waits:
            self._journal.bodies.sweep()
            return
        self._seal(work, self._journal.commit())
        self.work = Work(work.number + 1)

    def landing_work(self, queues: list[Queue]) -> Work:
        """The work with which messages land that enter queues now, in order: some may wait for the held entry."""
        held = self.held
        if held is None:
            return self.work
        if self.overtaking is not None and self._journal.is_overtaking and held.landing.isdisjoint(queues):
            return self.overtaking
        held.landing.update(queues)
        return self.work
