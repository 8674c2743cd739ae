"""What MQTT 5.0 demands of a broker about messages and subscriptions: the statements that a codec cannot keep alone.

See `test_mqtt_normative`.
"""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.packets import Pingreq
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY_INTERVAL,
    PAYLOAD_FORMAT_INDICATOR,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER,
    USER_PROPERTY,
)
from tests.support.mqtt_client import Message, MqttClient, Pairs, wish
from tests.support.mqtt_world import FOR_EVER, Connecting, SimWorld

P = PacketType


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_each_qos_has_its_answer(world: Connecting, version: int) -> None:
    """[MQTT-3.3.4-1], [MQTT-4.3.2-4], [MQTT-4.3.3-8], [MQTT-4.2.0-1]."""
    watcher = world.subscriber("watcher", "a", qos=2, version=version)
    client = world.connect("c", version=version, auto=False)
    client.publish("a", b"0", 0)
    client.publish("a", b"1", 1, packet_id=7)
    client.publish("a", b"2", 2, packet_id=9)
    assert client.replies(P.PUBACK) == [(7, 0)]
    assert client.replies(P.PUBREC) == [(9, 0)]
    client.ack(P.PUBREL, 9)
    assert client.replies(P.PUBCOMP) == [(9, 0)]
    assert [(m.payload, m.qos) for m in watcher.take()] == [(b"0", 0), (b"1", 1), (b"2", 2)]


def test_nothing_is_acknowledged_before_it_is_durable(sim: SimWorld) -> None:
    """[MQTT-4.3.2-4], [MQTT-4.3.3-8]; promise P1."""
    watcher, client = sim.connect("w", clean=False, expiry=100), sim.connect("c", auto=False)
    watcher.subscribe("a", qos=2)
    sim.hold_disk()
    client.publish("a", b"1", 1)
    client.publish("a", b"2", 2)
    assert client.answers == []
    assert watcher.take() == []
    sim.write()
    assert len(client.replies(P.PUBACK)) == 1
    assert len(client.replies(P.PUBREC)) == 1
    assert watcher.payloads() == [b"1", b"2"]


def test_dup_says_nothing_about_the_next_hop(world: Connecting) -> None:
    """[MQTT-3.3.1-3]."""
    watcher, client = world.connect("watcher"), world.connect("c")
    watcher.subscribe("a", qos=2)
    for qos in (1, 2):
        client.publish("a", b"x", qos, dup=True)
    assert [message.dup for message in watcher.take()] == [False, False]


def test_sent_messages_match_the_subscription(world: Connecting) -> None:
    """[MQTT-3.3.2-3]."""
    cases = {
        "a/b": {"a/b"},
        "a/+": {"a/b", "a/c", "a/"},
        "a/#": {"a", "a/b", "a/c", "a/", "a/b/c"},
        "+": {"a", "b"},
        "+/+": {"a/b", "a/c", "a/", "/a", "/"},
        "/#": {"/a", "/"},
        "a//b": {"a//b"},
        "a/+/b": {"a//b"},
        "größe/+": {"größe/🐎"},
        "A": set(),
        "a.b/*": {"a.b/*"},
    }
    topics = {"a", "b", "a/b", "a/c", "a/", "a/b/c", "/a", "/", "a//b", "größe/🐎", "a.b/*"}
    cases["+/+"] |= {"größe/🐎", "a.b/*"}
    cases["a/+/b"] = {"a//b"}
    cases["a/#"] |= {"a//b"}
    clients = {pattern: world.connect(f"c{number}") for number, pattern in enumerate(cases)}
    for pattern, client in clients.items():
        assert client.subscribe(pattern) == [0]
    publisher = world.connect("publisher")
    for topic in sorted(topics):
        publisher.publish(topic, topic.encode())
    for pattern, client in clients.items():
        arrived = client.take()
        assert all(message.payload.decode() == message.topic for message in arrived)
        assert sorted(message.topic for message in arrived) == sorted(cases[pattern]), pattern


