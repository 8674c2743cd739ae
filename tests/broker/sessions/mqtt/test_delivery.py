"""What a session sends, how much at once, and what becomes of what cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config.addresses import AddressSection
from broker.config.addresses import Queue as QueueSection
from broker.sessions.mqtt.inflight import InFlight
from broker.sessions.mqtt.session import MqttSession
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead, PublishHeads, encode
from protocols.mqtt.limits import Limits
from protocols.mqtt.packets import Suback, Subscribe, Unsubscribe
from protocols.mqtt.properties import (
    MESSAGE_EXPIRY_INTERVAL,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    USER_PROPERTY,
    Property,
)
from store.record import RemovalReason
from tests.broker.sessions.mqtt.harness import carrier, dead_letters, dead_letters_or_none, queues, with_mqtt
from tests.simulation.world import counts
from tests.support.interpreted import interpreted
from tests.support.mqtt_client import MqttClient, greeting, publishes, topic_filter, wish
from tests.support.mqtt_world import FOR_EVER, SimCarrier, SimWorld
from tests.support.sim_broker import configured

P = PacketType


def small(sim: SimWorld, *properties: tuple[Property[Any], Any], clean: bool = True) -> MqttClient:
    """A client `c` that takes packets of 256 bytes."""
    client = MqttClient(limits=Limits(packet_bytes_max=256))
    client.over(SimCarrier(sim.broker))
    return client.connect(greeting("c", clean=clean, properties=properties))


# -- flow control ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("filters", [("a/#",), ("a/0", "a/1", "a/2")])
def test_no_more_is_sent_than_a_client_takes_at_once(sim: SimWorld, qos: int, filters: tuple[str, ...]) -> None:
    client = sim.subscriber("c", *filters, qos=qos, auto=False, properties=[(RECEIVE_MAXIMUM, 3)])
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
    client = sim.subscriber("c", "a", qos=1, version=V311, auto=False)
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


def test_after_a_reconnect_the_quota_counts_for_what_is_sent_again(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=1, expiry=100, auto=False)
    sim.connect("other").post("a", [b"%d" % number for number in range(6)], 1)
    assert len(client.take()) == 6
    again = sim.connect("c", clean=False, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    got = []
    while messages := again.take():
        assert len(messages) <= 2
        got += [(message.payload, message.dup) for message in messages]
        again.ack(P.PUBACK, *[message.packet_id for message in messages])
    assert got == [(b"%d" % number, True) for number in range(6)]


def test_messages_that_expire_while_they_wait_for_the_quota_are_not_sent(sim: SimWorld) -> None:
    """[MQTT-3.3.2-5]."""
    client = sim.subscriber("c", "a", "b", qos=1, auto=False, properties=[(RECEIVE_MAXIMUM, 1)])
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


def test_a_client_that_does_not_read_is_not_sent_more(sim: SimWorld) -> None:
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


STRICT: list[dict[str, object]] = [
    {"match": match, "delivery-count-persistence": "strict"} for match in ("a.#", "b.#", "a", "b")
]


def post(client: MqttClient, topic: str, *payloads: bytes) -> None:
    """PUBLISH of QoS 1, to be sent with what follows."""
    head = PublishHead(client.codec.version, topic, qos=1)
    client.codec.send_publish(head, payloads, [client.number() for _ in payloads])


def strict(most: int) -> SimWorld:
    """A broker that writes each delivery down before it leaves, of which a client of 3.1.1 takes so many at once."""
    return SimWorld(with_mqtt(*STRICT, default_maximum_in_flight_publish_messages=most))


def test_a_run_of_several_topics_for_which_there_is_no_quota_left_waits() -> None:
    """Both subscriptions had been handed messages while the quota was still whole."""
    sim = strict(2)
    client = sim.subscriber("c", "a/#", "b/#", qos=1, version=V311, clean=False, auto=False)
    other = sim.connect("other")
    for number, topic in enumerate(("a/1", "a/2", "b/1", "b/2")):
        post(other, topic, b"%d" % number)
    other.settle()
    got = []
    while messages := client.take():
        got += [message.payload for message in messages]
        client.ack(P.PUBACK, *[message.packet_id for message in messages])
    assert got == [b"0", b"1", b"2", b"3"]


@interpreted
@pytest.mark.parametrize("topics", ["aabab", "abbaa", "aaaab", "abcde"])
def test_messages_of_several_topics_are_one_run(topics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever come first: one by one, each would cost what a run does."""
    sim, runs = SimWorld(), list[int]()
    client, other = sim.subscriber("c", "#", version=V311), sim.connect("other")
    send = MqttConnection.send_publish

    def counted(codec: MqttConnection, head: PublishHead | PublishHeads, payloads: list[bytes]) -> list[int]:
        runs.append(len(payloads))
        return send(codec, head, payloads)

    for number, topic in enumerate(topics):
        other.codec.send_publish(PublishHead(other.codec.version, topic, qos=0), [b"%d" % number])
    monkeypatch.setattr(MqttConnection, "send_publish", counted)
    other.settle()
    assert [message.topic for message in client.take()] == list(topics)
    assert runs == [len(topics)]


