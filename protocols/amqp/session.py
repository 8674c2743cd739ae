"""Sessions (part 2, 2.5): two channels, their windows, the links on them and the unsettled deliveries.

Each TRANSFER frame has an implicit number.  With its FLOWs a side states which number it expects next and how many more
it accepts; the other computes how many it may still send, given those sent since:

    remote-incoming-window = next-incoming-id(flow) + incoming-window(flow) - next-outgoing-id

Our own window is refilled whenever half of it is used: it bounds one read, while credit bounds waiting messages.
Frames for which the peer's window has no room wait here, at most those of one `send`.

An error of the peer that ends the session is reported once (SessionFailed); after that all frames for the session are
ignored until the peer's END.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocols.amqp.composite import Composite
from protocols.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
    Scope,
    connection_error,
    format_value,
    link_error,
    session_error,
)
from protocols.amqp.link import OUTGOING_WINDOW, Channel, Event, Link, LinkFailed, Refused, Withdrawn, error_of
from protocols.amqp.performatives import (
    RECEIVER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    TransactionalState,
    Transfer,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import add, difference, span
from protocols.amqp.state import SESSION, SessionState
from protocols.amqp.transport import Transport
from protocols.amqp.unsettled import Unsettled

#: States after our END was sent.
_ENDED: Final = frozenset(
    {SessionState.UNMAPPED, SessionState.END_SENT, SessionState.DISCARDING, SessionState.WITHDRAWN}
)


@dataclass(slots=True)
class Began:
    """The peer began a session, or answered our BEGIN."""

    session: Session
    begin: Begin


@dataclass(slots=True)
class Ended:
    """The peer ended a session; answer with `send_end`, unless we had ended it before."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class SessionFailed:
    """The peer violated a rule, which ends the session: answer with `send_end(error)`."""

    session: Session
    error: AmqpError


@dataclass(slots=True)
class WindowOpened:
    """A session may send again after its window was used up."""

    session: Channel


