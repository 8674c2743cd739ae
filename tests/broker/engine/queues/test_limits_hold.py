"""Whatever verb brings messages, an address and the broker hold no more than their limits and what one tick reads."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.moves.transfer import MessageRange
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Producing, section

#: A megabyte in all: five times the limit of the pages, twenty times that of the others.
MESSAGES = 1000
BODY = bytes(1000)
PAGE: dict[str, object] = {"address-full-policy": "PAGE", "max-size-bytes": 200_000, "max-read-page-bytes": 20_000}
BLOCK: dict[str, object] = {"address-full-policy": "BLOCK", "max-size-bytes": 50_000}

#: One tick brings ten messages here, and reads a chunk back.
TICK = 15_000


class Peak:
    """The most that is in memory after a tick."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.bytes = 0
        self.by_address: dict[str, int] = {}

    def look(self) -> None:
        """After a tick."""
        self.bytes = max(self.bytes, self.bench.engine.usage.bytes)
        for name, address in self.bench.engine.addresses.items():
            self.by_address[name] = max(self.by_address.get(name, 0), address.size_bytes)


def fill(bench: Bench, name: str, peak: Peak, **more: Any) -> int:
    """Send up to all messages, ten a tick, until the producer has to wait; returns how many."""
    producer = Producing()
    for sent in range(0, MESSAGES, 10):
        if producer.blocked:
            return sent
        send = bench.prepare(name, *[BODY] * 10, **more)
        result = bench.engine.producers.publish([send], producer=producer)
        producer.blocked = result.blocked
        bench.run()
        peak.look()
    return MESSAGES


def drain(bench: Bench, name: str) -> int:
    """Consume all; returns how many there were."""
    taker, taken = bench.take(name), 0
    while taker.taken:
        got, taker.taken = taker.taken, []
        bench.ack(taker, *got)
        taken += len(got)
    return taken


@pytest.mark.parametrize("policy", ["BLOCK", "PAGE", "FAIL", "DROP"])
def test_dead_letters_wait_on_disk_whatever_the_policy(policy: str) -> None:
    bench = Bench(
        {"match": "q", "dead-letter-address": "DLQ", "max-delivery-attempts": 1, **PAGE},
        {"match": "DLQ", **BLOCK, "address-full-policy": policy},
        segment_bytes=1 << 20,
    )
    peak = Peak(bench)
    assert fill(bench, "q", peak) == MESSAGES
    taker = bench.take("q")
    while taker.taken:
        got, taker.taken = taker.taken[:10], taker.taken[10:]
        bench.nack(taker, *got)
        peak.look()
    dead = bench.queue("DLQ")
    assert dead.message_count == MESSAGES
    assert peak.by_address["DLQ"] <= 50_000 + TICK
    assert bench.engine.addresses["DLQ"].paged_bytes > 900_000
    bench = bench.restart()
    assert bench.engine.addresses["DLQ"].size_bytes <= 50_000
    assert drain(bench, "DLQ") == MESSAGES
    bench.check()


def test_an_address_that_blocks_counts_what_was_moved_to_it_as_held() -> None:
    bench = Bench({"match": "q", "dead-letter-address": "DLQ"}, {"match": "DLQ", **BLOCK})
    fill(bench, "q", Peak(bench))
    bench.declare("DLQ")
    while bench.queue("q").message_count:
        bench.enter().messages.move(bench.queue("q"), "DLQ", MessageRange(most=50))
        bench.run()
    producer = Producing()
    for restart in (False, True):
        if restart:
            bench = bench.restart()
        producer.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["DLQ"], producer)
        assert producer.blocked
    bench.purge("DLQ")
    assert not _is_blocked(producer), "what was purged on disk makes room too"


def _is_blocked(producer: Producing) -> bool:
    return producer.blocked


