"""Message groups: one consumer each, in order."""

from __future__ import annotations

from dataclasses import replace
from time import thread_time

import pytest

from broker.engine.delivery.redelivery import CLOSED, RELEASED
from broker.engine.model.message import INGRESS_TIMESTAMP, Message, RoutingType
from broker.engine.model.names import REMEMBERED_CHARS_MAX
from broker.engine.publish.send import Send
from broker.engine.queues.grouped import NOTED_MAX, GroupedBacklog, bucket
from broker.engine.routing import destinations
from tests.broker.engine.engine_harness import Bench, Taker
from tests.broker.engine.queues.rules.queues import grouped, put, without_scans
from tests.simulation.world import check_accounts


def properties(message: Message) -> dict[str, object]:
    """What its head says."""
    return dict(message.header.format.properties(message.head))


def test_a_group_stays_with_its_consumer_and_others_flow(bench: Bench) -> None:
    bench.declare()
    first, second = bench.take("q"), bench.take("q")
    for n in range(6):
        grouped(bench, "q", "AB"[n % 2], b"%s%d" % (b"AB"[n % 2 : n % 2 + 1], n))
    assert (first.take(), second.take()) == ([b"A0", b"A2", b"A4"], [b"B1", b"B3", b"B5"])
    put(bench, "q", b"x", b"y")
    assert sorted(first.take() + second.take()) == [b"x", b"y"]


def test_a_consumer_without_credit_holds_up_its_groups_only(bench: Bench) -> None:
    bench.declare()
    narrow, wide = bench.take("q", window=0), bench.take("q")
    grouped(bench, "q", "A", b"A0", b"A1", b"A2")
    grouped(bench, "q", "B", b"B0", b"B1")
    assert (narrow.take(), wide.take()) == ([b"A0"], [b"B0", b"B1"])
    bench.ack(narrow, next(iter(narrow.consumer.unacked.values())))
    assert (narrow.take(), wide.take()) == ([b"A1"], [])


@pytest.mark.parametrize("count", [3, NOTED_MAX + 5])
def test_the_groups_of_a_consumer_that_leaves_go_to_others_in_order(bench: Bench, count: int) -> None:
    bench.declare()
    first, second = bench.take("q", window=0), bench.take("q")
    grouped(bench, "q", "A", *[b"%d" % n for n in range(count)])
    assert (first.take(), second.take()) == ([b"0"], [])
    bench.close(first, CLOSED)
    assert second.take() == [b"%d" % n for n in range(count)]


def test_a_group_is_closed_by_its_last_message(bench: Bench) -> None:
    bench.declare()
    first, second = bench.take("q", window=0), bench.take("q", window=0)
    grouped(bench, "q", "A", b"A0")
    grouped(bench, "q", "A", b"A1", closes=True)
    grouped(bench, "q", "A", b"A2")
    assert (first.take(), second.take()) == ([b"A0"], [])
    bench.ack(first, next(iter(first.consumer.unacked.values())))
    assert (first.take(), second.take()) == ([b"A1"], [b"A2"]), "anybody may have it now"


def test_the_first_of_a_group_says_so(bench: Bench) -> None:
    bench.declare(group_first_key="JMSXFirst")
    first = bench.take("q")
    grouped(bench, "q", "A", b"A0", b"A1")
    grouped(bench, "q", "B", b"B0")
    shown = {m.body: properties(m).get("JMSXFirst") for m in first.taken}
    assert shown == {b"A0": "true", b"A1": None, b"B0": "true"}
    message = first.consumer.unacked[first.taken[0].id]
    assert "JMSXFirst" not in properties(message), "only what is shown is marked"
    bench.ack(first, *first.taken)
    second = bench.take("q")
    bench.close(first, CLOSED)
    grouped(bench, "q", "A", b"A2", b"A3")
    assert [properties(m).get("JMSXFirst") for m in second.taken] == ["true", None]
    check_accounts(bench.broker)


def test_the_first_of_a_group_with_counted_deliveries() -> None:
    bench = Bench({"match": "q", "delivery-count-persistence": "strict"})
    bench.declare(group_first_key="first")
    taker = bench.take("q")
    grouped(bench, "q", "A", b"A0", b"A1")
    assert [properties(m).get("first") for m in taker.taken] == ["true", None]


