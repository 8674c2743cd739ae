"""State shared by the sessions and links of one connection: outgoing bytes, both sides' limits, counts of links."""

from __future__ import annotations

from typing import Any, Protocol

from protocols.amqp.composite import Composite
from protocols.amqp.errors import FRAME_SIZE_TOO_SMALL, AmqpError, Scope
from protocols.amqp.frames import FRAME_HEADER_BYTES, MIN_MAX_FRAME_BYTES, frame
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import Close, Detach, End


class Unfinished(Protocol):
    """A frame that is handled in portions."""

    def go_on(self, events: list[Any]) -> bool:
        """Handle some more of it, and append its events; returns whether that is all."""


class Transport:
    """The shared state.  `frame_bytes_max` is the largest frame that the peer accepts; `links` counts those of all
    sessions, `refused` those beyond the limit that the peer has not detached yet.

    While there is an `unfinished` frame, or after reading many (`frames`) or looking at many deliveries (`looked`),
    reading pauses.
    `stated_up_to`: behind the deliveries whose outcomes are among the events that are to be handled next.
    While `held` nothing is read: a large message has arrived completely, and must be handled first.
    """

    __slots__ = (
        "attach_bytes",
        "frame_bytes_max",
        "frames",
        "held",
        "limits",
        "links",
        "looked",
        "out",
        "partial_bytes",
        "refused",
        "stated_up_to",
        "unfinished",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.out: list[bytes] = []
        self.frame_bytes_max = MIN_MAX_FRAME_BYTES
        self.partial_bytes = 0
        self.links = 0
        self.attach_bytes = 0
        self.refused = 0
        self.held = False
        self.frames = 0
        self.looked = 0
        self.stated_up_to = 0
        self.unfinished: Unfinished | None = None

    def send(self, channel: int, performative: Composite) -> None:
        """Send a frame with a performative.  Raises AmqpError (frame-size-too-small) if it is too large for the peer.

        The caller decides what to end then: our own frame is too large, not the peer's.  What ends something is sent
        without the description of its error, if that does not fit.
        """
        body = performative.encode()
        if FRAME_HEADER_BYTES + len(body) > self.frame_bytes_max and isinstance(performative, Close | Detach | End):
            performative.error = None if performative.error is None else performative.error.brief
            body = performative.encode()
        if FRAME_HEADER_BYTES + len(body) > self.frame_bytes_max:
            what = f"{performative.NAME} has {FRAME_HEADER_BYTES + len(body)} bytes"
            raise AmqpError(FRAME_SIZE_TOO_SMALL, f"{what}, the peer takes {self.frame_bytes_max}.", Scope.SESSION)
        self.out.append(frame(channel, body))
