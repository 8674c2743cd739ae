"""What the rooms of the engine share: the journal, the time, chance, the timers, and the work of the open tick.

A tick is one turn of whoever drives the engine.  Within it verbs change state and add records to the open journal
entry; at its end the entry is sealed.  Four things wait for more than that:

    landing     messages stored in the entry: they become ready on their queues once the entry is durable (on strict
                queues they are at once, see `arrival.stored`)
    carried     paged messages copied in the entry (cleaning): they can be read there once it is durable
    held        deliveries journalled in the entry (strict mode): they leave once the entry is durable
    waiters     whoever asked to be told (confirmations)

They are kept by tick and released in order (promise P1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final, Protocol

from broker.engine.address import Address
from broker.engine.consumer import Consumer
from broker.engine.duplicates import Duplicates
from broker.engine.message import Format, Message
from broker.engine.notes import Notes
from broker.engine.paging.tail import Chunk
from broker.engine.queue import Queue
from broker.engine.stored import MessageReader
from broker.engine.timetable import Timetable
from broker.engine.usage import Usage
from store.journal import Journal
from store.pages import Pages

#: Due messages handled in one tick: bounds a tick when a million messages expire in the same second.
DUE_PER_TICK_MAX: Final = 2048


class Waiter(Protocol):
    """Whoever waits for a ticket to become durable."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""


class Report(Protocol):
    """Where the engine reports what an operator should know.  `code` is stable; fields are plain values."""

    def __call__(self, code: str, /, **fields: str | int) -> None: ...


#: Deliveries that wait for the journal: whose, which, and whether some of them expire.
Held = tuple[Consumer, list[Message], bool]


class Work:
    """What a tick put into the journal that waits to be durable.

    `number` counts ticks; `ticket` is the last journal entry of the tick, known when it is sealed.
    """

    __slots__ = ("carried", "held", "landing", "number", "ticket", "waiters")

    def __init__(self, number: int) -> None:
        self.number = number
        self.ticket = 0
        self.landing: list[tuple[Queue, list[Message]]] = []
        self.carried: list[tuple[Chunk, list[int]]] = []
        self.held: list[Held] = []
        self.waiters: dict[Waiter, None] = {}


class Core:
    """The shared state.  `now` is the time of the tick in ms since the epoch, the same for everything in it."""

    __slots__ = (
        "acknowledged",
        "addresses",
        "atomic",
        "blocking",
        "clock",
        "dirty",
        "dirty_later",
        "duplicates",
        "expiries",
        "formats",
        "journal",
        "notes",
        "now",
        "paged",
        "paged_expiries",
        "pages",
        "paging",
        "random",
        "report",
        "schedule",
        "stored",
        "usage",
        "waiting",
        "work",
    )

    def __init__(
        self,
        journal: Journal,
        pages: Pages,
        *,
        clock: Callable[[], int],
        random: Random,
        report: Report,
        formats: dict[int, Format],
        global_size_max: int = -1,
    ) -> None:
        self.journal = journal
        self.pages = pages
        self.duplicates = Duplicates(journal)
        self.notes = Notes()
        self.clock = clock
        self.random = random
        self.report = report
        self.formats = formats
        self.stored = MessageReader(formats, journal.bodies)
        self.now = clock()
        self.usage = Usage(global_size_max)
        self.acknowledged: dict[Consumer, list[Message]] = {}  # settled as consumed, not yet removed
        self.atomic = False  # within a commit: one journal entry, whatever it holds
        self.addresses: dict[str, Address] = {}
        #: Addresses that have stopped producers.
        self.blocking: dict[Address, None] = {}
        #: Queues to look at in this tick, and those that have more than one tick's worth.
        self.dirty: dict[Queue, None] = {}
        self.dirty_later: dict[Queue, None] = {}
        self.schedule: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable()
        self.expiries: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable()
        #: Queues that have a tail, addresses (by name) that were reported to page, chunks with messages that expire.
        self.paged: dict[Queue, None] = {}
        self.paging: dict[str, None] = {}
        self.paged_expiries: Timetable[int, tuple[Queue, Chunk]] = Timetable()
        self.work = Work(1)
        self.waiting: deque[Work] = deque()

    def is_under_way(self, tick: int) -> bool:
        """Whether what that tick put into the journal may not be durable yet."""
        return tick >= (self.waiting[0] if self.waiting else self.work).number

    def landing_on(self, queue: Queue, tick: float = inf) -> list[Message]:
        """The messages of a queue that are not yet durable, in the order in which they came, of ticks up to this one.

        Looks at all that are not.
        """
        if not queue.landing:
            return []
        works = [work for work in (*self.waiting, self.work) if work.number <= tick]
        return [m for work in works for at, run in work.landing if at is queue for m in run]
