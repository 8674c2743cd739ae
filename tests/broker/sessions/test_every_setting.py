"""Address settings as clients of every protocol meet them: those that no other test shows over a protocol."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.queues.queue import Queue
from protocols.mqtt.codes import ReasonCode
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker

#: A value other than the default of each setting that a queue takes its attributes from, and how the queue has it.
DEFAULTS: dict[str, tuple[object, object]] = {
    "default-last-value-queue": (True, True),
    "default-last-value-key": ("ticker", "ticker"),
    "default-non-destructive": (True, True),
    "default-exclusive-queue": (True, True),
    "default-max-consumers": (3, 3),
    "default-purge-on-no-consumers": (True, True),
    "default-ring-size": (5, 5),
    "default-consumers-before-dispatch": (2, 2),
    "default-delay-before-dispatch": ("1s", 1_000),
    "default-group-rebalance": (True, True),
    "default-group-rebalance-pause-dispatch": (True, True),
    "default-group-buckets": (4, 4),
    "default-group-first-key": ("first", "first"),
}


def attribute(queue: Queue, setting: str) -> object:
    """What a queue has of a setting."""
    name = setting.removeprefix("default-").removesuffix("-queue").replace("-", "_")
    value: object = getattr(queue.attributes, name)
    return value


@pytest.mark.parametrize("setting", DEFAULTS)
def test_a_queue_is_like_its_address_asks_whoever_makes_it(setting: str) -> None:
    given, expected = DEFAULTS[setting]
    world = SimWorld(small({"match": "made.#", setting: given}))
    broker = world.broker
    broker.connect().send("/queue/made.stomp", b"1", persistent="true")
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("queue://made.amqp"), message("1", durable=True))
    world.connect("c").subscribe("made/mqtt", qos=1)
    queues = {queue.address.name: queue for queue in broker.engine.queues.values()}
    for name in ("made.stomp", "made.amqp", "made.mqtt"):
        assert attribute(queues[name], setting) == expected, name
    world.restart()
    assert attribute(world.broker.engine.queue("made.stomp"), setting) == expected


def test_an_address_without_a_given_type() -> None:
    settings = {"default-address-routing-type": "ANYCAST", "default-queue-routing-type": "ANYCAST"}
    broker = SimBroker(small({"match": "any.#", **settings}))
    client = broker.connect()
    client.send("any.stomp", b"1")
    amqp = AmqpSim(broker)
    amqp.send(amqp.sender("any.amqp"), message("1"))
    for name in ("any.stomp", "any.amqp"):
        assert broker.engine.queue(name).routing_type is RoutingType.ANYCAST
    client.send("any.stomp::own", b"2")
    assert broker.engine.queue("own").routing_type is RoutingType.ANYCAST


@pytest.mark.parametrize("protocol", ["stomp", "amqp", "mqtt"])
def test_a_forbidden_creation_is_refused_and_the_client_is_told(protocol: str) -> None:
    settings = {"auto-create-addresses": False, "auto-create-queues": False}
    world = SimWorld(small({"match": "shut.#", **settings}))
    broker = world.broker
    if protocol == "stomp":
        client = broker.connect()
        client.send("/queue/shut.a", b"1")
        (error,) = client.take("ERROR")
        assert b"auto-create-addresses is off" in error.body
    elif protocol == "amqp":
        amqp = AmqpSim(broker)
        assert "auto-create-addresses is off" in (amqp.refused(amqp.sender("queue://shut.a")).description or "")
    else:
        mqtt = world.connect("c")
        assert mqtt.subscribe("shut/a", qos=1) == [ReasonCode.TOPIC_FILTER_INVALID], "well formed, but not allowed"
    assert "shut.a" not in broker.engine.addresses


def test_expired_messages_have_a_queue_for_each_address() -> None:
    settings = {"expiry-address": "gone", "auto-create-expiry-resources": True}
    names = {"expiry-queue-prefix": "old.", "expiry-queue-suffix": ".x"}
    world = SimWorld(small({"match": "a.#", **settings, **names}))
    broker = world.broker
    for name in ("a.1", "a.2"):
        broker.connect().send(f"/queue/{name}", name.encode(), expires=str(broker.now + 10))
    broker.advance(10_000)
    assert [held(broker, f"old.{name}.x") for name in ("a.1", "a.2")] == [[b"a.1"], [b"a.2"]]
    assert {broker.engine.queue("old.a.1.x").address.name} == {"gone"}


@pytest.mark.parametrize(("period", "slow"), [("2s", True), ("60s", False)])
def test_slow_consumers_are_looked_for_so_often(period: str, slow: bool) -> None:
    settings = {"slow-consumer-threshold": 1, "slow-consumer-check-period": period, "slow-consumer-policy": "KILL"}
    broker = SimBroker(small({"match": "a", **settings}))
    broker.connect().send("/queue/a", b"1")
    client = broker.subscriber("/queue/a")
    broker.advance(10_000)
    assert client.closed is slow
