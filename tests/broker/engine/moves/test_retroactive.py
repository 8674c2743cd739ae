"""Retroactive addresses: what a new queue gets, the rings, other counts, restarts, deletion."""

from __future__ import annotations

import pytest

from broker.daemon.wiring import settings_table
from broker.engine.model.errors import InvalidName
from broker.engine.model.message import RoutingType
from broker.engine.queues.diverts import Divert
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import small

MULTICAST = RoutingType.MULTICAST
RING = "$.artemis.internal.orders.queue.multicast.retro"
ANYCAST_RING = "$.artemis.internal.orders.queue.anycast.retro"


def retroactive(count: int, **more: object) -> Bench:
    """A broker whose address `orders` keeps so many messages."""
    return Bench({"match": "orders", "retroactive-message-count": count} | more)


def publish(bench: Bench, *bodies: bytes, head: bytes = b"", routing_type: RoutingType = MULTICAST) -> None:
    """Send to the address."""
    for body in bodies:
        bench.sent("orders", body, head=head, routing_type=routing_type)


def test_the_example_of_the_seeds() -> None:
    """4.14: messages sent before there is a queue reach the queue that is made later."""
    bench = retroactive(100)
    publish(bench, b"1", b"2")
    taker = bench.take("orders", MULTICAST)
    assert taker.take() == [b"1", b"2"]
    publish(bench, b"3")
    assert taker.take() == [b"3"]


def test_only_so_many_the_youngest() -> None:
    bench = retroactive(2)
    publish(bench, b"1", b"2", b"3", b"4")
    assert bench.bodies(RING) == [b"3", b"4"]
    assert bench.take("orders", MULTICAST).take() == [b"3", b"4"]


def test_each_new_queue_gets_its_own_copies_an_old_one_nothing() -> None:
    bench = retroactive(2)
    first = bench.take("orders", MULTICAST)
    publish(bench, b"1")
    assert first.take() == [b"1"]
    assert bench.take("orders", MULTICAST).take() == [b"1"]
    assert bench.take("orders", MULTICAST).take() == [b"1"]
    assert first.take() == []
    assert bench.bodies(RING) == [b"1"]


def test_the_filter_of_the_queue_fits_or_not() -> None:
    bench = retroactive(10)
    publish(bench, b"1", head=b"k:v\n")
    publish(bench, b"2")
    assert bench.take("orders", MULTICAST, selector="k = 'v'").take() == [b"1"]


def test_rings_by_routing_type() -> None:
    bench = retroactive(10)
    publish(bench, b"1")
    publish(bench, b"2", routing_type=RoutingType.ANYCAST)
    assert (bench.bodies(RING), bench.bodies(ANYCAST_RING)) == ([b"1"], [b"2"])


def test_copies_say_where_they_come_from() -> None:
    bench = retroactive(10)
    publish(bench, b"1")
    taker = bench.take("orders", MULTICAST)
    (message,) = taker.taken
    assert message.header.address == "orders"
    assert (message.header.annotations or {})["_AMQ_ORIG_ADDRESS"] == "orders"


def test_names_are_those_of_artemis_and_the_broker_s_own() -> None:
    bench = retroactive(10)
    publish(bench, b"1")
    state = bench.engine._state
    assert "$.artemis.internal.orders.divert.retro" in state.diverts.by_name
    assert "$.artemis.internal.orders.address.retro" in state.addresses
    for name in (RING, "$.artemis.internal.orders.address.retro", "$.artemis.internal.mine"):
        with pytest.raises(InvalidName, match="the broker's own"):
            bench.send(name, b"1")
        with pytest.raises(InvalidName, match="the broker's own"):
            bench.take(name)
    bench.run()


def test_operators_may_empty_a_ring() -> None:
    bench = retroactive(10)
    publish(bench, b"1")
    assert bench.enter().messages.purge(bench.queue(RING)) == 1
    bench.run()
    assert bench.take("orders", MULTICAST).take() == []


