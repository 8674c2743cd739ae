"""Subscriptions of several protocols whose queues have the same name."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.delivery import subscribe
from broker.engine.model import names
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import RoutingType
from broker.engine.operators.administration import NewQueue
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Subscription
from protocols.mqtt.topics import parse_topic_filter
from tests.broker.sessions.mqtt.harness import with_mqtt
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim
from tests.support.interpreted import interpreted
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import SimClient

DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}


def stomp(sim: SimWorld, client_id: str = "c", name: str = "a.b", topic: str = "a.b", **more: str) -> SimClient:
    client = sim.broker.connect(**{"client-id": client_id})
    client.subscribe(f"/topic/{topic}", ack="client-individual", **{"durable-subscription-name": name, **more})
    return client


def send(sim: SimWorld, *bodies: bytes, topic: str = "a.b") -> None:
    client = sim.broker.connect()
    for body in bodies:
        client.confirmed(f"/topic/{topic}", body)


def session(sim: SimWorld, client_id: str = "c", qos: int = 1, **more: Any) -> MqttClient:
    return sim.subscriber(client_id, "a/b", qos=qos, **{"clean": False, "expiry": FOR_EVER, **more})


def refused(client: SimClient) -> bytes:
    (error,) = client.take("ERROR")
    return error.body


# -- STOMP and AMQP ----------------------------------------------------------------------------------------------------


def test_stomp_and_amqp_share_a_durable_subscription(sim: SimWorld) -> None:
    """One collects what the other finds, as in ActiveMQ Artemis; also across a crash."""
    stomp(sim).drop()
    send(sim, b"1", b"2")
    sim.restart()
    amqp = AmqpSim(sim.broker, "c")
    link = amqp.receiver("a.b", "topic", name="a.b", credit=1, **DURABLE)
    (first,) = amqp.take()
    amqp.settle(first)
    amqp.detach(link, closed=False)
    assert stomp(sim).bodies() == [b"2"]


@pytest.mark.parametrize("first", ["stomp", "amqp"])
def test_but_not_while_amqp_has_it_for_itself(sim: SimWorld, first: str) -> None:
    amqp = AmqpSim(sim.broker, "c")
    if first == "stomp":
        stomp(sim)
        link = amqp.receiver("a.b", "topic", name="a.b", **DURABLE)
        assert amqp.refused(link).condition == "amqp:resource-locked"
    else:
        amqp.receiver("a.b", "topic", name="a.b", **DURABLE)
        assert b"has its only consumer already" in refused(stomp(sim))


def test_a_name_that_is_none_is_shown_whole(sim: SimWorld) -> None:
    (error,) = stomp(sim, name="a::b").take("ERROR")
    assert error.headers["message"].startswith("the queue name 'c.a::b' contains ::")


# -- sessions of MQTT --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_no_other_subscriber_takes_the_messages_of_a_session(sim: SimWorld, protocol: str, away: bool) -> None:
    reader = session(sim)
    if away:
        reader.disconnect()
        sim.restart()
    if protocol == "stomp":
        assert b"the session of client c" in refused(stomp(sim))
    else:
        amqp = AmqpSim(sim.broker, "c")
        error = amqp.refused(amqp.receiver("a.b", "topic", name="a.b", **DURABLE))
        assert (error.condition, "the session of client c" in str(error.description)) == ("amqp:resource-locked", True)
    send(sim, b"1", b"2")
    if away:
        reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    assert reader.payloads() == [b"1", b"2"]


def test_nor_of_one_that_ends_with_its_connection(sim: SimWorld) -> None:
    reader = session(sim, qos=0, clean=True, expiry=0)
    assert b"the session of client c" in refused(stomp(sim))
    send(sim, b"1", b"2")
    assert reader.payloads() == [b"1", b"2"]


def test_a_session_does_not_join_a_subscription_that_is_consumed(sim: SimWorld) -> None:
    client = stomp(sim)
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    assert reader.subscribe("a/b", qos=1) == [0x83]
    send(sim, b"1", b"2")
    assert client.bodies() == [b"1", b"2"]


def test_a_session_takes_over_one_that_is_not_consumed(sim: SimWorld) -> None:
    """A client that changes its protocol finds what was collected; what it subscribes to is then its session's."""
    stomp(sim).drop()
    send(sim, b"1")
    reader = session(sim)
    assert reader.payloads() == [b"1"]
    reader.disconnect()
    assert b"the session of client c" in refused(stomp(sim))


