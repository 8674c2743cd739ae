"""The files with which a link logs in at another broker: its password, its certificate, the authorities it trusts."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from broker.config import Config, LinkSection
from broker.config.links import LinkUrl
from broker.net.tls import TlsUnusable, make_client_context
from broker.security.users_file import Stamp, UnusableFile, stamp_of


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


def readable_passwords(config: Config) -> Iterator[tuple[str, LinkUrl]]:
    """Yield the links, with their URLs, whose password others on the network may read."""
    for name, link in config.links.items():
        for url in link.urls:
            if link.enabled and link.sends_password and url.readable:
                yield name, url


class LinkContext:
    """The TLS context of a link's connections, made anew once a file has changed.  Raises UnusableFile."""

    def __init__(self, section: LinkSection) -> None:
        self._section = section
        self._files = [file for file in (section.ca, section.certificate, section.key) if file is not None]
        self._stamp, self._context = self._make()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next connection.  Raises UnusableFile."""
        if stamp_of(self._files) != self._stamp:
            self._stamp, self._context = self._make()
        return self._context

    def _make(self) -> tuple[Stamp, ssl.SSLContext]:
        stamp, section = stamp_of(self._files), self._section
        try:
            return stamp, make_client_context(section.ca, section.certificate, section.key)
        except TlsUnusable as error:
            raise UnusableFile(str(error)) from None
