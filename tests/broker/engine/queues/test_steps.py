"""Long work: in steps, within the budget of each tick, in the order of each owner, in turns among owners."""

from __future__ import annotations

import pytest

from broker.engine.queues.steps import BUDGET, BUDGET_MIN, LongWork, Steps
from tests.broker.engine.engine_harness import Bench


def work(done: list[str], name: str, rounds: int, cost: int = BUDGET // 4) -> LongWork:
    """Some work of several rounds."""
    for n in range(rounds):
        done.append(f"{name}{n}")
        yield cost


def resumed(work: LongWork, transport: object) -> int | None:
    return next(work, None)


def test_short_work_is_done_at_once() -> None:
    steps, done = Steps(), list[str]()
    steps.begin("a", work(done, "a", 3))
    assert done == ["a0", "a1", "a2"]
    assert not steps.is_busy("a")
    assert not steps


def test_long_work_goes_on_in_the_next_tick_and_its_owner_takes_its_turn() -> None:
    steps, done = Steps(), list[str]()
    steps.begin("a", work(done, "a", 6))
    assert done == ["a0", "a1", "a2", "a3"]
    steps.begin("a", work(done, "then", 1, cost=1))  # behind the first
    steps.begin("b", work(done, "b", 1))  # no budget is left
    assert steps.is_busy("a")
    assert steps.is_busy("b")
    done.clear()
    steps.refill()
    steps.run(resumed)
    assert done == ["a4", "b0", "a5", "then0"]
    assert not steps


def test_work_goes_on_however_busy_the_verbs_are() -> None:
    steps, done = Steps(), list[str]()
    steps.spend(BUDGET)
    steps.begin("a", work(done, "a", 3, cost=BUDGET_MIN))
    assert done == []
    steps.run(resumed)
    assert done == ["a0"]


def test_work_begun_earlier_has_half_of_the_budget() -> None:
    steps, done = Steps(), list[str]()
    steps.begin("a", work(done, "a", 20))
    for verbs, rounds in ((BUDGET, 2), (BUDGET // 2, 2), (BUDGET // 4, 3), (0, 4)):
        done.clear()
        steps.refill()
        assert steps.left == BUDGET // 2
        steps.spend(verbs)
        steps.run(resumed)
        assert len(done) == rounds
        assert steps.left <= 0


# -- a machine that is slower than the costs say -----------------------------------------------------------------------


class Cpu:
    """The CPU time that a thread has used."""

    def __init__(self) -> None:
        self.used = 1_000_000

    def __call__(self, enough: int) -> int:
        return self.used

    def slow_work(self, done: list[int], took: int) -> LongWork:
        """Work that says it costs next to nothing."""
        for n in range(100):
            self.used += took
            done.append(n)
            yield 1


def test_the_cpu_that_was_used_is_spent_if_it_is_more_than_was_counted() -> None:
    cpu, done = Cpu(), list[int]()
    steps = Steps(cpu)
    steps.begin("a", cpu.slow_work(done, BUDGET // 4))
    assert done == [0, 1, 2, 3]
    cpu.used += 50 * BUDGET  # other ticks, or sleep
    steps.refill()
    steps.run(resumed)
    assert done == [0, 1, 2, 3, 4, 5, 6, 7]


def test_time_used_by_the_verbs_of_a_tick_is_spent_too() -> None:
    cpu, done = Cpu(), list[int]()
    steps = Steps(cpu)
    cpu.used += BUDGET
    steps.begin("a", cpu.slow_work(done, BUDGET_MIN // 2))
    assert done == []
    steps.run(resumed)
    assert done == [0, 1], "and yet nothing stands still"


def test_many_small_costs_are_measured_now_and_then() -> None:
    cpu = Cpu()
    steps, rounds = Steps(cpu), 0
    steps.refill()
    while steps.spend(1):
        cpu.used += 10
        rounds += 1
    assert BUDGET // 10 <= rounds < BUDGET // 10 + 300


def test_a_fast_machine_spends_what_is_counted() -> None:
    cpu = Cpu()
    steps = Steps(cpu)
    assert not steps.spend(BUDGET)
    steps.ensure(BUDGET_MIN)
    assert steps.left == BUDGET_MIN


def test_time_that_others_had_costs_no_budget_once_it_is_looked_at_closely() -> None:
    """A clock may be ahead of the CPU time by what other processes had, while the time is below what is asked for."""
    used, ahead = 0, BUDGET // 2

    def cpu(enough: int) -> int:
        return min(used + ahead, enough - 1) if used < enough else used

    steps = Steps(cpu)
    steps.refill()
    assert steps.measure() == BUDGET // 2
    used += BUDGET * 3 // 4
    assert steps.measure() == 1
    assert steps.left == BUDGET, "only counted costs are spent before the end"
    used += BUDGET // 4
    assert steps.measure() == steps.left == 0


class Connection:
    """What an exception costs."""


@pytest.mark.parametrize("transport", [None, Connection()])
def test_a_step_that_fails_is_blamed_on_its_connection_and_is_the_last(bench: Bench, transport: object) -> None:
    blamed: list[tuple[object, str]] = []
    state = bench.engine.consumers._state
    state.blame = lambda connection, error: blamed.append((connection, str(error)))
    done: list[str] = []

    def failing() -> LongWork:
        yield BUDGET
        raise ValueError("of a client")

    bench.enter()
    state.steps.begin("a", failing(), transport)
    state.steps.begin("a", work(done, "a", 1), transport)
    bench.run()
    assert blamed == [(transport, "of a client")]
    assert done == ["a0"]


def test_a_busy_disk_allows_one_step_for_each_of_its_announcements(bench: Bench) -> None:
    """Else long work could fill the disk's line, and then no client would be read."""
    steps = bench.engine.consumers._state.steps
    bench.broker.hold_disk()
    bench.sent("a", bytes(2 * bench.engine.limits.task_pending_max))
    done: list[str] = []
    bench.enter()
    steps.begin("a", work(done, "a", 9, cost=BUDGET))
    bench.broker.end_ticks()
    assert len(done) == 1
    bench.broker.write()
    bench.sent("a", bytes(2 * bench.engine.limits.task_pending_max))
    assert len(done) == 2
    bench.broker.release_disk()
    assert len(done) == 9
