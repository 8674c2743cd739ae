"""What a session sends, how much at once, and what becomes of what cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.queue import Queue
from broker.sessions.mqtt import MqttSession
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.limits import Limits
from protocols.mqtt.properties import (
    MESSAGE_EXPIRY_INTERVAL,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    USER_PROPERTY,
    Property,
)
from tests.broker.sessions.test_mqtt_sessions import queues, with_mqtt
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier, SimWorld
from tests.support.sim_broker import configured

P = PacketType


def carrier(client: MqttClient) -> SimCarrier:
    """The wire of a client."""
    found = client._carrier
    assert isinstance(found, SimCarrier)
    return found


def small(sim: SimWorld, *properties: tuple[Property[Any], Any], clean: bool = True) -> MqttClient:
    """A client `c` that takes packets of 256 bytes."""
    client = MqttClient(limits=Limits(packet_bytes_max=256))
    client.over(SimCarrier(sim.broker, client))
    return client.connect(greeting("c", clean=clean, properties=properties))


def dead_letters(sim: SimWorld) -> Queue:
    return sim.broker.engine.router.queues["DLQ"]


# -- flow control ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("filters", [("a/#",), ("a/0", "a/1", "a/2")])
def test_no_more_is_sent_than_a_client_takes_at_once(qos: int, filters: tuple[str, ...]) -> None:
    sim = SimWorld()
    client = sim.connect("c", auto=False, properties=[(RECEIVE_MAXIMUM, 3)])
    client.subscribe(*filters, qos=qos)
    other = sim.connect("other")
    for number in range(10):
        other.publish(f"a/{number % 3}", b"%d" % number, qos)
    got: list[bytes] = []
    while messages := client.take():
        assert len(messages) <= 3
        for message in messages:
            got.append(message.payload)
            client.ack(P.PUBACK if qos == 1 else P.PUBREC, message.packet_id)
            if qos == 2:
                assert client.replies(P.PUBREL) == [(message.packet_id, 0)]
                client.ack(P.PUBCOMP, message.packet_id)
    assert sorted(got) == [b"%d" % number for number in range(10)]
    for topic in range(3):  # an order within each topic
        assert [payload for payload in got if int(payload) % 3 == topic] == sorted(
            p for p in got if int(p) % 3 == topic
        )
    assert not any(queue.message_count for queue in queues(sim).values())


def test_the_broker_s_own_maximum_counts_for_old_clients() -> None:
    sim = SimWorld(with_mqtt(default_maximum_in_flight_publish_messages=2))
    client = sim.connect("c", version=V311, auto=False)
    client.subscribe("a", qos=1)
    sim.connect("other").post("a", [b"%d" % number for number in range(5)], 1)
    first = client.take()
    assert [message.payload for message in first] == [b"0", b"1"]
    client.ack(P.PUBACK, first[0].packet_id)
    assert client.payloads() == [b"2"]


def test_qos_0_through_a_subscription_of_qos_1_uses_credit_and_gives_it_back() -> None:
    sim = SimWorld(with_mqtt(default_maximum_in_flight_publish_messages=2))
    client, other = sim.connect("c"), sim.connect("other")
    client.subscribe("a", qos=1)
    got: list[bytes] = []
    for number in range(20):
        other.publish("a", b"%d" % number, 0)
        got += client.payloads()
    other.post("a", [b"%d" % number for number in range(20, 40)], 0)
    assert got + client.payloads() == [b"%d" % number for number in range(40)]


def test_after_a_reconnect_the_quota_counts_for_what_is_sent_again() -> None:
    sim = SimWorld()
    client = sim.connect("c", expiry=100, auto=False)
    client.subscribe("a", qos=1)
    sim.connect("other").post("a", [b"%d" % number for number in range(6)], 1)
    assert len(client.take()) == 6
    again = sim.connect("c", clean=False, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    got = []
    while messages := again.take():
        assert len(messages) <= 2
        got += [(message.payload, message.dup) for message in messages]
        again.ack(P.PUBACK, *[message.packet_id for message in messages])
    assert got == [(b"%d" % number, True) for number in range(6)]


def test_what_expires_while_it_waits_for_the_quota_is_not_sent() -> None:
    """[MQTT-3.3.2-5]."""
    sim = SimWorld()
    client = sim.connect("c", auto=False, properties=[(RECEIVE_MAXIMUM, 1)])
    client.subscribe("a", "b", qos=1)
    other = sim.connect("other")
    other.publish("a", b"first", 1)
    other.publish("a", b"short", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    other.publish("b", b"short too", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    other.publish("b", b"long", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 50)])
    [first] = client.take()
    sim.advance(6)
    client.ack(P.PUBACK, first.packet_id)
    [message] = client.take()
    assert (message.payload, message.get(MESSAGE_EXPIRY_INTERVAL)) == (b"long", 44)


def test_a_client_that_does_not_read_is_not_sent_more() -> None:
    sim = SimWorld()
    client, other = sim.connect("c"), sim.connect("other")
    client.subscribe("a", qos=0)
    client.subscribe("b", qos=1)
    carrier(client).stalled = True
    body = b"x" * 500_000
    for _ in range(10):
        other.publish("a", body)
        other.publish("b", body, 1)
    waiting = sum(queue.ready for queue in queues(sim).values())
    assert waiting >= 10, "what is in memory twice is bounded"
    carrier(client).unstall()
    assert len(client.take()) == 20
    assert not any(queue.message_count for queue in queues(sim).values())


# -- what cannot be sent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_too_large_for_a_client_is_a_dead_letter(qos: int) -> None:
    sim = SimWorld()
    client = small(sim)
    client.subscribe("a", qos=qos)
    other = sim.connect("other")
    other.post("a", [b"small", b"x" * 256, b"small too"], qos)
    assert client.payloads() == [b"small", b"small too"]
    [letter] = dead_letters(sim).waiting()
    assert letter.body == b"x" * 256
    assert letter.facts.annotations is not None
    assert letter.facts.annotations["_AMQ_DL_REASON"] == "too-large"


def test_credit_comes_back_for_what_could_not_be_sent() -> None:
    sim = SimWorld()
    client = small(sim, (RECEIVE_MAXIMUM, 2))
    client.subscribe("a", qos=1)
    sim.connect("other").post("a", [b"x" * 256] * 5 + [b"small"], 1)
    assert client.payloads() == [b"small"]
    assert dead_letters(sim).message_count == 5


def test_a_client_that_comes_back_and_takes_less() -> None:
    sim = SimWorld()
    client = sim.connect("c", expiry=100, auto=False)
    client.subscribe("a", qos=2)
    sim.connect("other").post("a", [b"x" * 256, b"small"], 2)
    assert len(client.take()) == 2
    again = small(sim, (SESSION_EXPIRY_INTERVAL, 100), clean=False)
    assert again.payloads() == [b"small"]
    assert dead_letters(sim).message_count == 1
    assert not queues(sim)["c.a"].message_count


@pytest.mark.parametrize(("qos", "packet"), [(1, P.PUBACK), (2, P.PUBREC)])
def test_what_a_client_refuses_is_a_failed_delivery(qos: int, packet: PacketType) -> None:
    config = configured({"match": "a", "max-delivery-attempts": 2})
    sim = SimWorld(config)
    client = sim.connect("c", expiry=100, auto=False)
    client.subscribe("a", qos=qos)
    sim.connect("other").publish("a", b"x", qos)
    for _ in range(2):
        [message] = client.take()
        assert not message.dup, "it is another PUBLISH"
        client.ack(packet, message.packet_id, reason=0x83, properties=[(REASON_STRING, "cannot read it")])
    assert client.take() == []
    [letter] = dead_letters(sim).waiting()
    assert letter.facts.annotations is not None
    assert "cannot read it" in str(letter.facts.annotations["_AMQ_DL_TEXT"])
    sim.restart()
    assert sim.connect("c", clean=False, expiry=100).take() == []


def test_a_dead_letter_tells_why_over_mqtt_too() -> None:
    config = configured({"match": "a", "max-delivery-attempts": 1, "dead-letter-address": "dead"})
    sim = SimWorld(config)
    watcher, client = sim.connect("w"), sim.connect("c", auto=False)
    watcher.subscribe("dead", qos=1)
    client.subscribe("a", qos=1)
    sim.connect("other").publish("a", b"x", 1, properties=[(USER_PROPERTY, ("mine", "1"))])
    [message] = client.take()
    client.ack(P.PUBACK, message.packet_id, reason=0x80)
    [letter] = watcher.take()
    told = dict(letter.properties.get_all(USER_PROPERTY))
    assert letter.payload == b"x"
    assert (told["mine"], told["_AMQ_ORIG_ADDRESS"], told["_AMQ_DL_REASON"]) == ("1", "a", "max-deliveries")


def test_an_address_without_a_topic() -> None:
    sim = SimWorld()
    client = sim.connect("c")
    client.subscribe("#", qos=1)
    stomp = sim.broker.connect()
    stomp.confirmed("/topic/a+b", b"x")
    assert client.take() == []
    assert client.subscribe("still/here") == [0]
    assert dead_letters(sim).message_count == 1


# -- shared subscriptions, and the queues of others --------------------------------------------------------------------


def test_what_is_in_flight_to_an_absent_member_goes_to_others() -> None:
    """QoS 1; what is in flight with QoS 2 stays (test_mqtt_normative_messages)."""
    sim = SimWorld()
    member = sim.connect("a", expiry=100, auto=False)
    member.subscribe("$share/g/t", qos=1)
    sim.connect("publisher").post("t", [b"1", b"2"], 1)
    assert member.payloads() == [b"1", b"2"]
    other = sim.connect("b")
    other.subscribe("$share/g/t", qos=1)
    assert other.take() == []
    member.drop()
    assert other.payloads() == [b"1", b"2"]
    again = sim.connect("a", clean=False, expiry=100)
    assert again.take() == []
    assert not queues(sim)["$share.g.t"].message_count


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_in_flight_to_a_member_goes_to_others_after_a_restart(crash: bool) -> None:
    """The member may never come back."""
    sim = SimWorld()
    member = sim.connect("a", expiry=FOR_EVER, auto=False)
    member.subscribe("$share/g/t", qos=2)
    publisher = sim.connect("publisher")
    publisher.post("t", [b"1", b"2"], 1)
    publisher.publish("t", b"3", 2)
    assert len(member.take()) == 3
    sim.connect("b", expiry=FOR_EVER).subscribe("$share/g/t", qos=2)
    sim.restart(crash=crash)
    other = sim.connect("b", clean=False, expiry=FOR_EVER)
    assert other.payloads() == [b"1", b"2"]
    sim.restart(crash=crash)
    assert sim.connect("b", clean=False, expiry=FOR_EVER).payloads() == []
    assert sim.connect("a", clean=False, expiry=FOR_EVER).payloads() == [b"3"]
    assert not queues(sim)["$share.g.t"].message_count


def test_a_share_takes_qos_0_while_somebody_is_there() -> None:
    sim = SimWorld()
    first, second = (sim.connect(name, expiry=100) for name in "ab")
    publisher = sim.connect("publisher")
    for member in (first, second):
        member.subscribe("$share/g/t", qos=1)
    first.drop()
    publisher.publish("t", b"0")
    assert second.payloads() == [b"0"]
    second.drop()
    publisher.publish("t", b"lost")
    publisher.publish("t", b"kept", 1)
    assert sim.connect("a", clean=False, expiry=100).payloads() == [b"kept"]


def test_leaving_a_share_with_messages_in_flight() -> None:
    sim = SimWorld()
    first, second = sim.connect("a", auto=False), sim.connect("b")
    publisher = sim.connect("publisher")
    first.subscribe("$share/g/t", qos=1)
    publisher.publish("t", b"1", 1)
    [message] = first.take()
    second.subscribe("$share/g/t", qos=1)
    first.unsubscribe("$share/g/t")
    publisher.publish("t", b"2", 1)
    assert (first.take(), second.payloads()) == ([], [b"2"])
    first.ack(P.PUBACK, message.packet_id)
    queue = queues(sim)["$share.g.t"]
    assert (queue.message_count, len(queue.consumers)) == (0, 1)
    second.unsubscribe("$share/g/t")
    assert queues(sim) == {}


@pytest.mark.parametrize("leave", ["unsubscribe", "ask for QoS 0"])
@pytest.mark.parametrize("restart", [False, True])
def test_leaving_a_share_and_the_broker_with_messages_in_flight(leave: str, restart: bool) -> None:
    """What is in flight with QoS 1 is the others', what is with QoS 2 is not [MQTT-4.8.2-5]."""
    sim = SimWorld()
    first = sim.connect("a", expiry=100, auto=False)
    first.subscribe("$share/g/t", qos=2)
    publisher = sim.connect("publisher")
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 2)
    [_, twice] = first.take()
    second = sim.connect("b", clean=False, expiry=100)
    second.subscribe("$share/g/t", qos=2)
    if leave == "unsubscribe":
        first.unsubscribe("$share/g/t")
    else:
        first.subscribe("$share/g/t", qos=0)
    first.drop()
    assert second.payloads() == [b"1"]
    if restart:
        sim.restart()
        second = sim.connect("b", clean=False, expiry=100)
    first = sim.connect("a", clean=False, expiry=100, auto=False)
    assert [(m.packet_id, m.payload) for m in first.take()] == [(twice.packet_id, b"2")]
    first.ack(P.PUBREC, twice.packet_id)
    first.ack(P.PUBCOMP, twice.packet_id)
    assert second.payloads() == []
    queue = queues(sim)["$share.g.t"]
    assert (queue.message_count, len(queue.consumers)) == (0, 1 if leave == "unsubscribe" else 2)