def test_runs_that_wait_for_the_quota_keep_their_order() -> None:
    """[MQTT-4.6.0-6].  Another subscription has used it up; two runs of one topic wait, of which it takes a part."""
    sim = strict(4)
    client = sim.subscriber("c", "b", "a", qos=1, version=V311, clean=False, auto=False)
    other = sim.connect("other")
    sim.hold_disk()
    post(other, "b", *[b"-"] * 4)
    post(other, "a", b"0", b"1", b"2")
    other.settle()
    post(other, "a", b"3", b"4")
    other.settle()
    sim.broker.release_disk()
    got = []
    while messages := client.take():
        got += [message.payload for message in messages if message.topic == "a"]
        for message in messages:
            client.ack(P.PUBACK, message.packet_id)
    assert got == [b"%d" % number for number in range(5)]


# -- what cannot be sent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_too_large_for_a_client_is_a_dead_letter(sim: SimWorld, qos: int) -> None:
    client = small(sim)
    client.subscribe("a", qos=qos)
    other = sim.connect("other")
    other.post("a", [b"small", b"x" * 256, b"small too"], qos)
    assert client.payloads() == [b"small", b"small too"]
    [letter] = dead_letters(sim).backlog
    assert letter.body == b"x" * 256
    assert letter.header.annotations is not None
    assert letter.header.annotations["_AMQ_DL_REASON"] == "too-large"


@pytest.mark.parametrize("away", [False, True], ids=["connected", "away"])
def test_a_message_too_large_for_the_acceptor_is_a_dead_letter(away: bool) -> None:
    """Its maximum-packet-size is the limit in both directions, for payloads in memory too."""
    sim = SimWorld(with_mqtt(maximum_packet_size=4096, mqtt_min_large_message_size=-1))
    client = sim.subscriber("c", "#", qos=1, clean=False, expiry=100)
    if away:
        client.drop()
    stomp = sim.broker.connect()
    for topic in ("a", "b"):
        for nbytes in (10, 4096, 3000):
            stomp.send(f"/topic/{topic}", b"x" * nbytes, persistent="true")
    if away:
        client = sim.connect("c", clean=False, expiry=100)
    assert [len(message.payload) for message in client.take()] == [10, 3000] * 2
    letters = list(dead_letters(sim).backlog)
    assert [len(letter.body) for letter in letters] == [4096] * 2
    assert {str((letter.header.annotations or {})["_AMQ_DL_REASON"]) for letter in letters} == {"too-large"}


def test_a_message_too_large_for_an_acceptor_that_takes_less_now_is_a_dead_letter() -> None:
    """Messages of several topics that go out in one run."""
    sim = SimWorld(with_mqtt())
    sim.subscriber("c", "#", qos=1, clean=False, expiry=100).drop()
    other = sim.connect("other")
    for topic in ("a", "b"):
        other.post(topic, [b"x" * 10, b"x" * 4096, b"x" * 3000], 1)
    sim.broker.config = with_mqtt(maximum_packet_size=4096)
    sim.restart()
    client = sim.connect("c", clean=False, expiry=100)
    assert [len(message.payload) for message in client.take()] == [10, 3000] * 2
    assert [len(letter.body) for letter in dead_letters(sim).backlog] == [4096] * 2


@pytest.mark.parametrize("left", [False, True])
def test_a_message_in_flight_expires_only_if_it_has_never_left(left: bool) -> None:
    """A delivery that has begun is completed [MQTT-4.4.0-1], another one is not begun [MQTT-3.3.2-5]."""
    sim = SimWorld()
    client = sim.subscriber("c", "a", qos=1, clean=False, expiry=100, auto=False)
    other = sim.connect("other")
    if not left:
        sim.broker.hold_disk()  # which the delivery waits for
    other.publish("a", b"short", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 5)])
    assert len(queues(sim)["c.a"].consumers[0].unacked) == 1
    client.drop()
    sim.broker.release_disk()
    sim.advance(6)
    again = sim.connect("c", clean=False, expiry=100, auto=False)
    found = [(message.payload, message.dup, message.get(MESSAGE_EXPIRY_INTERVAL)) for message in again.take()]
    assert found == ([(b"short", True, 0)] if left else [])


