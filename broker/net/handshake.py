"""The handshake of TLS on a socket that was accepted, and what a peer is told with whom it fails.

OpenSSL has an alert ready for a peer that is refused (its certificate is missing, expired, of an unknown authority,
...), but an event loop closes the connection without it.  Here it is sent beside the loop, over the same socket, and
the socket is closed gently, as by `connection`: else the kernel could throw the alert away together with input that
nobody read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Final

#: How long the goodbye of TLS may take, in seconds.
SHUTDOWN_SECONDS: Final = 2.0

#: Bytes that a refused peer may still send in that time before it is cut off.
LINGER_BYTES_MAX: Final = 1 << 20

_READ_BYTES: Final = 16 << 10


async def shake(
    client: socket.socket,
    context: ssl.SSLContext,
    connection: Callable[[], asyncio.Protocol],
    *,
    seconds: float,
    failed: Callable[[str], None],
) -> None:
    """Shake hands: the socket is `connection`'s then, or `failed` is told why not; the peer, if it is a `Context`."""
    farewell = _Farewell(client)
    _FAREWELL.set(farewell)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            connection, client, ssl=context, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=SHUTDOWN_SECONDS
        )
    except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
        failed(reason(error))
        await farewell.linger()
    finally:
        farewell.close()


def reason(error: Exception) -> str:
    """Why a connection could not be made, or a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{error.reason}: {error.verify_message}"
    said = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(said or str(error) or type(error).__name__)


class _Farewell:
    """The end of a handshake that fails: of a socket that the event loop closes."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._own: socket.socket | None = None

    def say(self, alert: bytes) -> None:
        """The last that the peer hears."""
        with suppress(OSError):
            self._own = self._client.dup()
            self._own.send(alert)
            self._own.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """Discard what the peer still sends, until it has closed its side, or for a while."""
        if self._own is None:
            return
        loop, left = asyncio.get_running_loop(), LINGER_BYTES_MAX
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                while left > 0 and (data := await loop.sock_recv(self._own, _READ_BYTES)):
                    left -= len(data)

    def close(self) -> None:
        """What is left of it."""
        if self._own is not None:
            self._own.close()


#: Of the handshake in whose task, or in whose callbacks of the event loop, this is asked.
_FAREWELL: Final[ContextVar[_Farewell]] = ContextVar("farewell")


class _Object(ssl.SSLObject):
    """One connection's TLS; `farewell` as long as hands are shaken."""

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
    """One of whose handshakes peers hear why they fail."""

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
        assert isinstance(made, _Object), "the class that is asked for"
        made.outgoing, made.farewell = outgoing, _FAREWELL.get(None)
        return made
