"""MQTT bridges to and from addresses that are full: the link goes on, and nothing is lost or overtaken."""

from __future__ import annotations

from typing import Any

import pytest

from broker.net.listener import CHECK_PERIOD_MS
from broker.sessions.links.bridge_receiver import BridgeReceiver
from broker.sessions.links.model import State
from protocols.mqtt.codes import V5, V311, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Ack, Publish, Suback, Subscribe
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.broker.sessions.links.bridges import Script, client, pair
from tests.support.interpreted import interpreted
from tests.support.mqtt_world import FOR_EVER
from tests.support.sim_broker import SimBroker
from tests.support.sim_links import SimLinks, linked

OUT = {"topic": "sensors/#", "direction": "out", "qos": 1}
IN = {"topic": "orders/#", "direction": "in", "qos": 1}
FULL: dict[str, object] = {"match": "orders.full", "max-size-messages": 2}
FAILING: dict[str, object] = FULL | {"address-full-policy": "FAIL"}
BLOCKING: dict[str, object] = FULL | {"address-full-policy": "BLOCK"}
LASTING: dict[str, Any] = {"qos": 1, "clean": False, "properties": [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]}


def with_slow_reader(script: Script, **routes: object) -> tuple[SimBroker, SimLinks]:
    """A broker with a link to a scripted one, whose address `orders.full` has room for two messages, and no reader."""
    a = SimBroker(linked(FAILING, url="mqtt://b:1883", mqtt=routes))
    links = SimLinks(a, {"b": script})
    links.run()
    client(a, "slow", "orders/full", **LASTING).drop()
    return a, links


def come(script: Script, links: SimLinks, qos: int, *numbers: int, dup: bool = False) -> None:
    """The other end publishes these, all in one."""
    codec = script.end.codec
    for n in numbers:
        codec.send_publish(PublishHead(codec.version, "orders/full", qos=qos, dup=dup), [b"%d" % n], [n])
    script.end.say()
    links.run()


def acked(script: Script, kind: PacketType) -> list[int]:
    """The packet identifiers that the link has acknowledged so, and refused none."""
    assert all(each.reason_code == 0 for each in script.of(Ack))
    return [id for each in script.of(Ack) if each.type is kind for id in each.packet_ids]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_full_address_here_stops_neither_what_goes_out_nor_other_topics(policy: str, qos: int) -> None:
    """Nothing is lost, doubled or overtaken, and the connection ends only to ask for what was kept."""
    full = FULL | {"address-full-policy": policy}
    a, b, links = pair(full, link={"window": 20}, back=IN | {"qos": qos}, route=OUT | {"qos": qos})
    client(a, "slow", "orders/full", **LASTING).drop()
    reader, there = client(a, "reader", "orders/other", **LASTING), client(b, "there", "sensors/#", **LASTING)
    here, far = client(a, "here"), client(b, "far")
    for n in range(5):
        far.publish("orders/full", b"%d" % n, qos)
    links.advance(500)
    assert links.link().state is State.RUNNING
    route = links.route("back")
    if policy == "FAIL":
        assert (route.state, route.passed) == (State.RETRYING, 2)
        assert "address orders.full is full" in route.error
    for n in range(50):
        here.publish("sensors/1", b"%d" % n, qos)
        links.run()
    far.publish("orders/other", b"x", qos)
    links.advance(120_000)
    assert there.payloads() == [b"%d" % n for n in range(50)]
    assert reader.payloads() == [b"x"]
    slow = client(a, "slow", **LASTING)
    taken = []
    for _ in range(4):
        links.advance(5_000)
        taken += slow.payloads()
    assert taken == [b"%d" % n for n in range(5)]
    assert route.state is State.RUNNING
    rounds = 2 if policy == "FAIL" else 0  # of two messages each
    assert [len(a.reported(code)) for code in ("link.route_waiting", "link.lost")] == [rounds, rounds]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize(("qos", "kind"), [(1, PacketType.PUBACK), (2, PacketType.PUBREC)])
