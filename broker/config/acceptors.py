"""The sections [acceptors.NAME]: where the broker listens, and for which protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from broker.config.hosts import is_loopback
from broker.config.section import Section
from broker.config.units import Bytes, BytesOrUnlimited, Milliseconds, MillisecondsOrOff

#: Protocols of Artemis's acceptors that this version does not speak.
PROTOCOLS_NOT_YET: Final = ("openwire", "core", "hornetq")


#: Bytes of a mount point: leaves clients most of a topic's 1,024.
MOUNT_POINT_BYTES_MAX: Final = 256

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")


def origin(value: str) -> str:
    """Check an origin, which must be as browsers send it. Raises ValueError with the fix."""
    default_port = {"http": ":80", "https": ":443"}.get(value.partition(":")[0])
    if _ORIGIN.fullmatch(value) is None or value != value.lower() or (default_port and value.endswith(default_port)):
        raise ValueError(
            'give a scheme and a host as browsers send them, "https://app.example.org": in lower case, with no path,'
            " and with a port only if it is not the scheme's own"
        )
    return value


_HOST: Final = re.compile(r"\*|(\*\.)?[^\s/:*@,]+|\[?[0-9a-fA-F:.]+(%\w+)?\]?")


def allowed_host(value: str) -> str:
    """Check a host name, which must be as callers use it. Raises ValueError with the fix."""
    if _HOST.fullmatch(value) is None:
        raise ValueError('give a name without scheme and port, "broker.example.org", "*.example.org" or "*" for any')
    return value


def topic_prefix(value: str) -> str:
    """Check a prefix of topics. Raises ValueError with the fix."""
    wrong = not value.endswith("/") or value.startswith("$") or set(value) & set("+#\0")
    if value and (wrong or len(value.encode()) > MOUNT_POINT_BYTES_MAX):
        raise ValueError(
            'give whole levels of a topic, as in "devices/": with / at the end, without $ in front, + and #, in at most'
            f" {MOUNT_POINT_BYTES_MAX} bytes"
        )
    return value


class TlsSection(Section):
    """TLS from the first byte, with the acceptor's own certificate, read again on SIGHUP or when its file changes."""

    certificate: Annotated[Path, Field(strict=False)]
    """The certificate and its intermediates, in PEM."""
    key: Annotated[Path, Field(strict=False)]
    """Its key, in PEM, without a passphrase; only its owner and group may read it."""
    client_ca: Annotated[Path | None, Field(strict=False)] = None
    """The authorities of valid client certificates, in PEM; unset: clients are not asked for one."""
    need_client_auth: bool = False
    """true: only clients with such a certificate may connect."""
    want_client_auth: bool = False
    """true: clients are asked for a certificate but may have none; need-client-auth takes precedence."""
    crl: Annotated[Path | None, Field(strict=False)] = None
    """Revocation lists of these authorities, in PEM; client certificates on them are refused."""
    versions: Annotated[tuple[Literal["1.2", "1.3"], ...], Field(strict=False, min_length=1)] = ("1.2", "1.3")
    """Versions of TLS to accept; older ones are broken."""
    ciphers: str = ""
    """TLS 1.2 cipher suites, as OpenSSL names them; empty: those with forward secrecy and authenticated encryption."""
    sni_hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Server names that clients may send, *.example.org for a domain's; empty: any.  Clients may send none."""


class _Acceptor(Section):
    enabled: bool = True
    """false: keep the section, but do not listen."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The address to listen on; by default only this machine's loopback; 0.0.0.0 or :: for all."""
    port: Annotated[int, Field(ge=0, le=65_535)]
    """The TCP port; 0 takes a free one, which is logged."""
    tls: TlsSection | None = None
    """If set, the acceptor speaks TLS only."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect; false for host names other than localhost."""
        return is_loopback(self.host)


