"""The host names that a broker answers to over HTTP: keeps pages of other sites from reading what needs no login.

A page in a browser may read answers of the host it was loaded from.  Its site can point that host's name at the address
of a broker that the browser reaches (DNS rebinding): the page then reads the broker's answers, but the header `Host`
still has the site's name.  An address is safe, as no site can redefine it; so is a name without a dot, which no site of
the internet has, and by which containers and machines of one network call each other.

Starlette's TrustedHostMiddleware knows neither networks nor IPv6 addresses, and its error does not say what to do.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

#: Allows any name.
ANY: Final = "*"


class AllowedHosts:
    """The allowed names: `names` and those always allowed; `*.` before a domain covers all names below it, `*` any."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_plain(name) for name in (*names, socket.gethostname())}
        self._endings = tuple([name[1:] for name in self._names if name.startswith("*.")])

    def allow(self, header: bytes) -> bool:
        """Whether a request with this `Host` is answered.  Browsers always send one."""
        host = _plain(_without_port(header.decode("latin-1").strip()))
        if not host or ("." not in host and ":" not in host) or ANY in self._names or host in self._names:
            return True
        return host.endswith((".localhost", *self._endings)) or _is_address(host)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
