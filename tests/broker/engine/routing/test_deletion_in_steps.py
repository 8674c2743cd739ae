"""An address with very many queues is deleted in steps, and with it what is made meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.engine import NewQueue
from broker.engine.model.access import UNRESTRICTED
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission
from broker.engine.queues.address import Address
from broker.engine.routing import deletion
from tests.broker.engine.engine_harness import Bench, Taker
from tests.support.interpreted import interpreted

MULTICAST = RoutingType.MULTICAST
QUEUES = 12


def by_an_operator(bench: Bench) -> tuple[Address, Callable[[], None]]:
    """An address, and how an operator deletes it."""
    address = bench.engine.operators.make_address("t", {MULTICAST})
    return address, lambda: bench.enter().operators.delete_address(address, with_queues=True)


def with_its_connection(bench: Bench) -> tuple[Address, Callable[[], None]]:
    """A temporary destination, and how it goes."""
    address = bench.engine.make_temporary(MULTICAST, UNRESTRICTED, Permission.CONSUME, private=False)
    return address, lambda: bench.enter().delete_temporary(address)


@interpreted
@pytest.mark.parametrize("make", [by_an_operator, with_its_connection])
def test_its_queues_go_some_at_a_time(
    make: Callable[[Bench], tuple[Address, Callable[[], None]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "DELETE_COST", 500)
    bench = Bench()
    bench.enter()
    address, delete = make(bench)
    for number in range(QUEUES):
        bench.engine.operators.make_queue(NewQueue(f"q{number}", address.name, MULTICAST))
    bench.run()
    taker = bench.attach(Taker(), f"{address.name}::q{QUEUES - 1}", MULTICAST)
    bench.sent(address.name, b"1", routing_type=MULTICAST)
    assert len(taker.take()) == 1
    bench.limit_ticks(1_000, least=1_000, together=4)
    delete()
    left = [len(bench.engine.queues_of(address))]
    bench.engine.operators.make_queue(NewQueue("new", address.name, MULTICAST))
    while bench.engine.queues_of(address):
        bench.broker.tick.end()
        bench.enter()
        left.append(len(bench.engine.queues_of(address)))
    assert len(left) > 3, "ticks"
    assert left[0] > 0
    assert taker.closed == [f"queue q{QUEUES - 1} was deleted"]
    bench.run()
    assert bench.engine.addresses.get(address.name) is None
    bench.check()


@interpreted
def test_the_end_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "DELETE_COST", 500)
    bench, told = Bench(), list[bool]()
    bench.enter()
    address = bench.engine.operators.make_address("t", {MULTICAST})
    for number in range(QUEUES):
        bench.engine.operators.make_queue(NewQueue(f"q{number}", "t", MULTICAST))
    bench.run()
    bench.limit_ticks(50, least=50, together=4)
    operators = bench.enter().operators
    for _ in range(2):
        operators.delete_address(address, with_queues=True, then=lambda: told.append("t" in bench.engine.addresses))
    assert told == []
    bench.run()
    assert told == [False, False]