@pytest.mark.parametrize("apart", [False, True])
def test_the_next_of_a_group_is_its_first_if_the_first_expires_as_it_is_handed_out(apart: bool) -> None:
    bench = without_scans()
    bench.declare(group_first_key="first")
    grouped(bench, "q", "A", b"A0", expiration=bench.broker.now + 10)
    bench.broker.now += 20
    if not apart:
        grouped(bench, "q", "A", b"A1", b"A2")
    taker = bench.take("q")
    if apart:
        grouped(bench, "q", "A", b"A1", b"A2")
    assert [properties(m).get("first") for m in taker.taken] == ["true", None]


@pytest.mark.parametrize(("attributes", "groups"), [({"group_buckets": 1}, True), ({"exclusive": True}, False)])
def test_one_bucket_and_one_consumer_are_as_one_group(
    bench: Bench, attributes: dict[str, object], groups: bool
) -> None:
    queue = bench.declare(**attributes)  # type: ignore[arg-type]
    first, second = bench.take("q"), bench.take("q")
    grouped(bench, "q", "A", b"A0")
    grouped(bench, "q", "B", b"B0")
    assert (first.take(), second.take()) == ([b"A0", b"B0"], [])
    assert queue.grouped is groups


def test_no_buckets_no_groups(bench: Bench) -> None:
    queue = bench.declare(group_buckets=0)
    first, second = bench.take("q"), bench.take("q")
    grouped(bench, "q", "A", b"A0", b"A1")
    assert (first.take(), second.take()) == ([b"A0"], [b"A1"])
    assert not queue.grouped


def test_a_bucket_is_the_same_in_every_run() -> None:
    assert [bucket("orders", 1024), bucket("Ärger", 7)] == [bucket("orders", 1024), bucket("Ärger", 7)]
    assert {bucket(f"g{n}", 8) for n in range(100)} == set(range(8))


def test_a_new_consumer_gets_nothing_of_known_groups_unless_they_are_dealt_out_anew() -> None:
    for rebalance in (False, True):
        bench = Bench()
        bench.declare(group_rebalance=rebalance)
        first = bench.take("q")
        for group in ("A", "B"):
            grouped(bench, "q", group, group.encode())
        second = bench.take("q")
        assert first.take() == [b"A", b"B"]
        for group in ("A", "B"):
            grouped(bench, "q", group, group.encode())
        assert bool(second.take()) is rebalance


def test_rebalance_waits_for_what_is_in_delivery(bench: Bench) -> None:
    bench.declare(group_rebalance=True, group_rebalance_pause_dispatch=True)
    first = bench.take("q")
    grouped(bench, "q", "A", b"A0")
    second = bench.take("q")
    grouped(bench, "q", "A", b"A1")
    assert (first.take(), second.take()) == ([b"A0"], []), "dispatch stands still"
    bench.ack(first, next(iter(first.consumer.unacked.values())))
    assert first.take() + second.take() == [b"A1"]
    grouped(bench, "q", "B", b"B0")
    assert first.take() + second.take() == [b"B0"]


def test_rebalance_waits_for_a_transaction(bench: Bench) -> None:
    bench.declare(group_rebalance=True, group_rebalance_pause_dispatch=True)
    first = bench.take("q")
    grouped(bench, "q", "A", b"A0")
    tx = bench.begin()
    bench.ack(first, first.taken[0], tx=tx)
    second = bench.take("q")
    grouped(bench, "q", "A", b"A1")
    assert first.take() + second.take() == [b"A0"]
    bench.commit(tx)
    assert first.take() + second.take() == [b"A1"]


def test_messages_that_the_owner_of_a_group_does_not_take(bench: Bench) -> None:
    bench.declare()
    low = bench.take("q", selector="AMQPriority < 5")
    anything = bench.take("q", window=0)
    grouped(bench, "q", "A", b"low", priority=1)
    assert low.take() == [b"low"]
    grouped(bench, "q", "A", b"high", priority=9)
    assert anything.take() == [b"high"], "nobody else could ever take it"
    grouped(bench, "q", "A", b"low again", priority=1)
    assert low.take() == [b"low again"]


def test_a_consumer_that_must_not_get_a_message_again(bench: Bench) -> None:
    bench.declare()
    first, second = bench.take("q"), bench.take("q")
    (message,) = grouped(bench, "q", "A", b"A0")
    bench.enter().consumers.give_back(first.consumer, message.id, replace(RELEASED, excluded=True))
    bench.run()
    assert (first.take(), second.take()) == ([b"A0"], [b"A0"])
    grouped(bench, "q", "A", b"A1")
    assert (first.take(), second.take()) == ([b"A1"], []), "the group is still the first one's"


