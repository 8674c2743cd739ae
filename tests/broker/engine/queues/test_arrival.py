"""How messages find their queues, what they cost, and what happens when there is no room."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from broker.daemon.wiring import settings_table
from broker.engine.filter import Filter
from broker.engine.filter.limits import NODES_PER_MICROSECOND
from broker.engine.filter.values import Properties
from broker.engine.model.errors import AddressFull, NoQueue
from broker.engine.model.message import Message, RoutingType
from broker.engine.publish.send import Send
from broker.engine.routing import destinations
from store import decode
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Producing, fill, section
from tests.simulation.world import check_accounts, check_counters, journal_records, small
from tests.support.bodies import body_of
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def declare(bench: Bench, address: str, **queues: tuple[RoutingType, str]) -> None:
    engine = bench.enter()
    made = engine.configuration.declare(address, {routing_type for routing_type, _ in queues.values()})
    for name, (routing_type, selector) in queues.items():
        engine.configuration.declare_queue(made, name, routing_type, durable=True, selector=selector)
    bench.run()


def test_anycast_goes_to_one_queue_in_turn(bench: Bench) -> None:
    declare(bench, "a", q1=(ANYCAST, ""), q2=(ANYCAST, ""), q3=(ANYCAST, ""))
    bench.sent("a", b"1", b"2", b"3", b"4")
    bench.sent("a", b"5", b"6")
    assert [bench.bodies(q) for q in ("q1", "q2", "q3")] == [[b"1", b"4"], [b"2", b"5"], [b"3", b"6"]]


def test_anycast_prefers_a_queue_with_a_consumer_whose_filter_matches(bench: Bench) -> None:
    """ActiveMQ Artemis: anycast queues q1, q2 on A, consumer only on q2: all to q2 while it matches."""
    declare(bench, "A", q1=(ANYCAST, ""), q2=(ANYCAST, "colour = 'red'"))
    taker = bench.take("A::q2")
    bench.sent("A", b"1", b"2", head=b"colour:red\n")
    bench.sent("A", b"3", head=b"colour:blue\n")
    assert taker.take() == [b"1", b"2"]
    assert bench.bodies("q1") == [b"3"]


@interpreted
def test_a_text_is_evaluated_once_for_a_message_and_its_cost_is_counted(bench: Bench) -> None:
    wide = " OR ".join(["colour = 'red'"] * 100)
    declare(bench, "a", **{f"q{n}": (MULTICAST, wide) for n in range(9)}, other=(MULTICAST, "colour = 'blue'"))
    evaluated: list[str] = []
    matches = Filter.matches

    def noting(filter: Filter, properties: Properties) -> bool:
        evaluated.append(filter.text)
        return matches(filter, properties)

    steps = bench.enter()._state.steps
    before = steps.left
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Filter, "matches", noting)
        bench.send("a", b"1", routing_type=None, head=b"colour:blue\n")
    assert sorted(evaluated) == sorted([wide, "colour = 'blue'"])
    assert before - steps.left >= (3 * 100) // NODES_PER_MICROSECOND
    bench.run()
    assert bench.bodies("other") == [b"1"]


def test_the_cost_of_filters_follows_the_queues(bench: Bench) -> None:
    wide = " OR ".join(["a = 1"] * 100)
    declare(bench, "t.a", q=(MULTICAST, wide))
    producers = bench.enter().producers
    cost = ceil((3 * 100 + 1) / NODES_PER_MICROSECOND)
    assert (producers.match_cost("t.a"), producers.match_cost("t.b"), producers.filtering) == (cost, 0, True)
    declare(bench, "t.#", same=(MULTICAST, wide), more=(MULTICAST, wide + " OR b = 2"))
    more = ceil((3 * 101 + 1) / NODES_PER_MICROSECOND)
    assert (producers.match_cost("t.a"), producers.match_cost("t.b")) == (cost + more, cost + more)
    engine = bench.enter()
    for name in ("q", "same", "more"):
        engine.delete_queue(bench.queue(name))
    assert (producers.match_cost("t.a"), producers.match_cost("t.b"), producers.filtering) == (0, 0, False)


def test_anycast_queues_with_consumers_take_turns(bench: Bench) -> None:
    declare(bench, "a", q1=(ANYCAST, ""), q2=(ANYCAST, ""), q3=(ANYCAST, ""))
    one, three = bench.take("a::q1"), bench.take("a::q3")
    for n in range(4):
        bench.sent("a", b"%d" % n)
    assert (one.take(), three.take(), bench.bodies("q2")) == ([b"0", b"2"], [b"1", b"3"], [])


def test_multicast_goes_to_every_queue_whose_filter_accepts_and_is_stored_once(bench: Bench) -> None:
    declare(bench, "a", q1=(MULTICAST, ""), q2=(MULTICAST, "colour = 'red'"), q3=(MULTICAST, ""))
    (message,) = bench.sent("a", b"1", routing_type=None, head=b"colour:blue\n")
    assert message.refs == 2
    assert [bench.bodies(q) for q in ("q1", "q2", "q3")] == [[b"1"], [], [b"1"]]
    assert bench.engine.usage.messages == 1
    bench.ack(bench.take("a::q1", None), message)
    assert bench.engine.usage.messages == 1
    bench.ack(bench.take("a::q3", None), message)
    assert bench.engine.usage.messages == 0
    check_accounts(bench.broker)


def test_without_a_preference_both_kinds_get_it_each_by_its_own_rule(bench: Bench) -> None:
    declare(bench, "a", q1=(ANYCAST, ""), q2=(ANYCAST, ""), s1=(MULTICAST, ""), s2=(MULTICAST, ""))
    bench.sent("a", b"1", routing_type=None)
    bench.sent("a", b"2", routing_type=ANYCAST)
    bench.sent("a", b"3", routing_type=MULTICAST)
    assert bench.bodies("q1") + bench.bodies("q2") == [b"1", b"2"]
    assert bench.bodies("s1") == bench.bodies("s2") == [b"1", b"3"]


def test_wildcard_addresses_get_copies_that_keep_their_address(bench: Bench) -> None:
    declare(bench, "news.#", all=(MULTICAST, ""))
    declare(bench, "news.*.sport", sport=(MULTICAST, ""))
    declare(bench, "news.eu", eu=(MULTICAST, ""))
    bench.sent("news.eu", b"1", routing_type=None)
    bench.sent("news.eu.sport", b"2", routing_type=MULTICAST)
    bench.sent("other", b"3", routing_type=MULTICAST)
    assert (bench.bodies("all"), bench.bodies("sport"), bench.bodies("eu")) == ([b"1", b"2"], [b"2"], [b"1"])
    assert [m.header.address for m in bench.messages("all")] == [
        "news.eu",
        "news.eu.sport",
    ]


def test_a_full_queue_name_reaches_that_queue_alone_and_its_filter_holds(bench: Bench) -> None:
    declare(bench, "a", q1=(ANYCAST, ""), s1=(MULTICAST, "colour = 'red'"), s2=(MULTICAST, ""))
    bench.sent("a::s1", b"1", routing_type=None, head=b"colour:red\n")
    with pytest.raises(NoQueue):
        bench.send("a::s1", b"2", routing_type=None, head=b"colour:blue\n")
    bench.sent("a::s1", b"3", routing_type=None, head=b"colour:blue\n", durable=False)
    assert [bench.bodies(q) for q in ("q1", "s1", "s2")] == [[], [b"1"], []]
    assert bench.engine.addresses["a"].unrouted == 1


def test_messages_that_no_queue_takes_are_counted_and_recorded(bench: Bench) -> None:
    bench.sent("a", b"1", b"2", routing_type=MULTICAST)
    bench.sent("a", b"3", routing_type=MULTICAST, durable=False)
    assert "a" not in bench.engine.addresses
    assert bench.engine._state.totals.unrouted == 3
    (told,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.Dropped)]
    assert (told.reason, told.count, told.size, told.address) == (RemovalReason.UNROUTABLE, 2, 2, "a")
    assert bench.engine.usage.messages == 0


def test_a_queue_that_is_gone_before_the_send_takes_nothing(bench: Bench) -> None:
    declare(bench, "a", s1=(MULTICAST, ""))
    engine = bench.enter()
    address, queue = destinations.destination(engine._state, "a::s1", None)
    engine.delete_queue(bench.queue("s1"))
    header = bench.header("a")
    with pytest.raises(NoQueue):
        engine.producers.publish([Send.at(address, queue, None, [Message(header, b"", b"1")])]).check()
    bench.run()
    assert address.unrouted == 0
    bench.restart()


# -- durability --------------------------------------------------------------------------------------------------------


def test_durable_messages_are_ready_once_they_are_on_disk_others_at_once_or_behind_them() -> None:
    bench = Bench(lazy_disk=True)
    bench.take("a")
    bench.broker.step()
    taker = bench.take("a")
    first = bench.queue("a").consumers[0].sink
    bench.sent("a", b"not", durable=False)
    assert first.take() + taker.take() == [b"not"]  # type: ignore[attr-defined]
    bench.sent("a", b"durable")
    bench.sent("a", b"behind", durable=False)
    assert bench.queue("a").message_count == bench.queue("a").landing + 1 == 3
    assert first.take() + taker.take() == []  # type: ignore[attr-defined]
    bench.broker.step()
    assert sorted(first.take() + taker.take()) == [b"behind", b"durable"]  # type: ignore[attr-defined]


def test_only_durable_messages_on_durable_queues_are_in_the_journal(bench: Bench) -> None:
    declare(bench, "a", kept=(MULTICAST, ""))
    engine = bench.enter()
    engine.configuration.declare_queue(engine.addresses["a"], "passing", MULTICAST, durable=False, selector="")
    bench.sent("a", b"1", routing_type=None)
    bench.sent("a", b"2", routing_type=None, durable=False)
    assert bench.bodies("kept") == bench.bodies("passing") == [b"1", b"2"]
    again = bench.restart()
    assert again.bodies("kept") == [b"1"]
    assert "passing" not in again.engine.queues


# -- full addresses ----------------------------------------------------------------------------------------------------


def stopped(producer: Producing) -> bool:
    return producer.blocked


def limited(policy: str, **more: Any) -> Bench:
    return Bench({"match": "a", "max-size-messages": 2, "address-full-policy": policy, **more})


def test_fail_refuses_and_nothing_changes() -> None:
    bench = limited("FAIL")
    bench.sent("a", b"1", b"2")
    with pytest.raises(AddressFull, match="address a is full"):
        bench.send("a", b"3")
    bench.run()
    assert bench.bodies("a") == [b"1", b"2"]
    check_counters(bench.broker)


def test_drop_counts_and_says_so_once() -> None:
    bench = limited("DROP")
    for body in (b"1", b"2", b"3", b"4"):
        bench.sent("a", body)
    assert bench.bodies("a") == [b"1", b"2"]
    assert bench.engine.addresses["a"].dropped == 2
    assert len(bench.broker.reported("address.full.dropping")) == 1
    dropped = [r for r in journal_records(bench.broker) if isinstance(r, decode.Dropped)]
    assert [(d.reason, d.count, d.address) for d in dropped] == [(RemovalReason.DROPPED, 1, "a")] * 2


def test_each_time_that_it_drops_is_reported_but_not_each_message() -> None:
    bench = Bench({"match": "a", "max-size-messages": 4, "address-full-policy": "DROP"})
    taker = bench.take("a", window=0)
    bench.sent("a", *[b"1"] * 4)
    bench.sent("a", b"2")
    bench.ack(taker, taker.taken[-1])
    bench.sent("a", b"3")  # it is just below its limit
    bench.sent("a", b"4")
    assert len(bench.broker.reported("address.full.dropping")) == 1
    while bench.queue("a").message_count:
        bench.ack(taker, taker.taken[-1])
    bench.sent("a", *[b"5"] * 4)
    bench.sent("a", b"6")
    bench.sent("a", b"7")
    assert len(bench.broker.reported("address.full.dropping")) == 2


def test_a_run_that_fills_the_address_is_taken_up_to_the_limit() -> None:
    bench = limited("FAIL")
    with pytest.raises(AddressFull, match="address a is full"):
        bench.send("a", b"1", b"2", b"3", b"4")
    bench.run()
    assert bench.bodies("a") == [b"1", b"2"]
    with pytest.raises(AddressFull):
        bench.send("a", b"5", b"6")
    bench.run()
    assert bench.bodies("a") == [b"1", b"2"]
    check_counters(bench.broker)


def test_a_run_as_long_as_the_limit_is_taken() -> None:
    bench = limited("FAIL")
    bench.sent("a", b"1", b"2")
    assert bench.bodies("a") == [b"1", b"2"]


def test_of_a_run_what_is_beyond_the_limit_is_dropped() -> None:
    bench = limited("DROP")
    bench.sent("a", b"1", b"2", b"3", b"4")
    assert bench.bodies("a") == [b"1", b"2"]
    assert bench.engine.addresses["a"].dropped == 2
    dropped = [r for r in journal_records(bench.broker) if isinstance(r, decode.Dropped)]
    assert sum(d.count for d in dropped) == 2


def test_bytes_are_a_limit_within_a_run_too() -> None:
    bench = Bench({"match": "a", "max-size-bytes": 700, "address-full-policy": "FAIL"})
    with pytest.raises(AddressFull):
        bench.send("a", *[b"x" * 100] * 10)
    bench.run()
    taken = len(bench.bodies("a"))
    address = bench.engine.addresses["a"]
    assert address.size_bytes - address.size_bytes // taken < 700 <= address.size_bytes


def test_block_takes_what_comes_and_stops_the_producer_until_there_is_room() -> None:
    bench = limited("BLOCK")
    (first, _) = bench.sent("a", b"1", b"2")
    producer = Producing()
    address = bench.engine.addresses["a"]
    producer.blocked = bench.enter().producers.wait_for_room(address, producer)
    assert stopped(producer)
    bench.sent("a", b"3")
    assert bench.bodies("a") == [b"1", b"2", b"3"]
    taker = bench.take("a")
    bench.ack(taker, first)
    assert stopped(producer), "two are still as many as the address may hold"
    bench.ack(taker, taker.taken[1])
    assert not stopped(producer)
    assert not bench.enter().producers.wait_for_room(address, producer)


def test_a_producer_that_was_stopped_by_the_global_limit_goes_on_when_anybody_makes_room() -> None:
    shipped = small().broker
    blocking: dict[str, object] = {"match": "*", "address-full-policy": "BLOCK"}
    bench = Bench(blocking, broker=shipped.model_copy(update={"global_max_size": 1000}))
    (message, *_) = bench.sent("crowded", bytes(900))
    bench.sent("empty", b"")
    bench.ack(bench.take("empty"), *bench.messages("empty"))
    producer = Producing()
    producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["empty"], producer)
    assert stopped(producer)
    bench.ack(bench.take("crowded"), message)
    assert not stopped(producer)


def test_other_settings_let_stopped_producers_go_on() -> None:
    bench = limited("BLOCK")
    bench.sent("a", b"1", b"2")
    producer = Producing()
    producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["a"], producer)
    assert stopped(producer)
    bench.enter().configuration.change_settings(settings_table(small()))
    bench.run()
    assert not stopped(producer)


# -- a full disk -------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_durable_messages_and_nothing_changes() -> None:
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=96 << 10)))
    sent = len(fill(bench, "a"))
    assert sent > 20
    assert len(bench.bodies("a")) == sent
    bench.sent("a", b"not durable", durable=False)
    taker = bench.take("a")
    assert len(taker.taken) == sent + 1
    bench.ack(taker, *taker.taken)
    bench.broker.advance(10_000)
    bench.sent("a", b"there is room again")
    assert bench.restart().bodies("a") == [b"there is room again"]


# -- scheduled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_scheduled_messages_wait_also_over_a_restart(bench: Bench, crash: bool) -> None:
    due = bench.broker.now + 5000
    bench.sent("a", b"later", scheduled=due)
    bench.sent("a", b"now")
    assert bench.places("a") == {b"now": "ready", b"later": "scheduled"}
    bench.broker.advance(1000)
    bench = bench.restart(crash=crash)
    assert bench.places("a") == {b"now": "ready", b"later": "scheduled"}
    taker = bench.take("a")
    assert taker.take() == [b"now"]
    bench.broker.advance(3999)
    assert taker.take() == []
    bench.broker.advance(1)
    assert taker.take() == [b"later"]


@pytest.mark.parametrize("settings", [{}, {"delivery-count-persistence": "strict"}, {"max-size-messages": 1}])
@pytest.mark.parametrize("crash", [True, False])
def test_deliveries_that_failed_elsewhere_are_known_here(settings: dict[str, object], crash: bool) -> None:
    """In memory or paged, before a restart and after it, and until the message leaves."""
    bench = Bench({"match": "a", "address-full-policy": "PAGE"} | settings)
    bench.sent("a", b"new")
    bench.sent("a", b"2 failed", b"2 more", attempts=2)
    bench.sent("a", b"was sent", attempts=0)
    bench.sent("a", b"gone", attempts=3, durable=False)
    for _ in range(2):
        queue = bench.queue("a")
        states = {body_of(m): queue.states.get(m.id) for m, _ in bench.engine.messages.browse(queue)}
        counts = {body: None if state is None else state.count for body, state in states.items()}
        assert counts.pop(b"gone", 3) == 3
        assert counts == {b"new": None, b"2 failed": 2, b"2 more": 2, b"was sent": 0}
        bench = bench.restart(crash=crash)
    taker = bench.take("a")
    bench.ack(taker, *taker.taken)
    assert not bench.queue("a").states
    check_counters(bench.broker)


def test_a_queue_that_keeps_its_messages_counts_nothing() -> None:
    bench = Bench({"match": "a", "default-non-destructive": True})
    bench.sent("a", b"x", attempts=2)
    assert not bench.queue("a").states


def test_a_copy_that_a_divert_makes_goes_on_counting() -> None:
    bench = Bench(diverts={"d": section("a", "b")})
    bench.sent("b", b"new")
    bench.sent("a", b"x", attempts=2)
    queue = bench.queue("b")
    assert [queue.delivery_count(m.id) for m, _ in bench.engine.messages.browse(queue)] == [0, 2]


def test_sends_that_go_together_count(bench: Bench) -> None:
    """In one commit, mixed."""
    engine = bench.enter()
    tx = engine.transactions.begin(object())
    for number in range(4):
        bench.send("ab"[number % 2], b"%d" % number, attempts=number - 1, tx=tx)
    engine.transactions.commit(tx)
    bench.run()
    for name, expected in (("a", [None, 1]), ("b", [0, 2])):
        queue = bench.queue(name)
        states = [queue.states.get(m.id) for m, _ in bench.engine.messages.browse(queue)]
        assert [None if state is None else state.count for state in states] == expected