def test_a_share_goes_with_its_last_session_also_over_a_restart() -> None:
    sim = SimWorld()
    sim.connect("a", expiry=10).subscribe("$share/g/t", qos=1)
    sim.connect("b").subscribe("$share/h/t", qos=1)
    assert set(queues(sim)) == {"$share.g.t", "$share.h.t"}
    sim.restart()
    assert set(queues(sim)) == {"$share.g.t"}
    sim.advance(11)
    assert queues(sim) == {}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_anycast_address_is_read_as_the_queue_that_it_is(qos: int) -> None:
    sim = SimWorld()
    stomp = sim.broker.connect()
    stomp.confirmed("/queue/orders", b"1")
    client = sim.connect("c", expiry=100, auto=False)
    client.subscribe("orders", qos=qos)
    assert set(queues(sim)) == {"orders"}
    assert client.payloads() == [b"1"]
    client.drop()
    left = queues(sim)["orders"].message_count
    assert left == (1 if qos else 0), "what was not acknowledged is there for others"
    sim.restart()
    stomp = sim.broker.connect()
    stomp.confirmed("/queue/orders", b"2")
    again = sim.connect("c", clean=False, expiry=100)
    assert again.payloads() == ([b"1", b"2"] if qos else [b"2"])
    again.unsubscribe("orders")
    assert set(queues(sim)) == {"orders"}


def test_a_queue_that_an_operator_deletes() -> None:
    sim = SimWorld()
    client = sim.connect("c", expiry=100)
    client.subscribe("a", qos=1)
    engine = sim.broker.engine
    engine.delete_queue(engine.queue("c.a"))
    sim.broker.parts.turn.enter()
    sim.broker.run()
    client.settle()
    assert client.closed
    assert client.goodbye is not None
    assert client.goodbye.reason_code == 0x98
    again = sim.connect("c", clean=False, expiry=100)
    sim.connect("other").publish("a", b"x", 1)
    assert again.payloads() == [b"x"]


def test_memory_of_a_session_is_given_back() -> None:
    """Nothing of a client stays in the registry."""
    sim = SimWorld()
    for version in (V311, V5):
        client = sim.connect("c", version=version)
        session = carrier(client).session
        assert isinstance(session, MqttSession)
        client.subscribe("a", "$share/g/b", qos=1)
        client.drop()
        sessions = session._common.sessions
        assert (len(sessions), sessions.shares) == (0, {})
    assert queues(sim) == {}
