"""`$SYS` topics: Mosquitto's names, told to those who subscribe and to nobody else."""

from __future__ import annotations

import pytest

from broker.config import MqttAcceptor
from protocols.mqtt.codes import PacketType
from tests.support.mqtt_client import Message, MqttClient
from tests.support.mqtt_world import FOR_EVER, Connecting, SimWorld
from tests.support.sim_broker import configured

#: What dashboards for Mosquitto show.
NAMES = {
    *("version", "uptime", "subscriptions/count", "retained messages/count"),
    *("clients/connected", "clients/disconnected", "clients/total", "clients/maximum", "clients/expired"),
    *("messages/received", "messages/sent", "messages/stored", "store/messages/count", "store/messages/bytes"),
    *("publish/messages/received", "publish/messages/sent", "publish/messages/dropped"),
    *("bytes/received", "bytes/sent"),
}


def shown(messages: list[Message]) -> dict[str, str]:
    """What they say, by what stands after $SYS/broker/."""
    assert all(message.topic.startswith("$SYS/broker/") and not message.qos for message in messages)
    return {message.topic.removeprefix("$SYS/broker/"): message.payload.decode() for message in messages}


def watching(world: Connecting, *filters: str) -> tuple[MqttClient, dict[str, str]]:
    """Somebody who has subscribed, and what he was told at once."""
    client = world.subscriber("watcher", *(filters or ("$SYS/#",)), keep_alive=60)
    arrived = client.take()
    assert all(message.retain for message in arrived)
    return client, shown(arrived)


def test_the_names_are_mosquittos(sim: SimWorld) -> None:
    _, told = watching(sim)
    assert set(told) >= NAMES
    assert {f"load/{name}/{minutes}min" for name in ("messages/received", "connections") for minutes in (1, 5, 15)} <= (
        set(told)
    )


def test_mosquitto_has_them_too(world: Connecting) -> None:
    """But for those that it publishes only when they are not 0, and those that are younger than it."""
    _, told = watching(world)
    assert {"version", "uptime", "clients/total", "messages/received", "bytes/sent", "retained messages/count"} <= (
        set(told)
    )
    assert told["version"].split()[1:2] == ["version"]


def test_connected_clients(sim: SimWorld) -> None:
    sim.subscriber("away", "a", "b", qos=1, clean=False, expiry=FOR_EVER).drop()
    sim.connect("gone", clean=False, expiry=1).drop()
    sim.advance(2)
    publisher = sim.connect("publisher")
    publisher.publish("a", b"x", 1, retain=True)
    publisher.subscribe("#")
    assert not any(name.startswith("$SYS") for name in sim.broker.engine.addresses), "nobody has asked"
    client, told = watching(sim, "$SYS/broker/clients/+", "$SYS/broker/+/count", "$SYS/broker/messages/stored")
    assert told == {
        "clients/connected": "2",
        "clients/disconnected": "1",
        "clients/total": "3",
        "clients/maximum": "2",
        "clients/expired": "1",
        "subscriptions/count": "6",
        "retained messages/count": "1",
        "messages/stored": told["messages/stored"],
    }
    assert int(told["messages/stored"]) >= 1
    sim.advance(15)
    assert client.take() == [], "nothing has changed"
    sim.connect("another")
    sim.advance(15)
    assert shown(client.take()) == {"clients/total": "4", "clients/connected": "3", "clients/maximum": "3"}
    assert [message.topic for message in publisher.take()] == ["a"]


def test_changed_values_are_published(sim: SimWorld) -> None:
    client, told = watching(sim)
    publisher = sim.connect("publisher")
    for number in range(20):
        publisher.publish("nobody", b"%d" % number, number % 3)
    assert client.take() == []
    sim.advance(10)
    arrived = client.take()
    assert not any(message.retain for message in arrived)
    found = shown(arrived)
    assert found["publish/messages/received"] == "20"
    assert found["clients/connected"] == "2"
    assert found["uptime"] == "10 seconds"
    assert "version" not in found
    received = int(found["messages/received"]) - int(told["messages/received"])
    assert received == 1 + 20 + 6, "CONNECT, PUBLISH and PUBREL"
    # 20 in ten seconds are 120 a minute; the average of one minute has moved towards that by 1 - e^(-1/6)
    assert float(found["load/publish/received/1min"]) == pytest.approx(120 * (1 - 0.84648), abs=0.05)
    assert float(found["load/publish/received/15min"]) == pytest.approx(120 * (1 - 0.98895), abs=0.05)
    sim.advance(10)
    assert float(shown(client.take())["load/publish/received/1min"]) == pytest.approx(18.42 * 0.84648, abs=0.05)


def test_nothing_happens_when_nobody_looks(sim: SimWorld) -> None:
    client, _ = watching(sim)
    client.unsubscribe("$SYS/#")
    sim.advance(10)
    assert client.take() == []
    client.drop()
    sim.advance(20)
    assert not sim.broker.engine.alarms.is_set("mqtt $SYS")


def test_nobody_speaks_there_but_the_broker(sim: SimWorld) -> None:
    client, _ = watching(sim)
    liar = sim.connect("liar")
    liar.publish("$SYS/broker/version", b"mine", 1)
    assert client.take() == []
    assert [reason for _, reason in liar.replies(PacketType.PUBACK)] == [0x90]


@pytest.mark.parametrize("interval", [0, -1, 500])
def test_the_interval(interval: int) -> None:
    shipped = configured()
    acceptor = shipped.acceptors["mqtt"]
    assert isinstance(acceptor, MqttAcceptor)
    changed = acceptor.model_copy(update={"sys_interval": interval})
    sim = SimWorld(configured(acceptors={**shipped.acceptors, "mqtt": changed}))
    client, told = watching(sim)
    sim.advance(1.1)
    assert bool(told) == bool(client.take()) == (interval > 0)
