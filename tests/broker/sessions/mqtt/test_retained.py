"""Retained messages for new subscriptions: a few in each tick, never an old one behind what took its place."""

from __future__ import annotations

import pytest

from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from store import decode
from tests.simulation.world import journal_records
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import configured


@pytest.fixture
def world() -> SimWorld:
    """Seven retained messages, two of which go out in a tick."""
    sim = SimWorld(configured())
    sim.broker.engine.limits.retained_step_max = 2
    producer = sim.connect("producer")
    for n in range(7):
        producer.publish(f"t/{n}", b"%d" % n, qos=1, retain=True)
    return sim


def payloads(client: MqttClient) -> list[bytes]:
    return [publish.payload for publish in client.take()]


def dropped(sim: SimWorld) -> list[object]:
    return [record for record in journal_records(sim.broker) if isinstance(record, decode.Dropped)]


def test_they_come_in_order_over_several_ticks(world: SimWorld) -> None:
    client, tick = world.connect("c"), world.broker.parts.tick
    before = tick.ended
    client.subscribe("t/1", qos=1)
    one = tick.ended - before
    assert payloads(client) == [b"1"]
    client.subscribe("t/#", qos=1)
    assert payloads(client) == [b"%d" % n for n in range(7)]
    assert tick.ended - before >= 2 * one + 3


def test_what_is_replaced_meanwhile_comes_once_and_new(world: SimWorld) -> None:
    client, producer = world.connect("c"), world.connect("p")
    feed = world.broker.engine.retained_feed
    send = feed._send

    def replaced() -> None:
        feed._send = send  # type: ignore[method-assign]
        send()
        producer.publish("t/5", b"new", retain=True)
        producer.publish("t/6", b"", retain=True)

    feed._send = replaced  # type: ignore[method-assign]
    client.subscribe("t/#", qos=1)
    got = payloads(client)
    assert got.count(b"new") == 1
    assert b"5" not in got
    assert b"6" not in got
    assert sorted(got)[:6] == [b"", b"0", b"1", b"2", b"3", b"4"]


def test_who_unsubscribes_meanwhile_gets_no_more(world: SimWorld) -> None:
    client = world.subscriber("c", "t/#", "t/+", qos=0)
    client.unsubscribe("t/#", "t/+")
    client.take()
    assert not world.broker.engine.retained_feed


def test_a_full_address_refuses_what_is_retained_and_the_log_says_so() -> None:
    """Retained messages count for the broker's own address, their copies for the topic."""
    sim = SimWorld(configured({"match": "t.#", "max-size-messages": 1, "address-full-policy": "FAIL"}))
    producer, away = sim.connect("producer"), sim.connect("away", clean=False, expiry=60)
    producer.publish("t/1", b"1", qos=1, retain=True)
    producer.publish("u/1", b"2", qos=1, retain=True)
    away.subscribe("t/1", qos=1)
    assert payloads(away) == [b"1"]
    away.drop()
    producer.publish("t/1", b"waits", qos=1)
    client = sim.subscriber("c", "t/#", qos=1)
    client.subscribe("u/#", qos=1)
    assert payloads(client) == [b"2"]
    assert [fields["filter"] for code, fields in sim.broker.reports if code == "mqtt.retained_unsent"] == ["t/#"]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_kept_for_later_subscribers_is_not_unroutable(qos: int) -> None:
    sim = SimWorld(configured())
    client = sim.connect("c")
    for payload in (b"first", b"second", b"", b""):  # replaced, cleared, and cleared again
        client.publish("t", payload, qos=qos, retain=True)
    state = sim.broker.engine._state
    assert state.unrouted == 0
    assert not dropped(sim)
    client.publish("t", b"lost", qos=qos)
    assert state.unrouted == 1
    assert len(dropped(sim)) == qos, "messages of QoS 0 have no record"


def test_what_cannot_be_kept_is_unroutable() -> None:
    sim = SimWorld(configured())
    sim.broker.engine.retained.messages_max = 0
    sim.connect("c").publish("t", b"lost", retain=True)
    assert sim.broker.engine._state.unrouted == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_on_a_full_disk_the_answer_says_what_became_of_it(qos: int) -> None:
    """What is answered with an error is neither retained nor cleared."""
    sim = SimWorld(configured())
    broker, files = sim.broker, sim.broker.files
    reader = sim.connect("reader", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)])
    reader.subscribe("#", qos=qos)
    reader.drop()
    producer = sim.connect("producer")
    for n in range(1000):
        producer.publish(f"t/{n}", b"x", qos=1, retain=True)
    files.capacity = files.used()
    refused = 0
    while refused < 30:  # smaller and smaller ones, until hardly anything fits
        refused += not sent(producer, "ballast", bytes(3_000 // (refused + 1)), qos)
    for n in range(300):
        kept = sent(producer, f"n/{n}", bytes(n), qos, retain=True)
        assert kept is (broker.engine.retained.get(f"n.{n}") is not None)
    cleared = [sent(producer, f"t/{n}", b"", qos, retain=True) for n in range(1000)]
    assert cleared == [broker.engine.retained.get(f"t.{n}") is None for n in range(1000)]
    assert True in cleared, "there is a reserve for that"
    files.capacity = None
    sim.advance(10)
    assert all(sent(producer, f"t/{n}", b"", qos, retain=True) for n in range(1000))
    assert broker.engine.retained.messages == sum(map(bool, [broker.engine.retained.get(f"n.{n}") for n in range(300)]))


def sent(client: MqttClient, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> bool:
    """Whether the broker accepts a message."""
    client.publish(topic, payload, qos=qos, retain=retain)
    code = client.replies(PacketType.PUBACK if qos == 1 else PacketType.PUBREC)[-1][1]
    client.replies(PacketType.PUBCOMP)
    return code in (0, 0x10)
