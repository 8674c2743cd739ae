"""A message that enters many queues: it is stored at once, and lands on some of them in each tick."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from broker.engine import NewQueue
from broker.engine.delivery.redelivery import CLOSED
from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.queues import arrival
from broker.engine.queues.bindings import WIDE
from broker.engine.queues.queue import Queue
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import check_counters
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker
from tests.support.stomp_client import frame

MULTICAST = RoutingType.MULTICAST
COUNT = 12
NAMES = [f"s{n}" for n in range(COUNT)]


def bench_of(*settings: dict[str, object], durable: bool = True) -> Bench:
    """A topic with subscriptions, on four of which a message lands in a tick."""
    bench = Bench(*settings, lazy_disk=True)
    operators = bench.enter().operators
    for name in NAMES:
        operators.make_queue(NewQueue(name, address="t", routing_type=MULTICAST, durable=durable, make_address=True))
    bench.run()
    bench.broker.step()
    bench.limit_ticks(20, least=20, together=2)
    return bench


def queues(bench: Bench) -> list[Queue]:
    """The subscriptions."""
    return [bench.queue(name) for name in NAMES]


def publish(bench: Bench, body: bytes, name: str = "t", *, durable: bool = True) -> None:
    """Send one more message, with a header of its own; the tick stays open."""
    bench.send(name, body, routing_type=MULTICAST, durable=durable)


def turn(bench: Bench, *, disk: bool = True) -> None:
    """End the tick, let the disk work, and begin another."""
    bench.broker.tick.end()
    if disk:
        bench.broker.write()
    bench.enter()


def settle(bench: Bench) -> None:
    """All ticks and writes that follow, and what the landing of messages adds to the journal."""
    for _ in range(3):
        bench.run()
        bench.broker.step()


def landed(bench: Bench) -> list[int]:
    """How many messages are ready on each subscription."""
    return [queue.ready for queue in queues(bench)]


def stored(bench: Bench) -> list[int]:
    """What the books have of each subscription."""
    _, found, counts = bench.engine.balance()
    books = dict(zip([each.name for each in found], counts, strict=True))
    return [books[name] for name in NAMES]


@pytest.mark.parametrize("durable", [True, False])
def test_messages_to_the_same_queues_share_a_list_of_them(durable: bool) -> None:
    """With a list for each, 5,000 to 3,000 queues take 120 MB, which the collector of cycles visits."""
    bench = bench_of(durable=False)
    for number in range(9):
        publish(bench, b"%d" % number, durable=durable)
    state = bench.engine._state
    lists = [fan.queues for fan in state.pending.fans] + [each for each, _, _ in state.pending.work.landing]
    assert len(lists) == 9
    assert len({id(each) for each in lists}) <= 2
    settle(bench)
    assert landed(bench) == [9] * COUNT


@pytest.mark.parametrize("durable", [True, False])
def test_a_tick_lets_it_land_on_a_few_queues(durable: bool) -> None:
    bench = bench_of()
    publish(bench, b"1", durable=durable)
    seen: list[int] = []
    while not seen or seen[-1] < COUNT:
        turn(bench)
        seen.append(sum(landed(bench)))
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(steps) <= 4, steps
    settle(bench)
    bench.check()
    assert [bench.bodies(name) for name in NAMES] == [[b"1"]] * COUNT


def test_it_is_on_all_queues_after_a_crash_or_on_none() -> None:
    bench = bench_of()
    publish(bench, b"lost")
    turn(bench, disk=False)
    again = bench.restart()
    assert [again.bodies(name) for name in NAMES] == [[]] * COUNT
    bench = bench_of()
    publish(bench, b"kept")
    turn(bench)
    assert sum(landed(bench)) < COUNT
    again = bench.restart()
    assert [again.bodies(name) for name in NAMES] == [[b"kept"]] * COUNT
    again.check()


def test_each_queue_gets_what_comes_later_behind_it() -> None:
    bench = bench_of()
    takers = [bench.take(f"t::{name}", MULTICAST) for name in NAMES]
    publish(bench, b"before", "t::s11")
    publish(bench, b"1")
    publish(bench, b"durable", "t::s11")
    publish(bench, b"not", "t::s11", durable=False)
    publish(bench, b"2", durable=False)
    turn(bench)
    publish(bench, b"3")
    publish(bench, b"later", "t::s11")
    publish(bench, b"not either", "t::s11", durable=False)
    settle(bench)
    assert takers[0].take() == [b"1", b"2", b"3"]
    assert takers[11].take() == [b"before", b"1", b"durable", b"not", b"2", b"3", b"later", b"not either"]
    bench.check()


def test_others_do_not_wait_for_it() -> None:
    bench = bench_of()
    for n in range(20):
        publish(bench, b"%d" % n)
    turn(bench)
    bench.send("q", b"mine")
    turn(bench)
    turn(bench)
    assert bench.queue("q").ready == 1
    assert sum(landed(bench)) < 20 * COUNT
    settle(bench)
    bench.check()


def test_the_figures_of_a_queue_count_what_is_on_its_way() -> None:
    bench = bench_of()
    publish(bench, b"1")
    publish(bench, b"2", durable=False)
    turn(bench)
    last = bench.queue("s11")
    assert (last.message_count, last.counts["added"], last.ready) == (2, 2, 0)
    assert [body_of(message) for message in bench.engine._state.pending.landing_on(last)] == [b"1", b"2"]
    assert stored(bench) == [1] * COUNT
    check_counters(bench.broker)
    settle(bench)
    assert stored(bench) == [1] * COUNT


def test_a_queue_that_is_deleted_meanwhile_loses_it_by_name() -> None:
    bench = bench_of()
    publish(bench, b"1")
    publish(bench, b"2", durable=False)
    bench.engine.delete_queue(bench.queue("s10"))
    turn(bench)
    totals = bench.engine.statistics.totals
    bench.engine.delete_queue(bench.queue("s11"))
    settle(bench)
    assert bench.engine._state.totals.left[RemovalReason.DELETED] == 4
    assert bench.engine.statistics.totals["added"] == 2 * COUNT >= totals["added"]
    assert [bench.bodies(name) for name in NAMES[:10]] == [[b"1", b"2"]] * 10
    for name in NAMES[:10]:
        bench.enter()
        bench.purge(name)
    settle(bench)
    bench.check()
    assert (bench.engine.usage.messages, bench.engine.usage.bytes) == (0, 0)


def test_a_queue_takes_no_more_than_its_limit() -> None:
    bench = bench_of()
    for queue in queues(bench):
        queue.messages_max = 2
    for n in range(4):
        publish(bench, b"%d" % n, durable=n % 2 == 0)
    publish(bench, b"alone", "t::s11")
    settle(bench)
    assert [bench.bodies(name) for name in NAMES] == [[b"0", b"1"]] * COUNT
    bench.check()
    assert bench.queue("s11").counts["dropped"] == 3


def test_a_subscription_that_is_not_durable_stores_none_of_it() -> None:
    bench = bench_of(durable=False)
    operators = bench.enter().operators
    for name in ("d0", "d1", "d2"):
        operators.make_queue(NewQueue(name, address="t", routing_type=MULTICAST))
    settle(bench)
    publish(bench, b"1")
    settle(bench)
    assert [bench.bodies(name) for name in (*NAMES, "d0")] == [[b"1"]] * (COUNT + 1)
    bench.check()
    again = bench.restart()
    assert [again.bodies(name) for name in ("d0", "d1", "d2")] == [[b"1"]] * 3


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_address_pages_on_a_few_queues_in_a_tick_and_behind_it_what_comes_later(durable: bool) -> None:
    bench = bench_of({"match": "t", "max-size-messages": 1})
    publish(bench, b"1")
    settle(bench)
    publish(bench, b"2", durable=durable)
    assert bench.engine.addresses["t"].landing_messages == COUNT
    bench.engine.addresses["t"].settings = replace(bench.engine.addresses["t"].settings, max_size_messages=100)
    publish(bench, b"3")
    publish(bench, b"4", "t::s11", durable=durable)
    ticks = 0
    while any([queue.landing or queue.fanned for queue in queues(bench)]):
        before = [queue.paged for queue in queues(bench)]
        turn(bench)
        assert sum([queue.paged > was for queue, was in zip(queues(bench), before, strict=True)]) <= 8, "two ticks"
        ticks += 1
    assert ticks > 2
    assert [queue.paged for queue in queues(bench)] == [2] * (COUNT - 1) + [3]
    assert [queue.ready for queue in queues(bench)] == [1] * COUNT
    settle(bench)
    assert [bench.take(f"t::{name}", MULTICAST).take() for name in ("s1", "s11")] == [
        [b"1", b"2", b"3"],
        [b"1", b"2", b"3", b"4"],
    ]
    bench.check()


def test_a_queue_that_can_no_longer_page_takes_what_was_to_be_paged_into_memory() -> None:
    bench = bench_of({"match": "t", "max-size-messages": 0})
    publish(bench, b"1")
    publish(bench, b"2", durable=False)
    bench.change("s11", non_destructive=True)
    settle(bench)
    assert [(queue.ready, queue.paged) for queue in queues(bench)] == [(0, 2)] * (COUNT - 1) + [(2, 0)]
    assert bench.bodies("s11") == [b"1", b"2"]
    bench.check()


def test_beside_a_long_commit() -> None:
    bench = bench_of()
    tx = bench.begin()
    for n in range(60):
        bench.send("t" if n % 6 == 0 else "a", b"%d" % n, tx=tx, routing_type=MULTICAST if n % 6 == 0 else None)
    engine = bench.enter()
    engine.transactions.commit(tx)
    while not engine.journal.held:
        turn(bench)
    publish(bench, b"other")
    publish(bench, b"another", "t::s3")
    settle(bench)
    mine = [b"%d" % n for n in range(0, 60, 6)]
    for name in NAMES:
        bodies = bench.bodies(name)
        assert [body for body in bodies if body in mine] == mine
        others = [b"other", b"another"] if name == "s3" else [b"other"]
        assert [body for body in bodies if body not in mine] == others
    bench.check()
    again = bench.restart()
    assert sorted(again.bodies("s3")) == sorted([*mine, b"other", b"another"])


#: What the address of the random test has: nothing, or limits beyond which it pages some, most or all.
LIMITS: list[dict[str, object]] = [{}, {"max-size-bytes": 20_000}, {"max-size-messages": 3}, {"max-size-messages": 0}]


@pytest.mark.parametrize("seed", range(16))
def test_random_sends_deletions_and_crashes(seed: int) -> None:
    random = Random(seed)
    bench = bench_of({"match": "t", **LIMITS[seed % len(LIMITS)]})
    takers: dict[str, Taker] = {}
    sent: dict[str, list[bytes]] = {name: [] for name in NAMES}
    got: dict[str, list[bytes]] = {name: [] for name in NAMES}
    for n in range(150):
        alive = [name for name in NAMES if name in bench.engine.queues]
        match random.randrange(12):
            case 0 if len(alive) > 5:
                name = random.choice(alive)
                bench.engine.delete_queue(bench.queue(name))
                del sent[name]
                takers.pop(name, None)
            case 1 | 2:
                name = random.choice(alive)
                if name in takers:
                    taker = takers.pop(name)
                    got[name] += [body_of(each) for each in taker.taken]
                    for message in taker.taken:
                        bench.engine.consumers.acknowledge(taker.consumer, message.id)
                    bench.engine.consumers.close(taker.consumer, CLOSED)
                else:
                    takers[name] = bench.attach(Taker(), f"t::{name}", MULTICAST)
            case 3 | 4:
                turn(bench, disk=random.random() < 0.7)
            case 5 | 6 | 7:
                name = random.choice(alive)
                publish(bench, b"%d" % n, f"t::{name}", durable=random.random() < 0.7)
                sent[name].append(b"%d" % n)
            case _:
                publish(bench, b"%d" % n, durable=random.random() < 0.7)
                for name in alive:
                    sent[name].append(b"%d" % n)
    settle(bench)
    bench.check()
    address, state = bench.engine.addresses["t"], bench.engine._state
    assert (address.landing_messages, address.landing_bytes, state.pending.paging) == (0, 0, 0)
    assert not any([queue.paging or queue.fanned or queue.landing for queue in bench.engine.queues_of(address)])
    for name, bodies in sent.items():
        taken = [body_of(each) for each in takers[name].taken] if name in takers else []
        assert [*got[name], *taken, *(b for b in bench.bodies(name) if b not in taken)] == bodies, (
            f"seed {seed}, {name}"
        )


def test_a_run_for_few_queues_lands_as_ever() -> None:
    bench = Bench(lazy_disk=True)
    for name in NAMES:
        bench.enter().operators.make_queue(NewQueue(name, address="t", routing_type=MULTICAST, make_address=True))
    bench.run()
    assert len(NAMES) <= arrival.MANY_QUEUES
    publish(bench, b"1")
    assert [queue.landing for queue in queues(bench)] == [1] * COUNT
    assert not any([queue.fanned for queue in queues(bench)])


def test_sends_to_very_many_queues_are_published_few_at_a_time() -> None:
    bench = Bench(segment_bytes=4 << 20)
    operators, producers = bench.enter().operators, bench.engine.producers
    for number in range(WIDE):
        operators.make_queue(NewQueue(f"s{number}", address="t", routing_type=MULTICAST, make_address=True))
    publish(bench, b"1")
    assert (producers.match_cost("t"), producers.filtering) == (0, False)
    operators.make_queue(NewQueue("more", address="t", routing_type=MULTICAST))
    publish(bench, b"2")
    assert (producers.match_cost("t"), producers.filtering) == ((WIDE + 1) // 5, True)
    bench.run()
    assert (bench.bodies("s0"), bench.bodies("more")) == ([b"1", b"2"], [b"2"])


@pytest.mark.parametrize("together", [1, 100])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_messages_that_a_filter_divides_come_in_the_order_in_which_they_were_sent(
    together: int, persistent: str
) -> None:
    """Those that all queues accept may land ticks before the others that came between them."""
    broker = SimBroker()
    operators = broker.enter().operators
    for name in [*NAMES, "red"]:
        filter = compile_filter("colour = 'red'") if name == "red" else None
        operators.make_queue(NewQueue(name, address="t", routing_type=MULTICAST, filter=filter, make_address=True))
    broker.run()
    readers = [broker.subscriber(f"/topic/t::{name}", ack="auto") for name in NAMES]
    steps = broker.engine._state.steps
    steps.budget = steps.budget_min = steps.deliveries_min = 34
    steps.together_max = together
    headers = {"destination": "/topic/t", "persistent": persistent}
    colours = ["red", "blue", "red", "red", "blue", "red"]
    sends = [frame("SEND", {**headers, "colour": colour}, b"%d" % n) for n, colour in enumerate(colours)]
    broker.connect().raw(b"".join(sends))
    assert [reader.bodies() for reader in readers] == [[b"0", b"1", b"2", b"3", b"4", b"5"]] * COUNT
