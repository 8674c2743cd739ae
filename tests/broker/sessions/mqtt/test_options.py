"""What an MQTT acceptor can be told to allow, at the limit and above it, in every version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.config import MqttAcceptor
from broker.engine.model.permissions import Permission, PermissionTable
from broker.sessions.mqtt.session import MqttSession
from broker.sessions.mqtt.terms import MqttOptions
from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import (
    ASSIGNED_CLIENT_IDENTIFIER,
    CONTENT_TYPE,
    MAXIMUM_QOS,
    REASON_STRING,
    RESPONSE_TOPIC,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    Properties,
)
from tests.broker.sessions.mqtt.harness import carrier, with_mqtt
from tests.support.mqtt_client import MqttClient, greeting, publishes
from tests.support.mqtt_world import Connecting, SimCarrier, SimWorld
from tests.support.sim_broker import configured

P = PacketType

VERSIONS = pytest.mark.parametrize("version", [V31, V311, V5])
EARLY = pytest.mark.parametrize("version", [V31, V311])


def refused(client: MqttClient) -> int | None:
    """The code of the CONNACK that refuses a client, None: it is closed without one."""
    assert client.closed
    return None if client.connack is None else client.connack.reason_code


# -- keep alive --------------------------------------------------------------------------------------------------------


@EARLY
def test_an_early_client_may_not_be_silent_for_longer(version: int) -> None:
    """It cannot be told, so it is refused: with return code 2, as by Mosquitto."""
    sim = SimWorld(with_mqtt(max_keepalive=30_000))
    for asked in (31, 65_535, 0):
        assert refused(sim.attempt(greeting("c", version=version, keep_alive=asked))) == 2
    client = sim.connect("c", version=version, keep_alive=30)
    sim.advance(46)
    client.settle()
    assert client.closed


@pytest.mark.parametrize(("server", "most", "told"), [(60_000, 30_000, 30), (20_000, 30_000, 20), (0, 30_000, 30)])
def test_a_client_of_5_is_told_the_shorter_keep_alive(server: int, most: int, told: int) -> None:
    sim = SimWorld(with_mqtt(server_keep_alive=server, max_keepalive=most))
    assert sim.connect("c", keep_alive=0).told(SERVER_KEEP_ALIVE) == told
    assert sim.connect("c", keep_alive=told + 1).told(SERVER_KEEP_ALIVE) == told
    assert sim.connect("c", keep_alive=told).told(SERVER_KEEP_ALIVE) is None


# -- client identifiers ------------------------------------------------------------------------------------------------


@VERSIONS
def test_clients_may_have_to_name_themselves(version: int) -> None:
    """[MQTT-3.1.3-8] of 3.1.1, 3.1.3.1 of 5.0."""
    sim = SimWorld(with_mqtt(allow_zero_length_clientid=False))
    if version != V31:  # which has no empty ones
        assert refused(sim.attempt(greeting("", version=version))) == (0x85 if version == V5 else 2)
    sim.connect("c", version=version)
    if version == V5:
        assert SimWorld().connect("").told(ASSIGNED_CLIENT_IDENTIFIER)


# -- QoS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1])
def test_a_client_of_5_is_told_the_maximum_qos(most: int) -> None:
    """[MQTT-3.2.2-9], [MQTT-3.2.2-10]: and subscriptions are granted as much."""
    sim = SimWorld(with_mqtt(maximum_qos=most))
    client = sim.connect("c")
    assert client.told(MAXIMUM_QOS) == most
    assert client.subscribe("a", qos=2) == [most]
    assert client.subscribe("b", qos=0) == [0]
    client.publish("a", b"x", most)
    assert [message.qos for message in client.take()] == [most]
    client.publish("a", b"x", most + 1)
    assert client.goodbye_code == 0x9B
    assert client.closed


@pytest.mark.parametrize("most", [0, 1])
@EARLY
def test_an_early_client_that_publishes_with_more_is_closed(version: int, most: int) -> None:
    sim = SimWorld(with_mqtt(maximum_qos=most))
    client = sim.connect("c", version=version)
    assert client.subscribe("a", qos=2) == [most]
    client.publish("a", b"x", most)
    assert [client.closed] == [False]
    client.publish("a", b"x", most + 1)
    assert client.closed
    assert sim.broker.reported("mqtt.error")[0]["reason"] == "0x9B"


@VERSIONS
def test_a_will_is_held_to_the_maximum_qos(version: int) -> None:
    """[MQTT-3.2.2-12]."""
    sim = SimWorld(with_mqtt(maximum_qos=1))
    client = sim.attempt(greeting("c", version=version, will=Will("w", b"", 2)))
    assert refused(client) == (0x9B if version == V5 else None)
    sim.connect("c", version=version, will=Will("w", b"", 1))


# -- retained messages -------------------------------------------------------------------------------------------------


@VERSIONS
def test_retained_messages_may_be_unavailable(version: int) -> None:
    """[MQTT-3.2.2-13]."""
    sim = SimWorld(with_mqtt(retain_available=False))
    client = sim.connect("c", version=version)
    assert client.told(RETAIN_AVAILABLE) == (0 if version == V5 else None)
    client.publish("a", b"x", 1, retain=True)
    assert client.closed
    if version == V5:
        assert client.goodbye_code == 0x9A
    will = Will("w", b"", 0, retain=True)
    assert refused(sim.attempt(greeting("c", version=version, will=will))) == (0x9A if version == V5 else None)


def test_subscriptions_get_nothing_retained_where_that_is_unavailable(sim: SimWorld) -> None:
    """It was retained by way of another acceptor; the topics of `$SYS` are the broker's answers, and come."""
    sim.connect("p").publish("a", b"x", 1, retain=True)
    client = sim.connect("c")
    session = carrier(client).session
    assert isinstance(session, MqttSession)
    session._options = with_options(session, retain=False)
    client.subscribe("a", qos=1)
    assert client.take() == []
    client.subscribe("$SYS/broker/version")
    assert [message.topic for message in client.take()] == ["$SYS/broker/version"]


