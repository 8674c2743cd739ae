"""The addresses that a configured host means."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

_IPV4: Final = "0.0.0.0"


def hosts_of(host: str) -> list[str]:
    """The hosts to listen on: `::` is all addresses of this machine, IPv4 ones too; an empty host as well.

    IPv4 has a socket of its own, so that its peers are known by their own addresses, not by IPv6's form of them.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return [host]
    return [host, _IPV4] if isinstance(address, IPv6Address) and address.is_unspecified else [host]


def taken(host: str, port: int) -> OSError | UnicodeError | None:
    """Why `bind` could not listen on a host now; None: it could.  Binds it for a moment."""
    try:
        for each in hosts_of(host):
            found = socket.getaddrinfo(each or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                _listen(family, address, 1).close()
    except (OSError, UnicodeError) as error:
        return error
    return None


def _listen(family: int, address: tuple[Any, ...], backlog: int) -> socket.socket:
    return socket.create_server(address[:2], family=family, backlog=backlog)


async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """A listening socket for each address of a host.  Raises OSError."""
    loop = asyncio.get_running_loop()
    sockets: list[socket.socket] = []
    try:
        for each in hosts_of(host):
            found = await loop.getaddrinfo(each or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                sockets.append(_listen(family, address, backlog))
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    return sockets
