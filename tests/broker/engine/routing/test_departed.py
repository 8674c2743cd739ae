"""Addresses deleted while queues of wildcard addresses have their messages: who is charged for these, and who waits."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.names import TEMPORARY
from tests.broker.engine.engine_harness import Bench, Producing
from tests.broker.engine.queues.paging.backlogs import consumed

MULTICAST = RoutingType.MULTICAST
PERIOD = 30_000


def away(bench: Bench) -> None:
    """A subscription to all below a, whose client is not here."""
    bench.close(bench.take("a.#", MULTICAST, durable_name="all"), redelivery.CLOSED)


def delete(bench: Bench) -> None:
    """An operator deletes a.b."""
    bench.enter().operators.delete_address(bench.engine.addresses["a.b"], with_queues=True)
    bench.run()


def consume(bench: Bench) -> list[bytes]:
    """The client comes back and has everything."""
    return consumed(bench, bench.take("a.#", MULTICAST, durable_name="all"))


def is_blocked(producer: Producing) -> bool:
    return producer.blocked


def check_nothing_left(bench: Bench) -> None:
    """No message is charged to anybody."""
    assert (bench.engine.usage.messages, bench.engine.usage.bytes) == (0, 0)
    for address in bench.engine.addresses.values():
        assert (address.size_messages, address.size_bytes) == (0, 0), address.name
        assert (address.paged_messages, address.paged_bytes) == (0, 0), address.name
    assert not bench.engine._state.room.departed
    bench.check()


@pytest.mark.parametrize("restart", [False, True])
def test_made_again_it_is_charged_for_what_is_still_there(restart: bool) -> None:
    bench = Bench()
    away(bench)
    bench.sent("a.b", b"1", b"2", routing_type=MULTICAST)
    delete(bench)
    if restart:
        bench = bench.restart()
    bench.sent("a.b", b"3", routing_type=MULTICAST)
    assert bench.engine.addresses["a.b"].size_messages == 3
    assert consume(bench) == [b"1", b"2", b"3"]
    check_nothing_left(bench)


@pytest.mark.parametrize("restart", [False, True])
def test_messages_that_return_from_disk_after_their_queue_was_deleted(restart: bool) -> None:
    bench = Bench({"match": "a.#", "max-size-messages": 1, "max-read-page-messages": 4, "address-full-policy": "PAGE"})
    away(bench)
    for body in (b"1", b"2", b"3"):
        bench.sent("a.b", body, routing_type=MULTICAST)
    delete(bench)
    if restart:
        bench = bench.restart()
    assert bench.queue("all").paged
    taker = bench.take("a.#", MULTICAST, durable_name="all")
    assert len(taker.taken) == 3
    bench.sent("a.b", b"4", routing_type=MULTICAST)
    assert bench.engine.addresses["a.b"].size_messages == 4
    consumed(bench, taker)
    check_nothing_left(bench)


@pytest.mark.parametrize("again", [False, True])
def test_its_producers_go_on_once_there_is_room(again: bool) -> None:
    bench = Bench({"match": "a.#", "max-size-messages": 2, "address-full-policy": "BLOCK"})
    away(bench)
    bench.sent("a.b", b"1", b"2", routing_type=MULTICAST)
    producer = Producing()
    producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["a.b"], producer)
    delete(bench)
    if again:
        bench.sent("a.b", b"3", routing_type=MULTICAST)
    assert is_blocked(producer)
    consume(bench)
    assert not is_blocked(producer)
    check_nothing_left(bench)


def test_its_messages_expire_by_its_settings() -> None:
    bench = Bench({"match": "a.b", "expiry-address": "late"}, {"match": "a.#", "expiry-address": "other"})
    away(bench)
    bench.sent("a.b", b"1", routing_type=MULTICAST, expiration=bench.broker.now + 10)
    delete(bench)
    bench.broker.advance(20)
    assert bench.bodies("late") == [b"1"]


def test_auto_delete_spares_one_whose_messages_are_on_disk() -> None:
    bench = Bench({"match": "a.#", "max-size-messages": 1, "max-read-page-messages": 1, "address-full-policy": "PAGE"})
    away(bench)
    for body in (b"1", b"2"):
        bench.sent("a.b", body, routing_type=MULTICAST)
    bench = bench.restart()
    assert (bench.engine.addresses["a.b"].size_messages, bench.queue("all").paged) == (0, 2)
    bench.broker.advance(4 * PERIOD)
    assert "a.b" in bench.engine.addresses
    consume(bench)
    bench.broker.advance(4 * PERIOD)
    assert "a.b" not in bench.engine.addresses
    check_nothing_left(bench)


def test_an_export_may_have_messages_without_their_address() -> None:
    bench = Bench()
    away(bench)
    bench.enter().imports.message(Message(bench.header("a.b"), b"", b"1"), {bench.queue("all"): None})
    bench.run()
    assert consume(bench) == [b"1"]
    check_nothing_left(bench)


def test_replies_to_a_client_that_has_left_are_charged_to_an_address_that_is_no_more() -> None:
    bench = Bench()
    taker = bench.take("#", MULTICAST)
    bench.sent(f"{TEMPORARY}{UUID(int=1)}", b"1", routing_type=MULTICAST)
    assert [address.size_messages for address in bench.engine._state.room.departed.values()] == [1]
    bench.ack(taker, *taker.taken)
    assert taker.take() == [b"1"]
    check_nothing_left(bench)