def test_credit_comes_back_for_what_could_not_be_sent(sim: SimWorld) -> None:
    client = small(sim, (RECEIVE_MAXIMUM, 2))
    client.subscribe("a", qos=1)
    sim.connect("other").post("a", [b"x" * 256] * 5 + [b"small"], 1)
    assert client.payloads() == [b"small"]
    assert dead_letters(sim).message_count == 5


def test_a_client_that_comes_back_and_takes_less(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False)
    sim.connect("other").post("a", [b"x" * 256, b"small"], 2)
    assert len(client.take()) == 2
    again = small(sim, (SESSION_EXPIRY_INTERVAL, 100), clean=False)
    assert again.payloads() == [b"small"]
    assert dead_letters(sim).message_count == 1
    assert not queues(sim)["c.a"].message_count


REFUSALS = pytest.mark.parametrize(("qos", "packet"), [(1, P.PUBACK), (2, P.PUBREC)])


@REFUSALS
def test_a_message_that_a_client_refuses_is_a_dead_letter_at_once(sim: SimWorld, qos: int, packet: PacketType) -> None:
    """[MQTT-4.4.0-2]: refused counts as acknowledged, and is not sent again."""
    client = sim.subscriber("c", "a", qos=qos, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 1)])
    sim.connect("other").post("a", [b"x", b"y"], qos)
    [message] = client.take()
    client.ack(packet, message.packet_id, reason=0x83, properties=[(REASON_STRING, "cannot read it")])
    assert client.answers == [], "no PUBREL for a PUBREC of failure"
    [following] = client.take()
    assert (following.payload, following.dup) == (b"y", False), "the quota is free again"
    client.ack(packet, following.packet_id, reason=0x80)
    first, second = [letter.header.annotations or {} for letter in dead_letters(sim).backlog]
    assert (first["_AMQ_DL_REASON"], first["_AMQ_DL_ATTEMPTS"]) == ("rejected", 1)
    assert str(first["_AMQ_DL_TEXT"]).endswith(": 0x83 implementation specific error: cannot read it")
    assert str(second["_AMQ_DL_TEXT"]).endswith(": 0x80 unspecified error")
    sim.advance(60)
    sim.restart()
    assert sim.connect("c", clean=False, expiry=100).take() == []


@REFUSALS
def test_a_refused_message_without_a_dead_letter_address_is_gone(qos: int, packet: PacketType) -> None:
    sim = SimWorld(configured({"match": "a", "dead-letter-address": ""}))
    client = sim.subscriber("c", "a", qos=qos, expiry=100, auto=False)
    sim.connect("other").publish("a", b"x", qos)
    [message] = client.take()
    client.ack(packet, message.packet_id, reason=0x80)
    assert client.take() == []
    queue = queues(sim)["c.a"]
    assert (queue.message_count, queue.left[RemovalReason.KILLED]) == (0, 1)


@REFUSALS
@pytest.mark.parametrize("anycast", [True, False])
def test_a_refused_dead_letter_stays_and_is_not_sent_to_its_client_again(
    qos: int, packet: PacketType, anycast: bool
) -> None:
    """[MQTT-4.4.0-2], where the message is on its own dead-letter address: there is nowhere else for it to go."""
    sim = SimWorld(configured({"match": "dead", "dead-letter-address": "dead", "redelivery-delay": 0}))
    if anycast:
        sim.broker.connect().confirmed("/queue/dead", b"first")
        stomp = sim.broker.subscriber("/queue/dead", ack="auto")
        assert stomp.bodies() == [b"first"]
        stomp.drop()
    client = sim.subscriber("c", "dead", qos=qos, expiry=100, auto=False)
    publisher = sim.connect("other")
    publisher.publish("dead", b"x", qos)
    [message] = client.take()
    client.ack(packet, message.packet_id, reason=0x80)
    sim.advance(60)
    assert client.take() == []
    assert queues(sim)["dead" if anycast else "c.dead"].message_count == 1
    publisher.publish("dead", b"y", qos)
    assert client.payloads() == [b"y"], "others go on"


