"""The TLS handshake on an accepted socket: in its turn, and with an alert for the peer when it fails.

A step of a handshake costs up to some milliseconds of CPU, and thousands of peers may send what it needs at the same
moment.  So whoever has sent something has to wait for a turn (`login_turns`), and meanwhile no more is read.

OpenSSL has an alert ready for a refused peer (its certificate is missing, expired, of an unknown authority, ...), but
an event loop closes the connection without sending it.  Here it is sent outside the loop, over the same socket, and the
socket is closed gracefully, as in `connection`: otherwise the kernel could discard the alert together with unread
input.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # that of its connections, which it does not name

from broker.net.connection import Connection, Origin, Ticking
from broker.net.login_turns import LoginTurns
from broker.net.tasks import supervised

#: Seconds for the TLS shutdown.
SHUTDOWN_SECONDS: Final = 2.0

#: Bytes that a refused peer may still send in that time before its socket is closed.
LINGER_BYTES_MAX: Final = 1 << 20

_READ_BYTES: Final = 16 << 10

#: OpenSSL's words for first bytes that are not TLS; a STOMP CONNECT looks to it like a request to a proxy.
_PLAIN_TEXT: Final = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "WRONG_VERSION_NUMBER")


async def shake(
    client: socket.socket,
    context: ssl.SSLContext,
    connection: Callable[[], asyncio.Protocol],
    *,
    turns: LoginTurns,
    origin: str,
    seconds: float,
    failed: Callable[[str], None],
) -> None:
    """Do the handshake of a peer at the address `origin`: `connection` takes over the socket, or `failed` gets why not.

    If `context` is a `Context`, the peer gets the reason too, and each step has its turn.
    """
    shaking = _Shaking(client, turns, origin)
    _SHAKING.set(shaking)
    try:
        await shaking.run(connection(), context, seconds)
    except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
        found = reason(error)
        failed(f"the client does not use TLS: {found}" if found in _PLAIN_TEXT else found)
        await shaking.linger()
    finally:
        shaking.close()


def reason(error: Exception) -> str:
    """Why a connection could not be made, or a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.reason}: {error.verify_message}"
    said = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(said or str(error) or type(error).__name__)


def name_and_origin(address: object) -> tuple[str, str]:
    """A peer as the log names it, and its address alone, empty if it has none."""
    return (f"{address[0]}:{address[1]}", str(address[0])) if isinstance(address, tuple) else ("local", "")


class _Shaking:
    """A handshake that goes on: it waits for its turns, and sends the alert on a socket that the event loop closes."""

    def __init__(self, client: socket.socket, turns: LoginTurns, origin: str) -> None:
        self._client = client
        self._own: socket.socket | None = None
        self._turns = turns
        self._origin = origin
        self._protocol: Any = None
        self._transport: asyncio.Transport | None = None  # below TLS
        self._early = False  # something was read before the loop said what the transport is
        self._has_turn = False

    async def run(self, connection: asyncio.Protocol, context: ssl.SSLContext, seconds: float) -> None:
        """Do the handshake, as `connect_accepted_socket` does with TLS.  Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._protocol = protocol = SSLProtocol(
            loop,
            connection,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        transport = protocol._get_app_transport(copy_context())  # noqa: SLF001  # as the loop does
        try:
            self._transport, _ = await loop.connect_accepted_socket(lambda: protocol, self._client)
            if self._early and not self._transport.is_closing():
                self._wait(self._transport)
            await done
        except BaseException:
            transport.close()
            if not done.cancel():
                done.exception()  # it has failed at the moment in which it lost its place
            raise
        finally:
            del done  # it may have an exception, whose traceback has this frame

    def step(self, step: Callable[[], None]) -> None:
        """Do what OpenSSL can do with the input that it has, if it is this peer's turn.  Raises SSLWantReadError."""
        if self._has_turn:
            step()
            return
        if self._turns.free:
            self._turns.run(step)
            return
        if self._transport is None:
            self._early = True
        else:
            self._wait(self._transport)
        raise ssl.SSLWantReadError

    def _wait(self, transport: asyncio.Transport) -> None:
        transport.pause_reading()
        self._turns.wait(self._origin, partial(self._have_turn, transport))

    def _have_turn(self, transport: asyncio.Transport) -> None:
        if transport.is_closing() or self._protocol is None:  # it took too long, or lost its place
            return
        transport.resume_reading()
        self._has_turn = True
        self._protocol.buffer_updated(0)  # as if something had been read
        self._has_turn = False

    def send_alert(self, alert: bytes) -> None:
        """Send the alert, and shut down our side."""
        with suppress(OSError):
            self._own = self._client.dup()
            self._own.send(alert)
            self._own.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """Discard the peer's input until it closes its side, or for a while."""
        if self._own is None:
            return
        loop, left = asyncio.get_running_loop(), LINGER_BYTES_MAX
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                while left > 0 and (data := await loop.sock_recv(self._own, _READ_BYTES)):
                    left -= len(data)

    def close(self) -> None:
        """Close the duplicated socket, if any, and let go of the connection, which keeps this in its context."""
        self._protocol = self._transport = None
        if self._own is not None:
            self._own.close()


