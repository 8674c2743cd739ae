"""The cases of `bench.stalls` of MQTT clients in one thread with their broker, under virtual time.

They need what sockets do not let happen: thousands of sessions, or retained messages, that expire in the same moment,
and more clients than may be connected.  Each tells the CPU of the longest tick.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final, cast

from bench.stalls_engine import Longest, TickMeter, segment_bytes
from broker.config import Config
from broker.config.security import SecuritySetting
from protocols.amqp.limits import Limits
from protocols.amqp.message import AMQP_VALUE, encode_section
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, Properties
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import MqttClient, Pairs
from tests.support.mqtt_world import FOR_EVER, Connecting, SimCarrier
from tests.support.sim_broker import SimBroker
from tests.support.stomp_client import frame

#: Messages that a client sends without waiting for answers: half as many as it may.
UNANSWERED_MAX: Final = 500

#: One in so many messages is a session: 20,000 at 200,000 messages.
MESSAGES_OF_A_SESSION: Final = 10

#: Topic filters in a packet, and those of them that match all retained messages.
FILTERS: Final = 1_000
WIDE_FILTERS: Final = 15

#: One in so many messages is one to all subscribers: 2,000 at 200,000 messages; and how many those are.
MESSAGES_OF_A_TOPIC: Final = 100
SUBSCRIBERS: Final = 300

#: The topic of a client that has nothing to do with others; no wildcard at the beginning matches it.
NEIGHBOUR: Final = "$neighbour"

#: One in so many messages is a topic that a client may not send to: 8,000 at 200,000 messages.
MESSAGES_OF_A_REFUSAL: Final = 25

#: One in so many messages is a list: 200 at 200,000 messages.
MESSAGES_OF_A_LIST: Final = 1_000

#: How long messages and sessions that expire last, in s.
LASTING_S: Final = 1_000

#: Permissions with patterns, of which the last that are tried fit.
PERMISSIONS: Final = 300

USER: Final = "user"

_ALL_RIGHTS: Final = ("send", "consume", "createAddress", "createDurableQueue", "createNonDurableQueue")


class _Wire(SimCarrier):
    """A perfect wire to a broker whose ticks are measured."""

    def __init__(self, meter: TickMeter) -> None:
        self._meter = meter
        super().__init__(meter.broker)

    def raw(self, data: bytes) -> None:
        """Send bytes to the broker, which works until nothing is left to do."""
        if not self.closed:
            self._meter.ask("read", lambda: self.pass_on(data))

    def pass_on(self, data: bytes) -> None:
        """Send bytes to the broker, whose tick goes on."""
        self._tell(lambda: self.session.receive_data(data))
        self.broker.tick.touch(self)

    def drop(self) -> None:
        """Break the connection."""
        self._meter.ask("end", self.abort)


class _Neighbour:
    """A client with nothing to do with the others: while there is work, it sends itself a message again and again."""

    def __init__(self, meter: SessionMeter) -> None:
        self._client = meter.login("neighbour")
        meter.subscribe(self._client, [NEIGHBOUR], 0)
        self._wire = cast(_Wire, self._client.link)
        self._waits = False

    def send(self) -> bool:
        """Send a message, unless one is on its way; whether it has."""
        if self._waits:
            return False
        codec = self._client.codec
        codec.send_publish(PublishHead(codec.version, NEIGHBOUR), [b"hello"], [])
        self._wire.pass_on(codec.data_to_send())
        self._waits = True
        return True

    def received(self) -> bool:
        """Whether the message has arrived just now."""
        if self._waits and self._client.codec.events():
            self._waits = False
            return True
        return False


class SessionMeter(TickMeter, Connecting):
    """A broker, its clients, and the CPU of its ticks; with a `neighbour`, also that of this client's messages."""

    def __init__(self, messages: int, config: Config | None = None, *, neighbour: bool = False) -> None:
        limits = small().limits.model_copy(update={"retained_messages_max": -1})
        config = config or small(segment_bytes=segment_bytes(messages), retained=False, limits=limits)
        super().__init__(SimBroker(config, users={USER: USER}))
        self._sent_at = 0.0
        self._neighbour: _Neighbour | None = None
        if neighbour:
            self._neighbour = _Neighbour(self)

    def begin(self) -> None:
        super().begin()
        self.wait = 0.0

    def _meanwhile(self) -> None:
        if self._neighbour is not None and self.broker.engine.ticks.has_more and self._neighbour.send():
            self._sent_at = self.used

    def _tick_ended(self) -> None:
        if self._neighbour is not None and self._neighbour.received():
            self.wait = max(self.wait, self.used - self._sent_at)

    def stranger(self) -> MqttClient:
        return MqttClient().over(_Wire(self))

    def publish(
        self, client: MqttClient, topic: str, messages: int, *, retain: bool = False, properties: Pairs = ()
    ) -> None:
        """Publish so many messages, on topics that differ in their last level if the topic ends with a slash."""
        raw = Properties(properties).raw
        for first in range(0, messages, UNANSWERED_MAX):
            for number in range(first, min(first + UNANSWERED_MAX, messages)):
                name = f"{topic}{number}" if topic.endswith("/") else topic
                head = PublishHead(client.codec.version, name, qos=1, retain=retain, properties=raw)
                client.codec.send_publish(head, [b"x" * 100], [1 + number % UNANSWERED_MAX])
            client.settle()
            assert len(client.answers) == min(UNANSWERED_MAX, messages - first), client.goodbye
            client.answers.clear()

    def login(self, client_id: str, **more: Any) -> MqttClient:
        """A client that is connected."""
        return self.connect(client_id, user_name=USER, password=USER.encode(), **more)

    def subscribe(self, client: MqttClient, filters: list[str], qos: int) -> None:
        """Send one SUBSCRIBE, and see all its filters accepted."""
        assert client.subscribe(*filters, qos=qos) == [qos] * len(filters), client.goodbye

    def pass_time(self, seconds: int) -> None:
        """Let time pass."""
        self.broker.now += 1000 * seconds
        self.ask("time", lambda: None)