def test_a_leading_wildcard_does_not_match_what_begins_with_a_dollar(world: Connecting) -> None:
    """[MQTT-4.7.2-1]."""
    client, named = world.connect("c"), world.connect("named")
    client.subscribe("#", "+/x", "+")
    named.subscribe("$own/#")
    publisher = world.connect("publisher")
    publisher.publish("$own/x", b"1")
    publisher.publish("$own", b"2")
    publisher.publish("a/$own", b"3")
    assert {message.topic for message in client.take()} <= {"a/$own"}
    assert named.payloads() == [b"1", b"2"]


def test_properties_are_sent_on(world: Connecting) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-17], [MQTT-3.3.2-20]."""
    told: Pairs = [
        (PAYLOAD_FORMAT_INDICATOR, 1),
        (CONTENT_TYPE, "text/plain"),
        (RESPONSE_TOPIC, "answers/ä"),
        (CORRELATION_DATA, b"\0\xff"),
        (USER_PROPERTY, ("k", "2")),
        (USER_PROPERTY, ("k", "1")),
        (USER_PROPERTY, ("", "")),
    ]
    for qos in (0, 1, 2):
        watcher = world.subscriber("watcher", "a", qos=qos)
        world.connect("c").publish("a", b"{}", qos, properties=told)
        (message,) = watcher.take()
        assert sorted(map(str, message.properties)) == sorted(map(str, told))
        assert message.properties.get_all(USER_PROPERTY) == [("k", "2"), ("k", "1"), ("", "")]


def test_an_expired_message_is_deleted(sim: SimWorld) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6]."""
    sim.subscriber("c", "a", qos=1, clean=False, expiry=FOR_EVER).drop()
    publisher = sim.connect("publisher")
    publisher.publish("a", b"brief", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    publisher.publish("a", b"long", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 3_000_000_000)])
    publisher.publish("a", b"for ever", 1)
    sim.advance(7)
    client = sim.connect("c", clean=False, expiry=FOR_EVER)
    assert [(m.payload, m.get(MESSAGE_EXPIRY_INTERVAL)) for m in client.take()] == [
        (b"long", 2_999_999_993),
        (b"for ever", None),
    ]


def test_a_message_of_qos_2_that_was_sent_does_not_expire(sim: SimWorld) -> None:
    """[MQTT-4.3.3-7], [MQTT-4.3.3-13]."""
    client = sim.subscriber("c", "a", qos=2, clean=False, expiry=FOR_EVER, auto=False)
    sim.connect("publisher").publish("a", b"x", 2, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    (message,) = client.take()
    sim.advance(7)
    client.ack(P.PUBREC, message.packet_id)
    assert client.replies(P.PUBREL) == [(message.packet_id, 0)]
    client.drop()
    sim.advance(7)
    client = sim.connect("c", clean=False, expiry=FOR_EVER, auto=False)
    assert client.replies(P.PUBREL) == [(message.packet_id, 0)]
    client.ack(P.PUBCOMP, message.packet_id)
    assert client.take() == []


def test_messages_keep_their_order(world: Connecting) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]."""
    each, all_of_them = world.connect("each"), world.connect("all")
    each.subscribe("t/0", "t/1", qos=2)
    all_of_them.subscribe("t/#", qos=2)
    publisher = world.connect("publisher")
    for number in range(60):
        publisher.publish(f"t/{number % 2}", b"%d" % number, number % 3)
    for client in (each, all_of_them):
        arrived = client.take()
        assert len(arrived) == 60
        for topic in ("t/0", "t/1"):
            for qos in range(3):
                numbers = [int(m.payload) for m in arrived if m.topic == topic and m.qos == qos]
                assert numbers == sorted(numbers)


# -- retained messages -------------------------------------------------------------------------------------------------


def retained(world: Connecting, *filters: str) -> list[tuple[str, bytes, int]]:
    """What a new subscriber finds, each marked as retained."""
    client = world.subscriber("late", *filters, qos=2)
    arrived = client.take()
    assert all(message.retain for message in arrived)
    client.disconnect()
    return sorted((message.topic, message.payload, message.qos) for message in arrived)


def test_one_message_is_retained_for_a_topic(world: Connecting) -> None:
    """[MQTT-3.3.1-5] to [MQTT-3.3.1-8]."""
    publisher, watcher = world.connect("publisher"), world.connect("watcher")
    watcher.subscribe("#", qos=2)
    publisher.publish("a", b"old", 1, retain=True)
    publisher.publish("a", b"new", 2, retain=True)
    publisher.publish("b", b"other", 0, retain=True)
    publisher.publish("a", b"not retained", 1)
    publisher.publish("c", b"", 1, retain=True)
    assert retained(world, "#") == [("a", b"new", 2), ("b", b"other", 0)]
    publisher.publish("a", b"", 1, retain=True)
    publisher.publish("b", b"", 0)
    assert retained(world, "a", "b", "c") == [("b", b"other", 0)]
    assert [m.payload for m in watcher.take()] == [b"old", b"new", b"other", b"not retained", b"", b"", b""]


def test_retain_handling(world: Connecting) -> None:
    """[MQTT-3.3.1-9], [MQTT-3.3.1-10], [MQTT-3.3.1-11], [MQTT-3.8.4-4]."""
    world.connect("publisher").publish("a", b"x", 1, retain=True)
    client = world.connect("c")
    found = []
    for extras in (2, 1, 0, 1, 0):
        client.subscribe(wish("a", 1, retain_handling=extras))
        found.append(len(client.take()))
    client.unsubscribe("a")
    client.subscribe(wish("a", 1, retain_handling=1))
    assert [*found, len(client.take())] == [0, 0, 1, 0, 1, 1]


def test_retain_as_published(world: Connecting) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]."""
    plain, exact = world.connect("plain"), world.connect("exact")
    plain.subscribe(wish("a", 2))
    exact.subscribe(wish("a", 2, as_published=True))
    publisher = world.connect("publisher")
    for retain in (True, False):
        for qos in range(3):
            publisher.publish("a", b"x", qos, retain=retain)
    assert [message.retain for message in plain.take()] == [False] * 6
    assert [message.retain for message in exact.take()] == [True] * 3 + [False] * 3


