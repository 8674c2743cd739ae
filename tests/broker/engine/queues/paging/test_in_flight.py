"""Deliveries that are not acknowledged count as read from the tail: at its limit nothing more is read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import consumed

READ = 20_000
MESSAGES = 500


def paging(**more: Any) -> Bench:
    """A queue of half a megabyte, nearly all on disk."""
    read = {"max-read-page-bytes": READ} | more
    bench = Bench({"match": "q", "address-full-policy": "PAGE", "max-size-bytes": 0} | read, segment_bytes=1 << 20)
    for n in range(0, MESSAGES, 10):
        bench.sent("q", *[b"%d " % at + bytes(1000) for at in range(n, n + 10)])
    return bench


def sizes(bench: Bench) -> tuple[int, int]:
    return bench.engine.usage.bytes, bench.engine.usage.messages


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
def test_a_consumer_with_much_credit_gets_what_may_be_read_until_it_acknowledges(selector: str, counted: bool) -> None:
    bench = paging()
    taker = bench.take("q", selector=selector, counted=counted)
    if counted:
        bench.grant(taker, 1_000_000)
    held, got = sizes(bench)[0], 0
    assert READ <= held <= READ + READ // 4
    while taker.taken:
        assert sizes(bench)[0] <= READ + READ // 4
        got += 1
        bench.ack(taker, taker.taken.pop(0))
    assert got == MESSAGES
    bench.check()


def test_the_limit_may_be_a_number_of_messages() -> None:
    bench = paging(**{"max-read-page-messages": 16})
    taker = bench.take("q")
    assert len(taker.taken) in range(16, 20)
    bench.ack(taker, *taker.taken[:8])
    assert len(taker.taken) in range(24, 28)


@pytest.mark.parametrize("window", [-1, 1])
def test_one_that_holds_all_does_not_stop_another(window: int) -> None:
    bench = paging()
    hangs = bench.take("q")
    taken = len(hangs.taken)
    works, got = bench.take("q", window=window), 0
    while works.taken:
        assert sizes(bench)[0] <= 2 * READ + READ // 4
        got += 1
        bench.ack(works, works.taken.pop(0))
    assert got + len(hangs.taken) == MESSAGES
    assert len(hangs.taken) <= taken + 5, "it gets some of the last ones, behind which nothing is on disk"


def test_one_with_a_selector_finds_its_messages_behind_those_that_others_hold() -> None:
    bench = paging()
    bench.sent("q", b"wanted", priority=1)
    bench.take("q")
    assert bench.take("q", selector="AMQPriority = 1").take() == [b"wanted"]


@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
def test_it_is_reported_after_a_minute_and_once(selector: str) -> None:
    bench = paging()
    taker = bench.take("q", selector=selector)
    bench.broker.advance(50_000)
    for _ in range(5):
        bench.ack(taker, taker.taken.pop(0))
    bench.broker.advance(50_000)
    assert not bench.broker.reported("paging.held_up"), "it goes on"
    bench.broker.advance(600_000)
    assert bench.broker.reported("paging.held_up") == [{"queue": "q", "messages": len(taker.taken)}]
    taken, taker.taken = taker.taken, []
    bench.ack(taker, *taken)
    bench.broker.advance(600_000)
    assert len(bench.broker.reported("paging.held_up")) == 2


def test_one_that_has_taken_all_it_wants_is_not_reported() -> None:
    bench = paging()
    taker = bench.take("q", counted=True)
    bench.grant(taker, 10)
    bench.broker.advance(600_000)
    assert not bench.broker.reported("paging.held_up")


def test_it_takes_no_work_while_nothing_can_be_read() -> None:
    """The queue is not served again in each tick."""
    bench = paging()
    bench.take("q")
    assert not bench.enter()._state.dirty_later
    bench.run()


def test_messages_settled_by_a_transaction_count_by_its_own_limit() -> None:
    bench = paging()
    taker, tx = bench.take("q"), bench.begin()
    got = 0
    while taker.taken:
        got += 1
        bench.ack(taker, taker.taken.pop(0), tx=tx)
    assert got == MESSAGES
    bench.commit(tx)
    bench.check()


def test_a_backlog_in_memory_does_not_keep_grouped_messages_of_a_higher_priority_on_disk() -> None:
    """They go before it, so nobody gets any of it until they are read."""
    bench = Bench({"match": "q", "address-full-policy": "PAGE", "max-size-bytes": 50_000, "max-read-page-bytes": READ})
    for n in range(60):
        bench.sent("q", bytes(1000), group="AB"[n % 2])
    high = [b"%d " % n + bytes(1000) for n in range(60)]
    for n, body in enumerate(high):
        bench.sent("q", body, group="AB"[n % 2], priority=9)
    assert bench.queue("q").ready * 1000 > READ
    assert consumed(bench, bench.take("q"))[:60] == high
    assert not bench.queue("q").message_count
