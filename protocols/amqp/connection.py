"""One AMQP connection: bytes in, events out, and the other way round.

    receive_data  only buffers the bytes
    events        parses them: returns the contents of complete frames, in order.  It stops after frames of SASL and the
                  peer's OPEN: what follows waits until they are answered, since the client has not been accepted yet.
                  So call it until it returns nothing
    resume        continues after the last Portion of a message
    error         the error that ends the connection, if any; `events` still returns what came before it, and nothing
                  after it.  Answer it with `send_close(error)`

Sessions and links have their own objects, with their own `send_*`; the events carry them.  An error of one of them is
an event and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from protocols.amqp.channels import Channels
from protocols.amqp.composite import Composite, decode_body
from protocols.amqp.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    AmqpError,
    DecodeError,
    FrameTooLarge,
    connection_error,
)
from protocols.amqp.events import Connected, Event, Skipped
from protocols.amqp.frames import (
    FRAME_HEADER_BYTES,
    HEARTBEAT,
    MIN_MAX_FRAME_BYTES,
    TYPE_AMQP,
    Input,
    check_header,
    unpack_header,
)
from protocols.amqp.handshake import Handshake
from protocols.amqp.limits import Limits
from protocols.amqp.link import EVENTS_MAX, FRAMES_MAX, LOOKED_MAX, error_of
from protocols.amqp.performatives import (
    Begin,
    Close,
    End,
    Error,
    Open,
    SaslChallenge,
    SaslInit,
    SaslOutcome,
    SaslResponse,
    Transfer,
)
from protocols.amqp.receiver import Transfers
from protocols.amqp.session import Session
from protocols.amqp.state import CLOSED, CONNECTION, DISCARDS, SENDS, ConnectionState, SaslState
from protocols.amqp.transfer_batch import RUN_MAX
from protocols.amqp.transport import Transport

_DEFAULT_LIMITS: Final = Limits()

#: Bytes of a frame that are needed to distinguish runs from other frames.
_TELLING_BYTES: Final = 16

_C: Final = ConnectionState
_BEFORE_HEADERS: Final = (_C.START, _C.HDR_SENT, _C.OPEN_PIPE, _C.OC_PIPE)
_READS_FRAMES: Final = (_C.HDR_EXCH, _C.OPEN_SENT, _C.OPENED, _C.CLOSE_PIPE, _C.CLOSE_SENT)

#: States in which received bytes are dropped.
_DEAF: Final = (_C.CLOSE_RCVD, _C.DISCARDING, _C.END)


class AmqpConnection:
    """Either side of a connection.

    A server offers `mechanisms` (none: no SASL) and, unless `sasl_required`, accepts clients without SASL.  A client
    uses SASL if it is given any mechanisms.  `container_id` is that of our OPEN, even one that only precedes an error.

    `peer` is the peer's OPEN.  In ms, and 0 for never: after `receive_timeout` without a frame the peer counts as dead
    (half of it was announced to the peer, part 2, 2.4.5); a frame has to be sent at least every `send_interval`.

    A server that takes its time to answer SASL or OPEN must stop reading from the socket: all it reads is buffered.
    """

    def __init__(
        self,
        limits: Limits = _DEFAULT_LIMITS,
        *,
        container_id: str,
        server: bool = True,
        mechanisms: Sequence[str] = (),
        sasl_required: bool = True,
    ) -> None:
        self.error: AmqpError | None = None
        self.receive_timeout = 0
        self.send_interval = 0
        self.state = ConnectionState.START
        self.peer: Open | None = None
        self._limits = limits
        self._body_limits = replace(limits, values_max=limits.performative_values_max)
        self._container_id = container_id
        self._transport = Transport(limits)
        self._input = Input()
        self._handshake = Handshake(
            self._body_limits, self._transport.out, server=server, mechanisms=mechanisms, required=sasl_required
        )
        self._channels = Channels(self._transport)
        self._server = server
        self._shut = False  # ends without CLOSE
        self._ended = False  # the peer sends no more
        if self._handshake.amqp_sent:
            self._move("S:HDR")

    @property
    def close_expected(self) -> bool:
        """Whether the connection is to be closed once all output is sent: after our CLOSE, or if SASL has failed."""
        return self._shut or self.state in CLOSED

    @property
    def sessions(self) -> list[Session]:
        """The sessions that the peer has begun."""
        return self._channels.sessions

    def forget_sessions(self) -> None:
        """Forget all sessions with their links, which refer to them: the connection is over, nothing more is sent."""
        self._channels.clear()

    @property
    def partial_bytes(self) -> int:
        """Bytes held of messages that have not come whole."""
        return self._transport.partial_bytes

    @property
    def attach_bytes(self) -> int:
        """Bytes of the ATTACH frames of the peer's links, much of which is held as long as these."""
        return self._transport.attach_bytes

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Buffer bytes for `events`."""
        if self.error is None and not self._shut and self.state not in _DEAF:
            self._input.feed(data)

    def receive_eof(self) -> None:
        """The peer will send no more: an incomplete frame is an error, once `events` has returned the complete ones."""
        self._ended = True
        if not self._input.ready and not self._transport.held:
            self._check_end()

    def events(self) -> list[Event]:
        """Return events of the frames received since the last call, some at a time; call again until there are none."""
        events: list[Event] = []
        source, transport = self._input, self._transport
        transport.frames = transport.looked = 0
        if transport.unfinished is not None and self.error is None and transport.unfinished.go_on(events):
            transport.unfinished = None
        if source.ready and self.error is None and not transport.held and transport.unfinished is None:
            try:
                if not self._handshake.waits:
                    source.take()
                    self._read(source, events)
                if self._handshake.waits:
                    self._check_kept(source)
            except AmqpError as error:
                error.__traceback__ = error.__context__ = None  # their calls refer to this connection
                self.error = error
                source.drop()
                self._handshake.fail()
        if self._ended and not source.ready and not transport.held:
            self._check_end()
        if not events and (transport.looked >= LOOKED_MAX or transport.frames >= FRAMES_MAX):
            events.append(Skipped())
        return events

    def resume(self) -> None:
        """Parse what follows a message that arrived in portions."""
        assert self._transport.held, "the last portion has come"
        self._transport.held = False
        self._input.ready = True

    def _check_kept(self, source: Input) -> None:
        """Limit the bytes that wait for our answer to SASL: the peer is not authenticated.  Raises AmqpError."""
        most = self._limits.handshake_bytes_max
        if source.kept > most:
            text = f"Before a login is answered {most} bytes may follow it, there are {source.kept}."
            raise FrameTooLarge(FRAMING_ERROR, text)
        source.ready = False

    def _check_end(self) -> None:
        if self.error is None and self._input.kept and not self._waits and not self.close_expected:
            self.error = connection_error(FRAMING_ERROR, "The connection ended in the middle of a frame.")
            self._input.drop()

    @property
    def _waits(self) -> bool:
        """Whether parsing waits for our answer."""
        return self._handshake.waits or self.state is ConnectionState.OPEN_RCVD

    def _resume(self) -> None:
        """Parse what has arrived while our answer was awaited."""
        self._input.ready = self._input.kept > 0

    def _read(self, source: Input, events: list[Event]) -> None:
        if self.state in _BEFORE_HEADERS:
            exchanged = self._handshake.read(source, events)
            if not self._server and self._handshake.amqp_sent and self.state is ConnectionState.START:
                self._move("S:HDR")
            if not exchanged:
                self._check_failed()
                return
            self._move("R:HDR")
            if self._server:
                self._move("S:HDR")
            events.append(Connected())
        self._read_frames(source, events)

    def _read_frames(self, source: Input, events: list[Event]) -> None:
        """Parse all complete frames, or up to one that has to be answered first.  Raises AmqpError."""
        buffer, at = source.buffer, source.at
        end, messages = len(buffer), 0
        while self.state in _READS_FRAMES:
            left = end - at
            if left < FRAME_HEADER_BYTES:
                source.wait(at, FRAME_HEADER_BYTES - left)
                return
            size, doff, kind, channel = unpack_header(buffer, at)
            opened = self.peer is not None
            bytes_max = self._limits.frame_bytes_max if opened else self._limits.handshake_bytes_max
            check_header(size, doff, kind, TYPE_AMQP, bytes_max, opened=opened)
            if left < size:
                source.wait(at, size - left)
                return
            if size >= _TELLING_BYTES and self.state is ConnectionState.OPENED:
                known = len(events)
                stop = self._channels.read_run(buffer, at, events)
                if stop > at:
                    at = stop
                    messages += sum([len(event.ids) for event in events[known:] if isinstance(event, Transfers)])
                    if messages >= RUN_MAX or self._is_enough(events):
                        source.pause(at)
                        return
                    continue
            self._frame(buffer, at, size, doff, channel, events)
            at += size
            if self._transport.held:
                source.wait(at, 0)
                return
            if self._is_enough(events):
                source.pause(at)
                return
        source.wait(at, 0)
        if self.state is not ConnectionState.OPEN_RCVD:
            source.drop()

    def _is_enough(self, events: list[Event]) -> bool:
        """Whether parsing pauses."""
        transport = self._transport
        if len(events) >= EVENTS_MAX or transport.frames >= FRAMES_MAX:
            return True
        return transport.looked >= LOOKED_MAX or transport.unfinished is not None

    def _frame(self, buffer: bytes, at: int, size: int, doff: int, channel: int, events: list[Event]) -> None:
        """Process one frame.  Raises AmqpError."""
        self._transport.frames += 1
        body, end = at + 4 * doff, at + size
        if body == end and self.peer is not None:
            return
        performative, stop = decode_body(buffer, at, body, end, self._body_limits)
        if stop < end and not isinstance(performative, Transfer):
            raise DecodeError(stop - at, f"{end - stop} bytes after {performative.NAME}")
        kind = type(performative)
        if self.state in DISCARDS and kind is not Close:
            return
        if channel > self._limits.channel_max:
            text = f"{performative.NAME}: channels go up to {self._limits.channel_max}, {channel} is beyond."
            raise connection_error(FRAMING_ERROR, text)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, performative, channel, events)
        elif "frame" not in kind.PROVIDES:
            raise connection_error(NOT_ALLOWED, f"{kind.NAME} is no body of a frame.")
        else:
            session = self._channels.find(channel, kind.NAME)
            if session.reads:
                self._channels.read(session, performative, buffer, at, stop, end, events)
            else:
                session.drop(performative, events)

    def _move(self, trigger: str) -> None:
        """Change the state.  Raises AmqpError."""
        state = CONNECTION[self.state].get(trigger)
        if state is None:
            assert trigger.startswith("R:"), f"{trigger} in {self.state}"
            frame = trigger[2:].lower()
            raise connection_error(ILLEGAL_STATE, f"{frame} is not expected here: {self.state.value}.")
        self.state = state

    def on_open(self, peer: Open, channel: int, events: list[Event]) -> None:
        self._move("R:OPEN")
        if channel:
            raise connection_error(FRAMING_ERROR, f"open comes on channel 0, not {channel}.")  # 2.4.1, 2.7.1
        if peer.max_frame_size < MIN_MAX_FRAME_BYTES:
            text = f"open: max-frame-size is at least {MIN_MAX_FRAME_BYTES}, not {peer.max_frame_size}."
            raise connection_error(INVALID_FIELD, text)
        self.peer = peer
        self._channels.highest = peer.channel_max
        self.send_interval = peer.idle_time_out or 0
        self._transport.frame_bytes_max = min(peer.max_frame_size, self._limits.frame_bytes_max)
        events.append(peer)

    def on_end(self, end: End, channel: int, events: list[Event]) -> None:
        self._channels.end(end, channel, events)

    def on_close(self, close: Close, channel: int, events: list[Event]) -> None:
        self._move("R:CLOSE")
        events.append(close)

    def on_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        if self.state is not ConnectionState.OPENED:
            raise connection_error(ILLEGAL_STATE, f"begin is not expected here: {self.state.value}.")
        self._channels.begin(begin, channel, events)

    # -- sending ---------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the output since the last call."""
        out = self._transport.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def discard(self) -> None:
        """Drop all pending output; CLOSE may follow."""
        self._transport.out.clear()

    def send_sasl(self, body: SaslInit | SaslChallenge | SaslResponse | SaslOutcome) -> None:
        """Send a SASL frame, when it is our turn.  An outcome other than `ok` ends the connection."""
        self._handshake.send(body)
        self._resume()
        self._check_failed()

    def _check_failed(self) -> None:
        """End the connection if the SASL exchange has failed: nothing more is read."""
        if self._handshake.state is SaslState.FAILED:
            self._shut = True
            self._input.drop()

    def send_open(
        self,
        *,
        hostname: str | None = None,
        idle_time_out: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        desired_capabilities: tuple[str, ...] = (),
        properties: dict[str, object] | None = None,
    ) -> None:
        """Send OPEN.  `idle_time_out`: half the silence after which the peer counts as dead, in ms.

        Raises AmqpError if it is too large for the peer: then nothing was sent.
        """
        self.receive_timeout = 2 * (idle_time_out or 0)
        self._transport.send(
            0,
            Open(
                self._container_id,
                hostname,
                self._limits.frame_bytes_max,
                self._limits.channel_max,
                idle_time_out,
                offered_capabilities=offered_capabilities,
                desired_capabilities=desired_capabilities,
                properties=properties,
            ),
        )
        self._move("S:OPEN")
        self._resume()

    def send_close(self, error: AmqpError | Error | None = None) -> None:
        """Send CLOSE, after which nothing is sent, and before it OPEN if that has not been sent.

        Before the protocol headers are exchanged an error cannot be sent: the connection just ends, or the SASL
        exchange fails.
        """
        if self.close_expected:
            return
        if self.state in (ConnectionState.START, ConnectionState.HDR_RCVD, ConnectionState.HDR_SENT):
            self._shut = True
            return
        if self.state in (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD):
            self.send_open()
        self._move("S:CLOSE" if error is None else "S:CLOSE(error)")
        self._transport.send(0, Close(error_of(error)))

    def send_heartbeat(self) -> None:
        """Send an empty frame, if that is allowed now."""
        if self.state in SENDS:
            self._transport.out.append(HEARTBEAT)

    def new_session(self) -> Session:
        """Make a session, to be begun, on the lowest free channel.  Raises AmqpError if the peer accepts no more."""
        return self._channels.new()


#: What handles the frames that concern the connection.  One table for all: it refers to none.
_HANDLERS: Final[dict[type[Composite], Callable[[AmqpConnection, Any, int, list[Event]], None]]] = {
    Open: AmqpConnection.on_open,
    Begin: AmqpConnection.on_begin,
    End: AmqpConnection.on_end,
    Close: AmqpConnection.on_close,
}
