"""The sessions of a connection by channel, and the reading of their frames.

Every frame is decoded, except in runs of similar transfers or dispositions: once one of them has been decoded, those
that follow are recognised by their bytes (`transfer_batch`, `dispositions`).
"""

from __future__ import annotations

from typing import Final

from protocols.amqp import dispositions, transfers
from protocols.amqp.composite import Composite
from protocols.amqp.errors import (
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    Scope,
    connection_error,
    session_error,
)
from protocols.amqp.events import Event, SessionFailed
from protocols.amqp.performatives import Attach, Begin, Detach, Disposition, End, Flow, Transfer
from protocols.amqp.session import Session
from protocols.amqp.state import SessionState
from protocols.amqp.transfer_batch import read_lanes
from protocols.amqp.transport import Transport

#: The position of a performative's code in a frame with doff 2.
_CODE_AT: Final = 10
_TRANSFER: Final = Transfer.CODE
_DISPOSITION: Final = Disposition.CODE

#: How many shapes of transfers are remembered: one for each link, as runs of several links may alternate.
_SHAPES_MAX: Final = 256

#: The states of sessions whose BEGIN the peer has not answered.
_BEGUN: Final = (SessionState.BEGIN_SENT, SessionState.WITHDRAWN)

#: The states of sessions that the peer has ended, and the session layer has not yet.
_LEFT: Final = (SessionState.LEFT, SessionState.END_RCVD)


class Channels:
    """The channels of one connection; `highest` is the peer's channel-max."""

    __slots__ = ("_disposition_shape", "_incoming", "_outgoing", "_shapes", "_transport", "highest")

    def __init__(self, transport: Transport) -> None:
        self.highest = 0xFFFF  # before OPEN
        self._transport = transport
        self._incoming: dict[int, Session] = {}  # by the peer's channel
        self._outgoing: dict[int, Session] = {}  # by ours
        self._shapes: dict[bytes, transfers.FrameTemplate] = {}
        self._disposition_shape: dispositions.FrameTemplate[Session] | None = None

    @property
    def sessions(self) -> list[Session]:
        """The sessions that the peer has begun."""
        return list(self._incoming.values())

    def new(self, *, left: bool = False) -> Session:
        """Make a session on the lowest free channel.  Raises AmqpError if the peer's channel-max is exceeded.

        With `left`, the channel of a session that the peer has ended is free: the session layer answers that first.
        """
        outgoing, gone = self._outgoing, _LEFT if left else ()
        channel = next(
            n
            for n in range(len(outgoing) + 1)
            if n not in outgoing or outgoing[n].released or outgoing[n].state in gone
        )
        if channel > self.highest:
            raise connection_error(NOT_ALLOWED, f"begin: the peer takes channels up to {self.highest}.")
        session = outgoing[channel] = Session(self._transport, channel)
        return session

    def begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        """Handle the peer's BEGIN.  Raises AmqpError."""
        if channel in self._incoming:
            raise connection_error(NOT_ALLOWED, f"begin: the session on channel {channel} has not ended.")
        remote = begin.remote_channel
        session = self.new(left=True) if remote is None else self._outgoing.get(remote)
        if session is None or (remote is not None and session.state not in _BEGUN):
            raise connection_error(NOT_ALLOWED, f"begin: no session was begun on channel {remote}.")
        session.receive_begin(begin, channel, events)
        self._incoming[channel] = session

    def end(self, end: End, channel: int, events: list[Event]) -> None:
        """Handle the peer's END.  Raises AmqpError."""
        self.find(channel, End.NAME).receive_end(end, events)
        del self._incoming[channel]

    def clear(self) -> None:
        """Forget all sessions."""
        for session in (*self._incoming.values(), *self._outgoing.values()):
            session.clear()
        self._incoming.clear()
        self._outgoing.clear()
        self._shapes.clear()
        self._disposition_shape = None

    def find(self, channel: int, what: str) -> Session:
        """Return the session that the peer has begun on a channel; `what` names the frame.  Raises AmqpError."""
        session = self._incoming.get(channel)
        if session is None:
            raise connection_error(NOT_ALLOWED, f"{what}: no session has begun on channel {channel}.")
        return session

    def read_run(self, buffer: bytes, at: int, events: list[Event]) -> int:
        """Read the frames of a known shape from `at` on; returns where the first other frame begins."""
        code = buffer[at + _CODE_AT]
        if code == _TRANSFER:
            return read_lanes(self._shapes, buffer, at, events)
        if code == _DISPOSITION:
            alike = self._disposition_shape
            if alike is not None and alike.session.reads:
                ranges: list[dispositions.Range] = []
                at = dispositions.read_run(alike, buffer, at, ranges)
                alike.session.apply(alike.role, ranges, alike.settled, alike.state, events)
        return at

    def read(
        self,
        session: Session,
        performative: Composite,
        buffer: bytes,
        at: int,
        stop: int,
        end: int,
        events: list[Event],
    ) -> None:
        """Handle a session's frame from `at` to `end`, whose performative ends at `stop`.

        Only errors of the connection are raised, as AmqpError; others become a SessionFailed.
        """
        try:
            if isinstance(performative, Transfer):
                most = session.limits.transfer_head_bytes_max
                if stop - at > most:
                    text = f"transfer: a frame may have {most} bytes before its payload."
                    raise session_error(RESOURCE_LIMIT_EXCEEDED, text)
                link = session.receive_transfer(performative, buffer[stop:end], events)
                if link is not None:
                    self._learn(transfers.shape_of(link, performative, buffer, at, stop), buffer, at)
            elif isinstance(performative, Disposition):
                session.receive_disposition(performative, events)
                self._disposition_shape = dispositions.shape_of(session, performative, buffer, at, stop)
            elif isinstance(performative, Flow):
                session.receive_flow(performative, events)
            elif isinstance(performative, Attach):
                session.receive_attach(performative, stop - at, events)
            else:
                assert isinstance(performative, Detach)
                session.receive_detach(performative, events)
        except AmqpError as error:
            if error.scope is Scope.CONNECTION:
                raise
            session.failed = True
            events.append(SessionFailed(session, error))
            session.drop(performative, events)

    def _learn(self, template: transfers.FrameTemplate | None, buffer: bytes, at: int) -> None:
        """Remember the shape of this frame: the link's next frames may have it too."""
        if template is not None:
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[transfers.key(buffer, at)] = template