def test_moves_into_a_full_queue_that_cannot_page_are_refused_and_tried_again() -> None:
    bench = Bench({"match": "q", "dead-letter-address": "DLQ", "max-delivery-attempts": 1}, {"match": "DLQ", **BLOCK})
    peak = Peak(bench)
    bench.declare("DLQ", non_destructive=True)
    fill(bench, "q", peak)
    taker = bench.take("q")
    while taker.taken:
        got, taker.taken = taker.taken[:10], taker.taken[10:]
        bench.nack(taker, *got)
        peak.look()
    assert peak.by_address["DLQ"] <= 50_000 + TICK
    assert bench.broker.reported("move.address_full")
    assert bench.queue("q").message_count + bench.queue("DLQ").message_count == MESSAGES
    step = bench.enter().messages.move(bench.queue("q"), "DLQ", MessageRange(most=50))
    bench.run()
    assert step.refused == {"address-full": 50}
    bench.purge("DLQ")
    bench.broker.advance(10_000)
    bench.nack(taker, *taker.taken[:10])
    assert bench.queue("DLQ").message_count == 10, "there is room again"
    bench.check()


@pytest.mark.parametrize("to", ["b", "c"])
def test_a_producer_waits_for_each_address_that_its_diverts_reach(to: str) -> None:
    """`c` is reached by way of `b`."""
    bench = Bench(
        {"match": "a", **PAGE},
        {"match": to, **BLOCK},
        diverts={"one": section("a", "b"), "two": section("b", "c")},
    )
    for name in ("a", "b", "c"):
        bench.declare(name)
    peak = Peak(bench)
    assert fill(bench, "a", peak) < 100
    assert peak.by_address[to] <= 50_000 + TICK
    assert bench.bodies("a"), "its own queue has them too"
    bench.check()


def test_a_producer_that_waits_for_a_forwarding_address_continues_when_that_has_room() -> None:
    bench = Bench({"match": "a", **PAGE}, {"match": "b", **BLOCK}, diverts={"one": section("a", "b")})
    bench.declare("a")
    bench.declare("b")
    producer = Producing()
    while not producer.blocked:
        result = bench.enter().producers.publish([bench.prepare("a", BODY)], producer=producer)
        producer.blocked = result.blocked
        bench.run()
    assert drain(bench, "b")
    assert not _is_blocked(producer)


# -- scheduled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("how", ["goes on", "restart", "crash"])
def test_scheduled_messages_wait_on_disk(how: str, durable: bool) -> None:
    bench = Bench({"match": "q", **PAGE}, segment_bytes=1 << 20)
    peak, due = Peak(bench), bench.broker.now + 3_600_000
    assert fill(bench, "q", peak, scheduled=due, durable=durable) == MESSAGES
    assert peak.bytes <= 200_000 + TICK
    assert bench.queue("q").message_count == bench.queue("q").scheduled_count == MESSAGES
    taker = bench.take("q")
    if how != "goes on":
        bench = bench.restart(crash=how == "crash")
        assert bench.engine.usage.bytes <= 200_000
        taker = bench.take("q") if durable else taker
    if how != "goes on" and not durable:
        assert not bench.engine.queues["q"].message_count
        return
    assert not taker.taken
    bench.broker.advance(3_600_000)
    peak = Peak(bench)
    got = 0
    while taker.taken:
        peak.look()
        got += len(taker.taken[:10])
        taken, taker.taken = taker.taken[:10], taker.taken[10:]
        bench.ack(taker, *taken)
    assert got == MESSAGES
    bench.check()


def test_scheduled_messages_become_ready_at_their_times_though_they_are_on_disk() -> None:
    bench = Bench({"match": "q", **PAGE, "max-size-bytes": 0})
    for n in (3, 1, 2, 5, 4):
        bench.sent("q", b"%d" % n, scheduled=bench.broker.now + 1000 * n)
    queue = bench.queue("q")
    assert (queue.scheduled, queue.scheduled_count, bench.engine.usage.messages) == ({}, 5, 0)
    for restart in (False, True):
        if restart:
            bench = bench.restart()
        assert sorted(bench.places("q")) == [b"1", b"2", b"3", b"4", b"5"]
        assert set(bench.places("q").values()) == {"scheduled"}
    taker = bench.take("q")
    for n in (1, 2, 3):
        bench.broker.advance(1000)
        assert taker.take() == [b"%d" % n]
    assert bench.queue("q").scheduled_count == 2


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("crash", [None, False, True])
def test_messages_that_wait_for_redelivery_go_back_to_disk(crash: bool | None, durable: bool) -> None:
    bench = Bench({"match": "q", **PAGE, "redelivery-delay": 60_000, "max-delivery-attempts": 3})
    peak = Peak(bench)
    assert fill(bench, "q", peak, durable=durable) == MESSAGES
    taker = bench.take("q", window=20_000)
    nacked = []
    while taker.taken:
        peak.look()
        message = taker.taken.pop(0)
        nacked.append(message.id)
        bench.nack(taker, message)
    assert len(nacked) == len(set(nacked)) == MESSAGES
    assert peak.bytes <= 200_000 + 20_000 + 20_000 + TICK, "the limit, what is read ahead, and the consumer's window"
    assert bench.queue("q").scheduled_count == MESSAGES
    if crash is not None and durable:
        bench = bench.restart(crash=crash)
        assert bench.engine.usage.bytes <= 200_000
        taker = bench.take("q", window=20_000)
        assert not taker.taken, "the delay lasts"
    bench.broker.advance(60_000)
    again = []
    while taker.taken:
        message = taker.taken.pop(0)
        assert bench.queue("q").delivery_count(message.id) == 1
        again.append(message.id)
        bench.ack(taker, message)
    assert sorted(again) == nacked
    bench.check()


