"""One AMQP 1.0 connection on a raw socket, with one session: blocking until its links are attached, then not.

Control frames are made and read by the project's codec, which is tested against other clients' encodings; transfers and
dispositions, of which there are many, are prebuilt by `amqp_producer` and `amqp_consumer`, and only counted here.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from bench.link import HANDSHAKE_S, READ_BYTES, BrokerFailed, Link
from protocols.amqp.composite import Composite, decode_body
from protocols.amqp.decode import DEFAULT_LIMITS
from protocols.amqp.errors import AmqpError
from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TYPE_SASL, frame
from protocols.amqp.performatives import (
    RECEIVER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)

FRAME_BYTES: Final = 1 << 20  # the largest frame that we take: any message of the benchmark in one
WINDOW: Final = 0x7FFF_FFFF  # transfers that we take without another FLOW of the session's: all of a run
TRANSFER: Final = b"\x00\x53\x14"
BODY_AT: Final = 8  # of a frame with doff 2, as all clients and brokers send them


class AmqpLink:
    """`ask` and `attach` block for an answer; `read` and `flush` never block.

    window: how many transfers the broker takes at first. heard: what it said before an answer, for whom it concerns.
    """

    __slots__ = ("_carry", "_numbers", "_out", "heard", "link", "window")

    def __init__(self, sock: socket.socket) -> None:
        self.link = Link(sock)
        self.window = 0
        self.heard: list[Composite] = []
        self._numbers: dict[int, int] = {}  # our handles by the broker's
        self._carry = b""
        self._out = b""

    @classmethod
    def connect(cls, host: str, port: int, login: str | None, passcode: str | None, name: str) -> AmqpLink:
        """Log in, open, begin.  Raises OSError when nobody listens, BrokerFailed when the broker refuses."""
        sock = socket.create_connection((host, port), timeout=HANDSHAKE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = cls(sock)
        try:
            made._log_in(login, passcode)
            made.ask(Open, Open(name, host, FRAME_BYTES))
            begun = made.ask(Begin, Begin(None, 0, WINDOW, WINDOW))
            assert isinstance(begun, Begin)
            made.window = begun.incoming_window
        except BaseException:
            made.close()
            raise
        return made

    def _log_in(self, login: str | None, passcode: str | None) -> None:
        anonymous = login is None
        response = b"anonymous" if anonymous else f"\0{login}\0{passcode or ''}".encode()
        self._out = SASL_HEADER
        self._expect(SASL_HEADER)
        self.ask(SaslMechanisms)
        init = SaslInit("ANONYMOUS" if anonymous else "PLAIN", response)
        self._out += frame(0, init.encode(), TYPE_SASL)
        outcome = self.ask(SaslOutcome)
        assert isinstance(outcome, SaslOutcome)
        if outcome.code:
            raise BrokerFailed(f"the broker refuses to let in {login or 'anybody'}: SASL outcome {outcome.code}")
        self._out += AMQP_HEADER
        self._expect(AMQP_HEADER)

    # -- blocking --------------------------------------------------------------------------------------------------

    def ask(self, kind: type[Composite], *performatives: Composite) -> Composite:
        """Send performatives, and wait for the broker's next one of a kind; what comes before it is in `heard`."""
        self._out += b"".join([frame(0, performative.encode()) for performative in performatives])
        while True:
            size = int.from_bytes(self._take(4, keep=True))
            raw = self._take(size)
            if size > BODY_AT:
                found = self.control(raw, 0, size)
                if isinstance(found, kind):
                    return found
                self.heard.append(found)

    def attach(self, link: Attach) -> None:
        """Attach a link.  Raises BrokerFailed if the broker refuses it."""
        answer = self.ask(Attach, link)
        assert isinstance(answer, Attach)
        self._numbers[answer.handle] = link.handle
        if (answer.source if link.role is RECEIVER else answer.target) is None:  # its DETACH says why, and fails us
            self.ask(Detach)

    def number(self, handle: int) -> int:
        """Our handle of the link that the broker calls so.  Raises BrokerFailed."""
        if handle not in self._numbers:
            raise BrokerFailed(f"the broker has attached no link with the handle {handle}")
        return self._numbers[handle]

    def _expect(self, header: bytes) -> None:
        if (answer := self._take(len(header))) != header:
            raise BrokerFailed(f"the broker answers {header!r} with {answer!r}")

    def _take(self, count: int, *, keep: bool = False) -> bytes:
        """The next bytes, after everything of ours is out."""
        sock = self.link.sock
        sock.settimeout(HANDSHAKE_S)
        try:
            sock.sendall(self._out)
            self._out = b""
            while len(self._carry) < count:
                data = sock.recv(READ_BYTES)
                if not data:
                    raise BrokerFailed("the broker closed the connection before it was set up")
                self._carry += data
        except TimeoutError:
            raise BrokerFailed(f"no answer in {HANDSHAKE_S:.0f} s") from None
        finally:
            sock.setblocking(False)
        taken = self._carry[:count]
        if not keep:
            self._carry = self._carry[count:]
        return taken

    # -- under load ------------------------------------------------------------------------------------------------

    def say(self, performative: Composite) -> None:
        """Send a performative with the next `flush`."""
        self._out += frame(0, performative.encode())

    def write(self, data: bytes) -> None:
        """Send frames with the next `flush`."""
        self._out += data

    def flush(self) -> None:
        """Send what the socket takes of what waits."""
        if self._out:
            self._out = self._out[self.link.send(self._out) :]

    def read(self) -> tuple[bytes, list[int]]:
        """Bytes, and where the whole frames in them begin; the last of these places is where they end."""
        data = self._carry + self.link.receive()
        places, at, end = [0], 0, len(data)
        while at + 4 <= end and (stop := at + int.from_bytes(data[at : at + 4])) <= end:
            if stop < at + BODY_AT:
                raise BrokerFailed(f"a frame of {stop - at} bytes")
            places.append(stop)
            at = stop
        self._carry = data[at:]
        return data, places

    def control(self, data: bytes, at: int, end: int) -> Composite:
        """The performative of a frame.  Raises BrokerFailed if it cannot be read, or ends anything by an error."""
        performative, _ = decoded(data, at, end)
        if isinstance(performative, Detach | End | Close) and performative.error is not None:
            why = performative.error
            raise BrokerFailed(f"broker says {performative.NAME}: {why.condition}: {why.description}")
        if isinstance(performative, End | Close):
            raise BrokerFailed(f"broker says {performative.NAME}")
        return performative

    def close(self) -> None:
        """The end of the connection; the broker's answer to CLOSE is not waited for."""
        self.say(Close())
        with contextlib.suppress(BrokerFailed):
            self.flush()
        self.link.sock.close()


def decoded(data: bytes, at: int, end: int) -> tuple[Composite, int]:
    """The performative of a frame, and where it ends.  Raises BrokerFailed if it cannot be read."""
    try:
        return decode_body(data, at, at + 4 * data[at + 4], end, DEFAULT_LIMITS)
    except AmqpError as error:
        raise BrokerFailed(f"the broker's frame {data[at:end][:200]!r} cannot be read: {error}") from None
