"""What clients publish: answers, refusals, retained messages, full addresses, other protocols, other carriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.config import Config
from broker.config.diverts import DivertSection
from broker.daemon.wiring import declare
from broker.engine.model.message import Message
from broker.security.login import UserGate
from broker.sessions.mqtt.publish import NeverBlocked, Publisher
from broker.sessions.mqtt.receive import Receiver
from protocols.amqp.message import AMQP_VALUE, DATA
from protocols.amqp.performatives import Header
from protocols.amqp.performatives import Properties as AmqpProperties
from protocols.mqtt.codes import V31, V311, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Pingreq, Publish, Will
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    NO_PROPERTIES,
    PAYLOAD_FORMAT_INDICATOR,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    USER_PROPERTY,
)
from tests.broker.sessions.mqtt.harness import USERS, authenticate, carrier, queues, with_mqtt
from tests.support.amqp_client import AmqpSim, message
from tests.support.interpreted import interpreted
from tests.support.mqtt_client import greeting, publishes, wish
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_browser import Browser, RawPeer

P = PacketType

FULL = {"match": "full", "max-size-bytes": 1000, "address-full-policy": "FAIL"}


def absent_reader(sim: SimWorld, *topics: str) -> None:
    """An absent client that keeps what is published."""
    sim.subscriber("absent", *topics, qos=2, clean=False, expiry=1000).drop()


def kept(sim: SimWorld) -> list[tuple[str, bytes]]:
    """What it has kept, by topic, in the order of arrival within each."""
    client = sim.connect("absent", clean=False, expiry=1000)
    found = sorted(((m.topic, m.payload) for m in client.take()), key=lambda pair: pair[0])
    client.drop()
    return found


def test_retained_messages_stay_when_the_configuration_deletes_what_left_it() -> None:
    """Their queue is the broker's own: no configuration ever has it."""
    forced: dict[str, object] = {"match": "$sys.#", "config-delete-queues": "FORCE", "config-delete-addresses": "FORCE"}
    sim = SimWorld(configured(forced))
    sim.connect("c").publish("a", b"kept", 1, retain=True)
    sim.restart()
    declare(sim.broker.engine, sim.broker.config)
    assert sim.broker.reported("config.deleted") == []
    assert sim.subscriber("r", "a").payloads() == [b"kept"]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_without_subscribers_is_answered_so(sim: SimWorld, qos: int) -> None:
    answer = P.PUBACK if qos == 1 else P.PUBREC
    client, old = sim.connect("c", auto=False), sim.connect("old", version=V311, auto=False)
    first = client.publish("a", b"x", qos)
    assert client.replies(answer) == [(first, 0x10)]
    second = old.publish("a", b"x", qos)
    assert old.replies(answer) == [(second, 0)]
    absent_reader(sim, "a")
    third = client.publish("a", b"x", qos)
    assert client.replies(answer) == [(third, 0)]
    if qos == 2:
        client.ack(P.PUBREL, first, third)
        assert client.replies(P.PUBCOMP) == [(first, 0), (third, 0)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_read_of_several_topics(qos: int) -> None:
    """Answers come in the order of the packets, whatever becomes of each topic ([MQTT-4.6.0-2], [MQTT-4.6.0-3])."""
    sim = SimWorld(configured(FULL))
    absent_reader(sim, "a/#", "full")
    client = sim.connect("c", auto=False)
    client.publish("full", b"x" * 1000, 1)
    client.replies(P.PUBACK)
    topics = ["a/1", "nobody", "full", "a/2", "a/1", "$SYS/x", "full", "nobody", "a/2"]
    client.raw(publishes([(topic, b"%d" % number) for number, topic in enumerate(topics)], qos, first=20))
    codes = [0, 0x10, 0x97, 0, 0, 0x90, 0x97, 0x10, 0]
    answers = client.replies(P.PUBACK if qos == 1 else P.PUBREC)
    assert answers == ([(number + 20, code) for number, code in enumerate(codes)] if qos else [])
    found = [pair for pair in kept(sim) if pair[0] != "full"]
    assert found == ([("a/1", b"0"), ("a/1", b"4"), ("a/2", b"3"), ("a/2", b"8")] if qos else [])
    if not qos:
        dropped = {report["message"] for report in sim.broker.reported("mqtt.publish_dropped")}
        assert len(dropped) == 2
        assert sum(int(report["messages"]) for report in sim.broker.reported("mqtt.publish_dropped")) == 3


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("filter", "topics"), [("a1", ["a1"]), ("+", ["a1", "a2", "bb", "cc"]), ("cc", ["bb", "cc"])])
def test_a_subscription_keeps_the_order_of_a_publisher(filter: str, topics: list[str], qos: int) -> None:
    """Over topics, as Sparkplug's hosts count on; also where a divert (from bb to cc) makes the way together."""
    divert = DivertSection.model_validate({"address": "bb", "forwarding-address": "cc", "exclusive": True})
    sim = SimWorld(configured(diverts={"d": divert}))
    client = sim.subscriber("c", filter, qos=2)
    each = ["a1", "bb", "a2", "cc"]  # a topic begins a run when it is new
    sent = [(topic, b"%d" % at) for at, topic in enumerate([*each, "bb", "a2", "a1", "cc", "a2", "bb", "a1", "cc"])]
    sim.connect("publisher").raw(publishes(sent, qos))
    assert client.payloads() == [payload for topic, payload in sent if topic in topics]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_topic_that_gets_full_in_the_middle(qos: int) -> None:
    """What was taken before is not refused."""
    sim = SimWorld(configured(FULL))
    absent_reader(sim, "+")
    client = sim.connect("c", auto=False)
    topics = ["full", "left", "full", "left", "full", "full", "left"] * 2
    client.raw(publishes([(topic, bytes([number]) * 600) for number, topic in enumerate(topics)], qos))
    answers = client.replies(P.PUBACK if qos == 1 else P.PUBREC)
    taken = [number - 1 for number, code in answers if not code]
    refused = [number - 1 for number, code in answers if code == 0x97]
    assert {topics[number] for number in refused} == {"full"}
    assert topics[taken[0]] == "full"
    assert sorted(taken + refused) == list(range(len(topics)))
    assert sorted(body[0] for _, body in kept(sim)) == taken


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_come_together_are_taken_up_to_the_limit(qos: int) -> None:
    sim = SimWorld(configured({"match": "full", "max-size-messages": 3, "address-full-policy": "FAIL"}))
    absent_reader(sim, "full")
    client = sim.connect("c", auto=False)
    client.raw(publishes([("full", b"%d" % n) for n in range(8)], qos))
    answers = client.replies(P.PUBACK if qos == 1 else P.PUBREC)
    assert sorted(answers) == [(number, 0 if number <= 3 else 0x97) for number in range(1, 9)]
    assert [body for _, body in kept(sim)] == [b"0", b"1", b"2"]


