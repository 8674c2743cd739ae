"""A link on which the broker receives: for one address or, as the anonymous relay, for the address of each message.

JMS clients state with each message for the relay whether its address is a queue or a topic (AMQP JMS Mapping, 3.2.1).

Arriving messages are gathered in runs with the same header and address.  They are published when all frames of a read
are handled, or before anything that depends on them.  Accepted deliveries are settled once they are durable.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from broker.engine import Address, Engine, LargeBody, Producers, Queue, Send
from broker.engine.model.access import Access
from broker.engine.model.attributes import RequestedAttributes
from broker.engine.model.errors import EngineError, NotFound
from broker.engine.model.message import Body, Message, MessageHeader, RoutingType
from broker.engine.model.names import is_temporary
from broker.engine.model.query import split_query
from broker.sessions.amqp.incoming_links import UNKNOWN_MATCH_COST
from broker.sessions.amqp.link_id import TOO_MANY_HOPS, hops_of, take_link_id
from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.message import BrokerAnnotations, Unacceptable, make_header, take_apart
from broker.sessions.amqp.refusals import Refusals
from broker.sessions.amqp.transactions import OpenTransaction
from broker.sessions.convert import TooManyHops
from broker.sessions.reply_to import JMS_KINDS
from broker.sessions.upload import Uploading
from protocols.amqp.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    RESOURCE_DELETED,
    AmqpError,
    DecodeError,
    Truncated,
)
from protocols.amqp.events import Portion, Transfers
from protocols.amqp.message import DATA, encode_section
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import RECEIVER, Accepted, DeliveryState, Error, TransactionalState
from protocols.amqp.receiver import Receiver

_ACCEPTED = Accepted()

#: The annotation with the kind of a JMS client's destination: an index into JMS_KINDS.
_JMS_DESTINATION: Final = "x-opt-jms-dest"
_JMS_NOTED: Final = _JMS_DESTINATION.encode()

#: A placeholder for the body, to decode only the sections before it.
_NO_BODY: Final = encode_section(DATA, b"")


class Peer(Enum):
    """The kind of sender on a link, which decides which of its annotations are trusted (see `link_id`)."""

    CLIENT = "client"  # none
    BROKER = "broker"  # hops and earlier delivery attempts: another broker, which a link of this one consumes from
    BARTLEBY = "bartleby"  # the link id, too


class SendTarget(NamedTuple):
    """A destination of messages: an address with its prefix, and what the client states about it.

    An empty name: the anonymous relay, where each message states its own.
    """

    name: str
    asked: RoutingType | None
    temporary: bool  # a temporary node of another peer, which is never made for a message


class Place(NamedTuple):
    """The destination of a link, as its target named it; `queue`: if it was the full name of one."""

    address: Address
    queue: Queue | None
    routing_type: RoutingType | None

    def lost(self, engine: Engine) -> str:
        """Return what of it was deleted; empty if messages can still be sent.  A topic needs no queue for that."""
        address, queue = self.address, self.queue
        if engine.addresses.get(address.name) is not address:
            return f"address {address.name} was deleted"
        if queue is not None:
            return f"queue {queue.name} was deleted" if queue.deleted else ""
        wanted = address.routing_types if self.routing_type is None else {self.routing_type}
        if RoutingType.MULTICAST in wanted or any(each.routing_type in wanted for each in engine.queues_of(address)):
            return ""
        return f"the queue of address {address.name} was deleted"


class Run(Send):
    """Consecutive messages for one target with the same header; `ids` are their delivery ids."""

    __slots__ = ("alone", "ids", "second", "section", "settled", "target", "tx")

    def __init__(
        self,
        target: SendTarget,
        name: str,
        routing_type: RoutingType | None,
        header: MessageHeader,
        *,
        access: Access,
        asked: RequestedAttributes,
    ) -> None:
        super().__init__(name, routing_type, header, access=access, asked=asked)
        self.target = target
        self.section = b""
        self.alone = False  # its header depends on more than that section: no message joins it
        self.settled = False
        self.second = False  # the broker states the outcome, then the producer settles (2.6.12)
        self.tx: OpenTransaction | None = None
        self.ids: list[int] = []


class IncomingLink:
    """A producer's link.  `target` is what its ATTACH names, `place` what that refers to; the relay has neither.

    `peer` says whether the producer is another broker's link; `hops_max` is how many brokers a message may have passed.
    """

    hops_max = 0  # any number: the sending broker checks

    def __init__(
        self, owner: LinkOwner, link: Receiver, target: SendTarget, place: Place | None, peer: Peer = Peer.CLIENT
    ) -> None:
        self.link = link
        self.peer = peer
        self._owner = owner
        self._target = target
        self._place = place
        self._runs: list[Run] = []
        self.refusals = Refusals(owner, link, target.name)
        self.accepted = 0  # messages accepted since a route last counted them
        # No first credit while the address is full, or (the anonymous relay) the disk.
        self._blocked = owner.engine.producers.wait_for_room(None if place is None else place.address, self)
        if place is not None:
            owner.engine.producers.attach(place.address, self)
        self.uploading = Uploading(owner.engine, owner.reading)
        self._large: _Large | None = None  # whose body is arriving
        self._posting: OpenTransaction | None = None  # of a message of which not all frames have arrived

    @property
    def match_cost(self) -> int:
        if self._place is None:
            return UNKNOWN_MATCH_COST
        return self._owner.engine.producers.match_cost(self._place.address.name)

    # -- gathering -------------------------------------------------------------------------------------------------

    def add(self, event: Transfers) -> None:
        """Gather messages.  Raises AmqpError for an unknown transaction, or a refusal that the relay cannot report."""
        tx = None
        if isinstance(event.state, TransactionalState):
            self._posted()
            tx = self._owner.transaction(event.state.txn_id)
        run = self._last_run(event, tx)
        ids, begun = event.ids, 0  # `begun`: the first message of this event in the run
        target, relay, linked = self._target, not self._target.name, self.peer is not Peer.CLIENT
        link_id, bartleby = None, self.peer is Peer.BARTLEBY
        if relay:
            self.refusals.note_tags(ids, event.tags)
        for at, payload in enumerate(event.payloads):
            try:
                known = b"" if run is None else run.section
                section, head, body, broker_annotations = take_apart(payload, known, linked=linked)
                if linked:
                    link_id, head = take_link_id(head)
                    self.check_hops(head)
                if relay:
                    target = self.target(payload)
                if (
                    run is None
                    or section != run.section
                    or broker_annotations is not None
                    or (relay and target != run.target)
                ):
                    if run is not None:
                        run.ids += ids[begun:at]
                    run, begun = None, at
                    run = self.make(target, section, broker_annotations, event, tx)
                    self._runs.append(run)
            except (DecodeError, EngineError) as error:
                if run is not None:
                    run.ids += ids[begun:at]
                run, begun = None, at + 1
                self.refusals.refuse(error, event, ids[at], event.tags[at], tx)
                continue
            message = Message(run.header, head, body)
            run.messages.append(message)
            if link_id is not None and bartleby:
                if run.link_ids is None:
                    run.link_ids = {}
                run.link_ids[message] = link_id
            if broker_annotations is not None:
                run.ids.append(ids[at])
                run, begun = None, at + 1
        if run is not None:
            run.ids += ids[begun:]

    def post(self, state: TransactionalState) -> None:
        self._posting = self._owner.transaction(state.txn_id)
        self._posting.postings.add(self)

    def _posted(self) -> None:
        """Note that a message in a transaction has arrived, or was aborted."""
        if self._posting is not None:
            self._posting.postings.discard(self)
            self._posting = None

    def add_portion(self, event: Portion) -> None:
        """Process a part of a large message; publish it once complete.  Raises AmqpError as `add` does."""
        if event.last:
            self._posted()
        if not event.first:
            if self.uploading.coming:
                self.uploading.write(event.payload, last=event.last)
            elif event.last:
                self._owner.go_on()
            return
        tx = None
        if isinstance(event.state, TransactionalState):
            tx = self._owner.transaction(event.state.txn_id)
        try:
            large = _Large(self, self._owner.engine.producers, event, tx)
            self.uploading.begin(self._uploaded, self._owner.go_on, durable=large.durable)
        except (DecodeError, EngineError) as error:
            self.refusals.refuse(error, event, event.id, event.tag, tx)
            if event.last:
                self._owner.go_on()
            return
        self._large = large
        self.uploading.write(large.body, last=event.last)

    def _uploaded(self, body: LargeBody | EngineError) -> None:
        large, self._large = self._large, None
        assert large is not None, "it began it"
        try:
            if isinstance(body, EngineError):
                raise body
            large.publish(body)
        except (EngineError, DecodeError) as refusal:
            large.refuse(refusal)

    def _last_run(self, event: Transfers, tx: OpenTransaction | None) -> Run | None:
        """Return the run that messages may join."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.alone or run.tx is not tx:
            return None
        return run if (run.settled, run.second) == (event.settled, event.second) else None

    def make(
        self,
        target: SendTarget,
        section: bytes,
        broker_annotations: BrokerAnnotations | None,
        event: Transfers | Portion,
        tx: OpenTransaction | None,
    ) -> Run:
        """Return a new run, without messages.  Raises DecodeError, EngineError."""
        owner = self._owner
        plain, stated = owner.options.split(target.name)
        plain, query = split_query(plain)
        noted = None if broker_annotations is None else broker_annotations.routing_type
        asked = next((t for t in (stated, target.asked, noted, query.routing_type) if t is not None), None)
        check_temporary(owner.engine, plain, stated=target.temporary)
        now, user, origin = owner.engine.now, owner.access.user, owner.origin
        linked = self.peer is not Peer.CLIENT
        header = make_header(
            section, broker_annotations, owner.format, asked, now=now, user=user, origin=origin, linked=linked
        )
        run = Run(target, plain, asked, header, access=owner.access, asked=query.asked)
        run.section, run.tx, run.alone = section, tx, broker_annotations is not None
        run.settled, run.second = event.settled, event.second
        return run

    def check_hops(self, head: bytes) -> None:
        """Check that a message has not passed too many brokers.  Raises DecodeError."""
        if self.hops_max and (hops := len(hops_of(head))) > self.hops_max:
            raise Unacceptable(TOO_MANY_HOPS, str(TooManyHops(hops, self.hops_max)))

    def publish_large(self, run: Run, message: Message, link_id: bytes | None, event: Portion) -> None:
        """Publish a run of one message, whose body is in a file."""
        run.alone = True
        run.messages.append(message)
        if link_id is not None and self.peer is Peer.BARTLEBY:
            run.link_ids = {message: link_id}
        run.ids.append(event.id)
        self.refusals.note_tags([event.id], [event.tag])
        self._runs.append(run)
        self.publish()

    def fail(self, error: AmqpError) -> None:
        """End the link with an error."""
        self._owner.lose(self.link, error)

    def target(self, payload: bytes) -> SendTarget:
        """Return the destination of a message.  Raises DecodeError."""
        if self._target.name:
            return self._target
        encoded = Encoded(payload)
        to = encoded.properties.to
        if not to:
            raise Unacceptable(INVALID_FIELD, "A message to the anonymous relay needs properties.to.")
        asked, temporary = self._target.asked, False
        if asked is None and payload.find(_JMS_NOTED, 0, encoded.body_at) >= 0:
            kind = encoded.message_annotations.get(_JMS_DESTINATION)
            if isinstance(kind, int) and 0 <= kind < len(JMS_KINDS):
                asked, temporary = JMS_KINDS[kind]
        return SendTarget(to, asked, temporary)

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish the gathered messages; a refusal does not stop those after it, unless the link ends."""
        runs, self._runs = self._runs, []
        try:
            for run in runs:
                tx, run.tx = run.tx, None  # which refers to its runs
                if tx is None:
                    self._publish(run)
                else:
                    self._publish_in(tx, run)
        except AmqpError as unheard:
            self.fail(unheard)
        self.refusals.forget()
        self.top_up()

    def _publish_in(self, tx: OpenTransaction, run: Run) -> None:
        """Add the messages of a run to its transaction.  Raises AmqpError as `Refusals.reject` does."""
        producers = self._owner.engine.producers
        try:
            producers.find(run)
            tx.transaction.send([run], run.messages)
        except EngineError as refusal:
            producers.give_up([run])
            self.refusals.reject(run.ids, refusal, run, tx)
        else:
            self._blocked |= self._owner.engine.transactions.wait_for_room(tx.transaction, [run], self)
            self._accept(run, run.ids, TransactionalState(tx.id, _ACCEPTED))

    def _publish(self, run: Run) -> None:
        """Publish the messages of a run, and answer each.  Raises AmqpError as `Refusals.reject` does."""
        result = self._owner.engine.producers.publish([run], producer=self)
        self._blocked |= result.blocked
        if not result.refusals:
            self._accept(run, run.ids, _ACCEPTED)
            return
        of = dict(zip(run.messages, run.ids, strict=True))
        rejected = [([of.pop(message) for message in each.messages], each.error) for each in result.refusals]
        self._accept(run, list(of.values()), _ACCEPTED)
        for ids, error in rejected:
            self.refusals.reject(ids, error, run, None)

    def _accept(self, run: Run, ids: list[int], state: DeliveryState) -> None:
        self.accepted += len(ids)
        if ids and not run.settled:
            self._owner.answer(self.link.session, RECEIVER, ids, state, settled=not run.second)

    def top_up(self) -> None:
        """Grant credit if little is left, unless the address is full."""
        options = self._owner.options
        if not self._blocked and self.link.credit <= options.low_credits:
            self.link.send_credit(options.credits)

    def aborted(self) -> None:
        """Drop an aborted message, which may be a large one that was arriving."""
        self._posted()
        self._abandon_large()
        self.top_up()

    def gone(self) -> None:
        """Clean up after the link is detached."""
        if self._posting is not None:
            self._posting.let_only_roll_back()
            self._posted()
        self._owner.engine.producers.stop_waiting(self)
        if self._place is not None:
            self._owner.engine.producers.detach(self._place.address, self)
        self._abandon_large()

    def _abandon_large(self) -> None:
        self.uploading.abandon()
        self._large = None  # it refers to this link

    def destination_lost(self) -> None:
        place = self._place
        assert place is not None, "it is attached to it"
        lost = place.lost(self._owner.engine)
        if lost:
            self._owner.detach(self.link, Error(RESOURCE_DELETED, lost))

    @property
    def transport(self) -> object:
        return self._owner.transport

    def unblock(self) -> None:
        """Grant credit, as a full address has room again (see Producer)."""
        self._blocked = False
        self.top_up()
        self._owner.touch()


class _Large:
    """A large message whose first portion has arrived.  Raises DecodeError, EngineError if it cannot be accepted."""

    def __init__(self, link: IncomingLink, producers: Producers, event: Portion, tx: OpenTransaction | None) -> None:
        try:
            parts = take_apart(event.payload, linked=link.peer is not Peer.CLIENT, whole=False)
        except Truncated as error:
            if event.last:
                raise
            most = link.link.session.limits.whole_bytes_max
            text = f"What comes before the body of a large message may have {most} bytes, here it has more."
            raise Unacceptable(MESSAGE_SIZE_EXCEEDED, text) from error
        self._header, head, self.body, self._broker_annotations = parts
        self._link_id, self._head = (None, head) if link.peer is Peer.CLIENT else take_link_id(head)
        link.check_hops(self._head)
        self._target = link.target(self._head + _NO_BODY)
        run = link.make(self._target, self._header, self._broker_annotations, event, tx)
        producers.find(run)
        producers.give_up([run])  # the body may never come
        self.durable = run.header.durable
        self._link = link
        self._event = event
        self._tx = tx

    def publish(self, body: Body) -> None:
        """Publish it with its complete body.  Raises DecodeError, EngineError."""
        run = self._link.make(self._target, self._header, self._broker_annotations, self._event, self._tx)
        self._link.publish_large(run, Message.of(run.header, self._head, body), self._link_id, self._event)

    def refuse(self, error: EngineError | DecodeError) -> None:
        """Refuse it."""
        event = self._event
        try:
            self._link.refusals.refuse(error, event, event.id, event.tag, self._tx)
        except AmqpError as unheard:
            self._link.fail(unheard)


def check_temporary(engine: Engine, name: str, *, stated: bool) -> None:
    """Check that a temporary destination still exists: replies to a closed connection reach no one.  Raises NotFound.

    `stated`: whether the client states that it is temporary, whatever its name.
    """
    address = engine.addresses.get(name)
    if (stated and address is None) or (is_temporary(name) and (address is None or not address.owned)):
        raise NotFound(f"the temporary destination {name} is gone")
