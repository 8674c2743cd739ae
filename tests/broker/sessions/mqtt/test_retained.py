"""Retained messages for new subscriptions: a few in each tick, never an old one behind what took its place."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from broker.engine.model.message import Message
from broker.engine.publish import retained_feed, retained_index
from broker.engine.publish.retained_index import RetainedIndex
from broker.engine.queues.steps import BUDGET
from protocols.mqtt.codes import V5, PacketType
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Subscribe, Subscription
from protocols.mqtt.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL
from store import decode
from tests.simulation.world import journal_records
from tests.support.mqtt_client import MqttClient, topic_filter, wish
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import configured


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimWorld:
    """Seven retained messages, two of which go out in a tick, and another one in the first."""
    monkeypatch.setattr(retained_feed, "SENT_COST", BUDGET // 2)
    sim = SimWorld(configured())
    producer = sim.connect("producer")
    for n in range(7):
        producer.publish(f"t/{n}", b"%d" % n, qos=1, retain=True)
    return sim


class Sending:
    """What is fed in each tick."""

    def __init__(self, world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ticks: list[int] = []  # messages in each
        self.then: dict[
            int, Callable[[], object]
        ] = {}  # what is done between two ticks, after so many messages at least
        self._publish = world.broker.engine.retained_feed._publish
        self._sent = 0
        monkeypatch.setattr(world.broker.engine.retained_feed, "_publish", self._count)
        world.broker.after_tick = self._between

    def _count(self, *of: Any) -> None:
        self._sent += 1
        self._publish(*of)

    def _between(self) -> None:
        if self._sent:
            self.ticks.append(self._sent)
            self._sent = 0
            for number in [number for number in self.then if number <= sum(self.ticks)]:
                self.then.pop(number)()


@pytest.fixture
def sending(world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """What the world sends."""
    return Sending(world, monkeypatch)


def payloads(client: MqttClient) -> list[bytes]:
    return [publish.payload for publish in client.take()]


def dropped(sim: SimWorld) -> list[object]:
    return [record for record in journal_records(sim.broker) if isinstance(record, decode.Dropped)]


def test_they_come_in_order_over_several_ticks(world: SimWorld, sending: Sending) -> None:
    client = world.connect("c")
    client.subscribe("t/1", qos=1)
    assert payloads(client) == [b"1"]
    assert sending.ticks == [1]
    client.subscribe("t/#", qos=1)
    assert payloads(client) == [b"%d" % n for n in range(7)]
    assert sending.ticks == [1, 3, 2, 2]


def test_a_thousand_filters_wait_without_a_list_of_their_messages(
    world: SimWorld, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One search is under way for each client, however many filters it has sent and however often."""
    client, index = world.connect("c"), world.broker.engine.retained._index
    monkeypatch.setattr(retained_index, "WALKED_MAX", 0)
    waiting: list[tuple[int, int]] = []

    def look() -> None:
        standing = sum(map(len, index._searches.values()))
        waiting.append((len(world.broker.engine.retained_feed), standing))

    sending.then = {n: look for n in range(1, 8)}
    filters = ["#", "+/#", "t/#", "+/+", "t/+", *[f"{'+/' * n}x" for n in range(2, 100)]]
    client.subscribe(*filters, qos=1)
    assert max(waiting) == (len(filters), 1)
    assert payloads(client) == [b"%d" % n for n in range(7)] * 5
    assert sending.ticks == [2] * 17 + [1], "the SUBSCRIBE itself has used up the first tick"
    assert not index._searches


