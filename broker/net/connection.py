"""A socket and its session: bytes in, bytes out, when to stop reading, when to hang up.  No protocol is known here.

Writes are watched with a high-water mark of zero: `pause_writing` means that the operating system has not yet taken
everything, `resume_writing` that it has.  So a session knows which of its bytes have left the process, and at most one
tick's worth of messages waits in it.  Over TLS up to 64 KiB more may be with the transport.  A peer that goes on asking
and does not read the answers is not read from.

A connection that ends with an error is closed gently: everything is sent, then our side is shut, then what the peer
still sends is discarded for a while.  Closing at once would let the kernel throw away the error message together with
the unread input.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from broker.engine.model.report import Report
from broker.security.certificates import subject_of
from broker.sessions.login import Peer
from broker.sessions.protocol_detection import FIRST_BYTES
from broker.sessions.session import Session
from broker.sessions.tick import Transport

#: How long a peer that was told to go may take to close its side, in ms.
LINGER_MS: Final = 2_000

#: A read of so many bytes ends a connection's share of the tick: what a tick touches then stays in the processor's
#: cache, which is worth a quarter of the time, and one fast producer does not keep the others waiting.
TICK_READ_BYTES: Final = 64 << 10

#: Bytes that the operating system does not take, beyond which the peer is not read from: its answers would gather here.
#: Sessions send up to 3 MiB of messages ahead; a client that writes all its requests before it reads has the rest.
OUTPUT_BYTES_MAX: Final = 8 << 20

#: Input discarded from such a peer before it is cut off, in bytes.
LINGER_BYTES_MAX: Final = 4 << 20


class Origin(Protocol):
    """Where connections come from: an acceptor, or what connects to other brokers."""

    report: Report
    congested: bool
    handshake_timeout: int

    @property
    def monotonic_ms(self) -> Callable[[], int]:
        """The clock of its timers."""

    def admit(self, connection: Connection) -> bool:
        """Give a new connection its session, or refuse it."""

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""

    def tell_foreign(self, connection: Connection, first: bytes) -> None:
        """A connection ended before it was established; `first` is what had come."""


class Ticking(Protocol):
    """What a connection asks of the tick (see Tick)."""

    def enter(self) -> None:
        """Begin the tick unless it has begun."""

    def touch(self, transport: Transport) -> None:
        """This transport has something to write at the end of the tick."""

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """An exception came out of what was called for it."""


class Connection(asyncio.Protocol):
    """One connection.  Times are the monotonic milliseconds of its origin."""

    __slots__ = (
        "_closing_since",
        "_discarded",
        "_ended",
        "_first",
        "_flushing",
        "_origin",
        "_overfull",
        "_paused",
        "_received_at",
        "_sated",
        "_sent_at",
        "_started_at",
        "_tick",
        "_transport",
        "_unsent",
        "peer",
        "session",
    )

    def __init__(self, origin: Origin, tick: Ticking, *, started_at: int | None = None) -> None:
        self._origin = origin
        self._tick = tick
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._overfull = False  # does not read what it asked for
        self._sated = False  # has had its share of this tick
        self._flushing = False
        self._unsent = False
        self._closing_since = 0
        self._discarded = 0
        self._ended = False  # the peer has shut its side
        self._first: bytes | None = None  # of what it sent before it was established: it may be another protocol
        self._received_at = self._sent_at = origin.monotonic_ms()
        self._started_at = self._received_at if started_at is None else started_at
        self.peer = Peer("local")
        self.session: Session | None = None

    @property
    def remote(self) -> str:
        """The peer's address and port."""
        return self.peer.remote

    # -- the event loop's callbacks --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected: it gets a session, or is refused."""
        transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._transport = transport
        secure = transport.get_extra_info("sslcontext") is not None
        # What TLS holds back for a full socket is counted from the first byte on; 0 would mean: always paused.
        transport.set_write_buffer_limits(high=1 if secure else 0, low=0)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            subject = subject_of(transport.get_extra_info("peercert"))
            self.peer = Peer(f"{peer[0]}:{peer[1]}", str(peer[0]), secure, subject)
        try:
            if not self._origin.admit(self):
                transport.abort()
        except BaseException as error:
            self._tick.failed(self, error)

    def data_received(self, data: bytes) -> None:
        """Bytes: to the session, or nowhere if the connection is about to close."""
        if self._closing_since:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self.abort()
            return
        self._received_at = self._origin.monotonic_ms()
        session = self.session
        if session is None:
            return
        tick = self._tick
        tick.enter()
        try:
            session.receive_data(data)
        except BaseException as error:
            tick.failed(self, error)
        if self._first is None:
            self._first = b"" if session.established else data[:FIRST_BYTES]
        tick.touch(self)
        if len(data) >= TICK_READ_BYTES and not self._sated and self._transport is not None:
            self._sated = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer has shut its side; ours stays open for what it is still owed."""
        if self._closing_since or self.session is None:
            return False
        self._ended = True
        self._tell(self.session.receive_eof)
        self._tick.touch(self)
        return not self.peer.secure  # TLS has no halves: both sides end with one

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._transport = None
        self._origin.forget(self)
        session, self.session = self.session, None
        if session is not None:
            self._tell(session.connection_lost)

    def _tell(self, call: Callable[[], None]) -> None:
        """Call the session, within a tick: an exception costs this connection."""
        self._tick.enter()
        try:
            call()
        except BaseException as error:
            self._tick.failed(self, error)

    def pause_writing(self) -> None:
        """The operating system has not taken everything."""
        self._unsent = True
        if self.session is not None:
            self._tell(self.session.write_blocked)

    def resume_writing(self) -> None:
        """It has now."""
        self._unsent = False
        if self._overfull:
            self._overfull = False
            self._apply_reading()
        if self.session is not None and not self._flushing:
            self._tell(self.session.flushed)
            self._tick.touch(self)

    # -- what the session asks for ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the session has to send, once; hang up if it is done."""
        session, transport = self.session, self._transport
        if session is None or transport is None:
            return
        if self._sated:
            self._sated = False
            self._apply_reading()
        data = session.data_to_send()
        if data:
            self._flushing = True
            try:
                transport.write(data)
            finally:
                self._flushing = False
            self._sent_at = self._origin.monotonic_ms()
            if not self._unsent:
                self._tick.enter()
                session.flushed()
            elif not self._overfull and transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
                self._overfull = True
                self._apply_reading()
        if session.close_expected and not self._closing_since:
            if not session.established and self._first:
                self._origin.tell_foreign(self, self._first)
            self._hang_up(transport)

    def pause_reading(self) -> None:
        """Take no more bytes for now."""
        self._paused = True
        self._apply_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self._paused = False
        self._received_at = self._origin.monotonic_ms()
        self._apply_reading()

    def _apply_reading(self) -> None:
        """Reading stops for the session (a full address), the listener (a busy journal), or a peer (it does not)."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._paused or self._overfull or self._origin.congested:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def congestion_changed(self) -> None:
        """The journal fell behind, or caught up."""
        if not self._closing_since:
            self._received_at = self._origin.monotonic_ms()
            self._apply_reading()

    # -- time ------------------------------------------------------------------------------------------------------

    def check(self, now: int, period: int) -> None:
        """Timers, looked at every `period` ms: handshake, silence of either side, lingering."""
        session = self.session
        if self._closing_since:
            if now - self._closing_since >= LINGER_MS:
                self.abort()
        elif session is None:
            return
        elif not session.established:
            if 0 < self._origin.handshake_timeout <= now - self._started_at:
                self._origin.report("connection.handshake_timeout", remote=self.remote)
                self.abort()
        elif session.receive_timeout and now - self._received_at > session.receive_timeout and self._reading:
            self._tell(session.timed_out)
            if session.close_expected:
                self._tick.touch(self)  # it says goodbye first
            else:
                self.abort()
        elif session.send_interval and now - self._sent_at >= session.send_interval - 2 * period:
            self._sent_at = now
            self._tell(session.send_heartbeat)

    @property
    def _reading(self) -> bool:
        return not self._paused and not self._origin.congested

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self, *, moved: bool = False) -> None:
        """The broker stops: the session says goodbye.  `moved`: see Session."""
        if self.session is not None and not self._closing_since:
            self._tell(partial(self.session.shut_down, moved=moved))
            self._tick.touch(self)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        self._closing_since = self._origin.monotonic_ms()
        if transport.is_closing():
            return
        transport.resume_reading()
        if transport.can_write_eof() and not self._ended:
            transport.write_eof()
        else:
            transport.close()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()
