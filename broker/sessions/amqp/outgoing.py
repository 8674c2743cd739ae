"""A link on which the broker sends: a consumer, or a browser.

The receiver's credit becomes the consumer's: `grant` passes on what the link and its session's window allow, less the
messages that still wait here.  The peer's outcomes of deliveries are applied by `outcomes`; a delivery settled without
one gets the source's default outcome, or released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from broker.engine import Consumer, DeliveryOutcome, LongWork, SubscribeRequest, Unreadable, redelivery
from broker.engine.model.errors import EngineError, TransactionClosed, TransactionsFull, UnknownDelivery
from broker.engine.model.message import Message, size_of
from broker.sessions.amqp import outcomes
from broker.sessions.amqp.large import LargeOut, begin_large
from broker.sessions.amqp.link_encoder import LinkEncoder, Stamp
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.message import LOOKED_AT, Encoder, past_of
from broker.sessions.amqp.outcomes import OUTCOMES
from broker.sessions.amqp.outgoing_links import Closing
from broker.sessions.amqp.terms import refused
from broker.sessions.convert import ConversionError
from broker.sessions.unsendable import report_render_fault
from protocols.amqp.errors import RESOURCE_DELETED, TRANSACTION_ROLLBACK, UNAUTHORIZED_ACCESS
from protocols.amqp.events import Dispositions
from protocols.amqp.performatives import SENDER, Accepted, Error, Released, TransactionalState
from protocols.amqp.sender import Sender
from protocols.amqp.serial import following


class OutgoingLink:
    """A consumer's link: the sink of its deliveries.  With a `stamp` the receiver is another broker's link."""

    def __init__(
        self, owner: LinkOwner, link: Sender, *, settled: bool, default: object, stamp: Stamp | None = None
    ) -> None:
        self.link = link
        self.consumer: Consumer | None = None  # until the engine has attached it
        replies = owner.options.of_replies
        self.encoder = Encoder(replies) if stamp is None else LinkEncoder(replies, stamp)
        self._once = stamp is not None and bool(stamp.broker_id)  # the receiver detects messages that are sent twice
        self.large: LargeOut | None = None
        self._owner = owner
        self._settled = settled
        self._default = default if isinstance(default, OUTCOMES) else Released()
        self._pending: deque[Message] = deque()  # delivered by the engine, but without room to send them
        self._unflushed = False

    @property
    def transport(self) -> object:
        return self._owner.transport

    def subscribe(self, request: SubscribeRequest) -> None:
        """Attach the consumer.  Raises what `Consumers.subscribe` does."""
        self.consumer = self._owner.engine.consumers.subscribe(self, request)
        if isinstance(self.encoder, LinkEncoder):
            self.encoder.read(self.consumer.queue.id)

    @property
    def reserves(self) -> bool:
        """Whether its messages stay reserved for the link if the connection is lost."""
        return self.attached.reservation is not None

    def send_available(self) -> None:
        """Send the number of messages reserved for the link, as it may have granted no credit for them."""
        available = self._reserved()
        if available != self.link.available:
            self.link.available = available
            self.link.session.send_flow(self.link)
            self._owner.touch()

    def _reserved(self) -> int:
        return self._owner.engine.consumers.kept_for(self.attached)

    @property
    def attached(self) -> Consumer:
        """The engine's consumer."""
        assert self.consumer is not None
        return self.consumer

    # -- credit ----------------------------------------------------------------------------------------------------

    def more_room(self) -> None:
        """Send waiting messages, and grant the engine the credit that is left."""
        self._pump()
        consumer = self.attached
        if not consumer.closed:
            room = self.link.room - len(self._pending) - consumer.held
            self._owner.engine.consumers.grant(consumer, max(room, 0))

    def finish_drain(self, tick: int) -> bool:
        """Answer a drain if nothing more is to be sent.  Returns whether that is done."""
        consumer = self.attached
        if self._pending or self.large is not None:
            return False
        if not consumer.closed and (not self._owner.engine.consumers.served(consumer, tick) or self._awaits_window()):
            return False
        if self.link.drain:
            self.link.send_drained()
            self._owner.engine.consumers.grant(consumer, 0)
        return True

    def _awaits_window(self) -> bool:
        """Whether there are messages and credit, and only the session's window or the socket has no room."""
        if not self.link.credit or (self.link.room and not self._owner.window.paused) or self.link.resumes_only:
            return False
        queue = self.attached.queue
        ready = self._owner.engine.consumers.ready_for(queue, [self.attached])
        return not queue.stopped and (ready > 0 or queue.paged > 0)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Return False: deliveries have no journal record of their own."""
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        self._owner.outgoing.sent(self._owner, self, size_of(messages))
        if self._settled:
            self._unflushed = True
        if self.link.available:
            self.link.available = self._reserved()
        if self._pending or len(messages) > self.link.room:
            self._pending.extend(messages)
            self._pump()
        else:
            self._send(messages)

    def _pump(self) -> None:
        pending = self._pending
        while pending and self.link.room:
            if isinstance(pending[0].body, bytes):
                self._send([pending.popleft() for _ in range(min(self.link.room, len(pending)))])
            else:
                self._begin_large(pending.popleft())

    def _begin_large(self, message: Message) -> None:
        """Begin to send a message whose body is in a file; those after it wait until it is sent."""
        consumer, owner = self.attached, self._owner
        past, now = past_of(consumer.queue), owner.engine.now
        begun = begin_large(self.link, message, past, now, self.encoder, settled=self._settled)
        if isinstance(begun, ConversionError):
            owner.unsendable.add(consumer, message, begun)
        else:
            self.large = begun
            owner.outgoing.pulling[self] = None

    def large_out(self, message: Message, error: Unreadable | None) -> None:
        consumer = self.attached
        if error is not None and error.passing and message.id in consumer.unacked:
            self._owner.engine.consumers.postpone(consumer, message, str(error))
        elif error is not None and message.id in consumer.unacked:
            self._owner.report("body.unreadable", error=str(error))
            self._owner.engine.consumers.give_back(consumer, message.id, redelivery.rejected(str(error)))
        self._owner.outgoing.sent(self._owner, self, 0)
        self.more_room()

    def _send(self, messages: list[Message]) -> None:
        consumer = self.attached
        payloads, refused, processed = self.encoder.encode(
            messages, past_of(consumer.queue), self._owner.engine.now, self.link.message_bytes_max
        )
        if processed < len(messages):  # the next one is large
            self._pending.extendleft(reversed(messages[processed:]))
            messages = messages[:processed]
        if refused:
            for message, why in refused:
                self._owner.unsendable.add(consumer, message, why)
            out = {message.id for message, _ in refused}
            messages = [message for message in messages if message.id not in out]
        if payloads:
            self.link.send(payloads, [message.id for message in messages], settled=self._settled)
        if self._pending and self.link.room and not isinstance(self._pending[0].body, bytes):
            self._pump()

    def give_way(self, other: OutgoingLink) -> None:
        """End this link if another connection of its user and container attaches the same (part 2, 2.6.1)."""
        mine, its = self._owner, other._owner
        alike = self.link.name == other.link.name and mine.access.user == its.access.user
        if alike and mine is not its and not mine.lost and mine.container and mine.container == its.container:
            mine.steal(self.link)

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        self._pending.clear()
        self.large = None
        self._owner.detach(self.link, Error(UNAUTHORIZED_ACCESS if consumer.revoked else RESOURCE_DELETED, reason))

    # -- outcomes --------------------------------------------------------------------------------------------------

    def settle(self, event: Dispositions) -> None:
        """Apply the receiver's outcome of deliveries.  Raises AmqpError."""
        consumer, state = self.attached, event.state
        if consumer.closed:
            return
        ids = [id for id in event.contexts if isinstance(id, int)]
        if isinstance(state, TransactionalState):
            self._enlist(event, state, ids)
            return
        if not isinstance(state, OUTCOMES):
            state = self._default  # it settles them without one
        if isinstance(state, Accepted):
            try:
                self._owner.engine.consumers.acknowledge_run(consumer, ids)
            except UnknownDelivery:  # some are in a transaction: acknowledge the others
                if event.settled:
                    self._let_go(ids)
                outcomes.apply(self._owner.engine, consumer, state, ids)
        else:
            if event.settled:
                self._let_go(ids)
            outcomes.apply(self._owner.engine, consumer, state, ids)
        if event.settled:
            self.more_room()
        else:
            self._owner.answer(self.link.session, SENDER, following(event.first, len(event.contexts)), state)

    def _enlist(self, event: Dispositions, state: TransactionalState, ids: list[int]) -> None:
        """Add outcomes to a transaction, which apply when it commits."""
        engine, consumer, tx = self._owner.engine, self.attached, self._owner.transaction(state.txn_id)
        outcome = state.outcome if isinstance(state.outcome, OUTCOMES) else self._default
        taken = {id for id in ids if id not in consumer.unacked}
        if taken and any([each is not tx.transaction for each, _ in engine.transactions.settling(consumer, taken)]):
            text = "An outcome is part of one transaction: that of this delivery is part of another one."
            self._owner.detach(tx.coordinator, Error(TRANSACTION_ROLLBACK, text))  # part 4, 4.4.2
            return
        if event.settled:
            self._let_go(taken)
        try:
            outcomes.apply(engine, consumer, outcome, ids, tx.transaction, kept=not event.settled)
        except (TransactionClosed, TransactionsFull) as refusal:  # it has timed out or is full: its discharge will fail
            tx.refuse(refusal)
            if event.settled:
                for id in ids:
                    if id in consumer.unacked:
                        engine.consumers.give_back(consumer, id, redelivery.ROLLBACK)
                self.more_room()
            return
        if not event.settled:
            tx.unsettled.append((self.link.session, following(event.first, len(event.contexts)), outcome))

    def _let_go(self, ids: Iterable[int]) -> None:
        """Note that the receiver has settled deliveries whose outcome waits for a discharge: it has forgotten them."""
        consumer = self.attached
        taken = {id for id in ids if id not in consumer.unacked}
        if taken:
            self._owner.engine.transactions.let_go(consumer, taken)

    # -- the connection --------------------------------------------------------------------------------------------

    def flushed(self) -> None:
        """Consume deliveries that were sent settled."""
        if self._unflushed and not (self.attached.closed or self._pending or self.large is not None):
            self._unflushed = False
            self._owner.engine.consumers.acknowledge_all(self.attached)

    def pause(self, paused: bool) -> None:
        consumers = self._owner.engine.consumers
        if paused:
            consumers.pause(self.attached)
        else:
            consumers.resume(self.attached)

    def end(self, how: DeliveryOutcome) -> Closing:
        pending, self._pending = self._pending, deque()
        self.large = None
        if self.consumer is None:
            return ()
        self._owner.engine.consumers.withdraw(self.consumer, pending)
        return ((self.consumer, redelivery.CLOSED if self._once else how),)