def test_queues_that_a_session_takes_over_have_the_limit_of_sessions() -> None:
    sim = SimWorld(with_mqtt(queued_messages_max=2))
    stomp(sim).drop()
    send(sim, b"1", b"2", b"3")
    reader = session(sim)
    assert reader.payloads() == [b"1", b"2", b"3"], "which stay"
    reader.disconnect()
    send(sim, b"4", b"5", b"6")
    assert sim.connect("c", clean=False, expiry=FOR_EVER).payloads() == [b"4", b"5"]


@pytest.mark.parametrize("crash", [False, True])
def test_a_session_ends_only_what_it_has(sim: SimWorld, crash: bool) -> None:
    """With QoS 0 it has no queue while its client is away: one of that name is another subscriber's."""
    session(sim, qos=0).disconnect()
    stomp(sim).drop()
    send(sim, b"1")
    if crash:
        sim.restart()
    sim.connect("c", clean=True)
    assert stomp(sim).bodies() == [b"1"]


def test_nor_what_it_was_refused(sim: SimWorld) -> None:
    session(sim, qos=0).disconnect()
    client = stomp(sim)
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    client.drop()
    send(sim, b"1")
    reader.unsubscribe("a/b")
    assert stomp(sim).bodies() == [b"1"]


@pytest.mark.parametrize("no_local", [False, True])
def test_nor_does_it_change_what_it_was_refused(sim: SimWorld, no_local: bool) -> None:
    client = stomp(sim, **{"no-local": "true"} if not no_local else {})
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    wanted = Subscription(parse_topic_filter("a/b", Limits()), qos=1, no_local=no_local)
    assert reader.subscribe(wanted) == [0x83]
    assert sim.broker.engine.queue("c.a.b").no_local == ("" if no_local else "c")
    reader.publish("a/b", b"from c", qos=1)
    assert client.bodies() == ([b"from c"] if no_local else [])


def test_an_idle_subscription_does_not_make_another_s_queue_refuse_anything(sim: SimWorld) -> None:
    """While a session is away, its queue takes only durable messages; this one is not its queue."""
    session(sim, qos=0).disconnect()
    client = stomp(sim)
    sim.connect("c", clean=False, expiry=FOR_EVER).disconnect()
    sim.broker.connect().send("/topic/a.b", b"not durable")
    assert client.bodies() == [b"not durable"]


def test_a_session_that_takes_over_may_want_no_local(sim: SimWorld) -> None:
    stomp(sim).drop()
    send(sim, b"1")
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    wanted = Subscription(parse_topic_filter("a/b", Limits()), qos=1, no_local=True)
    assert reader.subscribe(wanted) == [1]
    reader.publish("a/b", b"own", qos=1)
    assert reader.payloads() == [b"1"]


@pytest.mark.parametrize("name", [{}, {"durable-subscription-name": "a.b"}])
def test_a_reader_of_a_session_s_queue_does_not_keep_the_session_from_it(sim: SimWorld, name: dict[str, str]) -> None:
    """The full name of a queue counts, not that of a subscription beside it."""
    reader = session(sim, qos=0)
    watcher = sim.broker.connect(**{"client-id": "c"})
    watcher.subscribe("/topic/a.b::c.a.b", ack="client-individual", **name)
    reader.disconnect()
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    watcher.drop()
    send(sim, b"1")
    assert reader.payloads() == [b"1"]


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_the_names_of_shared_subscriptions_are_theirs(sim: SimWorld, protocol: str) -> None:
    """At a restart one without clients is deleted: nobody else's may have such a name."""
    reader = sim.subscriber("c", "$share/g/a/b", qos=1)
    if protocol == "stomp":
        assert b"$share." in refused(stomp(sim, "$share", "g.a.b"))
        assert b"$share." in refused(stomp(sim, "$share", "mine"))
    else:
        amqp = AmqpSim(sim.broker, "$share")
        for name in ("g.a.b", "mine"):
            error = amqp.refused(amqp.receiver("a.b", "topic", name=name, **DURABLE))
            assert "$share." in str(error.description)
    send(sim, b"1", b"2")
    assert reader.payloads() == [b"1", b"2"]


