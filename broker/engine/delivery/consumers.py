"""The verbs of consumers: they subscribe, have credit, settle what they got, and are closed."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.client_sessions.sessions import StoredSessions
from broker.engine.delivery import closing, dispatch, redelivery, revocation, subscribe
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.delivery.reservations import Reservations
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.delivery.transaction import Settlement, Transaction
from broker.engine.model.access import Access
from broker.engine.model.errors import UnknownDelivery
from broker.engine.model.message import Message
from broker.engine.queues import consumer_lifecycle
from broker.engine.queues.consumer import Consumer, Sink
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.state import NO_WAY_BACK, State
from broker.engine.routing import registry
from store.record import DeadLetterReason


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
        """Attach a consumer.  Raises what `subscribe.find` does."""
        self._state.begin()
        with registry.undoing(self._state):
            queue, predicate = subscribe.find(self._state, request)
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
                client_id=request.client_id,
                remote=request.remote,
                user=request.user,
                access=request.access,
                forwards=request.forwards,
                link=request.link,
                on_demand=request.on_demand,
            )
            if request.reserve is not None and not queue.non_destructive:
                self.reservations.attach(consumer, request.reserve)
        consumer_lifecycle.on_attach(self._state, consumer)
        return consumer

    # -- credit ----------------------------------------------------------------------------------------------------

    def grant(self, consumer: Consumer, credit: int) -> None:
        """From now on a consumer with counted credit takes so many messages more, whatever was left."""
        assert consumer.counted, "credit of a window comes back by itself"
        consumer.credit = credit
        if credit and not consumer.closed:
            self._state.dirty[consumer.queue] = None

    def served(self, consumer: Consumer, tick: int) -> bool:
        """Whether the consumer has all for it that had come by this tick: nothing waits for the journal or a turn."""
        return dispatch.served(self._state, consumer, tick)

    def pause(self, consumer: Consumer) -> None:
        """The consumer's sink takes no messages for now."""
        consumer.paused = True

    def resume(self, consumer: Consumer) -> None:
        """The consumer's sink can take messages again."""
        consumer.paused = False
        if not consumer.closed:
            self._state.dirty[consumer.queue] = None

    def take(self, consumer: Consumer, messages: list[Message]) -> list[Message]:
        """Make messages that are ready on its queue the consumer's deliveries, as they were before a restart.

        Returns those that were ready; the sink is not told.
        """
        return dispatch.take(self._state, consumer, messages)

    # -- settling --------------------------------------------------------------------------------------------------

    def acknowledge(self, consumer: Consumer, id: int, tx: Transaction | None = None, *, kept: bool = False) -> None:
        """Settle a delivery as consumed; for a cumulative consumer, everything delivered before it as well.

        With `kept` the consumer has it again if the transaction is rolled back.  Raises UnknownDelivery,
        TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.acknowledge(consumer, messages, kept=kept)
        else:
            self._state.acknowledged.setdefault(consumer, []).extend(messages)

    def acknowledge_run(self, consumer: Consumer, ids: list[int]) -> None:
        """Settle deliveries as consumed, one after the other.  Raises UnknownDelivery."""
        messages = consumer.settle_next(ids)
        if messages is None:  # not the oldest ones in their order: several at once, or nonsense
            for id in ids:
                self.acknowledge(consumer, id)
        else:
            self._state.acknowledged.setdefault(consumer, []).extend(messages)

    def acknowledge_all(self, consumer: Consumer) -> None:
        """Settle everything that was handed to the consumer's sink as consumed."""
        messages = consumer.settle_delivered()
        if messages:
            self._state.acknowledged.setdefault(consumer, []).extend(messages)

    def reject(
        self,
        consumer: Consumer,
        id: int,
        *,
        text: str = "",
        tx: Transaction | None = None,
        reason: DeadLetterReason = DeadLetterReason.REJECTED,
    ) -> None:
        """Refuse a delivery (and, for a cumulative consumer, all before it) for good: it is a dead letter.

        One that cannot be (its queue is on its own dead-letter address) stays, and this consumer does not get it again.

        Raises UnknownDelivery, TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.settlements.append(Settlement(consumer, messages, DeliveryOutcome(-1, True, text), dead=reason))
        else:
            redelivery.reject(self._state, consumer.queue, messages, text, consumer, reason)

    def undeliverable(
        self, consumer: Consumer, message: Message, why: str, reason: DeadLetterReason = DeadLetterReason.DECODE_ERROR
    ) -> None:
        """A delivery to this consumer, which holds the message, cannot be made, nor could it ever: a dead letter."""
        self._state.mark = NO_WAY_BACK
        messages = consumer.settle([message.id])
        redelivery.reject(self._state, consumer.queue, messages, why, consumer, reason)

    def postpone(self, consumer: Consumer, message: Message, why: str) -> None:
        """A delivery to this consumer, which holds the message, cannot be made for now: it comes again a little later,
        and nothing has failed.
        """
        self._state.report("body.unreadable", remote=consumer.remote, error=why)
        self.keep(consumer, message, RETRY_MS)

    def keep(self, consumer: Consumer, message: Message, ms: int) -> None:
        """A delivery to this consumer, which holds the message, comes to nothing and is no failure: it is made again
        after so many ms.
        """
        self._state.mark = NO_WAY_BACK
        redelivery.postpone(self._state, consumer.queue, consumer.settle([message.id]), ms)

    def give_back(self, consumer: Consumer, id: int, how: DeliveryOutcome, tx: Transaction | None = None) -> None:
        """Return a delivery (and, for a cumulative consumer, all before it) to its queue.

        Raises UnknownDelivery, TransactionClosed.
        """
        messages = self._taken_back(consumer, id, tx)
        if tx is not None:
            tx.settlements.append(Settlement(consumer, messages, how))
        else:
            redelivery.give_back(self._state, consumer.queue, messages, how, consumer)

    def withdraw(self, consumer: Consumer, messages: Iterable[Message]) -> None:
        """Deliveries that never left for the consumer go back to its queue: nothing has happened to them."""
        ids = [message.id for message in messages if message.id in consumer.unacked]
        if ids:
            self._state.dirty[consumer.queue] = None
            redelivery.withdraw(self._state, consumer.queue, consumer.take_back(ids))

    def kept_for(self, consumer: Consumer) -> int:
        """How many messages were kept for the consumer's link, and go to this consumer."""
        reservation = consumer.reservation
        return 0 if reservation is None or reservation.whole is not consumer else len(reservation.stand_in.unacked)

    def exclude(self, consumer: Consumer, id: int) -> None:
        """The consumer, which holds this delivery, must not get the message again."""
        redelivery.exclude(consumer, id)

    def _taken_back(self, consumer: Consumer, id: int, tx: Transaction | None) -> list[Message]:
        if id not in consumer.unacked:
            raise UnknownDelivery(f"message {id} is not waiting for an acknowledgement by this subscription")
        if tx is not None:
            tx.check_open()
        self._state.mark = NO_WAY_BACK
        self._state.dirty[consumer.queue] = None
        return consumer.settle(consumer.up_to(id))

    # -- closing ---------------------------------------------------------------------------------------------------

    def close(self, consumer: Consumer, how: DeliveryOutcome) -> None:
        """Detach a consumer; what it had not acknowledged goes back.  A temporary queue goes with its last consumer."""
        closing.close(self._state, consumer, how)

    def dismiss(self, consumer: Consumer, reason: str) -> None:
        """An operator closes a consumer; what it had goes back, and does not count as failed.

        A link's is kept for it; what is kept is given to others when its stand-in is closed.
        """
        reservation = consumer.reservation
        if reservation is not None and reservation.stand_in is consumer:
            reservation.release("an operator has closed it")
            return
        closing.end(self._state, consumer, redelivery.INTERRUPTED, reason)

    def recheck(self, consumer: Consumer, access: Access) -> bool:
        """Whether a consumer may go on with what its peer may do now; if not it is closed, and its sink told."""
        return revocation.recheck(self._state, consumer, access)

    def abandon(self, transport: object) -> None:
        """A connection was lost by a fault of its session's: no consumer of it may stay behind.

        Looks at all consumers.
        """
        for queue in list(self._state.queues.values()):
            for consumer in list(queue.consumers):
                if consumer.sink.transport is transport:
                    self.close(consumer, redelivery.LOST)
