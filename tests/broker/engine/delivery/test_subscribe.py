"""Subscriptions of every kind: which queue they read, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.access import Identity
from broker.engine.model.errors import AlreadyInUse, InvalidSelector
from broker.engine.model.message import RoutingType
from broker.engine.model.permissions import Permission, PermissionTable
from tests.broker.engine.engine_harness import Bench, Taker

KINDS: dict[str, dict[str, Any]] = {
    "durable": {"name": "s", "durable": True},
    "shared and durable": {"name": "s", "durable": True, "shared": True},
    "shared and volatile": {"name": "s", "shared": True},
    "its own": {},
}


def subscribed(bench: Bench, **request: Any) -> Taker:
    return bench.take("news", RoutingType.MULTICAST, **request)


@pytest.mark.parametrize("kind", KINDS)
def test_queues_that_stay_when_the_subscriber_goes(bench: Bench, kind: str) -> None:
    taker = subscribed(bench, **KINDS[kind])
    queue = taker.consumer.queue
    stays = kind.endswith("durable")
    assert (queue.durable, queue.temporary) == (stays, not stays)
    bench.close(taker, CLOSED)
    assert queue.deleted != stays
    bench.sent("news", b"1", routing_type=RoutingType.MULTICAST)
    assert subscribed(bench, **KINDS[kind]).take() == ([b"1"] if stays else [])


@pytest.mark.parametrize("kind", ["shared and durable", "shared and volatile"])
def test_a_shared_one_is_shared_and_goes_with_the_last(bench: Bench, kind: str) -> None:
    takers = [subscribed(bench, **KINDS[kind]) for _ in range(2)]
    bench.sent("news", b"1", b"2", routing_type=RoutingType.MULTICAST)
    assert [taker.take() for taker in takers] == [[b"1"], [b"2"]]
    bench.close(takers[0], CLOSED)
    assert takers[1].consumer.queue.consumers == [takers[1].consumer]
    assert not takers[1].consumer.queue.deleted


@pytest.mark.parametrize("first", [True, False])
def test_one_that_wants_to_be_the_only_consumer_shares_with_nobody(bench: Bench, first: bool) -> None:
    """Whether it comes first or second."""
    subscribed(bench, name="s", durable=True, exclusive=first)
    with pytest.raises(AlreadyInUse, match="only consumer"):
        subscribed(bench, name="s", durable=True, exclusive=not first)


def test_an_exclusive_one_takes_one_consumer(bench: Bench) -> None:
    first = subscribed(bench, name="s", durable=True, exclusive=True)
    with pytest.raises(AlreadyInUse, match="has its only consumer"):
        subscribed(bench, name="s", durable=True, exclusive=True)
    bench.close(first, CLOSED)
    assert subscribed(bench, name="s", durable=True, exclusive=True).consumer.queue is first.consumer.queue


def test_one_with_a_selector_is_found_again(bench: Bench) -> None:
    request = {"name": "s", "durable": True, "selector": "x = 'y'", "no_local": "c"}
    taker = subscribed(bench, **request)
    bench.close(taker, CLOSED)
    assert subscribed(bench, **request).consumer.queue is taker.consumer.queue
    with pytest.raises(AlreadyInUse, match="another selector or no-local"):
        subscribed(bench, **request | {"selector": ""})


@pytest.mark.parametrize("changed", [{"selector": "a = 1"}, {"no_local": "me"}])
def test_a_changed_one_is_made_anew_only_if_that_is_wished_and_nobody_consumes(
    bench: Bench, changed: dict[str, str]
) -> None:
    old = subscribed(bench, name="s", durable=True)
    bench.sent("news", b"1", routing_type=RoutingType.MULTICAST)
    with pytest.raises(AlreadyInUse, match="another selector"):
        subscribed(bench, name="s", durable=True, renewable=True, **changed)
    bench.close(old, CLOSED)
    with pytest.raises(AlreadyInUse, match="another selector"):
        subscribed(bench, name="s", durable=True, **changed)
    new = subscribed(bench, name="s", durable=True, renewable=True, **changed)
    assert new.consumer.queue is not old.consumer.queue
    assert old.consumer.queue.deleted
    assert new.take() == []


def test_one_on_another_address_is_another_one(bench: Bench) -> None:
    old = subscribed(bench, name="s", durable=True)
    bench.close(old, CLOSED)
    with pytest.raises(AlreadyInUse, match="is on news"):
        bench.take("weather", RoutingType.MULTICAST, name="s", durable=True)
    new = bench.take("weather", RoutingType.MULTICAST, name="s", durable=True, renewable=True)
    assert new.consumer.queue.address.name == "weather"


def test_a_bad_selector_makes_nothing(bench: Bench) -> None:
    with pytest.raises(InvalidSelector, match="a ="):
        subscribed(bench, selector="a =")
    assert "news" not in bench.engine.addresses


@pytest.mark.parametrize(("lost", "closed"), [("", False), ("news", True), ("news::s", True)])
def test_a_subscriber_needs_the_right_on_the_address_and_on_the_queue(bench: Bench, lost: str, closed: bool) -> None:
    """Whichever is taken away closes it."""
    members: frozenset[str] = frozenset({"r"})
    rights = {name: {permission: members for permission in Permission} for name in ("news", "news::s")}
    bench.engine.security.roles_of = lambda user: members
    bench.engine.security.change(PermissionTable(rights.items()))
    access = bench.engine.security.access(Identity("u", members), "")
    taker = subscribed(bench, name="s", durable=True, access=access)
    if lost:
        rights[lost][Permission.CONSUME] = frozenset()
    bench.enter().secure(PermissionTable(rights.items()))
    bench.run()
    assert (taker.consumer.closed, taker.consumer.revoked, bool(taker.closed)) == (closed, closed, closed)
