"""The TLS handshake on an accepted socket, and the alert for a peer when it fails.

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
from contextvars import ContextVar
from typing import Final

from broker.net.connection import Connection, Origin, Ticking
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
    seconds: float,
    failed: Callable[[str], None],
) -> None:
    """Do the handshake: `connection` takes over the socket, or `failed` gets the reason.

    The peer gets it too if `context` is a `Context`.
    """
    farewell = _Farewell(client)
    _FAREWELL.set(farewell)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            connection, client, ssl=context, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=SHUTDOWN_SECONDS
        )
    except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
        found = reason(error)
        failed(f"the client does not use TLS: {found}" if found in _PLAIN_TEXT else found)
        await farewell.linger()
    finally:
        farewell.close()


def reason(error: Exception) -> str:
    """Why a connection could not be made, or a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.reason}: {error.verify_message}"
    said = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(said or str(error) or type(error).__name__)


def name_and_origin(address: object) -> tuple[str, str]:
    """A peer as the log names it, and its address alone, empty if it has none."""
    return (f"{address[0]}:{address[1]}", str(address[0])) if isinstance(address, tuple) else ("local", "")


class _Farewell:
    """Sends the alert of a failed handshake on a socket that the event loop closes."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._own: socket.socket | None = None

    def say(self, alert: bytes) -> None:
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
        """Close the duplicated socket, if any."""
        if self._own is not None:
            self._own.close()


#: The farewell of the handshake in the current task or callback.
_FAREWELL: Final[ContextVar[_Farewell]] = ContextVar("farewell")


class _Object(ssl.SSLObject):
    """One connection's TLS; `farewell` is set during the handshake."""

    outgoing: ssl.MemoryBIO
    farewell: _Farewell | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.farewell is not None and self.outgoing.pending:
                self.farewell.say(self.outgoing.read())
            raise
        self.farewell = None


class Context(ssl.SSLContext):
    """A context whose peers get an alert when a handshake fails."""

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
        made.outgoing, made.farewell = outgoing, _FAREWELL.get(None)
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
        if self._task is None or not self._begun:  # a task that is cancelled before it began does nothing
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
                seconds=max(origin.handshake_timeout, 1) / 1000,
                failed=self._note_failure,
            )
        finally:
            self.end()

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