def test_redelivery_keeps_the_order(bench: Bench) -> None:
    bench.declare()
    taker, idle = bench.take("q"), bench.take("q")
    messages = grouped(bench, "q", "A", b"A0", b"A1", b"A2")
    taker.take()
    bench.nack(taker, messages[1])
    bench.nack(taker, messages[0])
    assert (taker.take(), idle.take()) == ([b"A1", b"A0"], [])
    bench.close(taker, CLOSED)
    assert idle.take() == [b"A0", b"A1", b"A2"]


def test_groups_survive_a_restart(bench: Bench) -> None:
    bench.declare()
    for n in range(6):
        grouped(bench, "q", f"g{n % 3}", b"%d" % n)
    grouped(bench, "q", "later", b"later", scheduled=bench.broker.now + 1000)
    bench = bench.restart()
    takers: list[Taker] = [bench.take("q"), bench.take("q")]
    bench.broker.advance(1000)
    owners: dict[str, int] = {}
    for at, taker in enumerate(takers):
        for message in taker.taken:
            assert owners.setdefault(message.header.group, at) == at
    assert set(owners) == {"g0", "g1", "g2", "later"}
    bench.check()


def test_groups_that_close_survive_a_restart(bench: Bench) -> None:
    bench.declare()
    grouped(bench, "q", "A", b"A0", closes=True)
    bench = bench.restart()
    taker = bench.take("q")
    assert taker.taken[0].header.closes_group


def test_every_group_of_a_run_is_told_when_it_arrived() -> None:
    bench = Bench({"match": "q", "enable-ingress-timestamp": True})
    engine = bench.enter()
    address, queue = destinations.destination(engine._state, "q", RoutingType.ANYCAST)
    base = bench.header("q", routing_type=RoutingType.ANYCAST)
    messages = [
        Message(base.in_group(group, closes=False), b"JMSXGroupID:%b\n" % group.encode(), b"") for group in "ab"
    ]
    engine.producers.publish([Send.at(address, queue, None, messages)]).check()
    bench.run()
    bench = bench.restart()
    found = [m.header for m in bench.messages("q")]
    assert [(header.group, INGRESS_TIMESTAMP in (header.annotations or {})) for header in found] == [
        ("a", True),
        ("b", True),
    ]


def test_buckets_may_change_while_messages_wait(bench: Bench) -> None:
    bench.declare()
    grouped(bench, "q", "A", b"A0")
    grouped(bench, "q", "B", b"B0")
    bench.change("q", group_buckets=1)
    first, second = bench.take("q"), bench.take("q")
    assert (first.take(), second.take()) == ([b"A0", b"B0"], [])
    bench.change("q", group_buckets=0)
    grouped(bench, "q", "A", b"A1", b"A2")
    assert [len(taker.take()) for taker in (first, second)] == [1, 1]


def test_groups_beyond_the_limit_choose_anew(bench: Bench) -> None:
    queue = bench.declare()
    first, second = bench.take("q"), bench.take("q")
    grouped(bench, "q", "A", b"A0")
    assert isinstance(queue.backlog, GroupedBacklog)
    queue.backlog.groups_max = 2
    for group in ("B", "C", "D"):
        grouped(bench, "q", group, group.encode())
    assert queue.backlog.groups == 2
    assert sorted(first.take() + second.take()) == [b"A0", b"B", b"C", b"D"]
    grouped(bench, "q", "D", b"D1")
    assert b"D1" in first.take() + second.take()


def test_consumers_that_leave_cost_what_they_hold(bench: Bench) -> None:
    """Not what the others hold: 1,000 of one connection leave in one tick."""

    def cost_of_leaving(name: str, count: int) -> float:
        bench.declare(name)
        owner = bench.take(name)
        for number in range(count):
            grouped(bench, name, f"g{number}", b"x")
        assert len(owner.take()) == count
        others = [bench.take(name) for _ in range(500)]
        consumers = bench.enter().consumers
        begun = thread_time()
        for other in others:
            consumers.close(other.consumer, CLOSED)
        return thread_time() - begun

    assert cost_of_leaving("many", 5_000) < 5 * cost_of_leaving("few", 10)


