"""What a connection tells its session layer, in the order in which it came.

Performatives of the connection itself are their own events: Open, Close, and those of SASL.  The others come with the
endpoint that they concern.  Errors of a session or a link are events, too: the endpoint reads nothing any more, and the
session layer answers with `send_end(error)` or `send_detach(error)` once it has dealt with what came before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocols.amqp.errors import AmqpError
from protocols.amqp.performatives import (
    Attach,
    Begin,
    Close,
    DeliveryState,
    Error,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)

if TYPE_CHECKING:
    from protocols.amqp.link import Link
    from protocols.amqp.receiver import Receiver
    from protocols.amqp.sender import Sender
    from protocols.amqp.session import Session


@dataclass(slots=True)
class Connected:
    """Protocol headers are exchanged, after SASL if there was any: OPEN may be sent (for the client's role)."""


@dataclass(slots=True)
class Began:
    """The peer began a session, or answered our BEGIN."""

    session: Session
    begin: Begin


@dataclass(slots=True)
class Ended:
    """The peer ended a session; with `send_end` it is gone, unless we had ended it before."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class SessionFailed:
    """The peer broke a rule that ends the session: answer with `send_end(error)`."""

    session: Session
    error: AmqpError


@dataclass(slots=True)
class Attached:
    """The peer attached a link, or answered our ATTACH."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class Refused:
    """The peer attached a link that it may not have: answer with `send_attach` and `send_detach(error)`."""

    link: Link
    error: AmqpError


@dataclass(slots=True)
class Detached:
    """The peer detached or closed a link; with `send_detach` it is gone, unless we had detached it before."""

    link: Link
    closed: bool
    error: Error | None


@dataclass(slots=True)
class LinkFailed:
    """The peer broke a rule that ends the link: answer with `send_detach(error)`."""

    link: Link
    error: AmqpError


@dataclass(slots=True)
class Transfers:
    """Whole messages of one link, in order, and their delivery ids: between them, others may have come.

    `second`: we say the outcome and the peer settles (2.7.5).  A resumed delivery stands alone; its payload is what the
    peer sent now.
    """

    link: Receiver
    ids: list[int]
    tags: list[bytes]
    payloads: list[bytes]
    settled: bool
    state: DeliveryState | None
    message_format: int
    second: bool
    resumed: bool = False


@dataclass(slots=True)
class Portion:
    """A part of a message that is too large to be kept, from the `first` to the `last`, as the frames come.

    After the last one nothing is read on the connection until `resume`.  `second` as in Transfers.
    """

    link: Receiver
    id: int
    tag: bytes
    payload: bytes
    first: bool
    last: bool
    settled: bool
    state: DeliveryState | None
    second: bool


@dataclass(slots=True)
class Aborted:
    """A message that the sender gave up; it is settled, and has used one of the link's credits."""

    link: Receiver
    delivery_id: int
    tag: bytes


@dataclass(slots=True)
class Dispositions:
    """The peer's state of deliveries of one link, with consecutive delivery ids from `first` on.

    `contexts` are what they were sent with (Sender), or their tags (Receiver).  If `settled`, they are forgotten.
    """

    link: Link
    first: int
    contexts: list[object]
    state: DeliveryState | None
    settled: bool


@dataclass(slots=True)
class Credit:
    """A receiver has given its credit anew, maybe with `drain`: then `send_drained` once nothing more is to send."""

    link: Sender
    properties: dict[str, object] | None


@dataclass(slots=True)
class Available:
    """A sender has told its state: how many messages wait for credit, or that it has used all of it (drain)."""

    link: Receiver


@dataclass(slots=True)
class WindowOpened:
    """A session may send again after its window was used up."""

    session: Session


Event = (
    Open
    | Close
    | SaslMechanisms
    | SaslInit
    | SaslChallenge
    | SaslResponse
    | SaslOutcome
    | Connected
    | Began
    | Ended
    | SessionFailed
    | Attached
    | Refused
    | Detached
    | LinkFailed
    | Transfers
    | Portion
    | Aborted
    | Dispositions
    | Credit
    | Available
    | WindowOpened
)