@pytest.mark.parametrize("durable", [True, False])
def test_messages_that_a_full_disk_still_lets_in_are_paged_like_the_rest(durable: bool) -> None:
    """Its producer waits, but what had been read from it before enters."""
    bench = Bench({"match": "q", **PAGE, "max-size-bytes": 0})
    bench.declare("q")
    bench.engine.usage.disk.full = True
    bench.sent("q", BODY, durable=durable)
    assert (bench.queue("q").paged, bench.engine.usage.messages) == (1, 0)


# -- senders that come anew --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("diverted", [False, True])
def test_what_each_new_sender_brings_to_an_address_that_blocks_waits_on_disk(durable: bool, diverted: bool) -> None:
    """Such as a client that reconnects and sends again, or a will: nothing can stop the first messages of a sender."""
    diverts = {"one": section("a", "b", exclusive=True)} if diverted else {}
    bench = Bench({"match": "b", **BLOCK}, segment_bytes=1 << 20, diverts=diverts)
    bench.declare("b")
    peak = Peak(bench)
    for _ in range(0, MESSAGES, 10):
        send = bench.prepare("a" if diverted else "b", *[BODY] * 10, durable=durable)
        sender = Producing()
        sender.blocked = bench.engine.producers.publish([send], producer=sender).blocked
        bench.run()
        peak.look()
    assert sender.blocked
    assert peak.by_address["b"] <= 62_500 + TICK, "a quarter more"
    waiting = Producing()
    waiting.blocked = bench.enter().producers.wait_for_room(bench.engine.addresses["b"], waiting)
    assert waiting.blocked
    if durable:
        bench = bench.restart()
    assert drain(bench, "b") == MESSAGES
    assert durable or not waiting.blocked
    bench.check()


# -- rings -------------------------------------------------------------------------------------------------------------

#: Rings may exceed a limit by a quarter.
RING_MAX = 250_000


@pytest.mark.parametrize("durable", [False, True])
def test_a_ring_whose_size_memory_cannot_hold_keeps_the_newest(durable: bool) -> None:
    """Any client may ask for a ring of any size."""
    bench = Bench(segment_bytes=1 << 20)
    bench.engine.usage.bytes_max = 200_000
    bench.declare("q", ring_size=1_000_000)
    peak = Peak(bench)
    assert fill(bench, "q", peak, durable=durable) == MESSAGES, "a ring stops no sender"
    assert 200_000 < peak.bytes <= RING_MAX + TICK
    kept = bench.queue("q").message_count
    assert bench.queue("q").left[RemovalReason.EVICTED] == MESSAGES - kept > 0
    bench.sent("q", b"last", durable=durable)
    assert bench.bodies("q")[-1] == b"last"
    bench.check()


def test_a_retroactive_address_keeps_no_more_than_memory_holds() -> None:
    bench = Bench({"match": "q", "retroactive-message-count": 1_000_000}, segment_bytes=1 << 20)
    bench.engine.usage.bytes_max = 200_000
    bench.declare("q", routing_type=RoutingType.MULTICAST)
    peak = Peak(bench)
    assert fill(bench, "q", peak, routing_type=RoutingType.MULTICAST) == MESSAGES
    assert peak.bytes <= RING_MAX + TICK
    assert bench.queue("q").message_count == MESSAGES
    bench.check()
