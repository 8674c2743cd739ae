"""The broker without its sockets: the state, and the verbs on it, grouped by their users.

    ticks             the engine's driver: begin, end, durable
    producers         clients that send: publish, attach, wait for room
    consumers         clients that consume: subscribe, settle, close
    transactions      sends and acknowledgements that happen together
    sessions          stored sessions, which a client finds again when it returns
    session_expiry    when sessions end, and when a will is due
    retained          messages for later subscribers; `retained_feed` sends them
    system_topics     values that the broker publishes about itself
    subscriptions     the queues of clients' subscriptions, which outlast their connections
    operators         operators and the configuration: addresses, queues, diverts by name
    messages          operators, on the messages of a queue: browse, purge, retry, move, discard, replay
    dead_letter_rules the automatic treatment of dead letters
    statistics        counters
    imports           loading an export into a broker that serves no clients yet

Nothing here waits, sleeps or opens anything.  A verb that raises an EngineError has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from random import Random

from broker.engine.client_sessions.client import SessionExpiry
from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.delivery import closing, subscribe
from broker.engine.delivery.client_subscriptions import ClientSubscriptions
from broker.engine.delivery.consumers import Consumers
from broker.engine.delivery.transaction import Transactions
from broker.engine.filter import prepare
from broker.engine.model.access import UNRESTRICTED, Access, Security
from broker.engine.model.attributes import RequestedAttributes
from broker.engine.model.errors import AlreadyInUse, NotBrowsable
from broker.engine.model.limits import Limits
from broker.engine.model.message import Format, Message, RoutingType
from broker.engine.model.notes import noting
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.report import Report
from broker.engine.model.settings_match import SettingsTable
from broker.engine.operators.administration import Administration
from broker.engine.operators.configuration import Configuration
from broker.engine.operators.connections import Connections
from broker.engine.operators.disk import DiskWatch
from broker.engine.operators.imports import Imports
from broker.engine.operators.messages import QueueMessages
from broker.engine.operators.statistics import Statistics
from broker.engine.operators.tasks import Tasks
from broker.engine.publish.producers import Producers
from broker.engine.publish.retained import Retained
from broker.engine.publish.retained_feed import RetainedFeed
from broker.engine.publish.system_topics import SystemTopics
from broker.engine.queues.address import Address
from broker.engine.queues.bodies import Uploads
from broker.engine.queues.client_memory import ClientMemory
from broker.engine.queues.diverts import Divert
from broker.engine.queues.partial import PartialMessages
from broker.engine.queues.queue import Queue
from broker.engine.queues.room import Usage
from broker.engine.queues.state import State
from broker.engine.queues.steps import Steps
from broker.engine.queues.tracer import Tracer
from broker.engine.queues.watcher import Watcher
from broker.engine.recovery.cleaning import Cleaner
from broker.engine.recovery.restore import Restored, restore
from broker.engine.routing import alter, deletion, destinations
from broker.engine.tick import Ticks
from broker.engine.watchers import Watchers
from store.decode import RawRecord
from store.journal import Journal
from store.pages import Pages


class Engine:
    """Addresses, queues, consumers, deliveries: the broker without its sockets."""

    def __init__(
        self,
        journal: Journal,
        settings: SettingsTable,
        pages: Pages,
        *,
        clock: Callable[[], int],
        cpu: Callable[[int], int],
        random: Random,
        report: Report,
        formats: list[Format],
        limits: Limits,
    ) -> None:
        prepare()
        self._state = state = State(
            journal=journal,
            settings=settings,
            pages=pages,
            now=clock(),
            steps=Steps(cpu),
            random=random,
            report=report,
            formats={f.number: f for f in formats},
            usage=Usage(limits.global_size_max),
            limits=limits,
        )
        self.security = Security(noting(report, state.notes))
        self.cleaner = Cleaner(state)
        self.uploads = Uploads(state)
        self.partial = PartialMessages(state.room)
        self.client_memory = ClientMemory(state.usage)
        #: Read-only views; only verbs change them.
        self.addresses: Mapping[str, Address] = state.addresses
        self.queues: Mapping[str, Queue] = state.queues
        self.queues_by_id: Mapping[int, Queue] = state.registry.queues_by_id
        self.diverts: Mapping[str, Divert] = state.diverts.by_name
        self.formats: Mapping[int, Format] = state.formats
        self.syntax = state.syntax
        #: Used directly by the driver and the sessions.
        self.usage = state.usage
        self.notes = state.notes
        self.journal = journal
        self.report = report
        self.random = random
        self.limits = limits
        self.alarms = state.alarms
        self.quotas = state.registry.quotas
        self.retained = Retained(state)
        self.retained_feed = RetainedFeed(state, self.retained)
        self.system_topics = SystemTopics(state)
        self.connections = Connections(state)
        self.sessions = StoredSessions(state)
        self.session_expiry = SessionExpiry(state)
        self.cleaner.copied.append(self.sessions.in_flight.copied)
        self.cleaner.forward += (self.sessions.rewrite, journal.rewrite_definitions, state.duplicates.copy_forward)
        self.transactions = Transactions(state)
        self.watchers = Watchers(state, self.security, self.sessions, self.transactions)
        self.dead_letter_rules = self.watchers.dead_letter_rules
        self.producers = Producers(state)
        self.consumers = Consumers(state, self.sessions)
        self.subscriptions = ClientSubscriptions(state, self.consumers)
        self.operators = Administration(state, self.sessions)
        self.configuration = Configuration(state)
        self.messages = QueueMessages(state)
        self.tasks = Tasks(state, self.messages, self.operators)
        self.statistics = Statistics(state, clock)
        self.imports = Imports(state)
        self.ticks = Ticks(state, clock, self.cleaner, self.transactions, self.watchers)

    @property
    def now(self) -> int:
        """The time of the tick, ms since the epoch."""
        return self._state.now

    def restore(self, records: Iterable[RawRecord]) -> Restored:
        """Read the journal's records.  Raises UnknownFormat, JournalDamaged."""
        restored = restore(self._state, self.sessions, records)
        self.consumers.reservations.restore()
        self.retained.restore()
        self.tasks.restore(restored.tasks)
        return restored

    def finish_restore(self) -> None:
        """Do what a restart makes due, once the journal can be written and before there are consumers."""
        self.sessions.remove_consumed()
        alter.after_restart(self._state, self.sessions.in_flight_by_queue())
        self.consumers.reservations.finish_restore()
        self.retained.finish_restore()

    def watch_disk(
        self, space: Callable[[], tuple[int, int]], *, usage_max: int, free_min: int, period: int
    ) -> DiskWatch:
        """A watch over the journal's disk, to be started; see `DiskWatch`."""
        disk = self._state.usage.disk
        disk.usage_max, disk.free_min = usage_max, free_min
        return DiskWatch(self._state, space, period=period)

    def add_watcher(self, watcher: Watcher) -> None:
        """Report created and deleted addresses and queues to a watcher."""
        self._state.registry.watchers.append(watcher)

    def trace(self, tracer: Tracer) -> None:
        """Report what happens to messages to a tracer from now on."""
        self._state.tracer = tracer

    # -- consuming -------------------------------------------------------------------------------------------------

    def browse(
        self, name: str, routing_type: RoutingType | None, selector: str, *, access: Access, asked: RequestedAttributes
    ) -> tuple[Queue, Iterator[Message | None]]:
        """A queue by its name, and its messages, see `QueueMessages.look`.

        Raises the errors of `destinations.queue_to_consume`, NotBrowsable for a topic, and InvalidSelector.
        """
        with self._state.registry.undoing():
            queue = destinations.queue_to_consume(
                self._state, name, routing_type, access=access, permission=Permission.BROWSE, asked=asked
            )
            if isinstance(queue, Address):
                raise NotBrowsable("a topic stores no messages: browse a queue")
            return queue, self.messages.look(queue, selector, access)

    def known_subscription(self, names: Iterable[str], access: Access, *, common: bool) -> Queue | None:
        """The first of these subscriptions that exists and that the client may know of.

        `common`: all users may share it.  Raises Denied for another user's.
        """
        found = (subscribe.known(self._state, name, access) for name in names)
        queue = next((queue for queue in found if queue is not None), None)
        if queue is not None and not common:
            queue.check_owner(access)
        return queue

    def queues_of(self, address: Address) -> Collection[Queue]:
        """The queues of an address, in the order of their bindings."""
        return self._state.bindings.queues(address)

    def queue(self, name: str) -> Queue:
        """A queue by name or FQQN.  Raises NotFound."""
        return self._state.registry.find_queue(name)

    def delete_subscription(self, name: str, access: Access = UNRESTRICTED) -> None:
        """Delete a durable subscription.  Raises NotFound, Denied, or AlreadyInUse while it is consumed."""
        queue = subscribe.deletable(self._state, name, access)
        if queue.consumers:
            raise AlreadyInUse(f"subscription {name} has a consumer")
        deletion.delete_queue(self._state, queue)

    def delete_queue(self, queue: Queue) -> None:
        """Delete a queue: remove its messages by name (deleted) and close its consumers.  Raises AlreadyInUse."""
        deletion.delete_queue(self._state, queue)

    def make_temporary(self, routing_type: RoutingType, access: Access, use: Permission, *, private: bool) -> Address:
        """A temporary destination, see `destinations.make_temporary`.  Raises Denied, TooManyQueues."""
        return destinations.make_temporary(self._state, routing_type, access, use, private=private)

    def delete_temporary(self, address: Address) -> None:
        """Delete a temporary destination with its queues, many in steps; no effect if it is deleted already."""
        if self._state.addresses.get(address.name) is address:
            deletion.delete_with_queues(self._state, address)

    # -- security, audits ------------------------------------------------------------------------------------------

    def secure(self, table: PermissionTable | None, then: Callable[[int], None] = lambda closed: None) -> None:
        """Replace the permissions or, with None, note that roles changed.

        `then` is called with how many consumers that closed, once all are rechecked.
        """
        self.security.change(table)
        closing.revoke(self._state, then)

    def balance(self) -> tuple[int, list[Queue], list[int]]:
        """The journal's next position, all queues, and how many messages entered each and did not leave before it.

        The records of that are durable when `confirmation` is.  Call it between commits (`Transactions.between`).  All
        are counted at once, or the books would not agree: 100,000 queues take some 10 ms.
        """
        state = self._state
        queues, stored = list(state.queues.values()), list(map(attrgetter("stored"), state.queues.values()))
        fanned = state.pending.stored_on_their_way()
        if fanned:
            stored = [count + fanned.get(queue, 0) for queue, count in zip(queues, stored, strict=True)]
        return state.journal.position, queues, stored
