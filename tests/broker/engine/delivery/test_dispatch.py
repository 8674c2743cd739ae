"""Who gets which messages, and how many at a time."""

from __future__ import annotations

import pytest

from broker.engine.delivery.dispatch import (
    DELIVER_COST,
    PART_BYTES,
    PART_GROWTH,
    RUN_MESSAGES_MAX,
    RUN_PART,
    SERVE_COST,
)
from broker.engine.model.message import Message
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.steps import BUDGET
from tests.broker.engine.engine_harness import Bench, Taker


def test_several_take_turns_message_by_message(bench: Bench) -> None:
    takers = [bench.take("a") for _ in range(3)]
    bench.sent("a", *[b"%d" % n for n in range(7)])
    assert [taker.take() for taker in takers] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]
    bench.sent("a", b"7")
    assert [taker.take() for taker in takers] == [[], [b"7"], []], "the turn goes on where it was"


def test_a_consumer_without_credit_is_passed_over(bench: Bench) -> None:
    narrow, wide = bench.take("a", window=0), bench.take("a")
    bench.sent("a", *[b"%d" % n for n in range(5)])
    assert (narrow.take(), wide.take()) == ([b"0"], [b"1", b"2", b"3", b"4"])


def test_credit_is_in_bytes_and_one_message_always_fits(bench: Bench) -> None:
    taker = bench.take("a", window=1000)
    bench.sent("a", *[b"%d" % n * 2000 for n in range(3)])
    assert len(taker.taken) == 1
    bench.ack(taker, taker.taken[0])
    assert len(taker.taken) == 2


def test_a_paused_consumer_gets_nothing_until_it_is_resumed(bench: Bench) -> None:
    taker = bench.take("a")
    taker.consumer.paused = True
    bench.sent("a", b"1")
    assert taker.take() == []
    bench.enter().consumers.resume(taker.consumer)
    bench.run()
    assert taker.take() == [b"1"]


@pytest.mark.parametrize("choosy", [False, True])
@pytest.mark.parametrize("others", [0, 1])
def test_a_backlog_of_many_runs_is_delivered_to_its_end(others: int, choosy: bool) -> None:
    bench = Bench(segment_bytes=4 << 20)
    count = 2 * RUN_MESSAGES_MAX + 7
    bench.sent("a", *[b"%d" % n for n in range(count)], durable=False)
    takers = [bench.take("a", selector="AMQPriority = 4" if choosy else "") for _ in range(1 + others)]
    for _ in range(3 if others else 0):
        bench.run()
    assert sorted(int(body) for taker in takers for body in taker.take()) == list(range(count))


def test_large_messages_go_in_smaller_runs() -> None:
    bench = Bench(segment_bytes=8 << 20)
    taker = bench.take("a")
    bench.sent("a", *[bytes(400_000)] * 7)
    assert len(taker.taken) == 7


