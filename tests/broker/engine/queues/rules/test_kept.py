"""Non-destructive queues: everybody gets everything, and it stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.errors import AlreadyInUse
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues.consumer import AckMode
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker
from tests.broker.engine.queues.rules.queues import grouped, put, without_scans


def test_everybody_gets_everything_once_and_it_stays(bench: Bench) -> None:
    queue = bench.declare(non_destructive=True)
    put(bench, "q", b"1", b"2")
    first = bench.take("q")
    assert first.take() == [b"1", b"2"]
    second = bench.take("q", selector="AMQPriority > 4")
    put(bench, "q", b"3")
    put(bench, "q", b"4", priority=9)
    assert (first.take(), second.take()) == ([b"3", b"4"], [b"4"])
    assert bench.places("q") == {b"1": "ready", b"2": "ready", b"3": "ready", b"4": "ready"}
    assert queue.delivering == 0
    assert bench.left("q") == {}
    assert bench.take("q").take() == [b"4", b"1", b"2", b"3"]


@pytest.mark.parametrize("ack_mode", list(AckMode))
def test_outcomes_of_consumers_change_nothing(ack_mode: AckMode) -> None:
    bench = Bench({"match": "q", "max-delivery-attempts": 1})
    queue = bench.declare(non_destructive=True)
    taker = bench.take("q", ack_mode=ack_mode)
    messages = put(bench, "q", *[b"%d" % n for n in range(6)])
    engine = bench.enter()
    if ack_mode is AckMode.CUMULATIVE:
        engine.consumers.acknowledge(taker.consumer, messages[2].id)
    else:
        engine.consumers.acknowledge(taker.consumer, messages[0].id)
        bench.nack(taker, messages[1])
        bench.nack(taker, messages[2], requeue=False)
    tx = engine.transactions.begin(object())
    bench.ack(taker, messages[3], tx=tx)
    bench.commit(tx)
    tx = bench.begin()
    bench.ack(taker, messages[4], tx=tx)
    bench.roll_back(tx)
    bench.close(taker, redelivery.LOST)
    assert len(bench.bodies("q")) == 6
    assert queue.left[RemovalReason.CONSUMED] == 0
    assert bench.left("q") == {}


def test_a_message_that_a_consumer_no_longer_wants_does_not_bring_the_others_again(bench: Bench) -> None:
    bench.declare(non_destructive=True)
    taker = bench.take("q", window=600)
    messages = put(bench, "q", b"1", b"2", b"3", b"4")
    assert taker.take() == [b"1", b"2", b"3"]
    bench.enter().consumers.give_back(taker.consumer, messages[0].id, replace(redelivery.CLOSED, excluded=True))
    bench.run()
    bench.ack(taker, *messages[1:3])
    assert taker.take() == [b"4"]


def test_the_window_opens_with_acknowledgements(bench: Bench) -> None:
    bench.declare(non_destructive=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"1", b"2")
    assert taker.take() == [b"1"]
    bench.enter().consumers.acknowledge_all(taker.consumer)
    bench.run()
    assert taker.take() == [b"2"]


def test_messages_leave_by_expiry_and_by_an_operator(bench: Bench) -> None:
    queue = bench.declare(non_destructive=True)
    taker = bench.take("q")
    put(bench, "q", b"brief", expiration=bench.broker.now + 10)
    (kept,) = put(bench, "q", b"kept")
    put(bench, "q", b"purged")
    assert taker.take() == [b"brief", b"kept", b"purged"]
    bench.broker.advance(60_000)
    assert bench.bodies("q") == [b"kept", b"purged"]
    assert bench.bodies("ExpiryQueue") == [b"brief"]
    bench.ack(taker, kept)
    bench.enter().messages.purge(queue)
    bench.run()
    assert bench.bodies("q") == []
    assert bench.left("q") == {"expired": 1, "purged": 2}


def test_a_message_that_has_expired_is_not_shown() -> None:
    bench = without_scans()
    bench.declare(non_destructive=True)
    put(bench, "q", b"brief", expiration=bench.broker.now + 10)
    put(bench, "q", b"kept")
    bench.broker.now += 20
    assert bench.take("q").take() == [b"kept"]
    assert bench.take("q").take() == [b"kept"]
    assert bench.left("q") == {"expired": 1}


@pytest.mark.parametrize("others", [b"", b"kept"])
def test_a_message_that_has_expired_is_shown_to_none_of_several(others: bytes) -> None:
    """It is in the run of each, and expires once."""
    bench = without_scans()
    bench.declare(non_destructive=True)
    put(bench, "q", b"brief", expiration=bench.broker.now + 10)
    if others:
        put(bench, "q", others, expiration=bench.broker.now + 1_000)
    bench.broker.now += 20
    takers = [bench.attach(Taker(), "q") for _ in range(2)]
    bench.run()
    assert [taker.take() for taker in takers] == [[others] if others else []] * 2
    assert bench.left("q") == {"expired": 1}
    assert bench.queue("q").expiring == bool(others)


def test_last_values_that_stay(bench: Bench) -> None:
    """The seeds' 4.9.6: everybody always finds the newest value of every key."""
    bench.declare(non_destructive=True, last_value=True)
    taker = bench.take("q")
    for n in range(3):
        put(bench, "q", b"a%d" % n, key="a")
        put(bench, "q", b"b%d" % n, key="b")
    assert taker.take() == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    assert bench.take("q").take() == [b"a2", b"b2"]
    bench = bench.restart()
    assert bench.take("q").take() == [b"a2", b"b2"]
    assert bench.left("q") == {"replaced": 4}