def test_packet_identifiers_that_a_client_does_not_know(sim: SimWorld) -> None:
    """PUBREL and PUBCOMP with 0x92: the exchange is over, the identifier free, and nothing is sent again (3.6.2.1)."""
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False)
    other = sim.connect("other", auto=False)
    other.publish("a", b"x", 2)
    [message] = client.take()
    client.ack(P.PUBREC, message.packet_id)
    client.ack(P.PUBCOMP, message.packet_id, reason=0x92)
    sim.advance(60)
    assert (client.take(), queues(sim)["c.a"].message_count, dead_letters_or_none(sim)) == ([], 0, 0)
    [received] = other.answers
    other.ack(P.PUBREL, received.packet_ids[0], reason=0x92)
    assert [(ack.type, ack.reason_code) for ack in other.answers[1:]] == [(P.PUBCOMP, 0)]
    client.drop()
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
    assert (told["mine"], told["_AMQ_ORIG_ADDRESS"], told["_AMQ_DL_REASON"]) == ("1", "a", "rejected")


def test_an_address_without_a_topic(sim: SimWorld) -> None:
    client = sim.subscriber("c", "#", qos=1)
    stomp = sim.broker.connect()
    stomp.confirmed("/topic/a+b", b"x")
    assert client.take() == []
    assert client.subscribe("still/here") == [0]
    assert dead_letters(sim).message_count == 1


# -- shared subscriptions, and the queues of others --------------------------------------------------------------------


def test_messages_in_flight_to_an_absent_member_go_to_others(sim: SimWorld) -> None:
    """QoS 1; what is in flight with QoS 2 stays (test_mqtt_normative_messages)."""
    member = sim.subscriber("a", "$share/g/t", qos=1, expiry=100, auto=False)
    sim.connect("publisher").post("t", [b"1", b"2"], 1)
    assert member.payloads() == [b"1", b"2"]
    other = sim.subscriber("b", "$share/g/t", qos=1)
    assert other.take() == []
    member.drop()
    assert other.payloads() == [b"1", b"2"]
    again = sim.connect("a", clean=False, expiry=100)
    assert again.take() == []
    assert not queues(sim)["$share.g.t"].message_count


@pytest.mark.parametrize("crash", [False, True])
def test_messages_in_flight_to_a_member_go_to_others_after_a_restart(sim: SimWorld, crash: bool) -> None:
    """The member may never come back."""
    member = sim.subscriber("a", "$share/g/t", qos=2, expiry=FOR_EVER, auto=False)
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


@pytest.mark.parametrize("crash", [False, True])
def test_messages_that_had_left_for_a_member_are_redelivered(sim: SimWorld, crash: bool) -> None:
    """To a consumer of another protocol; MQTT's DUP is for what is sent again under its packet identifier."""
    member = sim.subscriber("a", "$share/g/t", qos=1, expiry=FOR_EVER, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    sim.connect("publisher").post("t", [b"1", b"2", b"3", b"4"], 1)
    assert member.payloads() == [b"1", b"2"]
    if crash:
        sim.restart()
    else:
        member.drop()
    for _ in range(2):
        stomp = sim.broker.subscriber("t::$share.g.t")
        assert [(m.body, m.headers["redelivered"]) for m in stomp.messages()] == [
            (b"1", "true"),
            (b"2", "true"),
            (b"3", "false"),
            (b"4", "false"),
        ]
        stomp.do("UNSUBSCRIBE", {"id": "s"})
        sim.restart()
    failed = [0, 0, 0, 0] if crash else [1, 0, 0, 0]  # the oldest may be why the connection was lost
    assert list(counts(sim.broker, "$share.g.t").values()) == failed
    again = sim.subscriber("b", "$share/g/t", qos=1, auto=False)
    assert {m.dup for m in again.take()} == {False}


@pytest.mark.parametrize("end", ["unsubscribe", "drop"])
def test_messages_that_had_left_a_queue_of_others_are_redelivered(sim: SimWorld, end: str) -> None:
    stomp = sim.broker.connect()
    for body in (b"1", b"2"):
        stomp.confirmed("/queue/orders", body)
    client = sim.subscriber("c", "orders", qos=1, auto=False, properties=[(RECEIVE_MAXIMUM, 1)])
    assert client.payloads() == [b"1"]
    if end == "drop":
        client.drop()
    else:
        client.unsubscribe("orders")
    stomp.subscribe("/queue/orders")
    assert [(m.body, m.headers["redelivered"]) for m in stomp.messages()] == [(b"1", "true"), (b"2", "false")]


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_waited_for_the_journal_when_their_client_was_lost_have_not_left(sim: SimWorld, qos: int) -> None:
    """With QoS 2 too it is for others when the session ends: the client has never seen it."""
    member = sim.subscriber("a", "$share/g/t", qos=qos, expiry=10, auto=False)
    sim.subscriber("b", "$share/g/t", qos=qos, expiry=FOR_EVER).drop()
    publisher = sim.connect("publisher", auto=False)
    sim.broker.hold_disk()
    publisher.publish("t", b"1", qos)
    sim.broker.step()
    assert member.take() == [], "its packet identifier is not on disk yet"
    member.drop()
    sim.broker.catch_up()
    sim.advance(11)
    stomp = sim.broker.subscriber("t::$share.g.t")
    sim.broker.catch_up()
    assert [(m.body, m.headers["redelivered"]) for m in stomp.messages()] == [(b"1", "false")]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_waits_for_the_disk_once(sim: SimWorld, qos: int) -> None:
    """The journal entry that stores a message has its packet identifier too; neither leaves before it is on disk."""
    client = sim.subscriber("c", "t", qos=qos, expiry=FOR_EVER, auto=False)
    publisher = sim.connect("publisher", auto=False)
    sim.hold_disk()
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 1)
    assert (client.take(), publisher.replies(P.PUBACK)) == ([], [])
    sim.broker.step()
    sent = [(message.payload, message.packet_id) for message in client.take()]
    assert [payload for payload, _ in sent] == [b"1", b"2"]
    assert len(publisher.replies(P.PUBACK)) == 2
    sim.broker.files.crash(0.0)
    sim.restart()
    again = sim.connect("c", clean=False, expiry=FOR_EVER, auto=False)
    assert [(message.payload, message.packet_id, message.dup) for message in again.take()] == [
        (payload, packet_id, True) for payload, packet_id in sent
    ]