class MessagingAcceptor(_Acceptor):
    """The settings of the acceptors of all messaging protocols."""

    protocol: str
    """The protocol of this acceptor."""
    also: str = ""
    """Other acceptors that share this port, separated by commas; a client's first bytes decide."""
    connections_allowed: Annotated[int, Field(ge=-1)] = -1
    """Connections of this acceptor at once; -1: only limits.connections-max."""
    handshake_timeout: Annotated[Milliseconds, Field(ge=100)] = 10_000
    """How long a client may take to log in; one that never does cannot hold a connection."""
    allowed_users: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    """Users that may log in on this acceptor, besides those with allowed-roles; both empty: all."""
    allowed_roles: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    """Roles whose users, anonymous ones too, may log in on this acceptor, besides allowed-users; both empty: all."""
    websocket_origins: Annotated[tuple[Annotated[str, AfterValidator(origin)], ...], Field(strict=False)] = ()
    """Sites whose pages may connect by WebSocket, https://app.example.org; empty: any.  Only browsers name a site."""

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the acceptors that share this port."""
        return _parts(self.also)


class PrefixedAcceptor(MessagingAcceptor):
    """The settings of acceptors where a destination's prefix may choose its routing type."""

    anycast_prefix: str
    """Prefix of anycast destinations; several: separated by commas; empty: none."""
    multicast_prefix: str
    """Prefix of multicast destinations; several: separated by commas; empty: none."""

    @property
    def anycast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _parts(self.anycast_prefix)

    @property
    def multicast_prefixes(self) -> tuple[str, ...]:
        """The prefixes one by one."""
        return _parts(self.multicast_prefix)


class StompAcceptor(PrefixedAcceptor):
    """Listens for STOMP 1.0, 1.1 and 1.2."""

    protocol: Literal["stomp"]
    """The protocol of this acceptor."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 61_613
    """The TCP port; 61613 is STOMP's; 0 takes a free one, which is logged."""
    websocket: bool = False
    """true: STOMP over WebSocket, subprotocols v12.stomp, v11.stomp, v10.stomp or none, for clients in browsers."""
    anycast_prefix: str = "/queue/"
    """Prefix of anycast destinations, as STOMP users expect; several: separated by commas; empty: none."""
    multicast_prefix: str = "/topic/"
    """Prefix of multicast destinations; several: separated by commas; empty: none."""
    connection_ttl: MillisecondsOrOff | None = None
    """broker.connection-ttl for this acceptor; -1: silent clients are never disconnected."""
    connection_ttl_min: Milliseconds = 1_000
    """The shortest time to live that a client's heart-beat may ask for: less would cut off healthy clients."""
    connection_ttl_max: MillisecondsOrOff = -1
    """The longest time to live that a client's heart-beat may ask for; -1: no limit."""
    heart_beat_to_connection_ttl_modifier: Annotated[float, Field(ge=1, le=1_000, allow_inf_nan=False)] = 2.0
    """A client counts as dead after this many heart-beat intervals without a byte: two, so that one may be late."""
    stomp_min_large_message_size: Annotated[BytesOrUnlimited, Field(ge=-1)] = 100 << 10
    """Bodies of at least this size are streamed to their own files, as in Artemis; -1: none."""
    stomp_consumer_window_size: BytesOrUnlimited = 1 << 20
    """Unacknowledged bytes sent to a subscription (0: one message); Artemis's 10 KiB stall cumulative ACKs."""


class AmqpAcceptor(PrefixedAcceptor):
    """Listens for AMQP 1.0."""

    protocol: Literal["amqp"]
    """The protocol of this acceptor."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 5_672
    """The TCP port; 5672 is AMQP's; 0 takes a free one, which is logged."""
    websocket: bool = False
    """true: AMQP over WebSocket, subprotocol amqp, for clients in browsers and behind HTTP proxies."""
    anycast_prefix: str = "queue://"
    """Prefix of anycast addresses; several: separated by commas; empty: none."""
    multicast_prefix: str = "topic://"
    """Prefix of multicast addresses; several: separated by commas; empty: none."""
    amqp_credits: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    """Messages that a producer may send ahead: enough to keep a fast one busy during a round trip."""
    amqp_low_credits: Annotated[int, Field(ge=0, le=99_999)] = 300
    """A producer gets new credits when it has this many left."""
    amqp_min_large_message_size: Annotated[BytesOrUnlimited, Field(ge=-1)] = 100 << 10
    """Bodies of messages of several frames and at least this size go to their own files, as in Artemis; -1: none."""
    amqp_idle_timeout: MillisecondsOrOff = 60_000
    """Silence after which a client counts as dead; half of it is announced to the client; 0 or -1: never."""
    max_frame_size: Annotated[Bytes, Field(ge=512, le=1 << 24)] = 128 << 10
    """Bytes of one frame: most messages fit into one, and long messages do not block others on the connection."""


