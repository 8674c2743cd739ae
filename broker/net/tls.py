"""TLS: the context of an acceptor, and the handshake of a connection.

A socket is accepted and counted first; then its handshake uses the context of that moment.  So certificates can change
without affecting connections, and a slow or broken handshake costs its own memory and no other client's time.  The
acceptor's handshake timeout starts at the acceptance and covers both TLS and the login.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.net.connection import Connection, Ticking
from broker.net.handshake import Context, shake
from broker.net.tasks import supervised

if TYPE_CHECKING:
    from broker.net.listener import Listener

#: The default suites of TLS 1.2: only forward secrecy and authenticated encryption.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: Seconds to wait when a socket cannot be accepted.
RETRY_SECONDS: Final = 0.2

#: OpenSSL's reasons for a file without usable contents.
_NOT_PEM: Final = frozenset({"BAD_BASE64_DECODE", "NO_CERTIFICATE_OR_CRL_FOUND", "NO_START_LINE", "PEM_LIB"})

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsUnusable(Exception):
    """A certificate, key or revocation list cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of an acceptor; files are PEM.

    `clients`: the authorities of client certificates, None to request none; `required`: whether a client needs one;
    `revoked`: their revocation lists; `hosts`: the server names that clients may send (SNI), with `*.` before a domain
    for any one label; empty: any.
    """

    certificate: Path
    key: Path
    clients: Path | None = None
    required: bool = False
    versions: Sequence[str] = ("1.2", "1.3")
    ciphers: str = ""
    revoked: Path | None = None
    hosts: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """All files that the settings name."""
        return [path for path in (self.certificate, self.key, self.clients, self.revoked) if path is not None]


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context for new connections.  Raises TlsUnusable."""
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
    context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _use_pair(context, settings.certificate, settings.key)
    try:
        context.set_ciphers(settings.ciphers or CIPHERS)
    except ssl.SSLError:
        raise TlsUnusable(f"ciphers {settings.ciphers!r}: OpenSSL supports none of them") from None
    clients, revoked = settings.clients, settings.revoked
    if clients is not None:
        _use(clients, lambda: context.load_verify_locations(clients))
        if not context.cert_store_stats()["x509_ca"]:
            raise TlsUnusable(
                f"{clients} contains no certificate of an authority: name the one that issues the clients' certificates"
            )
        context.verify_mode = ssl.CERT_REQUIRED if settings.required else ssl.CERT_OPTIONAL
        # A resumed session would not check the certificate and the revocation list again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if revoked is not None:
        _use(revoked, lambda: context.load_verify_locations(revoked))
        if not context.cert_store_stats()["crl"]:
            raise TlsUnusable(f"{revoked} contains no revocation list: name one of client-ca's, in PEM")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if settings.hosts:
        context.sni_callback = _host_check(settings.hosts)
    return context


def make_client_context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """The context for connections to other brokers, which checks their host names.  Raises TlsUnusable."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca is not None:
        _use(ca, lambda: context.load_verify_locations(ca))
    if certificate is not None and key is not None:
        _use_pair(context, certificate, key)
    return context


def _use_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Load certificate and key.  OpenSSL reads both together, so on an error this finds out which one is wrong."""
    try:
        _use(certificate, lambda: context.load_cert_chain(certificate, key, _no_password))
    except TlsUnusable as error:
        cause = error.__context__
        if not isinstance(cause, ssl.SSLError):
            raise
        if cause.reason == "KEY_VALUES_MISMATCH":
            raise TlsUnusable(f"{key} is not the key of {certificate}: name a pair that belongs together") from None
        if _holds_certificates(certificate):
            raise TlsUnusable(f"{key}: {_unusable(cause)}") from None
        raise


