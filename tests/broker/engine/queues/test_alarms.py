"""Alarms: called once, in time, in their order, and not when cancelled."""

from __future__ import annotations

from broker.engine.queues.alarms import CALL_COST, Alarms
from broker.engine.queues.steps import BUDGET, Steps
from tests.broker.engine.engine_harness import Bench


def test_calls_in_the_order_of_their_time_and_once() -> None:
    alarms = Alarms()
    called: list[str] = []
    alarms.at("b", 20, lambda: called.append("b"))
    alarms.at("a", 10, lambda: called.append("a"))
    assert (alarms.next_due(), len(alarms)) == (10, 2)
    assert not alarms.run(9, Steps())
    assert called == []
    assert not alarms.run(20, Steps())
    assert called == ["a", "b"]
    assert not alarms.run(99, Steps())
    assert (called, alarms.next_due(), len(alarms)) == (["a", "b"], None, 0)


def test_a_later_one_takes_the_place_of_the_one_under_the_same_key() -> None:
    alarms = Alarms()
    called: list[str] = []
    alarms.at("k", 10, lambda: called.append("first"))
    alarms.at("k", 30, lambda: called.append("second"))
    assert alarms.next_due() == 30
    alarms.run(29, Steps())
    assert called == []
    alarms.run(30, Steps())
    assert called == ["second"]


def test_cancelled() -> None:
    alarms = Alarms()
    called: list[int] = []
    alarms.at("k", 10, lambda: called.append(1))
    assert alarms.cancel("k")
    assert not alarms.cancel("k")
    assert alarms.next_due() is None
    assert not alarms.run(10, Steps())
    assert called == []


def test_a_run_ends_with_the_budget_and_the_next_one_goes_on() -> None:
    alarms, steps = Alarms(), Steps()
    called: list[int] = []
    for n in range(5):
        alarms.at(n, n, lambda n=n: called.append(n))  # type: ignore[misc]
    steps.left = 2 * CALL_COST
    assert alarms.run(9, steps)
    assert called == [0, 1]
    assert alarms.run(9, steps)  # one at least
    assert called == [0, 1, 2]
    assert alarms.next_due() == 3
    alarms.cancel(3)
    alarms.move(5)
    steps.refill()
    assert not alarms.run(8, steps)
    assert not alarms.run(9, steps)
    assert called == [0, 1, 2, 4]


def test_a_call_spends_what_it_costs() -> None:
    alarms, steps = Alarms(), Steps()
    called: list[int] = []

    def call() -> None:
        called.append(len(called))
        steps.spend(BUDGET // 2)

    for n in range(5):
        alarms.at(n, n, call)
    assert alarms.run(9, steps)
    assert called == [0, 1]


def test_a_call_may_cancel_and_set_what_is_due_in_the_same_run() -> None:
    alarms = Alarms()
    called: list[str] = []

    def first() -> None:
        called.append("first")
        alarms.cancel("second")
        alarms.at("third", 10, lambda: called.append("third anew"))
        alarms.at("first", 50, lambda: called.append("first again"))

    alarms.at("first", 10, first)
    alarms.at("second", 10, lambda: called.append("second"))
    alarms.at("third", 10, lambda: called.append("third"))
    alarms.run(10, Steps())
    assert called == ["first"]
    alarms.run(10, Steps())
    assert called == ["first", "third anew"]
    assert alarms.next_due() == 50


def test_the_engine_wakes_for_them(bench: Bench) -> None:
    called: list[int] = []
    now = bench.broker.now
    bench.enter().alarms.at("k", now + 1234, lambda: called.append(bench.broker.now))
    bench.run()
    due = bench.engine.ticks.next_due()
    assert due is not None
    assert due <= now + 1234
    bench.broker.advance(60_000)
    assert called == [now + 1234]
