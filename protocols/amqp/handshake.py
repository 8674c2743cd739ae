"""Before OPEN: protocol headers (part 2, 2.2) and SASL (part 5).

A server reads the client's header first.  It answers with the same header, or with one that it would accept and then
closes the connection: for another version, an unknown protocol, TLS by protocol header (not offered: TLS begins with
the first byte or not at all), AMQP where SASL is required.

    client  AMQP 3.1.0.0                 init              AMQP 0.1.0.0    open ...
    server               AMQP 3.1.0.0 mechanisms    outcome              AMQP 0.1.0.0

This module handles only the framing and the order of a SASL exchange, not the contents of the mechanisms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocols.amqp.composite import Composite, decode_body
from protocols.amqp.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    DecodeError,
    connection_error,
    format_value,
)
from protocols.amqp.events import Event
from protocols.amqp.frames import (
    AMQP_HEADER,
    FRAME_HEADER_BYTES,
    PROTOCOL_HEADER_BYTES,
    SASL_HEADER,
    TLS_HEADER,
    TYPE_SASL,
    Input,
    check_header,
    frame,
    unpack_header,
)
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from protocols.amqp.state import SASL, SaslState

#: The frames that each role reads.
_READ_BY_SERVER: Final = (SaslInit, SaslResponse)
_READ_BY_CLIENT: Final = (SaslMechanisms, SaslChallenge, SaslOutcome)

_OUTCOMES: Final = {True: "sasl-outcome(ok)", False: "sasl-outcome(failed)"}

#: What else is named in an error if a connection begins with it; the protocol header has eight bytes.
_WORDS: Final = (b"GET", b"HEAD", b"POST", b"PUT", b"CONNECT", b"STOMP", b"SSH-2.0")

_NO_TLS: Final = "TLS does not begin with a protocol header here: connect with TLS from the first byte on (amqps)."


class Handshake:
    """The part of a connection that ends with the AMQP protocol headers.

    `mechanisms` are the server's; without any there is no SASL, in either role.
    """

    def __init__(
        self, limits: Limits, out: list[bytes], *, server: bool, mechanisms: Sequence[str], required: bool
    ) -> None:
        self.state: SaslState | None = None  # without SASL, or before it
        self._limits = limits
        self._out = out
        self._server = server
        self._mechanisms = tuple(mechanisms)
        self._required = required and bool(mechanisms)
        self._rounds = 0
        self.amqp_sent = not server and not mechanisms
        if not server:
            out.append(SASL_HEADER if mechanisms else AMQP_HEADER)

    @property
    def waits(self) -> bool:
        """Whether it is this side's turn: nothing is read then."""
        mine = (SaslState.ANSWERING,) if self._server else (SaslState.OFFERED, SaslState.CHALLENGED)
        return self.state in mine or self.state is SaslState.FAILED

    def read(self, source: Input, events: list[Event]) -> bool:
        """Read the available bytes; returns whether the AMQP headers are exchanged.  Raises AmqpError."""
        while not self.waits:
            left = len(source.buffer) - source.at
            if self.state is None or self.state is SaslState.DONE:
                header = source.buffer[source.at : source.at + PROTOCOL_HEADER_BYTES]
                if left < PROTOCOL_HEADER_BYTES and header[:4] == AMQP_HEADER[: len(header[:4])]:
                    source.wait(source.at, PROTOCOL_HEADER_BYTES - left)
                    return False
                source.at += PROTOCOL_HEADER_BYTES
                if self._header(header):
                    return True
            elif not self._frame(source, left, events):
                return False
        source.wait(source.at, 0)
        return False

    def _header(self, header: bytes) -> bool:
        """Handle a protocol header; returns whether it was AMQP's, and was expected."""
        if not self._server:
            return self._answered(header)
        if header == AMQP_HEADER and (self.state is SaslState.DONE or not self._required):
            self._out.append(AMQP_HEADER)
            return True
        if header == SASL_HEADER and self._mechanisms and self.state is None:
            self._out.append(SASL_HEADER)
            self.state = SaslState.BEGUN
            self._send(SaslMechanisms(self._mechanisms))
            return False
        self._out.append(SASL_HEADER if self._mechanisms and self.state is None else AMQP_HEADER)
        raise self._refused(header)

    def _answered(self, header: bytes) -> bool:
        """Handle the server's header, which should equal ours."""
        sasl = bool(self._mechanisms) and self.state is not SaslState.DONE
        if header != (SASL_HEADER if sasl else AMQP_HEADER):
            raise connection_error(NOT_IMPLEMENTED, f"The server wants to speak {format_value(header)}.")
        if sasl:
            self.state = SaslState.BEGUN
        return not sasl

    def _refused(self, header: bytes) -> AmqpError:
        if header[:4] != AMQP_HEADER[:4]:
            return connection_error(FRAMING_ERROR, f"A connection begins with AMQP, not with {_named(header)}.")
        if header == TLS_HEADER:
            return connection_error(NOT_IMPLEMENTED, _NO_TLS)
        if header == AMQP_HEADER:
            return connection_error(UNAUTHORIZED_ACCESS, "A login is needed: begin with the SASL protocol header.")
        if header == SASL_HEADER:
            return connection_error(NOT_ALLOWED, "SASL comes once." if self._mechanisms else "There is no SASL here.")
        version = f"{header[5]}.{header[6]}.{header[7]} (protocol id {header[4]})"
        return connection_error(NOT_IMPLEMENTED, f"This server speaks AMQP 1.0.0, not {version}.")

    def _frame(self, source: Input, left: int, events: list[Event]) -> bool:
        """Read a SASL frame; False if it is incomplete."""
        at = source.at
        if left < FRAME_HEADER_BYTES:
            source.wait(at, FRAME_HEADER_BYTES - left)
            return False
        size, doff, kind, _ = unpack_header(source.buffer, at)
        check_header(size, doff, kind, TYPE_SASL, self._limits.handshake_bytes_max, opened=False)
        if left < size:
            source.wait(at, size - left)
            return False
        body, end = at + 4 * doff, at + size
        if body == end:
            raise connection_error(FRAMING_ERROR, "A SASL frame must not be empty.")
        performative, stop = decode_body(source.buffer, at, body, end, self._limits)
        if stop != end:
            raise DecodeError(stop - at, f"{end - stop} bytes after the body of a SASL frame")
        source.at = end
        events.append(self._receive(performative))
        return True

    def _receive(self, frame: Composite) -> SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome:
        wanted = _READ_BY_SERVER if self._server else _READ_BY_CLIENT
        if not isinstance(frame, wanted):
            raise connection_error(NOT_ALLOWED, f"{frame.NAME} is not allowed from the peer in a SASL exchange.")
        self._step(frame)
        self._rounds += 1
        if self._rounds > self._limits.sasl_rounds_max:
            text = f"A SASL exchange may have {self._limits.sasl_rounds_max} rounds."
            raise connection_error(RESOURCE_LIMIT_EXCEEDED, text)
        if isinstance(frame, SaslOutcome) and frame.code == SaslCode.OK:
            self._out.append(AMQP_HEADER)
            self.amqp_sent = True
        return frame

    def _step(self, frame: Composite) -> None:
        """Change the state by a frame.  Raises AmqpError."""
        trigger = _OUTCOMES[frame.code == SaslCode.OK] if isinstance(frame, SaslOutcome) else frame.NAME
        assert self.state is not None
        state = SASL[self.state].get(trigger)
        if state is None:
            raise connection_error(ILLEGAL_STATE, f"{frame.NAME} is not expected here: {self.state.value}.")
        self.state = state

    def _send(self, frame_body: Composite) -> None:
        self._step(frame_body)
        self._out.append(frame(0, frame_body.encode(), TYPE_SASL))

    def fail(self) -> None:
        """End an exchange that the client has broken when it was its turn: an outcome is all that can tell it so."""
        if self._server and self.state in (SaslState.OFFERED, SaslState.CHALLENGED):
            self.state = SaslState.FAILED
            self._out.append(frame(0, SaslOutcome(SaslCode.SYS_PERM).encode(), TYPE_SASL))

    def send(self, frame_body: SaslInit | SaslChallenge | SaslResponse | SaslOutcome) -> None:
        """Send a SASL frame, when it is this side's turn.  After an outcome other than `ok` nothing more is read."""
        assert self.waits
        self._send(frame_body)


def _named(first: bytes) -> str:
    """The first bytes of something else, as an error names them: any other text may be a password."""
    return next((f"'{word.decode()}'" for word in _WORDS if first.startswith(word)), "other bytes")
