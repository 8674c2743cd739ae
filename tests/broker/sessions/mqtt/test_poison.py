"""A message that makes its MQTT client fail dies after `max-delivery-attempts`, and does not stop those behind it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.sessions.mqtt.session import MqttSession
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL, USER_PROPERTY
from tests.broker.sessions.mqtt.harness import carrier, dead_letters, dead_letters_or_none, with_mqtt
from tests.simulation.world import check_accounts, check_counters
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import configured

P = PacketType

ATTEMPTS = 3


@pytest.fixture
def world() -> SimWorld:
    return SimWorld(configured({"match": "a.#", "max-delivery-attempts": ATTEMPTS, "dead-letter-address": "DLQ"}))


def reader(world: SimWorld, **options: Any) -> MqttClient:
    """A client whose session lasts, and that acknowledges nothing by itself."""
    return world.connect("c", clean=False, expiry=FOR_EVER, auto=False, **options)


def letter(world: SimWorld) -> dict[str, str]:
    """The only dead letter's user properties, as an MQTT client gets them."""
    client = world.connect("undertaker")
    client.subscribe("DLQ::DLQ", qos=1)
    [found] = client.take()
    told = dict(found.properties.get_all(USER_PROPERTY))
    told["payload"] = found.payload.decode()
    client.disconnect()
    return told


def counts(world: SimWorld) -> dict[str, int]:
    """Failed deliveries of each message of the subscription."""
    queue = next(queue for name, queue in world.broker.engine.queues.items() if name.startswith("c."))
    found = world.broker.engine.messages.browse(queue)
    return {message.body.decode(): queue.delivery_count(message.id) for message, _ in found}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restarts", [False, True])
def test_the_oldest_dies_and_the_others_come(world: SimWorld, version: int, qos: int, restarts: bool) -> None:
    client = reader(world, version=version)
    client.subscribe("a/+", qos=qos)
    client.disconnect()
    world.connect("other").post("a/b", [b"poison", b"two", b"three"], qos)
    ids = []
    for attempt in range(ATTEMPTS):
        client = reader(world, version=version)
        [first, *others] = client.take()
        assert (first.payload, first.dup) == (b"poison", attempt > 0)
        assert [each.payload for each in others] == [b"two", b"three"]
        ids.append(first.packet_id)
        client.drop()
        if restarts:
            world.restart(crash=attempt % 2 == 0)
    assert len(set(ids)) == 1
    client = reader(world, version=version)
    assert client.payloads() == [b"two", b"three"]
    if qos == 2:  # the client may have it, and would take a new message with its packet id for the old one
        assert client.replies(P.PUBREL) == [(ids[0], 0)]
        client.ack(P.PUBCOMP, ids[0])
    told = letter(world)
    assert (told["payload"], told["_AMQ_DL_REASON"], told["_AMQ_DL_ATTEMPTS"]) == ("poison", "max-deliveries", "3")
    assert "the connection ended" in told["_AMQ_DL_TEXT"]
    world.restart()
    assert reader(world, version=version).payloads() == [b"two", b"three"]
    check_accounts(world.broker)
    check_counters(world.broker)


def test_only_the_oldest_of_the_session_has_failed(world: SimWorld) -> None:
    client = reader(world)
    client.subscribe("a/b", "a/c", qos=1)
    other = world.connect("other")
    other.publish("a/c", b"oldest", 1)
    other.publish("a/b", b"younger", 1)
    client.drop()
    queues = world.broker.engine.queues
    found = {
        message.body: queues[name].delivery_count(message.id)
        for name in ("c.a.b", "c.a.c")
        for message, _ in world.broker.engine.messages.browse(queues[name])
    }
    assert found == {b"oldest": 1, b"younger": 0}


