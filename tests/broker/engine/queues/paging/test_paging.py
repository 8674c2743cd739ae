"""A queue with a tail: what it does is what it would do in memory."""

from __future__ import annotations

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.message import RoutingType
from tests.broker.engine.engine_harness import Bench, Taker
from tests.broker.engine.queues.paging.backlogs import bodies, consumed, filled, paging, settled
from tests.broker.engine.queues.rules.queues import grouped
from tests.simulation.world import check_accounts

MULTICAST = RoutingType.MULTICAST


@pytest.mark.parametrize("durable", [True, False])
def test_a_backlog_beyond_memory_comes_back_in_order(bench: Bench, durable: bool) -> None:
    filled(bench, durable=durable)
    queue, usage = bench.queue("q"), bench.engine.usage
    assert (queue.ready, queue.paged, queue.message_count) == (2, 8, 10)
    assert usage.messages == queue.address.size_messages == 2
    assert [told["address"] for told in bench.broker.reported("address.full.paging")] == ["q"]
    assert bench.bodies("q") == bodies(*range(10))
    taker = bench.take("q", window=1)
    got = []
    while taker.taken:
        (message,) = taker.taken
        assert message.header.durable is durable
        got += taker.take()
        assert usage.messages <= 4
        bench.ack(taker, message)
    assert got == bodies(*range(10))
    settled(bench)
    filled(bench, 2)
    assert taker.take() == bodies(0)


def test_messages_sent_while_the_tail_has_some_go_behind_it(bench: Bench) -> None:
    filled(bench, 5)
    taker = bench.take("q", window=1)
    bench.ack(taker, taker.taken[-1])
    bench.ack(taker, taker.taken[-1])
    bench.sent("q", b"5", durable=False)
    bench.sent("q", b"6")
    for _ in range(5):
        bench.ack(taker, taker.taken[-1])
    assert taker.take() == bodies(*range(7))


def test_a_higher_priority_goes_first_wherever_it_is(bench: Bench) -> None:
    bench.sent("q", b"low 1", priority=1)
    bench.sent("q", b"low 2", priority=1)
    for n in range(6):
        bench.sent("q", b"high %d" % n, priority=9)
        bench.sent("q", b"low %d" % (n + 3), priority=1)
    expected = [b"high %d" % n for n in range(6)] + [b"low %d" % n for n in range(1, 9)]
    assert bench.bodies("q") == expected
    one, other = bench.take("q", window=1), bench.take("q", window=1)
    got = []
    while one.taken or other.taken:
        for taker in (one, other):
            got += [message.body for message in taker.taken]
            taken, taker.taken = taker.taken, []
            bench.ack(taker, *taken)
    assert got == expected
    settled(bench)


def test_a_restart_reads_nothing_into_memory_that_nobody_wants(bench: Bench) -> None:
    filled(bench, 6)
    taker = bench.take("q", window=1)
    bench.nack(taker, taker.taken[0])
    bench = bench.restart()
    queue = bench.queue("q")
    assert (queue.ready, queue.paged, queue.stored) == (0, 6, 6)
    assert bench.broker.restored.messages == 6
    assert bench.broker.restored.redelivered == 1
    assert queue.delivery_count(next(m.id for m, _ in bench.engine.messages.browse(queue))) == 1
    check_accounts(bench.broker)
    taker = bench.take("q")
    assert [m.body for m in taker.taken] == bodies(*range(6))
    bench.ack(taker, *taker.taken)
    settled(bench)


def test_a_redelivery_delay_outlives_a_restart() -> None:
    bench = paging(**{"redelivery-delay": 1000})
    filled(bench, 4)
    taker = bench.take("q", window=1)
    bench.nack(taker, taker.taken[0])
    bench = bench.restart()
    assert bench.places("q") == {b"0": "scheduled", b"1": "ready", b"2": "ready", b"3": "ready"}
    bench.broker.advance(1000)
    assert bench.take("q").take() == bodies(0, 1, 2, 3)


