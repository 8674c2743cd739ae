"""Links (part 2, 2.6): attach and detach, credit, and deliveries in both directions.

A link is one way.  Its sender counts deliveries, its receiver says how far the count may go:

    delivery-limit = delivery-count + link-credit, both as the receiver last knew them

so that FLOW and TRANSFER may cross.  A Sender (`sender`) computes its credit from that, a Receiver (`receiver`) counts
down the credit that it granted.  A delivery counts with its first frame.

The user of these classes answers the events of `events`; anything that it sends on a detached link, or after the
session has ended, is dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from protocols.amqp.composite import Composite
from protocols.amqp.dispositions import Range, disposition_frame
from protocols.amqp.errors import NOT_ALLOWED, AmqpError, session_error
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    Outcome,
    ReceiverSettleMode,
    Rejected,
    SenderSettleMode,
    Source,
    Target,
    TransactionalState,
)
from protocols.amqp.serial import add, difference, overlap, span
from protocols.amqp.state import LINK, SESSION_READS, SESSION_SENDS, LinkState, SessionState
from protocols.amqp.transport import Transport
from protocols.amqp.types import Described
from protocols.amqp.unsettled import Run, Unsettled

#: Our outgoing window as announced: a constant, as peers have no use for it.
OUTGOING_WINDOW: Final = 0x7FFF_FFFF

#: How many ranges of lost deliveries are remembered: a state that crosses the end of a link is about the latest.
_WITHDRAWN_MAX: Final = 64

#: After so many events, or portions of unsettled deliveries looked at, reading pauses: those of a whole read, or of one
#: DISPOSITION for 100,000 deliveries that were not settled in order, may take long.
EVENTS_MAX: Final = 32
LOOKED_MAX: Final = 32

#: The same after so many frames, of which some cause no event: 2 ms if they are FLOWs or parts of a message.
FRAMES_MAX: Final = 128

#: States after our DETACH was sent.
_DETACHED: Final = frozenset({LinkState.DETACHED, LinkState.DETACH_SENT, LinkState.WITHDRAWN})


#: What is forgotten of an ATTACH once the link is attached.
_FORGOTTEN: Final[dict[str, Any]] = {
    "source": None,
    "target": None,
    "unsettled": None,
    "offered_capabilities": (),
    "desired_capabilities": (),
    "properties": None,
}

#: An event that a connection reports to its session layer (`events`).
Event = object


@dataclass(slots=True)
class Attached:
    """The peer attached a link, or answered our ATTACH."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class Refused:
    """The peer attached a link beyond the limit: answer with `send_attach` and `send_detach(error)`."""

    link: Link
    error: AmqpError


@dataclass(slots=True)
class Detached:
    """The peer detached or closed a link; answer with `send_detach`, unless we had detached it before."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(slots=True)
class LinkFailed:
    """The peer violated a rule, which ends the link: answer with `send_detach(error)`."""

    link: Link
    error: AmqpError


@dataclass(slots=True)
class Dispositions:
    """The peer's state of deliveries of one link, with consecutive delivery ids from `first` on.

    `contexts` are those they were sent with (Sender), or their tags (Receiver).  If `settled`, they are forgotten.
    """

    link: Link
    first: int
    contexts: list[object]
    state: DeliveryState | None
    settled: bool

    def divided(self, most: int) -> list[Dispositions]:
        """Divide into parts of at most so many deliveries."""
        contexts = self.contexts
        if len(contexts) <= most:
            return [self]
        return [
            Dispositions(self.link, self.first + at & 0xFFFF_FFFF, contexts[at : at + most], self.state, self.settled)
            for at in range(0, len(contexts), most)
        ]


@dataclass(slots=True)
class Skipped:
    """Many frames, or what the peer has stated about many deliveries, have changed nothing that anybody is told."""


@dataclass(slots=True)
class Withdrawn:
    """A message of a transaction, or a state in it, has no effect, as its link or session has ended."""

    session: Channel
    state: TransactionalState


def error_of(error: AmqpError | Error | None) -> Error | None:
    """The form in which an error is sent."""
    return Error(error.condition, error.description, error.info) if isinstance(error, AmqpError) else error


def _brief(state: DeliveryState | None) -> DeliveryState | None:
    """A state without the description of its error, which does not fit into the peer's frames."""
    rejected = state.outcome if isinstance(state, TransactionalState) else state
    if not isinstance(rejected, Rejected) or rejected.error is None:
        return state
    brief = Rejected(rejected.error.brief)
    return TransactionalState(state.txn_id, brief) if isinstance(state, TransactionalState) else brief