@pytest.mark.parametrize("how", ["disconnect", "will", "taken over", "operator", "stop", "crash"])
def test_other_ends_count_nothing(world: SimWorld, how: str) -> None:
    client = reader(world)
    client.subscribe("a/b", qos=1)
    world.connect("other").publish("a/b", b"x", 1)
    if how == "disconnect":
        client.disconnect()
    elif how == "will":
        client.disconnect(0x04)
    elif how == "taken over":
        reader(world)
    elif how == "operator":
        session = carrier(client).session
        assert isinstance(session, MqttSession)
        session.dismiss("by an operator")
        world.broker.run()
    else:
        world.restart(crash=how == "crash")
    assert counts(world) == {"x": 0}


@pytest.mark.parametrize("how", ["lost", "silent", "failed"])
def test_these_ends_count(world: SimWorld, how: str) -> None:
    client = reader(world, keep_alive=10)
    client.subscribe("a/b", qos=1)
    world.connect("other", keep_alive=0).publish("a/b", b"x", 1)
    if how == "lost":
        client.drop()
    elif how == "failed":
        client.disconnect(0x81)
    else:
        world.advance(60)
    assert counts(world) == {"x": 1}


def test_messages_that_the_connection_did_not_carry_have_not_failed(world: SimWorld) -> None:
    client = reader(world)
    client.subscribe("a/b", qos=1)
    other = world.connect("other")
    world.hold_disk()
    other.publish("a/b", b"x", 1)
    assert client.take() == []
    client.drop()  # it waits for the disk
    world.broker.release_disk()
    assert counts(world) == {"x": 0}
    client = reader(world)
    [message] = client.take()
    assert not message.dup
    client.drop()
    assert counts(world) == {"x": 1}
    world.hold_disk()
    lasting = [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]
    client = world.attempt(greeting("c", clean=False, properties=lasting), auto=False)
    assert client.connack is None  # it waits, too
    client.drop()
    world.broker.release_disk()
    assert counts(world) == {"x": 1}
    [message] = reader(world).take()
    assert message.dup, "it was sent before [MQTT-3.3.1-1]"


def test_messages_that_wait_for_the_quota_have_not_failed(world: SimWorld) -> None:
    quota = [(RECEIVE_MAXIMUM, 1)]
    client = reader(world, properties=quota)
    client.subscribe("a/b", qos=1)
    world.connect("other").post("a/b", [b"one", b"two"], 1)
    for _ in range(ATTEMPTS):
        client = reader(world, properties=quota) if client.closed else client
        assert client.payloads() == [b"one"]
        client.drop()
    client = reader(world, properties=quota)
    assert (client.payloads(), counts(world)) == ([b"two"], {"two": 0})


@pytest.mark.parametrize("filter", ["a.q::a.q", "$share/g/a/b"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_others_consume_too(world: SimWorld, filter: str, clean: bool) -> None:
    """It goes to another client, which it makes fail as well."""
    expiry = 0 if clean else FOR_EVER
    stomp = world.broker.connect()
    stomp.do("SUBSCRIBE", {"destination": "/queue/a.q", "id": "1"})
    stomp.do("UNSUBSCRIBE", {"id": "1"})
    clients = [world.subscriber(name, filter, qos=1, auto=False, expiry=expiry) for name in "xyz"]
    if "::" in filter:
        stomp.confirmed("/queue/a.q", b"poison")
    else:
        world.connect("other").publish("a/b", b"poison", 1)
    for _ in range(ATTEMPTS):
        [client] = [each for each in clients if each.take()]
        client.drop()
        clients.remove(client)
    assert dead_letters(world).message_count == 1
    assert letter(world)["_AMQ_DL_ATTEMPTS"] == "3"
    check_accounts(world.broker)
    check_counters(world.broker)


def test_without_a_limit_it_comes_for_ever() -> None:
    world = SimWorld(with_mqtt({"match": "a.#", "max-delivery-attempts": -1}))
    reader(world).subscribe("a/b", qos=1)
    world.connect("other").publish("a/b", b"x", 1)
    for _ in range(20):
        client = reader(world)
        assert client.payloads() == [b"x"]
        client.drop()
    assert (counts(world), dead_letters_or_none(world)) == ({"x": 20}, 0)
