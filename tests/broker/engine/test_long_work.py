"""What may touch many messages spends the budget of the tick, and goes on in the next one: no tick is long (P6)."""

from __future__ import annotations

import pytest

from broker.engine.delivery.dispatch import DELIVER_COST, SERVE_COST
from broker.engine.delivery.redelivery import DUE_COST, DUE_TOGETHER
from broker.engine.model.task import TaskKind, TaskRequest
from broker.engine.moves.expiry import END_COST, EXPIRED_TOGETHER
from broker.engine.moves.move import MOVE_COST
from tests.broker.engine.engine_harness import Bench, Taker


@pytest.mark.parametrize("kept", [True, False])
def test_messages_that_expire_together_do_so_within_the_budget_of_each_tick(bench: Bench, kept: bool) -> None:
    if not kept:
        bench = Bench({"match": "a", "expiry-address": ""})
    count, expires, left = 300, bench.broker.now + 1000, list[int]()
    bench.sent("a", *[b"%d" % n for n in range(count)], expiration=expires)
    bench.limit_ticks(EXPIRED_TOGETHER * (MOVE_COST if kept else END_COST), least=1)
    bench.broker.now = expires
    bench.enter()
    while bench.queue("a").ready:
        bench.engine.ticks.end()
        left.append(bench.queue("a").ready)
        bench.engine.ticks.begin()
    assert left == [236, 172, 108, 44, 0]
    bench.run()
    assert len(bench.messages("ExpiryQueue") if kept else ()) == (count if kept else 0)
    bench.check()


def test_messages_that_are_due_together_become_ready_within_the_budget_of_each_tick(bench: Bench) -> None:
    count, due, ready = 3 * DUE_TOGETHER, bench.broker.now + 1000, list[int]()
    bench.sent("a", *[b"%d" % n for n in range(count)], scheduled=due)
    bench.limit_ticks(DUE_TOGETHER * DUE_COST, least=1)
    bench.broker.now = due
    bench.enter()
    while bench.queue("a").ready < count:
        bench.engine.ticks.end()
        ready.append(bench.queue("a").ready)
        bench.engine.ticks.begin()
    assert ready == [DUE_TOGETHER, 2 * DUE_TOGETHER, count]


def test_several_consumers_are_handed_what_the_budget_allows(bench: Bench) -> None:
    bench.sent("a", *[b"%d" % n for n in range(90)])
    bench.limit_ticks(20 * DELIVER_COST + SERVE_COST, least=1)
    takers = [bench.attach(Taker(), "a", window=-1) for _ in range(2)]
    seen = list[int]()
    while len(seen) < 5:
        bench.engine.ticks.end()
        seen.append(sum([len(taker.taken) for taker in takers]))
        bench.engine.ticks.begin()
    assert seen == [20, 40, 60, 80, 90]


def test_the_steps_of_tasks_share_a_tick(bench: Bench) -> None:
    """Sixteen of them, of some milliseconds each, would hold up clients for a tenth of a second."""
    for n in range(3):
        bench.sent(f"q{n}", *[b"%d" % each for each in range(640)])
    bench.limit_ticks(2_000, least=1)
    for n in range(3):
        bench.enter().tasks.start(TaskRequest(kind=TaskKind.MOVE, queue=f"q{n}", target="there"))
        bench.engine.ticks.end()
    sizes = [bench.queue(f"q{n}").ready for n in range(3)]
    bench.engine.ticks.begin()
    bench.engine.ticks.end()
    after = [bench.queue(f"q{n}").ready for n in range(3)]
    assert sum([before - now for before, now in zip(sizes, after, strict=True)]) == bench.engine.limits.move_step_max
    bench.run()
