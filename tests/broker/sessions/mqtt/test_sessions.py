"""What outlives a connection: sessions over disconnects, takeovers, crashes; their queues, their limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.config import SecuritySetting
from broker.engine.client_sessions.client import DUE_COST
from broker.engine.client_sessions.stored_session import StoredSession
from broker.engine.delivery import dispatch
from broker.engine.delivery.consumers import REMOVE_COST
from broker.engine.model.permissions import Permission
from broker.engine.queues.steps import BUDGET, BUDGET_MIN
from broker.sessions.mqtt import receive, send
from broker.sessions.mqtt.endpoint import ACKS_TOGETHER
from broker.sessions.mqtt.subscribe import SUBSCRIBE_COST, UNSUBSCRIBE_COST
from broker.sessions.tick import ENDING_COST
from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.encode import PublishHead, encode
from protocols.mqtt.inflight import Outgoing
from protocols.mqtt.packets import Disconnect, Suback, Subscribe, Unsuback, Unsubscribe, Will
from protocols.mqtt.properties import (
    MAXIMUM_PACKET_SIZE,
    MESSAGE_EXPIRY_INTERVAL,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    USER_PROPERTY,
    WILL_DELAY_INTERVAL,
    Properties,
    Property,
)
from store.decode import Definition
from store.record import encode_json
from tests.broker.security.verbs import permissions, restrict
from tests.broker.sessions.mqtt.harness import carrier, queues, with_mqtt
from tests.simulation.world import journal_records
from tests.support.mqtt_client import MqttClient, Pairs, greeting, topic_filter, wish
from tests.support.mqtt_world import FOR_EVER, SimCarrier, SimWorld
from tests.support.sim_broker import configured, unswept
from tests.support.sim_browser import RawPeer

P = PacketType


# -- queues ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "filter", "name"),
    [
        ("c", "a/+/#", "c.a.*.#"),
        ("c.d", "a", r"c\.d.a"),
        ("c", "d.e", r"c.d\.e"),
        ("c::d", "a", r"c:\:d.a"),
        ("c\\", "a", r"c\\.a"),
        ("$share", "a", r"\$share.a"),
        ("c", "$share/g.h/a", r"$share.g\.h.a"),
        ("", "/", None),
    ],
)
def test_the_queue_of_a_subscription(sim: SimWorld, client: str, filter: str, name: str | None) -> None:
    sim.connect(client).subscribe(filter, qos=1)
    [found] = queues(sim)
    assert name is None or found == name
    assert found.endswith("..") or name is not None


def test_a_topic_may_be_as_long_as_an_address(sim: SimWorld) -> None:
    """With its client it is longer than a queue's name may be, also over a restart and in a shared subscription."""
    client_id, topic = "c" * 256, "t" * 1024
    filters = [topic, f"{topic[:-10]}/+", f"$share/g/{topic[:-9]}"]
    client = sim.connect(client_id, clean=False, expiry=100)
    assert client.subscribe(*filters, qos=1) == [1, 1, 1]
    assert len(queues(sim)) == 3
    sim.restart()
    assert len(queues(sim)) == 3
    other = sim.connect("other")
    other.publish(topic, b"x", 1)
    other.publish(f"{topic[:-10]}/x", b"y", 1)
    assert sim.connect(client_id, clean=False, expiry=100).payloads() == [b"x", b"y"]


def written(sim: SimWorld) -> int:
    """Bytes of all definitions that the journal ever had."""
    records = journal_records(sim.broker)
    return sum([len(encode_json(each.definition)) for each in records if isinstance(each, Definition)])


def stored(sim: SimWorld, client_id: str = "c") -> StoredSession:
    found = sim.broker.engine.sessions.get(client_id)
    assert found is not None
    return found


def test_a_subscription_costs_what_it_is(sim: SimWorld) -> None:
    """Whoever waits for each SUBACK writes as much as who does not: not all of the session each time."""
    client = sim.connect("c", clean=False, expiry=100)
    sizes = []
    for first in (0, 100):
        before = written(sim)
        for n in range(first, first + 100):
            client.subscribe(f"a/{n:03}", qos=1)
        sizes.append(written(sim) - before)
    assert sizes[0] < 100 * 600
    assert abs(sizes[1] - sizes[0]) < 100 * 20, "the second hundred costs what the first did"
    before = written(sim)
    client.subscribe("a/007", qos=2)
    client.unsubscribe("a/008")
    client.subscribe("a/009", qos=1)
    assert written(sim) - before < 1_000
    before = written(sim)
    client.drop()
    client = sim.connect("c", clean=False, expiry=100)
    assert written(sim) - before < 1_000, "nor does coming and going"
    assert len(stored(sim).parts) == len(queues(sim)) == 199
    sim.restart()
    assert stored(sim).parts["a/007"][1]["qos"] == 2
    assert len(queues(sim)) == 199
    sim.connect("c").disconnect()
    assert (queues(sim), sim.broker.engine.sessions.all()) == ({}, [])
    sim.restart()
    assert (queues(sim), sim.broker.engine.sessions.all()) == ({}, [])


def test_subscriptions_of_one_read_are_stored_together(sim: SimWorld) -> None:
    """What came and went in one read is never written."""
    client = sim.connect("c", clean=False, expiry=100)
    asked = [encode(Subscribe(number, [wish(f"a/{number}", 1)]), V5) for number in range(1, 51)]
    unasked = [encode(Unsubscribe(number, [topic_filter(f"a/{number}")]), V5) for number in range(1, 31)]
    client.raw(b"".join(asked + unasked))
    assert [type(answer) for answer in client.others] == [Suback] * 50 + [Unsuback] * 30
    parts = [each for each in journal_records(sim.broker) if isinstance(each, Definition) and "part" in each.definition]
    assert [each.definition["name"] for each in parts] == [f"a/{number}" for number in range(31, 51)]
    sim.restart()
    assert len(queues(sim)) == 20


