"""The state of the engine: addresses and queues, the journal, the time, the timers, and what is to be served.

The objects that the engine calls (sinks, producers) belong to connections.  An exception of such a call is
caught there and passed to `blame`: it costs that connection, and the verb goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from broker.engine.model import names
from broker.engine.model.attributes import NO_ATTRIBUTES, QueueAttributes, RequestedAttributes, with_requested
from broker.engine.model.limits import Limits
from broker.engine.model.message import Format, Message, RoutingType
from broker.engine.model.names import WildcardSyntax
from broker.engine.model.notes import NOTIFICATIONS, Notes
from broker.engine.model.report import Report
from broker.engine.model.settings import AddressSettings, from_mapping
from broker.engine.model.settings_match import CACHE_RESULTS_MAX, Fields, SettingsTable
from broker.engine.queues.address import Address, AttachedSender
from broker.engine.queues.alarms import Alarms
from broker.engine.queues.bindings import Bindings, Targets
from broker.engine.queues.divert_table import Diverts
from broker.engine.queues.duplicates import Duplicates
from broker.engine.queues.ledger import Ledger
from broker.engine.queues.pending import Pending
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.queue_quotas import QueueQuotas
from broker.engine.queues.room import Room, Usage
from broker.engine.queues.schedule import Schedule
from broker.engine.queues.selectors import Selectors
from broker.engine.queues.steps import Steps
from broker.engine.queues.stored import MessageReader
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.uncommitted import OpenTransactions
from broker.engine.queues.watcher import Watcher
from store.journal import Journal
from store.pages import Pages
from store.record import RemovalReason

#: `State.mark` within a verb that has made changes not recorded yet.
NO_WAY_BACK: Final = -1

#: The settings of the broker's internal addresses.
INTERNAL: Final = AddressSettings()


@dataclass(slots=True, eq=False)
class Totals:
    """The `Counters` of all queues and addresses together: nobody has to look at 100,000 of them."""

    added: int = 0
    delivered: int = 0
    redelivered: int = 0
    routed: int = 0
    left: list[int] = field(default_factory=lambda: [0] * (max(RemovalReason) + 1))


def _raise(transport: object, error: BaseException) -> None:
    """Raise: without connections (tests, tools) there is none to blame."""
    raise error


@dataclass(slots=True, eq=False, kw_only=True)
class State:
    """The state shared by the engine's packages.  `now` is the time of the tick in ms since the epoch."""

    # The engine's environment.
    journal: Journal
    pages: Pages
    clock: Callable[[], int]
    cpu: InitVar[Callable[[int], int]]  # see Steps
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
    settings_table: SettingsTable
    syntax: WildcardSyntax = field(init=False)
    addresses: dict[str, Address] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    queues_by_id: dict[int, Queue] = field(default_factory=dict)
    bindings: Bindings = field(init=False)
    diverts: Diverts = field(init=False)
    #: Names of queues whose messages wait to be sent to another broker, and still belong to their original address.
    transmission: AbstractSet[str] = frozenset()
    quotas: QueueQuotas = field(default_factory=QueueQuotas)
    selectors: Selectors = field(init=False)
    watchers: list[Watcher] = field(default_factory=list)
    #: The senders attached to each address, to be notified when it is deleted.
    senders: dict[Address, dict[AttachedSender, None]] = field(default_factory=dict)
    #: Automatically created addresses without queues of their own: the only ones that the reaper looks at.
    unused: dict[Address, None] = field(default_factory=dict)
    #: Addresses recently sent to but not created, because no queue would get the messages.
    passing: dict[str, Address] = field(default_factory=dict)
    #: Calls that undo what was created within `registry.undoing`.
    made: list[Callable[[], None]] | None = None
    _merged: dict[int, tuple[Fields, AddressSettings]] = field(default_factory=dict)  # by the identity of the fields
    _internal: str = field(init=False)

    # The tick.
    now: int = field(init=False)
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
    steps: Steps = field(init=False)
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

    # Totals since the start, including those of deleted queues and addresses: totals never decrease.
    unrouted: int = 0
    dropped: int = 0
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self, cpu: Callable[[int], int]) -> None:
        self.steps = Steps(cpu)
        self.schedule = Schedule(expires=self.limits.expiry_scan_period > 0)
        self.alarms = self.schedule.alarms
        self.selectors = Selectors(self.limits.selector_terms_max)
        self.ledger = Ledger(self.journal)
        self.pending = Pending(self.journal, self.ledger, self.limits.task_pending_max)
        self.stored = MessageReader(self.formats, self.journal.bodies)
        self.syntax = self.settings_table.syntax
        self.bindings = Bindings(self.syntax)
        self._hide()
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
            settings=self.settings,
            blame=lambda transport, error: self.blame(transport, error),
            transactions=OpenTransactions(self.limits.open_transactions_bytes_max),
        )
        self._internal = names.internal_prefix(self.syntax)
        self.now = self.clock()

    def begin(self) -> None:
        """Begin a verb that checks before it changes anything: until it adds a record, it may fail harmlessly."""
        self.mark = self.journal.position

    # -- settings --------------------------------------------------------------------------------------------------

    def settings(self, name: str) -> AddressSettings:
        """The settings that an address has, or would have if it existed."""
        address = self.addresses.get(name)
        return self.merged_settings(name) if address is None else address.settings

    def merged_settings(self, name: str) -> AddressSettings:
        """The settings in force for a name; the broker's internal addresses have the defaults, and no limits.

        While they are being replaced, an address may still have those from before (`registry.change_settings`).
        """
        if self.is_internal(name):
            return INTERNAL
        fields = self.settings_table.resolve(name)
        known = self._merged.get(id(fields))
        if known is None:
            if len(self._merged) >= CACHE_RESULTS_MAX:
                self._merged.clear()
            known = self._merged[id(fields)] = (fields, from_mapping(fields))
        return known[1]

    def use_settings(self, settings: SettingsTable) -> None:
        """Replace the settings, but for those of addresses that exist."""
        self.settings_table = settings
        self._merged.clear()
        self._hide()

    def _hide(self) -> None:
        """Hide from patterns that begin with a wildcard what is about other addresses and other clients."""
        self.bindings.hide({NOTIFICATIONS, *self.settings_table.values("dead_letter_address", "expiry_address")})

    def is_internal(self, name: str) -> bool:
        """Whether an address belongs to the resources of a retroactive address."""
        return name.startswith(self._internal)

    def attributes(self, address: Address, name: str, asked: RequestedAttributes = NO_ATTRIBUTES) -> QueueAttributes:
        """The attributes of a new queue on an address: those asked for, the rest from the address's settings."""
        settings = address.settings
        if self.settings_table.qualified:
            settings = self.settings(f"{address.name}{names.FQQN_SEPARATOR}{name}")
        return with_requested(settings.queue_attributes, asked)

    # -- routing ---------------------------------------------------------------------------------------------------

    def candidates(self, address: Address, queue: Queue | None, routing_type: RoutingType | None) -> Targets:
        """The queues that a send may enter: the named queue, or those of the requested routing type, or all."""
        if queue is not None:
            if queue.deleted:
                return [], []
            anycast = queue.routing_type is RoutingType.ANYCAST
            return ([queue], []) if anycast else ([], [queue])
        targets = self.bindings.targets(address)
        if routing_type is None:
            return targets
        return (targets[0], []) if routing_type is RoutingType.ANYCAST else ([], targets[1])

    def fresh_name(self) -> str:
        """A name for a queue that belongs to one subscription."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    # -- counting ---------------------------------------------------------------------------------------------------

    def count_added(self, queue: Queue, messages: int) -> None:
        """Count messages that enter a queue."""
        queue.counters.added += messages
        self.totals.added += messages

    def count_delivered(self, queue: Queue, messages: int, redelivered: int = 0) -> None:
        """Count messages that are sent to a consumer, and how many of them were delivered before."""
        queue.counters.delivered += messages
        self.totals.delivered += messages
        if redelivered:
            queue.counters.redelivered += redelivered
            self.totals.redelivered += redelivered

    def count_left(self, queue: Queue, reason: RemovalReason, messages: int) -> None:
        """Count messages that leave a queue: part of `removal.remove`, and of nothing else but its like on disk."""
        queue.count_left(reason, messages)
        self.totals.left[reason] += messages

    # -- the tick --------------------------------------------------------------------------------------------------

    def notify_closed(self, consumer: Consumer, reason: str) -> None:
        """Tell the sink of a consumer that the engine has closed it."""
        try:
            consumer.sink.consumer_closed(consumer, reason)
        except BaseException as error:
            self.blame(consumer.sink.transport, error)

    def is_unchecked(self, queue: Queue) -> bool:
        """Whether some of a queue's consumers may have lost the right to consume: it delivers nothing yet."""
        return bool(self.unchecked) and any([consumer in self.unchecked for consumer in queue.consumers])
