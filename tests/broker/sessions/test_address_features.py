"""Features of addresses as clients meet them, over STOMP, AMQP and MQTT, and from one to the other."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config.diverts import DivertSection
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Accepted, Rejected
from protocols.mqtt.properties import USER_PROPERTY
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker


def diverting(address: str, forwarding: str, **more: Any) -> dict[str, DivertSection]:
    """A divert in the configuration."""
    values = {name.replace("_", "-"): value for name, value in more.items()}
    return {"d": DivertSection.model_validate({"address": address, "forwarding-address": forwarding} | values)}


def test_duplicates_over_stomp_get_their_receipt(broker: SimBroker) -> None:
    client = broker.connect()
    for receipt in ("1", "2"):
        headers = {"destination": "/queue/a", "persistent": "true", "_AMQ_DUPL_ID": "x", "receipt": receipt}
        client.do("SEND", headers, b"hello")
    assert [frame.headers["receipt-id"] for frame in client.take("RECEIPT")] == ["1", "2"]
    assert held(broker, "a") == [b"hello"]
    broker = broker.restart()
    broker.connect().do("SEND", {"destination": "/queue/a", "persistent": "true", "_AMQ_DUPL_ID": "x"}, b"again")
    assert held(broker, "a") == [b"hello"]


@pytest.mark.parametrize("id", ["x", b"\0\1\2"])
def test_duplicates_over_amqp_are_accepted_once(broker: SimBroker, id: object) -> None:
    client = AmqpSim(broker)
    link = client.sender("queue://a")
    for body in ("1", "2"):
        (outcome,) = client.send(link, message(body, application={"_AMQ_DUPL_ID": id}))
        assert isinstance(outcome.state, Accepted)
    assert len(held(broker, "a")) == 1


def test_duplicates_by_an_amqp_annotation(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    annotations = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-DUPL-ID": "x"})
    for body in ("1", "2"):
        client.send(client.sender("queue://a"), message(body, annotations=annotations))
    assert len(held(broker, "a")) == 1


def test_duplicates_of_all_protocols_are_one() -> None:
    world = SimWorld(small())
    stomp = world.broker.subscriber("/topic/a")
    stomp.do("SEND", {"destination": "/topic/a", "_AMQ_DUPL_ID": "x"}, b"stomp")
    amqp = AmqpSim(world.broker)
    amqp.send(amqp.sender("topic://a"), message("amqp", application={"_AMQ_DUPL_ID": "x"}))
    mqtt = world.connect("c")
    mqtt.publish("a", b"mqtt", 1, properties=[(USER_PROPERTY, ("_AMQ_DUPL_ID", "x"))])
    mqtt.publish("a", b"other", 1, properties=[(USER_PROPERTY, ("_AMQ_DUPL_ID", "y"))])
    assert stomp.bodies() == [b"stomp", b"other"]


def test_a_stomp_transaction_with_a_duplicate_is_refused(broker: SimBroker) -> None:
    broker.connect().do("SEND", {"destination": "/queue/a", "_AMQ_DUPL_ID": "x"}, b"1")
    client = broker.connect()
    client.do("BEGIN", {"transaction": "t"})
    client.do("SEND", {"destination": "/queue/a", "transaction": "t"}, b"2")
    client.do("SEND", {"destination": "/queue/a", "transaction": "t", "_AMQ_DUPL_ID": "x"}, b"3")
    client.do("COMMIT", {"transaction": "t"})
    (error,) = client.take("ERROR")
    assert b"duplicate id was accepted on address a before" in error.body
    assert held(broker, "a") == [b"1"]


def test_an_amqp_transaction_with_a_duplicate_is_refused(broker: SimBroker) -> None:
    client = AmqpSim(broker)
    link, control = client.sender("queue://a"), client.coordinator()
    client.send(link, message("1", application={"_AMQ_DUPL_ID": "x"}))
    tx = client.declare(control)
    client.send(link, message("2"), message("3", application={"_AMQ_DUPL_ID": "x"}), tx=tx)
    assert isinstance(client.discharge(control, tx), Rejected)
    assert len(held(broker, "a")) == 1


def test_a_divert_over_stomp_with_headers() -> None:
    broker = SimBroker(small(diverts=diverting("orders", "audit", filter="region = 'eu'", add_headers=["via: d"])))
    client = broker.subscriber("/queue/audit")
    client.do("SEND", {"destination": "/queue/orders", "region": "eu"}, b"1")
    client.do("SEND", {"destination": "/queue/orders", "region": "us"}, b"2")
    (found,) = client.messages()
    assert (found.body, found.headers["destination"], found.headers["via"]) == (b"1", "/queue/audit", "d")
    assert found.headers["_AMQ_ORIG_ADDRESS"] == "orders"
    assert found.headers["_AMQ_ORIG_QUEUE"] == "d"
    assert len(held(broker, "orders")) == 2


def test_a_divert_changes_no_header_that_belongs_to_the_frame() -> None:
    """A wrong content-length would take every STOMP subscriber out of step; MESSAGE has one destination."""
    added = ["content-length: 1", "destination: /queue/elsewhere", "via: d"]
    diverts = diverting("orders", "audit", add_headers=added, remove_headers=["content-length"])
    broker = SimBroker(small(diverts=diverts))
    client = broker.subscriber("/queue/audit")
    for length in ({}, {"content-length": "3"}):
        client.do("SEND", {"destination": "/queue/orders", **length}, b"one")
    for found in client.messages():
        assert (found.body, found.headers["content-length"]) == (b"one", "3")
        assert (found.headers["destination"], found.headers["via"]) == ("/queue/audit", "d")


def test_a_divert_over_amqp_leaves_the_body_as_it_is() -> None:
    diverts = diverting("orders", "audit", exclusive=True, add_headers=["via: d"], remove_headers=["secret"])
    broker = SimBroker(small(diverts=diverts))
    client = AmqpSim(broker)
    client.receiver("queue://audit")
    client.send(client.sender("queue://orders"), message({"n": 1}, application={"secret": "s", "n": 7}))
    (delivery,) = client.take()
    assert delivery.body == {"n": 1}
    assert delivery.message.application_properties == {"n": 7, "via": "d"}
    annotations = delivery.message.message_annotations
    assert (annotations["x-opt-ORIG-ADDRESS"], annotations["x-opt-ORIG-QUEUE"]) == ("orders", "d")
    assert held(broker, "orders") == []


def test_a_divert_over_mqtt() -> None:
    world = SimWorld(small(diverts=diverting("orders", "audit", add_headers=["via: d"])))
    client = world.subscriber("c", "audit", qos=1)
    client.publish("orders", b"1", 1, properties=[(USER_PROPERTY, ("k", "v"))])
    (found,) = client.take()
    assert (found.topic, found.payload) == ("audit", b"1")
    user = dict(found.properties.get_all(USER_PROPERTY))
    assert (user["k"], user["via"]) == ("v", "d")


def test_the_time_of_arrival_over_stomp_and_amqp() -> None:
    broker = SimBroker(small({"match": "a", "enable-ingress-timestamp": True}))
    stomp, amqp = broker.connect(), AmqpSim(broker)
    stomp.do("SEND", {"destination": "/topic/a", "ingress-timestamp": "1", "_AMQ_INGRESS_TIMESTAMP": "2"}, b"nobody")
    stomp.subscribe("/topic/a")
    amqp.receiver("topic://a")
    stomp.do("SEND", {"destination": "/topic/a", "ingress-timestamp": "1", "_AMQ_INGRESS_TIMESTAMP": "2"}, b"1")
    (frame,) = stomp.messages()
    assert frame.headers["ingress-timestamp"] == str(broker.now)
    assert "_AMQ_INGRESS_TIMESTAMP" not in frame.headers
    (delivery,) = amqp.take()
    assert delivery.message.message_annotations["x-opt-ingress-time"] == broker.now


def test_a_retroactive_address_over_all_protocols() -> None:
    world = SimWorld(small({"match": "orders", "retroactive-message-count": 2}))
    stomp = world.broker.connect()
    for body in (b"1", b"2", b"3"):
        stomp.send("/topic/orders", body)
    stomp.subscribe("/topic/orders")
    assert stomp.bodies() == [b"2", b"3"]
    amqp = AmqpSim(world.broker)
    amqp.receiver("topic://orders")
    assert amqp.bodies() == ["2", "3"]
    mqtt = world.subscriber("c", "orders", qos=1)
    assert mqtt.payloads() == [b"2", b"3"]


def slow_broker() -> SimBroker:
    """A broker that closes slow consumers of the address a, with a message on it."""
    broker = SimBroker(small({"match": "a", "slow-consumer-threshold": 1, "slow-consumer-policy": "KILL"}))
    broker.connect().send("/queue/a", b"1")
    return broker


def test_a_slow_consumer_over_stomp_loses_its_connection() -> None:
    broker = slow_broker()
    client = broker.subscriber("/queue/a")
    broker.advance(10_000)
    (error,) = client.take("ERROR")
    assert b"slow consumer: 0 messages per second of queue a" in error.body
    assert client.closed


def test_an_address_is_deleted_with_several_subscriptions_of_one_connection() -> None:
    """The first to be closed ends the connection, and so the other subscriptions to the address."""
    broker = SimBroker(small())
    clients = [broker.subscriber("/topic/t") for _ in range(2)]
    for client in clients:
        client.subscribe("/topic/t", id="second")
        client.subscribe("/topic/u", id="third")
    broker.parts.tick.enter()
    broker.engine.operators.delete_address(broker.engine.addresses["t"], with_queues=True)
    broker.run()
    assert [len(client.take("ERROR")) for client in clients] == [1, 1]
    assert "t" not in broker.engine.addresses
    assert not {queue.address.name for queue in broker.engine.queues.values()} & {"t", "u"}


def test_a_slow_consumer_over_amqp_loses_its_link() -> None:
    broker = slow_broker()
    client = AmqpSim(broker)
    link = client.receiver("queue://a")
    broker.advance(10_000)
    assert "slow consumer" in (client.refused(link).description or "")


def test_no_route_over_stomp_and_amqp() -> None:
    broker = SimBroker(small({"match": "t", "send-to-dla-on-no-route": True}))
    broker.connect().send("/topic/t", b"stomp", persistent="true")
    amqp = AmqpSim(broker)
    (outcome,) = amqp.send(amqp.sender("topic://t"), message("amqp"))
    assert isinstance(outcome.state, Accepted)
    client = broker.subscriber("DLQ")
    assert [frame.headers["_AMQ_DL_REASON"] for frame in client.messages()] == ["no-route", "no-route"]


def test_a_sender_beyond_the_threshold_is_refused_over_amqp() -> None:
    limits = {"match": "a", "max-size-bytes": 100, "max-size-bytes-reject-threshold": 200}
    broker = SimBroker(small({**limits, "address-full-policy": "BLOCK"}))
    client = AmqpSim(broker)
    link = client.sender("queue://a")
    outcomes = [client.send(link, message("x" * 100))[0].state for _ in range(3)]
    assert isinstance(outcomes[-1], Rejected)
    assert outcomes[-1].error is not None
    assert "address a is full" in (outcomes[-1].error.description or "")


@pytest.mark.parametrize("name", ["$.artemis.internal.x", "a.*", "a::", "::q", "a::b::c", "x" * 1025])
def test_names_that_cannot_be_sent_to_are_refused_with_a_reason(broker: SimBroker, name: str) -> None:
    client = broker.connect()
    client.send(name, b"1")
    (error,) = client.take("ERROR")
    assert error.headers["message"]
    amqp = AmqpSim(broker)
    assert amqp.refused(amqp.sender(name)).description
