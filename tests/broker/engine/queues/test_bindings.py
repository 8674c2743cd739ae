"""The lists of queues that addresses share, and what all of them take."""

from __future__ import annotations

from random import Random

import pytest

from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.model.names import DEFAULT_SYNTAX
from broker.engine.queues import bindings
from broker.engine.queues.address import Address
from broker.engine.queues.bindings import KEPT_FROM, Bindings
from broker.engine.queues.queue import Queue
from tests.broker.engine.engine_harness import Bench
from tests.support.interpreted import interpreted

MANY = 2 * KEPT_FROM
TOPICS = 50


def made(bench: Bench, name: str) -> Address:
    """An address without queues."""
    return bench.enter()._state.registry.create_address(name, {RoutingType.MULTICAST}, auto_created=True)


def queued(bench: Bench, address: Address, name: str, selector: str = "") -> Queue:
    """A queue of a multicast address."""
    kind, filter = RoutingType.MULTICAST, compile_filter(selector) if selector else None
    return bench.enter()._state.registry.create_queue(address, name, kind, filter=filter, durable=False)


def subscribed(bench: Bench, pattern: str, count: int = MANY) -> list[Queue]:
    """Many queues of a wildcard address."""
    address = made(bench, pattern)
    return [queued(bench, address, f"{pattern}-{n}") for n in range(count)]


def places(found: Bindings) -> int:
    """What all lists take that are kept."""
    return sum([bindings._places(reach) for reach in found._reaches.values()])


def test_addresses_that_the_same_patterns_match_share_a_list(bench: Bench) -> None:
    many = subscribed(bench, "w.#")
    topics = [made(bench, f"w.{n}") for n in range(TOPICS)]
    found = bench.engine._state.bindings
    assert all([found.targets(topic)[1] is found.targets(topics[0])[1] for topic in topics])
    assert found.targets(topics[0]) == ([], many)
    assert places(found) == found._places == MANY + 1


def test_a_list_that_is_out_of_date_is_forgotten_whoever_has_it(bench: Bench) -> None:
    subscribed(bench, "w.#")
    topics = [made(bench, f"w.{n}") for n in range(TOPICS)]
    found = bench.engine._state.bindings
    for topic in topics:
        found.targets(topic)
        queued(bench, bench.engine.addresses["w.#"], f"more-{topic.name}")
    held = {id(reach): len(reach.targets[1]) for reach in [found._of(topic).reach for topic in topics]}
    assert sum(held.values()) == MANY + TOPICS - 1, "one list, as the last one got it"
    assert len(found.targets(topics[0])[1]) == MANY + TOPICS


@interpreted
def test_all_lists_have_a_limit_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "PLACES_MAX", 5 * MANY)
    many = subscribed(bench, "w.#")
    topics = [made(bench, f"w.{n}") for n in range(TOPICS)]
    own = [queued(bench, topic, f"own-{topic.name}") for topic in topics]
    found = bench.engine._state.bindings
    for _ in range(2):
        for topic, queue in zip(topics, own, strict=True):
            assert found.targets(topic) == ([], [queue, *many])
            assert places(found) == found._places <= 5 * MANY
    assert sum([len(found._of(topic).reach.targets[1]) for topic in topics]) <= 5 * MANY
    for topic in topics:
        bench.engine.delete_queue(next(iter(found.queues(topic))))
    assert not found._reaches
    assert found._places == 0


@interpreted
@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_the_lists_are_right(seed: int, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "PLACES_MAX", 40)
    monkeypatch.setattr(bindings, "KEPT_FROM", 3)
    random, found = Random(seed), bench.engine._state.bindings
    names = ["a.b", "a.c", "a.b.c", "d", "a", "*.b", "a.#", "#", "a.*", "d.#"]
    addresses = {name: made(bench, name) for name in names}
    queues: list[Queue] = []
    for number in range(400):
        if queues and random.random() < 0.4:
            bench.engine.delete_queue(queues.pop(random.randrange(len(queues))))
        else:
            name = random.choice(names)
            queues.append(queued(bench, addresses[name], f"q{number}", random.choice(["", "a = 1", "b = 2"])))
        for name in random.sample([each for each in names if not DEFAULT_SYNTAX.routes(each)], 3):
            matching = {each for each in queues if found.reaches(name, each)}
            assert set(found.targets(addresses[name])[1]) == matching
            assert found.match_cost(addresses[name]) == bindings._match_cost(list(matching))
            assert found.reach(name) == len([each for each in matching if each.address.name != name])
        assert places(found) == found._places