def test_a_ring_that_stays(bench: Bench) -> None:
    bench.declare(non_destructive=True, ring_size=2)
    first = bench.take("q", window=0)
    for n in range(4):
        put(bench, "q", b"%d" % n)
    assert (first.take(), bench.take("q").take()) == ([b"0"], [b"2", b"3"])
    bench.ack(first, first.consumer.unacked[min(first.consumer.unacked)])
    assert first.take() == [b"2"]
    assert bench.left("q") == {"evicted": 2}


def test_exclusive_and_groups(bench: Bench) -> None:
    bench.declare(non_destructive=True)
    takers = [bench.take("q"), bench.take("q")]
    grouped(bench, "q", "A", b"A0")
    assert [taker.take() for taker in takers] == [[b"A0"], [b"A0"]], "everybody gets everything, groups or not"
    bench.declare("x", non_destructive=True, exclusive=True)
    takers = [bench.take("x"), bench.take("x")]
    put(bench, "x", b"1")
    assert [taker.take() for taker in takers] == [[b"1"], []]
    bench.close(takers[0], redelivery.CLOSED)
    assert takers[1].take() == [b"1"]


def test_many_messages_in_runs() -> None:
    bench = Bench(segment_bytes=4 << 20)
    bench.declare(non_destructive=True)
    takers = [bench.take("q", priority=n) for n in range(3)]
    bodies = [b"%d" % n for n in range(5000)]
    put(bench, "q", *bodies, durable=False)
    assert [taker.take() for taker in takers] == [bodies] * 3


def test_no_counts_in_the_strict_mode() -> None:
    bench = Bench({"match": "q", "delivery-count-persistence": "strict"})
    bench.declare(non_destructive=True)
    put(bench, "q", b"1")
    assert bench.take("q").take() == [b"1"]
    bench = bench.restart()
    assert bench.queue("q").states == {}


def test_deleting_it_with_consumers(bench: Bench) -> None:
    queue = bench.declare(non_destructive=True)
    taker = bench.take("q")
    put(bench, "q", b"1", b"2")
    bench.enter().delete_queue(queue)
    bench.run()
    assert taker.closed
    assert bench.engine.usage.messages == 0


def test_moving_messages_away(bench: Bench) -> None:
    bench.declare(non_destructive=True)
    bench.declare("other")
    taker = bench.take("q")
    put(bench, "q", b"1", b"2")
    assert bench.enter().messages.move(bench.queue("q"), "other", MessageRange()).moved == 2
    bench.run()
    bench.ack(taker, *taker.taken)
    assert bench.bodies("other") == [b"1", b"2"]
    assert bench.left("q") == {"moved": 2}


def test_it_changes_only_while_nobody_consumes(bench: Bench) -> None:
    bench.declare()
    put(bench, "q", b"1")
    taker = bench.take("q")
    with pytest.raises(AlreadyInUse, match="is in use"):
        bench.change("q", non_destructive=True)
    bench.close(taker, redelivery.CLOSED)
    assert bench.change("q", non_destructive=True)
    takers = [bench.take("q"), bench.take("q")]
    assert [taker.take() for taker in takers] == [[b"1"], [b"1"]]
    for taker in takers:
        bench.close(taker, redelivery.CLOSED)
    assert bench.change("q", non_destructive=False)
    taker = bench.take("q")
    bench.ack(taker, *taker.taken)
    assert bench.left("q") == {"consumed": 1}