def test_everything_survives_a_restart() -> None:
    bench = retroactive(2)
    publish(bench, b"1", b"2", b"3")
    bench = bench.restart()
    assert bench.bodies(RING) == [b"2", b"3"]
    publish(bench, b"4")
    assert bench.take("orders", MULTICAST).take() == [b"3", b"4"]


def test_another_count() -> None:
    bench = retroactive(3)
    publish(bench, b"1", b"2", b"3")
    change(bench, 2)
    assert bench.bodies(RING) == [b"1", b"2", b"3"]  # nothing is dropped by itself
    change(bench, 5)
    publish(bench, b"4", b"5", b"6")
    assert bench.bodies(RING) == [b"2", b"3", b"4", b"5", b"6"]
    change(bench, 0)
    publish(bench, b"7")
    assert bench.bodies(RING) == [b"2", b"3", b"4", b"5", b"6"]


def change(bench: Bench, count: int) -> None:
    """A reload with another count."""
    table = settings_table(small({"match": "orders", "retroactive-message-count": count}))
    bench.enter().configuration.change_settings(table)
    bench.engine.configuration.begin(bench.engine.watchers.apply_settings())
    bench.run()


def test_an_address_that_exists_becomes_retroactive(bench: Bench) -> None:
    publish(bench, b"1")
    change(bench, 10)
    publish(bench, b"2")
    assert bench.take("orders", MULTICAST).take() == [b"2"]


def test_the_resources_go_with_the_address() -> None:
    bench = retroactive(10)
    publish(bench, b"1")
    engine = bench.enter()
    engine.delete_temporary(engine.addresses["orders"])
    bench.run()
    state = bench.restart().engine._state
    assert not [name for name in (*state.addresses, *state.queues, *state.diverts.by_name) if "retro" in name]


def test_an_expired_message_leaves_the_ring_and_goes_nowhere() -> None:
    bench = retroactive(10)
    bench.sent("orders", b"1", routing_type=MULTICAST, expiration=bench.broker.now + 1_000)
    bench.broker.advance(2_000)
    assert bench.bodies(RING) == []
    assert bench.bodies("ExpiryQueue") == []


def test_a_wildcard_subscription_does_not_see_the_rings() -> None:
    bench = retroactive(10)
    taker = bench.take("#", MULTICAST)
    publish(bench, b"1")
    assert taker.take() == [b"1"]


def test_internal_addresses_are_not_retroactive_themselves() -> None:
    bench = Bench({"match": "*", "retroactive-message-count": 3}, {"match": "$.#", "retroactive-message-count": 3})
    publish(bench, b"1")
    assert len([name for name in bench.engine.addresses if name.endswith(".retro")]) == 3  # DLQ, ExpiryQueue, orders


def test_auto_delete_spares_an_address_with_messages_for_later_queues() -> None:
    bench = retroactive(2)
    publish(bench, b"1", b"2", b"3")
    bench.broker.advance(4 * bench.engine.limits.reaper_period)
    assert bench.take("orders", MULTICAST).take() == [b"2", b"3"]


def test_auto_delete_takes_one_without_any() -> None:
    bench = retroactive(2)
    publish(bench, b"1")
    bench.enter().messages.purge(bench.queue(RING))
    bench.broker.advance(4 * bench.engine.limits.reaper_period)
    assert not [name for name in bench.engine.addresses if "orders" in name]


def test_its_divert_is_the_broker_s_own() -> None:
    bench = retroactive(2)
    publish(bench, b"1")
    operators, name = bench.enter().operators, "$.artemis.internal.orders.divert.retro"
    with pytest.raises(InvalidName):
        operators.remove_divert(name)
    with pytest.raises(InvalidName):
        operators.replace_divert(Divert(name, "orders", ("elsewhere",)))
    with pytest.raises(InvalidName):
        operators.add_divert(Divert("$.artemis.internal.others.divert.retro", "others", ("elsewhere",)))
    bench.run()
    publish(bench, b"2")
    assert bench.take("orders", MULTICAST).take() == [b"1", b"2"]
