"""Makes links from the configuration, and the sessions of their connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from broker import __version__, clock
from broker.config import BrokerSection, Config, LinkSection, RemoteQueueSection, SendSection, TopicsSection
from broker.engine.model.message import RoutingType
from broker.engine.model.report import Report
from broker.net.dialer import Dialer, Endpoint, LinkSession
from broker.security.link_login import LinkContext, link_password, readable_passwords
from broker.security.users_file import UnusableFile
from broker.sessions.links.amqp import AmqpLinkSession
from broker.sessions.links.bridge import Bridge, bridges
from broker.sessions.links.links import Links
from broker.sessions.links.login import Aside
from broker.sessions.links.model import Kind, Link, LinkSettings, RouteSettings
from broker.sessions.links.mqtt import MqttLinkSession
from broker.sessions.login import Peer
from broker.sessions.mqtt.client_session import MqttSessions
from broker.sessions.tick import Tick, Transport
from protocols.amqp.limits import Limits as AmqpLimits
from protocols.mqtt.codes import Role
from protocols.mqtt.fields import PACKET_BYTES_MAX, STRING_BYTES_MAX
from protocols.mqtt.limits import WHOLE_BYTES_MIN
from protocols.mqtt.limits import Limits as MqttLimits
from protocols.mqtt.runs import Shared

#: Bytes of the properties of a message from another MQTT broker, whatever their number: the other broker has accepted
#: them already, and its limits may be higher than those for clients here.
PROPERTIES_BYTES_MAX: Final = 1 << 20


def link_settings(config: Config) -> list[LinkSettings]:
    """Return the configured links.  Raises UnusableFile."""
    sharing = Counter(
        remote.waits_on(name) for name, link in config.links.items() for remote in link.remote_queues.values()
    )
    return [
        LinkSettings(
            name,
            tuple(map(str, section.urls)),
            tuple(_routes(name, section, sharing)),
            enabled=section.enabled,
            user=section.user,
            password=link_password(section),
            sasl_mechanisms=section.sasl_mechanisms,
            scram_iterations_max=section.scram_iterations_max,
            retry_interval=section.retry_interval,
            retry_interval_max=section.retry_interval_max,
            idle_timeout=section.idle_timeout,
            window=section.window,
            max_hops=section.max_hops,
        )
        for name, section in config.links.items()
    ]


def _routes(link: str, section: LinkSection, sharing: Mapping[str, int]) -> Iterator[RouteSettings]:
    """Yield a link's routes; `sharing`: how many remote queues, of any link, use each transmission queue."""
    for name, send in section.send.items():
        sending = _sending(name, Kind.SEND, send.queue, send.address, send, send.routing_type)
        yield replace(sending, reserve=send.reserve)
    for name, receive in section.receive.items():
        yield RouteSettings(
            name,
            Kind.RECEIVE,
            receive.address,
            receive.queue,
            receive.routing_type,
            selector=receive.selector,
            priority=receive.priority,
            only_with_consumers=receive.only_with_consumers,
            reserve=receive.reserve,
        )
    for name, remote in section.remote_queues.items():
        queue = remote.waits_on(link)
        origin = name if sharing[queue] > 1 else ""
        yield _sending(name, Kind.REMOTE_QUEUE, queue, remote.queue, remote, RoutingType.ANYCAST, origin)
    for name, topics in section.topics.items():
        yield _sending(name, Kind.TOPICS, f"link.{link}.{name}", "", topics, RoutingType.MULTICAST)
    for name, route in section.mqtt.items():
        yield RouteSettings(
            name,
            Kind.MQTT,
            f"link.{link}.{name}",
            topic=route.topic,
            inward=route.direction != "out",
            outward=route.direction != "in",
            qos=route.qos,
            local_prefix=route.local_prefix,
            remote_prefix=route.remote_prefix,
        )


def _sending(
    name: str,
    kind: Kind,
    local: str,
    remote: str,
    section: SendSection | RemoteQueueSection | TopicsSection,
    routing_type: RoutingType,
    origin: str = "",
) -> RouteSettings:
    return RouteSettings(
        name,
        kind,
        local,
        remote,
        routing_type,
        origin=origin,
        use_dead_letter=section.use_dead_letter,
        fast=section.non_durable == "fast",
        holds=section.in_doubt == "hold",
    )


