"""Who may consume, and when: exclusive, max-consumers, purge-on-no-consumers, the gate before dispatch."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import AlreadyInUse, NoQueue, TooManyConsumers
from broker.engine.routing import alter
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.rules.queues import MULTICAST, put

# -- exclusive ---------------------------------------------------------------------------------------------------------


def test_an_exclusive_queue_has_one_consumer_at_a_time(bench: Bench) -> None:
    bench.declare(exclusive=True)
    first, second = bench.take("q", window=0), bench.take("q")
    put(bench, "q", b"1", b"2", b"3")
    assert (first.take(), second.take()) == ([b"1"], []), "the others wait though the first has no credit"
    bench.close(first, CLOSED)
    assert second.take() == [b"1", b"2", b"3"]


def test_the_next_one_is_the_first_of_the_highest_priority(bench: Bench) -> None:
    bench.declare(exclusive=True)
    first = bench.take("q")
    put(bench, "q", b"1")
    low, high, late = bench.take("q"), bench.take("q", priority=5), bench.take("q", priority=5)
    assert [taker.take() for taker in (first, low, high, late)] == [[b"1"], [], [], []]
    bench.close(first, CLOSED)
    assert [taker.take() for taker in (low, high, late)] == [[], [b"1"], []]


def test_the_next_one_waits_for_what_is_in_a_transaction(bench: Bench) -> None:
    bench.declare(exclusive=True)
    first, second = bench.take("q"), bench.take("q")
    put(bench, "q", b"1", b"2")
    tx = bench.begin()
    bench.ack(first, first.taken[0], tx=tx)
    bench.close(first, CLOSED)
    assert second.take() == []
    bench.commit(tx)
    assert second.take() == [b"2"]


def test_a_consumer_that_had_nothing_leaves(bench: Bench) -> None:
    bench.declare(exclusive=True)
    first, second = bench.take("q"), bench.take("q")
    first.consumer.paused = True
    put(bench, "q", b"1")
    bench.close(first, CLOSED)
    assert second.take() == [b"1"]


def test_a_queue_becomes_exclusive(bench: Bench) -> None:
    bench.declare()
    first, second = bench.take("q"), bench.take("q")
    put(bench, "q", b"1", b"2")
    bench.change("q", exclusive=True)
    put(bench, "q", b"3")
    assert (first.take(), second.take()) == ([b"1"], [b"2"]), "what is in delivery comes first"
    bench.ack(second, *second.consumer.unacked.values())
    assert (first.take(), second.take()) == ([b"3"], [])


# -- max-consumers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2])
def test_at_most_so_many_consumers(bench: Bench, most: int) -> None:
    bench.declare(max_consumers=most)
    takers = [bench.take("q") for _ in range(most)]
    with pytest.raises(TooManyConsumers, match=f"max-consumers \\({most}\\)"):
        bench.take("q")
    for taker in takers[:1]:
        bench.close(taker, CLOSED)
        bench.take("q")


def test_a_subscription_that_nobody_may_have_is_not_made() -> None:
    bench = Bench({"match": "t", "default-max-consumers": 0})
    before = set(bench.engine.queues)
    with pytest.raises(TooManyConsumers):
        bench.take("t", MULTICAST)
    assert set(bench.engine.queues) == before


def test_shared_subscriptions_have_a_limit_too() -> None:
    bench = Bench({"match": "t", "default-max-consumers": 1})
    bench.take("t", MULTICAST, name="s", durable=True, shared=True)
    with pytest.raises(TooManyConsumers):
        bench.take("t", MULTICAST, name="s", durable=True, shared=True)


# -- purge-on-no-consumers ---------------------------------------------------------------------------------------------


def test_a_queue_that_keeps_nothing_without_consumers(bench: Bench) -> None:
    queue = bench.declare(purge_on_no_consumers=True)
    put(bench, "q", b"too early")
    assert queue.address.unrouted == 1
    taker = bench.take("q", window=0)
    put(bench, "q", *[b"%d" % n for n in range(5)])
    put(bench, "q", b"later", scheduled=bench.broker.now + 1000)
    assert len(bench.bodies("q")) == 6
    bench.close(taker, CLOSED)
    assert bench.bodies("q") == []
    put(bench, "q", b"too late")
    assert queue.address.unrouted == 2
    assert queue.left[RemovalReason.PURGED] == 6
    assert bench.left("q") == {"purged": 6}
    assert bench.take("q").take() == []


def test_it_is_not_purged_while_another_consumer_is_there(bench: Bench) -> None:
    bench.declare(purge_on_no_consumers=True)
    first, second = bench.take("q"), bench.take("q", window=0)
    put(bench, "q", b"1")
    bench.close(first, redelivery.LOST)
    assert second.take() == [b"1"]


def test_messages_that_return_later_are_purged_too() -> None:
    bench = Bench({"match": "q", "redelivery-delay": 1000})
    bench.declare(purge_on_no_consumers=True)
    taker = bench.take("q")
    put(bench, "q", b"1", b"2")
    tx = bench.begin()
    bench.ack(taker, taker.taken[0], tx=tx)
    bench.nack(taker, taker.taken[1])
    bench.close(taker, CLOSED)
    assert bench.bodies("q") == []
    bench.roll_back(tx)
    assert bench.bodies("q") == []
    assert bench.left("q") == {"purged": 2}


def test_dead_letters_die_first() -> None:
    bench = Bench({"match": "q", "max-delivery-attempts": 1})
    bench.declare(purge_on_no_consumers=True)
    taker = bench.take("q")
    put(bench, "q", b"1")
    bench.close(taker, redelivery.LOST)
    assert bench.bodies("DLQ") == [b"1"]
    assert bench.left("q") == {"dead-lettered": 1}


def test_messages_on_their_way_to_disk_are_purged_as_they_land() -> None:
    bench = Bench(lazy_disk=True)
    bench.declare(purge_on_no_consumers=True)
    bench.broker.step()
    taker = bench.take("q")
    bench.sent("q", b"1")
    bench.close(taker, CLOSED)
    for _ in range(3):
        bench.broker.step()
    assert bench.bodies("q") == []
    assert bench.left("q") == {"purged": 1}


def test_a_restart_leaves_no_consumers(bench: Bench) -> None:
    bench.declare(purge_on_no_consumers=True)
    bench.take("q", window=0)
    put(bench, "q", b"1", b"2")
    bench = bench.restart()
    assert bench.bodies("q") == []
    assert bench.left("q") == {"purged": 2}


def test_other_subscribers_get_their_copies(bench: Bench) -> None:
    bench.declare("keeps", "t", routing_type=MULTICAST)
    bench.declare("purges", "t", routing_type=MULTICAST, purge_on_no_consumers=True)
    put(bench, "t", b"1", routing_type=MULTICAST)
    assert (bench.bodies("keeps"), bench.bodies("purges")) == ([b"1"], [])


def test_dead_letters_are_kept_though_their_address_purges() -> None:
    bench = Bench(
        {"match": "q", "dead-letter-address": "dead", "max-delivery-attempts": 1},
        {"match": "dead", "default-purge-on-no-consumers": True},
    )
    bench.declare()
    taker = bench.take("q")
    put(bench, "q", b"1")
    bench.nack(taker, taker.taken[0])
    assert bench.bodies("dead") == [b"1"]


# -- consumers-before-dispatch, delay-before-dispatch ------------------------------------------------------------------


def test_dispatch_waits_for_so_many_consumers(bench: Bench) -> None:
    bench.declare(consumers_before_dispatch=2)
    put(bench, "q", b"1", b"2", b"3", b"4")
    first = bench.take("q")
    bench.broker.advance(3_600_000)
    assert first.take() == []
    second = bench.take("q")
    assert (len(first.take()), len(second.take())) == (2, 2)
    bench.close(second, CLOSED)
    assert len(first.take()) == 2, "it goes on with the one that is left"


def test_dispatch_begins_after_the_delay_though_there_are_too_few(bench: Bench) -> None:
    bench.declare(consumers_before_dispatch=3, delay_before_dispatch=5000)
    put(bench, "q", b"1")
    first = bench.take("q")
    bench.broker.advance(4999)
    assert first.take() == []
    bench.broker.advance(1)
    assert first.take() == [b"1"]


def test_the_gate_closes_when_all_have_left(bench: Bench) -> None:
    bench.declare(consumers_before_dispatch=2, delay_before_dispatch=1000)
    first = bench.take("q")
    bench.broker.advance(1000)
    put(bench, "q", b"1")
    assert first.take() == [b"1"]
    bench.close(first, CLOSED)
    again = bench.take("q")
    assert again.take() == []
    bench.broker.advance(999)
    assert again.take() == []
    bench.broker.advance(1)
    assert again.take() == [b"1"]


def test_the_gate_stays_open_while_something_is_in_delivery(bench: Bench) -> None:
    bench.declare(consumers_before_dispatch=2)
    takers = [bench.take("q"), bench.take("q")]
    put(bench, "q", b"1", b"2", b"3")
    tx = bench.begin()
    bench.ack(takers[0], takers[0].taken[0], tx=tx)
    for taker in takers:
        bench.close(taker, CLOSED)
    assert bench.take("q").take() == [b"2", b"3"]


def test_a_delay_of_nothing_is_no_gate(bench: Bench) -> None:
    bench.declare(consumers_before_dispatch=2, delay_before_dispatch=0)
    put(bench, "q", b"1")
    assert bench.take("q").take() == [b"1"]


def test_a_gate_that_is_set_later_begins_with_the_next_first_consumer(bench: Bench) -> None:
    bench.declare()
    taker = bench.take("q")
    bench.change("q", consumers_before_dispatch=2)
    put(bench, "q", b"1")
    assert taker.take() == [b"1"]
    bench.change("q", exclusive=True)
    put(bench, "q", b"2")
    assert taker.take() == [b"2"]
    bench.close(taker, CLOSED)
    assert bench.take("q").take() == []
    bench.change("q", consumers_before_dispatch=0)
    assert len(bench.bodies("q")) == 2
    assert all(place == "delivering" for place in bench.places("q").values())


# -- enabled, paused ---------------------------------------------------------------------------------------------------


def test_a_disabled_queue_takes_nothing_and_is_consumed(bench: Bench) -> None:
    bench.declare()
    put(bench, "q", b"1")
    bench.change("q", enabled=False)
    with pytest.raises(NoQueue):
        put(bench, "q", b"2")
    bench = bench.restart()
    assert bench.take("q").take() == [b"1"]
    bench.change("q", enabled=True)
    put(bench, "q", b"3")
    assert b"3" in bench.bodies("q")


def test_a_paused_queue_takes_messages_which_expire_and_are_not_delivered(bench: Bench) -> None:
    queue = bench.declare()
    taker = bench.take("q")
    assert alter.pause(bench.enter()._state, queue, paused=True)
    assert not alter.pause(bench.enter()._state, queue, paused=True)
    put(bench, "q", b"1")
    put(bench, "q", b"brief", expiration=bench.broker.now + 10)
    bench.broker.advance(60_000)
    assert (taker.take(), bench.bodies("q"), bench.bodies("ExpiryQueue")) == ([], [b"1"], [b"brief"])
    bench = bench.restart()
    taker = bench.take("q")
    assert taker.take() == []
    alter.pause(bench.enter()._state, bench.queue("q"), paused=False)
    bench.run()
    assert taker.take() == [b"1"]
    assert not bench.restart().queue("q").paused


def test_a_paused_address_pauses_its_queues_also_future_ones(bench: Bench) -> None:
    bench.declare("a", "t", routing_type=MULTICAST)
    address = bench.engine.addresses["t"]
    takers = [bench.take("t::a", MULTICAST)]
    assert alter.pause_address(bench.enter()._state, address, paused=True)
    bench.declare("b", "t", routing_type=MULTICAST)
    takers.append(bench.take("t::b", MULTICAST))
    takers.append(bench.take("t", MULTICAST))
    put(bench, "t", b"1", routing_type=MULTICAST)
    assert [taker.take() for taker in takers] == [[], [], []]
    assert alter.pause_address(bench.enter()._state, address, paused=False)
    bench.run()
    assert [taker.take() for taker in takers] == [[b"1"]] * 3
    alter.pause_address(bench.enter()._state, address, paused=True)
    bench.run()
    bench = bench.restart()
    assert bench.queue("a").stopped
    assert bench.take("t::a", MULTICAST).take() == []
    alter.pause(bench.enter()._state, bench.queue("a"), paused=True)
    alter.pause_address(bench.enter()._state, bench.engine.addresses["t"], paused=False)
    bench.run()
    assert (bench.queue("a").stopped, bench.queue("b").stopped) == (True, False)


# -- several queues on an address --------------------------------------------------------------------------------------


def test_seeds_4_4_two_queues_share_an_address_evenly(bench: Bench) -> None:
    for name in ("q1", "q2"):
        bench.declare(name, "address.foo")
    put(bench, "address.foo", *[b"%d" % n for n in range(10)])
    assert (len(bench.bodies("q1")), len(bench.bodies("q2"))) == (5, 5)
    takers = [bench.take("address.foo::q1"), bench.take("address.foo::q1")]
    assert [len(taker.take()) for taker in takers] == [5, 0]
    put(bench, "address.foo", *[b"%d" % n for n in range(4)])
    assert [len(taker.take()) for taker in takers] == [2, 2], "consumers of one queue share it"
    assert len(bench.bodies("q2")) == 5, "and get everything as long as the other one has none"


def test_a_paused_queue_is_as_one_without_consumers(bench: Bench) -> None:
    for name in ("q1", "q2"):
        bench.declare(name, "a")
    takers = {name: bench.take(f"a::{name}") for name in ("q1", "q2")}
    alter.pause(bench.enter()._state, bench.queue("q1"), paused=True)
    put(bench, "a", b"1", b"2")
    assert takers["q2"].take() == [b"1", b"2"]


def test_seeds_4_5_point_to_point_and_publish_subscribe_together(bench: Bench) -> None:
    bench.declare("orders", "foo.orders")
    state = bench.enter()._state
    state.registry.add_routing_type(state.addresses["foo.orders"], MULTICAST)
    topic = bench.take("foo.orders", MULTICAST)
    queue = bench.take("foo.orders", None)
    assert queue.consumer.queue.name == "orders", "without a wish it is anycast"
    put(bench, "foo.orders", b"queue")
    put(bench, "foo.orders", b"topic", routing_type=MULTICAST)
    put(bench, "foo.orders", b"both", routing_type=None)
    assert (queue.take(), topic.take()) == ([b"queue", b"both"], [b"topic", b"both"])


def test_nothing_changed(bench: Bench) -> None:
    bench.declare(ring_size=3)
    assert not bench.change("q", ring_size=3)
    bench.take("q")
    with pytest.raises(AlreadyInUse):
        bench.change("q", last_value=True)
