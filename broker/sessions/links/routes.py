"""The routes of an AMQP link while it is connected: from a local queue to a remote address, and the other way round.

A sending route is a local consumer (`OutgoingLink`), which settles messages as the other broker answers:

    accepted                   the message leaves: forwarded, or consumed if the other broker is not a Bartleby
    rejected                   a dead letter, with the other broker's reason; none if its disk is full: the route waits
    released, modified         back to the head of the queue, as a failed delivery; the route waits a while
    too large, or unsendable   the same, without asking the other broker
    no answer                  returned unchanged: the connection was lost, which no message has caused
    an error instead           all are returned and sent one by one: the one in flight at the next error is the cause

If dead letters are disabled (use-dead-letter = false), or a durable message would have no dead-letter queue, no
delivery counts as failed: the route waits, and tries one message until that is accepted.  Too many hops do not concern
the other broker: such a message becomes a dead letter whatever use-dead-letter says, and waits only if there is no
dead-letter queue.

A receiving route is a local producer (`IncomingLink`).  It rejects what this broker refuses, except on a full disk:
then it gives back what arrives, and waits in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.engine import Consumer, DeliveryOutcome, Queue, redelivery
from broker.engine.model.errors import DiskFull, EngineError
from broker.engine.model.message import Message
from broker.sessions.amqp.incoming import IncomingLink, Peer, Place, Run, SendTarget
from broker.sessions.amqp.link_encoder import Stamp
from broker.sessions.amqp.link_id import RESERVE_NAME, RESERVE_PART
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.message import BrokerAnnotations
from broker.sessions.amqp.outgoing import OutgoingLink
from broker.sessions.amqp.outgoing_links import Closing
from broker.sessions.amqp.refusals import Refusals, Sent
from broker.sessions.amqp.terms import DISK_FULL, death
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.convert import ConversionError, TooManyHops
from broker.sessions.links.attach import attach_receiver
from broker.sessions.links.model import State, is_due
from broker.sessions.links.route_status import RouteStatus
from broker.sessions.unsendable import Unsendable
from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Dispositions, Portion, Transfers
from protocols.amqp.performatives import RECEIVER, SENDER, Accepted, Error, Modified, Rejected, Released
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import following
from protocols.amqp.session import Session

#: The outcome of messages that return without a refusal: they may have been sent, and nothing has failed.
_BACK: Final = DeliveryOutcome(0, False, "the link was interrupted", left=True)

#: Selectors that a route fetches for at a time, each with an AMQP link.  More are a sign of a selector per request.
PARTS_MAX: Final = 64

#: How long a receiver outlives the last consumer with its selector, in ms: messages in flight arrive, and a consumer
#: that returns finds it.
LINGER_MS: Final = 5_000

#: Assumed size of messages, in bytes, before one has arrived; for consumers whose window is in bytes.
_MESSAGE_BYTES: Final = 16 << 10


def words(error: Error | None) -> str:
    """Return the text of an error from the other broker."""
    return "no reason given" if error is None else str(error)


class SendingRoute(OutgoingLink):
    """A route that reads a local queue."""

    def __init__(self, owner: LinkOwner, link: Sender, status: RouteStatus, stamp: Stamp) -> None:
        super().__init__(owner, link, settled=False, default=Released(), stamp=stamp)
        self.route = status.route
        self._status = status
        self._full = False  # the output window is closed
        self.probing = False  # sends one message at a time until one is accepted
        self._fast: list[int] = []  # sent settled in this tick: consumed once they are flushed

    # -- going out -------------------------------------------------------------------------------------------------

    def more_room(self) -> None:
        self._pump()
        consumer = self.attached
        if not consumer.closed:
            room = self.link.room - len(self._pending) - consumer.held
            window = 1 if self.probing or self.route.suspects else self.route.link.settings.window
            self._owner.engine.consumers.grant(consumer, max(min(room, window - len(consumer.unacked)), 0))
        self.route.unsettled = len(consumer.unacked)

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        super().deliver(consumer, messages)
        self.route.unsettled = len(consumer.unacked)

    def _send(self, messages: list[Message]) -> None:
        most = self.route.link.settings.max_hops
        circling = {message: hops for message in messages if (hops := message.hops) >= most}
        if circling:
            for message, hops in circling.items():
                self._owner.unsendable.add(self.attached, message, TooManyHops(hops, most))
            messages = [message for message in messages if message not in circling]
            if not messages:
                return
        if not self.route.settings.fast or all(message.header.durable for message in messages):
            super()._send(messages)
            return
        run: list[Message] = []
        for message in messages:
            if run and run[0].header.durable is not message.header.durable:
                self._send_alike(run)
                run = []
            run.append(message)
        self._send_alike(run)

    def _send_alike(self, messages: list[Message]) -> None:
        """Send messages that are all durable, or all non-durable and sent settled."""
        fast = self._settled = not messages[0].header.durable
        super()._send(messages)
        self._settled = False
        if fast:
            waiting = {message.id for message in self._pending}
            self._fast += [each.id for each in messages if isinstance(each.body, bytes) and each.id not in waiting]

    def _begin_large(self, message: Message) -> None:
        self._settled = False  # sending takes a while: not settled before the answer
        super()._begin_large(message)

    def flushed(self) -> None:
        consumer, fast = self.attached, self._fast
        self._fast = []
        gone = [id for id in fast if id in consumer.unacked]
        if gone and not consumer.closed:
            self._owner.engine.consumers.acknowledge_run(consumer, gone)
            self._passed(len(gone))
            self.more_room()

    # -- the other broker's answers --------------------------------------------------------------------------------

    def settle(self, event: Dispositions) -> None:
        consumer, state = self.attached, event.state
        if consumer.closed:
            return
        if not isinstance(state, Accepted | Rejected | Released | Modified):
            state = self._default  # it settles them without one
        ids = [id for id in event.contexts if isinstance(id, int) and id in consumer.unacked]
        if isinstance(state, Accepted):
            self._owner.engine.consumers.acknowledge_run(consumer, ids)
            self._passed(len(ids))
        elif ids:
            self._refused(ids, state)
        if not event.settled:
            self._owner.answer(self.link.session, SENDER, following(event.first, len(event.contexts)), state)
        self.more_room()

    def _passed(self, count: int) -> None:
        if count:
            self.probing = False
            self.route.passed += count
            self._answered(count)

    def _answered(self, count: int) -> None:
        self.route.suspects = max(self.route.suspects - count, 0)

    def _refused(self, ids: list[int], state: Rejected | Released | Modified) -> None:
        engine, consumer, route = self._owner.engine, self.attached, self.route
        said = words(state.error) if isinstance(state, Rejected) else "not accepted, but given back"
        text = f"{self._status.where}: {said}"
        route.refused += len(ids)
        self._answered(len(ids))
        full = isinstance(state, Rejected) and state.error is not None and DISK_FULL in (state.error.info or {})
        for id in ids:
            if full or not self._status.may_die(consumer.unacked[id]):
                engine.consumers.give_back(consumer, id, _BACK)
                self.wait(text)
            elif isinstance(state, Rejected):
                engine.consumers.reject(consumer, id, text=text, reason=death(state.error))
            else:
                engine.consumers.give_back(consumer, id, redelivery.rejected(text))
                self.wait(text)

    def give_up(self, message: Message, why: ConversionError) -> None:
        """Make a dead letter of a message that cannot be sent, if permitted; else wait with it."""
        consumers, status = self._owner.engine.consumers, self._status
        if isinstance(why, TooManyHops):
            text, dies = str(why), status.loses_nothing(message)
        else:
            text, dies = f"{status.where}: {why}", status.may_die(message)
            self.route.refused += 1
        if dies:
            consumers.undeliverable(self.attached, message, text, why.reason)
        else:
            consumers.withdraw(self.attached, [message])
            self.wait(text)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, text: str) -> None:
        """Wait, as the other broker accepts nothing now; messages in flight are still settled."""
        if self.route.state is State.RUNNING:
            self._status.retry_later(text)
            self._apply_pause()

    def go_on(self, *, again: bool) -> None:
        """Forward messages; `again`: try one first."""
        self.probing = again
        self.pause(self._owner.window.paused)
        self.more_room()

    def stop(self) -> None:
        """Stop: an operator has paused the route."""
        self._apply_pause()

    def pause(self, paused: bool) -> None:
        self._full = paused
        self._apply_pause()

    def _apply_pause(self) -> None:
        super().pause(self._full or self.route.state is not State.RUNNING)

    def blame(self, text: str) -> bool:
        """Handle an error that ended the AMQP link or session: if a single message is in flight, it is the cause.

        Returns whether messages were in flight.
        """
        held = self._under_way()
        self.route.suspects = len(held)
        for id in held if len(held) == 1 else ():
            if self._status.may_die(self.attached.unacked[id]):
                self._owner.engine.consumers.give_back(self.attached, id, redelivery.rejected(text))
        return bool(held)

    def _under_way(self) -> set[int]:
        """Return the ids of messages that were sent and have no answer."""
        return set(self.attached.unacked) - {message.id for message in self._pending} if self.consumer else set()

    def end(self, how: DeliveryOutcome) -> Closing:
        """The AMQP link is gone.  Messages in flight are not at fault."""
        held = self._under_way()
        closing = super().end(_BACK)
        self.route.unsettled = 0
        if held:
            self._status.left_under_way(held)
        return closing


class UnsendableByRoutes(Unsendable):
    """The undeliverable messages of a connection's routes."""

    __slots__ = ()

    def give_up(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        route = consumer.sink
        assert isinstance(route, SendingRoute)
        route.give_up(message, why)


class ReceivingRoute(IncomingLink):
    """A route that fills a local address.

    With `only_with_consumers` it has a receiver for consumers without a selector, and one more for each selector of
    others (`parts`): messages that no local consumer wants stay at the other broker.
    """

    def __init__(
        self, owner: LinkOwner, link: Receiver, status: RouteStatus, place: Place, peer: Peer, selector: str = ""
    ) -> None:
        self.route = status.route
        self.selector = selector
        self.parts: dict[str, ReceivingRoute] = {}
        self.wanted_at = owner.engine.now  # when a consumer with the selector was last seen
        self._status = status
        self._parts_made = 0
        self.place = place
        self._message_bytes = _MESSAGE_BYTES
        self.probing = False  # asks for one message at a time until one is accepted
        settings = self.route.settings
        self.hops_max = self.route.link.settings.max_hops
        super().__init__(owner, link, SendTarget(settings.local, settings.routing_type, False), place, peer)
        self.refusals = _RouteRefusals(owner, link, self)

    def gone(self) -> None:
        super().gone()
        self.refusals = Refusals(self._owner, self.link, self.route.settings.local)  # the others refer to this route

    def add(self, event: Transfers) -> None:
        self._message_bytes = max(sum(map(len, event.payloads)) // len(event.payloads), 1)
        super().add(event)

    def make(
        self,
        target: SendTarget,
        section: bytes,
        broker_annotations: BrokerAnnotations | None,
        event: Transfers | Portion,
        tx: OpenTransaction | None,
    ) -> Run:
        if self.route.state is State.RETRYING:  # behind one that found no room: it must not overtake that
            raise DiskFull(self.route.error)
        return super().make(target, section, broker_annotations, event, tx)

    def wait(self, error: DiskFull) -> None:
        """Wait, as this broker has no room; messages in flight are given back."""
        if self.route.state is State.RUNNING:
            self._status.retry_later(f"this broker: {error}")
            self.stop()

    def go_on(self, *, again: bool) -> None:
        """Ask for messages; `again`: for one first."""
        for each in (self, *self.parts.values()):
            each.probing = again
            each.top_up()

    def top_up(self) -> None:
        if self.accepted:
            self.probing = False
        self.route.passed += self.accepted
        self.accepted = 0
        if self.route.state is not State.RUNNING:
            return
        if self.route.settings.only_with_consumers:
            self._fetch()
        elif not self.probing:
            super().top_up()
        elif not self._blocked and not self.link.credit:
            self.link.send_credit(1)

    def fetch_for_consumers(self) -> None:
        """Ask for the messages that local consumers wait for, with a receiver for each selector in use."""
        now, parts, queues = self._owner.engine.now, self.parts, self._owner.engine.queues_of(self.place.address)
        wanted = {each.selector for queue in queues for each in queue.consumers if not each.on_demand}
        for selector, part in list(parts.items()):
            if selector in wanted:
                part.wanted_at = now
            elif is_due(part.wanted_at + LINGER_MS, now, LINGER_MS):
                self._end_part(parts.pop(selector))
        for selector in sorted(wanted - {"", *parts})[: PARTS_MAX - len(parts)]:
            parts[selector] = self._begin_part(selector)
        for each in (self, *parts.values()):
            each.top_up()

    def _begin_part(self, selector: str) -> ReceivingRoute:
        """Attach a receiver for local consumers with this selector; a dead one if the other broker cannot take it."""
        self._parts_made += 1
        session, whole = self.link.session, self.link.local
        assert isinstance(session, Session)
        assert whole is not None, "it is attached"
        receiver = session.new_receiver(f"{whole.name}.{self._parts_made}")
        receiver.order = self.link.order
        properties = dict(whole.properties or {})
        if RESERVE_NAME in properties:
            properties[RESERVE_PART] = True
        part = ReceivingRoute(self._owner, receiver, self._status, self.place, self.peer, selector)
        self._owner.incoming.add(part)
        try:
            attach_receiver(receiver, self.route.settings, properties, selector)
        except AmqpError:
            self._owner.drop(receiver, closed=False)
        self._owner.touch()
        return part

    def _end_part(self, part: ReceivingRoute) -> None:
        """Detach a receiver whose selector no consumer has had for a while."""
        self._owner.drop(part.link, closed=False)
        part.link.send_detach()
        self._owner.touch()

    def _fetch(self) -> None:
        most = self._owner.options.credits
        queues = self._owner.engine.queues_of(self.place.address)
        lacking = max([self._lacking(queue, most) for queue in queues], default=0)
        if self.peer is Peer.BARTLEBY:  # it has reserved messages for this route, whether they are wanted here or not
            lacking = max(lacking, self.link.available)
        wanted = 0 if self._blocked else max(min(lacking, 1 if self.probing else most), 0)
        if wanted != self.link.credit and (not wanted or not self.link.credit or 2 * self.link.credit < wanted):
            self.link.send_credit(wanted)
            self._owner.touch()

    def _lacking(self, queue: Queue, most: int) -> int:
        """Return how many more messages the consumers of a queue can take than are there for them; at most `most` each.

        Links that fetch on demand do not count: brokers would fetch for each other, without any consumer.
        """
        takers = [
            each
            for each in queue.consumers
            if each.selector == self.selector and each.credit > 0 and not (each.paused or each.on_demand)
        ]
        if queue.stopped or not takers:
            return 0
        free = [each.credit if each.counted else max(each.credit // self._message_bytes, 1) for each in takers]
        return (
            sum([min(each, most) for each in free])
            - self._owner.engine.consumers.ready_for(queue, takers)
            - queue.landing
            - queue.fanned
        )

    def stop(self) -> None:
        """Ask for no more."""
        for each in (self, *self.parts.values()):
            each.link.send_credit(0)


class _RouteRefusals(Refusals):
    """The refusals of a receiving route."""

    def __init__(self, owner: LinkOwner, link: Receiver, route: ReceivingRoute) -> None:
        super().__init__(owner, link, route.route.settings.local)
        self._route = route

    def reject(
        self, ids: Sequence[int], error: EngineError | AmqpError, sent: Sent, tx: OpenTransaction | None
    ) -> None:
        if not isinstance(error, DiskFull) or sent.settled:
            super().reject(ids, error, sent, tx)
            return
        self._owner.answer(self._link.session, RECEIVER, ids, Released(), settled=not sent.second)
        self._route.wait(error)