def test_of_messages_that_come_together_the_last_that_is_taken_is_retained() -> None:
    sim = SimWorld(configured({"match": "full", "max-size-messages": 3, "address-full-policy": "FAIL"}))
    absent_reader(sim, "full")
    client = sim.connect("c", auto=False)
    client.raw(publishes([("full", b"%d" % n) for n in range(8)], 1, retain=True))
    assert sorted(client.replies(P.PUBACK)) == [(number, 0 if number <= 3 else 0x97) for number in range(1, 9)]
    message = sim.broker.engine.retained.get("full")
    assert message is not None
    assert message.body == b"2"


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_taken_before_a_refusal_are_acknowledged_before_the_connection_ends(qos: int, together: bool) -> None:
    """Before 5.0 nobody can be told of the refusal: all that has no answer comes again, and would fill the address."""
    sim = SimWorld(configured({"match": "full", "max-size-messages": 2, "address-full-policy": "FAIL"}))
    sim.subscriber("reader", "full", qos=2, clean=False, expiry=100).drop()
    client = sim.connect("c", version=V311, clean=False, auto=False)
    for number in range(1, 4):
        head = PublishHead(V311, "full", qos=qos if together or number < 3 else 3 - qos)
        client.codec.send_publish(head, [b"%d" % number], [number])
    client.settle()
    assert client.closed
    acknowledged = client.replies(P.PUBACK if qos == 1 else P.PUBREC)
    assert acknowledged == [(1, 0), (2, 0)]
    reader = sim.connect("reader", clean=False, expiry=100)
    again = sim.connect("c", version=V311, clean=False)
    again.publish("full", b"3", qos, packet_id=3, dup=True)
    assert reader.payloads() == [b"1", b"2", b"3"]


