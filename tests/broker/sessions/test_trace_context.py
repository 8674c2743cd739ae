"""The trace context of a message (W3C) stays with it: between all protocols that have room for it, come what may."""

from __future__ import annotations

import pytest

from broker.config import AddressSection
from broker.engine import MessageRange
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Header, Rejected
from protocols.amqp.types import Symbol
from protocols.mqtt.codes import V311
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, USER_PROPERTY
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import configured

#: As a sender's library writes it.
TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
}
PROTOCOLS = ("stomp", "amqp", "mqtt")


def prepared(reader: str) -> SimWorld:
    """A broker with a queue, and for a reader that speaks MQTT a session that takes from all that it could read."""
    queue = AddressSection.model_validate({"queues": {"a": {"routing-type": "ANYCAST"}}})
    world = SimWorld(configured(addresses={**configured().addresses, "a": queue}))
    if reader == "mqtt":
        client = world.subscriber("reader", "a", "DLQ", "ExpiryQueue", qos=1, clean=False, expiry=FOR_EVER)
        client.disconnect()
    return world


def send(world: SimWorld, protocol: str, ttl_s: int = 0) -> None:
    """Send a message to `a`."""
    if protocol == "stomp":
        expires = {"expires": str(world.broker.now + ttl_s * 1000)} if ttl_s else {}
        world.broker.connect().send("/queue/a", b"x", persistent="true", **expires, **TRACE)
    elif protocol == "amqp":
        client = AmqpSim(world.broker)
        header = Header(durable=True, ttl=ttl_s * 1000 or None)
        client.send(client.sender("queue://a"), message("x", header=header, application={**TRACE}))
    else:
        expiry = [(MESSAGE_EXPIRY_INTERVAL, ttl_s)] if ttl_s else []
        told = [(USER_PROPERTY, pair) for pair in TRACE.items()]
        world.connect("sender").publish("a", b"x", 1, properties=[*told, *expiry])


def read(world: SimWorld, protocol: str, name: str) -> list[dict[str, str]]:
    """The trace contexts of what lies on a queue."""
    if protocol == "stomp":
        stomp = world.broker.subscriber(f"/queue/{name}")
        found = [frame.headers for frame in stomp.messages()]
        stomp.drop()
    elif protocol == "amqp":
        amqp = AmqpSim(world.broker)
        amqp.receiver(f"queue://{name}")
        found = [{str(k): str(v) for k, v in each.message.application_properties.items()} for each in amqp.take()]
        amqp.drop()
    else:
        client = world.connect("reader", clean=False, expiry=FOR_EVER)
        found = [dict(each.properties.get_all(USER_PROPERTY)) for each in client.take() if each.topic == name]
        client.disconnect()
    return [{name: headers[name] for name in TRACE if name in headers} for headers in found]


def reject(world: SimWorld) -> None:
    """Make a dead letter of what is on `a`."""
    killer = AmqpSim(world.broker)
    killer.receiver("queue://a", credit=1)
    killer.settle(*killer.take(), state=Rejected())
    killer.drop()


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_it_travels_between_protocols(sender: str, reader: str) -> None:
    """Also through the journal."""
    world = prepared(reader)
    send(world, sender)
    world.restart()
    assert read(world, reader, "a") == [TRACE]


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_it_stays_with_a_dead_letter(sender: str, reader: str) -> None:
    world = prepared(reader)
    send(world, sender)
    reject(world)
    world.restart()
    assert read(world, reader, "DLQ") == [TRACE]


@pytest.mark.parametrize("reader", PROTOCOLS)
def test_it_stays_with_a_dead_letter_that_is_retried(reader: str) -> None:
    world = prepared(reader)
    send(world, "stomp")
    reject(world)
    with world.broker.turn():
        engine = world.broker.engine
        assert engine.messages.retry(engine.queue("DLQ"), MessageRange()).moved == 1
    world.restart()
    assert read(world, reader, "a") == [TRACE]


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_it_stays_with_a_message_that_expires(sender: str, reader: str) -> None:
    world = prepared(reader)
    send(world, sender, ttl_s=1)
    world.advance(60)
    world.restart()
    assert read(world, reader, "ExpiryQueue") == [TRACE]


def test_mqtt_before_5_has_no_room_for_it() -> None:
    world = prepared("mqtt")
    send(world, "stomp")
    client = world.connect("reader", version=V311, clean=False)
    assert [each.payload for each in client.take()] == [b"x"]


@pytest.mark.parametrize("reader", ["stomp", "mqtt"])
def test_a_context_noted_on_the_way_counts_before_that_of_an_amqp_sender(reader: str) -> None:
    """W3C, Trace Context for AMQP: those between sender and broker must not change the application properties."""
    world = prepared(reader)
    noted = TRACE["traceparent"].replace("b7ad", "ffff")
    section = encode_annotations(MESSAGE_ANNOTATIONS, {Symbol("traceparent"): noted})
    client = AmqpSim(world.broker)
    client.send(client.sender("queue://a"), message("x", application={**TRACE}, annotations=section))
    assert read(world, reader, "a") == [{"traceparent": noted}]