#: The handshake of the current task or callback.
_SHAKING: Final[ContextVar[_Shaking]] = ContextVar("shaking")


class _Object(ssl.SSLObject):
    """One connection's TLS; `shaking` is set during the handshake."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    shaking: _Shaking | None

    def do_handshake(self) -> None:
        shaking = self.shaking
        try:
            if shaking is None or not self.incoming.pending:
                super().do_handshake()
            else:
                shaking.step(super().do_handshake)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if shaking is not None and self.outgoing.pending:
                shaking.send_alert(self.outgoing.read())
            raise
        self.shaking = None


class Context(ssl.SSLContext):
    """A context whose peers wait for their turns, and get an alert when a handshake fails."""

    sslobject_class = _Object

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(made, _Object), "sslobject_class makes these"
        made.incoming, made.outgoing, made.shaking = incoming, outgoing, _SHAKING.get(None)
        return made


class Handshake:
    """An accepted socket in its TLS handshake; if that succeeds, it becomes a connection of its origin.

    `over` is called when it has ended, successfully or not, and `failed` before that with the reason.  The origin's
    handshake timeout starts at the acceptance and covers both TLS and the login.
    """

    def __init__(
        self,
        origin: Origin,
        tick: Ticking,
        turns: LoginTurns,
        client: socket.socket,
        address: object,
        *,
        over: Callable[[Handshake], None],
        failed: Callable[[Handshake, str], None],
    ) -> None:
        self.known = False
        self.lingers = False  # it has failed, but that the peer may still read why
        self.remote, self.origin = name_and_origin(address)
        self._owner = origin
        self._tick = tick
        self._turns = turns
        self._socket = client
        self._over = over
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def begin(self, context: ssl.SSLContext) -> None:
        """Begin the handshake."""
        self._task = supervised(f"handshake with {self.remote}", self._shake(context))

    def end(self) -> None:
        """End it: its connection takes its place, or there is none."""
        self._over(self)

    def abort(self) -> None:
        """Abort the handshake."""
        if not self._begun:  # a task that is cancelled before it began does nothing
            self._socket.close()
            self.end()
        if self._task is not None:
            self._task.cancel()

    def leave(self) -> None:
        """Close: another connection takes this place."""
        self.abort()

    async def _shake(self, context: ssl.SSLContext) -> None:
        self._begun = True
        origin = self._owner
        started_at = origin.monotonic_ms()
        try:
            await shake(
                self._socket,
                context,
                lambda: SecuredConnection(self, origin, self._tick, started_at),
                turns=self._turns,
                origin=self.origin,
                seconds=max(origin.handshake_timeout, 1) / 1000,
                failed=self._note_failure,
            )
        finally:
            self.end()
            self._task = None  # it may have an exception, whose traceback has this handshake

    def _note_failure(self, reason: str) -> None:
        self.lingers = True
        self._failed(self, reason)


class SecuredConnection(Connection):
    """A connection made by a successful handshake."""

    __slots__ = ("_handshake",)

    def __init__(self, handshake: Handshake, origin: Origin, tick: Ticking, started_at: int) -> None:
        super().__init__(origin, tick, started_at=started_at)
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it as a connection, and no longer as a handshake."""
        self._handshake.end()
        super().connection_made(transport)