def test_a_refusal_says_why() -> None:
    sim = SimWorld(configured(FULL))
    absent_reader(sim, "full")
    client = sim.connect("c", auto=False)
    client.publish("full", b"x" * 1000, 1)
    client.publish("full", b"y", 2)
    [answer] = [one for one in client.answers if one.type is P.PUBREC]
    assert answer.reason_code == 0x97
    assert "address full is full" in (answer.properties.get(REASON_STRING) or "")
    again = client.publish("a", b"y", 2, packet_id=answer.packet_ids[0])
    assert client.replies(P.PUBREC)[-1] == (again, 0x10), "its packet id is free again [MQTT-4.3.3-9]"


@pytest.mark.parametrize("version", [V31, V311])
def test_a_message_that_ended_the_connection_is_new_when_it_is_sent_again(version: int) -> None:
    """Versions before 5 cannot be told of a refusal: the message is sent again, and is no repetition."""
    sim = SimWorld(configured({"match": "full", "max-size-messages": 2, "address-full-policy": "FAIL"}))
    absent_reader(sim, "full")
    client = sim.connect("c", version=version, clean=False)
    client.raw(publishes([("full", b"%d" % number) for number in (1, 2, 3)], 2, version=version))
    assert client.closed
    assert [body for _, body in kept(sim)] == [b"1", b"2"]
    again = sim.connect("c", version=version, clean=False)
    for number in (1, 2, 3):
        again.publish("full", b"%d" % number, 2, packet_id=number, dup=True)
    assert [body for _, body in kept(sim)] == [b"3"]


@pytest.mark.parametrize("version", [V31, V311])
def test_a_client_that_cannot_be_told_is_cut_off_or_ignored(version: int) -> None:
    sim = SimWorld(configured(FULL))
    absent_reader(sim, "full")
    client = sim.connect("c", version=version, auto=False)
    first = client.publish("$SYS/x", b"x", 1)
    assert sim.broker.reported("mqtt.publish_dropped")
    second = client.publish("full", b"x" * 1000, 1)
    assert client.replies(P.PUBACK) == [(first, 0), (second, 0)]
    client.publish("full", b"x", 0)
    assert [client.closed] == [False]
    client.publish("full", b"x", 1)
    assert [client.closed] == [True]
    assert [len(payload) for _, payload in kept(sim)] == [1000]


def test_a_full_address_that_blocks_stops_its_publisher() -> None:
    sim = SimWorld(configured({"match": "full", "max-size-bytes": 1000, "address-full-policy": "BLOCK"}))
    absent_reader(sim, "full")
    client = sim.connect("c")
    client.publish("full", b"x" * 1000, 1)
    client.publish("full", b"y", 0)
    assert not carrier(client).reading
    assert len(kept(sim)) == 1
    assert carrier(client).reading


@pytest.mark.parametrize("qos", [1, 2])
def test_a_full_address_that_blocks_acknowledges_when_there_is_room_and_answers_pings(qos: int) -> None:
    sim = SimWorld(configured({"match": "full", "max-size-bytes": 1000, "address-full-policy": "BLOCK"}))
    absent_reader(sim, "full", "other")
    client, answer = sim.connect("c", auto=False), P.PUBACK if qos == 1 else P.PUBREC
    first = client.publish("full", b"x" * 1000, qos)
    assert client.replies(answer) == [(first, 0)]
    waiting = [client.publish(topic, b"y", qos) for topic in ("full", "other", "nobody")]
    before = client.pings
    client.send(Pingreq())
    assert client.pings == before + 1
    assert carrier(client).reading
    assert [topic for topic, _ in kept(sim)] == ["full", "full", "other"]
    assert client.replies(answer) == list(zip(waiting, (0, 0, 0x10), strict=True))
    [later] = [client.publish("other", b"z", qos)]
    assert client.replies(answer) == [(later, 0)]


