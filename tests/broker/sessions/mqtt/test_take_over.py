"""A client that comes back while packets of its former connection wait: they are handled first, in their order.

They wait for a tick with budget left (`broker.engine.queues.steps`), or what they did waits for the disk.  Nothing is
half done: neither what the client has sent, nor what it has said of the broker's messages.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.queues.steps import BUDGET
from protocols.mqtt.codes import PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Ack, Disconnect, Will
from protocols.mqtt.properties import USER_PROPERTY, Properties
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier, SimWorld

WILL = Will("will", b"gone")
STAYS: dict[str, Any] = {"clean": False, "expiry": 100}


@pytest.fixture
def sim() -> SimWorld:
    """A simulated broker."""
    return SimWorld()


def publish(client: MqttClient, payload: bytes, qos: int = 0, packet_id: int = 0, *, dup: bool = False) -> None:
    """Prepare a PUBLISH on `t`, of which no two have the same properties: each is handled by itself."""
    raw = Properties([(USER_PROPERTY, ("payload", payload.decode()))]).raw
    head = PublishHead(client.codec.version, "t", qos=qos, dup=dup, properties=raw)
    client.codec.send_publish(head, [payload], [packet_id] if qos else [])


def waits(sim: SimWorld, client: MqttClient) -> None:
    """Let the broker read what a client has prepared, in a tick whose budget is used up: it handles one."""
    carrier, data = client.link, client.codec.data_to_send()
    assert isinstance(carrier, SimCarrier)
    sim.broker.parts.tick.enter()
    sim.broker.engine.ticks.spend(BUDGET)
    carrier.session.receive_data(data)


def again(sim: SimWorld, *, clean: bool = False) -> MqttClient:
    """The client's next connection, once the disk has done its work."""
    client = sim.attempt(greeting("c", clean=clean, will=WILL), auto=False)
    sim.write()
    client.settle()
    assert client.code == 0
    return client


def test_messages_that_a_client_sent_before_it_disconnected_arrive(sim: SimWorld) -> None:
    """Also with QoS 0, and its DISCONNECT counts: there is no will [MQTT-3.14.4-3]."""
    reader = sim.subscriber("reader", "#")
    client = sim.connect("c", will=WILL)
    for payload in (b"1", b"2", b"3"):
        publish(client, payload)
    client.codec.send(Disconnect())
    waits(sim, client)
    again(sim, clean=True)
    assert reader.payloads() == [b"1", b"2", b"3"]


def test_its_successor_waits_for_its_turn_and_the_next_one_behind_it(sim: SimWorld) -> None:
    reader = sim.subscriber("reader", "#")
    client = sim.connect("c", will=WILL)
    publish(client, b"1")
    publish(client, b"2")
    waits(sim, client)
    second, third = sim.stranger(), sim.stranger()
    for newcomer in (second, third):
        newcomer.codec.send(greeting("c", will=WILL))
        waits(sim, newcomer)
    assert second.connack is None
    sim.broker.run()
    second.settle()
    third.settle()
    assert (second.code, second.goodbye_code, third.code, third.goodbye_code) == (0, 0x8E, 0, None)
    assert reader.payloads() == [b"1", b"2", b"gone", b"gone"]


@pytest.mark.parametrize("disk", [True, False])
def test_messages_of_qos_2_arrive_once(sim: SimWorld, disk: bool) -> None:
    reader = sim.subscriber("reader", "#", qos=2)
    client = sim.connect("c", auto=False, **STAYS)
    if disk:
        sim.hold_disk()
    for packet_id in (1, 2, 3):
        publish(client, b"%d" % packet_id, 2, packet_id)
    client.codec.send(Ack(PacketType.PUBREL, [1]))
    waits(sim, client)
    back = again(sim)
    assert back.present
    for packet_id in (2, 3):  # and PUBREL for 1
        publish(back, b"%d" % packet_id, 2, packet_id, dup=True)
    back.settle()
    back.ack(PacketType.PUBREL, 1, 2, 3)
    sim.write()
    publish(back, b"4", 2, 1)
    back.settle()
    sim.write()
    reader.settle()
    assert reader.payloads() == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("disk", [True, False])
def test_messages_that_it_has_acknowledged_are_not_sent_again(sim: SimWorld, disk: bool) -> None:
    client = sim.connect("c", auto=False, **STAYS)
    client.subscribe("t", qos=2)
    publisher = sim.connect("p")
    for payload, qos in ((b"1", 1), (b"2", 1), (b"3", 2), (b"4", 1)):
        publisher.publish("t", payload, qos)
    arrived = client.take()
    if disk:
        sim.hold_disk()
    for message in arrived[:2]:
        client.codec.send(Ack(PacketType.PUBACK, [message.packet_id]))
    client.codec.send(Ack(PacketType.PUBREC, [arrived[2].packet_id]))
    waits(sim, client)
    back = again(sim)
    assert [(message.payload, message.dup) for message in back.take()] == [(b"4", True)]
    assert back.replies(PacketType.PUBREL) == [(arrived[2].packet_id, 0)]