def in_order(bodies: list[bytes]) -> bool:
    """Whether the messages of each group are in order."""
    return all(sorted(some) == some for some in ([b for b in bodies if b.startswith(b"%d." % n)] for n in range(40)))


@pytest.mark.parametrize("rebalance", [False, True])
def test_many_groups_become_free_in_steps_and_in_order(bench: Bench, rebalance: bool) -> None:
    """Whether their consumer leaves, or all groups are reassigned as another one comes."""
    queue = bench.declare(group_rebalance=rebalance)
    owner = bench.take("q", window=40, counted=True)
    for part in range(3):
        for number in range(40):
            grouped(bench, "q", f"g{number}", b"%d.%d" % (number, part))
    first = owner.take()
    others = [bench.take("q")]
    backlog = queue.backlog
    assert isinstance(backlog, GroupedBacklog)
    if not rebalance:
        assert (len(first), backlog.groups, others[0].take()) == (40, 40, []), "it has passed all others"
    bench.limit_ticks(16, least=16, together=8)
    if rebalance:
        others.append(bench.attach(Taker(), "q"))
    else:
        bench.enter().consumers.close(owner.consumer, CLOSED)
    ticks = 0
    while bench.engine.ticks.is_working:
        bench.engine.ticks.end()
        bench.engine.ticks.begin()
        ticks += 1
    assert ticks >= 2
    bench.run()
    taken = [other.take() for other in others]
    returned = [] if rebalance else first
    left = [b"%d.%d" % (number, part) for number in range(40) for part in range(3)]
    assert sorted([body for bodies in taken for body in bodies]) == sorted({*left} - {*first} | {*returned})
    assert all(in_order(bodies) for bodies in taken)
    grouped(bench, "q", "g7", b"7.3")
    assert b"7.3" in [body for other in others for body in other.take()]


def test_priorities_within_groups(bench: Bench) -> None:
    bench.declare()
    grouped(bench, "q", "A", b"low", priority=1)
    grouped(bench, "q", "A", b"high", priority=9)
    put(bench, "q", b"middle", priority=5)
    taker = bench.take("q")
    assert taker.take() == [b"high", b"middle", b"low"]


def test_purging_and_expiry(bench: Bench) -> None:
    queue = bench.declare()
    grouped(bench, "q", "A", b"A0", expiration=bench.broker.now + 10)
    grouped(bench, "q", "A", b"A1")
    bench.broker.advance(60_000)
    assert bench.bodies("q") == [b"A1"]
    bench.enter().messages.purge(queue)
    bench.run()
    grouped(bench, "q", "A", b"A2")
    assert bench.take("q").take() == [b"A2"]
    bench.check()


def test_sharded_queues_keep_a_group_on_one_of_them(bench: Bench) -> None:
    """The seeds' 4.8: an anycast address on several queues, messages tied to one by their group."""
    for name in ("q1", "q2", "q3"):
        bench.declare(name, "sharded")
    for n in range(60):
        grouped(bench, "sharded", f"g{n % 10}", b"%d" % (n % 10))
    found = {name: set(bench.bodies(name)) for name in ("q1", "q2", "q3")}
    assert sum(map(len, found.values())) == 10, "each group is on one queue"
    assert all(found.values())
    bench.take("sharded::q1")
    before = len(bench.bodies("q2"))
    grouped(bench, "sharded", "g0", b"0")
    grouped(bench, "sharded", "g1", b"1")
    assert {name: set(bench.bodies(name)) for name in ("q1", "q2", "q3")} == found
    assert len(bench.bodies("q2")) >= before


def test_the_names_of_remembered_groups_take_little_memory(bench: Bench) -> None:
    """Clients choose them: 16 KiB each, in memory for as long as a consumer has the group."""
    queue = bench.declare()
    first, second = bench.take("q"), bench.take("q")
    names = [letter * 16_000 for letter in "ABCD"]
    for name in names:
        grouped(bench, "q", name, name[:1].encode())
    assert isinstance(queue.backlog, GroupedBacklog)
    assert queue.backlog.groups == 4
    assert max(map(len, queue.backlog._assigned)) == REMEMBERED_CHARS_MAX + 1
    got = [taker.take() for taker in (first, second)]
    for name in names:
        grouped(bench, "q", name, name[:1].encode())
    assert [taker.take() for taker in (first, second)] == got, "each stays with its consumer"