@interpreted
@pytest.mark.parametrize(("size", "most"), [(0, 20), (90_000, 12)])
def test_a_publisher_is_stopped_when_it_ignores_that_nothing_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    monkeypatch.setattr(Receiver, "held_messages_max", 20)
    sim = SimWorld(blocking("full"))
    absent_reader(sim, "full")
    client = sim.connect("c", auto=False)
    client.publish("full", b"x" * 1000, 1)
    client.replies(P.PUBACK)
    client.post("full", [b"y" * size] * (most - 1), 1)
    assert carrier(client).reading
    client.post("full", [b"y" * size] * 2, 1)
    assert not carrier(client).reading
    assert client.replies(P.PUBACK) == []
    assert len(kept(sim)) == 1 + most + 1
    assert carrier(client).reading
    assert len(client.replies(P.PUBACK)) == most + 1


def test_a_publisher_is_stopped_at_once_when_the_memory_for_messages_is_used_up() -> None:
    sim = SimWorld(blocking("full"))
    absent_reader(sim, "full")
    client = sim.connect("c")
    client.publish("full", b"x" * 1000, 1)
    sim.broker.engine.usage.bytes_max = 1
    client.publish("full", b"y", 1)
    assert not carrier(client).reading


def test_messages_unacknowledged_when_the_connection_ended_are_sent_again() -> None:
    """With QoS 1 it arrives twice, with QoS 2 once."""
    sim = SimWorld(blocking("full"))
    absent_reader(sim, "full")
    client = sim.connect("c", auto=False, clean=False, expiry=100)
    client.publish("full", b"x" * 1000, 1)
    once, twice = client.publish("full", b"once", 2), client.publish("full", b"twice", 1)
    client.drop()
    client = sim.connect("c", auto=False, clean=False, expiry=100)
    client.publish("full", b"once", 2, dup=True, packet_id=once)
    client.publish("full", b"twice", 1, dup=True, packet_id=twice)
    assert sorted(payload[:5] for _, payload in kept(sim)) == [b"once", b"twice", b"twice", b"xxxxx"]
    assert sorted(client.replies(P.PUBREC) + client.replies(P.PUBACK)) == sorted([(once, 0), (twice, 0)])


def blocking(*names: str) -> Config:
    """Addresses that stop their publishers at 1,000 bytes."""
    return configured(*({"match": n, "max-size-bytes": 1000, "address-full-policy": "BLOCK"} for n in names))


def test_authenticating_again_behind_a_publish_does_not_defeat_a_full_address() -> None:
    """Nor does anything else that a client can send: in one read with the PUBLISH, or later."""
    sim = SimWorld(blocking("full"), users=USERS)
    client = sim.stranger()
    authenticate(client, 0x18, "right")
    reader = sim.subscriber("r", "full", qos=1, auto=False, user_name="alice", password=b"right")
    client.publish("full", b"x" * 1000, 1)
    client.publish("full", b"y", 0)
    assert not carrier(client).reading
    for _ in range(3):
        authenticate(client, 0x19, "right")
        client.others.clear()
        assert not carrier(client).reading
    client.subscribe("full", qos=1)
    client.unsubscribe("full")
    client.send(Pingreq())
    client.publish("elsewhere", b"x", 1)
    assert not carrier(client).reading
    [message, _] = reader.take()
    reader.ack(P.PUBACK, message.packet_id)
    assert carrier(client).reading


def test_a_publisher_waits_for_all_the_addresses_that_are_full() -> None:
    """One of them it could empty itself."""
    sim = SimWorld(blocking("full", "own"))
    absent_reader(sim, "full")
    client, helper = sim.connect("c"), sim.connect("h", auto=False)
    helper.subscribe("own", qos=1)
    client.publish("full", b"x" * 1000, 1)
    client.publish("own", b"x" * 1000, 1)
    client.publish("full", b"y", 0)
    [message] = helper.take()
    helper.ack(P.PUBACK, message.packet_id)
    assert not carrier(client).reading
    assert len(kept(sim)) == 1
    assert carrier(client).reading


