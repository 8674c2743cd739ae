"""MQTT bridges between two simulated Bartlebys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config.addresses import AddressSection
from broker.engine.model.message import Message
from broker.engine.model.names import LINK_SESSIONS
from broker.sessions.links.model import State
from broker.sessions.mqtt.format import HOPS
from protocols.mqtt.codes import BRIDGE, V5, V311, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Ack, Connect, Pingreq, Publish, Subscribe, Unsuback
from protocols.mqtt.properties import (
    CONTENT_TYPE,
    RESPONSE_TOPIC,
    SESSION_EXPIRY_INTERVAL,
    TOPIC_ALIAS,
    USER_PROPERTY,
    Properties,
)
from tests.broker.sessions.links.bridges import Script, client, pair, scripted
from tests.broker.sessions.links.pairs import dead_letters
from tests.broker.sessions.mqtt.harness import with_mqtt
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, Pairs, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_files import SimFiles
from tests.support.sim_links import SimLinks, linked

OUT = {"topic": "sensors/#", "direction": "out", "qos": 1}
IN = {"topic": "orders/#", "direction": "in", "qos": 1}
BOTH = {"topic": "chat/#", "direction": "both", "qos": 1}


def got(subscriber: Any) -> list[tuple[str, bytes]]:
    """What a client has received."""
    return [(each.topic, each.payload) for each in subscriber.take()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_published_here_go_there_under_their_prefix(qos: int) -> None:
    route = OUT | {"qos": qos, "local-prefix": "house/", "remote-prefix": "site1/"}
    a, b, links = pair(route=route)
    assert links.link().status is State.RUNNING
    assert links.route("route").state is State.RUNNING
    there = client(b, "there", "#", qos=2)
    here = client(a, "here")
    here.publish("house/sensors/1/temperature", b"20", qos)
    here.publish("house/doors", b"open", qos)
    here.publish("sensors/1", b"not of the house", qos)
    links.run()
    assert got(there) == [("site1/sensors/1/temperature", b"20")]
    links.advance(500)
    assert (links.route("route").passed, links.route("route").unsettled) == (1, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_published_there_come_here_under_their_prefix(qos: int) -> None:
    route = IN | {"qos": qos, "local-prefix": "headquarters/", "remote-prefix": "site1/"}
    a, b, links = pair(route=route)
    here = client(a, "here", "#", qos=2)
    client(b, "there").publish("site1/orders/7", b"x", qos)
    links.run()
    assert got(here) == [("headquarters/orders/7", b"x")]
    assert links.route("route").passed == 1


def test_both_ways_without_an_echo() -> None:
    a, b, links = pair(route=BOTH)
    here, there = client(a, "here", "#", qos=1), client(b, "there", "#", qos=1)
    here.publish("chat/1", b"from here", 1)
    links.run()
    there.publish("chat/1", b"from there", 1)
    links.run()
    assert got(here) == [("chat/1", b"from here"), ("chat/1", b"from there")]
    assert got(there) == [("chat/1", b"from here"), ("chat/1", b"from there")]


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_published_while_the_link_is_down_wait(qos: int) -> None:
    a, b, links = pair(out=OUT | {"qos": qos}, back=IN | {"qos": qos})
    links.cut(down=True)
    client(a, "here").publish("sensors/1", b"1", qos)
    client(b, "there").publish("orders/1", b"2", qos)
    assert len(held(a, "link.b.out")) == 1
    here, there = client(a, "h", "orders/#", qos=2), client(b, "t", "sensors/#", qos=2)
    links.mend(5_000)
    assert (got(here), got(there)) == ([("orders/1", b"2")], [("sensors/1", b"1")])
    assert held(a, "link.b.out") == []


def test_qos_0_is_not_kept_while_the_link_is_down() -> None:
    a, b, links = pair(route=OUT)
    links.cut(down=True)
    client(a, "here").publish("sensors/1", b"1", 0)
    there = client(b, "t", "#")
    links.mend(5_000)
    assert got(there) == []


# -- what the other end says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_a_dead_letter_with_the_other_end_s_words(qos: int) -> None:
    full = SimBroker(configured({"match": "sensors.#", "max-size-bytes": 1, "address-full-policy": "FAIL"}))
    a, b, links = pair(there=full, route=OUT | {"qos": qos})
    client(b, "there", "#", qos=1, clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)]).drop()
    here = client(a, "here")
    here.publish("sensors/1", b"1", qos)
    here.publish("sensors/1", b"2", qos)
    links.advance(500)
    [letter] = dead_letters(a)
    assert letter.body == b"2"
    notes = letter.header.annotations or {}
    text = str(notes["_AMQ_DL_TEXT"])
    assert "0x97 quota exceeded" in text
    assert "link b at mqtt://b:1883" in text
    assert notes["_AMQ_DL_REASON"] == "queue-full"
    assert (notes["_AMQ_DL_LINK"], notes["_AMQ_DL_REMOTE_ADDRESS"]) == ("b", "sensors/1")
    route = links.route("route")
    assert (route.passed, route.refused, route.state) == (1, 1, State.RUNNING)
    assert "0x97 quota exceeded" in route.error


def test_a_message_too_large_for_the_other_end_is_a_dead_letter() -> None:
    a, b, links = pair(there=SimBroker(with_mqtt(maximum_packet_size=1_000)), route=OUT)
    there = client(b, "there", "#")
    here = client(a, "here")
    for size in (2_000, 10):
        here.publish("sensors/1", bytes(size), 1)
    links.run()
    assert got(there) == [("sensors/1", bytes(10))]
    [letter] = dead_letters(a)
    assert (letter.header.annotations or {})["_AMQ_DL_REASON"] == "too-large"


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_without_a_dead_letter_address_waits(qos: int) -> None:
    full = SimBroker(configured({"match": "sensors.#", "max-size-bytes": 1, "address-full-policy": "FAIL"}))
    keeping: dict[str, object] = {"match": "sensors.#", "dead-letter-address": ""}
    a, b, links = pair(keeping, there=full, link={"retry-interval-max": "5s"}, route=OUT | {"qos": qos})
    kept: dict[str, Any] = {"qos": 1, "clean": False, "properties": [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]}
    client(b, "there", "#", **kept).drop()
    here = client(a, "here")
    for payload in (b"1", b"2"):
        here.publish("sensors/1", payload, qos)
    links.advance(11_000)
    assert [each.body for each in queued(a)] == [b"2"]
    assert "0x97 quota exceeded" in links.route("route").error
    assert len(a.reported("link.route_waiting")) == 1, "and not at each attempt"
    there = client(b, "there", **kept)
    links.advance(6_000)
    assert [each.payload for each in there.take()] == [b"1", b"2"]
    assert queued(a) == []
    assert (links.route("route").passed, a.reported("message.killed")) == (2, [])


def test_a_reason_to_wait_is_logged_once_whatever_its_figures() -> None:
    files = SimFiles()
    full = SimBroker(small(retained=False), files=files)
    a, b, links = pair({"match": "sensors.#", "dead-letter-address": ""}, there=full, route=OUT | {"qos": 1})
    kept: dict[str, Any] = {"qos": 1, "clean": False, "properties": [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]}
    client(b, "there", "#", **kept).drop()
    files.capacity = files.used()
    here = client(a, "here")
    for size in range(1_000, 2_000, 10):
        here.publish("sensors/1", bytes(size), 1)
    links.advance(60_000)
    assert len(queued(a)) > 2
    assert "the journal has no room for" in links.route("route").error
    assert len(a.reported("link.route_waiting")) == 1
    files.capacity = None
    links.advance(60_000)
    assert queued(a) == []
    assert links.route("route").passed == 100


def test_a_message_too_large_without_a_dead_letter_address_waits() -> None:
    keeping: dict[str, object] = {"match": "sensors.#", "dead-letter-address": ""}
    a, b, links = pair(keeping, there=SimBroker(with_mqtt(maximum_packet_size=1_000)), route=OUT)
    there = client(b, "there", "#")
    here = client(a, "here")
    for size in (2_000, 10):
        here.publish("sensors/1", bytes(size), 1)
    links.advance(500)
    assert got(there) == [("sensors/1", bytes(10))]
    assert [len(each.body) for each in queued(a)] == [2_000]
    assert "but the client accepts 1000" in links.route("route").error


def queued(broker: SimBroker) -> list[Message]:
    """What waits for the link."""
    return [each for each, _ in broker.engine.messages.browse(broker.engine.queue("link.b.route"))]


def test_an_other_end_that_takes_less() -> None:
    """Maximum QoS 1, no retained messages, three at once."""
    taking = SimBroker(with_mqtt(maximum_qos=1, retain_available=False, receive_maximum=3))
    a, b, links = pair(there=taking, route=OUT | {"qos": 2})
    there = client(b, "there", "#", qos=1)
    here = client(a, "here")
    links.wires["b"].holding = True
    for number in range(10):
        here.publish("sensors/1", b"%d" % number, 2, retain=True)
    links.advance(500)
    assert links.route("route").unsettled == 3
    links.wires["b"].holding = False
    links.run()
    assert [(each.payload, each.qos, each.retain) for each in there.take()] == [
        (b"%d" % number, 1, False) for number in range(10)
    ]


def test_a_subscription_that_is_refused_is_asked_for_again() -> None:
    guarded = SimBroker(configured(), users={"alice": "secret"})
    limited = guarded.config.limits.model_copy(update={"subscriptions_per_connection_max": 1})
    b = SimBroker(configured(limits=limited))
    a, b, links = pair(there=b, first=IN, second=IN | {"topic": "news"})
    assert links.route("first").state is State.RUNNING
    assert links.route("second").state is State.RETRYING
    assert "0x97 quota exceeded" in links.route("second").error
    assert len(a.reported("link.route_waiting")) == 1
    links.advance(31_000)
    assert len(a.reported("link.route_waiting")) == 2


def test_a_login_that_is_refused() -> None:
    b = SimBroker(configured(), users={"alice": "secret"})
    _a, _b, links = pair(there=b, route=OUT)
    assert links.link().state is State.RETRYING
    assert "0x87 not authorized" in links.link().error


def test_a_user_and_a_password(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    b = SimBroker(configured(), users={"alice": "secret"})
    _a, _b, links = pair(there=b, link={"user": "alice", "password-file": str(secret)}, route=OUT)
    assert links.link().status is State.RUNNING


# -- what is carried ---------------------------------------------------------------------------------------------------


def test_retained_messages_are_retained_there() -> None:
    a, b, links = pair(out=OUT, back=IN)
    client(a, "here").publish("sensors/1", b"1", 1, retain=True)
    client(b, "there").publish("orders/1", b"2", 1, retain=True)
    links.run()
    assert [(each.payload, each.retain) for each in client(b, "t", "sensors/#").take()] == [(b"1", True)]
    assert [(each.payload, each.retain) for each in client(a, "h", "orders/#").take()] == [(b"2", True)]


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_retained_before_the_link_go_there_too(qos: int) -> None:
    disabled = {"enabled": False}
    a, b, links = pair(link=disabled, out=OUT | {"qos": qos}, back=IN | {"qos": qos})
    client(a, "here").publish("sensors/1", b"1", 1, retain=True)
    client(b, "there").publish("orders/1", b"2", 1, retain=True)
    links.do(links.links.start, "b")
    assert [each.payload for each in client(b, "t", "sensors/#").take()] == [b"1"]
    assert [each.payload for each in client(a, "h", "orders/#").take()] == [b"2"]
    here = client(a, "h2", "orders/#", qos=1)
    assert len(here.take()) == 1
    links.cut()
    links.advance(5_000)
    assert here.take() == [], "what was retained there does not come with each connection"


def test_messages_of_other_protocols_go_out() -> None:
    a, b, links = pair(route=OUT)
    there = client(b, "there", "#", qos=2)
    sender = AmqpSim(a)
    sender.send(sender.sender("sensors.amqp", "topic"), message("20", durable=True, application={"unit": "C"}))
    a.connect().send("/topic/sensors.stomp", b"30", unit="C")
    links.run()
    arrived = there.take()
    assert sorted((each.topic, each.payload) for each in arrived) == [
        ("sensors/amqp", b"20"),
        ("sensors/stomp", b"30"),
    ]
    assert all(("unit", "C") in each.properties.get_all(USER_PROPERTY) for each in arrived)


def test_properties_stay_and_the_broker_signs() -> None:
    a, b, links = pair(route=OUT | {"remote-prefix": "site1/"})
    there = client(b, "there", "#", qos=2)
    said: Pairs = [(CONTENT_TYPE, "text/plain"), (RESPONSE_TOPIC, "answers/1"), (USER_PROPERTY, ("k", "v"))]
    client(a, "here").publish("sensors/1", b"1", 1, properties=said)
    links.run()
    [arrived] = there.take()
    assert list(arrived.properties.without(TOPIC_ALIAS)) == [*said, (USER_PROPERTY, (HOPS, f"a b {a.now}"))]


def test_a_message_that_has_passed_too_many_brokers_is_a_dead_letter() -> None:
    a, b, links = pair(link={"max-hops": 2}, route=OUT)
    there = client(b, "there", "#", qos=2)
    here = client(a, "here")
    for count in (1, 2):
        passed = [(USER_PROPERTY, (HOPS, f"x{number} l 0")) for number in range(count)]
        here.publish("sensors/1", b"%d" % count, 1, properties=passed)
    links.run()
    assert [each.payload for each in there.take()] == [b"1"]
    [letter] = dead_letters(a)
    assert letter.body == b"2"
    assert (letter.header.annotations or {})["_AMQ_DL_REASON"] == "link-hops"
    assert letter.hops == 2


def test_large_messages_both_ways() -> None:
    a, b, links = pair(out=OUT, back=IN)
    here, there = client(a, "here", "orders/#", qos=1), client(b, "there", "sensors/#", qos=1)
    large = bytes(range(256)) * 8_000
    client(a, "h").publish("sensors/1", large, 1)
    client(b, "t").publish("orders/1", large, 1)
    links.run()
    assert got(there) == [("sensors/1", large)]
    assert got(here) == [("orders/1", large)]


def test_nobody_has_subscribed_here() -> None:
    a, b, links = pair(route=IN)
    for qos in (0, 1, 2):
        client(b, "there").publish("orders/1", b"x", qos)
    links.run()
    assert links.route("route").passed == 3
    assert a.reported("link.lost") == []


# -- operators ---------------------------------------------------------------------------------------------------------


def test_pause_stop_and_start() -> None:
    a, b, links = pair(out=OUT, back=IN)
    here, there = client(a, "here", "orders/#", qos=1), client(b, "there", "sensors/#", qos=1)
    for verb, state in ((links.links.pause, State.PAUSED), (links.links.stop, State.STOPPED)):
        links.do(verb, "b")
        assert links.link().status is state
        here.publish("sensors/1", b"%s" % state.encode(), 1)
        there.publish("orders/1", b"%s" % state.encode(), 1)
        links.advance(90_000)
        assert (got(here), got(there)) == ([], [])
        links.do(links.links.start, "b")
        links.advance(500)
        assert (got(here), got(there)) == ([("orders/1", state.encode())], [("sensors/1", state.encode())])


def test_a_paused_link_that_connects_again_still_passes_nothing_on() -> None:
    a, b, links = pair(out=OUT, back=IN)
    here, there = client(a, "here", "orders/#", qos=1), client(b, "there", "sensors/#", qos=1)
    links.do(links.links.pause, "b")
    links.cut()
    here.publish("sensors/1", b"1", 1)
    there.publish("orders/1", b"1", 1)
    links.advance(90_000)
    assert links.link().status is State.PAUSED
    assert (got(here), got(there)) == ([], [])
    links.do(links.links.start, "b")
    links.advance(500)
    assert (got(here), got(there)) == ([("orders/1", b"1")], [("sensors/1", b"1")])


def test_an_acknowledgement_of_nothing_on_a_paused_link_is_the_other_end_s_fault() -> None:
    """Nothing has been sent on this connection yet."""
    other = Script(V5, present=True)
    a, links = scripted(other, out=OUT)
    links.do(links.links.pause, "b")
    links.cut()
    links.advance(2_000)
    other.end.codec.send(Ack(PacketType.PUBACK, [5]))
    other.end.say()
    links.run()
    assert "nothing was sent on this connection" in str(a.reported("link.lost")[-1])


def test_an_operator_deletes_the_queue() -> None:
    a, b, links = pair(route=OUT)
    there = client(b, "there", "#", qos=1)
    links.do(a.engine.operators.delete_queue, a.engine.queue("link.b.route"), with_messages=True)
    links.advance(5_000)
    assert links.link().status is State.RUNNING
    client(a, "here").publish("sensors/1", b"1", 1)
    links.run()
    assert got(there) == [("sensors/1", b"1")]


def test_silence_ends_the_connection() -> None:
    _a, _b, links = pair(link={"idle-timeout": "10s"}, route=OUT)
    session = links.wires["b"].session
    assert (session.send_interval, session.receive_timeout) == (10_000, 20_000)
    links.wires["b"].holding = True
    links.do(session.timed_out)
    assert "nothing was heard for 20000 ms" in links.link().error
    assert links.link().state is State.RETRYING


def test_a_client_cannot_have_the_identifier_of_a_link() -> None:
    a, _b, _links = pair(route=OUT)
    refused = MqttClient().over(SimCarrier(a)).connect(greeting("$link/b", clean=False))
    assert refused.code == 0x85


# -- another configuration ---------------------------------------------------------------------------------------------


def restarted(links: SimLinks, *, crash: bool = True, **routes: object) -> tuple[SimBroker, SimLinks]:
    """This broker begins again, with other routes; the other end goes on."""
    a, others = links.broker, dict(links.others)
    for wire in list(links.wires.values()):
        wire.peer.abort()
    if crash:
        a.files.crash()
    else:
        a.shut_down()
    again = SimBroker(linked(url="mqtt://b:1883", mqtt=routes), files=a.files, seed=a.seed + 1, now=a.now)
    found = SimLinks(again, others)
    return again, found


def test_a_route_that_is_no_more_leaves_what_waits_for_it() -> None:
    a, b, links = pair(kept=OUT, gone=OUT | {"topic": "doors/#"}, empty=OUT | {"topic": "empty"}, back=IN)
    links.cut(down=True)
    here = client(a, "here")
    here.publish("doors/1", b"1", 1)
    here.publish("sensors/1", b"2", 1)
    a, links = restarted(links, kept=OUT)
    links.down.add("b")
    assert len(held(a, "link.b.gone")) == len(held(a, "link.b.kept")) == 1
    assert "link.b.empty" not in a.engine.queues
    there = client(b, "there", "#", qos=1)
    links.down.clear()
    links.run()
    assert got(there) == [("sensors/1", b"2")]
    client(b, "t").publish("orders/1", b"x", 1)
    links.run()
    assert a.reported("mqtt.publish_dropped") == [], "the other end does not send it any more"


def test_a_route_with_other_topics_waits_for_what_its_queue_still_has() -> None:
    a, b, links = pair(route=OUT)
    links.cut(down=True)
    client(a, "here").publish("sensors/1", b"1", 1)
    a, links = restarted(links, route=OUT | {"topic": "doors/#"})
    links.run()
    assert links.route("route").state is State.RETRYING
    assert "link.b.route" in links.route("route").error
    links.do(a.engine.operators.delete_queue, a.engine.queue("link.b.route"), with_messages=True)
    links.advance(31_000)
    assert links.route("route").state is State.RUNNING
    there = client(b, "there", "#", qos=1)
    client(a, "here").publish("doors/1", b"2", 1)
    links.run()
    assert got(there) == [("doors/1", b"2")]


def test_a_link_that_is_no_more_leaves_its_queues() -> None:
    a, _b, links = pair(route=OUT)
    links.cut(down=True)
    client(a, "here").publish("sensors/1", b"1", 1)
    a.files.crash()
    again = SimBroker(configured(), files=a.files, seed=1, now=a.now)
    SimLinks(again, {})
    assert again.accepting.mqtt_sessions.of_links() == []
    assert len(held(again, "link.b.route")) == 1


# -- other brokers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_broker_of_an_earlier_version(hangs_up: bool) -> None:
    old = Script(V311, hangs_up=hangs_up)
    a, links = scripted(old, out=OUT, back=IN, both=BOTH)
    links.advance(9_000)
    assert old.connects == [V5, V311 | BRIDGE, V311, *([V5, V311] if hangs_up else [])]
    assert links.link().peer == "MQTT 3.1.1"
    states = {name: route.state for name, route in links.link().routes.items()}
    assert states == {"out": State.RUNNING, "back": State.RUNNING, "both": State.RETRYING}
    assert "would send all back" in links.route("both").error
    assert [each.subscriptions[0].filter.text for each in old.of(Subscribe)] == ["orders/#"]
    client(a, "here").publish("chat/1", b"1", 1)
    links.run()
    assert [each.topics for each in old.of(Publish)] == [["chat/1"]], "what goes out of it goes all the same"


def test_a_broker_that_knows_bridges() -> None:
    old = Script(V311, V311 | BRIDGE)
    _a, links = scripted(old, both=BOTH)
    links.advance(5_000)
    assert old.connects == [V5, V311 | BRIDGE]
    assert links.route("both").state is State.RUNNING
    [connect] = old.of(Connect)
    assert (connect.client_id, connect.clean_start, connect.keep_alive) == ("a.b", True, 60)


@pytest.mark.parametrize("starting", [1, 2, 3])
def test_one_that_hung_up_while_it_started_is_spoken_to_in_mqtt_5(starting: int) -> None:
    """An earlier version would carry no user properties, hops among them, and no expiry."""
    other = Script(V5, V311 | BRIDGE, V311)
    other.starting = starting
    _a, links = scripted(other, both=BOTH)
    links.advance(15_000)
    assert links.link().peer == "MQTT 5.0"
    assert (links.link().state, links.route("both").state) == (State.RUNNING, State.RUNNING)
    assert other.connects[-1] == V5


def test_a_topic_that_is_too_long_for_an_address_is_refused_by_itself() -> None:
    other = Script(V5)
    a, links = scripted(other, back=IN)
    here = client(a, "here", "#", qos=1)
    other.end.publish("orders/" + "x" * 65_528, b"1", 1, 1)
    other.end.publish("orders/1", b"2", 1, 2)
    links.run()
    assert [(each.packet_ids, each.reason_code) for each in other.of(Ack)] == [([1], 0x90), ([2], 0)]
    assert got(here) == [("orders/1", b"2")]
    assert (links.route("back").refused, links.link().state) == (1, State.RUNNING)


def test_properties_that_no_client_may_send_here_are_taken() -> None:
    other = Script(V5)
    _a, links = scripted(other, back=IN)
    pairs: Pairs = [(USER_PROPERTY, (f"k{number}", "v" * 3_000)) for number in range(300)]
    other.end.codec.send_publish(PublishHead(V5, "orders/1", qos=1, properties=Properties(pairs).raw), [b"1"], [1])
    other.end.say()
    links.run()
    assert [each.packet_ids for each in other.of(Ack)] == [[1]]
    assert (links.route("back").passed, links.link().state) == (1, State.RUNNING)


def test_properties_that_the_other_end_hangs_up_on_are_a_dead_letter() -> None:
    """The hop is one user property too many; what is behind it must not wait for ever."""
    a, b, links = pair(route=OUT)
    there, here = client(b, "there", "#", qos=1), client(a, "here")
    pairs: Pairs = [(USER_PROPERTY, (f"k{number}", "v")) for number in range(256)]
    here.publish("sensors/1", b"1", 1, properties=pairs)
    here.publish("sensors/2", b"2", 1)
    links.advance(5_000)
    assert got(there) == [("sensors/2", b"2")]
    [letter] = dead_letters(a)
    assert (letter.header.annotations or {})["_AMQ_DL_REASON"] == "too-large"


def test_an_unsuback_that_answers_nothing_frees_no_packet_identifier() -> None:
    other = Script(V5)
    other.silent.add(PacketType.PUBLISH)
    a, links = scripted(other, out=OUT)
    client(a, "here").publish("sensors/1", b"1", 1)
    links.run()
    [sent] = other.of(Publish)
    other.end.codec.send(Unsuback(sent.packet_ids[0], [0]))
    other.end.say()
    links.run()
    session = a.accepting.mqtt_sessions.get(LINK_SESSIONS + "b")
    assert session is not None
    assert len(session.in_flight.outgoing.ids) == 1, "it is still under way"


@pytest.mark.parametrize(("hangs_up", "then"), [(False, [V311 | BRIDGE]), (True, [V5, V311 | BRIDGE])])
def test_a_version_that_was_refused_is_not_tried_again(hangs_up: bool, then: list[int]) -> None:
    """One that was only hung up on is: the other broker may have been starting."""
    old = Script(V311, V311 | BRIDGE, hangs_up=hangs_up)
    _a, links = scripted(old, out=OUT)
    links.advance(5_000)
    old.connects.clear()
    links.cut()
    links.advance(5_000)
    assert old.connects == then


def test_it_is_asked_for_its_session_once_it_has_one() -> None:
    other = Script(V5)
    a, links = scripted(other, out=OUT)
    other.present = True
    links.cut()
    links.advance(5_000)
    assert [each.clean_start for each in other.of(Connect)] == [True, False]
    a.files.crash()
    again = SimBroker(a.config, files=a.files, seed=1, now=a.now)
    SimLinks(again, {"b": other}).run()
    assert other.of(Connect)[-1].clean_start is False
    expiry = other.of(Connect)[-1].properties.get(SESSION_EXPIRY_INTERVAL)
    assert expiry == FOR_EVER


@pytest.mark.parametrize("qos", [1, 2])
def test_an_other_end_that_has_lost_its_session(qos: int) -> None:
    """What it has not acknowledged is sent again; what it had is not; and its packet ids begin anew."""
    other = Script(V5)
    a, links = scripted(other, out=OUT | {"qos": qos}, back=IN | {"qos": qos})
    here = client(a, "reader", "orders/#", qos=2)
    other.silent = {PacketType.PUBCOMP, PacketType.PUBREL}  # neither exchange comes to its end
    other.end.publish("orders/1", b"first", qos, 1)
    client(a, "here").publish("sensors/1", b"1", qos)
    links.run()
    other.silent.add(PacketType.PUBLISH)
    client(a, "here").publish("sensors/1", b"2", qos)
    links.run()
    other.heard.clear()
    other.silent.clear()
    links.cut()
    links.advance(5_000)
    assert [each.payloads for each in other.of(Publish)] == [[b"2"]]
    assert [each.type for each in other.of(Ack)] == ([PacketType.PUBREL] if qos == 2 else []), "for 2, none for 1"
    other.end.publish("orders/1", b"second", qos, 1)
    links.run()
    assert [payload for _, payload in got(here)] == [b"first", b"second"]
    assert held(a, "link.b.out") == []


def test_messages_of_an_other_end_that_no_route_takes() -> None:
    other = Script(V5)
    a, links = scripted(other, back=IN)
    for qos in (0, 1, 2):
        other.end.publish("elsewhere/1", b"x", qos, 1 + qos if qos else 0)
    links.run()
    assert [(each.type, each.reason_code) for each in other.of(Ack)] == [
        (PacketType.PUBACK, 0x90),
        (PacketType.PUBREC, 0x90),
    ]
    assert "elsewhere" not in str(list(a.engine.addresses))
    assert links.link().status is State.RUNNING


def test_a_keep_alive_of_the_other_end_counts() -> None:
    b = SimBroker(with_mqtt(server_keep_alive=5_000))
    _a, _b, links = pair(there=b, route=OUT)
    session = links.wires["b"].session
    assert (session.send_interval, session.receive_timeout) == (5_000, 10_000)


def test_an_end_that_only_listens_is_asked_for_a_sign_of_life() -> None:
    other = Script(V5)
    a, links = scripted(other, link={"idle-timeout": "10s"}, route=OUT | {"qos": 0})
    here = client(a, "here")
    for _ in range(12):
        here.publish("sensors/1", b"x", 0)
        links.advance(1_000)
    assert len(other.of(Pingreq)) == 1


@pytest.mark.parametrize("direction", ["in", "out", "both"])
def test_a_ring_of_bridges_comes_to_an_end(direction: str) -> None:
    names = ("a", "b", "c")
    route = {"topic": "news/#", "direction": direction, "qos": 1}
    brokers = {
        name: SimBroker(linked(name=name, url=f"mqtt://{other}:1883", mqtt={"news": route}))
        for name, other in zip(names, "bca", strict=True)
    }
    ring = [SimLinks(brokers[name], {"b": brokers[other]}) for name, other in zip(names, "bca", strict=True)]
    for links in ring:
        links.advance(500)
    subscriber = client(brokers["a"], "subscriber", "news/#", qos=1)
    client(brokers["b"], "publisher").publish("news/1", b"x", 1)
    for links in ring * 12:
        links.advance(500)
    heard = len(got(subscriber))
    assert heard <= 5
    for links in ring * 12:
        links.advance(500)
    assert got(subscriber) == []


def test_a_shared_subscription_there_is_one_of_several_readers() -> None:
    a, b, links = pair(back=IN | {"topic": "$share/readers/orders/#"})
    here, other = client(a, "here", "#", qos=1), client(b, "other", "$share/readers/orders/#", qos=1)
    publisher = client(b, "publisher")
    for number in range(4):
        publisher.publish("orders/1", b"%d" % number, 1)
    links.run()
    assert links.route("back").state is State.RUNNING
    assert sorted(each.payload for each in [*here.take(), *other.take()]) == [b"0", b"1", b"2", b"3"]


def test_hops_are_counted_over_bridges_and_amqp_links_together() -> None:
    """By the bridge from a to b, by the AMQP link from b to c, by the bridge from c to d."""
    d = SimBroker(configured())
    c = SimBroker(linked(name="c", url="mqtt://d:1883", mqtt={"on": OUT}))
    kept = AddressSection.model_validate({"queues": {"kept": {"routing-type": "MULTICAST"}}})
    on = {"queue": "kept", "address": "sensors.1", "routing-type": "MULTICAST"}
    b = SimBroker(linked(name="b", url="amqp://c:5672", sections={"addresses": {"sensors.1": kept}}, send={"on": on}))
    from_c, from_b = SimLinks(c, {"b": d}), SimLinks(b, {"b": c})
    a, _, from_a = pair(there=b, on=OUT)
    reader = client(d, "reader", "sensors/#", qos=1)
    client(a, "sender").publish("sensors/1", b"20", 1)
    for links in (from_a, from_b, from_c):
        links.run()
    [found] = reader.take()
    hops = [value for name, value in found.properties.get_all(USER_PROPERTY) if name == HOPS]
    assert [each.split()[0] for each in hops] == ["a", "b", "c"]


def test_brokers_without_names_of_their_own_have_sessions_of_their_own() -> None:
    b = SimBroker(configured())
    there = client(b, "there", "sensors/#", qos=1)
    brokers = [SimBroker(linked(name="bartleby", url="mqtt://b:1883", mqtt={"on": OUT}), seed=each) for each in (1, 2)]
    both = [SimLinks(each, {"b": b}) for each in brokers]
    for links in both:
        links.run()
    ids = [f"bartleby-{each.engine.journal.broker_id.hex()[:8]}.b" for each in brokers]
    assert [links.link().client_id for links in both] == ids
    assert all(b.accepting.mqtt_sessions.get(each) is not None for each in ids)
    for each, links in zip(brokers, both, strict=True):
        client(each, "here").publish("sensors/1", b"x", 1)
        links.run()
    assert got(there) == [("sensors/1", b"x")] * 2
    assert all(links.link().connected for links in both)


@pytest.mark.parametrize(
    ("first", "stored", "then", "expected"),
    [
        ("bartleby", True, "bartleby", "bartleby-{id}.b"),
        ("bartleby", False, "bartleby", "bartleby.b"),  # an earlier version has logged in
        ("bartleby", True, "paris", "paris.b"),
        ("paris", True, "london", "london.b"),
        ("paris", True, "bartleby", "paris.b"),
    ],
)
def test_a_session_there_stays_in_use(first: str, stored: bool, then: str, expected: str) -> None:
    a = SimBroker(linked(name=first, url="mqtt://b:1883", mqtt={"on": OUT}))
    links = SimLinks(a, {"b": SimBroker(configured())})
    links.run()
    session = a.accepting.mqtt_sessions.get(LINK_SESSIONS + "b")
    assert session is not None
    assert session.other is not None
    assert session.other.kept
    if not stored:
        session.other.client_id = ""
        links.do(a.accepting.mqtt_sessions.note, session)
    a.files.crash()
    config = linked(name=then, url="mqtt://b:1883", mqtt={"on": OUT})
    again = SimLinks(SimBroker(config, files=a.files, seed=a.seed + 1, now=a.now), links.others)
    again.run()
    assert again.link().client_id == expected.format(id=a.engine.journal.broker_id.hex()[:8])