def _holds_certificates(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def _use(path: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise TlsUnusable(f"{path}: {_unusable(error)}") from None
    except OSError as error:
        why = f"it cannot be read: {error.strerror}: name a file that the broker's user can read"
        raise TlsUnusable(f"{error.filename or path}: {why}") from None


def _unusable(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).replace("_", " ").lower()
    advice = ": it must be in PEM, -----BEGIN ...-----" if error.reason in _NOT_PEM else ""
    return f"it cannot be used for TLS: {reason}{advice}"


def _no_password() -> str:
    """Raise an error instead of prompting on the terminal."""
    raise TlsUnusable("the key is encrypted: store it without a passphrase, readable by the broker only")


HostCheck = Callable[[ssl.SSLObject, str, ssl.SSLContext], int | None]


def _host_check(hosts: tuple[str, ...]) -> HostCheck:
    wanted = [host.lower().removesuffix(".") for host in hosts]

    def check(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int | None:
        """Accept clients that send a listed name, or none, as in ActiveMQ Artemis."""
        if name is None:
            return None
        plain = name.lower().removesuffix(".")
        parent = plain.partition(".")[2]
        if plain in wanted or f"*.{parent}" in wanted:
            return None
        return int(ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)

    return check


class SecuredConnection(Connection):
    """A connection made by a successful handshake."""

    __slots__ = ("_handshake",)

    def __init__(self, handshake: Handshake, listener: Listener, tick: Ticking, started_at: int) -> None:
        super().__init__(listener, tick, started_at=started_at)
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it as a connection, and no longer as a handshake."""
        self._handshake.over()
        super().connection_made(transport)


class Handshake:
    """An accepted socket in its TLS handshake."""

    def __init__(self, listener: Listener, tick: Ticking, client: socket.socket, address: object) -> None:
        self.remote, self.origin = "local", ""
        if isinstance(address, tuple):
            self.remote, self.origin = f"{address[0]}:{address[1]}", str(address[0])
        self._listener = listener
        self._tick = tick
        self._socket = client
        self._task: asyncio.Task[None] | None = None

    def begin(self, context: ssl.SSLContext) -> None:
        """Begin the handshake; if it succeeds, it makes a connection of the listener."""
        self._task = supervised(f"handshake with {self.remote}", self._shake(context))

    def over(self) -> None:
        """The handshake has succeeded: its connection replaces it."""
        self._listener.forget_handshake(self)

    def abort(self) -> None:
        """Abort the handshake."""
        if self._task is not None:
            self._task.cancel()

    async def _shake(self, context: ssl.SSLContext) -> None:
        listener = self._listener
        started_at = listener.monotonic_ms()
        try:
            await shake(
                self._socket,
                context,
                lambda: SecuredConnection(self, listener, self._tick, started_at),
                seconds=max(listener.handshake_timeout, 1) / 1000,
                failed=self._failed,
            )
        finally:
            listener.forget_handshake(self)

    def _failed(self, reason: str) -> None:
        self._listener.report("tls.failed", acceptor=self._listener.name, remote=self.remote, reason=reason)


class SecureServer:
    """Listening sockets for TLS; `shake` gets each accepted socket and its peer's address."""

    def __init__(self, shake: Callable[[socket.socket, object], None], report: Callable[[OSError], None]) -> None:
        self._shake = shake
        self._report = report
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, host: str, port: int, backlog: int) -> list[tuple[str, int]]:
        """Listen, and return the addresses bound.  Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listening = socket.create_server(address[:2], family=family, backlog=backlog)
                self._sockets.append(listening)
        except OSError:
            self.close()
            raise
        self.serve(self._sockets)
        return [listening.getsockname()[:2] for listening in self._sockets]

    def serve(self, sockets: list[socket.socket]) -> None:
        """Accept on listening sockets, and own them from now on."""
        self._sockets = sockets
        for listening in sockets:
            listening.setblocking(False)
        self._tasks = [supervised("accept", self._accept(listening), essential=True) for listening in sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError as error:
                self._report(error)  # usually no free descriptors: ending connections free some
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._shake(client, address)
            except OSError:  # the peer has already disconnected
                client.close()
            except Exception as error:  # affects only this socket; accept the next one
                client.close()
                loop.call_exception_handler({"message": "an accepted socket could not be handled", "exception": error})

    def close(self) -> None:
        """Stop accepting."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()
