"""A socket and its session: bytes in, bytes out, when to stop reading, when to close.  Independent of protocols.

Writes use a high-water mark of zero: `pause_writing` means that the operating system has not yet taken everything,
`resume_writing` that it has.  So a session knows which of its bytes have left the process, and at most one tick's worth
of messages waits in it.  Over TLS up to 64 KiB more may be in the transport.  The broker stops reading from a peer that
sends requests but does not read the answers.

A connection that ends with an error is closed gracefully: everything is sent, then our side is shut down, then further
input is discarded for a while.  Closing at once would make the kernel discard the error message together with the
unread input.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from broker.engine.model.report import Report
from broker.net.login_turns import LoginTurns
from broker.security.certificates import subject_of
from broker.sessions.login import Peer
from broker.sessions.protocol_detection import FIRST_BYTES
from broker.sessions.session import Session
from broker.sessions.tick import Transport

#: Ms for a peer to close its side after the broker has shut down its own.
LINGER_MS: Final = 2_000

#: A read of this many bytes ends a connection's share of the tick: a tick's data then stays in the processor's cache,
#: which saves a quarter of the time, and one fast producer does not keep others waiting.
TICK_READ_BYTES: Final = 64 << 10

#: Unsent bytes above which the broker stops reading from the peer, since answers would pile up.  Sessions send up to 3
#: MiB of messages ahead; the rest is for clients that write all their requests before they read.
OUTPUT_BYTES_MAX: Final = 8 << 20

#: Bytes of input discarded while closing before the connection is aborted.
LINGER_BYTES_MAX: Final = 4 << 20


class Origin(ABC):
    """The owner of connections: an acceptor, or the dialer of links.  `handshake_timeout` is in ms.

    `logins`: the turns in which peers log in; None: this broker has chosen them.
    """

    def __init__(
        self,
        report: Report,
        monotonic_ms: Callable[[], int],
        handshake_timeout: int,
        logins: LoginTurns | None = None,
    ) -> None:
        self.logins = logins
        self.report = report
        self.monotonic_ms = monotonic_ms
        self.handshake_timeout = handshake_timeout
        self.congested = False
        self.connections: dict[Connection, None] = {}

    @abstractmethod
    def admit(self, connection: Connection) -> bool:
        """Give a new connection a session, or refuse it."""

    @abstractmethod
    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""

    @abstractmethod
    def release(self, connection: Connection) -> None:
        """Free the place of a connection at once: if it has not begun, it must not."""

    @abstractmethod
    def closing(self, connection: Connection) -> None:
        """Note that a connection is about to end, and lingers until the peer closes its side."""

    @abstractmethod
    def report_foreign(self, connection: Connection, first: bytes) -> None:
        """Note that a connection ended before it was established; `first` is the beginning of its input."""

    def set_congested(self, congested: bool) -> None:
        """Stop or resume reading from all connections, as the journal falls behind or catches up."""
        if congested != self.congested:
            self.congested = congested
            for connection in self.connections:
                connection.congestion_changed()

    def shut_down(self, *, moved: bool = False) -> None:
        """End all connections gracefully.  `moved`: see Session."""
        for connection in list(self.connections):
            connection.shut_down(moved=moved)

    def abort(self) -> None:
        """Abort all connections."""
        for connection in list(self.connections):
            connection.abort()


class Ticking(Protocol):
    """The part of the tick that connections use (see Tick)."""

    def enter(self) -> None:
        """Begin a tick unless one has begun."""

    def touch(self, transport: Transport) -> None:
        """Flush this transport at the end of the tick."""

    def end_connection(self, transport: Transport, call: Callable[[], None]) -> None:
        """Make a call that ends a connection, in this tick or a later one."""

    def failed(self, transport: Transport | None, error: BaseException) -> None:
        """Handle an exception of a call for this transport."""


class Connection(asyncio.Protocol):
    """One connection.  Times are the monotonic milliseconds of its origin."""

    __slots__ = (
        "_closing_since",
        "_discarded",
        "_ended",
        "_first",
        "_flushing",
        "_number",
        "_origin",
        "_overfull",
        "_paused",
        "_received_at",
        "_sated",
        "_sent_at",
        "_started_at",
        "_tick",
        "_transport",
        "_turn_awaited",
        "_unsent",
        "_waiting",
        "gone",
        "peer",
        "session",
    )

    def __init__(self, origin: Origin, tick: Ticking, *, started_at: int | None = None) -> None:
        self._origin = origin
        self._tick = tick
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._overfull = False  # the peer does not read its answers
        self._sated = False  # has had its share of this tick
        self._flushing = False
        self._unsent = False
        self._number = -1  # of its socket, if that is watched until the peer has logged in
        self._turn_awaited = False  # it is not read before it has its turn
        self._waiting = 0  # calls that wait for their turn, as the peer had not logged in
        self._closing_since = 0
        self._discarded = 0
        self._ended = False  # the peer has shut its side
        self._first: bytes | None = None  # the first input before it was established: may be another protocol
        self._received_at = self._sent_at = origin.monotonic_ms()
        self._started_at = self._received_at if started_at is None else started_at
        self.gone = False  # the peer has hung up, which the event loop may not have read yet
        self.peer = Peer("local")
        self.session: Session | None = None

    # -- its place among the connections of an acceptor (see `admission.Slot`) --------------------------------------

    @property
    def known(self) -> bool:
        """Whether the peer has logged in, and its connection does not end."""
        return self.session is not None and self.session.established and not self.lingers

    @property
    def origin(self) -> str:
        """The peer's address; empty if it has none."""
        return self.peer.origin

    @property
    def lingers(self) -> bool:
        """Whether it has ended, but that the peer may still read why, or has hung up unnoticed."""
        return self.gone or bool(self._closing_since)

    @property
    def leaving(self) -> bool:
        """Whether it is about to end: the peer has said that it sends no more, or the session has ended."""
        return self._ended or bool(self._closing_since) or self._transport is None

    @property
    def fileno(self) -> int:
        """The number of its socket; -1: it has none any more."""
        transport = self._transport
        return -1 if transport is None else transport.get_extra_info("socket").fileno()

    @property
    def remote(self) -> str:
        """The peer's address and port."""
        return self.peer.remote

    def leave(self) -> None:
        """Close: another connection takes this place."""
        if self._transport is None:
            self._origin.release(self)  # it has not begun, and will not be admitted
        else:
            self.abort()

    # -- the event loop's callbacks --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give a new peer a session, or refuse it."""
        transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._transport = transport
        secure = transport.get_extra_info("sslcontext") is not None
        # TLS counts what it buffers for a full socket from the first byte; 0 would mean always paused.
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
        """Pass bytes to the session; discard them if the connection is closing."""
        if self._closing_since:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES_MAX:
                self.abort()
            return
        self._received_at = self._origin.monotonic_ms()
        session = self.session
        if session is None:
            return
        if session.established and not self._waiting:
            self._receive(data)
        else:
            self._in_turn(partial(self._receive, data), len(data))
            self._await_turn()

    def await_login_turn(self) -> None:
        """Until its peer has logged in, let it be read when it has its turn among all such (`read_turns`)."""
        if self.session is not None and not (self.session.established or self.peer.secure):
            self._number = self.fileno
            self._await_turn()

    def _await_turn(self) -> None:
        """If the peer has not logged in yet, read nothing more until the next turn."""
        number, session, logins = self._number, self.session, self._origin.logins
        if number < 0 or session is None or logins is None:
            return
        if session.established or self._closing_since:
            self._end_turns()
        elif not self._waiting and not self._turn_awaited:
            self._turn_awaited = logins.reads.wait(number, self)
            self._apply_reading()

    def read_next(self) -> None:
        """It has its turn: read what has come (see Unread)."""
        self._turn_awaited = False
        if self.session is not None and self.session.established:
            self._end_turns()
        self._apply_reading()

    def _end_turns(self) -> None:
        """Read it without turns from now on: the peer has logged in, or the connection ends."""
        number, self._number, self._turn_awaited = self._number, -1, False
        if number >= 0 and self._origin.logins is not None:
            self._origin.logins.reads.forget(number)

    def _in_turn(self, call: Callable[[], None], held: int = 0) -> None:
        """Make a call that a peer has caused which has not logged in, maybe later; `held`: the bytes in it."""
        logins = self._origin.logins
        if logins is None:
            call()
        elif logins.free and not self._waiting:
            logins.run(call)
        elif logins.wait(self.origin, partial(self._have_turn, call), held):
            self._waiting += 1
            self._apply_reading()
        else:
            self.abort()

    def _have_turn(self, call: Callable[[], None]) -> None:
        self._waiting -= 1
        call()
        if not self._waiting and not self._closing_since:
            self._await_turn()
            self._apply_reading()

    def _receive(self, data: bytes) -> None:
        session = self.session
        if session is None or self._closing_since:
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
        """The peer has shut down its side; ours stays open for the remaining output."""
        if self._closing_since or self.session is None:
            return False
        self._ended = True
        ended = partial(self._tick.end_connection, self, self.session.receive_eof)
        if self._waiting:  # it comes after what it has sent
            self._in_turn(ended)
        else:
            ended()
        return not self.peer.secure  # TLS cannot be half-closed

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: end the session.  Thousands may be closed before anything else happens."""
        self._transport = None
        if self._number >= 0:
            self._end_turns()
        self._origin.forget(self)
        if self._waiting:
            self._in_turn(self._end_session)
        else:
            self._end_session()

    def _end_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            self._note_foreign(session)
            self._tick.end_connection(self, session.connection_lost)

    def _note_foreign(self, session: Session) -> None:
        """Report once, before it ends, that the peer may have meant another acceptor."""
        if self._first and not session.established:
            self._origin.report_foreign(self, self._first)
        self._first = b""

    def _tell(self, call: Callable[[], None]) -> None:
        """Call the session within a tick; an exception ends this connection only."""
        self._tick.enter()
        try:
            call()
        except BaseException as error:
            self._tick.failed(self, error)

    def pause_writing(self) -> None:
        """The operating system has not taken all output: tell the session."""
        self._unsent = True
        if self.session is not None:
            self._tell(self.session.write_blocked)

    def resume_writing(self) -> None:
        """The operating system has taken all output: tell the session."""
        self._unsent = False
        if self._overfull:
            self._overfull = False
            self._apply_reading()
        if self.session is not None and not self._flushing:
            self._tell(self.session.flushed)
            self._tick.touch(self)

    # -- called by the session and the tick ------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the session's output; close if the session is done.  Nothing can be written after that."""
        session, transport = self.session, self._transport
        if session is None or transport is None or self._closing_since:
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
        if session.close_expected:
            self._note_foreign(session)
            self._hang_up(transport)

    def pause_reading(self) -> None:
        """Stop reading for now."""
        self._paused = True
        self._apply_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False
        self._received_at = self._origin.monotonic_ms()
        self._apply_reading()

    def _apply_reading(self) -> None:
        """Stop reading for the session (a full address), the owner (a busy journal) or the peer (it does not read)."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._paused or self._overfull or self._waiting or self._turn_awaited or self._origin.congested:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def congestion_changed(self) -> None:
        """Apply a change of the owner's congestion: the journal fell behind, or caught up."""
        if not self._closing_since:
            self._received_at = self._origin.monotonic_ms()
            self._apply_reading()

    # -- time ------------------------------------------------------------------------------------------------------

    def check(self, now: int, period: int) -> None:
        """Check the timers, every `period` ms: handshake, silence of either side, lingering."""
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
            self._tick.end_connection(self, partial(self._time_out, session))
        elif session.send_interval and now - self._sent_at >= session.send_interval - 2 * period:
            self._sent_at = now
            self._tell(session.send_heartbeat)

    def _time_out(self, session: Session) -> None:
        """End the session of a silent peer, unless it has ended meanwhile."""
        if session is self.session and not session.close_expected:
            session.timed_out()
            if not session.close_expected:
                self.abort()  # it has no farewell to send

    @property
    def _reading(self) -> bool:
        return not (self._paused or self._waiting or self._origin.congested)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shut_down(self, *, moved: bool = False) -> None:
        """Let the session end because the broker stops.  `moved`: see Session."""
        if self.session is not None and not self._closing_since:
            self._tell(partial(self.session.shut_down, moved=moved))
            self._tick.touch(self)

    def _hang_up(self, transport: asyncio.Transport) -> None:
        self._closing_since = self._origin.monotonic_ms()
        self._origin.closing(self)
        self._end_turns()
        if transport.is_closing():
            return
        transport.resume_reading()
        if transport.can_write_eof() and not self._ended:
            transport.write_eof()
        else:
            transport.close()

    def abort(self) -> None:
        """Abort the connection at once."""
        if self._transport is not None:
            self._transport.abort()