class Channel:
    """Our end of a session as its links see it: windows, delivery ids, and sending.  `Session` is the whole of it."""

    def __init__(self, transport: Transport, channel: int) -> None:
        self.transport = transport
        self.limits: Limits = transport.limits
        self.channel = channel
        self.state = SessionState.UNMAPPED
        self.begin: Begin | None = None
        self.failed = False
        self.next_incoming_id = 0
        self.incoming_window = self.limits.incoming_window
        self.next_outgoing_id = 0
        self.remote_incoming_window = 0
        self.next_incoming_delivery = -1  # unknown before the first
        self.next_delivery_id = 0
        self.incoming: Unsettled[Link] = Unsettled()
        self.outgoing: Unsettled[Link] = Unsettled()
        self.withdrawn: deque[Range] = deque(maxlen=_WITHDRAWN_MAX)  # deliveries that the peer lost with their links
        self.waiting: deque[tuple[SendingLink, bytes, bool]] = deque()  # frames that await room in the peer's window
        self.by_handle: dict[int, Link] = {}  # ours
        self.awaited: dict[tuple[str, bool], Link] = {}  # attached by us, not yet by the peer

    @property
    def sends(self) -> bool:
        """Whether the session may send."""
        return self.state in SESSION_SENDS

    @property
    def reads(self) -> bool:
        """Whether received frames are handled."""
        return self.state in SESSION_READS and not self.failed

    def assign(self, link: Link) -> int:
        """Assign the lowest free handle to a link.  Raises AmqpError if the peer allows no handle so high."""
        handle = next(number for number in range(len(self.by_handle) + 1) if number not in self.by_handle)
        if self.begin is not None and handle > self.begin.handle_max:
            raise session_error(NOT_ALLOWED, f"attach: the peer takes handles up to {self.begin.handle_max}.")
        self.by_handle[handle] = link
        if link.state is LinkState.ATTACH_SENT:
            self.awaited[link.name, link.role] = link
        return handle

    def unassign(self, link: Link) -> None:
        """Undo `assign`: the link's ATTACH was not sent."""
        self.by_handle = {handle: each for handle, each in self.by_handle.items() if each is not link}
        self.awaited = {key: each for key, each in self.awaited.items() if each is not link}

    def release(self, link: Link) -> None:
        """Free a link's handle and forget its deliveries, as its DETACH is sent."""
        del self.by_handle[link.handle]
        link.clear()
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not link)
        if link.role is SENDER:
            self.withdrawn += self.outgoing.forget(link)
        else:
            self.incoming.forget(link)

    def send_flow(self, link: Link | None = None, *, echo: bool = False) -> None:
        """Send FLOW: our windows, and our state of a link."""
        flow = link.flow(echo=echo) if link is not None else Flow(echo=echo)
        flow.next_incoming_id = self.next_incoming_id if self.begin is not None else None
        flow.incoming_window = self.incoming_window = self.limits.incoming_window
        flow.next_outgoing_id = self.next_outgoing_id
        flow.outgoing_window = OUTGOING_WINDOW
        self.send(flow)

    def received(self, frames: int) -> None:
        """Count received TRANSFER frames; send FLOW once half of our window is used."""
        self.next_incoming_id = add(self.next_incoming_id, frames)
        self.incoming_window -= frames
        if 2 * self.incoming_window < self.limits.incoming_window:
            self.send_flow()

    def delivery_room(self, *, settled: bool) -> int:
        """How many deliveries in single frames may be received now."""
        if settled:
            return self.incoming_window
        return min(self.incoming_window, self.limits.unsettled_max - self.incoming.count)

    def received_deliveries(self, owners: Sequence[Link], tags: list[bytes], count: int) -> None:
        """Count consecutive deliveries in single frames; `owners`, `tags`: of those that are not settled."""
        if owners:
            self.incoming.add_each(owners, self.next_incoming_delivery, tags)
        self.next_incoming_delivery = add(self.next_incoming_delivery, count)
        self.received(count)

    def settle(self, first: int, length: int) -> list[Run[Link]]:
        """Remove and return the received deliveries among the `length` ids from `first` on: their tags are free."""
        runs = self.incoming.take(first, length)
        for run in runs:
            run.owner.tags.difference_update(run.contexts)
        return runs

    def apply(
        self, role: bool, ranges: list[Range], settled: bool, state: DeliveryState | None, events: list[Event]
    ) -> None:
        """Apply the state that the peer, in this role, has set for ranges of deliveries, in portions.

        Settled ones are skipped, and those that have an outcome already (`Unsettled.blank`).  A state of our deliveries
        that is not final, and does not settle them, means nothing.
        """
        if role is RECEIVER and not settled and not isinstance(state, Outcome | TransactionalState):
            return  # `received`, or one that we do not know: it is not final
        statement = Statement(self, role, ranges, settled, state)
        if not statement.go_on(events):
            self.transport.unfinished = statement

    def is_late(self, ranges: list[Range]) -> bool:
        """Whether there are withdrawn deliveries in the ranges."""
        return any(overlap(one, other) for one in ranges for other in self.withdrawn)

    def send_disposition(
        self, role: bool, first: int, last: int, *, settled: bool = True, state: DeliveryState | None = None
    ) -> None:
        """Send DISPOSITION: our state of the deliveries from `first` to `last`; `role` is ours."""
        if not self.sends:
            return
        if settled and role is RECEIVER:
            for owners, tags in self.incoming.remove(first, span(first, last)):
                for owner, tag in zip(owners, tags, strict=True):  # links take turns: no runs of many
                    owner.tags.discard(tag)
        elif settled:
            self.outgoing.remove(first, span(first, last))
        frame = disposition_frame(self.channel, role, first, last, settled=settled, state=state)
        if len(frame) > self.transport.frame_bytes_max:
            frame = disposition_frame(self.channel, role, first, last, settled=settled, state=_brief(state))
        self.transport.out.append(frame)

    def send_transfer(self, link: SendingLink, frame: bytes, *, begins: bool) -> None:
        """Send a frame of a delivery, now or once the peer's window has room."""
        if self.waiting or not self.remote_incoming_window:
            self.waiting.append((link, frame, begins))
            link.stalled += begins
            return
        self.transport.out.append(frame)
        self.sent(1)

    def sent(self, frames: int) -> None:
        """Count sent TRANSFER frames."""
        self.next_outgoing_id = add(self.next_outgoing_id, frames)
        self.remote_incoming_window -= frames

    def send(self, performative: Composite) -> None:
        """Send a frame on this session's channel, if it has one.  Raises AmqpError if the frame is too large."""
        if self.sends:
            self.transport.send(self.channel, performative)


