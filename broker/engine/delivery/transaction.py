"""Transactions: sends and acknowledgements that happen together, in one journal entry, or not at all.

Until commit nothing in a transaction is visible: its messages are on no queue, and its acknowledged deliveries are
neither the consumer's nor removed.  Commit first checks everything that can be refused, then does it all.  Rollback
forgets the sends and returns the deliveries as failed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.model import annotation
from broker.engine.model.errors import TooLarge, TransactionClosed
from broker.engine.model.message import Message, size_of
from broker.engine.model.names import FQQN_SEPARATOR
from broker.engine.moves import move
from broker.engine.publish import publish, sending
from broker.engine.publish.send import Send
from broker.engine.queues import arrival
from broker.engine.queues.address import Producer
from broker.engine.queues.consumer import Consumer
from broker.engine.queues.queue import Queue
from broker.engine.queues.removal import consume, removal_bytes_of, settle_acknowledged
from broker.engine.queues.room import Room
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.uncommitted import Uncommitted
from broker.engine.routing import destinations, registry
from store.record import DeadLetterReason


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

    def bytes_needed(self) -> int:
        """The most bytes of journal that it may need, if all that it returns as failed dies."""
        stored = [message for message in self.messages if message.segment]
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
    they stay in memory until the end.  `messages` are those of all sends, in order of arrival.
    """

    deadline: int
    bytes_max: int
    room: Room
    held: Uncommitted
    bytes: int = field(init=False, default=0)
    closed: bool = field(init=False, default=False)
    sends: list[Send] = field(init=False, default_factory=list)
    messages: list[Message] = field(init=False, default_factory=list)
    settlements: list[Settlement] = field(init=False, default_factory=list)

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
        self.messages += messages

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

    def commit(self, transaction: Transaction) -> None:
        """Do everything in the transaction at once.

        Raises TransactionClosed, NotFound, NoQueue, AddressFull, DuplicateMessage or DiskFull before anything is done.
        """
        state = self._state
        state.mark = NO_WAY_BACK
        settle_acknowledged(state)
        transaction.check_open()
        with state.room.without(transaction.held):
            with registry.undoing(state):
                _check(state, transaction)
            transaction.closed = True
            state.atomic = True
            try:
                _perform(state, transaction)
            finally:
                state.atomic = False
        self._open.pop(transaction, None)
        state.room.release(transaction.held)

    def rollback(self, transaction: Transaction) -> None:
        """Forget the sends, and return the deliveries as failed to their queues or, if `kept`, to their consumers.

        No effect on a closed transaction.
        """
        if transaction not in self._open:
            return
        state = self._state
        state.mark = NO_WAY_BACK
        del self._open[transaction]
        settle_acknowledged(state)
        transaction.closed = True
        state.room.release(transaction.held)
        publish.undo(state, transaction.sends)
        transaction.sends.clear()
        transaction.messages.clear()
        by_consumer: dict[Consumer, list[Message]] = {}
        for settlement in transaction.settlements:
            consumer = settlement.consumer
            if settlement.kept and not consumer.closed:
                redelivery.count_failure(state, consumer.queue, settlement.messages)
                consumer.take_again(settlement.messages)
            else:
                by_consumer.setdefault(consumer, []).extend(settlement.messages)
        transaction.settlements.clear()
        for consumer, messages in by_consumer.items():
            messages.sort(key=lambda message: message.id)
            redelivery.give_back(state, consumer.queue, messages, redelivery.ROLLBACK, consumer)

    def settling(self, consumer: Consumer, ids: Collection[int]) -> list[tuple[Transaction, Settlement]]:
        """The settlements of a consumer's deliveries in open transactions, of any of these messages."""
        return [
            (transaction, settlement)
            for transaction in self._open
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
        settlements = [each for transaction in self._open for each in transaction.settlements]
        return [message.id for each in settlements if each.consumer.queue is queue for message in each.messages]

    def next_due(self) -> int | None:
        """When `time_out` must be called next (ms since the epoch), or None."""
        return min([transaction.deadline for transaction in self._open], default=None)

    def clock_jumped(self, jump: int) -> None:
        """Shift all deadlines after the wall clock has jumped by `jump` ms."""
        for transaction in self._open:
            transaction.deadline += jump


def _check(state: State, transaction: Transaction) -> None:
    """Check what can be refused, and reserve room in the journal.  Raises the errors of `Transactions.commit`."""
    for send in transaction.sends:
        _find_again(state, send)
    need = sum([settlement.bytes_needed() for settlement in transaction.settlements])
    seen: set[tuple[int, bytes]] = set()
    for send in transaction.sends:
        sending.check(state, send.address)
        sending.check_new(state, send, seen)
        sending.check_routed(state, send, send.messages)
        if send.messages[0].header.durable:
            need += sending.needed(send.address, send.messages)
    consumes = not transaction.sends and all(settlement.how is None for settlement in transaction.settlements)
    if need and not consumes:  # what was consumed is never refused, in a transaction or not
        arrival.reserve_bytes(state, need, essential=not transaction.sends)


def _find_again(state: State, send: Send) -> None:
    """Look up address and queue again; if deleted since, create them if allowed.  Raises EngineError."""
    name, wanted = send.address.name, send.routing_type
    if send.queue is not None:
        name, wanted = f"{name}{FQQN_SEPARATOR}{send.queue.name}", send.queue.routing_type
    send.address, send.queue = destinations.destination(state, name, wanted, asked=send.asked)


def _perform(state: State, transaction: Transaction) -> None:
    for send, messages in publish.in_turn(state, transaction.sends, transaction.messages):
        admission = state.room.admit_whole(send.address, messages)
        publish.publish_run(state, send, messages, admission, size_of(messages))
    if state.tracer is not None:
        publish.trace(state, state.tracer, transaction.messages)
    for settlement in transaction.settlements:
        _settle(state, settlement)


def _settle(state: State, settlement: Settlement) -> None:
    queue = settlement.consumer.queue
    how = settlement.how
    if how is None:
        settlement.consumer.settled += len(settlement.messages)
        consume(state, settlement.consumer, settlement.messages)
    elif settlement.dead is not None:
        redelivery.reject(state, queue, settlement.messages, how.text, settlement.consumer, settlement.dead)
    else:
        redelivery.give_back(state, queue, settlement.messages, how, settlement.consumer)