# -- queues that are not durable ---------------------------------------------------------------------------------------


def not_durable(sim: SimWorld) -> None:
    """An operator's queue of the subscription's name."""
    engine = sim.broker.engine
    address = engine.configuration.declare("a.b", {RoutingType.MULTICAST})
    engine.configuration.declare_queue(address, "c.a.b", RoutingType.MULTICAST, durable=False, selector="")


def test_a_durable_subscription_is_durable(sim: SimWorld) -> None:
    not_durable(sim)
    assert b"c.a.b is not durable" in refused(stomp(sim))
    amqp = AmqpSim(sim.broker, "c")
    error = amqp.refused(amqp.receiver("a.b", "topic", name="a.b", **DURABLE))
    assert "c.a.b is not durable" in str(error.description)
    reader = sim.connect("c", clean=False, expiry=FOR_EVER)
    assert reader.subscribe("a/b", qos=1) == [0x83]
    assert sim.connect("c", clean=True).subscribe("a/b", qos=0) == [0]


def test_a_durable_subscription_joins_no_volatile_one(sim: SimWorld) -> None:
    amqp = AmqpSim(sim.broker, "c")
    amqp.receiver("a.b", "topic", "shared", name="n")
    assert b"c.n:shared-volatile is not durable" in refused(stomp(sim, name="n:shared-volatile"))
    stomp(sim, name="m:shared-volatile")
    error = amqp.refused(amqp.receiver("a.b", "topic", "shared", name="m"))
    assert "c.m:shared-volatile is durable" in str(error.description)
    send(sim, b"1")
    assert held(sim.broker, "c.m:shared-volatile") == [b"1"]


# -- names of shared subscriptions -------------------------------------------------------------------------------------


def test_no_other_queue_has_the_name_of_a_shared_subscription(sim: SimWorld) -> None:
    """Whoever creates it: it would be deleted at the next restart."""
    client = sim.broker.connect()
    client.do("SEND", {"destination": "a::$share.g.a", "persistent": "true"}, b"x")
    assert b"$share." in refused(client)
    engine = sim.broker.engine
    with pytest.raises(InvalidName, match="a shared subscription"):
        engine.operators.make_queue(NewQueue("$share.g.a", "a", RoutingType.MULTICAST, make_address=True))


# -- names that older versions permitted -------------------------------------------------------------------------------


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch, sim: SimWorld) -> SimWorld:
    """A broker of an earlier version, whose clients may call a queue `$share...`."""
    for module in (names, subscribe):
        monkeypatch.setattr(module, "check_not_shared", lambda name: None)
    return sim


def upgrade(sim: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    sim.restart()


@interpreted
def test_a_queue_that_is_called_like_a_shared_subscription_stays(
    older: SimWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    older.broker.connect().confirmed("/queue/$share.g.a.b", b"1")
    upgrade(older, monkeypatch)
    client = older.connect("m", clean=False, expiry=FOR_EVER)
    assert client.subscribe("$share/g/a/b", qos=1) == [0x83]
    client.unsubscribe("$share/g/a/b")
    client.disconnect()
    older.restart()
    assert older.broker.subscriber("/queue/$share.g.a.b", ack="auto").bodies() == [b"1"]


@interpreted
def test_a_durable_subscription_that_is_called_like_one_stays(older: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    stomp(older, "$share", "x").drop()
    send(older, b"1")
    upgrade(older, monkeypatch)
    assert stomp(older, "$share", "x").bodies() == [b"1"]
    assert b"is that of a shared subscription" in refused(stomp(older, "$share", "y"))
