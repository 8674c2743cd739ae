"""The sections [links.NAME]: other brokers that this one connects to, and the routes between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from broker.config.hosts import is_loopback
from broker.config.section import Section
from broker.config.units import LARGEST, Milliseconds, duration
from broker.engine.model.limits import RESERVE_MS_MAX
from broker.engine.model.message import RoutingType

#: The port of each scheme, as registered with IANA.
PORTS: Final = {"amqp": 5_672, "amqps": 5_671, "mqtt": 1_883, "mqtts": 8_883}

#: Schemes that speak TLS.
SECURE: Final = frozenset({"amqps", "mqtts"})

#: Messages of one route in transit: fewer than the link ids that the other end remembers.
WINDOW_MAX: Final = 10_000


class LinkUrl(NamedTuple):
    """Where a link connects to."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether it uses TLS."""
        return self.scheme in SECURE

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine; false for host names other than localhost."""
        return is_loopback(self.host)

    @property
    def readable(self) -> bool:
        """Whether others on the network can read what is sent."""
        return not (self.secure or self.is_loopback)

    @property
    def mqtt(self) -> bool:
        """Whether it is MQTT, else AMQP."""
        return self.scheme.startswith("mqtt")


def parse_url(text: str) -> LinkUrl:
    """A link's URL.  Raises ValueError with the fix."""
    fix = 'give scheme, host and port, "amqp://broker.example.org:5672"; schemes are amqp, amqps, mqtt and mqtts'
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(fix) from None
    if parts.scheme not in PORTS or not host or parts.query or parts.fragment or parts.path not in ("", "/"):
        raise ValueError(fix)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL must not have a user or password: give user and password-file")
    return LinkUrl(parts.scheme, host, PORTS[parts.scheme] if port is None else port)


def _url(text: str) -> str:
    parse_url(text)
    return text


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _routing(value: object) -> object:
    if isinstance(value, str) and value in RoutingType.__members__:
        return RoutingType[value]
    raise ValueError(f"give one of {', '.join(json.dumps(word) for word in RoutingType.__members__)}")


Mechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
Name = Annotated[str, Field(min_length=1)]
Routing = Annotated[RoutingType, BeforeValidator(_routing)]


class _Sending(Section):
    use_dead_letter: bool = True
    """true: messages refused by the other end become dead letters here; false: the route waits until it takes them."""
    non_durable: Literal["kept", "fast"] = "kept"
    """kept: non-durable messages stay until the other end has them; fast: they are sent once, and may be lost."""
    in_doubt: Literal["resend", "hold"] = "resend"
    """Messages in doubt after a lost connection, unless to a Bartleby: resend them, or hold them for an operator."""


class SendSection(_Sending):
    """A route from a queue here to an address on the other broker."""

    queue: Name
    """The queue here; it must exist, or be created by [addresses] or automatically."""
    address: Name
    """The address on the other broker."""
    routing_type: Routing = RoutingType.ANYCAST
    """ANYCAST: to a queue; MULTICAST: to a topic."""
    reserve: Annotated[int, BeforeValidator(duration), Field(ge=0, le=RESERVE_MS_MAX)] = 0
    """If the queue has other consumers: how long messages in doubt after a lost connection are kept from them."""


class ReceiveSection(Section):
    """A route from a queue on the other broker to an address here."""

    queue: Name
    """The queue on the other broker."""
    address: Name
    """The address here."""
    routing_type: Routing = RoutingType.ANYCAST
    """The routing type of the messages here: ANYCAST or MULTICAST."""
    selector: str = ""
    """Only messages that match this selector; empty: all."""
    priority: Annotated[int, Field(ge=-128, le=127)] = 0
    """The consumer priority on the other broker: below 0, its own consumers come first."""
    only_with_consumers: bool = False
    """true: messages are fetched only while consumers here wait for some."""
    reserve: Annotated[int, BeforeValidator(duration), Field(ge=0, le=RESERVE_MS_MAX)] = 600_000
    """How long another Bartleby keeps messages in transit for this route after a lost connection; 0: not at all."""


