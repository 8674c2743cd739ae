"""Sessions (part 2, 2.5): two channels, their windows, the links on them and the deliveries that are not settled.

Each TRANSFER frame has an implicit number.  A side says with its FLOWs which number it expects next and how many more
it takes; the other computes how many it may still send from what it has sent since:

    remote-incoming-window = next-incoming-id(flow) + incoming-window(flow) - next-outgoing-id

Our own window is always filled up again when half of it is used: it bounds one read, while credit bounds what waits.
Frames that the peer's window does not take wait here, at most those of one `send`.

An error of the peer's that ends the session is told once (SessionFailed); after that nothing that comes for the session
is looked at, until the peer's END.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from protocols.amqp.composite import Composite
from protocols.amqp.dispositions import Range, disposition_frame
from protocols.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    AmqpError,
    Scope,
    connection_error,
    link_error,
    session_error,
    shown,
)
from protocols.amqp.events import Began, Dispositions, Ended, Event, LinkFailed, Refused, WindowOpened
from protocols.amqp.limits import Limits
from protocols.amqp.link import Link, error_of
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Transfer,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import add, difference, span
from protocols.amqp.state import SESSION, SESSION_READS, SESSION_SENDS, LinkState, SessionState
from protocols.amqp.transport import Transport
from protocols.amqp.unsettled import Run, Unsettled

#: What we say of our outgoing window: nothing that a peer could need to know.
_OUTGOING_WINDOW: Final = 0x7FFF_FFFF

#: States in which our END is out.
_ENDED: Final = frozenset(
    {SessionState.UNMAPPED, SessionState.END_SENT, SessionState.DISCARDING, SessionState.WITHDRAWN}
)


class Session:
    """Our end of a session.  `begin` is the peer's BEGIN."""

    def __init__(self, transport: Transport, channel: int) -> None:
        self.transport = transport
        self.limits: Limits = transport.limits
        self.channel = channel
        self.remote_channel = -1
        self.state = SessionState.UNMAPPED
        self.begin: Begin | None = None
        self.failed = False
        self.released = False  # our END is out and the peer knows this session: the channel is free
        self.next_incoming_id = 0
        self.incoming_window = self.limits.incoming_window
        self.next_outgoing_id = 0
        self.remote_incoming_window = 0
        self.next_incoming_delivery = -1  # unknown before the first
        self.next_delivery_id = 0
        self.incoming: Unsettled[Link] = Unsettled()
        self.outgoing: Unsettled[Link] = Unsettled()
        self._stalled: deque[tuple[Sender, bytes, bool]] = deque()
        self._by_handle: dict[int, Link] = {}  # ours
        self._by_remote_handle: dict[int, Link] = {}
        self._awaited: dict[tuple[str, bool], Link] = {}  # attached by us, not yet by the peer

    @property
    def sends(self) -> bool:
        """Whether anything can be sent."""
        return self.state in SESSION_SENDS

    @property
    def reads(self) -> bool:
        """Whether what comes is looked at."""
        return self.state in SESSION_READS and not self.failed

    @property
    def stalled(self) -> bool:
        """Whether frames wait for the peer's window."""
        return bool(self._stalled)

    @property
    def links(self) -> list[Link]:
        """The links that the peer has attached."""
        return list(self._by_remote_handle.values())

    # -- begin and end ---------------------------------------------------------------------------------------------

    def send_begin(
        self,
        *,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: dict[str, object] | None = None,
    ) -> None:
        """BEGIN: an answer, or the beginning of a session."""
        remote = self.remote_channel if self.begin is not None else None
        self.state = SESSION[self.state]["S:BEGIN"]
        self.send(
            Begin(
                remote,
                self.next_outgoing_id,
                self.incoming_window,
                _OUTGOING_WINDOW,
                self.limits.handle_max,
                offered_capabilities,
                desired_capabilities,
                properties,
            )
        )

    def send_end(self, error: AmqpError | Error | None = None) -> None:
        """END: an answer, or the end of the session with all its links and deliveries."""
        if self.state in _ENDED:
            return
        self.send(End(error_of(error)))
        self.state = SESSION[self.state]["S:END" if error is None else "S:END(error)"]
        self.released = self.state is not SessionState.WITHDRAWN
        self.clear()

    def receive_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        """The peer's BEGIN."""
        self.state = SESSION[self.state]["R:BEGIN"]
        self.released = self.state is SessionState.END_SENT
        self.begin = begin
        self.remote_channel = channel
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window = begin.incoming_window
        events.append(Began(self, begin))

    def receive_end(self, end: End, events: list[Event]) -> None:
        """The peer's END."""
        self.state = SESSION[self.state]["R:END"]
        events.append(Ended(self, end.error))

    def clear(self) -> None:
        """Forget links, deliveries and what waits."""
        for link in self._by_remote_handle.values():
            link.clear()
            self._uncount(link)
        self._by_handle.clear()
        self._by_remote_handle.clear()
        self._awaited.clear()
        self._stalled.clear()
        self.incoming = Unsettled()
        self.outgoing = Unsettled()

    # -- links -----------------------------------------------------------------------------------------------------

    def new_sender(self, name: str) -> Sender:
        """A link to attach, from here to the peer."""
        return Sender(self, name)

    def new_receiver(self, name: str) -> Receiver:
        """A link to attach, from the peer to here."""
        return Receiver(self, name)

    def assign(self, link: Link) -> int:
        """The lowest free handle, now the link's.  Raises AmqpError if the peer takes no handle so high."""
        handle = next(number for number in range(len(self._by_handle) + 1) if number not in self._by_handle)
        if self.begin is not None and handle > self.begin.handle_max:
            raise session_error(NOT_ALLOWED, f"attach: the peer takes handles up to {self.begin.handle_max}.")
        self._by_handle[handle] = link
        if link.state is LinkState.ATTACH_SENT:
            self._awaited[link.name, link.role] = link
        return handle

    def release(self, link: Link) -> None:
        """The link's DETACH goes out: its handle is free, its deliveries are forgotten."""
        del self._by_handle[link.handle]
        link.clear()
        self._stalled = deque(entry for entry in self._stalled if entry[0] is not link)
        (self.outgoing if link.role is SENDER else self.incoming).forget(link)

    def receive_attach(self, attach: Attach, events: list[Event]) -> None:
        """The peer's ATTACH.  Raises AmqpError."""
        handle = attach.handle
        if handle > self.limits.handle_max:
            text = f"attach: handles go up to {self.limits.handle_max}, {handle} is beyond."
            raise connection_error(FRAMING_ERROR, text)
        if handle in self._by_remote_handle:
            name = self._by_remote_handle[handle].name
            raise session_error(HANDLE_IN_USE, f"attach: the handle {handle} is that of the link {shown(name)}.")
        role = not attach.role
        link = self._awaited.pop((attach.name, role), None)
        if link is None:
            refused = self._too_many()
            link = Receiver(self, attach.name) if role is RECEIVER else Sender(self, attach.name)
        else:
            refused = None
        link.receive_attach(attach, events)
        self._by_remote_handle[handle] = link
        if refused is None:
            self.transport.links += 1
            return
        events[-1] = Refused(link, refused)
        link.refused = link.failed = True
        self.transport.refused += 1

    def _too_many(self) -> AmqpError | None:
        """Why one more link is refused.  Raises AmqpError if too many refused ones have not been detached."""
        most = self.limits.links_max
        if self.transport.links < most:
            return None
        if self.transport.refused > self.limits.handle_max:
            raise session_error(RESOURCE_LIMIT_EXCEEDED, "attach: detach the links that were refused first.")
        return link_error(RESOURCE_LIMIT_EXCEEDED, f"attach: a connection may have {most} links.")

    def _uncount(self, link: Link) -> None:
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
        """The peer's DETACH.  Raises AmqpError."""
        link = self._attached(detach.handle, "detach")
        del self._by_remote_handle[detach.handle]
        self._uncount(link)
        link.receive_detach(detach, events)

    def _fail(self, link: Link, error: AmqpError, events: list[Event]) -> None:
        link.failed = True
        link.clear()
        events.append(LinkFailed(link, error))

    # -- flow ------------------------------------------------------------------------------------------------------

    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """The peer's windows, and the credit of a link.  Raises AmqpError."""
        link = None if flow.handle is None else self._attached(flow.handle, "flow")
        self._update_window(flow, events)
        if link is not None and link.reads:
            link.receive_flow(flow, events)
        if flow.echo and (link is None or link.sends):
            self.send_flow(link)
        elif flow.echo and link is not None:
            link.owes_flow = True

    def _update_window(self, flow: Flow, events: list[Event]) -> None:
        before = 0 if self._stalled else self.remote_incoming_window
        sent = self.next_outgoing_id  # since the beginning: we number from 0
        if flow.next_incoming_id is not None:
            sent = max(difference(self.next_outgoing_id, flow.next_incoming_id), 0)
        self.remote_incoming_window = max(flow.incoming_window - sent, 0)
        while self._stalled and self.remote_incoming_window:
            link, frame, begins = self._stalled.popleft()
            self.transport.out.append(frame)
            self.sent(1)
            if begins:
                link.unstalled()
        if before == 0 and self.remote_incoming_window:
            events.append(WindowOpened(self))

    def send_flow(self, link: Link | None = None, *, echo: bool = False) -> None:
        """FLOW: our windows, and our state of a link."""
        flow = link.flow(echo=echo) if link is not None else Flow(echo=echo)
        flow.next_incoming_id = self.next_incoming_id if self.begin is not None else None
        flow.incoming_window = self.incoming_window = self.limits.incoming_window
        flow.next_outgoing_id = self.next_outgoing_id
        flow.outgoing_window = _OUTGOING_WINDOW
        self.send(flow)

    def received(self, frames: int) -> None:
        """Count TRANSFER frames that came in; FLOW once half of our window is used."""
        self.next_incoming_id = add(self.next_incoming_id, frames)
        self.incoming_window -= frames
        if 2 * self.incoming_window < self.limits.incoming_window:
            self.send_flow()

    def delivery_room(self, *, settled: bool) -> int:
        """How many deliveries in single frames can come now."""
        if settled:
            return self.incoming_window
        return min(self.incoming_window, self.limits.unsettled_max - self.incoming.count)

    def received_deliveries(self, owners: list[Receiver], tags: list[bytes], count: int) -> None:
        """Count consecutive deliveries in single frames; the links and tags of those that are not settled."""
        if owners:
            self.incoming.add_each(owners, self.next_incoming_delivery, tags)
        self.next_incoming_delivery = add(self.next_incoming_delivery, count)
        self.received(count)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def receive_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> Receiver | None:
        """A TRANSFER frame; its link, if the frame may be the first of a run.  Raises AmqpError."""
        if self.incoming_window <= 0:
            raise session_error(WINDOW_VIOLATION, f"transfer: the window of {self.limits.incoming_window} is used up.")
        self.received(1)
        link = self._attached(transfer.handle, "transfer")
        if not isinstance(link, Receiver):
            raise session_error(INVALID_FIELD, f"transfer: messages of the link {shown(link.name)} go the other way.")
        if self.next_incoming_delivery < 0 and transfer.delivery_id is not None:
            self.next_incoming_delivery = transfer.delivery_id
        if link.reads:
            try:
                link.receive_transfer(transfer, payload, events)
            except AmqpError as error:
                if error.scope is not Scope.LINK:
                    raise
                self._fail(link, error, events)
            else:
                return link
        if transfer.delivery_id is not None:
            self.next_incoming_delivery = add(transfer.delivery_id, 1)
        return None

    def receive_disposition(self, disposition: Disposition, events: list[Event]) -> None:
        """The peer's state of deliveries.  Raises AmqpError."""
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        length = span(first, last)
        if length <= 0:
            raise session_error(INVALID_FIELD, f"disposition: the range from {first} to {last} is reversed.")
        ranges = [(first, length)]
        self.apply(disposition.role, ranges, disposition.settled, disposition.state, events)

    def apply(
        self, role: bool, ranges: list[Range], settled: bool, state: DeliveryState | None, events: list[Event]
    ) -> None:
        """The peer, whose role this is, has set the state of ranges of deliveries; settled ones are skipped."""
        unsettled = self.outgoing if role is RECEIVER else self.incoming
        for first, length in ranges:
            runs: list[Run[Link]]
            runs = unsettled.take(first, length) if settled else unsettled.look(first, length)
            events += [Dispositions(run.owner, run.first, run.contexts, state, settled) for run in runs]

    def send_disposition(
        self, role: bool, first: int, last: int, *, settled: bool = True, state: DeliveryState | None = None
    ) -> None:
        """DISPOSITION: our state of the deliveries from `first` to `last`; `role` is ours."""
        if not self.sends:
            return
        if settled:
            (self.incoming if role is RECEIVER else self.outgoing).remove(first, span(first, last))
        self.transport.out.append(disposition_frame(self.channel, role, first, last, settled=settled, state=state))

    def send_transfer(self, link: Sender, frame: bytes, *, begins: bool) -> None:
        """A frame of a delivery, now or when the peer's window takes it."""
        if self._stalled or not self.remote_incoming_window:
            self._stalled.append((link, frame, begins))
            link.stalled += begins
            return
        self.transport.out.append(frame)
        self.sent(1)

    def sent(self, frames: int) -> None:
        """Count TRANSFER frames that went out."""
        self.next_outgoing_id = add(self.next_outgoing_id, frames)
        self.remote_incoming_window -= frames

    def send(self, performative: Composite) -> None:
        """A frame on this session's channel, if it has one.  Raises AmqpError if the peer takes no frames so large."""
        if self.sends:
            self.transport.send(self.channel, performative)