def with_options(session: MqttSession, **changed: object) -> MqttOptions:
    """The options of a session, but for these."""
    return replace(session._options, **changed)  # type: ignore[arg-type]


# -- sizes -------------------------------------------------------------------------------------------------------------

LIMIT = 1_000


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_payload_above_the_limit_is_refused_and_the_others_are_taken(qos: int, large: bool) -> None:
    limit = 200_000 if large else LIMIT
    sim = SimWorld(with_mqtt(message_size_limit=limit))
    client, other = sim.connect("c"), sim.connect("o")
    other.subscribe("a", qos=qos)
    payloads = [b"x" * limit, b"y" * (limit + 1), b"z"]
    ids = client.post("a", payloads, qos)
    kind = P.PUBACK if qos == 1 else P.PUBREC
    assert sorted((id, reason) for id, reason in client.replies(kind)) == [(ids[0], 0), (ids[1], 0x97), (ids[2], 0)]
    assert other.payloads() == [payloads[0], payloads[2]]
    assert not client.closed


def test_a_payload_that_is_refused_says_why() -> None:
    sim = SimWorld(with_mqtt(message_size_limit=LIMIT))
    client = sim.connect("c", auto=False)
    client.publish("a", b"x" * (LIMIT + 1), 1)
    assert client.answers[0].properties.get(REASON_STRING) == "a payload of 1001 bytes, at most 1000 are allowed"


@EARLY
def test_an_early_client_cannot_be_told_of_a_refused_payload(version: int) -> None:
    """QoS 0 is dropped, and logged; more is not confirmed and gone: the client is closed."""
    sim = SimWorld(with_mqtt(message_size_limit=LIMIT))
    client = sim.connect("c", version=version)
    client.publish("a", b"x" * (LIMIT + 1))
    assert not client.closed
    assert len(sim.broker.reported("mqtt.publish_dropped")) == 1
    client.publish("a", b"x" * (LIMIT + 1), 1)
    assert client.replies(P.PUBACK) == []
    assert client.closed