def test_non_durable_messages_go_to_no_other_consumer_of_the_queue(sim: SimWorld) -> None:
    """It was ready for a session that records what it is sent, which then went."""
    client = sim.connect("c", expiry=FOR_EVER, auto=False)
    stomp, other = sim.broker.connect(), sim.broker.connect()
    stomp.confirmed("/queue/orders", b"0")
    client.subscribe("orders", qos=1)
    assert client.payloads() == [b"0"]
    sim.hold_disk()
    stomp.send("/queue/orders", b"1", persistent="true")
    client.send(Unsubscribe(client.number(), [topic_filter("orders")]))
    other.subscribe("/queue/orders")
    assert b"1" not in other.bodies()
    sim.write()
    assert b"1" in other.bodies()


def test_a_subscription_of_qos_0_sees_nothing_that_is_not_durable(sim: SimWorld) -> None:
    """Its queue is durable because it was of QoS 1; what it sends is in no journal."""
    client = sim.subscriber("c", "t", qos=1, expiry=FOR_EVER)
    client.subscribe("t", qos=0)
    publisher = sim.connect("publisher", auto=False)
    sim.hold_disk()
    publisher.publish("t", b"1", 1)
    assert client.take() == []
    sim.write()
    assert [(message.payload, message.qos) for message in client.take()] == [(b"1", 0)]


def test_a_share_takes_qos_0_while_somebody_is_there(sim: SimWorld) -> None:
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


