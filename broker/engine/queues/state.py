"""The state of the engine: addresses and queues, the journal, the time, the timers, and what is to be served.

The objects that the engine calls (sinks, producers) belong to connections.  An exception of such a call is
caught there and passed to `blame`: it costs that connection, and the verb goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from broker.engine.model.limits import Limits
from broker.engine.model.message import Format, Message
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.notes import Notes
from broker.engine.model.report import Report
from broker.engine.model.settings_match import SettingsTable
from broker.engine.queues.address import Address
from broker.engine.queues.alarms import Alarms
from broker.engine.queues.bindings import Bindings
from broker.engine.queues.divert_table import Diverts
from broker.engine.queues.duplicates import Duplicates
from broker.engine.queues.ledger import Ledger
from broker.engine.queues.pending import Pending
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.registry import Registry
from broker.engine.queues.room import Room, Usage
from broker.engine.queues.schedule import Schedule
from broker.engine.queues.selectors import Selectors
from broker.engine.queues.steps import Steps
from broker.engine.queues.stored import MessageReader
from broker.engine.queues.totals import Totals
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.uncommitted import OpenTransactions
from store.journal import Journal
from store.pages import Pages

#: `State.mark` within a verb that has made changes not recorded yet.
NO_WAY_BACK: Final = -1


def _raise(transport: object, error: BaseException) -> None:
    """Raise: without connections (tests, tools) there is none to blame."""
    raise error


@dataclass(slots=True, eq=False, kw_only=True)
class State:
    """The state shared by the engine's packages.  `now` is the time of the tick in ms since the epoch."""

    # The engine's environment.
    journal: Journal
    pages: Pages
    random: Random
    report: Report
    formats: dict[int, Format]
    limits: Limits
    ledger: Ledger = field(init=False)
    stored: MessageReader = field(init=False)
    notes: Notes = field(default_factory=Notes)
    #: Called with an exception and the connection (`transport`) that its source belongs to, None: to none.
    blame: Callable[[object, BaseException], None] = _raise
    #: Called with what happens to messages, if traces are wanted.
    tracer: Tracer | None = None

    # Addresses and queues.
    settings: InitVar[SettingsTable]
    registry: Registry = field(init=False)
    syntax: WildcardSyntax = field(init=False)
    #: Those of the registry, by name.
    addresses: dict[str, Address] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    bindings: Bindings = field(init=False)
    diverts: Diverts = field(init=False)
    selectors: Selectors = field(init=False)

    # The tick.
    now: int
    #: The journal's position when the current verb began, or NO_WAY_BACK: may an exception leave it?
    mark: int = 0
    #: Within a commit: everything goes into one journal entry.
    atomic: bool = False
    pending: Pending = field(init=False)
    #: Messages settled as consumed but not yet removed.
    acknowledged: dict[Consumer, list[Message]] = field(default_factory=dict)
    #: Consumers that are still to be rechecked after a change of permissions.
    unchecked: dict[Consumer, None] = field(default_factory=dict)
    #: Consumers of connections that have ended, which are still to be closed: they get nothing more.
    closing: dict[Consumer, Callable[[], None]] = field(default_factory=dict)
    #: The budget of the tick, and the work that continues in the next.
    steps: Steps
    #: Queues to serve in this tick, those that had changed and were not reached, and those with more to deliver.
    dirty: dict[Queue, None] = field(default_factory=dict)
    unreached: dict[Queue, None] = field(default_factory=dict)
    dirty_later: dict[Queue, None] = field(default_factory=dict)

    schedule: Schedule = field(init=False)
    alarms: Alarms = field(init=False)  # those of the schedule

    # Memory and paging.
    usage: Usage
    room: Room = field(init=False)
    duplicates: Duplicates = field(init=False)
    #: Queues that have a tail.
    paged: dict[Queue, None] = field(default_factory=dict)

    #: The full disk keeps messages from leaving, which has been reported.
    full_reported: bool = False

    totals: Totals = field(default_factory=Totals)

    def __post_init__(self, settings: SettingsTable) -> None:
        self.schedule = Schedule(expires=self.limits.expiry_scan_period > 0)
        self.alarms = self.schedule.alarms
        self.selectors = Selectors(self.limits.selector_terms_max)
        self.ledger = Ledger(self.journal)
        self.pending = Pending(self.journal, self.ledger, self.limits.task_pending_max)
        self.stored = MessageReader(self.formats, self.journal.bodies)
        self.syntax = settings.syntax
        self.bindings = Bindings(self.syntax)
        self.diverts = Diverts(self.syntax)
        self.usage.scheduled = self.schedule.scheduled
        self.duplicates = Duplicates(self.journal, self.usage)
        self.room = Room(
            self.usage,
            self.pages,
            self.report,
            self.steps,
            addresses=self.addresses,
            bindings=self.bindings,
            settings=lambda name: self.registry.settings(name),
            blame=lambda transport, error: self.blame(transport, error),
            transactions=OpenTransactions(self.limits.open_transactions_bytes_max),
        )
        self.registry = Registry(
            settings,
            self.limits,
            self.journal,
            self.bindings,
            self.diverts,
            self.duplicates,
            self.room,
            addresses=self.addresses,
            queues=self.queues,
            now=lambda: self.now,
        )

    def begin(self) -> None:
        """Begin a verb that checks before it changes anything: until it adds a record, it may fail harmlessly."""
        self.mark = self.journal.position

    def fresh_name(self) -> str:
        """A name for a queue that belongs to one subscription."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def notify_closed(self, consumer: Consumer, reason: str) -> None:
        """Tell the sink of a consumer that the engine has closed it: it is told nothing more."""
        sink = consumer.sink
        consumer.detach_sink()
        try:
            sink.consumer_closed(consumer, reason)
        except BaseException as error:
            self.blame(sink.transport, error)

    def is_unchecked(self, queue: Queue) -> bool:
        """Whether some of a queue's consumers may have lost the right to consume: it delivers nothing yet."""
        return bool(self.unchecked) and any([consumer in self.unchecked for consumer in queue.consumers])