@VERSIONS
def test_a_will_is_held_to_the_size(version: int) -> None:
    sim = SimWorld(with_mqtt(message_size_limit=10))
    client = sim.attempt(greeting("c", version=version, will=Will("w", b"x" * 11)))
    assert refused(client) == (0x97 if version == V5 else 3)
    sim.connect("c", version=version, will=Will("w", b"x" * 10))


def test_no_payload_at_all() -> None:
    sim = SimWorld(with_mqtt(message_size_limit=0))
    client = sim.subscriber("c", "a", qos=1)
    first, second = client.publish("a", b"", 1), client.publish("a", b"x", 1)
    assert client.replies(P.PUBACK) == [(first, 0), (second, 0x97)]
    assert client.payloads() == [b""]


# -- mount points ------------------------------------------------------------------------------------------------------


class Mounted(Connecting):
    """An acceptor `devices` beside the one as shipped, and its clients."""

    def __init__(self, prefix: str = "devices/", *settings: dict[str, object], **more: object) -> None:
        shipped = configured(*settings)
        acceptor = shipped.acceptors["mqtt"].model_copy(update={"mount_point": prefix, **more})
        self.root = SimWorld(shipped.model_copy(update={"acceptors": {**shipped.acceptors, "devices": acceptor}}))

    def stranger(self) -> MqttClient:
        client = MqttClient()
        return client.over(SimCarrier(self.root.broker, "devices"))


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_mount_point_goes_before_all_topics(version: int, qos: int) -> None:
    world = Mounted()
    inside, outside = world.connect("c", version=version), world.root.connect("c", version=version)
    assert inside.subscribe("a/+", qos=qos) == [qos]
    outside.subscribe("#", qos=qos)
    inside.publish("a/b", b"1", qos)
    outside.publish("a/b", b"not there", qos)
    outside.publish("devices/a/b", b"2", qos)
    assert [(m.topic, m.payload) for m in inside.take()] == [("a/b", b"1"), ("a/b", b"2")]
    assert [m.topic for m in outside.take()] == ["devices/a/b", "a/b", "devices/a/b"]
    assert inside.unsubscribe("a/+") == ([0] if version == V5 else [])
    outside.publish("devices/a/b", b"3", qos)
    assert inside.take() == []


@pytest.mark.parametrize("large", [False, True])
def test_messages_of_every_size_and_of_one_read(large: bool) -> None:
    world = Mounted()
    inside = world.subscriber("c", "+", qos=1)
    payload = b"x" * (200_000 if large else 10)
    inside.raw(publishes([(topic, payload) for topic in "abab"], 1))
    assert [(m.topic, m.payload) for m in inside.take()] == [(topic, payload) for topic in "abab"]
    assert sorted(world.root.broker.engine.addresses.keys() & {"a", "b", "devices.a"}) == ["devices.a"]


def test_a_filter_of_everything_is_everything_inside() -> None:
    """The prefix without its end is a topic outside, and nobody's dead letter."""
    world = Mounted("de/vices/")
    inside, outside = world.connect("c"), world.root.connect("c")
    assert inside.subscribe("#", qos=1) == [1]
    for topic in ("de/vices", "de", "x", "de/vices/", "de/vices/a/b"):
        outside.publish(topic, topic.encode(), 1)
    assert inside.payloads() == [b"de/vices/a/b"], "an empty topic is none"
    assert inside.unsubscribe("#") == [0]


