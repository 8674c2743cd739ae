"""A removal reason is one row: counters, metrics, the API and `explain` follow from it."""

from __future__ import annotations

import pytest

from store.record import RemovalReason
from tests.broker.cli.harness import invoke
from tests.broker.management.harness import Client, TestBroker
from tests.broker.management.samples import scrape, value

#: The rows that are counted elsewhere: with the queue, which is gone; at the address, as no queue took the message.
NOT_ON_A_QUEUE = {RemovalReason.DELETED, RemovalReason.UNROUTABLE}


def counter(reason: RemovalReason) -> str:
    return "acknowledged" if reason is RemovalReason.CONSUMED else reason.word.replace("-", "_")


async def test_a_queue_counts_each_way_out(broker: TestBroker, client: Client) -> None:
    queue = broker.queue("orders")
    for reason in RemovalReason:
        queue.count_left(reason, 100 + reason)
    counters = (await client.get("/api/v1/queues/orders"))["counters"]
    expected = {counter(reason): 100 + reason for reason in RemovalReason if reason not in NOT_ON_A_QUEUE}
    assert counters == {"added": 0, "delivered": 0, "redelivered": 0, **expected}
    assert list(counters) == sorted(counters)


async def test_the_metrics_sum_up_each_way_out(broker: TestBroker, client: Client) -> None:
    ways = [reason for reason in RemovalReason if reason is not RemovalReason.UNROUTABLE]
    for name in ("orders", "invoices"):
        for reason in ways:
            broker.engine._state.totals.count_left(broker.queue(name), reason, 100 + reason)
    broker.tick.enter()
    broker.engine.delete_queue(broker.queue("invoices"))
    samples = await scrape(client)
    counted = {name for name, _ in samples}
    for reason in ways:
        name = f"broker_messages_{counter(reason)}_total"
        if reason is RemovalReason.DELETED:
            assert name not in counted
        else:
            assert value(samples, name) == 2 * (100 + reason), "those of deleted queues too"


@pytest.mark.parametrize("reason", RemovalReason)
def test_each_way_out_is_explained(reason: RemovalReason) -> None:
    assert f"{reason.word}  (removal reason {reason.value})" in invoke("explain", reason.word).stdout
