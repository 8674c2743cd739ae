"""Sessions over WebSocket (RFC 6455): the bytes of any protocol in messages of a subprotocol.

The peer's handshake selects the inner session; until then only the bytes of one request are buffered.  For AMQP and
MQTT, messages are binary and their boundaries have no meaning (AMQP 1.0 WebSocket binding, 2.4; MQTT 5.0, 6).  `stomp`
and `mqtt` say what is sent as one message.  The size of a message is not limited: `pieces` passes on what has arrived,
and the inner session limits what it buffers.  It does not hear of control frames and empty fragments: before the login
they count here.  A read of many frames is handled in steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from websockets.exceptions import InvalidHeader, InvalidOrigin, NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from broker.sessions.base import without_calls
from broker.sessions.protocol_detection import FIRST_BYTES, spoken
from broker.sessions.read_steps import ReadSteps, Stepping
from broker.sessions.session import Session
from broker.sessions.websocket.inner import InnerSession
from broker.sessions.websocket.pieces import Pieces
from broker.sessions.wrapping import WrappingSession

MakeSession = Callable[[], InnerSession]

#: Longest request that opens a WebSocket, in bytes: browsers send one or two KiB, with cookies a little more.
REQUEST_BYTES_MAX: Final = 10 << 10

#: The subprotocols of each protocol, the best first.  `mqttv3.1` is what clients of MQTT 3.1 ask for.
SUBPROTOCOLS: Final = {
    "stomp": ("v12.stomp", "v11.stomp", "v10.stomp"),
    "mqtt": ("mqtt", "mqttv3.1"),
    "amqp": ("amqp",),
}

_END_OF_REQUEST: Final = b"\r\n\r\n"

#: What a request may begin like; its first bytes may be too few to tell.
_HTTP: Final = ("", "HTTP")

#: What the header of a client's frame takes at least, with its mask.
_HEADER_BYTES: Final = 6

_SILENT: Final = logging.Logger("websocket", logging.CRITICAL)


class WebSocketSession(WrappingSession):
    """A session that answers the handshake and then carries another.

    `offered` has a factory for each subprotocol, best first; `foreign` is called with the subprotocols of a client that
    has none of these.  With `origins`, pages of all other sites are refused, and `refused` is called with their origin:
    a browser lets any page connect, and sends its user's credentials along.  Clients that are not browsers send no
    origin.  Frames that carry nothing may take `connect_bytes_max` bytes before the login.
    """

    inner: InnerSession | None
    takes_text = False  # whether text messages are accepted too
    bare = False  # whether a handshake may offer no subprotocol: then the first of `offered` is used

    def __init__(
        self,
        offered: Mapping[str, MakeSession],
        *,
        connect_bytes_max: int,
        origins: Sequence[str] = (),
        refused: Callable[[str], None] = lambda origin: None,
        foreign: Callable[[str], None] = lambda subprotocols: None,
    ) -> None:
        super().__init__()
        self._offered = offered
        self._steps: ReadSteps[bytes] | None = None  # of `inner`
        self._pieces: Pieces | None = None  # before the handshake a connection must cost little
        self._ends: Sequence[Callable[[], None]] = ()  # what comes after a read that is still handled
        self._connect_bytes_max = connect_bytes_max
        self._empty_bytes = 0  # of frames that carry nothing, before the login
        self._refused = refused
        self._foreign = foreign
        self._origins = origins
        self._protocol: ServerProtocol | None = None  # made once a request is complete
        self._request = b""

    @property
    def _ws(self) -> ServerProtocol:
        """The library's side of the connection."""
        if self._protocol is None:
            origins = self._origins
            kind = _BareProtocol if self.bare else ServerProtocol
            self._protocol = kind(
                origins=[None, *map(Origin, origins)] if origins else None,
                subprotocols=[Subprotocol(name) for name in self._offered],
                max_size=None,
                logger=_SILENT,
            )
        return self._protocol

    def receive_data(self, data: bytes) -> None:
        if self.ended:
            return
        if self.inner is None:
            data = self._request + data
            if spoken(data[:FIRST_BYTES]) not in _HTTP:
                self.ended = True  # a request's end might never come
                return
            end = data.find(_END_OF_REQUEST)
            self._request = data if end < 0 else b""
            if (len(data) if end < 0 else end) > REQUEST_BYTES_MAX:
                self.ended = True  # without an answer
                self._request = b""
            if end < 0 or self.ended:
                return
            end += len(_END_OF_REQUEST)
            self._ws.receive_data(data[:end])
            self._process()
            data = data[end:]
        steps = self._steps
        if data and steps is not None:
            if self._is_stepping:  # what TLS had decrypted
                data = b"".join([*steps.take_later(), data])
                steps.wait([data])
            else:
                self._handle(data, steps)

    @property
    def _is_stepping(self) -> bool:
        """Whether the rest of a read waits for the next tick."""
        steps, inner = self._steps, self.inner
        return steps is not None and steps.pending and inner is not None and not inner.lost

    def _handle(self, data: bytes, steps: ReadSteps[bytes]) -> None:
        """Handle the frames that have arrived, until the tick's budget is used up."""
        pieces = self._pieces
        assert pieces is not None, "the handshake is over"
        while data and not self.ended:
            self._ws.receive_data(pieces.cut(data))
            data = pieces.rest
            self._process()
            if data and (self.inner is None or self.inner.lost or steps.pauses(self.inner, [data], 0)):
                return

    def _go_on(self, inner: Stepping) -> None:
        """Handle the rest of a read, then the end of the connection, if that has come meanwhile."""
        steps = self._steps
        assert steps is not None, "a read is handled in steps"
        self._handle(b"".join(steps.take_later()), steps)
        if not self._is_stepping:
            ends, self._ends = self._ends, ()
            for end in ends:
                end()

    def receive_eof(self) -> None:
        """The peer will send no more: without a close frame from it, nothing more can be sent."""
        if self._is_stepping:
            self._ends = (*self._ends, self.receive_eof)
            return
        if not self.ended:
            self._ws.receive_eof()
            self._process()
            self.ended = True
        super().receive_eof()

    def connection_lost(self) -> None:
        if self._is_stepping:  # the peer has sent these before
            self._ends = (*self._ends, self.connection_lost)
        else:
            super().connection_lost()
            self._steps = None  # it refers to this session
            if self._protocol is not None:
                self._protocol.parser.close()  # a generator, which refers to its object

    def _process(self) -> None:
        for event in self._ws.events_received():
            if isinstance(event, Request):
                self._answer(event)
            elif isinstance(event, Frame) and self.inner is not None:
                self._on_frame(event, self.inner)
        if self._ws.close_expected():
            self.ended = True

    def _answer(self, request: Request) -> None:
        """Accept or refuse the handshake."""
        response = self._ws.accept(request)
        wrong = self._ws.handshake_exc
        if wrong is not None:
            self._explain(response, without_calls(wrong))
        self._ws.send_response(response)
        if isinstance(wrong, InvalidOrigin):
            self._refused(str(wrong.value))
        elif isinstance(wrong, NegotiationError):
            self._foreign(_known(request.headers.get_all("Sec-WebSocket-Protocol")))
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            chosen = self._ws.subprotocol
            assert chosen is not None or self.bare, "a handshake without a subprotocol in common is refused"
            self.inner = self._offered[chosen or next(iter(self._offered))]()
            self._steps = ReadSteps(self._go_on)
            self._pieces = Pieces()

    def _explain(self, response: Response, wrong: Exception) -> None:
        """Say in the response why it is a refusal; the library's own words quote headers, which may hold a token."""
        if isinstance(wrong, InvalidOrigin):
            why = "pages of this site may not connect"
        elif isinstance(wrong, NegotiationError):
            why = f"the client has to offer one of the subprotocols {', '.join(self._offered)}"
        elif isinstance(wrong, InvalidHeader):
            why = f"the header {wrong.name} is missing or wrong; only a WebSocket client can connect here"
        else:
            why = "only a WebSocket client can connect here"
        response.body = f"Failed to open a WebSocket connection: {why}.\n".encode()
        del response.headers["Content-Length"]
        response.headers["Content-Length"] = str(len(response.body))

    def _on_frame(self, frame: Frame, inner: InnerSession) -> None:
        """Process part of a message or a close frame; the library has answered pings."""
        if frame.opcode is Opcode.CLOSE:
            self.ended = True
            inner.receive_eof()
        elif frame.opcode is Opcode.TEXT and not self.takes_text:
            self._ws.fail(CloseCode.UNSUPPORTED_DATA, "send binary messages")
            inner.receive_eof()
        elif frame.data and frame.opcode in (Opcode.BINARY, Opcode.CONT, Opcode.TEXT):
            inner.receive_data(bytes(frame.data))
        elif not inner.established and not inner.lost:
            self._empty_bytes += _HEADER_BYTES + len(frame.data)
            if self._empty_bytes > self._connect_bytes_max:
                inner.refuse_before_login(self._empty_bytes, self._connect_bytes_max)

    def data_to_send(self) -> bytes:
        """Return the output since the last call: that of the inner session is one message."""
        inner = self.inner
        if inner is not None and not self.ended:
            self._send_from(inner)
            if inner.close_expected:
                self.ended = True
                self._ws.send_close(CloseCode.NORMAL_CLOSURE)
        return b"" if self._protocol is None else b"".join(self._protocol.data_to_send())

    def _send_from(self, inner: Session) -> None:
        data = inner.data_to_send()
        if data:
            self._ws.send_binary(data)


def _known(offers: Sequence[str]) -> str:
    """The subprotocols of a client as the log names them: a page may hand over a token as one of them."""
    names = [name.strip() for offer in offers for name in offer.split(",")]
    known = [name for name in names if any(name in each for each in SUBPROTOCOLS.values())]
    return ", ".join(known + [f"{len(names) - len(known)} other"] * (len(known) < len(names)))


class _BareProtocol(ServerProtocol):
    """The library's side of a connection whose handshake may offer no subprotocol."""

    def select_subprotocol(self, subprotocols: Sequence[Subprotocol]) -> Subprotocol | None:
        """Select a subprotocol, if any is offered.  Raises NegotiationError if only others are."""
        return super().select_subprotocol(subprotocols) if subprotocols else None