def test_sessions_of_earlier_versions(sim: SimWorld) -> None:
    """They had all subscriptions in the definition of the session."""
    client = sim.subscriber("c", "a", qos=1, clean=False, expiry=100)
    client.subscribe("$share/g/b", qos=2, identifier=7)
    client.drop()
    session, sessions = stored(sim), sim.broker.engine.sessions
    with sim.broker.turn():
        before = [part for _, part in session.parts.values()]
        for key in list(session.parts):
            sessions.remove(session, key)
        sessions.change(session, {**session.definition, "subscriptions": before})
    for _ in range(2):
        sim.restart()
        assert [part for _, part in stored(sim).parts.values()] == before
        assert "subscriptions" not in stored(sim).definition
        sim.connect("other").publish("a", b"x", 1)
        assert sim.connect("c", clean=False, expiry=100).payloads() == [b"x"]


@pytest.mark.parametrize(
    ("expiry", "qos", "durable"), [(None, 1, False), (None, 0, False), (100, 0, False), (100, 1, True), (100, 2, True)]
)
def test_only_sessions_that_last_have_durable_queues(
    sim: SimWorld, expiry: int | None, qos: int, durable: bool
) -> None:
    client = sim.subscriber("c", "a", qos=qos, expiry=expiry)
    assert queues(sim)["c.a"].durable is durable
    client.drop()
    assert set(queues(sim)) == ({"c.a"} if durable else set())


def test_qos_0_is_not_kept_for_the_absent(sim: SimWorld) -> None:
    client, other = sim.connect("c", clean=False, expiry=100), sim.connect("other")
    client.subscribe("a", qos=1)
    client.subscribe("b", qos=0)
    client.drop()
    for topic in ("a", "b"):
        for qos in (0, 1, 2):
            other.publish(topic, b"%d" % qos, qos)
    again = sim.connect("c", clean=False, expiry=100)
    assert again.payloads() == [b"1", b"2"]
    other.publish("b", b"now", 2)
    assert again.payloads() == [b"now"], "the subscription of QoS 0 is there again"


@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 0), (1, 2), (2, 0)])
def test_another_qos_for_a_subscription_survives_with_the_session(sim: SimWorld, before: int, after: int) -> None:
    client = sim.subscriber("c", "a", qos=before, clean=False, expiry=100)
    client.subscribe("a", qos=after)
    client.drop()
    sim.restart()
    other = sim.connect("other")
    other.publish("a", b"away", 2)
    again = sim.connect("c", clean=False, expiry=100)
    assert again.payloads() == ([b"away"] if after else [])
    other.publish("a", b"here", 2)
    assert [message.qos for message in again.take()] == [after]
    assert len(queues(sim)) == 1


@pytest.mark.parametrize("end", ["stay", "drop", "stop", "crash"])
@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 0), (1, 0)])
def test_a_lower_qos_holds_for_new_messages_only(sim: SimWorld, before: int, after: int, end: str) -> None:
    """[MQTT-3.8.4-3]: what waits, or is in flight, is not lost; and with QoS 2 it does not arrive twice."""
    few: Pairs = [(RECEIVE_MAXIMUM, 2)]
    client = sim.subscriber("c", "a", qos=before, expiry=100, auto=False, properties=few)
    other = sim.connect("other")
    other.post("a", [b"0", b"1", b"2", b"3"], 2)
    first = [(m.payload, m.qos, m.packet_id) for m in client.take()]
    assert first == [(b"0", before, 1), (b"1", before, 2)]
    client.subscribe("a", qos=after)
    other.publish("a", b"new", 2)
    if end == "drop":
        client.drop()
    elif end != "stay":
        sim.restart(crash=end == "crash")
    if end == "stay":
        client.auto = True
        client.ack(P.PUBACK if before == 1 else P.PUBREC, 1, 2)
        rest = client.take()
    else:
        client = sim.connect("c", clean=False, expiry=100, properties=few)
        rest = client.take()
        assert [(m.payload, m.qos, m.packet_id) for m in rest if m.dup] == first
    found = {m.payload: m.qos for m in rest if not m.dup}
    assert found == {b"2": before, b"3": before, b"new": after}
    client.drop()
    assert all(not queue.message_count for queue in queues(sim).values())
    assert len(queues(sim)) == (after > 0), "as if it had always had this QoS"


@pytest.mark.parametrize("end", ["drop", "crash"])
def test_a_lower_qos_and_a_higher_one_again(sim: SimWorld, end: str) -> None:
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 1)])
    other = sim.connect("other")
    for qos, payload in ((0, b"1"), (1, b"2"), (2, b"3")):
        other.publish("a", payload, 2)
        client.subscribe("a", qos=qos)
    if end == "drop":
        client.drop()
    else:
        sim.restart()
    again = sim.connect("c", clean=False, expiry=100)
    assert [(m.payload, m.qos) for m in again.take()] == [(b"1", 2), (b"2", 2), (b"3", 2)]


def test_no_local_is_changed_without_losing_what_is_in_flight(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False)
    client.publish("a", b"mine", 1)
    [message] = client.take()
    client.subscribe(wish("a", 2, no_local=True))
    assert queues(sim)["c.a"].no_local == "c"
    client.publish("a", b"mine again", 1)
    client.ack(P.PUBACK, message.packet_id)
    assert client.payloads() == []
    assert not queues(sim)["c.a"].message_count
    sim.restart()
    assert queues(sim)["c.a"].no_local == "c", "it is journalled"


@pytest.mark.parametrize(("drop", "kept"), [("newest", [b"0", b"1", b"2"]), ("oldest", [b"3", b"4", b"5"])])
def test_an_absent_client_s_queue_is_bounded(drop: str, kept: list[bytes]) -> None:
    sim = SimWorld(with_mqtt(queued_messages_max=3, queued_messages_drop=drop))
    client, other = sim.connect("c", clean=False, expiry=100), sim.connect("other")
    client.subscribe("a", qos=1)
    client.drop()
    for number in range(6):
        other.publish("a", b"%d" % number, 1)
    assert sim.broker.reported("queue.full.dropping" if drop == "newest" else "queue.full.evicting")
    sim.restart()
    assert sim.connect("c", clean=False, expiry=100).payloads() == kept
    queue = queues(sim)["c.a"]
    assert (queue.messages_max, queue.drop_oldest) == (3, drop == "oldest")


