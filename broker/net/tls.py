"""TLS: the settings of an acceptor or a link, and the contexts made from them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.net.handshake import Context

#: The default suites of TLS 1.2: only forward secrecy and authenticated encryption.
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

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