class MqttAcceptor(MessagingAcceptor):
    """Listens for MQTT 3.1, 3.1.1 and 5.0."""

    protocol: Literal["mqtt"]
    """The protocol of this acceptor."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 1_883
    """The TCP port; 1883 is MQTT's; 0 takes a free one, which is logged."""
    websocket: bool = False
    """true: MQTT over WebSocket, subprotocol mqtt, for clients in browsers and behind HTTP proxies."""
    server_keep_alive: MillisecondsOrOff = 60_000
    """Keep alive imposed on MQTT 5 clients that ask for none or a longer one; 0 or -1: what they ask for."""
    max_keepalive: MillisecondsOrOff = -1
    """The longest keep alive; pre-MQTT 5 clients that ask for more or none are refused; 0 or -1: no limit."""
    allow_zero_length_clientid: bool = True
    """false: clients must have an identifier; true: the broker assigns one, as in the MQTT specification."""
    maximum_qos: Annotated[int, Field(ge=0, le=2)] = 2
    """The highest QoS of a PUBLISH and a subscription; clients that publish with more are disconnected."""
    retain_available: bool = True
    """false: clients that publish with RETAIN are disconnected; subscriptions get no retained messages."""
    message_size_limit: BytesOrUnlimited = -1
    """Messages with larger payloads are refused; -1: only maximum-packet-size, which disconnects."""
    mount_point: Annotated[str, AfterValidator(topic_prefix)] = ""
    """Prefix of all topics and client identifiers, such as devices/; clients see neither it nor other topics."""
    default_mqtt_session_expiry_interval: MillisecondsOrOff = -1
    """How long pre-MQTT 5 sessions without clean session outlive their connection, whole seconds; -1: for ever."""
    max_session_expiry_interval: MillisecondsOrOff = -1
    """The longest session expiry interval that an MQTT 5 client gets, whole seconds; -1: what it asks for."""
    receive_maximum: Annotated[int, Field(ge=1, le=65_535)] = 1_000
    """QoS 1 and 2 messages that a client may send ahead of their acknowledgement: enough to keep a disk busy."""
    default_maximum_in_flight_publish_messages: Annotated[int, Field(ge=1, le=65_535)] = 65_535
    """Messages of QoS 1 and 2 in flight to a client; an MQTT 5 client may ask for less with its Receive Maximum."""
    in_flight_bytes_max: Annotated[BytesOrUnlimited, Field(ge=-1)] = -1
    """Bytes of QoS 1 and 2 in flight to a client; then the broker waits for its answers; 0 or -1: no limit."""
    filter_subscriptions: bool = False
    """true: a filter like # is granted, without the topics that its client may not read; false: it is refused."""
    topic_alias_maximum: Annotated[int, Field(ge=0, le=65_535)] = 256
    """Topic aliases of a connection, each way; each keeps a topic in memory as long as the connection lasts."""
    maximum_packet_size: Annotated[Bytes, Field(ge=256, le=1 << 28)] = 10 << 20
    """Bytes of one packet, either way; without a file for its payload, it must also fit into a journal entry."""
    mqtt_min_large_message_size: Annotated[BytesOrUnlimited, Field(ge=-1)] = 100 << 10
    """Payloads of at least this size (129 or more) are streamed to their own files; -1: none."""
    topic_levels_max: Annotated[int, Field(ge=1, le=1_024)] = 128
    """Levels of a topic, which bounds the work of matching; real topics have fewer than 20."""
    queued_messages_max: Annotated[int, Field(ge=-1)] = 100_000
    """Messages that a subscription may hold for its client; -1: only the limits of addresses and the broker."""
    queued_messages_drop: Literal["newest", "oldest"] = "newest"
    """Which messages a full subscription drops: the new ones, or the oldest."""
    allow_link_stealing: bool = True
    """true: a new client takes over the session of its client identifier, as MQTT specifies; false: it is refused."""
    sys_interval: MillisecondsOrOff = 10_000
    """How often $SYS topics publish changes; the shortest of all acceptors counts; 0 or -1: no $SYS."""


class HttpAcceptor(_Acceptor):
    """Listens for HTTP: the web console, /livez, /readyz, /metrics and the management API."""

    protocol: Literal["http"]
    """The protocol of this acceptor."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8_161
    """The TCP port; 8161 is that of Artemis's console; 0 takes a free one, which is logged."""
    console: bool = True
    """false: no web console, only the management API."""
    open_metrics: bool | None = None
    """true: /metrics needs no login; unset: only on loopback it needs none.  /livez and /readyz never need one."""
    allowed_hosts: Annotated[tuple[Annotated[str, AfterValidator(allowed_host)], ...] | None, Field(strict=False)] = (
        None
    )
    """Host names that callers may use, *.example.org, or * for any; IP addresses and names without dots always work."""
    connections_allowed: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Connections at once, besides 16 for health probes and the token: enough for collectors, operators and tools."""


Acceptor = Annotated[StompAcceptor | AmqpAcceptor | MqttAcceptor | HttpAcceptor, Field(discriminator="protocol")]


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
