"""The engine's one door: verbs for sessions and management, and the turn of the wheel.

Whoever drives the engine does, in a tick: `begin_tick`, any number of verbs, `end_tick`.  When the journal announces
that entries are durable it calls `durable`.  Nothing here waits, sleeps or opens anything; the time is read once a
tick.  A verb that raises an EngineError has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.delivery import dispatch, redelivery, revocation, subscribe, transaction
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.delivery.subscribe import SubscribeRequest, parse_selector
from broker.engine.delivery.transaction import Settlement, Transaction
from broker.engine.model.access import UNRESTRICTED, Access, Security
from broker.engine.model.attributes import NOTHING_ASKED, Asked
from broker.engine.model.errors import AlreadyInUse, UnknownDelivery
from broker.engine.model.limits import Limits
from broker.engine.model.message import Format, Message, RoutingType
from broker.engine.model.notes import noting
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.report import Report
from broker.engine.model.settings_match import SettingsTable
from broker.engine.moves import expiry, transfer
from broker.engine.moves.transfer import MessageRange, MoveResult
from broker.engine.operators import administration
from broker.engine.operators.connections import Connections
from broker.engine.publish import publish, sending
from broker.engine.publish.retained import Retained
from broker.engine.publish.send import PublishResult, Send
from broker.engine.queues import arrival, clearing, consumer_lifecycle
from broker.engine.queues.address import Address, Producer
from broker.engine.queues.bodies import Uploads
from broker.engine.queues.consumer import Consumer, Sink
from broker.engine.queues.paging import tail_compaction
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import settle_acknowledged, stop_waiting
from broker.engine.queues.state import DUE_PER_TICK_MAX, NO_WAY_BACK, State, Waiter, Work
from broker.engine.queues.usage import Usage
from broker.engine.recovery import clock_changes
from broker.engine.recovery.cleaning import Cleaner
from broker.engine.routing import reaper, registry
from broker.engine.watchers import Watchers
from store.journal import Journal
from store.pages import Pages
from store.record import DeadLetterReason


class Engine:
    """Addresses, queues, consumers, deliveries: the broker without its sockets."""

    def __init__(
        self,
        journal: Journal,
        settings: SettingsTable,
        pages: Pages,
        *,
        clock: Callable[[], int],
        random: Random,
        report: Report,
        formats: list[Format],
        limits: Limits,
    ) -> None:
        self.state = State(
            journal=journal,
            settings_table=settings,
            pages=pages,
            clock=clock,
            random=random,
            report=report,
            formats={f.number: f for f in formats},
            usage=Usage(limits.global_size_max),
            addresses_max=limits.addresses_max,
        )
        self.security = Security(noting(report, self.state.notes))
        self.limits = limits
        self.cleaner = Cleaner(self.state, files_min=limits.compact_min_files, percentage=limits.compact_percentage)
        self.uploads = Uploads(self.state)
        self.alarms = self.state.alarms
        self.retained = Retained(self.state)
        self.connections = Connections(self.state)
        self.sessions = StoredSessions(self.state)
        self.cleaner.copied.append(self.sessions.copied)
        self.cleaner.forward += (self.sessions.forward, self.state.journal.rewrite_definitions)
        self.cleaner.forward.append(self.state.duplicates.copy_forward)
        self.watchers = Watchers(
            self.state,
            self.alarms,
            self.sessions,
            end_consumer=self.end_consumer,
            delete_queue=self.delete_queue,
        )
        self.transactions: dict[Transaction, None] = {}
        self.next_reap = self.state.now + limits.reaper_period
        self._reaping: Iterator[None] | None = None  # a scan that goes on
        self._consumers = 0

    # -- the tick --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The time of the tick, ms since the epoch."""
        return self.state.now

    @property
    def tick(self) -> int:
        """The number of the tick (`Work`)."""
        return self.state.work.number

    def begin_tick(self) -> None:
        """Read the clock."""
        self.state.now = self.state.clock()

    def end_tick(self) -> bool:
        """Do what is due, serve the queues, seal the journal entry.  True when there is more to do at once."""
        state = self.state
        more = self._run_due()
        settle_acknowledged(self.state)
        state.dirty.update(state.dirty_later)
        state.dirty_later.clear()
        self.watchers.notifications.flush()
        dispatch.dispatch(state)
        self._seal()
        # The disk may have been quicker than the tick: what it announced meanwhile is not announced again.
        if state.waiting and state.waiting[0].ticket <= state.journal.durable:
            self.durable(state.journal.durable)
        return more or bool(state.dirty_later or state.dirty)

    def _run_due(self) -> bool:
        state = self.state
        more = False
        if _is_due(state.schedule.next_due(), state.now):
            more = redelivery.release_due(state, DUE_PER_TICK_MAX)
        if self.limits.expiry_scan_period > 0 and _is_due(state.expiries.next_due(), state.now):
            more |= expiry.expire_due(state, DUE_PER_TICK_MAX)
        if self.limits.expiry_scan_period > 0 and _is_due(state.paged_expiries.next_due(), state.now):
            more |= expiry.expire_paged(state, DUE_PER_TICK_MAX)
        more |= self.alarms.run(state.now, DUE_PER_TICK_MAX, self._ring) or _is_due(self.alarms.next_due(), state.now)
        if self.limits.reaper_period > 0 and state.now >= self.next_reap:
            self.next_reap = state.now + self.limits.reaper_period
            if self._reaping is None:
                self._reaping = reaper.scan(state, self.delete_queue)
        if self._reaping is not None:
            if next(self._reaping, self) is self:
                self._reaping = None
            else:
                more = True
        self.cleaner.step()
        for open_transaction in list(self.transactions):
            if state.now >= open_transaction.deadline:
                state.report("transaction.timed_out")
                self.rollback(open_transaction)
        return more

    def _ring(self, call: Callable[[], None]) -> None:
        """Make the call of an alarm; one that fails is not made again."""
        self.state.begin()
        try:
            call()
        except BaseException as error:
            self.state.blame(None, error)

    def next_due(self) -> int | None:
        """When `end_tick` must run next if nothing else happens (ms since the epoch), or None."""
        state = self.state
        times = [t for t in (state.schedule.next_due(), self.alarms.next_due()) if t is not None]
        if self.limits.expiry_scan_period > 0:
            times += [t for t in (state.expiries.next_due(), state.paged_expiries.next_due()) if t is not None]
        if self.limits.reaper_period > 0:
            times.append(self.next_reap)
        times += [t.deadline for t in self.transactions]
        cleaning = self.cleaner.next_due()
        if cleaning is not None:
            times.append(cleaning)
        return min(times, default=None)

    def _seal(self) -> None:
        state = self.state
        if state.journal.empty and not (
            state.work.landing or state.work.held or state.work.waiters or state.work.carried
        ):
            return state.journal.bodies.sweep()
        state.work.ticket = state.journal.commit()
        state.waiting.append(state.work)
        state.work = Work(state.work.number + 1)

    def durable(self, ticket: int) -> None:
        """The journal is on disk up to `ticket`: release what waited for it.  Call within a tick."""
        state = self.state
        told: dict[Waiter, int] = {}
        while state.waiting and state.waiting[0].ticket <= ticket:
            work = state.waiting.popleft()
            for queue, messages in work.landing:
                if not queue.deleted:
                    queue.landing -= len(messages)
                    arrival.land(state, queue, messages)
            for chunk, rows in work.carried:
                tail_compaction.settled(chunk, rows)
            for held in work.held:
                dispatch.release(state, held)
            told |= dict.fromkeys(work.waiters, work.number)
        for waiter, number in told.items():
            try:
                waiter.durable(number)
            except BaseException as error:
                state.blame(waiter.transport, error)

    def confirmation(self, waiter: Waiter) -> int:
        """What must be durable before everything done so far may be confirmed: a tick number; 0 if nothing.

        The waiter is told by `durable(number)`.
        """
        state = self.state
        settle_acknowledged(self.state)
        sealed = state.waiting[-1].ticket if state.waiting else state.journal.durable
        if not state.journal.empty or state.journal.ticket - 1 > sealed:  # open, or sealed within this tick
            state.work.waiters[waiter] = None
            return state.work.number
        if state.waiting:
            state.waiting[-1].waiters[waiter] = None
            return state.waiting[-1].number
        return 0

    def clock_jumped(self, jump: int) -> None:
        """The wall clock has jumped by so many ms: every length of time moves along.  Call as a tick begins."""
        self.state.report("clock.jumped", milliseconds=jump)
        self.alarms.move(jump)
        self.next_reap += jump
        self.cleaner.clock_jumped(jump)
        self.watchers.slow.clock_jumped()
        for open_transaction in self.transactions:
            open_transaction.deadline += jump
        clock_changes.follow(self.state, jump)

    # -- sending ---------------------------------------------------------------------------------------------------

    def publish(
        self,
        sends: Sequence[Send],
        arrived: Sequence[Message] | None = None,
        *,
        producer: Producer | None = None,
        stop: bool = False,
    ) -> PublishResult:
        """Take in the messages of these sends; `arrived` are all of them as they came, for one send its own.

        What is refused does not keep back the rest, unless it is to `stop` there.  See `publish.publish`.
        """
        self.state.begin()
        messages = sends[0].messages if arrived is None else arrived
        return publish.publish(self.state, sends, messages, producer=producer, stop=stop)

    def check_routed(self, address: Address, messages: list[Message]) -> None:
        """Whether messages with the same header, sent to an address, are refused as no queue takes them.

        Raises NoQueue.
        """
        sending.check_routed(self.state, address, None, None, messages)

    def block_if_full(self, address: Address, producer: Producer) -> bool:
        """Whether a producer must stop sending to a full address; it is told by `unblock` when there is room."""
        return sending.block_if_full(self.state, address, producer)

    def stop_waiting(self, producer: Producer) -> None:
        """A producer has gone: it waits for no room any more."""
        stop_waiting(self.state, producer)

    # -- consuming -------------------------------------------------------------------------------------------------

    def subscribe(self, sink: Sink, request: SubscribeRequest) -> Consumer:
        """Attach a consumer.  Raises what `subscribe.find` does."""
        self.state.begin()
        with registry.undoing(self.state):
            queue, predicate = subscribe.find(self.state, request)
        self._consumers += 1
        consumer = Consumer(
            self._consumers,
            queue,
            sink,
            ack_mode=request.ack_mode,
            window=request.window,
            counted=request.counted,
            priority=request.priority,
            predicate=predicate,
            selector=request.selector,
            client_id=request.client_id,
            remote=request.remote,
            user=request.user,
            access=request.access,
        )
        consumer_lifecycle.on_attach(self.state, self.alarms, consumer)
        return consumer

    def grant(self, consumer: Consumer, credit: int) -> None:
        """From now on a consumer with counted credit takes so many messages more, whatever was left."""
        assert consumer.counted, "credit of a window comes back by itself"
        consumer.credit = credit
        if credit and not consumer.closed:
            self.state.dirty[consumer.queue] = None

    def served(self, consumer: Consumer, tick: int) -> bool:
        """Whether the consumer has all for it that had come by this tick: nothing waits for the journal or a turn."""
        return dispatch.served(self.state, consumer, tick)

    def resume(self, consumer: Consumer) -> None:
        """The consumer's sink can take messages again."""
        consumer.paused = False
        if not consumer.closed:
            self.state.dirty[consumer.queue] = None

    def take(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Make messages that are ready on its queue the consumer's deliveries, as they were before a restart.

        Returns those that were ready; the sink is not told.
        """
        return dispatch.take(self.state, consumer, messages)

    def acknowledge(self, consumer: Consumer, id: int, tx: Transaction | None = None, *, kept: bool = False) -> None:
        """Settle a delivery as consumed; for a cumulative consumer, everything delivered before it as well.

        With `kept` the consumer has it again if the transaction is rolled back.  Raises UnknownDelivery,
        TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.acknowledge(consumer, messages, kept=kept)
        else:
            self.state.acknowledged.setdefault(consumer, []).extend(messages)

    def acknowledge_run(self, consumer: Consumer, ids: list[int]) -> None:
        """Settle deliveries as consumed, one after the other.  Raises UnknownDelivery."""
        messages = consumer.settle_next(ids)
        if messages is None:  # not the oldest ones in their order: several at once, or nonsense
            for id in ids:
                self.acknowledge(consumer, id)
        else:
            self.state.acknowledged.setdefault(consumer, []).extend(messages)

    def acknowledge_all(self, consumer: Consumer) -> None:
        """Settle everything that was handed to the consumer's sink as consumed."""
        messages = consumer.settle_delivered()
        if messages:
            self.state.acknowledged.setdefault(consumer, []).extend(messages)

    def reject(self, consumer: Consumer, id: int, *, text: str = "", tx: Transaction | None = None) -> None:
        """Refuse a delivery (and, for a cumulative consumer, all before it) for good: it is a dead letter.

        One that cannot be (its queue is on its own dead-letter address) stays, and this consumer does not get it again.

        Raises UnknownDelivery, TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.settlements.append(Settlement(consumer, messages, DeliveryOutcome(-1, True, text), dead=True))
        else:
            redelivery.reject(self.state, consumer.queue, messages, text, consumer)

    def undeliverable(self, consumer: Consumer, message: Message, why: str, *, too_large: bool) -> None:
        """A delivery to this consumer, which holds the message, cannot be made, nor could it ever: a dead letter."""
        self.state.mark = NO_WAY_BACK
        reason = DeadLetterReason.TOO_LARGE if too_large else DeadLetterReason.DECODE_ERROR
        messages = consumer.settle([message.id])
        redelivery.reject(self.state, consumer.queue, messages, why, consumer, reason)

    def postpone(self, consumer: Consumer, message: Message, why: str) -> None:
        """A delivery to this consumer, which holds the message, cannot be made for now: it comes again a little later,
        and nothing has failed.
        """
        self.state.report("body.unreadable", remote=consumer.remote, error=why)
        self.state.mark = NO_WAY_BACK
        redelivery.postpone(self.state, consumer.queue, consumer.settle([message.id]), RETRY_MS)

    def give_back(self, consumer: Consumer, id: int, how: DeliveryOutcome, tx: Transaction | None = None) -> None:
        """Return a delivery (and, for a cumulative consumer, all before it) to its queue.

        Raises UnknownDelivery, TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.settlements.append(Settlement(consumer, messages, how))
        else:
            redelivery.give_back(self.state, consumer.queue, messages, how, consumer)

    def withdraw(self, consumer: Consumer, messages: Iterable[Message]) -> None:
        """Deliveries that never left for the consumer go back to its queue: nothing has happened to them."""
        ids = [message.id for message in messages if message.id in consumer.unacked]
        if ids:
            self.state.dirty[consumer.queue] = None
            redelivery.withdraw(self.state, consumer.queue, consumer.take_back(ids))

    def exclude(self, consumer: Consumer, id: int) -> None:
        """The consumer, which holds this delivery, must not get the message again."""
        redelivery.exclude(consumer, id)

    def _taken_back(self, consumer: Consumer, id: int, tx: Transaction | None) -> list[Message]:
        if id not in consumer.unacked:
            raise UnknownDelivery(f"message {id} is not waiting for an acknowledgement by this subscription")
        if tx is not None:
            tx.check_open()
        self.state.mark = NO_WAY_BACK
        self.state.dirty[consumer.queue] = None
        return consumer.settle(consumer.up_to(id))

    def close_consumer(self, consumer: Consumer, how: DeliveryOutcome) -> None:
        """Detach a consumer; what it had not acknowledged goes back.  A temporary queue goes with its last consumer."""
        if consumer.closed:
            return
        self.state.mark = NO_WAY_BACK
        settle_acknowledged(self.state)
        consumer.closed = True
        queue = consumer.queue
        messages = consumer.settle_all()
        if not queue.deleted:
            queue.detach(consumer, self.state.now)
        consumer.note(self.state.notes, "CONSUMER_CLOSED")
        redelivery.leave(self.state, consumer, messages, how)
        consumer_lifecycle.on_detach(self.state, queue)
        if queue.temporary and not queue.consumers and not queue.deleted:
            self.delete_queue(queue)

    def end_consumer(self, consumer: Consumer, how: DeliveryOutcome, reason: str) -> None:
        """Close a consumer against its will: its sink is told why."""
        self.close_consumer(consumer, how)
        self.state.tell_closed(consumer, reason)

    def abandon(self, transport: object) -> None:
        """A connection was lost by a fault of its session's: no consumer of it may stay behind.

        Looks at all consumers.
        """
        for queue in list(self.state.queues.values()):
            for consumer in list(queue.consumers):
                if consumer.sink.transport is transport:
                    self.close_consumer(consumer, redelivery.LOST)

    # -- transactions ----------------------------------------------------------------------------------------------

    def begin(self) -> Transaction:
        """Open a transaction."""
        tx = Transaction(self.state.now + self.limits.transaction_timeout, self.limits.transaction_bytes_max)
        self.transactions[tx] = None
        return tx

    def send_in(self, tx: Transaction, sends: Sequence[Send], messages: Sequence[Message]) -> None:
        """Add the messages of these sends, in their order, to a transaction.  Raises TransactionClosed, TooLarge."""
        tx.check_open()
        tx.send(sends, messages)

    def commit(self, tx: Transaction) -> None:
        """Do what the transaction holds, at once.  Raises TransactionClosed, NotFound, AddressFull, DiskFull."""
        self.state.mark = NO_WAY_BACK
        settle_acknowledged(self.state)
        transaction.commit(self.state, tx)
        self.transactions.pop(tx, None)

    def rollback(self, tx: Transaction) -> None:
        """Undo a transaction; harmless on one that is closed."""
        if tx not in self.transactions:
            return
        self.state.mark = NO_WAY_BACK
        del self.transactions[tx]
        settle_acknowledged(self.state)
        transaction.rollback(self.state, tx)

    # -- addresses and queues --------------------------------------------------------------------------------------

    def declare(self, name: str, routing_types: set[RoutingType]) -> Address:
        """An address of the configuration: made if it is missing, never deleted automatically."""
        return administration.declare(self.state, name, routing_types)

    def declare_queue(
        self,
        address: Address,
        name: str,
        routing_type: RoutingType,
        *,
        durable: bool,
        selector: str,
        asked: Asked = NOTHING_ASKED,
    ) -> Queue:
        """A queue of the configuration.  Raises AlreadyInUse when it exists and is something else."""
        return administration.declare_queue(
            self.state, address, name, routing_type, durable=durable, filter=parse_selector(selector), asked=asked
        )

    def queue(self, name: str) -> Queue:
        """A queue by name or FQQN.  Raises NotFound."""
        return administration.find_queue(self.state, name)

    def delete_subscription(self, name: str, access: Access = UNRESTRICTED) -> None:
        """Delete a durable subscription.  Raises NotFound, Denied, or AlreadyInUse while somebody consumes."""
        queue = administration.find_subscription(self.state, name, access)
        if queue.consumers:
            raise AlreadyInUse(f"subscription {name} is being consumed")
        self.delete_queue(queue)

    def delete_queue(self, queue: Queue) -> None:
        """Delete a queue, its messages by name (deleted) and its consumers with it."""
        self.state.mark = NO_WAY_BACK
        settle_acknowledged(self.state)
        consumers = clearing.disband(self.state, queue)
        registry.unbind(self.state, queue)
        for consumer in consumers:
            self.state.tell_closed(consumer, f"queue {queue.name} was deleted")

    def delete_destination(self, queue: Queue) -> None:
        """Delete a queue by name, as an operator does: also what is attached to send to it is told."""
        self.delete_queue(queue)
        registry.destination_lost(self.state, queue.address)

    def delete_node(self, address: Address) -> None:
        """Delete an address that somebody made for himself, with its queues; harmless if it is gone already."""
        if self.state.addresses.get(address.name) is not address:
            return
        for queue in list(address.queues):
            self.delete_queue(queue)
        registry.delete_address(self.state, address)

    def purge(self, queue: Queue) -> int:
        """Remove all ready and scheduled messages by name (purged); returns how many."""
        self.state.mark = NO_WAY_BACK
        settle_acknowledged(self.state)
        return clearing.purge(self.state, queue)

    def purge_some(self, queue: Queue) -> int:
        """Remove some of them, as many as other clients can wait for; how many, 0: all are gone."""
        settle_acknowledged(self.state)
        return clearing.purge_some(self.state, queue)

    def retry(self, queue: Queue, selection: MessageRange) -> MoveResult:
        """Move messages back to where they came from, one step.  Raises NotFound or AlreadyInUse for one id."""
        self.state.begin()
        settle_acknowledged(self.state)
        return transfer.retry(self.state, queue, selection)

    def move(self, queue: Queue, target: str, selection: MessageRange) -> MoveResult:
        """Move messages to an address, a queue or an FQQN, one step.

        Raises NotFound, InvalidName, RoutingTypeMismatch, OntoItself, AlreadyInUse.
        """
        self.state.begin()
        settle_acknowledged(self.state)
        return transfer.relocate(self.state, queue, target, selection)

    def discard(self, queue: Queue, selection: MessageRange) -> MoveResult:
        """Remove messages by name (purged), one step.  Raises NotFound or AlreadyInUse for one id."""
        self.state.begin()
        settle_acknowledged(self.state)
        return transfer.discard(self.state, queue, selection)

    def balance(self) -> tuple[int, list[tuple[Queue, int]]]:
        """What the journal holds before its next position: of each queue, how many messages entered and did not leave.

        The records that say so are durable when `confirmation` is.
        """
        return self.state.journal.position, [(queue, queue.stored) for queue in self.state.queues.values()]

    def dismiss(self, consumer: Consumer, reason: str) -> None:
        """An operator closes a consumer; what it had goes back, and does not count as failed."""
        self.end_consumer(consumer, redelivery.INTERRUPTED, reason)

    def recheck(self, consumer: Consumer, access: Access) -> bool:
        """Whether a consumer may go on with what its peer may do now; if not it is closed, and its sink told."""
        return revocation.recheck(consumer, access, self.end_consumer)

    def secure(self, table: PermissionTable | None) -> int:
        """Other permissions, or (None) other roles: how many consumers were closed because of that."""
        self.security.change(table)
        return revocation.revoke(self.state, self.end_consumer)

    def browse(self, queue: Queue, selector: str = "", access: Access = UNRESTRICTED) -> Iterator[tuple[Message, str]]:
        """All messages of a queue with where each is: ready, scheduled, delivering.  Raises Denied, InvalidSelector."""
        access.require(Permission.BROWSE, queue.address.name, queue.name)
        filter = parse_selector(selector)
        settle_acknowledged(self.state)
        return administration.browse(self.state, queue, filter)


def _is_due(due: int | None, now: int) -> bool:
    return due is not None and due <= now