class Session(Channel):
    """Our end of a session.  `begin` is the peer's BEGIN."""

    def __init__(self, transport: Transport, channel: int) -> None:
        super().__init__(transport, channel)
        self.remote_channel: int | None = None  # before the peer's BEGIN
        self.released = False  # our END was sent and the peer knows this session: the channel is free
        self._by_remote_handle: dict[int, Link] = {}

    @property
    def links(self) -> list[Link]:
        """The links that the peer has attached."""
        return list(self._by_remote_handle.values())

    # -- begin and end ---------------------------------------------------------------------------------------------

    def send_begin(self) -> None:
        """Send BEGIN, as an answer or to begin a session."""
        self.state = SESSION[self.state]["S:BEGIN"]
        window, handle_max = self.incoming_window, self.limits.handle_max
        self.send(Begin(self.remote_channel, self.next_outgoing_id, window, OUTGOING_WINDOW, handle_max))

    def send_end(self, error: AmqpError | Error | None = None) -> None:
        """Send END, as an answer or to end the session with all its links and deliveries."""
        if self.state in _ENDED:
            return
        self.send(End(error_of(error)))
        self.state = SESSION[self.state]["S:END" if error is None else "S:END(error)"]
        self.released = self.state is not SessionState.WITHDRAWN
        self.clear()

    def receive_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        """Handle the peer's BEGIN."""
        self.state = SESSION[self.state]["R:BEGIN"]
        self.released = self.state is SessionState.END_SENT
        # The rest may be large, and is nobody's business later.
        self.begin = Begin(begin.remote_channel, begin.next_outgoing_id, begin.incoming_window, 0, begin.handle_max)
        self.remote_channel = channel
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = begin.incoming_window
        events.append(Began(self, begin))

    def receive_end(self, end: End, events: list[Event]) -> None:
        """Handle the peer's END."""
        self.state = SESSION[self.state]["R:END"]
        events.append(Ended(self, end.error))

    def clear(self) -> None:
        """Forget links, deliveries and waiting frames."""
        for link in self._by_remote_handle.values():
            link.clear()
            self._uncount(link)
        self.by_handle.clear()
        self._by_remote_handle.clear()
        self.awaited.clear()
        self.waiting.clear()
        self.incoming = Unsettled()
        self.outgoing = Unsettled()
        self.withdrawn.clear()

    # -- links -----------------------------------------------------------------------------------------------------

    def new_sender(self, name: str) -> Sender:
        """A link to be attached, on which we send."""
        return Sender(self, name)

    def new_receiver(self, name: str) -> Receiver:
        """A link to be attached, on which we receive."""
        return Receiver(self, name)

    def receive_attach(self, attach: Attach, nbytes: int, events: list[Event]) -> None:
        """Handle the peer's ATTACH, which has so many bytes.  Raises AmqpError."""
        handle = attach.handle
        if handle > self.limits.handle_max:
            text = f"attach: handles go up to {self.limits.handle_max}, {handle} is beyond."
            raise connection_error(FRAMING_ERROR, text)
        if handle in self._by_remote_handle:
            name = self._by_remote_handle[handle].name
            raise session_error(HANDLE_IN_USE, f"attach: the handle {handle} is that of the link {format_value(name)}.")
        transport, most = self.transport, self.limits.attach_bytes_max
        if transport.attach_bytes + nbytes > most:
            text = f"attach: those of all links of a connection may have {most} bytes together."
            raise session_error(RESOURCE_LIMIT_EXCEEDED, text)
        role = not attach.role
        link = self.awaited.pop((attach.name, role), None)
        if link is None:
            refused = self._too_many()
            link = Receiver(self, attach.name) if role is RECEIVER else Sender(self, attach.name)
        else:
            refused = None
        link.receive_attach(attach, events)
        self._by_remote_handle[handle] = link
        link.attach_bytes = nbytes
        transport.attach_bytes += nbytes
        if refused is None:
            transport.links += 1
            return
        events[-1] = Refused(link, refused)
        link.refused = link.failed = True
        transport.refused += 1

    def _too_many(self) -> AmqpError | None:
        """The error with which one more link is refused, if it is.  Raises AmqpError for too many refused links."""
        most = self.limits.links_max
        if self.transport.links < most:
            return None
        if self.transport.refused > self.limits.handle_max:
            raise session_error(RESOURCE_LIMIT_EXCEEDED, "attach: detach the links that were refused first.")
        return link_error(RESOURCE_LIMIT_EXCEEDED, f"attach: a connection may have {most} links.")

    def _uncount(self, link: Link) -> None:
        self.transport.attach_bytes -= link.attach_bytes
        if link.refused:
            self.transport.refused -= 1
        else:
            self.transport.links -= 1

    def _attached(self, handle: int, what: str) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise session_error(UNATTACHED_HANDLE, f"{what}: no link is attached with the handle {handle}.")
        return link

    def receive_detach(self, detach: Detach, events: list[Event]) -> None:
        """Handle the peer's DETACH.  Raises AmqpError."""
        link = self._attached(detach.handle, "detach")
        del self._by_remote_handle[detach.handle]
        self._uncount(link)
        link.receive_detach(detach, events)

    # -- flow ------------------------------------------------------------------------------------------------------

    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """Handle the peer's FLOW: its windows, and the credit of a link.  Raises AmqpError."""
        link = None if flow.handle is None else self._attached(flow.handle, "flow")
        self._update_window(flow, events)
        if link is not None and link.reads:
            try:
                link.receive_flow(flow, events)
            except AmqpError as error:
                self._fail(link, error, events)
        if flow.echo and (link is None or link.sends):
            self.send_flow(link)
        elif flow.echo and link is not None:
            link.owes_flow = True

    def _update_window(self, flow: Flow, events: list[Event]) -> None:
        self.next_incoming_id = flow.next_outgoing_id  # the peer's word counts (2.5.6)
        before = 0 if self.waiting else self.remote_incoming_window
        sent = self.next_outgoing_id  # all frames so far, as we number from 0
        if flow.next_incoming_id is not None:
            sent = max(difference(self.next_outgoing_id, flow.next_incoming_id), 0)
        self.remote_incoming_window = max(flow.incoming_window - sent, 0)
        while self.waiting and self.remote_incoming_window:
            link, frame, begins = self.waiting.popleft()
            self.transport.out.append(frame)
            self.sent(1)
            if begins:
                link.unstalled()
        if before == 0 and self.remote_incoming_window:
            events.append(WindowOpened(self))

    # -- deliveries ------------------------------------------------------------------------------------------------

    def receive_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> Receiver | None:
        """Handle a TRANSFER frame; returns its link if the frame may be the first of a run.  Raises AmqpError."""
        if self.incoming_window <= 0:
            raise session_error(WINDOW_VIOLATION, f"transfer: the window of {self.limits.incoming_window} is used up.")
        self.received(1)
        link = self._attached(transfer.handle, "transfer")
        if not isinstance(link, Receiver):
            raise session_error(
                INVALID_FIELD, f"transfer: messages of the link {format_value(link.name)} go the other way."
            )
        if self.next_incoming_delivery < 0 and transfer.delivery_id is not None:
            self.next_incoming_delivery = transfer.delivery_id
        if link.reads:
            try:
                link.receive_transfer(transfer, payload, events)
            except AmqpError as error:
                self._fail(link, error, events)
            else:
                return link
        self.drop(transfer, events)
        id = transfer.delivery_id
        # The id may be repeated in a later frame of its delivery, when others have begun.
        if id is not None and difference(id, self.next_incoming_delivery) >= 0:
            self.next_incoming_delivery = add(id, 1)
        return None

    def _fail(self, link: Link, error: AmqpError, events: list[Event]) -> None:
        """End a link for an error of the peer.  Raises it if it ends more than that."""
        if error.scope is not Scope.LINK:
            raise error
        link.failed = True
        link.clear()
        events.append(LinkFailed(link, error))

    def drop(self, performative: Composite, events: list[Event]) -> None:
        """Ignore a frame for a link or a session that has ended: a transaction that it is part of has to know."""
        if isinstance(performative, Transfer | Disposition) and isinstance(performative.state, TransactionalState):
            events.append(Withdrawn(self, performative.state))

    def receive_disposition(self, disposition: Disposition, events: list[Event]) -> None:
        """Handle the peer's DISPOSITION.  Raises AmqpError."""
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        length = span(first, last)
        if length <= 0:
            raise session_error(INVALID_FIELD, f"disposition: the range from {first} to {last} is reversed.")
        ranges = [(first, length)]
        self.apply(disposition.role, ranges, disposition.settled, disposition.state, events)
