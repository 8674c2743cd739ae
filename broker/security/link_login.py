"""The files with which a link logs in at another broker: its password, its certificate, the authorities it trusts."""

from __future__ import annotations

import ssl

from broker.config import LinkSection
from broker.net.tls import TlsUnusable, make_client_context
from broker.security.users_file import UnusableFile


def link_password(section: LinkSection) -> bytes:
    """The first line of a link's password file; empty if it has none.  Raises UnusableFile."""
    path = section.password_file
    if path is None:
        return b""
    try:
        return path.read_bytes().partition(b"\n")[0].rstrip(b"\r")
    except OSError as error:
        why = f"{path}: the password cannot be read: {error.strerror}"
        raise UnusableFile(f"{why}: write it to the first line of that file, for the broker's user") from None


def link_context(section: LinkSection) -> ssl.SSLContext | None:
    """The TLS context of a link's connections; None if it does not use TLS.  Raises UnusableFile."""
    if not any(url.secure for url in section.urls):
        return None
    try:
        return make_client_context(section.ca, section.certificate, section.key)
    except TlsUnusable as error:
        raise UnusableFile(str(error)) from None
