"""Transactions: sends and acknowledgements that happen together, in one journal entry, or not at all.

Until commit nothing in a transaction is visible: its messages are on no queue, and its acknowledged deliveries are
neither the consumer's nor removed.  Commit first checks everything that can be refused, then does it all.  Rollback
forgets the sends and returns the deliveries as failed.

A commit that is long is done in steps:

    checked      nothing has changed yet, and the transaction may still be refused, rolled back or time out
    decided      in the step after the last check; from here on nothing is refused
    performed    meanwhile the journal's entry stays open (`Journal.hold`): a crash undoes all of it, and whatever else
                 is recorded in it.  What does not depend on it goes before it (`held_entry`); as the rest waits, this
                 takes every other turn of long work; its messages wait too, so no consumer gets any of them before

What finds its queue deleted since it was decided leaves by name, as if it had been there when the queue was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Final

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.model import annotation
from broker.engine.model.errors import EngineError, TooLarge, TransactionClosed
from broker.engine.model.message import Message, size_of
from broker.engine.model.names import FQQN_SEPARATOR
from broker.engine.moves import move
from broker.engine.publish import publish
from broker.engine.publish.order import Part, in_order
from broker.engine.publish.plan import check_new, commit, plan
from broker.engine.publish.send import Send
from broker.engine.queues import arrival
from broker.engine.queues.address import Producer
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.removal import consume, removal_bytes_of, settle_acknowledged
from broker.engine.queues.room import Room
from broker.engine.queues.settling import ACKNOWLEDGED, FAILED
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import BUDGET, LongWork, Steps, gathered
from broker.engine.queues.uncommitted import Uncommitted
from broker.engine.routing import destinations
from store.record import DeadLetterReason

#: A commit of no more than so many runs of messages, messages, acknowledged deliveries and others is done at once.
SHORT_RUNS_MAX: Final = 32
SHORT_MESSAGES_MAX: Final = 1_024
SHORT_RETURNS_MAX: Final = 16

#: What it costs to check a run, and what a run, a message and a delivery that returns or dies cost, in microseconds.
_CHECK_COST: Final = 10
_RUN_COST: Final = 20
_MESSAGE_COST: Final = 1
_RETURN_COST: Final = 100

#: A step of checks costs so much.
_STEP_COST: Final = 500

#: How many deliveries return to their consumers in a step of a rollback, and what that costs, giving back the room that
#: was held on an address, forgetting a message, and deleting what was created for one.
KEPT_TOGETHER: Final = 512
_KEPT_COST: Final = 2
_RELEASE_COST: Final = 3
_UNDO_COST: Final = 2
_DELETE_COST: Final = 50

#: The owner of the commits that are done in steps: one after the other.
_COMMITS: Final = "commits"

_ID: Final[Callable[[Message], int]] = attrgetter("id")

#: Called with None once a transaction is committed, else with the reason why nothing of it is done.
Committed = Callable[[EngineError | None], None]


def _nothing() -> None:
    """Do nothing."""


def _raise(refusal: EngineError | None) -> None:
    if refusal is not None:
        raise refusal


@dataclass(slots=True, eq=False)
class Settlement:
    """Deliveries that are settled when the transaction commits.

    `how` is None for an acknowledgement, else how they are returned; `dead` dead-letters them at once, for that reason.
    `kept`: after a rollback, which counts as a failed delivery, the consumer still has them, and settles them again.
    """

    consumer: Consumer
    messages: list[Message]
    how: DeliveryOutcome | None
    _: KW_ONLY
    dead: DeadLetterReason | None = None
    kept: bool = False

    def parts(self, state: State) -> Iterator[list[Message]]:
        """The deliveries in parts that are settled together."""
        together = state.steps.at_most((ACKNOWLEDGED if self.how is None else FAILED).together)
        for at in range(0, len(self.messages), together):
            yield self.messages[at : at + together]

    def bytes_needed(self, messages: list[Message]) -> int:
        """The most bytes of journal that some of its deliveries may need, if all that return as failed die."""
        stored = [message for message in messages if message.segment]
        if self.how is None:
            return removal_bytes_of(stored)
        need = size_of(stored)
        if self.how.failed:
            notes = self.how.notes or {}
            noted = move.bytes_noted(stored) + len(annotation.encode(notes)) * len(stored)
            need += move.COPY_OVERHEAD_BYTES * len(stored) + noted
        return need


@dataclass(slots=True, eq=False)
class Transaction:
    """An open transaction.  `deadline` is in ms since the epoch; `bytes` is the cost of its sends in memory.

    `held` counts them and the deliveries that it settles: no longer their consumer's, whose credit returns at once,
    they stay in memory until the end.  `batches`: sends, and their messages in order of arrival, as they came together.
    """

    deadline: int
    bytes_max: int
    room: Room
    held: Uncommitted
    bytes: int = field(init=False, default=0)
    closed: bool = field(init=False, default=False)
    sends: list[Send] = field(init=False, default_factory=list)
    batches: list[tuple[Sequence[Send], list[Message]]] = field(init=False, default_factory=list)
    settlements: list[Settlement] = field(init=False, default_factory=list)

    @property
    def messages(self) -> list[Message]:
        """Those of all sends, in order of arrival."""
        return [message for _, messages in self.batches for message in messages]

    def is_short(self, steps: Steps) -> bool:
        """Whether its commit is done at once."""
        count = sum([len(messages) for _, messages in self.batches])
        returns = 0
        for settlement in self.settlements:
            if settlement.how is None:
                count += len(settlement.messages)
            else:
                returns += len(settlement.messages)
        runs = len(self.sends) + len(self.settlements)
        most = steps.at_most
        return runs <= most(SHORT_RUNS_MAX) and count <= most(SHORT_MESSAGES_MAX) and returns <= most(SHORT_RETURNS_MAX)

    def check_open(self) -> None:
        """Raises TransactionClosed if the transaction has timed out."""
        if self.closed:
            raise TransactionClosed("the transaction took longer than transaction-timeout and was rolled back")

    def send(self, sends: Sequence[Send], messages: list[Message]) -> None:
        """Add messages in their order.

        Raises TransactionClosed, TransactionsFull, and TooLarge if it would not fit a journal entry.
        """
        self.check_open()
        size = size_of(messages)
        if self.bytes + size > self.bytes_max:
            raise TooLarge(f"the transaction exceeds {self.bytes_max} bytes: commit in smaller parts")
        by_address: dict[str, list[Message]] = {}
        for send in sends:
            by_address.setdefault(send.address.name, []).extend(send.messages)
        self.room.hold_sends(self.held, by_address, size)
        self.bytes += size
        self.sends += sends
        self.batches.append((sends, messages))

    def hold(self, messages: list[Message]) -> None:
        """Count deliveries that are about to be settled in it.  Raises TransactionClosed, TransactionsFull."""
        self.check_open()
        self.room.hold_deliveries(self.held, messages)

    def acknowledge(self, consumer: Consumer, messages: list[Message], *, kept: bool) -> None:
        """Add deliveries that were consumed.  A run of them is one settlement, however many calls it took."""
        last = self.settlements[-1] if self.settlements else None
        if last is not None and last.how is None and last.consumer is consumer and last.kept == kept:
            last.messages += messages
        else:
            self.settlements.append(Settlement(consumer, messages, None, kept=kept))


class Transactions:
    """The open transactions, each with the time-out and the limits in bytes that `Limits` sets."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._open: dict[Transaction, None] = {}
        self._ending: dict[Transaction, list[Callable[[], None]]] = {}  # rolled back in steps
        self._performed = 0  # the tick of which the last commit in steps ended

    def __len__(self) -> int:
        return len(self._open)

    @property
    def bytes(self) -> int:
        """The memory of what they send and settle."""
        return self._state.room.transactions.bytes

    def begin(self, connection: object) -> Transaction:
        """Open a transaction of a connection."""
        limits, room = self._state.limits, self._state.room
        deadline = self._state.now + limits.transaction_timeout
        held = room.transactions.begin(connection)
        transaction = Transaction(deadline, limits.transaction_bytes_max, room, held)
        self._open[transaction] = None
        return transaction

    def wait_for_room(self, transaction: Transaction, sends: Sequence[Send], producer: Producer) -> bool:
        """Whether a producer must stop after these sends of a transaction, until its `unblock` is called.

        What enters with a commit enters whole, so the time to wait is before.
        """
        held = transaction.held
        return any([publish.wait_for_room(self._state, send.address, producer, held) for send in sends])

    def commit(self, transaction: Transaction, done: Committed = _raise) -> None:
        """Do everything in the transaction, in one entry of the journal: in this call, or in steps if it is long.

        Then `done` is called: with TransactionClosed, NotFound, NoQueue, AddressFull, DuplicateMessage or DiskFull
        before anything is done.  Until then nothing may be added to the transaction.
        """
        state = self._state
        state.mark = NO_WAY_BACK
        settle_acknowledged(state)
        short = transaction.is_short(state.steps)
        work = self._commit(transaction, done, short=short)
        if short:
            for _ in work:
                pass
        else:
            state.steps.begin(_COMMITS, work)

    def _commit(self, transaction: Transaction, done: Committed, *, short: bool) -> LongWork:
        state = self._state
        while not short and state.pending.work.number == self._performed:
            yield BUDGET  # others' confirmations come first
        undo: list[Callable[[], None]] = []
        try:
            need = yield from _checked(state, transaction, undo)
            if need:
                arrival.reserve_bytes(state, need, essential=not transaction.sends)
        except EngineError as refusal:
            state.mark = NO_WAY_BACK
            while undo:
                undo.pop()()
            done(refusal)
            return
        transaction.closed = True
        self._open.pop(transaction, None)
        if not short:
            state.pending.hold(need)
            state.steps.first = _COMMITS
        work = _performed(state, transaction)
        while (cost := _atomically(state, work, short=short)) is not None:
            yield cost
        if not short:
            state.pending.let_go()
            state.steps.first = None
            # An empty entry has no work of its own.
            self._performed = -1 if state.journal.empty else state.pending.work.number
        state.room.release(transaction.held)
        done(None)

    def between(self, call: Callable[[], None]) -> None:
        """Call now or, if a commit is being performed, once no entry is held open, when what is stored is in order."""
        if self._state.pending.held is None:
            call()
        else:
            self._state.steps.begin(_COMMITS, _called(call))

    def rollback(self, transaction: Transaction, done: Callable[[], None] = _nothing) -> None:
        """Forget the sends, and return the deliveries as failed to their queues or, if `kept`, to their consumers.

        Many are forgotten, and come back to their consumers, in steps; then `done` is called.  No effect on a closed
        transaction.
        """
        if transaction in self._ending:
            self._ending[transaction].append(done)
            return
        if transaction not in self._open:
            done()
            return
        state = self._state
        state.mark = NO_WAY_BACK
        del self._open[transaction]
        self._ending[transaction] = [done]
        settle_acknowledged(state)
        transaction.closed = True
        transaction.sends.clear()  # `batches` has them
        self._return(transaction)
        state.steps.begin(("rollback", transaction), gathered(self._roll_back(transaction)))

    def _roll_back(self, transaction: Transaction) -> LongWork:
        state = self._state
        together = state.steps.at_most(KEPT_TOGETHER)
        while not state.room.release(transaction.held, together):
            yield _RELEASE_COST * together
        transaction.settlements.reverse()  # the next one last
        while transaction.settlements:
            state.mark = NO_WAY_BACK
            settlement = transaction.settlements[-1]
            some = settlement.messages[:together]
            del settlement.messages[:together]
            if not settlement.messages:
                transaction.settlements.pop()
            consumer = settlement.consumer
            if settlement.kept and not consumer.closed:
                redelivery.count_failure(state, consumer.queue, some)
                consumer.take_again(some)
            else:  # its link has ended meanwhile
                redelivery.give_back(state, consumer.queue, some, redelivery.ROLLBACK, consumer)
            yield _KEPT_COST * len(some)
        while transaction.batches:
            sends, messages = transaction.batches.pop()
            for send in sends:
                state.mark = NO_WAY_BACK
                created = send.created is not None
                publish.undo(state, (send,))
                yield _DELETE_COST if created else _UNDO_COST
            yield _UNDO_COST * len(messages)
        for done in self._ending.pop(transaction):
            done()

    def _return(self, transaction: Transaction) -> None:
        """Return the deliveries that are not kept for their consumers, in their order."""
        by_consumer: dict[Consumer, list[Message]] = {}
        kept: list[Settlement] = []
        for settlement in transaction.settlements:
            if settlement.kept and not settlement.consumer.closed:
                kept.append(settlement)
            else:
                by_consumer.setdefault(settlement.consumer, []).extend(settlement.messages)
        transaction.settlements = kept
        for consumer, messages in by_consumer.items():
            messages.sort(key=_ID)
            redelivery.give_back(self._state, consumer.queue, messages, redelivery.ROLLBACK, consumer)

    def settling(self, consumer: Consumer, ids: Collection[int]) -> list[tuple[Transaction, Settlement]]:
        """The settlements of a consumer's deliveries in open transactions, of any of these messages."""
        return [
            (transaction, settlement)
            for transaction in chain(self._open, self._ending)
            for settlement in transaction.settlements
            if settlement.consumer is consumer and any([message.id in ids for message in settlement.messages])
        ]

    def let_go(self, consumer: Consumer, ids: Collection[int]) -> None:
        """Note that a consumer has settled deliveries: after a rollback they return to their queue, and not to it."""
        for transaction, settlement in self.settling(consumer, ids):
            if settlement.kept:
                gone = [message for message in settlement.messages if message.id in ids]
                settlement.messages = [message for message in settlement.messages if message.id not in ids]
                transaction.settlements.append(replace(settlement, messages=gone, kept=False))

    def time_out(self) -> None:
        """Roll back those that took too long."""
        for transaction in list(self._open):
            if self._state.now >= transaction.deadline:
                self._state.report("transaction.timed_out")
                self.rollback(transaction)

    def holding(self, queue: Queue) -> list[int]:
        """The ids of a queue's messages that are settled in open transactions."""
        settlements = [each for transaction in chain(self._open, self._ending) for each in transaction.settlements]
        return [message.id for each in settlements if each.consumer.queue is queue for message in each.messages]

    def next_due(self) -> int | None:
        """When `time_out` must be called next (ms since the epoch), or None."""
        return min([transaction.deadline for transaction in self._open]) if self._open else None

    def clock_jumped(self, jump: int) -> None:
        """Shift all deadlines after the wall clock has jumped by `jump` ms."""
        for transaction in self._open:
            transaction.deadline += jump


