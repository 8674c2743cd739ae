"""The parts of MQTT bridges that outlive a connection: local and remote topics, hops, and the session of each link.

To this broker, the other end of a link is a client with a session: the topics of its outgoing routes are its
subscriptions, whose queues collect messages while it is disconnected, and its messages are published as any client's
are.  Only the connection is opened by this side (`mqtt`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.engine import NEVER_EXPIRES, Client, DeadLetterReason, Ending, Queue, RemovalReason
from broker.engine.model.access import unrestricted
from broker.engine.model.errors import EngineError
from broker.engine.model.message import MessageHeader
from broker.engine.model.names import LINK_SESSIONS
from broker.sessions.amqp.link_id import hop
from broker.sessions.convert import ConversionError, TooManyHops
from broker.sessions.links.links import Links
from broker.sessions.links.model import Link, Route
from broker.sessions.links.versions import VersionNegotiation
from broker.sessions.mqtt.client_session import ClientSession, Common, MqttSessions
from broker.sessions.mqtt.format import HOPS, hops_of, read_properties
from broker.sessions.mqtt.publish import Refused
from broker.sessions.mqtt.render import Heads, Renderer
from broker.sessions.mqtt.subscription import Subscription
from broker.sessions.mqtt.terms import MqttOptions
from broker.sessions.tick import Tick
from protocols.mqtt.codes import ReasonCode
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.errors import format_value
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Publish
from protocols.mqtt.packets import Subscription as SubscriptionRequest
from protocols.mqtt.properties import USER_PROPERTY, Properties
from protocols.mqtt.runs import Shared
from protocols.mqtt.topics import parse_topic_filter, prefixed

#: Topics whose route is cached: some hundreds of KiB for each link.
TOPICS_REMEMBERED_MAX: Final = 1_024

#: Their characters, so that the longest topics, which are no addresses here, do not cost more.
CHARS_REMEMBERED_MAX: Final = 256 << 10

#: Hexadecimal digits of the journal's id in a client identifier: enough to tell brokers apart, and few to read.
ID_DIGITS: Final = 8

#: Without limits: the configuration has checked the filters.
_LIMITS: Final = Limits(topic_bytes_max=1 << 16, topic_levels_max=1 << 16)

#: What a Bartleby accepts from its clients, without the hop.
_CLIENTS: Final = Limits()


class BridgeRoute:
    """The topics of one route, on both sides; `Outward` for the messages that it sends.

    `asked`: the packet identifier of its SUBSCRIBE, 0: none was sent, -1: it was granted.  `waiting`: the last logged
    reason why a message waits.  `full`: local topics without room, whose messages stay at the other end, and why.
    `rounds`: how often that happened since a message last arrived.
    """

    __slots__ = ("_counted", "asked", "full", "here", "rounds", "route", "there", "waiting")

    def __init__(self, route: Route) -> None:
        settings = route.settings
        self.route = route
        self.here = parse_topic_filter(prefixed(settings.local_prefix, settings.topic), _LIMITS)
        self.there = parse_topic_filter(prefixed(settings.remote_prefix, settings.topic), _LIMITS)
        self.asked = 0
        self.waiting = ""
        self.full: dict[str, Refused] = {}
        self.rounds = 0
        self._counted = (0, 0)

    @property
    def queue(self) -> str:
        """The queue of its outgoing messages."""
        return self.route.settings.local

    def peer_topic(self, topic: str) -> str | None:
        """Return the remote topic of a local one; None: it has none."""
        settings = self.route.settings
        if not topic.startswith(settings.local_prefix):
            return None
        return settings.remote_prefix + topic[len(settings.local_prefix) :] or None

    def local_topic(self, topic: str) -> str | None:
        """Return the local topic of a remote one; None: it is not of this route."""
        settings = self.route.settings
        if not self.there.matches(topic):
            return None
        return settings.local_prefix + topic[len(settings.remote_prefix) :] or None

    def peer_properties(self, properties: bytes) -> bytes:
        """Leave a response topic as it is: the route of the response is unknown."""
        return properties

    def count(self, subscription: Subscription | None) -> None:
        """Count the messages sent since the last call."""
        consumer = None if subscription is None else subscription.consumer
        if consumer is None:
            self.route.unsettled, self._counted = 0, (0, 0)
            return
        left = consumer.queue.left
        passed = left[RemovalReason.CONSUMED]
        refused = left[RemovalReason.DEAD_LETTERED] + left[RemovalReason.KILLED]
        self.route.passed += max(passed - self._counted[0], 0)
        self.route.refused += max(refused - self._counted[1], 0)
        self.route.unsettled = len(consumer.unacked)
        self._counted = passed, refused


class InwardTopics:
    """Maps the topics that the other end publishes to local ones, by the first incoming route that matches.

    The other end adds no hop to messages that we have subscribed to, so it is added here.
    """

    def __init__(self, link: Link, routes: Iterable[BridgeRoute]) -> None:
        self._link = link
        self._routes = list(routes)
        self._known: dict[str, tuple[str, BridgeRoute] | None] = {}
        self._chars = 0
        self.by_topic: dict[str, BridgeRoute] = {}  # by local topic

    def publish(self, run: Publish) -> dict[int, Refused]:
        """Replace the topics of a run by local ones, and add a hop.

        Returns the refused messages: those without a route or with too many hops, and those behind one without room.
        """
        link, most = self._link, self._link.settings.max_hops
        hops = len(hops_of(b"\0" + run.properties.raw))
        refused = {}
        for at, topic in enumerate(run.topics):
            found = self._find(topic)
            if found is None:
                why = f"no route of this link takes the topic {format_value(topic)}"
                refused[at] = Refused(ReasonCode.TOPIC_NAME_INVALID, why)
                continue
            run.topics[at], each = found
            if run.qos and run.topics[at] in each.full:
                refused[at] = each.full[run.topics[at]]
            if hops >= most:
                refused[at] = Refused(ReasonCode.NOT_AUTHORIZED, str(TooManyHops(hops, most)))
        mark = (USER_PROPERTY, (HOPS, hop(link.name, link.name, link.now())))
        run.properties = Properties([*run.properties, mark])
        return refused

    def _find(self, topic: str) -> tuple[str, BridgeRoute] | None:
        if topic in self._known:
            return self._known[topic]
        if len(self._known) >= TOPICS_REMEMBERED_MAX or self._chars >= CHARS_REMEMBERED_MAX:
            self._known.clear()
            self.by_topic.clear()
            self._chars = 0
        self._chars += len(topic)
        found = None
        for each in self._routes:
            here = each.local_topic(topic)
            if here is not None:
                found = here, each
                self.by_topic[here] = each
                break
        self._known[topic] = found
        return found


class BridgeRenderer(Renderer):
    """Renders messages for the other end of a link: with its topics and a hop, within its QoS and RETAIN limits."""

    __slots__ = ("_broker", "_enforces_quota", "_hops_max", "_link", "_qos_max", "_retains", "_routes")

    def __init__(self, bridge: Bridge, version: int, *, qos_max: int, retains: bool) -> None:
        super().__init__(bridge.common.heads, version)
        self._routes = {text: Renderer(heads, version) for text, heads in bridge.heads.items()}
        self._broker, self._link = bridge.broker, bridge.link.name
        self._hops_max = bridge.link.settings.max_hops
        self._qos_max = qos_max
        self._retains = retains
        self._enforces_quota = bridge.enforces_quota

    def head(
        self,
        subscription: Subscription,
        header: MessageHeader,
        published: int,
        retain: bool,
        properties: bytes,
        now: int,
        qos: int | None,
        dup: bool,
    ) -> PublishHead:
        """Return the head of messages with another hop.  Raises TooManyHops, ConversionError."""
        hops = len(hops_of(b"\0" + properties))
        if hops >= self._hops_max:
            raise TooManyHops(hops, self._hops_max)
        mark = Properties([(USER_PROPERTY, (HOPS, hop(self._broker, self._link, now)))]).raw
        if self._enforces_quota:
            _check_size(properties + mark)
        published, retain = min(published, self._qos_max), retain and self._retains
        of_route = self._routes[subscription.filter.text]
        return of_route.head(subscription, header, published, retain, properties + mark, now, qos, dup)


def _check_size(properties: bytes) -> None:
    """Check that a Bartleby would accept these properties from a client.  Raises ConversionError."""
    many = len(read_properties(b"\0" + properties).get_all(USER_PROPERTY))
    if many > _CLIENTS.user_properties_max or len(properties) > _CLIENTS.properties_bytes_max:
        text = f"the other broker has refused so much: {many} user properties, {len(properties)} bytes of properties"
        raise ConversionError(text, DeadLetterReason.TOO_LARGE)


class Bridge:
    """A link over MQTT, whether it is connected or not.

    `client_id`: the client identifier of the other end here.  `link.client_id`: that of this broker at the other one.
    """

    def __init__(
        self, tick: Tick, sessions: MqttSessions, link: Link, codec: Shared, broker_name: str, *, unique: bool
    ) -> None:
        self.link = link
        self.broker = broker_name
        self.client_id = LINK_SESSIONS + link.name
        self.routes = [BridgeRoute(each) for each in link.routes.values()]
        self.outgoing = {each.here.text: each for each in self.routes if each.route.settings.outward}
        self.incoming = [each for each in self.routes if each.route.settings.inward]
        self.inward = InwardTopics(link, self.incoming)
        self.heads = {text: Heads(sessions.syntax, each) for text, each in self.outgoing.items()}
        self.common = Common(tick, MqttOptions(), codec, sessions, sessions.heads, self.inward)
        self._sessions = sessions
        self.versions = VersionNegotiation()
        self.enforces_quota = False  # the other end has closed a connection because a quota was exceeded
        self.session = self._open()
        link.client_id = self._identify(unique=unique)

    # -- the session -----------------------------------------------------------------------------------------------

    def client(self) -> Client:
        """Return the other end as a client."""
        return Client(self.client_id, unrestricted(self.client_id), self.link.remote, expiry=NEVER_EXPIRES)

    def _identify(self, *, unique: bool) -> str:
        """Return the client identifier of this broker at the other one.

        If the broker's name is not `unique`, it has the journal's id too.  A session that exists is kept as it is.
        """
        other, broker = self.session.other, self.broker
        assert other is not None, "a link's session has one"
        if not unique:
            if other.client_id:
                return other.client_id
            if not other.kept:  # else an earlier version has logged in with the name alone
                broker = f"{broker}-{self.common.tick.engine.journal.broker_id.hex()[:ID_DIGITS]}"
        return f"{broker}.{self.link.name}"

    def _open(self) -> ClientSession:
        away = self.client()
        away.disconnected = self._sessions.engine.now
        session = self._sessions.hold(away)
        for subscription in list(session.subscriptions):
            text = subscription.filter.text
            if text not in self.outgoing or self.outgoing[text].queue != subscription.name:
                session.subscriptions.abandon(text)
        for each in self.outgoing.values():
            try:
                self.subscribe(session, each)
            except EngineError as error:  # it is reported when the route starts
                each.route.error = str(error)
        for _ in session.subscriptions.leave_all(Ending.DISCONNECTED):
            pass
        self._sessions.note_all(session)
        return session

    def subscribe(self, session: ClientSession, route: BridgeRoute) -> None:
        """Subscribe a route's queue to its topics.  Raises EngineError."""
        asked = SubscriptionRequest(route.here, route.route.settings.qos, no_local=True, retain_as_published=True)
        fresh = session.subscriptions.subscribe(asked, 0, len(self.outgoing), route.queue)
        if fresh and asked.qos:
            session.subscriptions.send_retained(route.here.text)

    def subscriptions(self) -> dict[str, Subscription]:
        """Return the subscriptions of the outgoing routes, by the text of their filters."""
        return {each.filter.text: each for each in self.session.subscriptions}

    def reading(self, queue: Queue) -> list[BridgeRoute]:
        """Return the route that sends a queue's messages, if there is one."""
        return [each for each in self.outgoing.values() if each.queue == queue.name]

    def count(self) -> None:
        """Update the figures of outgoing routes."""
        found = self.subscriptions()
        for text, route in self.outgoing.items():
            route.count(found.get(text))


def bridges(
    tick: Tick, sessions: MqttSessions, links: Links, codec: Shared, broker_name: str, *, unique: bool
) -> dict[str, Bridge]:
    """Return the bridges of all links over MQTT, by link name; `unique`: no other broker has the broker's name.

    Ends the sessions of links that are no longer configured.  Call within a tick, after the sessions are restored and
    before any client connects.
    """
    wanted = [link for link in links.by_name.values() if link.settings.urls[0].startswith("mqtt")]
    kept = {LINK_SESSIONS + link.name for link in wanted}
    for session in sessions.of_links():
        if session.client.id not in kept:
            for subscription in list(session.subscriptions):
                session.subscriptions.abandon(subscription.filter.text)
            sessions.end(session)
    return {link.name: Bridge(tick, sessions, link, codec, broker_name, unique=unique) for link in wanted}
