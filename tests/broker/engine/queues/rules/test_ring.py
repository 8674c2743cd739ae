"""Ring queues: the oldest leave for the newest."""

from __future__ import annotations

import pytest

from broker.engine.delivery.dispatch import RUN_MESSAGES_MAX
from broker.engine.delivery.redelivery import CLOSED
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.rules.queues import put


def test_the_oldest_leaves_for_the_newest(bench: Bench) -> None:
    """The seeds' example: A, B, C and D on a ring of three."""
    bench.declare(ring_size=3)
    for body in (b"A", b"B", b"C"):
        put(bench, "q", body)
    assert bench.bodies("q") == [b"A", b"B", b"C"]
    put(bench, "q", b"D")
    assert bench.bodies("q") == [b"B", b"C", b"D"]
    assert bench.left("q") == {"evicted": 1}


def test_a_run_longer_than_the_ring(bench: Bench) -> None:
    bench.declare(ring_size=3)
    put(bench, "q", b"0")
    put(bench, "q", *[b"%d" % n for n in range(1, 8)])
    assert bench.bodies("q") == [b"5", b"6", b"7"]


def test_messages_that_consumers_take_at_once_are_not_evicted(bench: Bench) -> None:
    bench.declare(ring_size=2)
    taker = bench.take("q")
    bodies = [b"%d" % n for n in range(50)]
    put(bench, "q", *bodies)
    assert taker.take() == bodies
    assert bench.left("q") == {}


def test_the_head_of_the_line_is_what_would_be_delivered_next(bench: Bench) -> None:
    bench.declare(ring_size=2)
    put(bench, "q", b"low", priority=1)
    put(bench, "q", b"high", priority=9)
    put(bench, "q", b"low again", priority=1)
    assert bench.bodies("q") == [b"low", b"low again"]


def test_seeds_4_12_2_1_in_delivery_messages_and_rollbacks(bench: Bench) -> None:
    queue = bench.declare(ring_size=3)
    taker = bench.take("q")
    for n in range(1, 4):
        put(bench, "q", b"%d" % n)
    assert (queue.message_count, queue.delivering) == (3, 3)
    put(bench, "q", b"4")
    assert (queue.message_count, queue.delivering) == (4, 4)
    bench.close(taker, CLOSED)
    assert bench.bodies("q") == [b"2", b"3", b"4"]
    assert bench.left("q") == {"evicted": 1}


def test_seeds_4_12_2_2_scheduled_messages(bench: Bench) -> None:
    queue = bench.declare(ring_size=3)
    minute = 60_000
    put(bench, "q", b"A", scheduled=bench.broker.now + 5 * minute)
    assert (queue.message_count, len(queue.scheduled)) == (1, 1)
    for n, body in enumerate((b"B", b"C", b"D"), 2):
        bench.broker.advance(minute)
        put(bench, "q", body)
        assert (queue.message_count, len(queue.scheduled)) == (n, 1)
    bench.broker.advance(2 * minute)
    assert bench.bodies("q") == [b"B", b"C", b"D"]
    assert bench.left("q") == {"evicted": 1}


def test_the_vector_m1_to_m5_with_m1_in_delivery(bench: Bench) -> None:
    bench.declare(ring_size=3)
    taker = bench.take("q", window=0)
    for n in range(1, 6):
        put(bench, "q", b"m%d" % n)
    assert bench.bodies("q") == [b"m1", b"m3", b"m4", b"m5"], "the first of which is with the consumer"
    taker.consumer.paused = True
    bench.nack(taker, taker.taken[0])
    assert bench.bodies("q") == [b"m3", b"m4", b"m5"]


def test_rollback_of_a_transaction(bench: Bench) -> None:
    bench.declare(ring_size=2)
    taker = bench.take("q", window=0)
    put(bench, "q", b"1")
    tx = bench.begin()
    bench.ack(taker, taker.taken[0], tx=tx)
    taker.consumer.paused = True
    put(bench, "q", b"2", b"3")
    bench.roll_back(tx)
    assert bench.places("q") == {b"2": "ready", b"3": "ready"}
    assert bench.left("q") == {"evicted": 1}


@pytest.mark.parametrize("crash", [True, False])
def test_after_a_restart(bench: Bench, crash: bool) -> None:
    bench.declare(ring_size=3)
    taker = bench.take("q")
    for n in range(1, 6):
        put(bench, "q", b"%d" % n)
    assert taker.take()
    bench = bench.restart(crash=crash)
    assert bench.bodies("q") == [b"3", b"4", b"5"]
    assert bench.left("q") == {"evicted": 2}


def test_a_smaller_ring_does_not_shrink_the_queue_at_once(bench: Bench) -> None:
    bench.declare(ring_size=5)
    put(bench, "q", *[b"%d" % n for n in range(5)])
    bench.change("q", ring_size=2)
    assert len(bench.bodies("q")) == 5
    put(bench, "q", b"5")
    assert bench.bodies("q") == [b"1", b"2", b"3", b"4", b"5"]
    taker = bench.take("q", window=0)
    for _ in range(3):
        bench.ack(taker, taker.taken[-1])
    put(bench, "q", b"6")
    assert bench.bodies("q") == [b"4", b"5", b"6"], "the first of which is with the consumer"
    bench = bench.restart()
    assert bench.queue("q").attributes.ring_size == 2
    assert bench.bodies("q") == [b"5", b"6"], "a restart is a new arrival for all"


def test_a_larger_ring_holds_more_at_once(bench: Bench) -> None:
    bench.declare(ring_size=1)
    put(bench, "q", b"1", b"2")
    bench.change("q", ring_size=3)
    put(bench, "q", b"3", b"4", b"5")
    assert bench.bodies("q") == [b"3", b"4", b"5"]


def test_with_selectors_and_many_messages() -> None:
    bench = Bench(segment_bytes=4 << 20)
    queue = bench.declare(ring_size=100)
    taker = bench.take("q", selector="AMQPriority = 9")
    count = RUN_MESSAGES_MAX + 10
    put(bench, "q", *[b"%d" % n for n in range(count)], durable=False)
    put(bench, "q", b"high", priority=9, durable=False)
    assert taker.take() == [b"high"]
    assert queue.ready == 100
    assert queue.left[RemovalReason.EVICTED] == count - 100


def test_expiring_messages_are_evicted_without_trace(bench: Bench) -> None:
    queue = bench.declare(ring_size=1)
    soon = bench.broker.now + 50
    put(bench, "q", b"1", expiration=soon)
    put(bench, "q", b"2", expiration=soon)
    assert queue.expiring == 1
    bench.broker.advance(60_000)
    assert bench.left("q") == {"evicted": 1, "expired": 1}
    assert queue.expiring == 0


def test_a_ring_of_last_values(bench: Bench) -> None:
    bench.declare(ring_size=2, last_value=True)
    for key in ("a", "b", "a", "c", "b"):
        put(bench, "q", key.encode(), key=key)
    assert bench.bodies("q") == [b"c", b"b"]
    assert bench.left("q") == {"evicted": 2, "replaced": 1}