def _called(call: Callable[[], None]) -> LongWork:
    call()
    yield _STEP_COST


def _checked(state: State, transaction: Transaction, undo: list[Callable[[], None]]) -> Generator[int, None, int]:
    """Check in steps what can be refused; returns the bytes to reserve in the journal.

    `undo` deletes what was created meanwhile.  Raises the errors of `Transactions.commit`.
    """
    need = spent = 0
    transaction.check_open()
    for settlement in transaction.settlements:
        for part in settlement.parts(state):
            need += settlement.bytes_needed(part)
            yield _MESSAGE_COST * len(part)
            transaction.check_open()
    seen: set[tuple[int, bytes]] = set()
    for send in transaction.sends:
        with _creating(state, undo):
            _find_again(state, send)
        extras = state.diverts.extras(send.address)
        check_new(state, send, seen)
        with state.room.without(transaction.held, chain((send.address.name,), extras.reach if extras else ())):
            state.room.check(send.address)
            made = plan(state, send, send.messages, checks=True)
            made.discard()
        if made.lost:
            raise made.no_queue
        need += made.bytes_needed()
        spent += _CHECK_COST + len(send.messages) // 8
        if spent >= _STEP_COST:
            yield spent
            spent = 0
            transaction.check_open()
    consumes = not transaction.sends and all(settlement.how is None for settlement in transaction.settlements)
    return 0 if consumes else need  # what was consumed is never refused, in a transaction or not