class Statement:
    """The state that the peer, in this role, has set for ranges of deliveries."""

    __slots__ = ("_left", "_ranges", "_role", "_session", "_settled", "_state")

    def __init__(
        self, session: Channel, role: bool, ranges: list[Range], settled: bool, state: DeliveryState | None
    ) -> None:
        self._session = session
        self._role = role
        self._ranges = ranges
        self._left = ranges[::-1]  # the next one last
        self._settled = settled
        self._state = state

    def go_on(self, events: list[Event]) -> bool:
        """Apply it to some more deliveries; returns whether that is all."""
        session, left, state, settled = self._session, self._left, self._state, self._settled
        transport, to_ours = session.transport, self._role is RECEIVER
        unsettled = session.outgoing if to_ours else session.incoming
        remove = session.outgoing.take if to_ours else session.settle
        while left and session.reads:
            if len(events) >= EVENTS_MAX or transport.looked >= LOOKED_MAX:
                return False
            first, length = left[-1]
            if not settled and events and difference(first, transport.stated_up_to) < 0:
                return False  # the events come first: these may have their outcome then
            left.pop()
            some = unsettled.portion(first, length)
            if some < length:
                left.append((add(first, some), length - some))
            transport.looked += 1
            transport.stated_up_to = transport.stated_up_to if settled else add(first, some)
            runs = remove(first, some) if settled else unsettled.look(first, some)
            events += [Dispositions(run.owner, run.first, run.contexts, state, settled) for run in runs]
        if to_ours and isinstance(state, TransactionalState) and session.is_late(self._ranges):
            events.append(Withdrawn(session, state))
        return True


