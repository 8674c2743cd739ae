"""How each protocol tells clients where to find the brokers of a pair.

AMQP      OPEN has `failover-server-list`, which Qpid JMS follows and other clients can read
MQTT 5    CONNACK and DISCONNECT have a Server Reference (4.11)
STOMP     ERROR has the header `redirect`
"""

from __future__ import annotations

from dataclasses import dataclass

from protocols.amqp.types import Symbol, UShort


@dataclass(frozen=True, slots=True)
class FailoverServer:
    """One broker of the pair: its host, and the port of the acceptor in question."""

    host: str
    port: int

    def __str__(self) -> str:
        """Format as in a Server Reference: an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def reference(servers: tuple[FailoverServer, ...]) -> str:
    """Return a Server Reference that lists all servers."""
    return " ".join(map(str, servers))


def open_properties(servers: tuple[FailoverServer, ...], scheme: str) -> dict[str, object]:
    """Return the properties of OPEN that list the servers, with the fields of AMQP's redirect (part 2, 2.8.16).

    `scheme`: amqp, amqps, ws or wss.
    """
    if not servers:
        return {}
    found: list[object] = [
        {
            Symbol("hostname"): each.host,
            Symbol("network-host"): each.host,
            Symbol("port"): UShort(each.port),
            Symbol("scheme"): scheme,
        }
        for each in servers
    ]
    return {"failover-server-list": found}