@contextmanager
def _creating(state: State, undo: list[Callable[[], None]]) -> Iterator[None]:
    """A context in which is noted how to delete what is created."""
    outer, state.registry.made = state.registry.made, undo
    try:
        yield
    finally:
        state.registry.made = outer


def _find_again(state: State, send: Send) -> None:
    """Look up address and queue again; if deleted since, create them if allowed.  Raises EngineError."""
    name, wanted = send.address.name, send.routing_type
    if send.queue is not None:
        name, wanted = f"{name}{FQQN_SEPARATOR}{send.queue.name}", send.queue.routing_type
    send.address, send.queue = destinations.destination(state, name, wanted, asked=send.asked)


def _atomically(state: State, work: LongWork, *, short: bool) -> int | None:
    """Make a step of what is part of one entry; returns its cost, None at the end.

    A short commit may be recorded in the entry that a long one holds open.  Then its connection waits for that.
    """
    journal, held = state.journal, None if short else state.pending.held
    before = journal.held_bytes
    state.mark = NO_WAY_BACK
    state.atomic = True
    try:
        return next(work, None)
    finally:
        state.atomic = False
        if held is not None:
            journal.spend_held(journal.held_bytes - before)
            held.absorb(journal)


def _performed(state: State, transaction: Transaction) -> LongWork:
    """Do in steps what is decided, and forget it as it is done: to free all of it at once would take long."""
    room, held = state.room, transaction.held
    transaction.batches.reverse()
    while transaction.batches:
        sends, messages = transaction.batches.pop()
        for some, together in _portions(state, sends, messages):
            charged = [(send, len(send.messages), size_of(send.messages)) for send in some]
            parts: list[Part] = [(some[0], together, None)]
            if len(some) > 1:
                with room.without(held, [send.address.name for send in some]):
                    parts = in_order(state, some, together)
                if not parts:  # they are published, which may have changed their sizes
                    for send, count, nbytes in charged:
                        room.release_sends(held, send.address.name, count, nbytes)
                    yield _RUN_COST * len(some) + _MESSAGE_COST * len(together)
            spent, left = 0, state.steps.left
            for send, run, _ in parts:  # other things may happen before the next one: none is published as planned
                count, nbytes = len(run), size_of(run)
                with room.without(held, [send.address.name]):
                    _publish(state, send, run)
                room.release_sends(held, send.address.name, count, nbytes)
                spent += _RUN_COST + _MESSAGE_COST * count
                if spent + left - state.steps.left >= _STEP_COST:  # what enters many queues, or is matched, has spent
                    yield spent
                    spent, left = 0, state.steps.left
            yield spent
        if state.tracer is not None:
            publish.trace(state, state.tracer, messages)
        for send in sends:
            send.messages = []
    transaction.settlements.reverse()
    while transaction.settlements:
        yield from _settled(state, transaction.settlements.pop())


