"""Purging and deleting queues."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.errors import AlreadyInUse, NotFound
from broker.engine.model.message import RoutingType
from broker.engine.queues.removal import REMOVE_RUN_MAX
from broker.engine.queues.steps import TOGETHER_MAX
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import PAGING, settled
from tests.simulation.world import accounts, check_counters, journal_directory, reasons


def scene(**limits: int) -> Bench:
    """A queue with a message in every place."""
    bench = Bench({"match": "a", "redelivery-delay": 60_000}, engine_limits=limits)
    bench.sent("a", b"held", b"failed")
    taker = bench.take("a", window=1)
    bench.nack(taker, taker.taken[0])
    bench.sent("a", b"ready", expiration=bench.broker.now + 50_000)
    bench.sent("a", b"scheduled", scheduled=bench.broker.now + 60_000)
    assert bench.places("a") == {
        b"held": "scheduled",
        b"failed": "delivering",
        b"ready": "ready",
        b"scheduled": "scheduled",
    }
    return bench


def test_purge_takes_what_waits() -> None:
    bench = scene()
    assert bench.purge("a") == 3
    assert bench.places("a") == {b"failed": "delivering"}
    assert bench.left("a") == {"purged": 3}
    bench = bench.restart()
    bench.broker.advance(200_000)
    assert bench.bodies("a") == [b"failed"]
    assert bench.bodies("ExpiryQueue") == []


def test_purge_of_more_than_one_record() -> None:
    count = 2 * REMOVE_RUN_MAX + 1
    bench = Bench(segment_bytes=4 << 20, engine_limits={"purge_step_max": count})
    bench.sent("a", *[b"x"] * count)
    assert bench.purge("a") == count
    assert bench.restart().bodies("a") == []


def test_delete_takes_everything_by_name_and_tells_consumers() -> None:
    bench = scene()
    taker = bench.take("a", window=1)
    id = bench.queue("a").id
    bench.enter().delete_queue(bench.queue("a"))
    bench.run()
    assert taker.closed == ["queue a was deleted"]
    account = accounts(bench.broker.files, journal_directory(bench.broker.config))[id]
    assert account.deleted
    assert reasons(account) == {RemovalReason.DELETED: 4}
    bench.broker.advance(200_000)
    assert bench.engine.usage.messages == 0
    with pytest.raises(NotFound):
        bench.queue("a")
    bench.close(taker, redelivery.CLOSED)
    assert "a" not in bench.restart().engine.queues


@pytest.mark.parametrize("memory", [-1, 0], ids=["fits", "is_paged"])
def test_delete_before_what_was_sent_is_on_disk(memory: int) -> None:
    bench = Bench({"match": "a", "max-size-messages": memory}, lazy_disk=True)
    bench.sent("a", b"1")
    queue = bench.queue("a")
    assert queue.message_count == 1
    bench.enter().delete_queue(queue)
    assert (queue.address.landing_messages, queue.address.landing_bytes) == (0, 0)
    bench.run()
    assert queue.message_count == 0
    bench.broker.step()
    assert queue.message_count == 0
    assert bench.engine.usage.messages == 0
    bench.sent("a", b"2")
    bench.broker.step()
    assert bench.restart().bodies("a") == [b"2"], "the same name, another queue"


@pytest.mark.parametrize("together", [2, TOGETHER_MAX])
def test_delete_what_is_in_memory_behind_a_higher_priority_on_disk(together: int) -> None:
    bench = Bench(PAGING)
    for body, priority in ((b"1", 1), (b"2", 1), (b"3", 9), (b"4", 9), (b"5", 9)):
        bench.sent("q", body, priority=priority)
    bench.close(bench.take("q", window=1), redelivery.CLOSED)
    queue = bench.queue("q")
    assert (queue.ready, queue.paged, queue.backlog.floor) == (3, 2, 9)
    bench.limit_ticks(1, least=1, together=together)
    bench.enter().delete_queue(queue)
    for _ in range(10):
        bench.broker.tick.end()
    assert queue.message_count == 0
    assert bench.engine.usage.messages == 0
    assert not bench.engine.ticks.is_working
    assert bench.engine._state.totals.left[RemovalReason.DELETED] == 5


def test_a_subscription_in_use_is_not_deleted(bench: Bench) -> None:
    taker = bench.take("a", RoutingType.MULTICAST, durable_name="s")
    with pytest.raises(AlreadyInUse):
        bench.enter().delete_subscription("s")
    bench.close(taker, redelivery.CLOSED)
    bench.enter().delete_subscription("s")
    bench.run()
    with pytest.raises(NotFound):
        bench.engine.delete_subscription("s")


def test_purging_step_by_step() -> None:
    bench = scene(purge_step_max=2)
    steps: list[int] = []
    while not steps or steps[-1]:
        steps.append(bench.enter().messages.purge(bench.queue("a")))
        bench.run()
        check_counters(bench.broker)
    assert steps == [2, 1, 0]
    assert bench.places("a") == {b"failed": "delivering"}
    assert bench.left("a") == {"purged": 3}
    assert len(bench.engine._state.schedule.expiries) == 0


def test_a_paged_queue_is_purged_step_by_step() -> None:
    bench = Bench(PAGING, engine_limits={"purge_step_max": 3})
    for n in range(9):
        bench.sent("q", b"%d" % n, priority=n % 3)
    assert bench.queue("q").paged == 7
    left = []
    while bench.enter().messages.purge(bench.queue("q")):
        bench.run()
        left.append(bench.queue("q").message_count)
    bench.run()
    assert left == [6, 3, 0]
    settled(bench)