def test_messages_that_wait_for_the_quota_outlive_a_change_to_qos_0(sim: SimWorld) -> None:
    """It was of QoS 1 when the messages came to it [MQTT-3.8.4-3]."""
    client = sim.subscriber("c", "t", "u", qos=1, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    publisher = sim.connect("publisher")
    publisher.publish("t", b"t", 1)
    publisher.post("u", [b"1", b"2"], 1)
    client.subscribe("u", qos=0)
    client.drop()
    assert list(queues(sim)) == ["c.t", "c.u"]
    client = sim.connect("c", clean=False, expiry=100)
    assert client.payloads() == [b"t", b"1", b"2"]
    client.drop()
    assert list(queues(sim)) == ["c.t"]


def test_a_share_takes_no_qos_0_once_those_who_are_there_have_unsubscribed(sim: SimWorld) -> None:
    away, leaving = (sim.connect(name, expiry=100) for name in "ab")
    publisher = sim.connect("publisher")
    for member in (away, leaving):
        member.subscribe("$share/g/t", qos=1)
    away.drop()
    leaving.unsubscribe("$share/g/t")
    publisher.publish("t", b"lost")
    assert sim.connect("a", clean=False, expiry=100).payloads() == []


def test_a_client_that_has_unsubscribed_with_messages_in_flight_is_none_of_the_share(sim: SimWorld) -> None:
    leaving, away = sim.connect("a", auto=False), sim.connect("b", expiry=100)
    publisher = sim.connect("publisher")
    leaving.subscribe("$share/g/t", qos=1)
    publisher.publish("t", b"in flight", 1)
    away.subscribe("$share/g/t", qos=1)
    leaving.unsubscribe("$share/g/t")
    away.drop()
    publisher.publish("t", b"lost")
    assert sim.connect("b", clean=False, expiry=100).payloads() == []


@pytest.mark.parametrize("share", ["", "$share/g/"])
def test_unsubscribing_while_a_message_waits_for_the_journal(share: str) -> None:
    """In the strict mode its delivery is journalled first, and then there is no subscription."""
    sim = SimWorld(with_mqtt({"match": "a", "delivery-count-persistence": "strict"}))
    leaving = sim.subscriber("leaving", share + "a", qos=1, expiry=100)
    if share:
        other = sim.subscriber("other", share + "a", qos=1, expiry=100)
    publisher = sim.connect("publisher")
    sim.hold_disk()
    carrier(publisher).raw(publishes([("a", b"1"), ("a", b"2")], 1))
    carrier(leaving).raw(encode(Unsubscribe(7, [topic_filter(share + "a")]), V5))
    sim.write()
    assert leaving.payloads() == []
    sim.write()
    if share:
        assert sorted(other.payloads()) == [b"1", b"2"]
        assert len(queues(sim)["$share.g.a"].consumers) == 1
    else:
        assert queues(sim) == {}


def test_leaving_a_share_with_messages_in_flight(sim: SimWorld) -> None:
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
def test_leaving_a_share_and_the_broker_with_messages_in_flight(sim: SimWorld, leave: str, restart: bool) -> None:
    """What is in flight with QoS 1 is the others', what is with QoS 2 is not [MQTT-4.8.2-5]."""
    first = sim.subscriber("a", "$share/g/t", qos=2, expiry=100, auto=False)
    publisher = sim.connect("publisher")
    publisher.publish("t", b"1", 1)
    publisher.publish("t", b"2", 2)
    [_, twice] = first.take()
    second = sim.subscriber("b", "$share/g/t", qos=2, clean=False, expiry=100)
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


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("back", [True, False])
def test_the_last_one_leaves_a_share_with_messages_in_flight(sim: SimWorld, restart: bool, back: bool) -> None:
    """What is in flight with QoS 2 is completed; the queue takes no more, unless somebody comes to it."""
    client = sim.subscriber("c", "$share/g/t", qos=2, expiry=100, auto=False)
    other = sim.subscriber("other", "$share/g/t", qos=1, expiry=100)
    assert other.unsubscribe("$share/g/t") == [0]
    other.publish("t", b"1", 2)
    assert client.unsubscribe("$share/g/t") == [0]
    other.publish("t", b"too late", 1)
    assert queues(sim)["$share.g.t"].message_count == 1
    if back:
        other.subscribe("$share/g/t", qos=1)
    if restart:
        sim.restart()
        other = sim.connect("other", clean=False, expiry=100)
        client = sim.connect("c", clean=False, expiry=100)
    else:
        client = sim.connect("c", clean=False, expiry=100)
    assert [(m.payload, m.qos, m.packet_id, m.dup) for m in client.take()] == [(b"1", 2, 1, True)]
    other.publish("t", b"2", 1)
    assert other.payloads() == ([b"2"] if back else [])
    assert ("$share.g.t" in queues(sim)) == back


def test_a_share_goes_with_its_last_session_also_over_a_restart(sim: SimWorld) -> None:
    sim.connect("a", expiry=10).subscribe("$share/g/t", qos=1)
    sim.connect("b").subscribe("$share/h/t", qos=1)
    assert set(queues(sim)) == {"$share.g.t", "$share.h.t"}
    sim.restart()
    assert set(queues(sim)) == {"$share.g.t"}
    sim.advance(11)
    assert queues(sim) == {}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_anycast_address_is_read_as_the_queue_that_it_is(sim: SimWorld, qos: int) -> None:
    stomp = sim.broker.connect()
    stomp.confirmed("/queue/orders", b"1")
    client = sim.subscriber("c", "orders", qos=qos, expiry=100, auto=False)
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


ANYCAST, MULTICAST = (QueueSection.model_validate({"routing-type": each}) for each in ("ANYCAST", "MULTICAST"))

SHARDED = {"address.foo": AddressSection(queues={"q1": ANYCAST, "q2": ANYCAST, "m1": MULTICAST})}


def sharded() -> SimWorld:
    """An address with several queues of both kinds."""
    return SimWorld(configured(addresses=SHARDED))


@pytest.mark.parametrize(
    "filter", ["address.foo::q1", "address/foo::q1", "address/foo::m1", "$share/g/address.foo::q1"]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_queue_by_its_full_name(filter: str, qos: int) -> None:
    """As the manual's 4.7 has it, its address written as others do or as a topic."""
    sim = sharded()
    client = sim.connect("c", expiry=100)
    assert client.subscribe(filter, qos=qos) == [qos]
    queue = queues(sim)[filter.rpartition(":")[2]]
    assert len(queue.consumers) == 1
    publisher = sim.connect("p")
    for _ in range(4):
        publisher.publish("address/foo", b"x", 2)
    arrived = client.take()
    assert [message.topic for message in arrived] == ["address/foo"] * 4, "q2 has nobody who consumes"
    client.drop()
    assert not queue.consumers
    stomp = sim.broker.connect()
    stomp.send(f"address.foo::{queue.name}", b"not durable")
    again = sim.connect("c", clean=False, expiry=100)
    assert again.payloads() == [b"not durable"], "an absent client does not change the queue of others"
    sim.restart()
    again = sim.connect("c", clean=False, expiry=100)
    publisher = sim.connect("p")
    publisher.publish(f"address/foo::{queue.name}", b"only there", 1)
    assert again.payloads() == [b"only there"]
    again.unsubscribe(filter)
    assert queue.name in queues(sim), "it is not the subscription's"


def test_a_full_name_without_a_queue() -> None:
    """Where the address is no mere topic: made, if queues may be; else refused with the reason."""
    sim = sharded()
    client = sim.connect("c")
    assert client.subscribe("address.foo::new", "address.foo::new/er", qos=1) == [1, 1]
    assert [queues(sim)[name].address.name for name in ("new", "new.er")] == ["address.foo"] * 2
    sim = SimWorld(configured({"match": "address.foo", "auto-create-queues": False}, addresses=SHARDED))
    client, old = sim.connect("c"), sim.connect("o", version=V311)
    assert client.subscribe("address.foo::new", "address.foo::q1::q2", "address/foo", qos=1) == [0x8F, 0x8F, 1]
    assert old.subscribe("address.foo::new", qos=1) == [0x80]
    assert client.publish("address.foo::new", b"x", 1)
    assert client.replies(P.PUBACK)[-1][1] == 0x83


@pytest.mark.parametrize("declared", [True, False])
def test_the_queue_of_a_full_name_may_be_written_as_a_topic(declared: bool) -> None:
    """ActiveMQ Artemis takes it in no other way; a queue of just that name goes first."""
    jobs = {"jobs": AddressSection(queues={"jobs.eu": MULTICAST})}
    sim = SimWorld(configured(addresses=jobs if declared else {}))
    if not declared:
        sim.broker.subscriber("jobs::jobs.eu", **{"subscription-type": "MULTICAST"}).drop()
    client = sim.connect("c")
    client.publish("jobs::jobs/eu", b"1", 1)
    assert client.replies(P.PUBACK)[-1][1] == 0
    assert queues(sim)["jobs.eu"].message_count == 1
    assert client.subscribe("jobs::jobs/eu", qos=1) == [1]
    assert client.payloads() == [b"1"]
    sim.broker.connect().confirmed("jobs::jobs/eu", b"2")
    assert client.payloads() == []
    client.publish("jobs::jobs/eu", b"3", 1)
    assert queues(sim)["jobs/eu"].message_count == 2


def test_an_anycast_address_with_several_queues_names_them() -> None:
    section = AddressSection(queues={"q1": ANYCAST, "q2": ANYCAST})
    sim = SimWorld(configured(addresses={"foo": section}))
    client = sim.connect("c")
    client.codec.send(Subscribe(1, [wish("foo", 1)]))
    client.settle()
    [answer] = client.others
    assert isinstance(answer, Suback)
    assert list(answer.reason_codes) == [0x8F]
    assert "q1, q2" in str(answer.properties.get(REASON_STRING))


def test_the_only_queue_of_an_anycast_address_is_the_first_available() -> None:
    section = AddressSection(queues={"q1": ANYCAST})
    sim = SimWorld(configured(addresses={"foo": section}))
    client = sim.connect("c")
    assert client.subscribe("foo", qos=1) == [1]
    client.publish("foo", b"x", 1)
    assert client.payloads() == [b"x"]
    assert len(queues(sim)["q1"].consumers) == 1


def test_two_colons_in_a_topic_that_names_no_queue(sim: SimWorld) -> None:
    client = sim.connect("c")
    client.publish("fe80", b"x", 1)
    assert client.subscribe("fe80::1/temperature", "fe80::1/#", qos=1) == [1, 1]
    client.publish("fe80::1/temperature", b"21", 1)
    assert [(m.topic, m.payload) for m in client.take()] == [("fe80::1/temperature", b"21")] * 2


def test_messages_for_one_queue_cannot_be_retained_and_the_queue_of_others_gets_nothing_retained() -> None:
    sim = sharded()
    client = sim.connect("c", auto=False)
    client.publish("address.foo::q1", b"x", 1, retain=True)
    client.publish("address/foo", b"kept", 1, retain=True)
    assert [code for _, code in client.replies(P.PUBACK)] == [0x90, 0]
    count = queues(sim)["q1"].message_count
    client.subscribe("address.foo::q1", qos=1)
    assert queues(sim)["q1"].message_count == count


def test_messages_of_one_read_to_a_queue_and_its_address_keep_their_order() -> None:
    sim = sharded()
    client = sim.subscriber("c", "address.foo::m1", qos=1)
    other = sim.connect("o")
    topics = ["address/foo", "address.foo::m1"] * 3
    other.raw(publishes([(topic, b"%d" % number) for number, topic in enumerate(topics)], 1))
    assert client.payloads() == [b"%d" % number for number in range(6)]


def test_a_queue_that_an_operator_deletes(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=1, expiry=100)
    engine = sim.broker.engine
    engine.delete_queue(engine.queue("c.a"))
    sim.broker.parts.tick.enter()
    sim.broker.run()
    client.settle()
    assert client.closed
    assert client.goodbye_code == 0x98
    again = sim.connect("c", clean=False, expiry=100)
    sim.connect("other").publish("a", b"x", 1)
    assert again.payloads() == [b"x"]


def test_memory_of_a_session_is_given_back(sim: SimWorld) -> None:
    """Nothing of a client stays in the registry."""
    for version in (V311, V5):
        client = sim.connect("c", version=version)
        session = carrier(client).session
        assert isinstance(session, MqttSession)
        client.subscribe("a", "$share/g/b", qos=1)
        client.drop()
        sessions = session._common.sessions
        assert (len(sessions), sessions.engine.subscriptions.shares) == (0, {})
    assert queues(sim) == {}


def test_acknowledgements_before_one_that_does_not_fit_lose_nothing(sim: SimWorld) -> None:
    """In one read: PUBREC for a message of QoS 2, and for one of QoS 1, which is a violation."""
    again: dict[str, Any] = {"clean": False, "expiry": 100}
    client = sim.subscriber("c", "a", qos=2, auto=False, **again)
    client.subscribe("b", qos=1)
    producer = sim.connect("p")
    producer.publish("a", b"once", 2)
    producer.publish("b", b"at least once", 2)
    once, other = client.take()
    client.ack(P.PUBREC, once.packet_id, other.packet_id)
    client.settle()
    assert client.closed
    client = sim.connect("c", **again)
    assert sorted(one.payload for one in client.take()) == [b"at least once", b"once"]
    assert sum([queue.message_count for queue in sim.broker.engine.queues.values()]) == 0


@interpreted
def test_a_fault_while_pubrec_is_written_down_sends_nothing_twice(
    sim: SimWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session fails between the table of what is in flight and the engine; the client has the message."""
    again: dict[str, Any] = {"clean": False, "expiry": 100}
    client = sim.subscriber("c", "a", qos=2, auto=False, **again)
    sim.connect("p").publish("a", b"once", 2)
    (once,) = client.take()
    consume = InFlight._consume
    broken = [True]

    def fail(self: InFlight, settled: Any) -> None:
        if broken and settled:
            broken.clear()
            raise RuntimeError("a fault of ours")
        consume(self, settled)

    sim.broker.tolerant = True
    monkeypatch.setattr(InFlight, "_consume", fail)
    client.ack(P.PUBREC, once.packet_id)
    client.settle()
    assert client.closed
    client = sim.connect("c", **again)
    assert client.take() == []
    assert sum([queue.message_count for queue in sim.broker.engine.queues.values()]) == 0
