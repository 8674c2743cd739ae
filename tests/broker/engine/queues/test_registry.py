"""The registry of addresses and queues."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.queues.queue import Queue
from tests.broker.engine.engine_harness import Bench
from tests.support.interpreted import interpreted


@interpreted
def test_a_queue_leaves_its_address_without_a_search(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a client with 1,000 of 25,000 subscriptions of a topic took 600 ms."""
    takers = [bench.take("t", RoutingType.MULTICAST) for _ in range(50)]
    compared: list[object] = []

    def compare(queue: Queue, other: object) -> bool:
        compared.append(other)
        return queue is other

    monkeypatch.setattr(Queue, "__eq__", compare)
    bench.close(takers[40], redelivery.CLOSED)
    assert not compared
    assert len(bench.engine.queues_of(bench.engine.addresses["t"])) == 49


def test_the_queues_of_an_address_keep_their_order(bench: Bench) -> None:
    takers = [bench.take("t", RoutingType.MULTICAST) for _ in range(6)]
    queues = [taker.consumer.queue for taker in takers]
    bench.close(takers[0], redelivery.CLOSED)
    bench.close(takers[3], redelivery.CLOSED)
    last = bench.take("t", RoutingType.MULTICAST)
    assert list(bench.engine.queues_of(bench.engine.addresses["t"])) == [*queues[1:3], *queues[4:], last.consumer.queue]
