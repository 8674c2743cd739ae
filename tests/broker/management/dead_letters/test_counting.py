"""Counting dead letters: a step a tick, one call at a time."""

from __future__ import annotations

import asyncio

import pytest

from broker.engine import DeadLetterGroup
from broker.engine.model.errors import NotFound
from broker.engine.model.limits import Limits
from broker.management.dead_letters.counting import GroupCounter
from tests.broker.management.harness import TestBroker, die


@pytest.fixture
def engine_limits() -> Limits:
    """A step looks at four messages in memory."""
    return Limits(group_step_max=1)


async def test_every_queue_of_dead_letters_is_counted_in_ticks_of_others(broker: TestBroker) -> None:
    await die(broker, "a", *[b"1"] * 9)
    await die(broker, "b", b"2")
    broker.queue("no/dead/letters")
    before = broker.tick.ended
    counter = GroupCounter(broker)
    counted = await counter.count()
    assert [(group, count.count) for group, count in counted.groups()] == [
        (DeadLetterGroup(reason="rejected", origin="a"), 9),
        (DeadLetterGroup(reason="rejected", origin="b"), 1),
    ]
    assert broker.tick.ended - before == 3
    assert list(counted.queues) == ["DLQ"]


async def test_calls_take_turns_and_a_queue_is_named(broker: TestBroker) -> None:
    await die(broker, "a", *[b"1"] * 9)
    counter = GroupCounter(broker)
    both = await asyncio.gather(counter.count(by=["words"]), counter.count(["DLQ"], ["queue"]))
    assert [counted.total.count for counted in both] == [9, 9]
    with pytest.raises(NotFound, match="no/such"):
        await counter.count(["no/such"])