def test_a_message_of_several_queues_is_paged_for_each(bench: Bench) -> None:
    takers = [bench.take("q", MULTICAST, durable_name=name, window=1) for name in ("a", "b")]
    for n in range(6):
        bench.sent("q", b"%d" % n, routing_type=MULTICAST)
    a, b = takers
    for taker in (a, a, a, a, a, a, b, b, b, b, b, b):
        bench.ack(taker, taker.taken[-1])
    assert a.take() == b.take() == bodies(*range(6))
    state = bench.engine._state
    assert (state.usage.messages, bench.queue("a").address.paged_messages) == (0, 0)
    space = state.journal.space
    assert all(space.live(segment) == 0 for segment in space.segments)


@pytest.mark.parametrize("durable", [True, False])
def test_a_queue_that_cannot_page_keeps_its_messages_while_its_neighbour_pages(bench: Bench, durable: bool) -> None:
    plain = bench.declare("plain", "q", routing_type=MULTICAST)
    ring = bench.declare("ring", "q", routing_type=MULTICAST, ring_size=100)
    for n in range(6):
        bench.sent("q", b"%d" % n, routing_type=MULTICAST, durable=durable)
    assert plain.paged > 0
    assert (ring.tail, ring.paged, ring.ready) == (None, 0, 6)
    assert bench.take("q::ring").take() == bench.take("q::plain").take() == bodies(*range(6))


def test_a_selector_finds_what_is_for_it_and_leaves_the_rest(bench: Bench) -> None:
    filled(bench, 10)
    taker = bench.take("q", selector="AMQUserID = 'nobody'")
    assert taker.take() == []
    assert bench.queue("q").paged == 8
    high = bench.take("q", selector="AMQPriority > 4", window=1)
    bench.sent("q", b"a", priority=9)
    bench.sent("q", b"b", priority=9)
    bench.sent("q", b"c", priority=1)
    bench.ack(high, high.taken[0])
    assert high.take() == [b"a", b"b"]
    rest = bench.take("q")
    assert consumed(bench, rest) == [*bodies(*range(10)), b"c"]


def test_a_selector_that_looks_for_long_does_not_hold_up_others(bench: Bench) -> None:
    bench.limit_ticks(100, least=100)
    filled(bench, 40)
    bench.sent("q", b"last", priority=1)
    engine = bench.enter()
    taker = bench.attach(Taker(), "q", selector="AMQPriority = 1")
    engine.ticks.end()
    assert engine.ticks.has_more
    assert not taker.taken
    bench.run()
    assert [m.body for m in taker.taken] == [b"last"]


def test_groups_keep_their_order(bench: Bench) -> None:
    for n in range(12):
        grouped(bench, "q", "AB"[n % 2], b"%d" % n)
    one, other = bench.take("q", window=1), bench.take("q", window=1)
    for _ in range(6):
        bench.ack(one, one.taken[-1])
        bench.ack(other, other.taken[-1])
    assert sorted([one.take(), other.take()]) == [bodies(0, 2, 4, 6, 8, 10), bodies(1, 3, 5, 7, 9, 11)]
    settled(bench)


@pytest.mark.parametrize(("limit", "most"), [("16KiB", 16), ("4MiB", 1_000)])
def test_messages_read_back_stay_within_their_bytes(limit: str, most: int) -> None:
    bench = paging(**{"max-read-page-messages": -1, "max-read-page-bytes": limit})
    for _ in range(100):
        bench.sent("q", bytes(1_000))
    taker = bench.take("q", window=1)
    held = 0
    while taker.taken:
        bench.ack(taker, taker.taken.pop())
        held = max(held, bench.engine.usage.messages)
    assert (held <= 20) is (most == 16), held
    settled(bench)


@pytest.mark.parametrize("selector", ["", "AMQPriority <> 5"])
def test_a_run_does_not_pass_what_is_paged_at_a_higher_priority(bench: Bench, selector: str) -> None:
    bench.sent("q", b"low 1", priority=1)
    bench.sent("q", b"low 2", priority=1)
    for n in range(6):
        bench.sent("q", b"high %d" % n, priority=9)
    taker = bench.take("q", selector=selector)
    assert taker.take() == [*(b"high %d" % n for n in range(6)), b"low 1", b"low 2"]


def test_consumers_that_left_are_forgotten(bench: Bench) -> None:
    filled(bench, 6)
    for _ in range(4):
        bench.close(bench.take("q", selector="AMQPriority = 9"), CLOSED)
    bench.take("q", selector="AMQPriority = 8")
    tail = bench.queue("q").tail
    assert tail is not None
    assert len(tail.seen) == 1
