"""What clients send to nobody makes no address, and how many there may be: over each protocol."""

from __future__ import annotations

import pytest

from broker.config import Config
from protocols.amqp.types import Described, Symbol
from protocols.mqtt.codes import V311, PacketType
from protocols.mqtt.properties import REASON_STRING
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import publishes
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured
from tests.support.stomp_client import frame

SELECTOR = "apache.org:selector-filter:string"
WHY = "cannot be made: there are"


def limited(room: int) -> Config:
    """A broker that may have so many addresses more."""
    shipped = configured()
    there = len(SimBroker(shipped).engine.addresses)
    return configured(limits=shipped.limits.model_copy(update={"addresses_max": there + room}))


def names(broker: SimBroker) -> list[str]:
    """The addresses that clients have made."""
    return sorted(set(broker.engine.addresses) - {"DLQ", "ExpiryQueue", "$sys.mqtt.retained"})


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_topics_that_nobody_reads_leave_nothing(qos: int) -> None:
    sim = SimWorld(configured())
    client = sim.connect("c")
    for start in range(0, 3_000, 50):
        topics = [f"devices/{number}/state" for number in range(start, start + 50)]
        client.raw(publishes([(topic, b"x") for topic in topics], qos, first=start + 1))
    assert names(sim.broker) == []
    assert sim.broker.engine._state.totals.unrouted == 3_000
    assert names(sim.broker.restart()) == []


def test_a_retained_message_needs_no_address() -> None:
    sim = SimWorld(limited(2))
    sim.connect("c").publish("a/b", b"x", 1, retain=True)
    assert names(sim.broker) == []
    sim.restart()
    late = sim.connect("late")
    assert late.subscribe("a/b", qos=1) == [1]
    assert late.payloads() == [b"x"]


def test_subscribers_make_them_as_they_are_needed() -> None:
    sim = SimWorld(configured())
    client = sim.subscriber("c", "a/+")
    for topic in ("a/1", "a/2", "b/1"):
        client.publish(topic, b"x")
    assert names(sim.broker) == ["a.*", "a.1", "a.2"]
    assert len(client.take()) == 2
    sim.advance(120)
    assert names(sim.broker) == ["a.*"]


def test_mqtt_at_the_limit() -> None:
    sim = SimWorld(limited(2))
    client = sim.subscriber("c", "#", auto=False)
    first, second = client.publish("a", b"x", 1), client.publish("b", b"x", 1)
    [answer] = [each for each in client.answers if each.type is PacketType.PUBACK and each.reason_code]
    assert WHY in (answer.properties.get(REASON_STRING) or "")
    assert client.replies(PacketType.PUBACK) == [(first, 0), (second, 0x97)]
    assert client.subscribe("other") == [0x97]
    old = sim.connect("o", version=V311, auto=False)
    old.publish("b", b"x", 1)
    assert old.closed
    assert names(sim.broker) == ["#", "a"]


def test_stomp_at_the_limit() -> None:
    broker = SimBroker(limited(1))
    client = broker.connect()
    client.confirmed("/queue/a", b"x")
    client.raw(frame("SEND", {"destination": "/queue/b", "persistent": "true", "receipt": "r"}, b"x"))
    (error,) = client.take("ERROR")
    assert WHY.encode() in error.body
    other = broker.connect()
    other.confirmed("/topic/nobody", b"x")
    other.subscribe("/topic/t")
    assert WHY.encode() in other.take("ERROR")[0].body
    assert names(broker) == ["a"]


def test_amqp_at_the_limit() -> None:
    broker = SimBroker(limited(1))
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("1"))
    for link in (client.sender("b", "queue"), client.receiver("t", "topic")):
        refused = client.refused(link)
        assert refused.condition == "amqp:resource-limit-exceeded"
        assert WHY in (refused.description or "")
    assert names(broker) == ["a"]


def test_a_browser_that_is_refused_makes_nothing() -> None:
    broker = SimBroker(configured())
    for destination, selector in (("/queue/a", "a ="), ("/topic/b", "")):
        client = broker.subscriber(destination, browser="true", selector=selector)
        assert client.take("ERROR")
    amqp = AmqpSim(broker)
    bad = {Symbol(SELECTOR): Described(Symbol(SELECTOR), "a =")}
    for mode in (None, "copy"):
        link = amqp.receiver("c", "queue", distribution_mode=mode, filter=bad)
        assert "a =" in (amqp.refused(link).description or "")
    assert names(broker) == []
