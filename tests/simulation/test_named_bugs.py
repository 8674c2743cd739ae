"""Losses and duplications that other brokers had, by the names under which they became known."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import pytest

from store.record import RemovalReason
from tests.simulation.world import (
    SCALE,
    check_accounts,
    check_counters,
    counts,
    everything,
    held,
    reasons,
    small,
)
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import ServerFrame


def filled(broker: SimBroker, count: int, queue: str = "orders") -> list[bytes]:
    """Confirmed messages on a queue."""
    client = broker.connect()
    bodies = [b"%d" % n for n in range(count)]
    for body in bodies:
        client.confirmed(f"/queue/{queue}", body)
    client.drop()
    return bodies


# -- AMQ-7129: the acknowledgement of one message orphaned those before it ---------------------------------------------


@pytest.mark.parametrize("seed", range(20 * SCALE))
def test_amq_7129_a_random_subset_is_acknowledged(seed: int) -> None:
    random = Random(seed)
    broker = SimBroker(small(), seed=seed)
    bodies = filled(broker, 12)
    client = broker.connect()
    client.subscribe("/queue/orders")
    messages = client.messages()
    assert [message.body for message in messages] == bodies
    acknowledged = random.sample(messages, random.randrange(13))
    for message in acknowledged:
        client.ack(message, receipt="r")
    broker = broker.restart(crash=random.random() < 0.7)
    gone = {message.body for message in acknowledged}
    remaining = [body for body in bodies if body not in gone]
    assert held(broker, "orders") == remaining
    again = broker.connect()
    again.subscribe("/queue/orders", ack="auto")
    assert again.bodies() == remaining
    broker = broker.restart()
    assert held(broker, "orders") == []
    assert reasons(check_accounts(broker)["orders"]) == {RemovalReason.CONSUMED: 12}


# -- AMQ-6697, AMQ-6796: an abort after ACK left a stuck state; ACKs out of order in a transaction failed --------------


def settle(client: SimClient, message: ServerFrame, how: str) -> None:
    """One thing that can be done to a delivery within a transaction."""
    if how == "ack":
        client.ack(message, transaction="t")
    else:
        client.nack(message, transaction="t", requeue="true" if how == "nack" else "false")


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "DISCONNECT", "drop", "crash"])
@pytest.mark.parametrize("hows", [("ack", "ack", "ack"), ("ack", "nack", "dead"), ("dead", "ack", "nack")])
def test_amq_6697_6796_settlements_in_any_order_and_then_an_end(mode: str, end: str, hows: tuple[str, ...]) -> None:
    for order in permutations(range(3)):
        broker = SimBroker(small({"match": "orders", "max-delivery-attempts": 5}))
        bodies = filled(broker, 3)
        client = broker.connect()
        client.subscribe("/queue/orders", ack=mode)
        messages = client.messages()
        client.do("BEGIN", {"transaction": "t"})
        outcome: dict[bytes, str] = {}
        for at, how in zip(order, hows, strict=True):
            covered = [messages[at]] if mode == "client-individual" else messages[: at + 1]
            fresh = [m for m in covered if m.body not in outcome]
            if messages[at].body in outcome:
                continue  # a cumulative settlement covered it before
            settle(client, messages[at], how)
            outcome |= dict.fromkeys((m.body for m in fresh), how)
        assert not client.take("ERROR")
        if end in ("COMMIT", "ABORT"):
            client.do(end, {"transaction": "t", "receipt": "end"})
            assert client.take("RECEIPT")
        elif end == "DISCONNECT":
            client.do("DISCONNECT", {"receipt": "end"})
        elif end == "drop":
            client.drop()
        if end != "COMMIT":
            expected = dict.fromkeys(bodies, "ABORT" if end != "crash" else "crash")
        else:
            expected = {body: outcome.get(body, "held") for body in bodies}
        left = dict.fromkeys(bodies, end in ("DISCONNECT", "drop"))
        check(broker.restart(), expected, left)


def check(broker: SimBroker, expected: dict[bytes, str], left: dict[bytes, bool]) -> None:
    """What became of the messages after a power cut; `left`: they had left for a connection that ended."""
    bodies = list(left)
    failures = {"nack": 1, "ABORT": 1, "crash": 0, "held": 0}
    remaining = [body for body in bodies if expected[body] in failures]
    assert sorted(held(broker, "orders")) == sorted(remaining)
    assert counts(broker, "orders") == {body: failures[expected[body]] for body in remaining}
    assert held(broker, "DLQ") == [body for body in bodies if expected[body] == "dead"]
    client = broker.connect()
    client.subscribe("/queue/orders", ack="client")
    again = client.messages()
    assert {m.body: m.headers["redelivered"] for m in again} == {
        body: "true" if failures[expected[body]] or left[body] else "false" for body in remaining
    }
    if again:
        client.ack(again[-1], receipt="r")
        assert client.take("RECEIPT")
    assert held(broker, "orders") == []
    check_accounts(broker)
    check_counters(broker)


def test_amq_6697_a_client_goes_on_after_an_abort() -> None:
    broker = SimBroker(small())
    filled(broker, 2)
    client = broker.connect()
    client.subscribe("/queue/orders")
    for attempt in range(5):
        first, second = client.messages()
        assert first.headers["redelivered"] == ("true" if attempt else "false")
        client.do("BEGIN", {"transaction": "t"})
        client.ack(second, transaction="t")
        client.ack(first, transaction="t")
        client.do("ABORT", {"transaction": "t"})
    first, second = client.messages()
    assert counts(broker, "orders") == {b"0": 5, b"1": 5}
    client.ack(second)
    client.ack(first, receipt="r")
    assert client.take("RECEIPT")
    assert not client.take("ERROR")


# -- AMQ-6847: a message that was sent back from the dead letters and failed at once was taken for a duplicate ---------


def test_amq_6847_back_from_the_dead_letters_and_rejected_again() -> None:
    broker = SimBroker(small())
    bodies = filled(broker, 3)
    for _ in range(50 * SCALE):
        clerk = broker.connect()
        clerk.subscribe("/queue/orders")
        for message in clerk.messages():
            clerk.nack(message, requeue="false")
        clerk.drop()
        assert sorted(held(broker, "DLQ")) == bodies
        retry = broker.connect()
        retry.subscribe("/queue/DLQ")
        retry.do("BEGIN", {"transaction": "t"})
        for message in retry.messages():
            headers = {name: value for name, value in message.headers.items() if name.startswith("_AMQ_")}
            retry.send("/queue/orders", message.body, persistent="true", transaction="t", **headers)
            retry.ack(message, transaction="t")
        retry.do("COMMIT", {"transaction": "t"})
        retry.drop()
        assert everything(broker) == Counter(bodies)
    broker = broker.restart()
    assert sorted(held(broker, "orders")) == bodies
    found = check_accounts(broker)
    assert reasons(found["orders"]) == {RemovalReason.DEAD_LETTERED: 150 * SCALE}
    assert reasons(found["DLQ"]) == {RemovalReason.CONSUMED: 150 * SCALE}


# -- ARTEMIS-2649: a stale or forged origin made the filter of the dead-letter queue refuse the letter -----------------

_AUTOMATIC = {
    "match": "#",
    "dead-letter-address": "DLA",
    "auto-create-dead-letter-resources": True,
    "expiry-address": "EXP",
    "auto-create-expiry-resources": True,
    "max-delivery-attempts": 1,
}


def automatic() -> SimBroker:
    """A broker that makes a dead-letter queue for each address."""
    config = small()
    settings = tuple(s for s in config.address_settings if s.match != "#")
    return SimBroker(config.model_copy(update={"address_settings": settings + small(_AUTOMATIC).address_settings[-1:]}))


def test_artemis_2649_the_queue_of_a_dead_letter_does_not_depend_on_what_a_client_says() -> None:
    broker = automatic()
    client = broker.connect()
    client.confirmed("/queue/orders", b"1", _AMQ_ORIG_ADDRESS="elsewhere", _AMQ_DL_REASON="forged")
    client.subscribe("/queue/orders")
    client.nack(client.messages()[0])
    assert held(broker, "DLQ.orders") == [b"1"]
    broker = broker.restart()
    assert held(broker, "DLQ.orders") == [b"1"]


def test_artemis_2649_after_several_moves() -> None:
    """Dead, sent on by hand with all its headers, expired, sent on, dead again: each time in the right queue."""
    broker = automatic()
    client = broker.connect()
    client.confirmed("/queue/a", b"1")
    client.subscribe("/queue/a", id="a")
    client.nack(client.messages()[0])
    client.subscribe("DLA::DLQ.a", id="da")
    for step, (target, queue) in enumerate([("b", "DLQ.b"), ("c", "DLQ.c"), ("a", "DLQ.a")]):
        (letter,) = client.messages()
        headers = {name: value for name, value in letter.headers.items() if name.startswith("_AMQ_")}
        client.send(f"/queue/{target}", letter.body, persistent="true", **headers)
        client.ack(letter)
        if target != "a":
            client.subscribe(f"/queue/{target}", id=target)
        (message,) = client.messages()
        assert "_AMQ_ORIG_ADDRESS" not in message.headers
        client.nack(message)
        if queue != "DLQ.a":
            assert held(broker, queue) == [b"1"]
            client.subscribe(f"DLA::{queue}", id=f"d{step}")
    assert held(broker, "DLQ.a") == [b"1"]
    assert everything(broker.restart()) == {b"1": 1}


def test_artemis_2649_a_wildcard_queue_gets_a_letter_queue_for_the_message_s_own_address() -> None:
    broker = automatic()
    client = broker.connect(**{"client-id": "c"})
    client.subscribe("/topic/news.#", **{"durable-subscription-name": "all"})
    client.confirmed("/topic/news.eu", b"1")
    client.nack(client.messages()[0])
    assert held(broker, "DLQ.news.eu") == [b"1"]
    assert everything(broker.restart()) == {b"1": 1}


# -- ARTEMIS-5717, ARTEMIS-4450: nobody at the dead-letter address takes the letter ------------------------------------


def with_dead(**section: object) -> SimBroker:
    """A broker with such an address for the dead letters of `orders`."""
    config = small({"match": "orders", "dead-letter-address": "dead"})
    made = type(config.addresses["DLQ"]).model_validate(section)
    return SimBroker(config.model_copy(update={"addresses": {"dead": made}}))


RED = {"routing-type": "ANYCAST", "filter": "colour = 'red'"}


def dead_on(broker: SimBroker, queue: str = "orders") -> None:
    """One message dies."""
    client = broker.connect()
    client.confirmed(f"/queue/{queue}", b"1")
    client.subscribe(f"/queue/{queue}")
    client.nack(client.messages()[0], requeue="false")
    client.drop()


@pytest.mark.parametrize("routing_type", ["ANYCAST", "MULTICAST"])
def test_artemis_5717_whatever_the_routing_types_of_the_dead_letter_address(routing_type: str) -> None:
    broker = with_dead(**{"routing-types": [routing_type]})
    dead_on(broker)
    assert held(broker, "dead") == [b"1"]
    assert broker.reported("move.queue_created")
    assert everything(broker.restart()) == {b"1": 1}


def test_artemis_5717_a_queue_whose_filter_refuses_does_not_lose_the_letter() -> None:
    broker = with_dead(queues={"red": RED})
    dead_on(broker)
    assert held(broker, "red") == []
    assert held(broker, "dead") == [b"1"]
    assert everything(broker.restart()) == {b"1": 1}


def test_artemis_5717_a_letter_that_nobody_can_take_stays_where_it_is_and_says_so() -> None:
    """The queue that would be made exists already and its filter refuses."""
    broker = with_dead(queues={"dead": RED})
    dead_on(broker)
    assert broker.reported("move.no_queue")
    assert held(broker, "orders") == [b"1"]
    broker = broker.restart()
    assert held(broker, "orders") == [b"1"]
    assert counts(broker, "orders") == {b"1": 1}, "rejected, and its consumer does not get it again"
    check_accounts(broker)


def test_artemis_5717_a_subscriber_who_may_go_does_not_take_the_only_copy() -> None:
    """Somebody listens to the dead letters: their queue ends with the broker, the letter must not."""
    broker = SimBroker(small({"match": "orders", "dead-letter-address": "dead"}))
    watcher = broker.connect()
    watcher.subscribe("/topic/dead", ack="client-individual")
    dead_on(broker)
    assert watcher.bodies() == [b"1"]
    assert held(broker, "dead") == [b"1"]
    broker = broker.restart()
    assert held(broker, "dead") == [b"1"]


def test_artemis_4450_auto_delete_takes_no_queue_with_letters_in_it() -> None:
    gone = {"auto-delete-queues": True, "auto-delete-addresses": True}
    broker = SimBroker(small({"match": "orders", "dead-letter-address": "dead", **gone}, {"match": "dead", **gone}))
    dead_on(broker)
    broker.advance(3_600_000)
    assert "orders" not in broker.engine.queues
    assert held(broker, "dead") == [b"1"]
    assert everything(broker.restart()) == {b"1": 1}