def test_a_session_has_as_many_subscriptions_as_it_may() -> None:
    shipped = configured()
    limits = shipped.limits.model_copy(update={"subscriptions_per_connection_max": 2})
    sim = SimWorld(configured(limits=limits))
    client = sim.connect("c")
    assert client.subscribe("a", "b", "c", "a") == [0, 0, 0x97, 0]
    assert sim.connect("d", version=V311).subscribe("a", "b", "c") == [0, 0, 0x80]


def test_there_are_as_many_sessions_as_there_may_be() -> None:
    shipped = configured()
    sim = SimWorld(configured(limits=shipped.limits.model_copy(update={"sessions_max": 2})))
    sim.subscriber("a", "t", expiry=100).drop()
    sim.connect("b").drop()
    sim.connect("b")
    for version, code in ((V5, 0x97), (V311, 3)):
        refused = sim.attempt(greeting("c", version=version))
        assert refused.code == code
    assert sim.connect("a", clean=False, expiry=100).present


@pytest.mark.parametrize("restarted", [False, True])
def test_sessions_that_hold_nothing_make_room_for_others(restarted: bool) -> None:
    """A user who may do nothing could use up all sessions, for ever."""
    shipped = configured()
    sim = SimWorld(configured(limits=shipped.limits.model_copy(update={"sessions_max": 5})))
    sim.subscriber("kept", "t", qos=1, expiry=FOR_EVER).drop()
    unfinished = sim.connect("unfinished", expiry=FOR_EVER, auto=False)
    unfinished.publish("t", b"m", qos=2)
    unfinished.drop()
    sim.connect("here", expiry=FOR_EVER)
    for n in range(2):
        sim.connect(f"idle{n}", expiry=FOR_EVER).drop()
    if restarted:
        sim.restart()
        sim.connect("here", clean=False, expiry=FOR_EVER)
    sim.connect("idle0", clean=False, expiry=FOR_EVER).drop()  # it is younger than the other one now
    assert len(sim.broker.accepting.mqtt_sessions) == 5
    sim.connect("new").subscribe("t")
    there = [
        name
        for name in ("kept", "unfinished", "here", "idle0", "idle1", "new")
        if sim.broker.accepting.mqtt_sessions.get(name)
    ]
    assert there == ["kept", "unfinished", "here", "idle0", "new"]
    sim.connect("newer")
    assert not sim.broker.accepting.mqtt_sessions.get("idle0")
    assert sim.attempt(greeting("last")).code == 0x97


def test_sessions_of_a_user_who_may_do_nothing_make_room_whatever_it_leaves_unfinished() -> None:
    """Before MQTT 5 what may not be published is acknowledged and dropped: its packet identifier holds nothing."""
    denying = [{"match": "#"}, {"match": "open", "send": ["amq"]}]
    security = [SecuritySetting.model_validate(each) for each in denying]
    shipped = configured()
    limits = shipped.limits.model_copy(update={"sessions_max": 5})
    sim = SimWorld(configured(limits=limits, security_settings=tuple(security)))
    for number in range(8):
        client = sim.connect(f"c{number}", version=V311, clean=False, auto=False)
        client.publish("denied", b"m", qos=2)
        client.drop()
    assert len(sim.broker.accepting.mqtt_sessions) == 5


@pytest.mark.parametrize("restarted", [False, True])
def test_one_user_does_not_use_up_the_sessions_of_others(restarted: bool) -> None:
    shipped = configured()
    limits = shipped.limits.model_copy(update={"sessions_max": 8})
    users = {"alice": "right", "bob": "right"}
    sim = SimWorld(configured(limits=limits), users=users)
    bob: dict[str, Any] = {"user_name": "bob", "password": b"right"}
    alice: dict[str, Any] = {"user_name": "alice", "password": b"right"}
    sim.subscriber("b0", "t", qos=1, expiry=FOR_EVER, **bob).drop()
    for number in range(5):
        sim.subscriber(f"a{number}", "t", qos=1, expiry=FOR_EVER, **alice).drop()
    if restarted:
        sim.restart()
    refused = sim.attempt(greeting("a5", **alice))
    assert refused.code == 0x97
    assert sim.connect("a0", clean=False, **alice).present, "its own sessions are there"
    for number in (1, 2):
        sim.subscriber(f"b{number}", "t", qos=1, expiry=FOR_EVER, **bob).drop()
    assert sim.attempt(greeting("b3", **bob)).code == 0x97, "the limit is that of all"


# -- coming back -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [True, False, None])
def test_messages_in_flight_go_on_where_they_were(sim: SimWorld, crash: bool | None) -> None:
    """QoS 1 and 2 to a client: the same packet ids, marked; the released ones are released again; nothing twice."""
    client = sim.subscriber("c", "a/#", qos=2, clean=False, expiry=100, auto=False)
    other = sim.connect("other")
    for number, qos in enumerate((1, 2, 2, 1)):
        other.publish(f"a/{number}", b"%d" % number, qos)
    first = client.take()
    assert [(m.payload, m.qos, m.dup) for m in first] == [
        (b"0", 1, False),
        (b"1", 2, False),
        (b"2", 2, False),
        (b"3", 1, False),
    ]
    client.ack(P.PUBREC, first[2].packet_id)
    assert client.replies(P.PUBREL) == [(first[2].packet_id, 0)]
    client.ack(P.PUBACK, first[3].packet_id)
    client.drop()
    if crash is not None:
        sim.restart(crash=crash)
    again = sim.connect("c", clean=False, expiry=100, auto=False)
    assert again.present
    assert [(m.payload, m.packet_id, m.dup) for m in again.take()] == [
        (b"0", first[0].packet_id, True),
        (b"1", first[1].packet_id, True),
    ]
    assert again.replies(P.PUBREL) == [(first[2].packet_id, 0)]
    again.ack(P.PUBCOMP, first[2].packet_id)
    again.ack(P.PUBACK, first[0].packet_id)
    again.ack(P.PUBREC, first[1].packet_id)
    again.ack(P.PUBCOMP, first[1].packet_id)
    assert not queues(sim)["c.a.#"].message_count
    assert not queues(sim)["c.a.#"].states, "no delivery has failed"
    again.drop()
    assert sim.connect("c", clean=False, expiry=100).take() == []