def test_retained_messages_shares_wills_and_response_topics_have_the_mount_point_too() -> None:
    world = Mounted()
    outside, other = world.root.connect("o"), world.root.connect("p")
    other.subscribe("#", qos=1)
    properties = [(RESPONSE_TOPIC, "answers/c"), (CONTENT_TYPE, "text/plain")]
    inside = world.connect("c", will=Will("gone", b"w", 1, properties=Properties(properties)))
    inside.publish("state", b"kept", 1, retain=True, properties=properties)
    [message] = other.take()
    assert (message.topic, message.get(RESPONSE_TOPIC)) == ("devices/state", "devices/answers/c")
    second = world.subscriber("d", "state", "$share/g/jobs", qos=1)
    [message] = second.take()
    assert (message.topic, message.get(RESPONSE_TOPIC), message.get(CONTENT_TYPE)) == (
        "state",
        "answers/c",
        "text/plain",
    )
    outside.publish("devices/jobs", b"j", 1, properties=[(RESPONSE_TOPIC, "outside"), (CONTENT_TYPE, "t")])
    [message] = second.take()
    assert (message.topic, message.get(RESPONSE_TOPIC), message.get(CONTENT_TYPE)) == ("jobs", None, "t")
    assert "$share.g.devices.jobs" in world.root.broker.engine.queues
    inside.drop()
    message = other.take()[-1]
    assert (message.topic, message.get(RESPONSE_TOPIC)) == ("devices/gone", "devices/answers/c")


def test_client_identifiers_are_those_of_the_mount_point() -> None:
    """So nobody inside takes over a session outside, also not one that is only stored."""
    world = Mounted()
    outside = world.root.connect("c", expiry=100)
    outside.subscribe("secret", qos=1)
    inside = world.subscriber("c", "a", qos=1, expiry=100)
    assert not inside.present
    assert not outside.closed
    outside.drop()
    inside.drop()
    world.root.connect("p").publish("secret", b"x", 1)
    again = world.connect("c", clean=False, expiry=100)
    assert again.present
    world.root.connect("p").publish("devices/a", b"y", 1)
    assert again.payloads() == [b"y"]
    assert world.root.connect("c", clean=False, expiry=100).payloads() == [b"x"]


@pytest.mark.parametrize(("version", "refusal"), [(V311, 2), (V5, 0x85)])
def test_a_client_identifier_of_a_mount_point_is_refused_at_other_acceptors(version: int, refusal: int) -> None:
    """Nobody outside takes over a session inside, connected or stored, or makes one before its client does."""
    world = Mounted()
    device = world.subscriber("c", "a", qos=1, expiry=100)
    for name in ("devices/c", "devices/", "devices/new"):
        connack = world.root.attempt(greeting(name, version=version)).connack
        assert connack is not None
        assert connack.reason_code == refusal
    assert not device.closed
    assert world.root.connect("devices", version=version).connack is not None
    assert world.connect("devices/c").connack is not None, "inside it is `devices/devices/c`"


@VERSIONS
@pytest.mark.parametrize("pattern", ["#", "+/x", "+/#"])
def test_wildcards_inside_do_not_match_what_begins_with_a_dollar_inside(version: int, pattern: str) -> None:
    """MQTT 5.0, MQTT-4.7.2-1, for topics as the client sees them."""
    world = Mounted()
    inside, named = world.subscriber("c", pattern, version=version), world.subscriber("d", "$foo/#", version=version)
    outside = world.root.subscriber("o", "devices/#", "$devices/#", version=version)
    inside.publish("$foo/x", b"kept", 1, retain=True)
    inside.publish("foo/x", b"seen", 1)
    assert inside.payloads() == [b"seen"]
    assert [(message.topic, message.payload) for message in named.take()] == [("$foo/x", b"kept")]
    assert [message.topic for message in outside.take()] == ["$devices/foo/x", "devices/foo/x"]
    late = world.subscriber("late", pattern, version=version)
    assert late.payloads() == []
    assert world.subscriber("later", "$foo/+", version=version).payloads() == [b"kept"]


def test_topics_of_the_broker_are_outside_of_every_mount_point() -> None:
    world = Mounted()
    inside = world.subscriber("c", "$SYS/broker/version", auto=False)
    assert [message.topic for message in inside.take()] == ["$SYS/broker/version"]
    inside.publish("$SYS/broker/version", b"lies", 1)
    assert [code for _, code in inside.replies(P.PUBACK)] == [0x90]


