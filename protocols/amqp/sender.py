"""The sending end of a link: uses credit, and splits messages into frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocols.amqp.encode import encode
from protocols.amqp.errors import NOT_IMPLEMENTED, link_error
from protocols.amqp.frames import FRAME_HEADER_BYTES, frame
from protocols.amqp.link import Channel, Event, SendingLink
from protocols.amqp.performatives import DeliveryState, Flow, Transfer
from protocols.amqp.serial import add, difference
from protocols.amqp.state import LinkState
from protocols.amqp.transfers import Prefix

#: The property of FLOW that asks for messages as a part of a transaction.
_TXN_ID: Final = "txn-id"


class Streaming:
    """A message that is sent in several frames, perhaps part by part while it is read."""

    def __init__(self, link: Sender, delivery_id: int, *, settled: bool, state: DeliveryState | None = None) -> None:
        self._link = link
        self._id = delivery_id
        self._transfer = Transfer(link.handle, delivery_id, delivery_id.to_bytes(4), 0, settled, state=state)
        self._begins = True

    @property
    def room(self) -> bool:
        """Whether a part may be sent now."""
        session = self._link.session
        return session.remote_incoming_window > 0 and not session.waiting and self._link.sends

    def send(self, payload: bytes, *, last: bool) -> None:
        """Send a part, in as many frames as it needs."""
        link = self._link
        session = link.session
        bytes_max = session.transport.frame_bytes_max - FRAME_HEADER_BYTES
        at = 0
        while True:
            transfer = self._transfer
            transfer.more = True
            head = transfer.encode()
            ends = len(head) + len(payload) - at <= bytes_max
            if ends and last:
                transfer.more = False
                head = transfer.encode()
            part = payload[at : at + bytes_max - len(head)]
            session.send_transfer(link, frame(session.channel, head + part), begins=self._begins)
            at += len(part)
            self._begins = False
            self._transfer = Transfer(link.handle, self._id)
            if ends:
                break
        if last:
            link.streaming = None

    def abort(self) -> None:
        """Abort the message: the receiver discards its part, as if nothing had been sent (2.6.14)."""
        link = self._link
        transfer = self._transfer
        transfer.more, transfer.aborted = False, True
        link.session.send_transfer(link, frame(link.session.channel, transfer.encode()), begins=self._begins)
        link.session.outgoing.remove(self._id, 1)
        link.streaming = None


@dataclass(slots=True)
class Credit:
    """A receiver has updated its credit, maybe with `drain`: then call `send_drained` once there is nothing to send."""

    link: Sender


class Sender(SendingLink):
    """The sending end of a link."""

    def __init__(self, session: Channel, name: str) -> None:
        super().__init__(session, name)
        self._drained = False
        #: The message being sent part by part.
        self.streaming: Streaming | None = None
        self._prefix: Prefix | None = None
        self._prefix_key: tuple[bool, bytes | None] = (False, None)

    @property
    def room(self) -> int:
        """How many messages may be sent now."""
        session = self.session
        if self.credit <= 0 or session.waiting or not self.sends or self.state is not LinkState.ATTACHED:
            return 0
        if self.streaming is not None or self.resumes_only:
            return 0
        return min(self.credit, session.remote_incoming_window, session.outgoing.room(session.next_delivery_id))

    @property
    def resumes_only(self) -> bool:
        """Whether the receiver takes no new messages: it has not listed all unsettled ones (2.7.3)."""
        return self.attach is not None and self.attach.incomplete_unsettled

    @property
    def message_bytes_max(self) -> int | None:
        """The largest message that the receiver accepts; None: any."""
        return (self.attach.max_message_size or None) if self.attach is not None else None

    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """Handle the receiver's credit (2.6.7).  Raises AmqpError."""
        if flow.properties is not None and flow.properties.get(_TXN_ID) is not None:  # part 4, 4.4.3
            raise link_error(NOT_IMPLEMENTED, "flow: messages cannot be acquired in a transaction (txn-id).")
        if flow.link_credit is not None:
            theirs = 0 if flow.delivery_count is None else flow.delivery_count  # we count from 0
            self.credit = max(flow.link_credit - max(difference(self.delivery_count, theirs), 0), 0)
        self.drain = flow.drain
        events.append(Credit(self))

    def clear(self) -> None:
        """Do nothing: a sender receives no messages."""

    def send_drained(self) -> None:
        """Send FLOW with all credit used up, as there is nothing more to send (drain)."""
        if self.stalled:
            self._drained = True
            return
        self.delivery_count = add(self.delivery_count, self.credit)
        self.credit = 0
        if self.sends:
            self.session.send_flow(self)

    def flow(self, *, echo: bool = False) -> Flow:
        """Our state of the link, counting only deliveries whose first frame was sent."""
        flow = super().flow(echo=echo)
        if self.stalled:
            flow.delivery_count = add(self.delivery_count, -self.stalled)
            flow.link_credit = self.credit + self.stalled
        return flow

    def unstalled(self) -> None:
        """Note that the first frame of a waiting delivery was sent."""
        self.stalled -= 1
        if self._drained and not self.stalled:
            self._drained = False
            self.send_drained()

    def send(
        self,
        payloads: Sequence[bytes],
        contexts: Sequence[object],
        *,
        settled: bool = False,
        state: DeliveryState | None = None,
    ) -> int:
        """Send messages, at most `room`; returns the delivery id of the first, the others' follow.

        `contexts` has the caller's object for each, which Dispositions return.  Their tags are their ids, four bytes.
        """
        count = len(payloads)
        assert 0 < count <= self.room
        assert count == len(contexts)
        session = self.session
        first = session.next_delivery_id
        key = (settled, None if state is None else encode(state))
        prefix = self._prefix
        if prefix is None or key != self._prefix_key:
            transfer = Transfer(self.handle, None, None, 0, settled, state=state)
            prefix = self._prefix = Prefix(session.channel, transfer)
            self._prefix_key = key
        if max(map(len, payloads)) + prefix.nbytes <= session.transport.frame_bytes_max:
            prefix.encode(session.transport.out, first, payloads)
            session.sent(count)
        else:
            for at, payload in enumerate(payloads):
                Streaming(self, add(first, at), settled=settled, state=state).send(payload, last=True)
        self._sent(first, contexts, settled=settled)
        return first

    def _sent(self, first: int, contexts: Sequence[object], *, settled: bool) -> None:
        """Count deliveries that have been sent."""
        session, count = self.session, len(contexts)
        session.next_delivery_id = add(first, count)
        self.credit -= count
        self.delivery_count = add(self.delivery_count, count)
        if not settled:
            session.outgoing.add(self, first, contexts)

    def stream(self, context: object, *, settled: bool = False) -> Streaming:
        """Begin to send a message part by part; no other is sent on this link before its last part."""
        assert self.room, "there is room for it"
        self.streaming = Streaming(self, self.session.next_delivery_id, settled=settled)
        self._sent(self.session.next_delivery_id, [context], settled=settled)
        return self.streaming
