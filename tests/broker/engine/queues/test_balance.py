"""How many messages the journal has of each queue: counted as they come and go, recounted from the disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.moves.transfer import MessageRange
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import accounts, journal_directory


def counted(bench: Bench) -> tuple[int, dict[int, int]]:
    """The balance, by queue id."""
    position, queues, counts = bench.engine.balance()
    return position, {queue.id: count for queue, count in zip(queues, counts, strict=True)}


def recounted(bench: Bench, position: int) -> dict[int, int]:
    """The same from the disk: what entered below the position and did not leave below it."""
    found = accounts(bench.broker.files, journal_directory(bench.broker.config), position)
    return {id: len(account.present) for id, account in found.items() if not account.deleted}


def test_the_open_entry_counts_and_what_is_not_durable_does_not() -> None:
    bench = Bench(lazy_disk=True)
    bench.send("a", b"1", b"2", b"3")
    bench.send("a", b"4", durable=False)
    first, counts = counted(bench)
    assert [n for n in counts.values() if n] == [3]
    bench.send("a", b"5")
    later, counts = counted(bench)
    assert [n for n in counts.values() if n] == [4]
    assert later == first + 1
    assert bench.engine.journal.durable < bench.engine.journal.ticket, "nothing of it is on disk yet"


def test_each_queue_counts_its_own_and_those_that_forget_count_none(bench: Bench) -> None:
    bench.take("t", RoutingType.MULTICAST, durable_name="s")
    bench.take("t", RoutingType.MULTICAST)
    taker = bench.take("t", RoutingType.MULTICAST, durable_name="s2")
    messages = bench.sent("t", b"1", b"2", routing_type=RoutingType.MULTICAST)
    bench.ack(taker, messages[0])
    _, counts = counted(bench)
    assert sorted(n for n in counts.values() if n) == [1, 2]


class Work:
    """Random work on a few queues, whose ticks the disk follows now and then."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench({"match": "a", "max-delivery-attempts": 2}, lazy_disk=True)
        self.takers: list[Taker] = []
        self.balances: list[tuple[int, dict[int, int]]] = []

    def send(self) -> None:
        bodies = [b"x" * 200] * self.random.randrange(1, 9)
        expiration = self.bench.broker.now + 50 if self.random.random() < 0.3 else 0
        durable = self.random.random() < 0.8
        self.bench.send(self.random.choice("abc"), *bodies, durable=durable, expiration=expiration)

    def take(self) -> None:
        if len(self.takers) < 4:
            self.takers.append(self.bench.take(self.random.choice("abc"), window=2000))

    def settle(self) -> None:
        for taker in self.takers:
            done, taker.taken = taker.taken[:3], taker.taken[3:]
            if self.random.random() < 0.5:
                self.bench.ack(taker, *done)
            else:
                self.bench.nack(taker, *done, requeue=self.random.random() < 0.5)

    def leave(self) -> None:
        if self.takers:
            self.bench.close(self.takers.pop(), redelivery.CLOSED)

    def transfer(self) -> None:
        engine = self.bench.enter()
        if "DLQ" in engine.queues:
            engine.messages.retry(engine.queue("DLQ"), MessageRange())
        if "a" in engine.queues:
            engine.messages.move(engine.queue("a"), "b", MessageRange())

    def purge(self) -> None:
        engine = self.bench.enter()
        if "c" in engine.queues and self.random.random() < 0.3:
            engine.messages.purge(engine.queue("c"))

    def wait(self) -> None:
        self.bench.broker.advance(self.random.randrange(40))

    def sync(self) -> None:
        self.bench.broker.step()

    def look(self) -> None:
        """At any time, also within a tick."""
        self.bench.enter()
        self.balances.append(counted(self.bench))


@pytest.mark.parametrize("seed", range(10))
def test_the_balance_is_what_the_journal_says_up_to_its_position(seed: int) -> None:
    print(f"seed {seed}")
    work = Work(seed)
    actions: list[Callable[[], None]] = [work.send, work.send, work.take, work.settle, work.leave, work.transfer]
    actions += [work.purge, work.wait, work.sync, work.look]
    for _ in range(150):
        work.random.choice(actions)()
    work.bench.run()
    work.bench.broker.step()
    assert len({tuple(counts.values()) for _, counts in work.balances}) > 3
    for position, counts in work.balances:
        found = recounted(work.bench, position)
        assert {id: n for id, n in counts.items() if n} == {id: n for id, n in found.items() if n}
    position, counts = counted(work.bench)
    again = work.bench.restart()
    later, after = counted(again)
    assert later >= position
    assert after == counts