class RemoteQueueSection(_Sending):
    """An address here that stands for a queue on the other broker."""

    queue: Name
    """The queue on the other broker."""
    transmission_queue: str = ""
    """The queue here where messages wait for the link; empty: link.NAME, which is created."""

    def waits_on(self, link: str) -> str:
        """The queue where its messages wait for the link of this name."""
        return self.transmission_queue or f"link.{link}"


class TopicsSection(_Sending):
    """Multicast addresses whose messages are also sent to the other broker, under the same names."""

    address: Name
    """An address, or a wildcard pattern of addresses."""


class MqttRouteSection(Section):
    """Topics of an MQTT bridge, as in a `topic` line of Mosquitto."""

    topic: Name
    """A topic filter; the prefixes go before it on each side."""
    direction: Literal["in", "out", "both"] = "out"
    """out: to the other broker; in: from it; both."""
    qos: Annotated[int, Field(ge=0, le=2)] = 1
    """The quality of service on the bridge."""
    local_prefix: str = ""
    """The prefix of the topic here."""
    remote_prefix: str = ""
    """The prefix of the topic on the other broker."""


class LinkSection(Section):
    """A link to another broker, over AMQP 1.0 or MQTT."""

    url: Annotated[
        tuple[Annotated[str, AfterValidator(_url)], ...], BeforeValidator(_several), Field(strict=False, min_length=1)
    ]
    """The other broker, amqp://host:5672; schemes: amqp, amqps, mqtt, mqtts; several: tried in turn."""
    enabled: bool = True
    """false: the link is stopped until an operator starts it."""
    user: str = ""
    """The user to log in as; empty: anonymous."""
    password_file: Annotated[Path | None, Field(strict=False)] = None
    """The file whose first line is the password."""
    sasl_mechanisms: Annotated[tuple[Mechanism, ...], Field(strict=False, min_length=1)] = get_args(Mechanism)
    """How the user may log in over AMQP, by the strongest that is offered there; PLAIN sends the password itself."""
    scram_iterations_max: Annotated[int, Field(ge=4_096, le=10_000_000)] = 2_000_000
    """Iterations of SCRAM that the other broker may ask for: three times today's advice, 2 s of a processor."""
    ca: Annotated[Path | None, Field(strict=False)] = None
    """The authorities of the other broker's certificate, in PEM; unset: those of the system."""
    certificate: Annotated[Path | None, Field(strict=False)] = None
    """The client certificate, in PEM, if the other broker asks for one."""
    key: Annotated[Path | None, Field(strict=False)] = None
    """Its key, in PEM, without a passphrase."""
    retry_interval: Annotated[int, BeforeValidator(duration), Field(ge=100, le=LARGEST)] = 1_000
    """The time before a failed connection is retried; it doubles with each failure."""
    retry_interval_max: Annotated[int, BeforeValidator(duration), Field(ge=100, le=LARGEST)] = 30_000
    """The longest time between attempts: the link is back at most this long after the other broker."""
    idle_timeout: Milliseconds = 60_000
    """Silence after which the other broker counts as dead; 0: never."""
    window: Annotated[int, Field(ge=1, le=WINDOW_MAX)] = 1_000
    """Messages of a route in transit: enough to keep a fast network busy during a round trip."""
    max_hops: Annotated[int, Field(ge=1, le=64)] = 4
    """Brokers that a message may have passed; one more makes it a dead letter, which ends loops."""
    send: dict[str, SendSection] = Field(default_factory=dict)
    receive: dict[str, ReceiveSection] = Field(default_factory=dict)
    remote_queues: dict[str, RemoteQueueSection] = Field(default_factory=dict)
    topics: dict[str, TopicsSection] = Field(default_factory=dict)
    mqtt: dict[str, MqttRouteSection] = Field(default_factory=dict)

    @property
    def sends_password(self) -> bool:
        """Whether its password itself may be sent."""
        return self.password_file is not None and (self.speaks_mqtt or "PLAIN" in self.sasl_mechanisms)

    @property
    def urls(self) -> tuple[LinkUrl, ...]:
        """The URLs in the order in which they are tried."""
        return tuple(map(parse_url, self.url))

    @property
    def secure(self) -> bool:
        """Whether it uses TLS with any of its URLs."""
        return any(url.secure for url in self.urls)

    @property
    def speaks_mqtt(self) -> bool:
        """Whether it is an MQTT bridge; all URLs agree."""
        return self.urls[0].mqtt
