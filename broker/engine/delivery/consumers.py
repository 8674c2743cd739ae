"""The verbs for consumers: subscribe, credit, settle, close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.delivery import closing, dispatch, redelivery, subscribe
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.delivery.reservations import Reservations
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.delivery.transaction import Settlement, Transaction
from broker.engine.model.access import Access
from broker.engine.model.errors import UnknownDelivery
from broker.engine.model.message import Message
from broker.engine.queues import consumer_lifecycle
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.queue import Consumer, Queue, Sink
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.queues.steps import LongWork
from store.record import DeadLetterReason

#: Deliveries of a cumulative consumer that are settled at once: some milliseconds if they fail.
PORTION_MAX: Final = 1_024

#: What it costs at least to take such a portion from its consumer, in microseconds (`queues.steps`).
PORTION_COST: Final = 1_000

#: What it costs to remove an acknowledged message at the end of the tick, in microseconds (`queues.steps`).
REMOVE_COST: Final = 2


class Consumers:
    """All consumers of the broker."""

    def __init__(self, state: State, sessions: StoredSessions) -> None:
        self._state = state
        self._made = 0
        self.reservations = Reservations(state, sessions, self._number)

    def _number(self) -> int:
        self._made += 1
        return self._made

    def subscribe(self, sink: Sink, request: SubscribeRequest) -> Consumer:
        """Attach a consumer.  Raises InvalidSelector, TooManySelectors, and the errors of
        `subscribe.find`.
        """
        self._state.begin()
        filter = subscribe.parse_selector(request.selector)
        self._state.selectors.check(sink.transport, filter)
        with self._state.registry.undoing():
            queue, predicate = subscribe.find(self._state, request, filter)
            if self._state.pending.held is not None and not self._state.pending.held.is_older(queue):
                self._state.pending.held.depend()
            consumer = Consumer(
                self._number(),
                queue,
                sink,
                ack_mode=request.ack_mode,
                window=request.window,
                counted=request.counted,
                priority=request.priority,
                predicate=predicate,
                selector=request.selector,
                filter=filter,
                client_id=request.client_id,
                remote=request.remote,
                user=request.user,
                access=request.access,
                forwards=request.forwards,
                link=request.link,
                exclusive=request.exclusive,
                subscriber=request.subscriber if queue.name == request.name else None,
                on_demand=request.on_demand,
            )
            if request.reserve is not None and not queue.non_destructive:
                self.reservations.attach(consumer, request.reserve)
        consumer_lifecycle.on_attach(self._state, consumer)
        return consumer

    # -- credit ----------------------------------------------------------------------------------------------------

    def grant(self, consumer: Consumer, credit: int) -> None:
        """Set the credit of a consumer with counted credit, in messages; what was left of it no longer counts."""
        assert consumer.counted, "a window's credit returns when messages are settled"
        consumer.credit = credit
        if credit and not consumer.closed:
            self._state.dirty[consumer.queue] = None

    def served(self, consumer: Consumer, tick: int) -> bool:
        """Whether it was sent everything that had arrived by this tick: nothing awaits the journal or another turn.

        Later messages do not count, or a queue that is filled all the time would never count as drained.
        """
        state, queue = self._state, consumer.queue
        busy = consumer.held or queue.returning or state.is_unchecked(queue)
        busy = busy or queue in state.dirty or queue in state.unreached or queue in state.dirty_later
        return not (busy or state.pending.landing_on(queue, tick))

    def ready_for(self, queue: Queue, consumers: Iterable[Consumer]) -> int:
        """The ready messages of a queue that are in memory, 0 if none of them is for these consumers."""
        steps = self._state.steps
        return queue.ready if any([queue.backlog.has_for(each.id, 0, steps) for each in consumers]) else 0

    def pause(self, consumer: Consumer) -> None:
        """Stop deliveries to a consumer whose sink cannot accept messages for now."""
        consumer.paused = True

    def resume(self, consumer: Consumer) -> None:
        """Resume deliveries to a consumer: its sink can accept messages again."""
        consumer.paused = False
        if not consumer.closed:
            self._state.dirty[consumer.queue] = None

    def take(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Make ready messages the consumer's deliveries, as they were before a restart, without sending them.

        Returns those that were ready.
        """
        return dispatch.take(self._state, consumer, messages)

    # -- settling --------------------------------------------------------------------------------------------------

    def acknowledge(self, consumer: Consumer, id: int, tx: Transaction | None = None, *, kept: bool = False) -> None:
        """Settle a delivery as consumed; for a cumulative consumer, everything delivered before it as well.

        With `kept` it is the consumer's again if the transaction is rolled back.  Raises UnknownDelivery,
        TransactionClosed, TooLarge.
        """
        messages = self._settle(consumer, id, tx)
        if tx is not None:
            tx.acknowledge(consumer, messages, kept=kept)
        else:
            self._remove_later(consumer, messages)

    def covers_many(self, consumer: Consumer, ids: Iterable[int]) -> bool:
        """Whether a cumulative acknowledgement of any of these covers more deliveries than may be settled at once."""
        if consumer.order is None or len(consumer.unacked) <= PORTION_MAX:
            return False
        return any([consumer.portion(id, PORTION_MAX) != id for id in ids])

    def settle_in_portions(
        self, consumer: Consumer, id: int, settle: Callable[[int], None], *, returns: bool
    ) -> LongWork:
        """Settle a delivery, and all before it, by `settle`, which gets the last id of each portion.

        `returns`: they return to their queue, which delivers nothing until all have: nothing younger passes in between.
        Ends early if the consumer is closed.  Raises what `settle` raises.
        """
        queue, state = consumer.queue, self._state
        queue.returning += returns
        try:
            while not consumer.closed:
                portion = consumer.portion(id, PORTION_MAX)
                settle(portion)
                if portion == id:
                    return
                yield PORTION_COST
        finally:
            queue.returning -= returns
            state.dirty[queue] = None

    def acknowledge_run(self, consumer: Consumer, ids: list[int]) -> None:
        """Settle deliveries as consumed, one after the other.  Raises UnknownDelivery."""
        messages = consumer.settle_next(ids)
        if messages is None:  # not the oldest ones in order, or invalid
            for id in ids:
                self.acknowledge(consumer, id)
        else:
            self._remove_later(consumer, messages)

    def acknowledge_all(self, consumer: Consumer) -> None:
        """Settle everything that was passed to the consumer's sink as consumed."""
        messages = consumer.settle_delivered()
        if messages:
            self._remove_later(consumer, messages)

    def _remove_later(self, consumer: Consumer, messages: list[Message]) -> None:
        """Remove acknowledged messages at the end of the tick, with others."""
        self._state.acknowledged.setdefault(consumer, []).extend(messages)
        if len(messages) > 1:
            self._state.steps.reserve(REMOVE_COST * len(messages))

    def reject(
        self,
        consumer: Consumer,
        id: int,
        *,
        text: str = "",
        tx: Transaction | None = None,
        kept: bool = False,
        reason: DeadLetterReason = DeadLetterReason.REJECTED,
    ) -> None:
        """Refuse a delivery (and, for a cumulative consumer, all before it) for good: it becomes a dead letter.

        If it cannot (its queue is on its own dead-letter address), it stays, and this consumer does not get it again.

        `kept` as for `acknowledge`.  Raises UnknownDelivery, TransactionClosed, TooLarge.
        """
        messages = self._settle(consumer, id, tx)
        if tx is not None:
            how = DeliveryOutcome(-1, True, text)
            tx.settlements.append(Settlement(consumer, messages, how, dead=reason, kept=kept))
        else:
            redelivery.reject(self._state, consumer.queue, messages, text, consumer, reason)

    def undeliverable(
        self, consumer: Consumer, message: Message, why: str, reason: DeadLetterReason = DeadLetterReason.DECODE_ERROR
    ) -> None:
        """Dead-letter a message that the consumer holds but that can never be delivered to it."""
        self._state.mark = NO_WAY_BACK
        messages = consumer.settle([message.id])
        redelivery.reject(self._state, consumer.queue, messages, why, consumer, reason)

    def postpone(self, consumer: Consumer, message: Message, why: str) -> None:
        """Postpone a message that the consumer holds but that cannot be delivered now; not a failure."""
        self._state.report("body.unreadable", remote=consumer.remote, error=why)
        self.keep(consumer, message, RETRY_MS)

    def keep(self, consumer: Consumer, message: Message, ms: int) -> None:
        """Put back a message that the consumer holds, to be delivered again after `ms`; not a failure."""
        self._state.mark = NO_WAY_BACK
        self._state.dirty[consumer.queue] = None
        redelivery.postpone(self._state, consumer.queue, consumer.settle([message.id]), ms)

    def give_back(
        self, consumer: Consumer, id: int, how: DeliveryOutcome, tx: Transaction | None = None, *, kept: bool = False
    ) -> None:
        """Return a delivery (and, for a cumulative consumer, all before it) to its queue.

        `kept` as for `acknowledge`.  Raises UnknownDelivery, TransactionClosed, TooLarge.
        """
        messages = self._settle(consumer, id, tx)
        if tx is not None:
            tx.settlements.append(Settlement(consumer, messages, how, kept=kept))
        else:
            redelivery.give_back(self._state, consumer.queue, messages, how, consumer)

    def return_run(self, consumer: Consumer, ids: Iterable[int], how: DeliveryOutcome) -> None:
        """Return those of these deliveries that the consumer still has."""
        messages = self._take(consumer, ids)
        if messages:
            redelivery.give_back(self._state, consumer.queue, messages, how, consumer)

    def reject_run(self, consumer: Consumer, ids: Iterable[int], text: str) -> None:
        """Refuse for good those of these deliveries that the consumer still has."""
        messages = self._take(consumer, ids)
        if messages:
            redelivery.reject(self._state, consumer.queue, messages, text, consumer)

    def _take(self, consumer: Consumer, ids: Iterable[int]) -> list[Message]:
        there = [id for id in ids if id in consumer.unacked]
        if not there:
            return []
        self._state.mark = NO_WAY_BACK
        self._state.dirty[consumer.queue] = None
        return consumer.settle(there)

    def dies_next(self, consumer: Consumer, message: Message) -> bool:
        """Whether a message that the consumer holds becomes a dead letter if its delivery fails once more."""
        queue = consumer.queue
        return not queue.non_destructive and redelivery.is_spent(self._state, queue, message, more=1)

    def count_failure(self, consumer: Consumer, message: Message) -> None:
        """Count a failed delivery of a message that stays with the consumer, whose client will get it again."""
        self._state.mark = NO_WAY_BACK
        redelivery.count_failure(self._state, consumer.queue, [message])

    def withdraw(self, consumer: Consumer, messages: Iterable[Message]) -> None:
        """Put deliveries that were never sent to the consumer back on its queue: nothing has happened to them."""
        ids = [message.id for message in messages if message.id in consumer.unacked]
        if ids:
            self._state.dirty[consumer.queue] = None
            redelivery.withdraw(self._state, consumer.queue, consumer.take_back(ids))

    def return_unsent(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Put back what was just delivered, and would take the tick too long to send: the next one delivers it again.

        Not for non-destructive queues.
        """
        queue = consumer.queue
        assert not queue.non_destructive, "its messages do not come back"
        redelivered = sum(message.id in queue.states for message in messages) if queue.states else 0
        self._state.totals.count_delivered(queue, -len(messages), -redelivered)
        self.withdraw(consumer, messages)

    def kept_for(self, consumer: Consumer) -> int:
        """How many messages reserved for the consumer's link this consumer will get."""
        reservation = consumer.reservation
        return 0 if reservation is None or reservation.whole is not consumer else len(reservation.stand_in.unacked)

    def _settle(self, consumer: Consumer, id: int, tx: Transaction | None) -> list[Message]:
        if id not in consumer.unacked:
            raise UnknownDelivery(f"unknown message: {id} is not waiting for an acknowledgement by this subscription")
        if tx is None and consumer.covers_all(id):  # perhaps some hundred thousands
            self._state.mark = NO_WAY_BACK
            self._state.dirty[consumer.queue] = None
            return consumer.settle_all()
        ids = consumer.up_to(id)
        if tx is not None:
            tx.hold([consumer.unacked[each] for each in ids])
        self._state.mark = NO_WAY_BACK
        self._state.dirty[consumer.queue] = None
        return consumer.settle(ids)

    # -- closing ---------------------------------------------------------------------------------------------------

    def close(self, consumer: Consumer, how: DeliveryOutcome) -> None:
        """Detach a consumer and return its unacknowledged messages; a temporary queue is deleted with its last one."""
        closing.close(self._state, consumer, how)

    def close_all(
        self, consumers: Mapping[Consumer, DeliveryOutcome], transport: object, then: Callable[[], None]
    ) -> None:
        """Close the consumers of a connection that has ended, in this tick and in later ones; then call `then`.

        Whoever subscribes to a durable subscription of theirs meanwhile finds them closed.
        """
        closing.close_all(self._state, consumers, transport, then)

    def dismiss(self, consumer: Consumer, reason: str) -> None:
        """Close a consumer for an operator; its messages are returned and do not count as failed.

        A link's messages stay reserved for it; closing the reservation's stand-in gives them to others.
        """
        reservation = consumer.reservation
        if reservation is not None and reservation.stand_in is consumer:
            reservation.release("an operator has closed it")
            return
        closing.end(self._state, consumer, redelivery.INTERRUPTED, reason)

    def recheck(self, consumer: Consumer, access: Access) -> bool:
        """Whether a consumer may continue with its client's present permissions; if not, close it and tell its sink."""
        return closing.recheck(self._state, consumer, access)

    def abandon(self, transport: object) -> None:
        """Close all consumers of a connection that was lost because its session failed.

        Searches all consumers.
        """
        everybody = [each for queue in self._state.queues.values() if queue.consumers for each in queue.consumers]
        for consumer in everybody:
            if consumer.sink.transport is transport:
                self.close(consumer, redelivery.LOST)