class LinkSessions:
    """Makes the session of each connection of a link.  `aside`: runs the work of their logins on a thread."""

    def __init__(self, config: Config, tick: Tick, links: Links, mqtt_sessions: MqttSessions, aside: Aside) -> None:
        self._config = config
        self._tick = tick
        self._links = links
        self._mqtt_sessions = mqtt_sessions
        self._aside = aside
        self._urls = {str(url): url for section in config.links.values() for url in section.urls}
        self._amqp_limits = AmqpLimits(
            handshake_bytes_max=config.limits.connect_bytes_max,
            message_bytes_max=config.limits.body_bytes_max + config.limits.header_bytes_max,
            whole_bytes_max=config.limits.header_bytes_max,
            streamed_bytes_max=config.limits.large_body_bytes_max + config.limits.header_bytes_max,
        )
        # If a topic too long for an address ended the connection, the other broker would send it again for ever.  So
        # the codec accepts it, and only that message is refused.
        self._mqtt_limits = MqttLimits(
            topic_bytes_max=STRING_BYTES_MAX,
            topic_levels_max=STRING_BYTES_MAX + 1,
            properties_bytes_max=PROPERTIES_BYTES_MAX,
            user_properties_max=PROPERTIES_BYTES_MAX,
            packet_bytes_max=min(config.limits.large_body_bytes_max + config.limits.header_bytes_max, PACKET_BYTES_MAX),
            whole_bytes_max=max(config.limits.header_bytes_max, WHOLE_BYTES_MIN),
        )
        self._bridges: Mapping[str, Bridge] = {}

    def restore(self) -> None:
        """Take over the state of MQTT links of an earlier run.

        Call within a tick, after the MQTT sessions are restored and before a client connects.
        """
        shared = Shared(Role.CLIENT, self._mqtt_limits)
        name = self._config.broker.name
        unique = name != BrokerSection().name
        self._bridges = bridges(self._tick, self._mqtt_sessions, self._links, shared, name, unique=unique)

    def __call__(self, transport: Transport, link: Link, number: int, peer: Peer) -> LinkSession:
        """Return the session of a connection that a link has opened."""
        connection_id = f"link-{link.name}-{number}"
        bridge = self._bridges.get(link.name)
        if bridge is not None:
            return MqttLinkSession(bridge, transport, self._links, connection_id=connection_id, peer=peer)
        return AmqpLinkSession(
            self._tick,
            transport,
            self._links,
            link,
            self._amqp_limits,
            broker_name=self._config.broker.name,
            version=__version__,
            hostname=self._urls[link.remote].host,
            readable=self._urls[link.remote].readable,
            aside=self._aside,
            connection_id=connection_id,
            peer=peer,
        )


def make_dialer(config: Config, tick: Tick, links: Links, sessions: LinkSessions, report: Report) -> Dialer:
    """Return the dialer that connects the links.  Raises UnusableFile."""
    for name, url in readable_passwords(config):
        report("link.password_readable", link=name, remote=str(url))
    return Dialer(tick, links, Endpoints(config.links), sessions, report=report, monotonic_ms=clock.monotonic_ms)


class Endpoints:
    """Where links connect to, with their passwords and certificates as they are then.  Raises UnusableFile."""

    def __init__(self, sections: Mapping[str, LinkSection]) -> None:
        self._sections = sections
        self._contexts = {name: LinkContext(section) for name, section in sections.items() if section.secure}

    def __call__(self, link: Link) -> Endpoint:
        """Return where a link connects to next.  Raises OSError for a file that cannot be used."""
        section = self._sections[link.name]
        url = section.urls[link.attempts % len(section.urls)]
        link.remote = str(url)
        try:
            link.settings = replace(link.settings, password=link_password(section))
            return Endpoint(url.host, url.port, self._contexts[link.name]() if url.secure else None)
        except UnusableFile as error:
            raise OSError(str(error)) from None