@pytest.mark.parametrize("crash", [True, False])
def test_messages_in_flight_of_an_ended_subscription_go_on_where_they_were(sim: SimWorld, crash: bool) -> None:
    """[MQTT-3.10.4-3].  Its packet ids are not free: the client would take a new message for the old one."""
    client = sim.subscriber("c", "a", "b", qos=2, expiry=100, auto=False, properties=[(RECEIVE_MAXIMUM, 2)])
    other = sim.connect("other")
    for payload, qos in ((b"1", 1), (b"2", 2), (b"waits", 2)):
        other.publish("a", payload, qos)
    first = [(m.payload, m.qos, m.packet_id) for m in client.take()]
    assert first == [(b"1", 1, 1), (b"2", 2, 2)]
    assert client.unsubscribe("a") == [0]
    late = other.publish("a", b"too late", 1)
    assert other.replies(P.PUBACK)[-1] == (late, 0x10)
    sim.restart(crash=crash)
    sim.connect("other").publish("b", b"of b", 2)
    client = sim.connect("c", clean=False, expiry=100, properties=[(RECEIVE_MAXIMUM, 3)])
    assert [(m.payload, m.qos, m.packet_id, m.dup) for m in client.take()] == [
        *[(*each, True) for each in first],
        (b"of b", 2, 3, False),
    ]
    assert list(queues(sim)) == ["c.b"]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("crash", [True, False, None])
def test_packet_ids_of_deleted_messages_are_not_free(sim: SimWorld, crash: bool | None, here: bool) -> None:
    """The client has received one with QoS 2: it would take a new message with its packet id for the old one."""
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False)
    other = sim.connect("other")
    other.publish("a", b"old", 2)
    [old] = client.take()
    if not here:
        client.drop()
    with sim.broker.turn():
        sim.broker.engine.operators.delete_queue(queues(sim)["c.a"], with_messages=True)
    if crash is not None:
        sim.restart(crash=crash)
    client = sim.connect("c", clean=False, expiry=100, auto=False)
    assert client.take() == []
    assert client.replies(P.PUBREL) == [(old.packet_id, 0)]
    sim.connect("other").publish("a", b"new", 2)
    assert [(m.payload, m.packet_id) for m in client.take()] == [(b"new", 2)]
    client.ack(P.PUBCOMP, old.packet_id, reason=0x92)
    client.ack(P.PUBREC, 2)
    client.ack(P.PUBCOMP, 2)
    client.drop()
    assert sim.connect("c", clean=False, expiry=100, auto=False).replies(P.PUBREL) == []


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("how", ["subscribe", "take over", "end"])
def test_an_ended_subscription_with_messages_in_flight(sim: SimWorld, how: str, restart: bool) -> None:
    client = sim.subscriber("c", "a", qos=2, expiry=100, auto=False)
    other = sim.connect("other")
    other.publish("a", b"1", 2)
    client.unsubscribe("a")
    assert list(queues(sim)) == ["c.a"]
    if restart:
        sim.restart()
        other, client = sim.connect("other"), sim.connect("c", clean=False, expiry=100, auto=False)
    if how == "end":
        sim.connect("c", clean=True)
        assert list(queues(sim)) == []
        return
    if how == "take over":
        client = sim.connect("c", clean=False, expiry=100, auto=False)
    [*_, twice] = client.take()
    client.subscribe("a", qos=1)
    other.publish("a", b"2", 2)
    [new] = client.take()
    assert (new.payload, new.qos, new.packet_id) == (b"2", 1, 2)
    sim.restart()
    client = sim.connect("c", clean=False, expiry=100, auto=False)
    assert [(m.payload, m.qos, m.packet_id, m.dup) for m in client.take()] == [(b"1", 2, 1, True), (b"2", 1, 2, True)]
    client.ack(P.PUBREC, twice.packet_id)
    assert client.replies(P.PUBREL) == [(twice.packet_id, 0)]
    client.ack(P.PUBCOMP, twice.packet_id)
    client.ack(P.PUBACK, new.packet_id)
    client.drop()
    sim.restart()
    sim.connect("other").publish("a", b"3", 1)
    client = sim.connect("c", clean=False, expiry=100)
    assert client.payloads() == [b"3"]
    assert client.unsubscribe("a") == [0]
    assert list(queues(sim)) == []


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("crash", [True, False, None])
def test_a_repeated_publish_is_no_second_message(sim: SimWorld, crash: bool | None, retain: bool) -> None:
    sim.subscriber("absent", "a", qos=2, clean=False, expiry=100).drop()
    client = sim.connect("c", clean=False, expiry=100, auto=False)
    client.publish("a", b"x", 2, packet_id=7, retain=retain)
    assert client.replies(P.PUBREC) == [(7, 0)]
    client.drop()
    if crash is not None:
        sim.restart(crash=crash)
    again = sim.connect("c", clean=False, expiry=100, auto=False)
    again.publish("a", b"x", 2, packet_id=7, dup=True, retain=retain)
    assert again.replies(P.PUBREC) == [(7, 0)]
    again.ack(P.PUBREL, 7)
    assert again.replies(P.PUBCOMP) == [(7, 0)]
    again.ack(P.PUBREL, 7)
    assert again.replies(P.PUBCOMP) == [(7, 0x92)]
    again.publish("a", b"y", 2, packet_id=7)
    assert sim.connect("absent", clean=False, expiry=100).payloads() == [b"x", b"y"]


