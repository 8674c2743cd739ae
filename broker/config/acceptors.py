"""The sections [acceptors.NAME]: where the broker listens, and for which protocol."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import Field

from broker.config.section import Section
from broker.config.units import Bytes, BytesOrUnlimited, Milliseconds, MillisecondsOrOff

#: Protocols of Artemis's acceptors that this version does not have.
PROTOCOLS_NOT_YET: Final = ("mqtt", "openwire", "core", "hornetq")


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


class MessagingAcceptor(_Acceptor):
    """What the acceptors of all messaging protocols have."""

    protocol: str
    """What is spoken here."""
    anycast_prefix: str
    """Destinations with it name anycast addresses; several: with commas; empty: none."""
    multicast_prefix: str
    """Destinations with it name multicast addresses; several: with commas; empty: none."""
    also: str = ""
    """Names of other acceptors that answer on this port too, by a client's first bytes; several: with commas."""
    connections_allowed: Annotated[int, Field(ge=-1)] = -1
    """Connections of this acceptor at once; -1: only limits.connections-max."""
    handshake_timeout: Annotated[Milliseconds, Field(ge=100)] = 10_000
    """How long a client may take to log in: one that never does must not hold a connection."""

    @property
    def anycast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _parts(self.anycast_prefix)

    @property
    def multicast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _parts(self.multicast_prefix)

    @property
    def others(self) -> tuple[str, ...]:
        """The acceptors that answer here too, one by one."""
        return _parts(self.also)


class StompAcceptor(MessagingAcceptor):
    """Listens for STOMP 1.0, 1.1 and 1.2."""

    protocol: Literal["stomp"]
    """What is spoken here."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 61_613
    """The TCP port, 61613 being STOMP's; 0 takes a free one, which is logged."""
    anycast_prefix: str = "/queue/"
    """Destinations with it name anycast addresses, as STOMP users expect; several: with commas; empty: none."""
    multicast_prefix: str = "/topic/"
    """Destinations with it name multicast addresses; several: with commas; empty: none."""
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


class AmqpAcceptor(MessagingAcceptor):
    """Listens for AMQP 1.0."""

    protocol: Literal["amqp"]
    """What is spoken here."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 5_672
    """The TCP port, 5672 being AMQP's; 0 takes a free one, which is logged."""
    websocket: bool = False
    """true: AMQP over WebSocket, subprotocol amqp, for clients in browsers and behind HTTP proxies."""
    anycast_prefix: str = "queue://"
    """Addresses with it name anycast addresses; several: with commas; empty: none."""
    multicast_prefix: str = "topic://"
    """Addresses with it name multicast addresses; several: with commas; empty: none."""
    amqp_credits: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Messages that a producer may send ahead: enough to keep a fast one busy for a round trip."""
    amqp_low_credits: Annotated[int, Field(ge=0, le=99_999)] = 300
    """Credits that are left when a producer gets new ones."""
    amqp_idle_timeout: MillisecondsOrOff = 60_000
    """Silence after which a client counts as dead, half of which it is told; 0 or -1: never."""
    max_frame_size: Annotated[Bytes, Field(ge=512, le=1 << 24)] = 128 << 10
    """Bytes of one frame: most messages fit into one, and a long one lets others of its connection through."""


class HttpAcceptor(_Acceptor):
    """Listens for HTTP: /livez, /readyz, /metrics and the calls of the command line."""

    protocol: Literal["http"]
    """What is spoken here."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_161
    """The TCP port, 8161 being that of Artemis's console; 0 takes a free one, which is logged."""


Acceptor = Annotated[StompAcceptor | AmqpAcceptor | HttpAcceptor, Field(discriminator="protocol")]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