def retained_expired(messages: int) -> Longest:
    """All retained messages expire in the same moment."""
    meter = SessionMeter(messages)
    expiry = [(MESSAGE_EXPIRY_INTERVAL, LASTING_S)]
    meter.publish(meter.login("producer"), "retained/", messages, retain=True, properties=expiry)
    assert meter.broker.engine.retained.messages == messages
    meter.begin()
    meter.pass_time(2 * LASTING_S)
    assert meter.broker.engine.retained.messages == 0
    return meter.longest()


def sessions_expired(messages: int) -> Longest:
    """Sessions with a subscription, one for ten messages, expire in the same moment."""
    meter = SessionMeter(messages)
    sessions = max(messages // MESSAGES_OF_A_SESSION, 1)
    for number in range(sessions):
        client = meter.login(f"c{number}", expiry=LASTING_S)
        meter.subscribe(client, [f"topic/{number}"], 1)
        client.drop()
        meter.broker.forget()
    assert len(meter.broker.engine.sessions) == sessions
    meter.begin()
    meter.pass_time(2 * LASTING_S)
    assert len(meter.broker.engine.sessions) == 0
    return meter.longest()


def taken_over(messages: int) -> Longest:
    """A session with half as many messages, some of them in flight, is taken over, and all of them are read."""
    meter = SessionMeter(messages)
    former = meter.login("c", expiry=FOR_EVER, auto=False)
    meter.subscribe(former, ["backlog"], 1)
    meter.publish(meter.login("producer"), "backlog", messages // 2)
    meter.begin()
    client = meter.login("c", clean=False, expiry=FOR_EVER)
    assert client.present
    got = 0
    while got < messages // 2:
        got += len(client.take())
    return meter.longest()


def _with_filters(messages: int) -> tuple[SessionMeter, MqttClient]:
    """A client with 1,000 subscriptions in a lasting session."""
    meter = SessionMeter(messages)
    client = meter.login("c", expiry=FOR_EVER)
    meter.subscribe(client, [f"filters/{number}/+" for number in range(FILTERS)], 1)
    return meter, client


def leaving(messages: int) -> Longest:
    """A client with 1,000 subscriptions leaves; its session stays."""
    meter, client = _with_filters(messages)
    meter.begin()
    client.drop()
    return meter.longest()


def returning(messages: int) -> Longest:
    """A client with 1,000 subscriptions returns to its session."""
    meter, client = _with_filters(messages)
    client.drop()
    meter.begin()
    assert meter.login("c", clean=False, expiry=FOR_EVER).present
    return meter.longest()


def replaced(messages: int) -> Longest:
    """A client with 1,000 subscriptions connects again while it is connected."""
    meter, _ = _with_filters(messages)
    meter.begin()
    assert meter.login("c", clean=False, expiry=FOR_EVER).present
    return meter.longest()


def begun_anew(messages: int) -> Longest:
    """A client with 1,000 subscriptions connects again, with a clean start."""
    meter, _ = _with_filters(messages)
    meter.begin()
    assert not meter.login("c", clean=True, expiry=FOR_EVER).present
    return meter.longest()


def stomp_leaving(messages: int) -> Longest:
    """A STOMP client with 1,000 subscriptions on wildcard topics leaves."""
    meter = SessionMeter(messages)
    client = meter.broker.connect(login=USER, passcode=USER)
    for number in range(FILTERS):
        client.subscribe(f"/topic/filters.{number}.*", str(number))
    meter.begin()
    meter.ask("end", client.abort)
    return meter.longest()


def amqp_leaving(messages: int) -> Longest:
    """An AMQP client with 1,000 links from wildcard topics leaves."""
    meter = SessionMeter(messages)
    client = AmqpSim(meter.broker, login=(USER, USER))
    for number in range(FILTERS):
        client.receiver(f"topic://filters.{number}.*", name=f"r{number}")
    meter.begin()
    meter.ask("end", client.abort)
    return meter.longest()


def permissions(messages: int) -> Longest:
    """SUBSCRIBE of 1,000 topic filters, under permissions with patterns, each of which is decided by the last."""
    rights = dict.fromkeys(_ALL_RIGHTS, ("amq",))
    settings = [SecuritySetting.model_validate({"match": f"acl.*.{n}.%u.#", **rights}) for n in range(PERMISSIONS)]
    meter = SessionMeter(messages, small(security_settings=settings))
    client = meter.login("c", expiry=FOR_EVER)
    filters = [f"acl/{number}/{number % PERMISSIONS}/{USER}/+/#" for number in range(FILTERS)]
    meter.begin()
    meter.subscribe(client, filters, 1)
    return meter.longest()


def fan_out(messages: int) -> Longest:
    """Messages on as many topics, one for a hundred, reach 300 clients that each subscribe to all of them."""
    meter = SessionMeter(messages, neighbour=True)
    for number in range(SUBSCRIBERS):
        client = meter.login(f"c{number}")
        meter.subscribe(client, ["#"], 0)
        client.link.heard = _unread  # type: ignore[method-assign]
    codec = (producer := meter.login("producer")).codec
    for number in range(max(messages // MESSAGES_OF_A_TOPIC, 1)):
        codec.send_publish(PublishHead(codec.version, f"topic/{number}"), [b"hello"], [])
    meter.begin()
    producer.settle()
    return meter.longest()


def refused(messages: int) -> Longest:
    """Messages on as many topics, one for 25, that the client may not send to, sent together, and again."""
    rights = dict.fromkeys(_ALL_RIGHTS, ("amq",))
    others = dict.fromkeys(_ALL_RIGHTS, ("others",))
    settings = [
        SecuritySetting.model_validate({"match": match} | who) for match, who in (("#", rights), ("x.#", others))
    ]
    meter = SessionMeter(messages, small(security_settings=settings), neighbour=True)
    codec = (producer := meter.login("producer")).codec
    for _ in range(2):  # the topics of the second are known, so that they are one run
        for number in range(max(messages // MESSAGES_OF_A_REFUSAL, 1)):
            codec.send_publish(PublishHead(codec.version, f"x/{number}"), [b""], [])
        meter.begin()
        producer.settle()
    assert not producer.closed, producer.goodbye
    return meter.longest()


def converted(messages: int) -> Longest:
    """Lists of AMQP, one for 1,000 messages, each with as many values as it may have, go to a client of STOMP."""
    meter = SessionMeter(messages, neighbour=True)
    broker = meter.broker
    sender = AmqpSim(broker, login=(USER, USER))
    link = sender.sender("lists", "queue")
    value = encode_section(AMQP_VALUE, [None] * (Limits().values_max - 1))
    client = broker.connect(login=USER, passcode=USER)
    meter.begin()
    for _ in range(max(messages // MESSAGES_OF_A_LIST, 1)):
        sender.send(link, value)
    subscribe = frame("SUBSCRIBE", {"id": "0", "destination": "/queue/lists"})
    meter.ask("subscribe", lambda: client.session.receive_data(subscribe))
    return meter.longest()


def retained_matched(messages: int) -> Longest:
    """SUBSCRIBE of topic filters that match all retained messages, half as many."""
    meter = SessionMeter(messages, neighbour=True)
    meter.publish(meter.login("producer"), "retained/a/b/", messages // 2, retain=True)
    client = meter.login("c")
    levels = ("retained", "+"), ("a", "+"), ("b", "+"), ("+", "#")
    meter.begin()
    meter.subscribe(client, ["/".join(words) for words in product(*levels)][:WIDE_FILTERS], 0)
    return meter.longest()


def _unread(data: bytes) -> None:
    """Read nothing of what arrives: to parse it takes longer than to send it."""


SESSION_CASES: Final[dict[str, Callable[[int], Longest]]] = {
    case.__name__: case
    for case in (
        retained_expired,
        sessions_expired,
        taken_over,
        leaving,
        returning,
        replaced,
        begun_anew,
        stomp_leaving,
        amqp_leaving,
        permissions,
        fan_out,
        refused,
        converted,
        retained_matched,
    )
}
