"""What the rooms of the engine share: the journal, the time, chance, the timers, and the work of the open tick.

A tick is one turn of whoever drives the engine.  Within it verbs change state and add records to the open journal
entry; at its end the entry is sealed.  Four things wait for more than that:

    landing     messages stored in the entry: they become ready on their queues once the entry is durable (on strict
                queues they are at once, see `arrival.stored`)
    carried     paged messages copied in the entry (cleaning): they can be read there once it is durable
    held        deliveries journalled in the entry (strict mode): they leave once the entry is durable
    waiters     whoever asked to be told (confirmations)

They are kept by tick and released in order (promise P1).

What the engine calls (sinks, waiters, producers) belongs to connections.  An exception that comes out of such a call
is caught where the call is made and given to `blame`: it costs that connection, and the verb goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final, Protocol

from broker.engine.model.message import Format, Message
from broker.engine.model.notes import Notes
from broker.engine.model.report import Report
from broker.engine.model.timetable import Timetable
from broker.engine.queues.address import Address
from broker.engine.queues.alarms import Alarms
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.duplicates import Duplicates
from broker.engine.queues.paging.tail import Chunk
from broker.engine.queues.queue import Queue
from broker.engine.queues.stored import MessageReader
from broker.engine.queues.usage import Usage
from store.journal import Journal
from store.pages import Pages

#: Due messages handled in one tick: bounds a tick when a million messages expire in the same second.
DUE_PER_TICK_MAX: Final = 2048


#: `Core.mark` within a verb that has changed what no record tells yet.
NO_WAY_BACK: Final = -1


class Waiter(Protocol):
    """Whoever waits for a ticket to become durable."""

    @property
    def transport(self) -> object:
        """The connection that an exception of it costs; None: there is none."""

    def durable(self, number: int) -> None:
        """Everything up to and including the tick `number` is on disk."""


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


def _nobody(transport: object, error: BaseException) -> None:
    """Without connections (tests, tools) nobody can be blamed."""
    raise error


class Core:
    """The shared state.  `now` is the time of the tick in ms since the epoch, the same for everything in it."""

    __slots__ = (
        "acknowledged",
        "addresses",
        "alarms",
        "atomic",
        "blame",
        "blocking",
        "clock",
        "dirty",
        "dirty_later",
        "dropped",
        "duplicates",
        "expiries",
        "formats",
        "journal",
        "mark",
        "notes",
        "now",
        "paged",
        "paged_expiries",
        "pages",
        "random",
        "report",
        "schedule",
        "stored",
        "unrouted",
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
        self.alarms = Alarms()
        self.duplicates = Duplicates(journal)
        self.notes = Notes()
        self.clock = clock
        self.random = random
        self.report = report
        self.formats = formats
        self.stored = MessageReader(formats, journal.bodies)
        self.now = clock()
        #: Where the journal was when the verb that runs began, or NO_WAY_BACK: whether an exception may leave it.
        self.mark = 0
        #: Told of an exception that came out of what belongs to a connection (an `transport`) or, None, to nobody.
        self.blame: Callable[[object, BaseException], None] = _nobody
        self.usage = Usage(global_size_max)
        self.acknowledged: dict[Consumer, list[Message]] = {}  # settled as consumed, not yet removed
        self.atomic = False  # within a commit: one journal entry, whatever it holds
        self.addresses: dict[str, Address] = {}
        # Messages since the start that no queue took, and that full addresses dropped, whatever addresses there are.
        self.unrouted = 0
        self.dropped = 0
        #: Addresses that have stopped producers.
        self.blocking: dict[Address, None] = {}
        #: Queues to look at in this tick, and those that have more than one tick's worth.
        self.dirty: dict[Queue, None] = {}
        self.dirty_later: dict[Queue, None] = {}
        self.schedule: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable()
        self.expiries: Timetable[tuple[int, int], tuple[Queue, Message]] = Timetable()
        #: Queues that have a tail, chunks with messages that expire.
        self.paged: dict[Queue, None] = {}
        self.paged_expiries: Timetable[int, tuple[Queue, Chunk]] = Timetable()
        self.work = Work(1)
        self.waiting: deque[Work] = deque()

    def begin(self) -> None:
        """A verb begins that looks before it changes anything: until it adds a record, an exception undoes nothing."""
        self.mark = self.journal.position

    def tell_closed(self, consumer: Consumer, reason: str) -> None:
        """Tell the sink of a consumer that the engine has closed it."""
        try:
            consumer.sink.consumer_closed(consumer, reason)
        except BaseException as error:
            self.blame(consumer.sink.transport, error)

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