def test_shared_subscriptions_get_no_retained_messages(world: Connecting) -> None:
    """Section 3.8.4."""
    world.connect("publisher").publish("a", b"x", 1, retain=True)
    client = world.subscriber("c", "$share/g/a", qos=1)
    assert client.take() == []


def test_retained_messages_expire_and_survive(sim: SimWorld) -> None:
    """[MQTT-3.3.2-5], [MQTT-3.3.2-6] for what is retained."""
    publisher = sim.connect("publisher")
    publisher.publish("a", b"brief", 1, retain=True, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    publisher.publish("b", b"long", 0, retain=True, properties=[(MESSAGE_EXPIRY_INTERVAL, 100)])
    sim.restart()
    sim.advance(7)
    client = sim.subscriber("late", "#", qos=2)
    assert [(m.topic, m.get(MESSAGE_EXPIRY_INTERVAL)) for m in client.take()] == [("b", 93)]


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_suback_and_unsuback(world: Connecting) -> None:
    """[MQTT-3.8.4-1] to [MQTT-3.8.4-7], [MQTT-3.9.3-1], [MQTT-3.10.4-4] to [MQTT-3.10.4-6], [MQTT-3.11.3-1]."""
    client = world.connect("c")
    assert client.subscribe(wish("a", 1), wish("b", 0), wish("c/#", 2), wish("$share/g/d", 1)) == [1, 0, 2, 1]
    assert client.unsubscribe("c/#", "nothing", "$share/g/d", "a") == [0, 0x11, 0, 0]
    assert client.unsubscribe("a") == [0x11]
    assert client.subscribe(wish("b", 2)) == [2]


@pytest.mark.parametrize("version", [V31, V311])
def test_suback_and_unsuback_before_5(world: Connecting, version: int) -> None:
    """[MQTT-3.8.4-2], [MQTT-3.10.4-5]."""
    client = world.connect("c", version=version)
    assert client.subscribe(wish("a", 1), wish("b", 0), wish("c/#", 2)) == [1, 0, 2]
    assert client.unsubscribe("c/#", "nothing") == []


def test_the_lower_qos_counts(world: Connecting) -> None:
    """[MQTT-3.8.4-8]."""
    publisher = world.connect("publisher")
    for granted in range(3):
        client = world.subscriber("c", "a", qos=granted)
        for qos in range(3):
            publisher.publish("a", b"%d" % qos, qos)
        assert [message.qos for message in client.take()] == [min(qos, granted) for qos in range(3)]


def test_the_same_filter_again_replaces_the_subscription(world: Connecting) -> None:
    """[MQTT-3.8.4-3]: also while messages wait."""
    client = world.subscriber("c", "a", qos=1, identifier=1, clean=False, expiry=FOR_EVER)
    client.subscribe("a", qos=2, identifier=2)
    publisher = world.connect("publisher")
    publisher.publish("a", b"x", 2)
    (message,) = client.take()
    assert (message.qos, message.properties.get_all(SUBSCRIPTION_IDENTIFIER)) == (2, [2])
    client.drop()
    publisher.publish("a", b"y", 1)
    client = world.subscriber("c", "a", qos=2, identifier=3, clean=False, expiry=FOR_EVER)
    publisher.publish("a", b"z", 2)
    assert client.payloads() == [b"y", b"z"]


def test_no_local(world: Connecting) -> None:
    """[MQTT-3.8.3-3]."""
    client = world.subscriber("c", wish("a", 1, no_local=True), wish("b", 1))
    other = world.connect("other")
    for sender in (client, other):
        sender.publish("a", b"a", 1)
        sender.publish("b", b"b", 1)
    assert client.payloads() == [b"b", b"a", b"b"]


def test_overlapping_subscriptions(world: Connecting) -> None:
    """[MQTT-3.3.4-2] to [MQTT-3.3.4-5]: in one copy with all identifiers, or each in its own."""
    client = world.subscriber("c", "a/#", qos=0, identifier=11)
    client.subscribe("a/+", qos=2, identifier=12)
    client.subscribe("a/b", qos=1)
    world.connect("publisher").publish("a/b", b"x", 2)
    arrived = client.take()
    assert max(message.qos for message in arrived) == 2
    identifiers = [message.properties.get_all(SUBSCRIPTION_IDENTIFIER) for message in arrived]
    if len(arrived) == 1:
        assert sorted(identifiers[0]) == [11, 12]
        return
    expected = {11: 0, 12: 2, None: 1}
    assert {one[0] if one else None: m.qos for one, m in zip(identifiers, arrived, strict=True)} == expected


def test_unsubscribing(world: Connecting) -> None:
    """[MQTT-3.10.4-1], [MQTT-3.10.4-2]."""
    client, publisher = world.connect("c"), world.connect("publisher")
    client.subscribe("a/b", "a/+", qos=1)
    assert client.unsubscribe("a/B", "a/#", "+/b", "a/b") == [0x11, 0x11, 0x11, 0]
    publisher.publish("a/b", b"once", 1)
    assert client.payloads() == [b"once"]
    client.unsubscribe("a/+")
    publisher.publish("a/b", b"never", 1)
    assert client.payloads() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_deliveries_that_have_begun_are_completed_after_unsubscribing(world: Connecting, qos: int) -> None:
    """[MQTT-3.10.4-3]."""
    client = world.subscriber("c", "a", qos=2, clean=False, expiry=FOR_EVER, auto=False)
    world.connect("publisher").publish("a", b"x", qos)
    (first,) = client.take()
    assert client.unsubscribe("a") == [0]
    client.drop()
    client = world.connect("c", clean=False, expiry=FOR_EVER, auto=False)
    (again,) = client.take()
    assert (again.dup, again.packet_id, again.payload) == (True, first.packet_id, b"x")
    if qos == 1:
        client.ack(P.PUBACK, again.packet_id)
        return
    client.ack(P.PUBREC, again.packet_id)
    assert client.replies(P.PUBREL) == [(again.packet_id, 0)]
    client.ack(P.PUBCOMP, again.packet_id)


# -- flow control ------------------------------------------------------------------------------------------------------


def test_all_else_goes_on_when_the_quota_is_used_up(world: Connecting) -> None:
    """[MQTT-3.3.4-10], [MQTT-4.9.0-3]."""
    client = world.subscriber("c", "a", qos=1, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    client.subscribe("b", qos=0)
    publisher = world.connect("publisher")
    for number in range(5):
        publisher.publish("a", b"%d" % number, 1)
    publisher.publish("b", b"free")
    arrived = client.take()
    assert [m.payload for m in arrived if m.qos] == [b"0", b"1"]
    assert [m.payload for m in arrived if not m.qos] == [b"free"]
    client.send(Pingreq())
    assert client.subscribe("c", qos=1) == [1]
    client.publish("c/d", b"mine", 2)
    assert len(client.replies(P.PUBREC)) == 1
    assert client.take() == []
    client.ack(P.PUBACK, arrived[0].packet_id)
    assert client.payloads() == [b"2"]


@pytest.mark.parametrize("version", [V31, V311])
def test_a_client_that_was_given_no_maximum_has_none(sim: SimWorld, version: int) -> None:
    """Before 5.0 there is no Receive Maximum: as many messages as there are packet ids may wait for PUBACK."""
    sim.subscriber("w", "a", qos=1, version=version, clean=False)
    client = sim.connect("c", version=version)
    sim.hold_disk()
    client.post("a", [b"x"] * 5_000, 1)
    assert not client.closed
    assert client.answers == []
    sim.write()
    assert len(client.replies(P.PUBACK)) == 5_000


# -- shared subscriptions ----------------------------------------------------------------------------------------------


def test_the_qos_of_each_member_of_a_share(world: Connecting) -> None:
    """[MQTT-4.8.2-3]."""
    low, high = world.connect("low"), world.connect("high")
    low.subscribe("$share/g/a/+", qos=0)
    high.subscribe("$share/g/a/+", qos=1)
    publisher = world.connect("publisher")
    for number in range(20):
        publisher.publish(f"a/{number}", b"%d" % number, 2)
    lows, highs = low.take(), high.take()
    assert sorted(int(m.payload) for m in lows + highs) == list(range(20))
    assert lows
    assert highs
    assert {message.qos for message in lows} == {0}
    assert {message.qos for message in highs} == {1}


def share(sim: SimWorld, name: str) -> MqttClient:
    """A member of a share whose session stays, and who acknowledges nothing by himself."""
    client = sim.subscriber(name, "$share/g/a", qos=2, clean=False, expiry=100, auto=False)
    return client


def sent_to(*clients: MqttClient) -> tuple[MqttClient, Message, MqttClient]:
    """Who got the only message, and somebody who did not."""
    found = [(client, client.take()) for client in clients]
    ((client, [message]),) = ((client, arrived) for client, arrived in found if arrived)
    return client, message, next(other for other, arrived in found if not arrived)


def test_qos_2_stays_with_the_member_that_it_was_sent_to(sim: SimWorld) -> None:
    """[MQTT-4.8.2-4], [MQTT-4.8.2-5]."""
    members = {name: share(sim, name) for name in ("a", "b")}
    publisher = sim.connect("publisher")
    publisher.publish("a", b"x", 2)
    client, message, other = sent_to(*members.values())
    name = next(name for name, member in members.items() if member is client)
    client.drop()
    assert other.take() == []
    client = sim.connect(name, clean=False, expiry=100, auto=False)
    (again,) = client.take()
    assert (again.dup, again.packet_id) == (True, message.packet_id)
    client.ack(P.PUBREC, message.packet_id)
    client.ack(P.PUBCOMP, message.packet_id)
    publisher.publish("a", b"y", 2)
    client, message, other = sent_to(client, other)
    client.drop()
    sim.advance(101)
    assert other.take() == []


def test_messages_that_one_member_refuses_go_to_nobody(sim: SimWorld) -> None:
    """[MQTT-4.8.2-6]."""
    members = share(sim, "a"), share(sim, "b")
    publisher = sim.connect("publisher")
    for qos, packet in ((1, P.PUBACK), (2, P.PUBREC)):
        publisher.publish("a", b"x", qos)
        client, message, other = sent_to(*members)
        client.ack(packet, message.packet_id, reason=0x80)
        assert client.take() == []
        assert other.take() == []
        sim.advance(60)
        assert client.take() == []
        assert other.take() == []