def test_searches_that_find_nothing_take_ticks_too(world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand filters of 128 words took 144 ms, with no retained message at all."""
    monkeypatch.setattr(retained_feed, "SEARCHED_COST", BUDGET // 2)
    client = world.connect("c")
    before = world.broker.tick.ended
    client.subscribe(*[f"none/{n}" for n in range(20)])
    assert world.broker.tick.ended - before >= 10
    assert not world.broker.engine.retained_feed


def test_unsubscribing_ends_the_search(world: SimWorld, sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the compiled build, where one that nobody refers to any more does not end by itself."""
    monkeypatch.setattr(retained_index, "WALKED_MAX", 0)
    index, search, kept = world.broker.engine.retained._index, RetainedIndex.search, list[object]()

    def noted(*of: Any) -> Generator[Message | None, None, None]:
        found = search(*of)
        kept.append(found)
        return found

    monkeypatch.setattr(RetainedIndex, "search", noted)
    client = world.connect("c")
    sending.then[2] = lambda: client.unsubscribe("t/#")
    client.subscribe("t/#", qos=1)
    assert kept
    assert not index._searches


def test_clients_take_turns(world: SimWorld, sending: Sending) -> None:
    """One that asks for everything does not hold up one that asks for a single topic."""
    greedy, modest = world.connect("greedy"), world.connect("modest")
    done: list[int] = []
    sending.then = {1: lambda: modest.subscribe("t/1"), 5: lambda: done.append(len(modest.take()))}
    greedy.subscribe("t/#", "#")
    assert done == [1]
    assert len(payloads(greedy)) == 14


def test_messages_replaced_meanwhile_come_once_and_new(world: SimWorld, sending: Sending) -> None:
    client, producer = world.connect("c"), world.connect("p")

    def replaced() -> None:
        for topic, payload in (("t/5", b"new"), ("t/6", b"")):
            producer.codec.send_publish(PublishHead(V5, topic, retain=True), [payload])
        producer.settle()

    sending.then[2] = replaced
    client.subscribe("t/#", qos=1)
    got = payloads(client)
    assert got.count(b"new") == 1
    assert b"5" not in got
    assert b"6" not in got
    assert sorted(got)[:6] == [b"", b"0", b"1", b"2", b"3", b"4"]


def test_a_client_that_unsubscribes_meanwhile_gets_no_more(world: SimWorld, sending: Sending) -> None:
    client = world.connect("c")
    sending.then[2] = lambda: client.unsubscribe("t/#", "t/+")
    client.subscribe("t/#", "t/+", qos=0)
    assert sending.ticks == [3]
    assert not world.broker.engine.retained_feed


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_subscribes_again_meanwhile_gets_them_from_the_first_one(
    world: SimWorld, sending: Sending, qos: int
) -> None:
    client = world.connect("c")
    sending.then[3] = lambda: client.send(Subscribe(2, [wish("t/#", 1)]))
    client.send(Subscribe(1, [wish("t/#", qos)]))
    assert payloads(client) == [b"%d" % n for n in (*range(3), *range(7))]


def test_a_client_that_subscribes_again_without_them_gets_the_rest(world: SimWorld, sending: Sending) -> None:
    """Also if the subscription gets another queue, as the QoS rises [MQTT-3.8.4-3]."""
    client = world.connect("c", clean=False, expiry=FOR_EVER)
    again = Subscription(topic_filter("t/#"), 1, retain_handling=2)
    sending.then[3] = lambda: client.send(Subscribe(2, [again]))
    client.send(Subscribe(1, [wish("t/#", 0)]))
    assert [(publish.payload, publish.qos) for publish in client.take()][-4:] == [(b"%d" % n, 1) for n in range(3, 7)]


def test_unsubscribed_with_messages_in_flight_and_subscribed_again(world: SimWorld, sending: Sending) -> None:
    """The subscription that ended stays for what is in flight, but is sent no more."""
    client = world.connect("c", clean=False, expiry=FOR_EVER, auto=False)

    def again() -> None:
        client.unsubscribe("t/#")
        client.send(Subscribe(2, [Subscription(topic_filter("t/#"), 1, retain_handling=2)]))

    sending.then[1] = again
    client.send(Subscribe(1, [wish("t/#", 1)]))
    assert sending.ticks == [3]
    assert payloads(client)[:2] == [b"0", b"1"]


def test_a_session_that_returns_has_them_all(world: SimWorld, sending: Sending) -> None:
    """Those of QoS 1 go on to its queue while it is away; without acknowledgements they are sent again."""
    client = world.connect("c", clean=False, expiry=FOR_EVER, auto=False)
    sending.then[3] = client.drop
    client.send(Subscribe(1, [wish("t/#", 1)]))
    assert sending.ticks == [3, 2, 2]
    client = world.connect("c", clean=False, expiry=FOR_EVER)
    assert payloads(client) == [b"%d" % n for n in range(7)]


def test_at_most_once_they_end_with_the_connection(world: SimWorld, sending: Sending) -> None:
    client = world.connect("c", clean=False, expiry=FOR_EVER)
    sending.then[3] = client.drop
    client.send(Subscribe(1, [wish("t/#", 0)]))
    assert sending.ticks == [3, 1], "lost connections end at the end of a tick"
    assert not payloads(world.connect("c", clean=False, expiry=FOR_EVER))


def test_a_client_that_does_not_read_costs_the_others_nothing(world: SimWorld, sending: Sending) -> None:
    """Its messages wait on its queue, which has the limits of every queue."""
    client = world.connect("c", properties=[(RECEIVE_MAXIMUM, 1)], auto=False)
    client.subscribe("t/#", qos=1)
    assert len(client.take()) == 1
    assert sending.ticks == [3, 2, 2]
    other = world.subscriber("other", "t/6", qos=1)
    assert payloads(other) == [b"6"]


def test_a_full_address_refuses_what_is_retained_and_the_log_says_so() -> None:
    """Retained messages count for the broker's own address, their copies for the topic."""
    sim = SimWorld(configured({"match": "t.#", "max-size-messages": 1, "address-full-policy": "FAIL"}))
    producer, away = sim.connect("producer"), sim.connect("away", clean=False, expiry=60)
    producer.publish("t/1", b"1", qos=1, retain=True)
    producer.publish("u/1", b"2", qos=1, retain=True)
    away.subscribe("t/1", qos=1)
    assert payloads(away) == [b"1"]
    away.drop()
    producer.publish("t/1", b"waits", qos=1)
    client = sim.subscriber("c", "t/#", qos=1)
    client.subscribe("u/#", qos=1)
    assert payloads(client) == [b"2"]
    assert [fields["filter"] for code, fields in sim.broker.reports if code == "mqtt.retained_unsent"] == ["t/#"]


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_retained_for_later_subscribers_are_not_unroutable(qos: int) -> None:
    sim = SimWorld(configured())
    client = sim.connect("c")
    for payload in (b"first", b"second", b"", b""):  # replaced, cleared, and cleared again
        client.publish("t", payload, qos=qos, retain=True)
    state = sim.broker.engine._state
    assert state.totals.unrouted == 0
    assert not dropped(sim)
    client.publish("t", b"lost", qos=qos)
    assert state.totals.unrouted == 1
    assert len(dropped(sim)) == qos, "messages of QoS 0 have no record"


def test_messages_that_cannot_be_retained_are_unroutable() -> None:
    sim = SimWorld(configured())
    sim.broker.engine.retained.messages_max = 0
    sim.connect("c").publish("t", b"lost", retain=True)
    assert sim.broker.engine._state.totals.unrouted == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_on_a_full_disk_the_answer_says_what_became_of_it(qos: int) -> None:
    """What is answered with an error is neither retained nor cleared."""
    sim = SimWorld(configured())
    broker, files = sim.broker, sim.broker.files
    reader = sim.connect("reader", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)])
    reader.subscribe("#", qos=qos)
    reader.drop()
    producer = sim.connect("producer")
    for n in range(300):
        producer.publish(f"t/{n}", b"x", qos=1, retain=True)
    files.capacity = files.used()
    refused = 0
    while refused < 30:  # smaller and smaller ones, until hardly anything fits
        refused += not sent(producer, "ballast", bytes(3_000 // (refused + 1)), qos)
    for n in range(300):
        kept = sent(producer, f"n/{n}", bytes(n), qos, retain=True)
        assert kept is (broker.engine.retained.get(f"n.{n}") is not None)
    cleared = [sent(producer, f"t/{n}", b"", qos, retain=True) for n in range(300)]
    assert cleared == [broker.engine.retained.get(f"t.{n}") is None for n in range(300)]
    assert True in cleared, "there is a reserve for that"
    files.capacity = None
    sim.advance(10)
    assert all(sent(producer, f"t/{n}", b"", qos, retain=True) for n in range(300))
    assert broker.engine.retained.messages == sum(map(bool, [broker.engine.retained.get(f"n.{n}") for n in range(300)]))


def sent(client: MqttClient, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> bool:
    """Whether the broker accepts a message."""
    client.publish(topic, payload, qos=qos, retain=retain)
    code = client.replies(PacketType.PUBACK if qos == 1 else PacketType.PUBREC)[-1][1]
    client.replies(PacketType.PUBCOMP)
    return code in (0, 0x10)