def test_taken_messages_are_acknowledged_and_later_ones_wait_for_the_others(
    qos: int, kind: PacketType, version: int
) -> None:
    other = Script(version)
    a, links = with_slow_reader(other, back=IN | {"qos": qos})
    links.advance(5_000)  # 3.1.1 takes more attempts
    come(other, links, qos, 1, 2, 3)
    assert acked(other, kind) == [1, 2]
    slow = client(a, "slow", **LASTING)
    assert slow.payloads() == [b"1", b"2"]
    come(other, links, qos, 4)
    assert acked(other, kind) == [1, 2], "3 is to come first"
    other.present = True
    links.advance(3_000)
    assert links.link().state is State.RUNNING
    assert "there is room again" in str(a.reported("link.lost"))
    come(other, links, qos, 3, 4, dup=True)
    assert slow.payloads() == [b"3", b"4"]
    assert acked(other, kind) == [1, 2, 3, 4]


def test_messages_without_room_before_the_subscription_is_answered_are_requested_too() -> None:
    other = Script(V5)
    a, links = with_slow_reader(other, back=IN)
    come(other, links, 1, 1, 2)
    links.cut()
    other.present = True
    other.silent.add(PacketType.SUBSCRIBE)
    links.advance(2_000)
    come(other, links, 1, 3)
    assert links.route("back").state is State.RETRYING
    [asked] = [each.packet_id for each in other.of(Subscribe)[1:]]
    other.end.codec.send(Suback(asked, [1]))
    other.end.say()
    links.run()
    assert links.route("back").state is State.RETRYING
    other.silent.clear()
    slow = client(a, "slow", **LASTING)
    assert slow.payloads() == [b"1", b"2"]
    links.advance(5_000)
    assert "there is room again" in str(a.reported("link.lost"))
    come(other, links, 1, 3, dup=True)
    assert slow.payloads() == [b"3"]


@pytest.mark.parametrize("paused", [False, True])
def test_messages_under_way_out_end_before_the_other_end_is_asked_again(paused: bool) -> None:
    other = Script(V5)
    a, links = with_slow_reader(other, back=IN, route=OUT)
    come(other, links, 1, 1, 2, 3)
    other.silent.add(PacketType.PUBLISH)
    here = client(a, "here")
    here.publish("sensors/1", b"1", 1)
    client(a, "slow", **LASTING)
    links.advance(3_000)
    assert a.reported("link.lost") == []
    if paused:
        links.do(links.links.pause, "b")
        links.do(links.links.start, "b")
    here.publish("sensors/1", b"2", 1)
    links.run()
    [first] = other.of(Publish)
    other.silent.clear()
    other.present = True
    other.end.codec.send(Ack(PacketType.PUBACK, first.packet_ids))
    other.end.say()
    links.advance(500)
    assert len(a.reported("link.lost")) == 1
    links.advance(2_000)
    assert [each.payloads for each in other.of(Publish)] == [[b"1"], [b"2"]]


def test_an_end_that_acknowledges_nothing_is_asked_again_after_the_longest_time_between_attempts() -> None:
    other = Script(V5)
    a, links = with_slow_reader(other, back=IN, route=OUT)
    come(other, links, 1, 1, 2, 3)
    other.silent.add(PacketType.PUBLISH)
    client(a, "here").publish("sensors/1", b"1", 1)
    client(a, "slow", **LASTING)
    links.advance(29_000)
    assert a.reported("link.lost") == []
    links.advance(5_000)
    assert len(a.reported("link.lost")) == 1