def test_queues_by_their_full_name_and_other_protocols() -> None:
    world = Mounted()
    stomp = world.root.broker.connect()
    stomp.confirmed("/queue/devices.jobs", b"1")
    stomp.confirmed("/queue/secret", b"2")
    inside = world.subscriber("c", "jobs::devices.jobs", "secret::secret", "devices.secret::secret", qos=1)
    assert [(m.topic, m.payload) for m in inside.take()] == [("jobs", b"1")]
    stomp.subscribe("/topic/devices.orders", ack="auto")
    inside.publish("orders", b"3", 1)
    assert stomp.bodies() == [b"3"]


@pytest.mark.parametrize("prefix", ["devices", "a/+/", "#/", "$SYS/", "x" * 256 + "/", "\0/"])
def test_a_mount_point_that_is_none(prefix: str) -> None:
    with pytest.raises(ValueError, match="give whole levels"):
        MqttAcceptor.model_validate({"protocol": "mqtt", "mount-point": prefix})


def test_mount_points_that_are() -> None:
    for prefix in ("", "a/", "/", "x" * 255 + "/"):
        assert MqttAcceptor.model_validate({"protocol": "mqtt", "mount-point": prefix}).mount_point == prefix


# -- bytes in flight ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("most", "sent"), [(-1, 5), (0, 5), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (1_000, 5)])
def test_bytes_in_flight(most: int, sent: int, qos: int) -> None:
    """As long as fewer bytes than that are in flight another message goes, however large."""
    sim = SimWorld(with_mqtt(in_flight_bytes_max=most))
    client = sim.subscriber("c", "t", qos=qos, auto=False)
    producer = sim.connect("p")
    for n in range(5):
        producer.publish("t", b"%d" % n * 10, qos)
    producer.publish("t", b"qos 0", 0)
    arrived = client.take()
    assert len([one for one in arrived if one.qos]) == sent


@pytest.mark.parametrize("qos", [1, 2])
def test_everything_comes_in_order_however_few_bytes_may_be_in_flight(qos: int) -> None:
    sim = SimWorld(with_mqtt(in_flight_bytes_max=1_000))
    again: dict[str, Any] = {"clean": False, "expiry": 100}
    client = sim.subscriber("c", "t", "other", qos=qos, auto=False, **again)
    producer = sim.connect("p")
    payloads = [b"%d" % n * (1 + n % 700) for n in range(200)]
    for payload in payloads:
        producer.publish("t", payload, qos)
    seen = [one.payload for one in client.take()]
    assert 0 < len(seen) < 200
    client.drop()
    sim.restart()
    client = sim.connect("c", **again)
    got = client.payloads()
    assert got == payloads
    producer = sim.connect("p")
    for n in range(100):
        producer.publish("other" if n % 3 else "t", b"%d" % n * 300, qos)
    assert len(client.payloads()) == 100


def test_bytes_in_flight_of_payloads_in_files() -> None:
    sim = SimWorld(with_mqtt(in_flight_bytes_max=1_000, mqtt_min_large_message_size=5_000))
    client = sim.subscriber("c", "t", qos=1, auto=False)
    producer = sim.connect("p")
    for n in range(3):
        producer.publish("t", b"%d" % n * 10_000, 1)
    (first,) = client.take()
    client.ack(P.PUBACK, first.packet_id)
    (second,) = client.take()
    client.ack(P.PUBACK, second.packet_id, reason=0x80)
    assert [one.payload[:1] for one in client.take()] == [b"2"]


# -- explanations ------------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_subscribe_of_which_hundreds_are_refused_is_answered(version: int) -> None:
    """Together the explanations are longer than any text of MQTT; the filters that were allowed must hear it."""
    sim = SimWorld()
    everything = {permission: frozenset({"amq"}) for permission in Permission}
    sim.broker.enter().secure(PermissionTable([("allowed", everything)]))
    client = sim.connect("c", version=version)
    codes = client.subscribe("allowed", *[f"{'denied' * 20}/{number}" for number in range(800)])
    refused = {V5: 0x87, V311: 0x80, V31: 0}[version]  # 3.1 has no code for it
    assert codes == [0] + [refused] * 800
    assert not client.closed
    sim.connect("sender").publish("allowed", b"x")
    assert client.payloads() == [b"x"]
