"""Producers that many addresses have stopped, and many producers that one has."""

from __future__ import annotations

import pytest

from broker.engine.queues.address import Address
from broker.engine.queues.room import Room
from tests.broker.engine.engine_harness import Bench, Producing
from tests.simulation.world import small
from tests.support.interpreted import interpreted

COUNT = 200


def stop(bench: Bench, name: str, producer: Producing) -> None:
    """A producer is stopped by an address."""
    producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses[name], producer)
    assert producer.blocked


def limited(**settings: object) -> Bench:
    shipped = small().broker.model_copy(update={"global_max_size": 1_000_000})
    return Bench({"match": "a.#", "max-size-messages": 1, "address-full-policy": "BLOCK", **settings}, broker=shipped)


def filled(bench: Bench, producers: list[Producing]) -> None:
    """As many full addresses as there are producers, each of which stops one."""
    for n, producer in enumerate(producers):
        bench.sent(f"a.{n}", b"x")
        stop(bench, f"a.{n}", producer)


@interpreted
def test_a_message_that_leaves_looks_at_its_own_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = limited()
    producers = [Producing() for _ in range(COUNT)]
    filled(bench, producers)
    bench.sent("other", b"y")
    looked: list[str] = []
    stops = Room._stops

    def noted(room: Room, address: Address) -> bool:
        looked.append(address.name)
        return stops(room, address)

    monkeypatch.setattr(Room, "_stops", noted)
    bench.engine._state.room._blocked._stops = bench.engine._state.room._stops
    bench.ack(bench.take("other"), *bench.messages("other"))
    assert looked == []
    bench.ack(bench.take("a.3"), *bench.messages("a.3"))
    assert looked == ["a.3"]
    assert [n for n, producer in enumerate(producers) if not producer.blocked] == [3]


@interpreted
def test_a_producer_that_leaves_looks_at_its_own_addresses_only() -> None:
    bench = limited()
    producers = [Producing() for _ in range(COUNT)]
    filled(bench, producers)
    stop(bench, "a.7", producers[8])
    room = bench.enter()._state.room
    room.stop_waiting(producers[7])
    assert list(bench.engine.addresses["a.7"].blocked) == [producers[8]]
    room.stop_waiting(producers[8])
    assert len(room._blocked.addresses) == len(room._blocked.by_producer) == COUNT - 2
    room.stop_waiting(producers[8])


def test_all_go_on_in_steps_once_the_memory_of_the_broker_is_full_no_more() -> None:
    bench = limited(**{"max-size-messages": -1})
    producers = [Producing() for _ in range(COUNT)]
    for n in range(COUNT):
        bench.sent(f"a.{n}", b"x")
    bench.sent("much", bytes(900_000))
    bench.engine.usage.bytes_max = bench.engine.usage.bytes
    for n, producer in enumerate(producers):
        stop(bench, f"a.{n}", producer)
    taker = bench.take("much")
    bench.limit_ticks(1, least=1)
    bench.enter().consumers.acknowledge(taker.consumer, taker.taken[0].id, None)
    waiting = [COUNT]
    while waiting[-1] and len(waiting) < COUNT:
        bench.broker.tick.end()
        bench.enter()
        waiting.append(sum([producer.blocked for producer in producers]))
    assert len(set(waiting)) > 2, waiting
    assert waiting[-1] == 0


def test_many_that_one_address_has_stopped_go_on() -> None:
    bench = limited()
    bench.sent("a.0", b"x")
    producers = [Producing() for _ in range(COUNT)]
    for producer in producers:
        stop(bench, "a.0", producer)
    bench.ack(bench.take("a.0"), *bench.messages("a.0"))
    bench.run()
    assert not any(producer.blocked for producer in producers)


def test_a_producer_goes_on_once_none_of_its_addresses_stops_it() -> None:
    bench = limited()
    producer = Producing()
    for name in ("a.0", "a.1"):
        bench.sent(name, b"x")
        stop(bench, name, producer)
    bench.ack(bench.take("a.0"), *bench.messages("a.0"))
    assert producer.blocked
    bench.ack(bench.take("a.1"), *bench.messages("a.1"))
    assert not producer.blocked


def test_messages_that_leave_while_memory_is_full_unblock_their_address_when_that_is_over() -> None:
    bench = limited()
    producer = Producing()
    (own,) = bench.sent("a.0", b"x")
    stop(bench, "a.0", producer)
    bench.sent("much", bytes(900_000))
    bench.engine.usage.bytes_max = 500_000
    bench.ack(bench.take("a.0"), own)
    assert producer.blocked, "now it waits for the memory of the broker"
    bench.ack(bench.take("much"), *bench.messages("much"))
    assert not producer.blocked
