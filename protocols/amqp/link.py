"""Links (part 2, 2.6): attach and detach, credit, and deliveries in both directions.

A link is one way.  Its sender counts deliveries, its receiver says how far the count may go:

    delivery-limit = delivery-count + link-credit, both as the receiver last knew them

so that FLOW and TRANSFER may cross on their way.  A Sender (`sender`) computes its credit from that, a Receiver
(`receiver`) counts down what it gave.  A delivery counts with its first frame.

Whoever uses these classes answers the events of `events`; what it sends on a link that is detached, or whose session
has ended, goes nowhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from protocols.amqp.errors import AmqpError
from protocols.amqp.events import Attached, Detached, Event
from protocols.amqp.performatives import (
    SENDER,
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
)
from protocols.amqp.state import LINK, LinkState
from protocols.amqp.types import Described

if TYPE_CHECKING:
    from protocols.amqp.session import Session


#: States in which our DETACH is out.
_DETACHED: Final = frozenset({LinkState.DETACHED, LinkState.DETACH_SENT, LinkState.WITHDRAWN})


def error_of(error: AmqpError | Error | None) -> Error | None:
    """What is sent of an error."""
    return Error(error.condition, error.description, error.info) if isinstance(error, AmqpError) else error


class Link(ABC):
    """Our end of a link.  `role` is ours, `attach` the peer's ATTACH, `local` our own."""

    role: ClassVar[bool]

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.state = LinkState.DETACHED
        self.handle = -1
        self.remote_handle = -1
        self.attach: Attach | None = None
        self.local: Attach | None = None
        self.failed = False  # broke a rule: what comes is discarded until the peer's DETACH
        self.refused = False  # ... as the connection has as many links as it may
        self.delivery_count = 0
        self.credit = 0
        self.available = 0
        self.drain = False
        self.owes_flow = False  # the peer asked for our state before we had attached

    @property
    def reads(self) -> bool:
        """Whether what comes for this link is looked at."""
        return self.state in (LinkState.ATTACHED, LinkState.ATTACH_RCVD) and not self.failed

    @property
    def sends(self) -> bool:
        """Whether the link may send: it has its handle, and its session a channel."""
        return self.state in (LinkState.ATTACHED, LinkState.ATTACH_SENT) and self.session.sends

    def send_attach(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        snd_settle_mode: int = SenderSettleMode.MIXED,
        rcv_settle_mode: int = ReceiverSettleMode.FIRST,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: dict[str, object] | None = None,
    ) -> None:
        """ATTACH: an answer, or the beginning of a link.

        A link is refused with a null source (sender) or target (receiver), followed by `send_detach` with the error.
        """
        if not self.session.sends:
            return
        self.state = LINK[self.state]["S:ATTACH"]
        self.handle = self.session.assign(self)
        self.local = Attach(
            self.name,
            self.handle,
            self.role,
            snd_settle_mode,
            rcv_settle_mode,
            source,
            target,
            None if unsettled is None else dict(unsettled),
            incomplete_unsettled,
            self.delivery_count if self.role is SENDER else None,
            max_message_size,
            offered_capabilities,
            desired_capabilities,
            properties,
        )
        self.session.send(self.local)
        if self.owes_flow:
            self.owes_flow = False
            self.session.send_flow(self)

    def send_detach(self, *, closed: bool = True, error: AmqpError | Error | None = None) -> None:
        """DETACH: an answer, or the end of the link.  Its deliveries are forgotten: they have to be dealt with before.

        A link that the peer has attached must have been answered with `send_attach`, also to refuse it.
        """
        if self.state in _DETACHED or not self.session.sends:
            return
        self.state = LINK[self.state]["S:DETACH"]
        self.session.release(self)
        self.session.send(Detach(self.handle, closed, error_of(error)))

    def receive_attach(self, attach: Attach, events: list[Event]) -> None:
        """The peer's ATTACH."""
        self.state = LINK[self.state]["R:ATTACH"]
        self.attach = attach
        self.remote_handle = attach.handle
        events.append(Attached(self, attach))

    def receive_detach(self, detach: Detach, events: list[Event]) -> None:
        """The peer's DETACH."""
        self.state = LINK[self.state]["R:DETACH"]
        self.clear()
        events.append(Detached(self, detach.closed, detach.error))

    @abstractmethod
    def receive_flow(self, flow: Flow, events: list[Event]) -> None:
        """The peer's FLOW with this link's handle."""

    @abstractmethod
    def clear(self) -> None:
        """Forget what has come in part."""

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
