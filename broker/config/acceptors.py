"""The sections [acceptors.NAME]: where the broker listens, and for which protocol."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field

from broker.config.section import Section
from broker.config.units import BytesOrUnlimited, Milliseconds, MillisecondsOrOff

#: Protocols of Artemis's acceptors that this version does not have.
PROTOCOLS_NOT_YET: Final = ("amqp", "mqtt", "openwire", "core", "hornetq")


class _Acceptor(Section):
    enabled: bool = True
    """false keeps the section without listening."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on; as shipped only this machine, 0.0.0.0 or :: for all."""
    port: Annotated[int, Field(ge=0, le=65_535)]
    """The TCP port; 0 takes a free one, which is logged."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect; a name other than localhost may mean anything."""
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost"


class StompAcceptor(_Acceptor):
    """Listens for STOMP 1.0, 1.1 and 1.2."""

    protocol: Literal["stomp"]
    """What is spoken here."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 61_613
    """The TCP port, 61613 being STOMP's; 0 takes a free one, which is logged."""
    anycast_prefix: str = "/queue/"
    """Destinations with it name anycast addresses, as STOMP users expect; several: with commas; empty: none."""
    multicast_prefix: str = "/topic/"
    """Destinations with it name multicast addresses; several: with commas; empty: none."""
    connections_allowed: Annotated[int, Field(ge=-1)] = -1
    """Connections of this acceptor at once; -1: only limits.connections-max."""
    connection_ttl: MillisecondsOrOff | None = None
    """Instead of broker.connection-ttl, here; -1: silent clients are never dropped."""
    connection_ttl_min: Milliseconds = 1_000
    """The shortest time to live that a client's heart-beat may ask for: below it a pause drops healthy clients."""
    connection_ttl_max: MillisecondsOrOff = -1
    """The longest time to live that a client's heart-beat may ask for; -1: no limit."""
    heart_beat_to_connection_ttl_modifier: Annotated[float, Field(ge=1, le=1_000, allow_inf_nan=False)] = 2.0
    """Heart-beat intervals without a byte after which a client is dead: two, so that one may be late."""
    stomp_consumer_window_size: BytesOrUnlimited = 1 << 20
    """Bytes in delivery to a subscription (0: one message); Artemis's 10 KiB stall cumulative acknowledgement."""
    handshake_timeout: Annotated[Milliseconds, Field(ge=100)] = 10_000
    """How long a client may take to log in: one that never does must not hold a connection."""

    @property
    def anycast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _prefixes(self.anycast_prefix)

    @property
    def multicast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _prefixes(self.multicast_prefix)


class HttpAcceptor(_Acceptor):
    """Listens for HTTP: /livez, /readyz, /metrics and the calls of the command line."""

    protocol: Literal["http"]
    """What is spoken here."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_161
    """The TCP port, 8161 being that of Artemis's console; 0 takes a free one, which is logged."""


Acceptor = Annotated[StompAcceptor | HttpAcceptor, Field(discriminator="protocol")]


def _prefixes(text: str) -> tuple[str, ...]:
    return tuple(prefix.strip() for prefix in text.split(",") if prefix.strip())
