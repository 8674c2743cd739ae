"""Retained messages: one an address, through restarts, expiry and limits, and the books balance."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.engine.model.errors import AddressFull, AlreadyInUse, InvalidName, NotFound, RetainedFull
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.names import RETAINED
from broker.engine.model.topics import Topics
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues import arrival
from broker.engine.routing import destinations
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, reasons
from tests.support.bodies import body_of

MULTICAST = RoutingType.MULTICAST


def retain(bench: Bench, name: str, body: bytes, **more: Any) -> Message:
    send = bench.prepare(name, body, routing_type=MULTICAST, **more)
    (message,) = send.messages
    bench.engine.retained.set(send.address, message)
    bench.run()
    return message


def matched(bench: Bench, pattern: str) -> list[bytes]:
    """What a subscription to a pattern would be sent."""
    found = bench.engine.retained.search(pattern, bench.engine.journal.next_id)
    return [body_of(message) for message in found if message is not None]


def check(bench: Bench) -> None:
    """The books, and the memory that is charged."""
    bench.check()
    retained = bench.engine.retained
    queue = retained.queue
    assert queue is not None
    messages = bench.messages(queue.name)
    assert (len(messages), sum(m.size for m in messages)) == (retained.messages, retained.bytes)
    assert (queue.address.size_messages, queue.address.size_bytes) == (retained.messages, retained.bytes)
    everywhere = {m.id: m for name in bench.engine.queues for m in bench.messages(name)}
    usage = bench.engine.usage
    assert (usage.messages, usage.bytes) == (len(everywhere), sum(m.size for m in everywhere.values()))
    for address in bench.engine.addresses.values():
        assert address is queue.address or (address.size_bytes, address.size_messages) == (0, 0), address.name


def test_the_last_one_of_each_address(bench: Bench) -> None:
    retain(bench, "a.b", b"1")
    retain(bench, "a.c", b"2")
    retain(bench, "a.b", b"3")
    for crash in (True, False, True):
        found = bench.engine.retained.get("a.b")
        assert found is not None
        assert found.body == b"3"
        assert bench.engine.retained.get("a") is bench.engine.retained.get("x.y") is None
        assert (matched(bench, "a.c"), matched(bench, "a.#")) == ([b"2"], [b"2", b"3"])
        assert bench.engine.retained.messages == 2
        assert reasons(check_accounts(bench.broker)[RETAINED]) == {RemovalReason.REPLACED: 1}
        check(bench)
        bench = bench.restart(crash=crash)


def test_replaced_before_the_disk_has_it() -> None:
    bench = Bench(lazy_disk=True)
    engine = bench.enter()
    address, _ = destinations.destination(engine._state, "a", MULTICAST)
    for body in (b"1", b"2", b"3"):
        engine.retained.set(address, Message(bench.header("a"), b"", body))
    bench.run()
    assert matched(bench, "a") == [b"3"]
    assert matched(bench.restart(), "a") == []


def test_cleared(bench: Bench) -> None:
    retain(bench, "a.b.c", b"1")
    retain(bench, "a.b", b"2")
    bench.enter()
    assert bench.engine.retained.clear("a.b.c")
    assert not bench.engine.retained.clear("a.b.c")
    assert not bench.engine.retained.clear("none")
    bench.run()
    assert matched(bench, "#") == [b"2"]
    check(bench)
    bench = bench.restart()
    assert matched(bench, "#") == [b"2"]
    assert reasons(check_accounts(bench.broker)[RETAINED]) == {RemovalReason.PURGED: 1}
    check(bench)


def test_an_expired_one_goes_nowhere() -> None:
    bench = Bench({"match": "a", "expiry-address": "EXP", "auto-create-expiry-resources": True})
    retain(bench, "a", b"1", expiration=bench.broker.now + 10_000)
    retain(bench, "b", b"2")
    bench = bench.restart()
    bench.broker.now += 10_000  # over, and not yet noticed
    bench.enter()
    assert bench.engine.retained.get("a") is None
    assert matched(bench, "#") == [b"2"]
    bench.broker.advance(60_000)
    assert bench.engine.retained.messages == 1
    assert "EXP" not in bench.engine.addresses
    assert reasons(check_accounts(bench.broker)[RETAINED]) == {RemovalReason.EXPIRED: 1}
    check(bench)
    retain(bench, "a", b"3")
    assert matched(bench, "a") == [b"3"]


def test_at_most_so_many_messages(bench: Bench) -> None:
    bench.engine.retained.messages_max = 2
    retain(bench, "a", b"1")
    retain(bench, "b", b"2")
    for _ in range(2):
        with pytest.raises(RetainedFull, match="2 messages"):
            retain(bench, "c", b"3")
    retain(bench, "b", b"4")
    assert matched(bench, "#") == [b"1", b"4"]
    assert len(bench.broker.reported("retained.full")) == 1
    bench.enter().retained.clear("a")
    retain(bench, "c", b"5")
    with pytest.raises(RetainedFull):
        retain(bench, "d", b"6")
    assert len(bench.broker.reported("retained.full")) == 2
    check(bench)


def test_at_most_so_many_bytes(bench: Bench) -> None:
    size = retain(bench, "a", b"x" * 100).size
    bench.engine.retained.bytes_max = 2 * size
    retain(bench, "b", b"y" * 100)
    with pytest.raises(RetainedFull):
        retain(bench, "a", b"z" * 101)
    retain(bench, "a", b"z" * 100)
    assert matched(bench, "#") == [b"y" * 100, b"z" * 100]
    check(bench)


def test_a_full_address_refuses_for_both() -> None:
    bench = Bench({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})
    bench.sent("a", b"fills")
    with pytest.raises(AddressFull):
        retain(bench, "a", b"1")
    assert bench.engine.retained.messages == 0


def test_the_address_may_go_and_come_again(bench: Bench) -> None:
    bench.enter()._state.registry.create_address("a", {MULTICAST})
    retain(bench, "a", b"1")
    state = bench.enter()._state
    state.registry.delete_address(state.addresses["a"])
    bench.run()
    check(bench)
    bench = bench.restart()
    check(bench)
    retain(bench, "a", b"2")
    check(bench)
    assert matched(bench, "a") == [b"2"]


def test_the_queue_is_the_brokers_own(bench: Bench) -> None:
    with pytest.raises(InvalidName, match="own"):
        bench.send(RETAINED, b"x")
    retain(bench, "a", b"1")
    state = bench.enter()._state
    queue = bench.queue(RETAINED)
    assert queue.internal
    for name in (RETAINED, f"{RETAINED}::q", f"{RETAINED}::{RETAINED}"):
        with pytest.raises(InvalidName, match="own"):
            destinations.destination(state, name, None)
        with pytest.raises(InvalidName, match="own"):
            destinations.queue_to_consume(state, name, None)
    with pytest.raises((InvalidName, NotFound)):
        destinations.destination(state, f"a::{RETAINED}", None)
    for refused in (
        lambda: bench.engine.messages.purge(queue),
        lambda: bench.engine.delete_queue(queue),
        lambda: bench.engine.messages.retry(queue, MessageRange()),
        lambda: bench.engine.messages.move(queue, "b", MessageRange()),
    ):
        with pytest.raises(AlreadyInUse, match="own"):
            refused()
    bench.run()
    bench.sent("b", b"2")
    assert bench.bodies(RETAINED) == [b"1"]
    bench.broker.advance(1_000_000)
    assert bench.bodies(RETAINED) == [b"1"]
    check_accounts(bench.broker)


def test_in_a_repaired_journal_the_removal_of_an_older_one_may_be_lost(bench: Bench) -> None:
    retain(bench, "a", b"1")
    queue = bench.engine.retained.queue
    assert queue is not None
    bench.enter()
    arrival.keep(bench.engine._state, queue, Message(bench.header("a", priority=9), b"", b"2"))
    arrival.keep(bench.engine._state, queue, Message(bench.header("a"), b"", b"3"))
    bench.run()
    bench = bench.restart()
    assert matched(bench, "a") == bench.bodies(RETAINED) == [b"3"]
    check(bench)


def test_nothing_is_made_before_it_is_needed(bench: Bench) -> None:
    assert not bench.enter().retained.clear("a")
    assert matched(bench, "#") == []
    bench.run()
    assert RETAINED not in bench.engine.queues


def test_it_does_not_keep_the_journal() -> None:
    bench = Bench(segment_bytes=8 << 10)
    retain(bench, "a", b"stays")
    for n in range(400):
        retain(bench, "b", b"%d" % n + b"x" * 500)
        if n % 4 == 0:
            bench.broker.advance(100)
    bench.broker.advance(10_000)
    assert len(bench.engine.journal.space.segments) < 20
    bench = bench.restart()
    assert [body[:5] for body in matched(bench, "#")] == [b"stays", b"399xx"]
    check(bench)


@pytest.mark.parametrize("pattern", ["#.$a", "#.#.$a", "*.$a", "#", "#.$a.#", "*"])
def test_a_wildcard_in_front_finds_nothing_of_the_broker(bench: Bench, pattern: str) -> None:
    """Also where it stands for no word (MQTT-4.7.2-1)."""
    retain(bench, "$a", b"the broker's")
    assert matched(bench, pattern) == []
    retain(bench, "b.$a", b"anybody's")
    assert matched(bench, pattern) == ([] if pattern == "*" else [b"anybody's"])
    assert matched(bench, "$a.#") == [b"the broker's"]


WORDS = st.lists(st.sampled_from(["a", "b", "$a", ""]), min_size=1, max_size=4)
PATTERN = st.lists(st.sampled_from(["a", "b", "$a", "", "*", "#"]), min_size=1, max_size=4)


@given(st.lists(WORDS, max_size=12), st.lists(PATTERN, max_size=6), st.sets(st.integers(0, 11)))
def test_a_pattern_finds_what_it_would_have_got(
    names: list[list[str]], patterns: list[list[str]], cleared: set[int]
) -> None:
    """The trie of names and that of bindings agree about every pattern."""
    bench = Bench()
    bench.enter()
    kept: dict[str, bytes] = {}
    for n, words in enumerate(names):
        name = ".".join(words)
        if not name:
            continue
        address = bench.engine.addresses.get(name)
        address = address or bench.engine._state.registry.create_address(name, {MULTICAST})
        bench.engine.retained.set(address, Message(bench.header(name), b"", name.encode()))
        kept[name] = name.encode()
        if n in cleared:
            bench.engine.retained.clear(name)
            del kept[name]
    for words in patterns:
        pattern = ".".join(words)
        topics: Topics[str] = Topics()
        topics.add(pattern, pattern)
        expected = sorted(body for name, body in kept.items() if topics.match(name))
        assert sorted(matched(bench, pattern)) == expected, pattern