def test_a_publish_that_was_refused_without_a_word_is_new_when_it_comes_again() -> None:
    """Its PUBREC waited for the disk behind another's when the connection was lost; there is room by now."""
    sim = SimWorld(configured({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"}))
    kept: dict[str, Any] = {"clean": False, "expiry": 100}
    sim.connect("reader", **kept).subscribe("full", "other", qos=2)
    client = sim.connect("c", auto=False, **kept)
    sim.connect("reader", auto=False, **kept)
    client.publish("full", b"first", 2)
    assert [reason for _, reason in client.replies(P.PUBREC)] == [0]
    sim.hold_disk()
    client.codec.send_publish(PublishHead(V5, "other", qos=2), [b"other"], [7])
    client.codec.send_publish(PublishHead(V5, "full", qos=2), [b"second"], [8])
    client.settle()
    assert client.replies(P.PUBREC) == []
    client.drop()
    sim.broker.release_disk()
    reader = sim.connect("reader", **kept)
    assert sorted(reader.payloads()) == [b"first", b"other"]
    again = sim.connect("c", auto=False, **kept)
    again.publish("other", b"other", 2, packet_id=7, dup=True)
    again.publish("full", b"second", 2, packet_id=8, dup=True)
    assert again.replies(P.PUBREC) == [(7, 0), (8, 0)]
    assert reader.payloads() == [b"second"]


def test_one_pubrel_twice_in_a_read_of_a_lasting_session(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=2, clean=False, expiry=100, auto=False)
    client.publish("a", b"x", 2, packet_id=7)
    client.replies(P.PUBREC)
    client.ack(P.PUBREL, 7, 7)
    client.publish("a", b"z", 2, packet_id=7)
    assert [id for id, _ in client.replies(P.PUBREC)] == [7], "the connection lives, and the identifier is free"
    other = sim.connect("d", auto=False)
    other.publish("a", b"y", 1, packet_id=1)
    assert [id for id, _ in other.replies(P.PUBACK)] == [1]


def test_a_session_ends_with_its_queues_and_its_record(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", "$share/g/b", qos=1, expiry=10, auto=False)
    sim.connect("other").publish("a", b"x", 1)
    client.drop()
    assert len(sim.broker.engine.sessions) == 1
    sim.advance(11)
    assert queues(sim) == {}
    assert len(sim.broker.engine.sessions) == 0
    sim.restart()
    assert queues(sim) == {}
    assert not sim.connect("c", clean=False).present


def test_the_expiry_goes_on_after_a_restart(sim: SimWorld) -> None:
    sim.connect("c", expiry=100)
    sim.restart()
    sim.advance(99)
    assert sim.connect("c", clean=False, expiry=100).present
    sim.restart(crash=False)
    sim.advance(101)
    assert not sim.connect("c", clean=False, expiry=100).present


@pytest.mark.parametrize(
    ("setting", "version", "clean", "seconds"),
    [(-1, V311, False, None), (5_000, V311, False, 5), (5_000, V311, True, 0), (5_000, V5, False, 0)],
)
def test_the_expiry_of_sessions_before_5(setting: int, version: int, clean: bool, seconds: int | None) -> None:
    sim = SimWorld(unswept(with_mqtt(default_mqtt_session_expiry_interval=setting)))
    sim.connect("c", version=version, clean=clean).drop()
    if seconds is None:
        sim.advance(10_000_000)
    else:
        sim.advance(seconds - 0.5)
        assert sim.connect("c", version=version, clean=False).present is (seconds > 0)
        sim.connect("c", version=version, clean=clean).drop()
        sim.advance(seconds + 0.5)
    assert sim.connect("c", version=version, clean=False).present is (seconds is None)


def test_the_longest_expiry() -> None:
    sim = SimWorld(with_mqtt(max_session_expiry_interval=10_000))
    client = sim.connect("c", expiry=FOR_EVER)
    assert client.told(SESSION_EXPIRY_INTERVAL) == 10
    assert sim.connect("d", expiry=10).told(SESSION_EXPIRY_INTERVAL) is None
    client.disconnect(0, [(SESSION_EXPIRY_INTERVAL, FOR_EVER)])
    sim.advance(11)
    assert not sim.connect("c", clean=False).present


def test_another_interval_when_a_client_comes_back(sim: SimWorld) -> None:
    """A session that lasted and now ends with its connection, or with the broker."""
    sim.connect("c", expiry=100).subscribe("a", qos=1)
    sim.connect("c", clean=False, expiry=0)
    sim.restart()
    assert queues(sim) == {}
    assert not sim.connect("c", clean=False).present


# -- taking over -------------------------------------------------------------------------------------------------------


def test_taking_over_keeps_what_is_in_flight(sim: SimWorld) -> None:
    client = sim.subscriber("c", "a", qos=1, expiry=100, auto=False)
    sim.connect("other").publish("a", b"x", 1)
    [first] = client.take()
    again = sim.connect("c", clean=False, expiry=100)
    assert [(m.packet_id, m.dup) for m in again.take()] == [(first.packet_id, True)]


def test_taking_over_may_be_forbidden() -> None:
    sim = SimWorld(with_mqtt(allow_link_stealing=False))
    client = sim.connect("c")
    for version, code in ((V5, 0x85), (V311, 2)):
        other = sim.attempt(greeting("c", version=version))
        assert other.code == code
    client.settle()
    assert not client.closed
    client.drop()
    sim.connect("c")


# -- wills -------------------------------------------------------------------------------------------------------------


def will(delay: int, **more: Any) -> Will:
    times = [(WILL_DELAY_INTERVAL, delay), (MESSAGE_EXPIRY_INTERVAL, 1000)]
    return Will("will", b"bye", properties=Properties([*times, (USER_PROPERTY, ("why", "gone"))]), **more)


def test_a_will_keeps_its_properties_over_a_crash(sim: SimWorld) -> None:
    sim.connect("c", expiry=100, will=will(10, qos=1))
    sim.restart()
    watcher = sim.subscriber("watcher", "will", qos=2)
    sim.advance(9)
    assert watcher.take() == []
    sim.advance(2)
    [message] = watcher.take()
    assert (message.qos, message.payload, message.properties.get_all(USER_PROPERTY)) == (1, b"bye", [("why", "gone")])
    assert message.properties.get(MESSAGE_EXPIRY_INTERVAL) == 1000
    sim.restart()
    sim.advance(90)
    watcher = sim.subscriber("watcher", "will", qos=2)
    sim.advance(20)
    assert watcher.take() == [], "it is published once"


def test_a_will_that_cannot_be_published_is_reported(sim: SimWorld) -> None:
    sim.connect("c", will=Will("$SYS/broker/x", b"")).drop()
    assert [report["topic"] for report in sim.broker.reported("mqtt.will_refused")] == ["$SYS/broker/x"]


# -- permissions -------------------------------------------------------------------------------------------------------


def test_rights_that_are_taken_away_and_given_back() -> None:
    sim = SimWorld(permissions(), users={"alice": "right"})
    login: dict[str, Any] = {"user_name": "alice", "password": b"right"}
    client = sim.subscriber("c", "a", qos=1, clean=False, expiry=100, **login)
    restrict(sim.broker, permissions(Permission.CONSUME))
    client.settle()
    assert client.goodbye_code == 0x98
    sim.connect("d", **login).publish("a", b"x", 1)
    again = sim.connect("c", clean=False, expiry=100, **login)
    assert again.present
    assert again.take() == []
    assert again.subscribe("a", qos=1) == [0x87]
    assert sim.broker.reported("mqtt.subscription_idle")
    restrict(sim.broker, permissions())
    assert again.subscribe("a", qos=1) == [1]
    sim.connect("d", **login).publish("a", b"y", 1)
    assert again.payloads() == [b"y"], "what was published while the right was gone is not for this client"
    restrict(sim.broker, permissions(Permission.CONSUME))
    idle = sim.connect("c", clean=False, expiry=100, **login)
    assert idle.unsubscribe("a") == [0]
    assert queues(sim) == {}


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_the_broker_says_goodbye(sim: SimWorld) -> None:
    client = sim.connect("c")
    sim.broker.shut_down()
    client.settle()
    assert client.goodbye_code == 0x8B


# -- answers to CONNECT ------------------------------------------------------------------------------------------------


def narrow(sim: SimWorld, most: int, *properties: tuple[Property[Any], Any]) -> RawPeer:
    """A client that takes packets of `most` bytes: fewer than our codec would."""
    client = RawPeer(sim.broker, "mqtt")
    client.raw(encode(greeting("c", properties=[(MAXIMUM_PACKET_SIZE, most), *properties]), V5))
    return client


@pytest.mark.parametrize("lasting", [False, True])
def test_a_client_that_takes_no_connack_is_not_left_waiting(sim: SimWorld, lasting: bool) -> None:
    """[MQTT-3.1.2-24]: where nothing can be said, the connection closes."""
    properties = [(SESSION_EXPIRY_INTERVAL, 100)] if lasting else []
    needed = len(narrow(sim, 1000, *properties).got)
    for most in (1, 4, 5, needed - 1):
        client = narrow(sim, most, *properties)
        assert client.closed, most
        assert len(client.got) <= most
        assert client.got[:4] == (b"" if most < 5 else bytes((0x20, len(client.got) - 2, 0, 0x83)))
    assert str(sim.broker.reported("mqtt.error")[0]["message"]).endswith("no room for CONNACK")
    client = narrow(sim, needed, *properties)
    assert (len(client.got), client.closed) == (needed, False)


def test_a_client_that_takes_no_suback_is_not_left_waiting(sim: SimWorld) -> None:
    client = narrow(sim, 50)
    client.got = b""
    client.raw(encode(Subscribe(1, [wish(f"a/{n}", 0) for n in range(100)]), V5))
    assert client.closed
    assert client.got[0] == 0xE0, "DISCONNECT"
    assert client.got[2] == 0x83


@pytest.mark.parametrize("version", [V5, V311, V31])
def test_every_connect_for_one_session_is_answered(sim: SimWorld, version: int) -> None:
    """Also where another one comes before the session is on disk: first comes the CONNACK, then the goodbye."""
    sim.hold_disk()
    properties = [(SESSION_EXPIRY_INTERVAL, 100)] if version == V5 else []
    clients = [sim.attempt(greeting("c", version=version, clean=False, properties=properties)) for _ in range(20)]
    assert not any(client.connack or client.closed for client in clients), "nothing is confirmed before it is durable"
    sim.write()
    for client in clients:
        client.settle()
        assert client.code == 0
    assert [client.present for client in clients] == [False] + [version != V31] * 19
    assert [client.closed for client in clients] == [True] * 19 + [False]
    if version == V5:
        assert [client.goodbye and client.goodbye.reason_code for client in clients] == [0x8E] * 19 + [None]
    winner = clients[-1]
    winner.publish("a", b"x", 1)
    sim.write()
    assert winner.replies(P.PUBACK)


def test_a_connect_that_waits_while_the_broker_stops_is_answered(sim: SimWorld) -> None:
    sim.hold_disk()
    client = sim.attempt(greeting("c", properties=[(SESSION_EXPIRY_INTERVAL, 100)]))
    carrier = client.link
    assert isinstance(carrier, SimCarrier)
    with sim.broker.turn():
        carrier.session.shut_down()
    client.settle()
    assert client.code == 0x88


# -- many at once ------------------------------------------------------------------------------------------------------


def most_in_a_tick(sim: SimWorld, counted: Callable[[], int]) -> list[int]:
    """By how much a figure falls in each tick from now on."""
    falls: list[int] = []
    before = [counted()]

    def after_tick() -> None:
        now = counted()
        falls.append(before[0] - now)
        before[0] = now

    sim.broker.after_tick = after_tick
    return falls


@pytest.mark.parametrize("lasting", [False, True])
def test_many_connections_that_end_at_once_end_in_steps(sim: SimWorld, lasting: bool) -> None:
    watcher = sim.subscriber("watcher", "wills")
    expiry = 60 if lasting else 0
    clients = [sim.connect(f"c{n}", expiry=expiry, will=Will("wills", b"%d" % n, 0, False)) for n in range(200)]
    sessions = sim.broker.accepting.mqtt_sessions
    falls = most_in_a_tick(
        sim, lambda: sum(getattr(sessions.get(f"c{n}"), "owner", None) is not None for n in range(200))
    )
    with sim.broker.turn():
        for client in clients:
            carrier(client).abort()
    assert sum(falls) == 200, "all have ended"
    assert max(falls) <= (BUDGET + BUDGET_MIN) // ENDING_COST + 1
    assert watcher.payloads() == [b"%d" % n for n in range(200)], "each has its will, in order"


def test_a_lost_connection_ends_at_the_end_of_the_tick(sim: SimWorld) -> None:
    """The event loop tells of thousands before it does anything else; ends of 10 ms came on top of that."""
    clients = [sim.connect(f"c{n}", expiry=60) for n in range(10)]
    sessions = [sim.broker.accepting.mqtt_sessions.get(f"c{n}") for n in range(10)]
    with sim.broker.turn():
        for client in clients:
            carrier(client).abort()
        assert all(session is not None and session.owner is not None for session in sessions)
    assert all(session is not None and session.owner is None for session in sessions)


def test_many_sessions_that_expire_at_once_end_in_steps(sim: SimWorld) -> None:
    for n in range(200):
        sim.connect(f"c{n}", expiry=60).drop()
    sessions = sim.broker.accepting.mqtt_sessions
    falls = most_in_a_tick(sim, lambda: len(sessions))
    sim.advance(61)
    assert sum(falls) == 200
    assert max(falls) <= BUDGET // DUE_COST + 1


def test_a_client_that_returns_before_its_lost_connection_has_ended_has_its_session(sim: SimWorld) -> None:
    many = [sim.connect(f"c{n}", expiry=60) for n in range(100)]
    late = sim.subscriber("late", "t", qos=1, expiry=60)
    with sim.broker.turn():
        for client in [*many, late]:
            carrier(client).abort()
        again = SimCarrier(sim.broker)
        greeted = MqttClient().over(again)
        greeted.connect(greeting("late", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, 60)]))
    assert greeted.present
    sim.connect("p").publish("t", b"here", qos=1)
    assert greeted.payloads() == [b"here"]


def test_many_filters_of_a_packet_are_subscribed_in_steps_and_what_is_behind_them_waits(sim: SimWorld) -> None:
    filters = [f"a/{n}" for n in range(200)]
    client = sim.connect("c", expiry=60)
    session = sim.broker.accepting.mqtt_sessions.get("c")
    assert session is not None
    falls = most_in_a_tick(sim, lambda: -len(session.subscriptions))
    client.codec.send(Subscribe(1, [wish(each, 1) for each in filters]))
    client.codec.send(Unsubscribe(2, [topic_filter(each) for each in filters[:150]]))
    client.codec.send_publish(PublishHead(V5, filters[-1], qos=1), [b"x"], [3])
    client.settle()
    assert [type(packet) for packet in client.others] == [Suback, Unsuback]
    assert client.replies(P.PUBACK) == [(3, 0)]
    assert client.payloads() == [b"x"]
    assert sum(falls) == 50
    assert max(falls) <= (BUDGET + BUDGET_MIN) // SUBSCRIBE_COST + 1
    assert -min(falls) <= (BUDGET + BUDGET_MIN) // UNSUBSCRIBE_COST + 1
    sim.restart()
    restored = sim.broker.accepting.mqtt_sessions.get("c")
    assert restored is not None
    assert {each.filter.text for each in restored.subscriptions} == set(filters[150:])


def test_a_client_that_hangs_up_while_it_subscribes_has_what_was_made(sim: SimWorld) -> None:
    client = sim.connect("c", expiry=60)
    client.codec.send(Subscribe(1, [wish(f"a/{n}", 1) for n in range(200)]))
    with sim.broker.turn():
        wire = carrier(client)
        wire.session.receive_data(client.codec.data_to_send())
        wire.abort()
    session = sim.broker.accepting.mqtt_sessions.get("c")
    assert session is not None
    assert 0 < len(session.subscriptions) < 200
    made = len(session.subscriptions)
    sim.restart()
    session = sim.broker.accepting.mqtt_sessions.get("c")
    assert session is not None
    assert len(session.subscriptions) == made


@pytest.mark.parametrize(("retain", "cost"), [(False, receive.RUN_COST), (True, receive.RETAIN_COST)])
def test_many_publications_of_a_read_are_published_in_steps_in_their_order(
    sim: SimWorld, retain: bool, cost: int
) -> None:
    watcher = sim.subscriber("watcher", "#", qos=1)
    client = sim.connect("p")
    traffic = sim.broker.accepting.mqtt_sessions.traffic
    falls = most_in_a_tick(sim, lambda: -traffic.received)
    for n in range(500):
        # A run has one QoS: each packet is a run of its own.
        client.codec.send_publish(PublishHead(V5, f"t/{n}", qos=n % 2, retain=retain), [b"%d" % n], [n + 1] * (n % 2))
    client.settle()
    assert watcher.payloads() == [b"%d" % n for n in range(500)]
    assert [id for id, _ in client.replies(P.PUBACK)] == list(range(2, 502, 2))
    assert max(falls) <= (BUDGET + BUDGET_MIN) // cost + 1


@pytest.mark.parametrize("said", [True, False])
def test_a_client_that_hangs_up_has_everything_published_that_it_sent_before(sim: SimWorld, said: bool) -> None:
    """Its DISCONNECT counts, too: the will is not published."""
    watcher = sim.subscriber("watcher", "#")
    client = sim.connect("p", will=Will("t", b"will", 0, False))
    for n in range(500):
        client.codec.send_publish(PublishHead(V5, "t", retain=bool(n % 2)), [b"%d" % n], [])
    if said:
        client.codec.send(Disconnect())
    with sim.broker.turn():
        wire = carrier(client)
        wire.session.receive_data(client.codec.data_to_send())
        wire.abort()
    sim.broker.run()
    assert watcher.payloads() == [b"%d" % n for n in range(500)] + [b"will"] * (not said)
    assert [each.remote for each in sim.broker.engine.connections.by_id.values()] == [carrier(watcher).remote]


def test_a_backlog_of_many_topics_is_delivered_in_steps(sim: SimWorld) -> None:
    sim.subscriber("away", "#", qos=1, expiry=60).drop()
    sender = sim.connect("p")
    for n in range(500):
        sender.publish(f"t/{n}", b"%d" % n, qos=1)
    [queue] = [each for each in sim.broker.engine.queues.values() if each.name == "away.#"]
    falls = most_in_a_tick(sim, lambda: len(queue.backlog))
    client = sim.connect("away", clean=False, expiry=60)  # with topic aliases: it gets packets one by one
    assert client.payloads() == [b"%d" % n for n in range(500)]
    assert sum(falls) == 500
    assert max(falls) <= BUDGET // send.RUN_COST + dispatch.RUN_PART


def outgoing_of(sim: SimWorld, client_id: str) -> Outgoing[Any]:
    """What a session has in flight."""
    session = sim.broker.accepting.mqtt_sessions.get(client_id)
    assert session is not None
    return session.deliveries.in_flight.outgoing


def test_a_full_window_is_resent_in_steps(sim: SimWorld) -> None:
    """In the order of sending, and before anything new, though acknowledgements make room meanwhile."""
    client = sim.connect("c", expiry=60, auto=False)
    client.subscribe("t", qos=1)
    sender = sim.connect("p")
    for n in range(0, 5_000, 500):
        sender.post("t", [b"%d" % each for each in range(n, n + 500)], qos=1)
    client.settle()
    assert len(client.take()) == 5_000
    client.drop()
    outgoing = outgoing_of(sim, "c")
    sender.publish("t", b"new", qos=1)
    falls = most_in_a_tick(sim, lambda: len(outgoing._again or ()))
    assert sim.connect("c", clean=False, expiry=60).payloads() == [*(b"%d" % n for n in range(5_000)), b"new"]
    assert max(falls) <= (BUDGET + BUDGET_MIN) // send.RESENT_COST + send.RESENT_TOGETHER
    assert not outgoing.resends


def test_a_connection_that_ends_while_a_window_is_resent_leaves_it_to_the_next(sim: SimWorld) -> None:
    client = sim.connect("c", expiry=60, auto=False)
    client.subscribe("t", qos=1)
    sender = sim.connect("p")
    for n in range(0, 5_000, 500):
        sender.post("t", [b"%d" % each for each in range(n, n + 500)], qos=1)
    client.drop()
    outgoing = outgoing_of(sim, "c")
    cut: list[int] = []

    def after_tick() -> None:
        if outgoing.resends and not cut:
            cut.append(len(outgoing._again or ()))
            sim.broker._clients[-1].abort()

    sim.broker.after_tick = after_tick
    sim.connect("c", clean=False, expiry=60, auto=False)
    assert 0 < cut[0] < 5_000
    assert sim.connect("c", clean=False, expiry=60).payloads() == [b"%d" % n for n in range(5_000)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("topics", [1, 200])
def test_a_run_that_reaches_many_queues_is_published_in_parts(sim: SimWorld, qos: int, topics: int) -> None:
    """Each topic costs something for each subscriber: 2,000 of them and 300 subscribers took three seconds."""
    watchers = [sim.subscriber(f"w{n}", "#", qos=qos) for n in range(60)]
    client = sim.connect("p")
    for n in range(topics):
        client.publish(f"t/{n}", b"", qos=qos)  # so that they are read in runs
    assert [len(watcher.payloads()) for watcher in watchers] == [topics] * 60
    client.answers.clear()
    traffic = sim.broker.accepting.mqtt_sessions.traffic
    falls = most_in_a_tick(sim, lambda: -traffic.received)
    bodies = [b"%d" % n for n in range(200)]
    for n, body in enumerate(bodies):
        client.codec.send_publish(PublishHead(V5, f"t/{n % topics}", qos=qos), [body], [n + 1] * (qos > 0))
    client.settle()
    assert [watcher.payloads() for watcher in watchers] == [bodies] * 60
    ids = [id for kind in (P.PUBACK, P.PUBCOMP) for id, _ in client.replies(kind)]
    assert ids == [n + 1 for n in range(200) if qos]
    assert sum(falls) == 200
    assert max(falls) <= (2 * (BUDGET + BUDGET_MIN) // (60 * 5) if topics > 1 else 200)


def test_the_parts_of_a_run_below_a_mount_point_keep_their_refusals() -> None:
    """Topics are mapped once, and refusals are those of their messages."""
    sim = SimWorld(with_mqtt(mount_point="m/", message_size_limit=10))
    watchers = [sim.subscriber(f"w{n}", "t/#", qos=1) for n in range(60)]
    client = sim.connect("p")
    for n in range(100):
        client.publish(f"t/{n}", b"", qos=1)  # so that they are read in runs
    assert [len(watcher.payloads()) for watcher in watchers] == [100] * 60
    bodies = [b"x" * (20 if n % 7 == 3 else 2) for n in range(100)]
    for n, body in enumerate(bodies):
        client.codec.send_publish(PublishHead(V5, f"t/{n}", qos=1), [body], [n + 1])
    client.settle()
    assert [len(watcher.payloads()) for watcher in watchers] == [sum(len(body) == 2 for body in bodies)] * 60
    assert [id for id, why in client.replies(P.PUBACK) if why >= 0x80] == [n + 1 for n in range(100) if n % 7 == 3]


@pytest.mark.parametrize("qos", [1, 2])
def test_many_acknowledgements_of_a_read_are_handled_in_steps(sim: SimWorld, qos: int) -> None:
    """A client may hold back 65,535 of them, and a read has room for as many."""
    count = 20_000
    client = sim.connect("c", expiry=60, auto=False)
    client.subscribe("t", qos=qos)
    sender = sim.connect("p")
    for _ in range(count // 500):
        sender.post("t", [b"x"] * 500, qos=qos)
    ids = [message.packet_id for message in client.take()]
    assert len(ids) == count
    [queue] = [each for each in sim.broker.engine.queues.values() if each.name == "c.t"]
    falls = most_in_a_tick(sim, lambda: sum(len(consumer.unacked) for consumer in queue.consumers))
    client.ack(P.PUBACK if qos == 1 else P.PUBREC, *ids)
    assert sum(falls) == count
    assert max(falls) <= (BUDGET + BUDGET_MIN) // REMOVE_COST + ACKS_TOGETHER
    if qos == 2:
        assert [id for id, _ in client.replies(P.PUBREL)] == ids, "in their order"
        client.ack(P.PUBCOMP, *ids)
    assert len(outgoing_of(sim, "c")) == 0