def test_a_stopped_publisher_that_leaves_is_forgotten() -> None:
    sim = SimWorld(blocking("full"))
    absent_reader(sim, "full")
    client = sim.connect("c")
    client.publish("full", b"x" * 1000, 1)
    address = sim.broker.engine.addresses["full"]
    assert len(address.blocked) == 1
    client.drop()
    assert not address.blocked


def test_nothing_is_read_before_a_connack_that_waits_for_the_disk(sim: SimWorld) -> None:
    sim.hold_disk()
    client = sim.attempt(greeting("c", properties=[(SESSION_EXPIRY_INTERVAL, 100)]))
    assert [client.connack] == [None]
    assert not carrier(client).reading
    sim.write()
    client.settle()
    assert client.connack is not None
    assert carrier(client).reading


def test_authenticating_again_while_a_large_message_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer may take a while, after failed logins, and the message have come in the same read."""
    sim = SimWorld(users=USERS)
    client = sim.stranger()
    authenticate(client, 0x18, "right")
    client.subscribe("a", qos=1)
    raw = publishes([("a", b"x" * 300_000)], 1, first=7)
    answers: list[Callable[[], None]] = []
    done = UserGate.scram_done

    def later(self: UserGate, *args: Any) -> None:
        answers.append(lambda: done(self, *args))
        wire = carrier(client)
        wire.session.receive_data(raw[:150_000])

    monkeypatch.setattr(UserGate, "scram_done", later)
    authenticate(client, 0x19, "right")
    wire = carrier(client)
    assert [wire.reading] == [False]
    with sim.broker.turn():
        answers[0]()
    assert [wire.reading] == [True]
    client.raw(raw[150_000:])
    assert client.replies(P.PUBACK) == [(7, 0)]
    assert client.payloads() == [b"x" * 300_000]


def test_a_client_sends_no_more_at_once_than_it_may() -> None:
    sim = SimWorld(with_mqtt(receive_maximum=2))
    client = sim.connect("c", auto=False)
    assert client.told(RECEIVE_MAXIMUM) == 2
    for _ in range(3):
        client.publish("a", b"x", 2)
    assert client.goodbye_code == 0x93
    assert sim.broker.reported("mqtt.error")[0]["reason"] == "0x93"


def test_keep_alive_can_be_left_to_clients() -> None:
    assert SimWorld(with_mqtt(server_keep_alive=0)).connect("c").told(SERVER_KEEP_ALIVE) is None
    assert SimWorld(with_mqtt(server_keep_alive=90_000)).connect("c").told(SERVER_KEEP_ALIVE) == 90


# -- retained messages -------------------------------------------------------------------------------------------------


def test_retained_messages_are_bounded() -> None:
    shipped = configured()
    sim = SimWorld(configured(limits=shipped.limits.model_copy(update={"retained_messages_max": 2})))
    client, watcher = sim.connect("c", auto=False), sim.connect("w")
    watcher.subscribe("#", qos=1)
    for topic in "ab":
        client.publish(topic, b"x", 1, retain=True)
    client.answers.clear()
    refused = client.publish("c", b"x", 1, retain=True)
    assert client.replies(P.PUBACK) == [(refused, 0x97)]
    client.publish("c", b"at once", 0, retain=True)
    client.publish("a", b"another", 1, retain=True)
    assert watcher.payloads() == [b"x", b"x", b"at once", b"another"]
    late = sim.subscriber("late", "#", qos=1)
    assert sorted((m.topic, m.payload) for m in late.take()) == [("a", b"another"), ("b", b"x")]
    client.publish("a", b"", 1, retain=True)
    client.publish("c", b"x", 1, retain=True)
    assert client.replies(P.PUBACK)[-1][1] == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_will_that_finds_no_room_is_published_all_the_same(qos: int) -> None:
    """[MQTT-3.1.2-8]"""
    shipped = configured()
    sim = SimWorld(configured(limits=shipped.limits.model_copy(update={"retained_messages_max": 1})))
    watcher = sim.subscriber("w", "#", qos=1)
    sim.connect("p").publish("a", b"x", 1, retain=True)
    sim.connect("c", will=Will("gone", b"c", qos, retain=True)).drop()
    assert watcher.payloads() == [b"x", b"c"]
    assert sim.subscriber("late", "#", qos=1).payloads() == [b"x"]


def test_retained_messages_go_through_the_queue_like_others(sim: SimWorld) -> None:
    """An absent client gets what was retained when it subscribed, and its own not with No Local."""
    client = sim.connect("c", expiry=100, auto=False)
    client.publish("a/mine", b"mine", 1, retain=True)
    sim.connect("other").publish("a/other", b"other", 2, retain=True, properties=[(USER_PROPERTY, ("k", "v"))])
    client.subscribe(wish("a/#", 1, no_local=True))
    [first] = client.take()
    assert (first.payload, first.retain, first.qos) == (b"other", True, 1)
    assert first.properties.get_all(USER_PROPERTY) == [("k", "v")]
    sim.restart()
    [again] = sim.connect("c", clean=False, expiry=100).take()
    assert (again.payload, again.retain, again.dup, again.packet_id) == (b"other", True, True, first.packet_id)


# -- other protocols ---------------------------------------------------------------------------------------------------


def test_from_mqtt_to_stomp(sim: SimWorld) -> None:
    stomp = sim.broker.subscriber("/topic/a.b", ack="auto")
    sim.connect("c").publish(
        "a/b",
        "höhe".encode(),
        1,
        properties=[
            (PAYLOAD_FORMAT_INDICATOR, 1),
            (CONTENT_TYPE, "text/plain"),
            (RESPONSE_TOPIC, "re/ply"),
            (CORRELATION_DATA, b"\xff\x01"),
            (USER_PROPERTY, ("k", "1")),
            (USER_PROPERTY, ("k", "2")),
        ],
    )
    [frame] = stomp.messages()
    assert frame.body == "höhe".encode()
    expected = {
        "content-type": "text/plain",
        "reply-to": "/topic/re.ply",
        "correlation-id": "ID:AMQP_BINARY:FF01",
        "k": "2",
    }
    assert expected.items() <= frame.headers.items()
    assert frame.headers["content-length"] == str(len(frame.body))


def test_from_stomp_to_mqtt(sim: SimWorld) -> None:
    client, old = sim.connect("c"), sim.connect("old", version=V311)
    for each in (client, old):
        each.subscribe("a/+", qos=2)
    stomp = sim.broker.connect()
    headers = {
        "content-type": "text/plain",
        "reply-to": "/topic/re.ply",
        "correlation-id": "7",
        "kind": "x",
        "type": "T",
    }
    stomp.do("SEND", {"destination": "/topic/a.b", "persistent": "true", **headers}, b"hello")
    stomp.send("/topic/a.b", b"not durable")
    first, second = client.take()
    assert (first.topic, first.payload, first.qos, second.qos) == ("a/b", b"hello", 2, 0)
    assert (first.get(CONTENT_TYPE), first.get(RESPONSE_TOPIC), first.get(CORRELATION_DATA)) == (
        "text/plain",
        "re/ply",
        b"7",
    )
    assert first.get(PAYLOAD_FORMAT_INDICATOR) == 1
    assert dict(first.properties.get_all(USER_PROPERTY)) == {"kind": "x", "JMSType": "T"}
    assert [(m.payload, m.qos) for m in old.take()] == [(b"hello", 2), (b"not durable", 0)]


@pytest.mark.parametrize("indicated", [True, False])
def test_from_mqtt_to_amqp(sim: SimWorld, indicated: bool) -> None:
    amqp = AmqpSim(sim.broker)
    amqp.receiver("a.b", "topic")
    indicator = [(PAYLOAD_FORMAT_INDICATOR, 1)] if indicated else []
    sim.connect("c").publish(
        "a/b", b"hello", 1, properties=[*indicator, (USER_PROPERTY, ("k", "v")), (RESPONSE_TOPIC, "r/1")]
    )
    [delivery] = amqp.take()
    encoded = delivery.message
    assert encoded.body() == ((AMQP_VALUE, ["hello"]) if indicated else (DATA, [b"hello"]))
    assert (encoded.header.durable, encoded.properties.reply_to, encoded.properties.to) == (True, "topic://r.1", "a.b")
    assert encoded.application_properties == {"k": "v"}


def test_from_amqp_to_mqtt(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a/b", qos=2)
    amqp = AmqpSim(sim.broker)
    link = amqp.sender("a.b", "topic")
    properties = AmqpProperties(correlation_id="id", reply_to="r.1", content_type="x/y")
    amqp.send(link, message("text", properties=properties, application={"n": 5, "yes": True}))
    amqp.send(link, message({"k": [1, None]}, header=Header(False)))
    first, second = client.take()
    assert (first.payload, first.qos, first.get(RESPONSE_TOPIC), first.get(CORRELATION_DATA)) == (
        b"text",
        2,
        "r/1",
        b"id",
    )
    assert dict(first.properties.get_all(USER_PROPERTY)) == {"n": "5", "yes": "true"}
    assert (second.payload, second.qos, second.get(CONTENT_TYPE)) == (b'{"k":[1,null]}', 0, "application/json")


def test_a_selector_on_a_message_of_mqtt(sim: SimWorld) -> None:
    stomp = sim.broker.connect()
    stomp.subscribe("/topic/a", ack="auto", selector="k = 'v' AND \"mqtt.qos.level\" = 1 AND _AMQ_CONTENT_TYPE = 'x'")
    client = sim.connect("c")
    for qos in (0, 1):
        client.publish("a", b"%d" % qos, qos, properties=[(USER_PROPERTY, ("k", "v")), (CONTENT_TYPE, "x")])
    client.publish("a", b"2", 1)
    assert stomp.bodies() == [b"1"]


def test_the_user_is_noted_and_the_origin_is_the_client() -> None:
    sim = SimWorld(users={"alice": "right"})
    sim.subscriber("c", "a", qos=1, expiry=100, user_name="alice", password=b"right").drop()
    sim.connect("d", user_name="alice", password=b"right").publish("a", b"x", 1)
    [found] = queues(sim)["c.a"].backlog
    assert isinstance(found, Message)
    assert (found.header.user, found.header.origin, found.header.address) == ("alice", "d", "a")


# -- other carriers ----------------------------------------------------------------------------------------------------


CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01w"
CONNACK = b"\x20\x02\x00\x00"


def test_on_a_port_that_is_shared_the_first_byte_tells() -> None:
    shipped = configured()
    stomp = shipped.acceptors["stomp"].model_copy(update={"also": "mqtt, amqp"})
    wire = RawPeer(SimBroker(configured(acceptors={**shipped.acceptors, "stomp": stomp})), "stomp")
    wire.raw(CONNECT[:1])
    wire.raw(CONNECT[1:])
    assert wire.got == CONNACK


def test_over_websocket() -> None:
    browser = Browser(SimBroker(with_mqtt(websocket=True)), "mqtt", "mqtt")
    assert browser.ws.subprotocol == "mqtt"
    assert browser.say(CONNECT[:5], text=False) == []
    [frame] = browser.say(CONNECT[5:], text=False)
    assert frame.data == CONNACK


@pytest.mark.parametrize(("budget", "together"), [(10_000, 1_000), (2_000, 500), (1, 256)])
def test_a_long_run_is_published_as_far_as_the_budget_of_the_tick_goes(budget: int, together: int) -> None:
    sim = SimWorld()
    sim.connect("producer")
    session = sim.broker.accepting.mqtt_sessions.get("producer")
    assert session is not None
    syntax, access = sim.broker.accepting.mqtt_sessions.syntax, session.client.access
    publisher = Publisher(sim.broker.engine, syntax, NeverBlocked(), access)
    run = Publish(0x32, NO_PROPERTIES, "t", 1, b"")
    run.topics, run.payloads, run.packet_ids = ["t"] * 1_000, [b""] * 1_000, [*range(1, 1_001)]
    steps = sim.broker.engine._state.steps
    steps.budget = budget
    steps.refill()

    assert publisher.fitting(run) == together
