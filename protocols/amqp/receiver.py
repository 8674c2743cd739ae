"""The receiving end of a link: grants credit, and assembles deliveries from their frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocols.amqp.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    connection_error,
    format_value,
    link_error,
    session_error,
)
from protocols.amqp.link import Channel, Event, Link
from protocols.amqp.performatives import (
    RECEIVER,
    Attach,
    Flow,
    ReceiverSettleMode,
    Source,
    TransactionalState,
    Transfer,
)
from protocols.amqp.performatives import DeliveryState as Outcome
from protocols.amqp.serial import add, difference
from protocols.amqp.state import DELIVERY, DeliveryState

#: The outcome of a source by which messages can be rejected.
REJECTED: Final = "amqp:rejected:list"

#: The most bytes of a delivery tag (part 2, 2.8.7).
TAG_BYTES_MAX: Final = 32


class Transfers:
    """Whole messages of one link, in order, and their delivery ids; messages of other links may have come in between.

    `second`: we send the outcome and the peer settles (2.7.5).
    """

    __slots__ = ("ids", "link", "payloads", "second", "settled", "state", "tags")

    def __init__(
        self,
        link: Receiver,
        ids: list[int],
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        state: Outcome | None,
        second: bool,
    ) -> None:
        self.link = link
        self.ids = ids
        self.tags = tags
        self.payloads = payloads
        self.settled = settled
        self.state = state
        self.second = second

    def divided(self, most: int, nbytes: int) -> list[Transfers]:
        """Divide into parts of at most so many messages, which end where one has reached so many bytes."""
        payloads, count = self.payloads, len(self.ids)
        if count == 1 or (count <= most and sum(map(len, payloads)) <= nbytes):
            return [self]
        parts: list[Transfers] = []
        begun = size = 0
        for at, payload in enumerate(payloads, 1):
            size += len(payload)
            if size >= nbytes or at - begun == most or at == count:
                parts.append(self._part(begun, at))
                begun, size = at, 0
        return parts

    def _part(self, begin: int, end: int) -> Transfers:
        ids, tags, payloads = self.ids[begin:end], self.tags[begin:end], self.payloads[begin:end]
        return Transfers(self.link, ids, tags, payloads, self.settled, self.state, self.second)


@dataclass(slots=True)
class Portion:
    """A part of a message that is too large to be buffered, from the `first` to the `last`, as the frames arrive.

    After the last one nothing is read on the connection until `resume`.  `second` as in Transfers.
    """

    link: Receiver
    id: int
    tag: bytes
    payload: bytes
    first: bool
    last: bool
    settled: bool
    state: Outcome | None
    second: bool


@dataclass(slots=True)
class Posting:
    """The first of several frames of a message in a transaction, which must not be discharged before the last one."""

    link: Receiver
    state: TransactionalState


@dataclass(slots=True)
class Aborted:
    """A message that was not completed: the sender aborted it, or resumed a delivery, of which none is known (2.6.13).

    It is settled, and has used one credit of the link.
    """

    link: Receiver


@dataclass(slots=True)
class Available:
    """A sender has reported its state: how many messages await credit, or that it has used all of it (drain)."""

    link: Receiver


class Receiver(Link):
    """The receiving end of a link."""

    role = RECEIVER

    def __init__(self, session: Channel, name: str) -> None:
        super().__init__(session, name)
        #: How many messages may still arrive, including those in flight when credit was withdrawn (2.6.7).
        self._granted = 0
        #: Deliveries of links with the same order keep their order among each other; None: among those of all links.
        self.order: str | None = None
        #: Whether messages can be rejected: the sender's source has this outcome, or states none at all.
        self.rejects = True
        self._progress = DeliveryState.NOT_RCVD
        self._body = bytearray()  # the part received so far of a message in several frames
        self._first = Transfer(0)  # the first frame of the delivery being received
        self._settled = False
        #: Whether messages above the limit are reported in portions.
        self.streams = False
        self._streamed = 0  # bytes so far of the message being reported in portions, 0 if there is none

    def send_credit(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Send FLOW: the sender may send `credit` more messages after those received; with `drain` it uses them up.

        Less than before withdraws credit; messages that the sender has already sent with it still arrive.
        """
        self.credit = credit
        self._granted = max(self._granted, credit)
        self.drain = drain
        if self.sends:
            self.session.send_flow(self, echo=echo)

    def flow(self, *, echo: bool = False) -> Flow:
        """Our state of the link; the count is unknown before the sender's ATTACH."""
        flow = super().flow(echo=echo)
        if self.attach is None:
            flow.delivery_count = None
        return flow

    def receive_attach(self, attach: Attach, events: list[Event]) -> None:
        """Handle the sender's ATTACH.  Raises AmqpError."""
        if attach.initial_delivery_count is None:
            text = f"attach: the sender of {format_value(attach.name)} must set initial-delivery-count."
            raise session_error(INVALID_FIELD, text)
        self.delivery_count = attach.initial_delivery_count
        outcomes = attach.source.outcomes if isinstance(attach.source, Source) else ()
        self.rejects = not outcomes or REJECTED in outcomes
        super().receive_attach(attach, events)

    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """Handle the sender's state: it may have used credit without sending (drain)."""
        if flow.delivery_count is not None:
            advanced = difference(flow.delivery_count, self.delivery_count)
            if advanced > 0:
                self.delivery_count = flow.delivery_count
                self._use(advanced)
        self.available = flow.available or 0
        events.append(Available(self))

    @property
    def second(self) -> bool:
        """Whether the link was attached with the sender settling last."""
        return self.local is not None and self.local.rcv_settle_mode == ReceiverSettleMode.SECOND

    # -- deliveries ------------------------------------------------------------------------------------------------

    @property
    def run_room(self) -> int:
        """How many whole deliveries in single frames may be received now without violating a rule."""
        return self._granted if self._progress is DeliveryState.NOT_RCVD and self.reads else 0

    def count(self, deliveries: int) -> None:
        """Count received deliveries."""
        self._use(deliveries)
        self.delivery_count = add(self.delivery_count, deliveries)
        self.available = max(self.available - deliveries, 0)

    def _use(self, credit: int) -> None:
        self.credit = max(self.credit - credit, 0)
        self._granted = max(self._granted - credit, 0)

    def receive_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> None:
        """Handle one frame of a delivery.  Raises AmqpError."""
        if self._progress is DeliveryState.NOT_RCVD:
            self._begin(transfer)
            if transfer.more and isinstance(transfer.state, TransactionalState):
                events.append(Posting(self, transfer.state))
        else:
            self._continue(transfer)
        self._settled = self._settled or bool(transfer.settled)
        self._progress = DELIVERY[self._progress][transfer.more, transfer.aborted]
        if self._progress is DeliveryState.ABORTED:
            self._abort(events)
            return
        if self._streamed or (self._body and self._too_large(len(payload))):
            self._stream(payload, events)
            return
        payload = self._append(payload)
        if self._progress is DeliveryState.RECEIVED:
            self._complete(payload, events)

    def _begin(self, transfer: Transfer) -> None:
        session = self.session
        delivery_id, tag = transfer.delivery_id, transfer.delivery_tag
        if delivery_id is None or delivery_id != session.next_incoming_delivery:
            wanted = session.next_incoming_delivery
            raise session_error(INVALID_FIELD, f"transfer: the next delivery-id is {wanted}, not {delivery_id}.")
        if tag is None or len(tag) > TAG_BYTES_MAX:
            raise link_error(INVALID_FIELD, f"transfer: a delivery needs a tag of up to {TAG_BYTES_MAX} bytes.")
        if transfer.message_format:
            text = f"transfer: the message-format is 0, that of AMQP, not {transfer.message_format:#x}."
            raise link_error(NOT_IMPLEMENTED, text)
        if not self._granted:
            raise link_error(TRANSFER_LIMIT_EXCEEDED, f"transfer: the link {format_value(self.name)} has no credit.")
        if not transfer.settled and tag in self.tags:
            raise link_error(NOT_ALLOWED, f"transfer: an unsettled delivery has the delivery-tag {tag.hex()} already.")
        second = transfer.rcv_settle_mode == ReceiverSettleMode.SECOND
        if second and not self.second and not transfer.settled:
            raise link_error(INVALID_FIELD, "transfer: the link was attached with the receiver settling first.")
        if not transfer.settled and session.incoming.count >= session.limits.unsettled_max:
            most = session.limits.unsettled_max
            raise session_error(RESOURCE_LIMIT_EXCEEDED, f"A session may have {most} unsettled deliveries.")
        self._first = transfer
        self._settled = False
        session.next_incoming_delivery = add(delivery_id, 1)
        self.count(1)
        if not transfer.settled:
            self.tags.add(tag)
            session.incoming.add(self, delivery_id, [tag])

    def _continue(self, transfer: Transfer) -> None:
        first = self._first
        if transfer.delivery_id not in (None, first.delivery_id):
            text = f"transfer: delivery {first.delivery_id} has not ended, {transfer.delivery_id} cannot begin."
            raise session_error(INVALID_FIELD, text)
        if transfer.delivery_tag not in (None, first.delivery_tag):
            raise link_error(INVALID_FIELD, "transfer: a delivery has one delivery-tag.")
        if self._settled and transfer.settled is False:
            raise link_error(INVALID_FIELD, "transfer: a delivery that is settled stays so.")
        if transfer.message_format:
            raise link_error(INVALID_FIELD, "transfer: a delivery has one message-format.")
        if self._changes_transaction(transfer):
            raise link_error(INVALID_FIELD, "transfer: a delivery is part of one transaction.")  # part 4, 4.4.1
        if transfer.state is not None:
            first.state = transfer.state

    def _changes_transaction(self, transfer: Transfer) -> bool:
        """Whether a later frame of a delivery names another transaction than the first one, or one at all."""
        state, first = transfer.state, self._first.state
        if not isinstance(state, TransactionalState):
            return False
        return not isinstance(first, TransactionalState) or state.txn_id != first.txn_id

    def _too_large(self, nbytes: int) -> bool:
        """Whether a message is reported in portions once `nbytes` more bytes are added."""
        most = self.session.limits.whole_bytes_max
        return self.streams and not self._first.resume and len(self._body) + nbytes > most

    def _stream(self, payload: bytes, events: list[Event]) -> None:
        """Report more of a message that is too large to be buffered.  Raises AmqpError."""
        session, first = self.session, self._first
        begins = not self._streamed
        if begins:
            payload = bytes(self._body) + payload
            session.transport.partial_bytes -= len(self._body)
            self._body = bytearray()
        self._streamed += len(payload)
        most = session.limits.streamed_bytes_max
        if self._streamed > most:
            raise link_error(MESSAGE_SIZE_EXCEEDED, f"transfer: a message may have {most} bytes, this one has more.")
        assert first.delivery_id is not None
        last = self._progress is DeliveryState.RECEIVED
        if last:
            if self._settled and not first.settled:
                session.settle(first.delivery_id, 1)
            session.transport.held = True
        if payload or last:
            id, tag = first.delivery_id, first.delivery_tag or b""
            events.append(Portion(self, id, tag, payload, begins, last, self._settled, first.state, self._second()))
        if last:
            self.clear()

    def _append(self, payload: bytes) -> bytes:
        """Add to the message; returns all of it once it is complete, else nothing.  Raises AmqpError."""
        transport = self.session.transport
        limits = transport.limits
        body = self._body
        if len(body) + len(payload) > limits.message_bytes_max:
            most = limits.message_bytes_max
            raise link_error(MESSAGE_SIZE_EXCEEDED, f"transfer: a message may have {most} bytes, this one has more.")
        complete = self._progress is DeliveryState.RECEIVED
        if complete and not body:
            return payload
        if transport.partial_bytes + len(payload) > limits.partial_bytes_max:
            text = f"The messages that have not come whole may have {limits.partial_bytes_max} bytes together."
            raise connection_error(RESOURCE_LIMIT_EXCEEDED, text)
        body += payload
        transport.partial_bytes += len(payload)
        return bytes(body) if complete else b""

    def _complete(self, payload: bytes, events: list[Event]) -> None:
        first = self._first
        if first.resume:
            self._abort(events)
            return
        assert first.delivery_id is not None
        assert first.delivery_tag is not None
        if self._settled and not first.settled:
            self.session.settle(first.delivery_id, 1)
        ids, tags, payloads = [first.delivery_id], [first.delivery_tag], [payload]
        events.append(Transfers(self, ids, tags, payloads, self._settled, first.state, self._second()))
        self.clear()

    def _abort(self, events: list[Event]) -> None:
        assert self._first.delivery_id is not None
        self.session.settle(self._first.delivery_id, 1)
        events.append(Aborted(self))
        self.clear()

    def _second(self) -> bool:
        """Whether the sender settles this delivery last: it may ask for less than the link's mode (2.7.5)."""
        return self.second and self._first.rcv_settle_mode != ReceiverSettleMode.FIRST

    def clear(self) -> None:
        """Forget a partly received message."""
        self.session.transport.partial_bytes -= len(self._body)
        self._body = bytearray()
        self._streamed = 0
        self._progress = DeliveryState.NOT_RCVD