#: How many messages a browser is sent at a time: a long queue must not be loaded into memory.
BROWSED_MAX: Final = 1_000


class BrowsingLink:
    """A browser: sends copies of the messages that are on the queue at its first credit, in order of delivery."""

    def __init__(self, owner: LinkOwner, link: Sender, messages: Iterator[Message | None]) -> None:
        self.link = link
        self._owner = owner
        self._messages = messages
        self._next: deque[Message] = deque()  # read already
        self._begun = self._busy = False
        self._done = False  # all are read
        self.large: LargeOut | None = None
        self._encoder = Encoder(owner.options.of_replies)
        self._paused = False

    def more_room(self) -> None:
        self._begun = True
        if not self._busy:
            self._busy = True
            self._owner.engine.ticks.begin_work(self, self._show(), self._owner.transport)

    def _show(self) -> LongWork:
        """Send as many as there is room for, in this tick and in later ones."""
        try:
            while not self._paused and not self._ended and (self.link.room or not self._next):
                most = min(self.link.room, BROWSED_MAX)
                while len(self._next) <= most and (message := next(self._messages, self)) is not None:
                    if message is self:
                        self._done = True
                        break
                    assert isinstance(message, Message)
                    self._next.append(message)
                if most and self._next:
                    self._send(most)
                    self._owner.touch()
                yield 0  # it has spent what it costs
        except EngineError as refusal:  # the disk: the browser must not take a part for the whole queue
            self._end()
            self._owner.detach(self.link, refused(refusal))
        finally:
            self._busy = False

    @property
    def _ended(self) -> bool:
        return self._done and not self._next

    def _end(self) -> None:
        self._messages, self._done = iter(()), True
        self._next.clear()

    def _send(self, most: int) -> None:
        """Send some of the next messages."""
        if not isinstance(self._next[0].body, bytes):
            self._begin_large(self._next.popleft())
            return
        engine = self._owner.engine
        batch = list(islice(self._next, most))
        payloads, refused, processed = self._encoder.encode(batch, LOOKED_AT, engine.now, self.link.message_bytes_max)
        for message, why in refused:
            report_render_fault(engine, message, why)
        for _ in range(processed):
            self._next.popleft()
        if payloads:
            self._owner.outgoing.sent(self._owner, self, size_of(batch[:processed]))
            self.link.send(payloads, [None] * len(payloads), settled=True)

    def finish_drain(self, tick: int) -> bool:
        if not self._ended or self._paused or self.large is not None:
            return False
        if self.link.drain:
            self.link.send_drained()
        return True

    def _begin_large(self, message: Message) -> None:
        """Begin to send a message whose body is in a file; an unsendable one is left out, like small ones."""
        engine, outgoing = self._owner.engine, self._owner.outgoing
        begun = begin_large(self.link, message, LOOKED_AT, engine.now, self._encoder, settled=True)
        if isinstance(begun, ConversionError):
            report_render_fault(engine, message, begun)
        else:
            self.large = begun
            outgoing.pulling[self] = None
            outgoing.sent(self._owner, self, message.size)

    def large_out(self, message: Message, error: Unreadable | None) -> None:
        self.more_room()

    def settle(self, event: Dispositions) -> None:
        """Do nothing: outcomes of copies have no effect."""

    def flushed(self) -> None:
        """Do nothing: `pause` is enough."""

    def pause(self, paused: bool) -> None:
        self._paused = paused
        if not paused and self._begun:
            self.more_room()

    def end(self, how: DeliveryOutcome) -> Closing:
        self._end()
        self.large = None
        return ()