@interpreted
def test_messages_refused_again_and_again_are_requested_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, where nobody knows before it comes whether there is room."""
    monkeypatch.setattr(BridgeReceiver, "has_room", lambda *_: True)
    other = Script(V5)
    a, links = with_slow_reader(other, back=IN)
    come(other, links, 1, 1, 2)
    end = None
    for _ in range(120_000 // CHECK_PERIOD_MS):
        if links.link().state is State.RUNNING and other.end is not end:
            end = other.end
            come(other, links, 1, 3)
        links.advance(CHECK_PERIOD_MS)
    assert 6 <= len(a.reported("link.lost")) <= 9, "after 1 s, 2 s, 4 s, ... 30 s"


@interpreted
def test_more_full_topics_than_a_link_remembers_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.sessions.links.bridge_receiver.TOPICS_REMEMBERED_MAX", 1)
    full = {"match": "orders.#", "max-size-messages": 1, "address-full-policy": "FAIL"}
    a, b, links = pair(full, back=IN)
    client(a, "slow", "orders/#", **LASTING).drop()
    far = client(b, "far")
    for topic in ("orders/1", "orders/2"):
        for payload in (b"1", b"2"):
            far.publish(topic, payload, 1)
            links.run()
    assert "full" in links.link().error
    assert len(a.reported("link.lost")) == 1


def test_a_large_message_that_finds_no_room_waits_there() -> None:
    a, b, links = pair(FAILING, back=IN, route=OUT)
    client(a, "slow", "orders/full", **LASTING).drop()
    there = client(b, "there", "sensors/#", qos=1)
    far = client(b, "far")
    large = bytes(2 << 20)
    for payload in (b"1", b"2", large):
        far.publish("orders/full", payload, 1)
        links.run()
    client(a, "here").publish("sensors/1", b"x", 1)
    links.run()
    assert there.payloads() == [b"x"]
    assert (links.link().state, links.route("back").state) == (State.RUNNING, State.RETRYING)
    slow = client(a, "slow", **LASTING)
    links.advance(3_000)
    assert slow.payloads() == [b"1", b"2", large]


def test_a_refusal_that_was_held_back_when_the_connection_ended_is_said_on_the_next_one() -> None:
    """[MQTT-4.3.3-9].  Acknowledgements wait while an address blocks; the other end has heard of none."""
    other = Script(V5, present=True)
    a = SimBroker(linked(BLOCKING, url="mqtt://b:1883", mqtt={"back": IN | {"qos": 2}}))
    links = SimLinks(a, {"b": other})
    links.run()
    client(a, "slow", "orders/full", **LASTING).drop()
    come(other, links, 2, 1, 2, 3)
    other.end.publish("strange", b"x", 2, 9)
    links.run()
    links.cut()
    client(a, "slow", **LASTING)
    links.advance(3_000)
    other.heard.clear()
    other.end.publish("strange", b"x", 2, 9, dup=True)
    links.run()
    assert [(each.packet_ids, each.reason_code) for each in other.of(Ack)] == [([9], 0x90)]


def test_a_link_that_is_paused_and_started_still_waits() -> None:
    a, b, links = pair(FAILING, back=IN)
    client(a, "slow", "orders/full", **LASTING).drop()
    far = client(b, "far")
    for n in range(3):
        far.publish("orders/full", b"%d" % n, 1)
    links.run()
    for verb in (links.links.pause, links.links.start):
        links.do(verb, "b")
    assert (links.route("back").state, links.link().state) == (State.RETRYING, State.RUNNING)
    slow = client(a, "slow", **LASTING)
    links.advance(3_000)
    assert slow.payloads() == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("qos", "size", "taken"), [(0, 1, 1), (1, 60_000, 70), (1, 2 << 20, 0)])
def test_messages_without_a_window_or_too_many_stop_the_reading_while_an_address_blocks(
    qos: int, size: int, taken: int
) -> None:
    a, b, links = pair(BLOCKING, back=IN)
    client(a, "slow", "orders/full", **LASTING).drop()
    reader = client(a, "reader", "orders/other", qos=1)
    far = client(b, "far")
    for n in range(3):
        far.publish("orders/full", b"%d" % n, 1)
        links.run()
    for n in range(80):
        far.publish("orders/other", bytes([n]) * size, qos)
        links.run()
    before = [each[0] for each in reader.payloads()]
    assert before == list(range(taken))
    assert client(a, "slow", **LASTING).payloads() == [b"0", b"1", b"2"]
    links.run()
    assert before + [each[0] for each in reader.payloads()] == list(range(80))