class Converting(Taker):
    """A sink to which each message costs half a tick's budget; notes how many came from budget to budget."""

    def __init__(self, bench: Bench, together: list[int]) -> None:
        super().__init__()
        self._bench = bench
        self._together = together

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        super().deliver(consumer, messages)
        ticks = self._bench.engine.ticks
        if ticks.spend(0):
            self._together.append(0)
        self._together[-1] += len(messages)
        for _ in messages:
            ticks.spend(BUDGET // 2)


@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
@pytest.mark.parametrize("others", [0, 2])
def test_deliveries_that_cost_much_go_on_in_the_next_tick(others: int, selector: str) -> None:
    bench, together = Bench(segment_bytes=8 << 20), list[int]()
    bench.sent("a", *[bytes(PART_BYTES // 4)] * 60)
    takers = [bench.attach(Converting(bench, together), "a", selector=selector) for _ in range(1 + others)]
    for _ in range(60):
        bench.run()
    assert sum(len(taker.taken) for taker in takers) == 60
    assert max(together) <= 4


def test_deliveries_have_a_share_of_the_tick_whatever_verbs_use_up(bench: Bench) -> None:
    """Otherwise what fast producers send would pile up."""
    taker = bench.take("a")
    for _ in range(5):
        bench.enter()
        bench.send("a", *[b"m"] * 1_250, durable=False)
        bench.engine.ticks.spend(2 * BUDGET)
        bench.broker.tick.end()
        assert len(taker.take()) == 1_250


def test_queues_that_wait_are_looked_at_when_it_is_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """50,000 subscriptions of a topic had each tick look at all of them."""
    bench, asked = Bench(), list[Queue]()
    ready = Queue.ready

    def look(queue: Queue) -> int:
        asked.append(queue)
        return int(ready.__get__(queue))

    monkeypatch.setattr(Queue, "ready", property(look))
    budget = 20 * (SERVE_COST + DELIVER_COST)
    bench.limit_ticks(budget, least=budget)
    takers = [bench.take(f"q{n}") for n in range(1_000)]
    other = bench.take("other")
    for n in range(1_000):
        bench.enter()
        bench.send(f"q{n}", b"m", durable=False)
    asked.clear()
    ticks = 0
    while not all(taker.taken for taker in takers):
        if ticks == 3:
            bench.enter()
            bench.send("other", b"m", durable=False)
        bench.enter()
        bench.broker.tick.end()
        ticks += 1
        if ticks == 5:
            assert other.taken, "it has changed since the others did, and goes first"
            assert not all(taker.taken for taker in takers)
    assert ticks > 20
    assert len(asked) < 10 * 1_001


def test_a_message_for_one_of_thousands_of_consumers_does_not_ask_all_for_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Consumer]()
    room = Consumer.room

    def look(consumer: Consumer) -> tuple[int, int]:
        asked.append(consumer)
        return room(consumer)

    takers = [bench.take("a") for _ in range(300)]
    monkeypatch.setattr(Consumer, "room", look)
    for n in range(4):
        bench.sent("a", b"%d" % n)
    assert [taker.take() for taker in takers[:4]] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert len(asked) <= 8


class Counting(Taker):
    """Notes how many messages came at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[int] = []

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        super().deliver(consumer, messages)
        self.runs.append(len(messages))


def test_cheap_deliveries_are_made_in_few_parts(bench: Bench) -> None:
    bench.sent("a", *[bytes(50)] * 2_000)
    taker = bench.attach(Counting(), "a", window=-1)
    bench.run()
    assert taker.runs == [RUN_PART, PART_GROWTH * RUN_PART, 2_000 - (1 + PART_GROWTH) * RUN_PART]


def test_selectors(bench: Bench) -> None:
    red = bench.take("a", selector="colour = 'red'")
    for n, colour in enumerate(("red", "blue", "red", "blue")):
        bench.sent("a", b"%d" % n, head=b"colour:%b\n" % colour.encode())
    assert red.take() == [b"0", b"2"]
    rest = bench.take("a")
    assert rest.take() == [b"1", b"3"]
    bench.sent("a", b"4", b"5", head=b"colour:red\n")
    assert len(red.take()) + len(rest.take()) == 2


def test_no_local_on_a_shared_queue(bench: Bench) -> None:
    taker = bench.take("a", no_local="me", selector="AMQPriority >= 0")
    plain = bench.take("b", no_local="me")
    for queue in "ab":
        bench.sent(queue, b"mine", origin="me")
        bench.sent(queue, b"other's", origin="you")
    assert (taker.take(), plain.take()) == ([b"other's"], [b"other's"])


def test_expired_messages_are_not_delivered() -> None:
    bench = Bench(broker=Bench().broker.config.broker.model_copy(update={"message_expiry_scan_period": 0}))
    bench.sent("a", b"1", expiration=bench.broker.now + 10)
    bench.sent("a", b"2")
    bench.broker.advance(1000)
    assert bench.bodies("a") == [b"1", b"2"], "nobody looks, until it is to be delivered"
    assert bench.take("a").take() == [b"2"]
    assert bench.bodies("ExpiryQueue") == [b"1"]


def test_counters(bench: Bench) -> None:
    bench.sent("a", b"1", b"2")
    taker = bench.take("a", ack_mode=AckMode.CUMULATIVE)
    bench.nack(taker, taker.taken[0])
    counters = bench.queue("a").counters
    assert (counters.delivered, counters.redelivered) == (3, 1)


def test_counted_credit_is_in_messages_and_does_not_come_back(bench: Bench) -> None:
    taker = bench.take("a", counted=True)
    bench.sent("a", *[b"%d" % n * 2000 for n in range(5)])
    assert taker.take() == [], "nothing before it is given"
    for credit, got in ((2, 2), (0, 0), (1, 1)):
        bench.grant(taker, credit)
        assert len(taker.taken) == got
        bench.ack(taker, *taker.taken)
        assert len(taker.take()) == got, "settling gives none"
    bench.grant(taker, 9)
    assert len(taker.take()) == 2
    assert taker.consumer.credit == 7


@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
def test_counted_and_other_credit_take_turns(bench: Bench, selector: str) -> None:
    counted = bench.take("a", counted=True, selector=selector)
    bench.enter().consumers.grant(counted.consumer, 1)
    narrow, wide = bench.take("a", window=0), bench.take("a")
    bench.sent("a", *[b"%d" % n for n in range(5)])
    assert (counted.take(), narrow.take(), wide.take()) == ([b"0"], [b"1"], [b"2", b"3", b"4"])


@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
def test_higher_priority_goes_first_and_others_get_the_rest(bench: Bench, selector: str) -> None:
    low = bench.take("a", priority=-1)
    high = bench.take("a", priority=5, counted=True, selector=selector)
    middle = bench.take("a", counted=True)
    bench.enter().consumers.grant(high.consumer, 2)
    bench.enter().consumers.grant(middle.consumer, 1)
    bench.sent("a", *[b"%d" % n for n in range(5)])
    bench.run()
    assert (high.take(), middle.take(), low.take()) == ([b"0", b"1"], [b"2"], [b"3", b"4"])


def test_higher_priority_does_not_keep_what_it_does_not_want(bench: Bench) -> None:
    low, high = bench.take("a"), bench.take("a", priority=1, selector="AMQPriority > 4")
    bench.sent("a", b"1", priority=4)
    bench.sent("a", b"2", priority=5)
    bench.run()
    assert (high.take(), low.take()) == ([b"2"], [b"1"])


def test_a_message_that_expires_while_its_delivery_awaits_the_journal_is_not_sent() -> None:
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"}, lazy_disk=True)
    bench.sent("a", b"late", expiration=bench.broker.now + 1_000)
    bench.sent("a", b"1")
    bench.broker.catch_up()
    taker = bench.take("a")
    assert (taker.take(), set(bench.places("a").values())) == ([], {"delivering"})
    bench.broker.now += 2_000
    bench.broker.catch_up()
    assert taker.take() == [b"1"]
    assert (bench.bodies("a"), bench.bodies("ExpiryQueue")) == ([b"1"], [b"late"])
