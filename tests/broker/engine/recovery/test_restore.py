"""The engine's state from the journal is the state that it had."""

from __future__ import annotations

from operator import attrgetter

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.queues.stored import UnknownFormat
from broker.engine.recovery import restore
from store import decode
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, check_counters, journal_records

FACTS = attrgetter(
    "address", "annotations", "durable", "expiration", "expiry_source", "priority", "routing_type", "scheduled",
    "timestamp", "user", "origin",
)  # fmt: skip


def known(bench: Bench) -> dict[int, tuple[object, ...]]:
    """All that is known of the messages on `a`."""
    return {m.id: (FACTS(m.header), m.head, m.body, m.size) for m in bench.messages("a")}


def test_messages_are_what_they_were(bench: Bench) -> None:
    now = bench.broker.now
    bench.sent("a", b"plain")
    bench.sent("a", b"any", routing_type=RoutingType.ANYCAST)
    bench.sent(
        "a",
        b"\0full\xff",
        routing_type=RoutingType.ANYCAST,
        head=b"x:\\c\n",
        priority=9,
        user="\u00fc",
        origin="c-1",
        expiration=now + 99_999,
        expiry_source=2,
        scheduled=now + 5000,
        annotations={"_AMQ_DL_REASON": "x", "n": 5},
    )
    before = known(bench)
    for crash in (True, False):
        bench = bench.restart(crash=crash)
        assert known(bench) == before
    assert bench.broker.restored.messages == 3
    check_counters(bench.broker)


def test_order_priorities_and_new_messages_behind_old_ones(bench: Bench) -> None:
    for n, priority in enumerate((4, 9, 4, 0, 9)):
        bench.sent("a", b"%d" % n, priority=priority)
    bench = bench.restart()
    bench.sent("a", b"5", priority=9)
    bench.sent("a", b"6", priority=4)
    assert bench.take("a").take() == [b"1", b"4", b"5", b"0", b"2", b"6", b"3"]


def test_ids_are_never_used_again(bench: Bench) -> None:
    used: set[int] = set()
    for crash in (True, False, True):
        for message in bench.sent("a", *[b"x"] * 5):
            assert message.id not in used
            used.add(message.id)
        bench = bench.restart(crash=crash)


def test_a_message_on_several_queues_is_one_object_and_is_counted_once(bench: Bench) -> None:
    for name in ("q1", "q2"):
        bench.declare(name, "a", routing_type=RoutingType.MULTICAST)
    bench.sent("a", b"1", routing_type=None)
    bench = bench.restart()
    one = bench.only("q1")
    assert one is bench.only("q2")
    assert one.refs == 2
    usage = bench.engine.usage
    assert (usage.messages, bench.engine.addresses["a"].size_messages) == (1, 1)
    assert bench.engine.journal.space.live(one.segment) == 1
    for name in ("q1", "q2"):
        taker = bench.take(f"a::{name}", None)
        bench.ack(taker, *taker.taken)
    assert (usage.messages, usage.bytes) == (0, 0)
    check_accounts(bench.restart().broker)


def test_definitions(bench: Bench) -> None:
    engine = bench.enter()
    engine._state.registry.create_address("both", set(RoutingType))
    bench.take("news.*", RoutingType.MULTICAST, durable_name="c.s", selector="colour = 'red'", no_local="c")
    bench.take("news.*", RoutingType.MULTICAST)
    bench.sent("q", b"1")
    bench = bench.restart()
    state = bench.engine._state
    assert state.addresses["both"].routing_types == set(RoutingType)
    queue = state.queues["c.s"]
    assert queue.filter is not None
    assert (queue.filter.text, queue.no_local, queue.address.name) == ("colour = 'red'", "c", "news.*")
    assert (queue.routing_type, queue.auto_created, queue.durable) == (RoutingType.MULTICAST, False, True)
    assert state.queues["q"].auto_created
    bound = state.bindings.queues(state.addresses["news.*"])
    assert len(bound) == 1, "a subscription without a name ended with its client"
    bench.sent("news.eu", b"1", routing_type=RoutingType.MULTICAST, head=b"colour:red\n")
    assert bench.bodies("c.s") == [b"1"]


def test_expirations_are_watched_again(bench: Bench) -> None:
    bench.sent("a", b"1", expiration=bench.broker.now + 1000)
    bench.sent("a", b"late", expiration=bench.broker.now + 10)
    bench.broker.now += 500
    bench = bench.restart()
    bench.broker.advance(0)
    assert bench.bodies("ExpiryQueue") == [b"late"]
    bench.broker.advance(500)
    assert sorted(bench.bodies("ExpiryQueue")) == [b"1", b"late"]


def test_a_queue_of_the_same_name_does_not_inherit(bench: Bench) -> None:
    bench.sent("a", b"old")
    bench.enter().delete_queue(bench.queue("a"))
    bench.sent("a", b"new")
    assert bench.restart().bodies("a") == [b"new"]


def test_restored_messages_are_reported(bench: Bench) -> None:
    bench.sent("a", b"1", b"2")
    taker = bench.take("a")
    bench.nack(taker, taker.taken[0])
    bench.close(taker, redelivery.CLOSED)
    restored = bench.restart().broker.restored
    assert (restored.messages, restored.redelivered) == (2, 1)
    assert restored.queues == 3


def test_a_format_that_this_version_does_not_know(bench: Bench) -> None:
    bench.sent("a", b"1")
    bench.broker.shut_down()
    fold = restore.Fold({}, bench.engine.journal.space, bodies=bench.engine.journal.bodies)
    stored = next(r for r in journal_records(bench.broker) if isinstance(r, decode.Message))
    with pytest.raises(UnknownFormat, match="format 1"):
        fold._message(stored, 1, 0, b"")