def _portions(
    state: State, sends: Sequence[Send], messages: list[Message]
) -> Iterator[tuple[Sequence[Send], list[Message]]]:
    """Yield sends that came together in portions: a single one may have many messages, several have few."""
    most = state.steps.at_most(SHORT_MESSAGES_MAX) if len(sends) == 1 else len(messages)
    for at in range(0, len(messages), most):
        yield sends, messages[at : at + most]


def _publish(state: State, send: Send, messages: list[Message]) -> None:
    """Publish messages of a send; those that find no queue any more, which is decided too late, are unroutable."""
    if not destinations.is_current(state, send.address):
        try:
            _find_again(state, send)
        except EngineError:
            arrival.unroutable(state, send.address, messages)
            return
    made = plan(state, send, messages)
    arrival.unroutable(state, send.address, made.lost)
    commit(state, send, made, state.room.admit_whole(send.address, messages))


def _settled(state: State, settlement: Settlement) -> LongWork:
    """Settle deliveries in steps; while any return, their queue delivers nothing: they go before younger ones."""
    consumer, how = settlement.consumer, settlement.how
    queue = consumer.queue
    if how is not None:
        assert how.failed <= 0, "all or none have failed, whatever the parts"
        queue.returning += 1
    for part in settlement.parts(state):
        if how is None:
            consumer.settled += len(part)
            consume(state, consumer, part)
        elif settlement.dead is not None:
            redelivery.reject(state, queue, part, how.text, consumer, settlement.dead)
        else:
            redelivery.give_back(state, queue, part, how, consumer)
        yield (_MESSAGE_COST if how is None else _RETURN_COST) * len(part)
    if how is not None:
        queue.returning -= 1
        state.dirty[queue] = None
