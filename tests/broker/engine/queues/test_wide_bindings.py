"""The list of queues of an address that has very many is brought up to date with those that come and go."""

from __future__ import annotations

from array import array
from random import Random

import pytest

from broker.engine import NewQueue
from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.queues import arrival, bindings
from broker.engine.queues.bindings import AddressBindings
from broker.engine.routing import alter
from tests.broker.engine.engine_harness import Bench
from tests.support.interpreted import interpreted

MULTICAST, ANYCAST = RoutingType.MULTICAST, RoutingType.ANYCAST


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "WIDE", 4)
    monkeypatch.setattr(bindings, "RECENT_MAX", 5)
    monkeypatch.setattr(arrival, "MANY_QUEUES", 2)


def of_t(bench: Bench) -> AddressBindings:
    return bench.engine._state.bindings._of(bench.engine.addresses["t"])


def computed_again(bench: Bench) -> tuple[list[set[str]], int, set[int]]:
    own = of_t(bench)
    own.version, own.recent = -1, None
    return found(bench)


def found(bench: Bench) -> tuple[list[set[str]], int, set[int]]:
    state, address = bench.engine._state, bench.engine.addresses["t"]
    targets = state.bindings.targets(address)
    assert all(len(queues) == len(set(queues)) for queues in targets), "each is there once"
    ids = arrival._durable_ids(state, address, targets[1])
    assert len(ids) == len(set(ids))
    return [{queue.name for queue in queues} for queues in targets], of_t(bench).reach.match_cost, set(ids)


@pytest.mark.parametrize("seed", range(20))
def test_a_list_that_follows_changes_is_that_computed_again(seed: int) -> None:
    bench, random = Bench(), Random(seed)
    names, made = [f"q{number}" for number in range(14)], set[str]()
    wildcard = False
    for _ in range(60):
        for _ in range(random.choice((1, 1, 2, 7))):
            name = random.choice(names)
            state = bench.enter()._state
            if name not in made:
                type, text = random.choice((MULTICAST, MULTICAST, ANYCAST)), "a = 1" if random.random() < 0.1 else ""
                durable = random.random() < 0.7
                new = NewQueue(name, "t", type, make_address=True, durable=durable, filter=compile_filter(text))
                bench.engine.operators.make_queue(new)
                made.add(name)
            elif random.random() < 0.7:
                bench.engine.delete_queue(bench.queue(name))
                made.discard(name)
            else:
                alter.redefine(state, bench.queue(name), random.choice((MULTICAST, ANYCAST)), None)
        if random.random() < 0.1:
            if wildcard:
                bench.engine.delete_queue(bench.queue("all"))
            else:
                bench.engine.operators.make_queue(NewQueue("all", "#", MULTICAST, make_address=True))
            wildcard = not wildcard
        if made:
            assert found(bench) == computed_again(bench)
        bench.run()


@interpreted
def test_a_wide_list_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number in range(6):
        bench.enter().operators.make_queue(NewQueue(f"q{number}", "t", MULTICAST, make_address=True))
    found(bench)
    before = of_t(bench).reach.durable_ids
    assert isinstance(before, array)
    bench.engine.operators.make_queue(NewQueue("new", "t", MULTICAST))
    bench.engine.delete_queue(bench.queue("q0"))
    monkeypatch.setattr(bindings.Bindings, "_make", None)  # it is not called
    assert found(bench)[0] == [set(), {"new", "q1", "q2", "q3", "q4", "q5"}]
    assert of_t(bench).reach.durable_ids is before
