"""What is asked for behind the name of a destination."""

from __future__ import annotations

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import AlreadyInUse, AttributesDiffer, InvalidAttribute
from broker.engine.model.message import RoutingType
from broker.engine.model.query import NO_QUERY, PARAMETERS_MAX, split_query
from broker.engine.routing import destinations
from tests.broker.engine.engine_harness import Bench


@pytest.mark.parametrize("name", ["orders", "what?", "why?&how", "a?b", "::?", ""])
def test_a_name_is_a_name(name: str) -> None:
    assert split_query(name) == (name, NO_QUERY)


def test_all_parameters() -> None:
    name, query = split_query(
        "my.destination.name?last-value-key=stock_ticker&non-destructive=true&ring-size=5&exclusive=true"
        "&max-consumers=1&purge-on-no-consumers=true&group-buckets=7&routing-type=ANYCAST&consumer-priority=-3"
    )
    assert name == "my.destination.name"
    assert (query.routing_type, query.priority) == (RoutingType.ANYCAST, -3)
    assert query.asked == {
        "last_value_key": "stock_ticker",
        "non_destructive": True,
        "ring_size": 5,
        "exclusive": True,
        "max_consumers": 1,
        "purge_on_no_consumers": True,
        "group_buckets": 7,
    }


def test_values_may_be_encoded() -> None:
    assert split_query("q?last-value-key=stock%20ticker%26")[1].asked == {"last_value_key": "stock ticker&"}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("colour=red", "no attribute 'colour'"),
        ("ring-size=many", "ring-size must be a number"),
        ("ring-size", "name of"),
        ("auto-delete=true", "auto-delete-queues"),
        ("durable=false", "not accepted"),
        ("routing-type=both", "ANYCAST or MULTICAST"),
        ("consumer-priority=high", "number of 32 bits"),
        (f"consumer-priority={1 << 31}", "number of 32 bits"),
        ("&".join(["exclusive=true"] * (PARAMETERS_MAX + 1)), "at most 32"),
    ],
)
def test_refused_queries(query: str, wanted: str) -> None:
    if "=" not in query:
        assert split_query(f"q?{query}") == (f"q?{query}", NO_QUERY)
        return
    with pytest.raises(InvalidAttribute, match=wanted):
        split_query(f"q?{query}")


def test_the_most_parameters() -> None:
    assert split_query("q?" + "&".join(["exclusive=true"] * PARAMETERS_MAX))[1].asked == {"exclusive": True}


def test_a_queue_that_exists_must_be_as_asked_for(bench: Bench) -> None:
    destinations.destination(bench.enter()._state, "q", RoutingType.ANYCAST, asked={"ring_size": 3})
    for asked in ({}, {"ring_size": 3}):
        destinations.destination(bench.enter()._state, "q", RoutingType.ANYCAST, asked=asked)
        bench.take("q", asked=asked)
    for wrong in ("q", "q::q"):
        with pytest.raises(AttributesDiffer, match="queue q exists, and its ring-size is 3, not 4"):
            destinations.destination(bench.enter()._state, wrong, RoutingType.ANYCAST, asked={"ring_size": 4})
        with pytest.raises(AttributesDiffer):
            bench.take(wrong, asked={"exclusive": True})


def test_queues_that_are_made_on_the_way() -> None:
    bench = Bench({"match": "r", "default-ring-size": 9})
    state = bench.enter()._state
    destinations.destination(state, "a::b", RoutingType.ANYCAST, asked={"exclusive": True})
    assert state.queues["b"].attributes.exclusive
    taker = bench.take("t", RoutingType.MULTICAST, asked={"last_value": True})
    assert taker.consumer.queue.attributes.last_value
    bench.take("r", asked={"exclusive": True})
    assert (state.queues["r"].attributes.ring_size, state.queues["r"].attributes.exclusive) == (9, True)


def test_a_durable_subscription_with_other_attributes_is_another_one(bench: Bench) -> None:
    more = {"name": "s", "durable": True}
    taker = bench.take("t", RoutingType.MULTICAST, asked={"ring_size": 3}, **more)
    with pytest.raises(AlreadyInUse, match="ring-size is 3, not 4"):
        bench.take("t", RoutingType.MULTICAST, asked={"ring_size": 4}, renewable=True, **more)
    bench.close(taker, CLOSED)
    bench.take("t", RoutingType.MULTICAST, asked={"ring_size": 4}, renewable=True, **more)
    assert bench.queue("s").attributes.ring_size == 4


def test_settings_of_one_queue_by_its_full_name() -> None:
    bench = Bench({"match": "a::b", "default-ring-size": 2}, {"match": "a", "default-ring-size": 5})
    state = bench.enter()._state
    for name in ("a::b", "a::c"):
        destinations.destination(state, name, RoutingType.ANYCAST)
    assert [state.queues[name].attributes.ring_size for name in "bc"] == [2, 5]