class Link(ABC):
    """Our end of a link.  `role` is ours, `attach` the peer's ATTACH, `local` our own."""

    role: ClassVar[bool]

    def __init__(self, session: Channel, name: str) -> None:
        self.session = session
        self.name = name
        self.state = LinkState.DETACHED
        self.handle = -1
        self.attach: Attach | None = None
        self.local: Attach | None = None
        self.attach_bytes = 0  # of the peer's
        self.failed = False  # the peer violated a rule: its frames are discarded until its DETACH
        self.refused = False  # ... because the connection has its maximum number of links
        self.delivery_count = 0
        self.credit = 0
        self.available = 0
        self.drain = False
        self.owes_flow = False  # the peer asked for our state before we had attached
        self.tags: set[object] = set()  # of unsettled deliveries that we receive: no two may be equal (2.6.12)

    @property
    def reads(self) -> bool:
        """Whether received frames for this link are handled."""
        return self.state in (LinkState.ATTACHED, LinkState.ATTACH_RCVD) and not self.failed

    @property
    def sends(self) -> bool:
        """Whether the link may send: it has a handle, and its session a channel."""
        return self.state in (LinkState.ATTACHED, LinkState.ATTACH_SENT) and self.session.sends

    def send_attach(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        snd_settle_mode: int = SenderSettleMode.MIXED,
        rcv_settle_mode: int = ReceiverSettleMode.FIRST,
        unsettled: dict[bytes, DeliveryState | None] | None = None,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: dict[str, object] | None = None,
    ) -> None:
        """Send ATTACH, as an answer or to begin a link.

        A link is refused with a null source (sender) or target (receiver), followed by `send_detach` with the error.
        Raises AmqpError if the peer does not take it: then nothing was sent.
        """
        if not self.session.sends:
            return
        before, self.state = self.state, LINK[self.state]["S:ATTACH"]
        self.local = Attach(
            self.name,
            0,
            self.role,
            snd_settle_mode,
            rcv_settle_mode,
            source,
            target,
            unsettled,
            False,
            self.delivery_count if self.role is SENDER else None,
            max_message_size,
            offered_capabilities,
            desired_capabilities,
            properties,
        )
        try:
            self.handle = self.local.handle = self.session.assign(self)
            self.session.send(self.local)
        except AmqpError:  # the peer takes no such handle, or no frame so large: nothing was sent
            self.session.unassign(self)
            self.state, self.local = before, None
            raise
        if self.owes_flow:
            self.owes_flow = False
            self.session.send_flow(self)

    def send_detach(self, *, closed: bool = True, error: AmqpError | Error | None = None) -> None:
        """Send DETACH, as an answer or to end the link.  Its deliveries are forgotten: handle them before.

        A link that the peer has attached must have been answered with `send_attach`, also to refuse it.
        """
        if self.state in _DETACHED or not self.session.sends:
            return
        self.state = LINK[self.state]["S:DETACH"]
        self.session.release(self)
        self.session.send(Detach(self.handle, closed, error_of(error)))

    def receive_attach(self, attach: Attach, events: list[Event]) -> None:
        """Handle the peer's ATTACH."""
        self.state = LINK[self.state]["R:ATTACH"]
        self.attach = attach
        events.append(Attached(self, attach))

    def forget_terms(self) -> None:
        """Forget what both ATTACHes say beyond settle modes and limits: it may be large, and is needed only once."""
        if self.attach is not None:
            self.attach = replace(self.attach, **_FORGOTTEN)
        if self.local is not None:
            self.local = replace(self.local, **_FORGOTTEN)

    def receive_detach(self, detach: Detach, events: list[Event]) -> None:
        """Handle the peer's DETACH."""
        self.state = LINK[self.state]["R:DETACH"]
        self.clear()
        events.append(Detached(self, detach.closed, detach.error))

    @abstractmethod
    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """Handle the peer's FLOW with this link's handle."""

    @abstractmethod
    def clear(self) -> None:
        """Forget a partly received message."""

    def flow(self, *, echo: bool = False) -> Flow:
        """Our state of the link."""
        return Flow(
            handle=self.handle,
            delivery_count=self.delivery_count,
            link_credit=self.credit,
            available=self.available,
            drain=self.drain,
            echo=echo,
        )


class SendingLink(Link):
    """A link on which we send.  `stalled`: deliveries of which not even the first frame fits the session's window."""

    role: ClassVar[bool] = SENDER

    def __init__(self, session: Channel, name: str) -> None:
        super().__init__(session, name)
        self.stalled = 0

    @abstractmethod
    def unstalled(self) -> None:
        """Note that the first frame of a waiting delivery has been sent."""
