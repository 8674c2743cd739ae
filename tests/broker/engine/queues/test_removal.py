"""How a message leaves: by name, once; its segment, its memory and its producers are given back."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.removal import remove
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, check_counters, reasons


def test_everything_is_given_back_with_the_last_queue(bench: Bench) -> None:
    engine = bench.enter()
    address = engine.configuration.declare("a", {RoutingType.MULTICAST})
    queues = [
        engine.configuration.declare_queue(address, name, RoutingType.MULTICAST, durable=True, selector="")
        for name in ("q1", "q2")
    ]
    messages = bench.sent("a", b"1", b"2", routing_type=None)
    space, segment = engine.journal.space, messages[0].segment
    assert (space.live(segment), address.size_messages, engine.usage.messages) == (2, 2, 2)
    for queue, left in zip(queues, (2, 0), strict=True):
        bench.enter()
        queue.clear()
        remove(engine._state, queue, messages, RemovalReason.EVICTED)
        bench.run()
        assert (space.live(segment), address.size_messages, engine.usage.messages) == (left, left, left)
    assert (address.size_bytes, engine.usage.bytes) == (0, 0)
    found = check_accounts(bench.broker)
    assert reasons(found["q1"]) == reasons(found["q2"]) == {RemovalReason.EVICTED: 2}


def test_messages_that_a_link_passed_on_were_not_consumed(bench: Bench) -> None:
    """However it is acknowledged: one by one, in a run, all at once, in a transaction; and an ordinary consumer's."""
    sent = bench.sent("a", b"1", b"2", b"3", b"4", b"5", b"6", b"7")
    link = bench.take("a", forwards=True, ack_mode=AckMode.INDIVIDUAL, window=6, counted=True)
    client = bench.take("a")
    assert (len(link.taken), len(client.taken)) == (6, 1)
    bench.ack(link, link.taken[0])
    consumers = bench.enter().consumers
    consumers.acknowledge_run(link.consumer, [message.id for message in link.taken[1:3]])
    bench.run()
    tx = bench.begin()
    bench.ack(link, link.taken[3], tx=tx)
    bench.commit(tx)
    bench.ack(client, *client.taken)
    bench.enter().consumers.acknowledge_all(link.consumer)
    bench.run()
    queue = bench.queue("a")
    assert (queue.counters.added, queue.left[RemovalReason.FORWARDED], queue.left[RemovalReason.CONSUMED]) == (7, 6, 1)
    found = check_accounts(bench.broker)["a"]
    assert reasons(found) == {RemovalReason.FORWARDED: 6, RemovalReason.CONSUMED: 1}
    assert {id for id, reason in found.left.items() if reason is RemovalReason.CONSUMED} == {client.taken[0].id}
    assert {message.id for message in sent} == found.left.keys()
    check_counters(bench.broker)


def test_delivery_counts_go_with_the_message() -> None:
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"})
    bench.sent("a", b"1", b"2")
    taker = bench.take("a")
    one, two = taker.taken
    bench.nack(taker, one)
    bench.ack(taker, one, two)
    queue = bench.queue("a")
    assert (queue.states, queue.journalled) == ({}, set())


def test_messages_of_a_deleted_address_on_a_wildcard_queue(bench: Bench) -> None:
    engine = bench.enter()
    engine.configuration.declare_queue(
        engine.configuration.declare("n.*", set()), "all", RoutingType.MULTICAST, durable=True, selector=""
    )
    messages = bench.sent("n.eu", b"1", routing_type=None)
    bench.enter()._state.registry.delete_address(engine.addresses["n.eu"])
    taker = bench.take("n.*::all", None)
    bench.ack(taker, *messages)
    assert engine.usage.messages == 0
    assert bench.restart().bodies("all") == []


def test_segments_go_when_all_in_them_is_gone(bench: Bench) -> None:
    space = bench.engine.journal.space
    for n in range(40):
        bench.sent("a", b"%d" % n * 2000)
        taker = bench.take("a")
        bench.ack(taker, *taker.taken)
        bench.close(taker, redelivery.CLOSED)
    assert len(space.segments) <= 3


def traffic(bench: Bench) -> None:
    """Enough that comes and goes to fill several segments."""
    for n in range(20):
        bench.sent("other", b"%d" % n * 2000)
        taker = bench.take("other")
        bench.ack(taker, *taker.taken)
        bench.close(taker, redelivery.CLOSED)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("what", ["consumed", "moved", "failed", "delayed", "released", "held", "tx"])
def test_records_about_a_message_stay_as_long_as_the_message(what: str, strict: bool) -> None:
    """The record that says so lies in a segment of its own, in which nothing else lives any more."""
    mode = "strict" if strict else "on-return"
    settings: dict[str, object] = {"match": "a", "delivery-count-persistence": mode}
    delayed: dict[str, object] = {**settings, "redelivery-delay": 3_600_000}
    bench = Bench(delayed if what in ("delayed", "released") else settings, retained=False)
    keep, subject = bench.sent("a", b"keep", b"subject")
    traffic(bench)
    taker = bench.take("a")
    traffic(bench)
    if what == "consumed":
        bench.ack(taker, subject)
    elif what == "moved":
        bench.nack(taker, subject, requeue=False)
    elif what in ("failed", "delayed"):
        bench.nack(taker, subject)
    elif what == "released":
        bench.enter().consumers.give_back(taker.consumer, subject.id, redelivery.RELEASED)
        bench.run()
    elif what == "tx":
        tx = bench.begin()
        bench.ack(taker, subject, tx=tx)
        bench.commit(tx)
    traffic(bench)
    if what != "held":
        bench.close(taker, redelivery.CLOSED)
    traffic(bench)
    assert len(bench.engine.journal.space.segments) <= 8
    bench = bench.restart()
    traffic(bench)
    bench = bench.restart()
    queue = bench.queue("a")
    counts = {m.body: queue.delivery_count(m.id) for m, _ in bench.engine.messages.browse(queue)}
    unharmed = {b"keep": int(what == "held" and strict)}
    expected = {"failed": 1, "delayed": 1, "released": 0, "held": int(strict)}
    assert counts == (unharmed | {b"subject": expected[what]} if what in expected else unharmed)
    places = {"delayed": "scheduled", "released": "scheduled", "failed": "ready", "held": "ready"}
    assert bench.places("a").get(b"subject") == places.get(what)
    if what == "moved":
        assert bench.bodies("DLQ") == [b"subject"]
    assert keep.segment


def test_a_transaction_that_acknowledges_after_its_queue_was_deleted() -> None:
    for commit in (True, False):
        bench = Bench()
        messages = bench.sent("a", b"1", b"2")
        taker = bench.take("a")
        engine = bench.enter()
        tx = engine.transactions.begin(object())
        engine.consumers.acknowledge(taker.consumer, messages[0].id, tx)
        engine.delete_queue(bench.queue("a"))
        bench.run()
        assert taker.closed == ["queue a was deleted"]
        if commit:
            bench.enter().transactions.commit(tx)
        else:
            bench.roll_back(tx)
        assert engine.usage.messages == 0
        assert "a" not in bench.restart().engine.queues
