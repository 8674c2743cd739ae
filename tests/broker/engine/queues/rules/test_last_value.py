"""Last-value queues: who replaces whom, and who does not."""

from __future__ import annotations

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.names import REMEMBERED_CHARS_MAX
from broker.engine.queues.arrival import MOVE_RETRY_MS
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.rules.queues import ANYCAST, put


def test_a_newer_value_replaces_the_one_that_waits(bench: Bench) -> None:
    bench.declare(last_value=True)
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"w1", key="w")
    put(bench, "q", b"v2", key="k")
    assert bench.bodies("q") == [b"w1", b"v2"]
    assert bench.left("q") == {"replaced": 1}


def test_values_of_one_run_replace_each_other(bench: Bench) -> None:
    bench.declare(last_value=True)
    put(bench, "q", b"v1", b"v2", b"v3", key="k")
    assert bench.bodies("q") == [b"v3"]
    assert bench.left("q") == {"replaced": 2}


def test_messages_without_the_key_are_never_replaced(bench: Bench) -> None:
    bench.declare(last_value=True)
    put(bench, "q", b"1")
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"2")
    assert bench.bodies("q") == [b"1", b"v1", b"2"]


def test_the_key_is_a_property_of_any_name(bench: Bench) -> None:
    bench.declare(last_value_key="stock_ticker")
    for body, ticker in ((b"36.83", b"RHT"), (b"2.50", b"IBM"), (b"37.02", b"RHT")):
        bench.sent("q", body, head=b"stock_ticker:%b\n" % ticker)
    put(bench, "q", b"another key", key="RHT")
    assert bench.bodies("q") == [b"2.50", b"37.02", b"another key"]


def test_numbers_and_texts_are_the_same_key(bench: Bench) -> None:
    bench.declare(last_value_key="AMQPriority")
    bench.sent("q", b"four", priority=4)
    bench.sent("q", b"five", priority=5)
    bench.sent("q", b"four again", priority=4)
    assert bench.bodies("q") == [b"five", b"four again"]


def test_a_value_in_delivery_is_not_replaced_and_yields_to_a_newer_one_when_it_comes_back(bench: Bench) -> None:
    bench.declare(last_value=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"v2", key="k")
    assert taker.take() == [b"v1"]
    assert bench.places("q") == {b"v2": "ready", b"v1": "delivering"}
    bench.close(taker, CLOSED)
    assert bench.bodies("q") == [b"v2"]
    assert bench.left("q") == {"replaced": 1}


def test_a_value_that_comes_back_stays_if_the_newer_one_is_gone(bench: Bench) -> None:
    bench.declare(last_value=True)
    first, second = bench.take("q", window=0), bench.take("q", window=0)
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"v2", key="k")
    bench.ack(second, *second.taken)
    bench.close(first, CLOSED)
    assert second.take() == [b"v2", b"v1"]
    put(bench, "q", b"v3", key="k")
    bench.close(second, CLOSED)
    assert bench.bodies("q") == [b"v3"]
    assert bench.left("q") == {"replaced": 1, "consumed": 1}


def test_a_value_that_waits_for_redelivery_is_replaced() -> None:
    bench = Bench({"match": "q", "redelivery-delay": 1000})
    bench.declare(last_value=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"v1", key="k")
    bench.nack(taker, taker.taken[0])
    assert bench.places("q") == {b"v1": "scheduled"}
    put(bench, "q", b"v2", key="k")
    assert taker.take() == [b"v1", b"v2"]
    bench.broker.advance(2000)
    assert bench.places("q") == {b"v2": "delivering"}
    assert bench.left("q") == {"replaced": 1}


def test_a_value_that_comes_back_with_a_delay_behind_a_newer_one_is_replaced_at_once() -> None:
    bench = Bench({"match": "q", "redelivery-delay": 1000})
    bench.declare(last_value=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"v2", key="k")
    bench.nack(taker, taker.taken[0])
    assert bench.places("q") == {b"v2": "delivering"}


def test_a_value_that_is_postponed_behind_a_newer_one_is_replaced_at_once(bench: Bench) -> None:
    bench.declare(last_value=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"v2", key="k")
    bench.enter().consumers.keep(taker.consumer, taker.taken[0], 1000)
    bench.run()
    assert bench.places("q") == {b"v2": "delivering"}
    assert bench.left("q") == {"replaced": 1}


def test_a_dead_value_that_had_to_stay_behind_a_newer_one_leaves_once() -> None:
    """The dead-letter queue refuses it; while it waits for another attempt, a newer value comes."""
    bench = Bench({"match": "q", "dead-letter-address": "D", "max-delivery-attempts": 1})
    home = bench.enter().configuration.declare("D", {ANYCAST})
    bench.engine.configuration.declare_queue(home, "D", ANYCAST, durable=True, selector="FALSE")
    bench.declare(last_value=True)
    taker = bench.take("q")
    put(bench, "q", b"v1", key="k")
    bench.nack(taker, taker.taken[0])
    assert bench.places("q") == {b"v1": "scheduled"}
    put(bench, "q", b"v2", key="k")
    bench.broker.advance(MOVE_RETRY_MS)
    assert bench.bodies("q") == [b"v2"]
    assert bench.left("q") == {"replaced": 1}


def test_values_in_an_open_transaction_are_not_replaced(bench: Bench) -> None:
    bench.declare(last_value=True)
    taker = bench.take("q")
    put(bench, "q", b"v1", key="k")
    tx = bench.begin()
    bench.ack(taker, taker.taken[0], tx=tx)
    put(bench, "q", b"v2", key="k")
    bench.roll_back(tx)
    assert bench.places("q") == {b"v2": "delivering"}
    assert bench.left("q") == {"replaced": 1}


def test_a_scheduled_value_counts_from_its_time(bench: Bench) -> None:
    bench.declare(last_value=True)
    now = bench.broker.now
    put(bench, "q", b"later", key="k", scheduled=now + 1000)
    put(bench, "q", b"now", key="k")
    assert bench.places("q") == {b"now": "ready", b"later": "scheduled"}
    bench.broker.advance(1000)
    assert bench.bodies("q") == [b"later"]
    put(bench, "q", b"last", key="k")
    assert bench.bodies("q") == [b"last"]


def test_values_that_become_due_together() -> None:
    bench = Bench({"match": "q", "redelivery-delay": 1000})
    bench.declare(last_value=True)
    taker = bench.take("q", window=0)
    put(bench, "q", b"failed", key="k")
    put(bench, "q", b"planned", key="k", scheduled=bench.broker.now + 1000)
    bench.nack(taker, taker.taken[0])
    taker.take()
    bench.broker.advance(1000)
    assert taker.take() == [b"planned"]
    assert bench.left("q") == {"replaced": 1}


def test_a_value_expires_and_frees_its_key(bench: Bench) -> None:
    bench.declare(last_value=True)
    put(bench, "q", b"v1", key="k", expiration=bench.broker.now + 10)
    bench.broker.advance(60_000)
    assert bench.bodies("q") == []
    put(bench, "q", b"v2", key="k")
    put(bench, "q", b"v3", key="k")
    assert bench.bodies("q") == [b"v3"]
    assert bench.left("q") == {"expired": 1, "replaced": 1}


@pytest.mark.parametrize("durable", [True, False])
def test_a_value_expires_together_with_one_that_comes_there_when_it_has_expired(durable: bool) -> None:
    bench = Bench({"match": "first", "expiry-address": "q"})
    bench.declare(last_value=True)
    bench.declare("first")
    bench.sent("first", b"1", head=b"_AMQ_LVQ_NAME:k\n", expiration=bench.broker.now + 10, durable=durable)
    put(bench, "q", b"2", key="k", expiration=bench.broker.now + 10)
    bench.broker.advance(10)
    assert bench.bodies("q") == [b"1"]
    assert bench.left("q") == {"expired": 1}


def test_a_value_that_is_not_durable_replaces_the_durable_one_before_it() -> None:
    """It waits for the disk with it: until then nobody sees either."""
    bench = Bench(lazy_disk=True)
    bench.declare(last_value=True)
    bench.broker.step()
    bench.send("q", b"v1", head=b"_AMQ_LVQ_NAME:k\n")
    bench.send("q", b"v2", head=b"_AMQ_LVQ_NAME:k\n", durable=False)
    bench.run()
    assert bench.bodies("q") == []
    bench.broker.step()
    assert bench.bodies("q") == [b"v2"]
    bench.broker.step()
    assert bench.left("q") == {"replaced": 1}


@pytest.mark.parametrize("crash", [True, False])
def test_after_a_restart_values_replace_each_other_as_before(crash: bool) -> None:
    bench = Bench({"match": "q", "redelivery-delay": 1000})
    bench.declare(last_value=True)
    taker = bench.take("q")
    put(bench, "q", b"v1", key="k")
    put(bench, "q", b"v2", key="k")
    put(bench, "q", b"w1", key="w")
    bench.nack(taker, taker.taken[2])
    bench = bench.restart(crash=crash)
    assert bench.places("q") == {b"v2": "ready", b"w1": "scheduled"}, "it was with a consumer, beside the newer one"
    put(bench, "q", b"w2", key="w")
    assert bench.places("q") == {b"v2": "ready", b"w2": "ready"}
    put(bench, "q", b"v3", key="k")
    assert bench.bodies("q") == [b"w2", b"v3"]
    assert bench.left("q") == {"replaced": 3}
    assert bench.queue("q").attributes.last_value


def test_power_is_lost_before_the_replacement_is_on_disk() -> None:
    bench = Bench(lazy_disk=True)
    bench.declare(last_value=True)
    bench.broker.step()
    for value in (b"v1", b"v2"):
        bench.sent("q", value, head=b"_AMQ_LVQ_NAME:k\n")
        bench.broker.write()
    bench.run()
    assert bench.bodies("q") == [b"v2"]
    bench = bench.restart()
    assert bench.bodies("q") == [b"v2"]
    assert bench.left("q") == {"replaced": 1}


def test_with_selectors(bench: Bench) -> None:
    bench.declare(last_value=True)
    taker = bench.take("q", selector="AMQPriority > 4")
    put(bench, "q", b"low", key="k", priority=1)
    put(bench, "q", b"high", key="k", priority=9)
    put(bench, "q", b"low again", key="k", priority=1)
    assert taker.take() == [b"high"]
    assert bench.places("q") == {b"low again": "ready", b"high": "delivering"}
    assert bench.left("q") == {"replaced": 1}


def test_non_durable_queues_too(bench: Bench) -> None:
    bench.declare(durable=False, last_value=True)
    put(bench, "q", b"v1", b"v2", key="k")
    assert bench.bodies("q") == [b"v2"]


def test_long_keys_are_remembered_by_their_hash(bench: Bench) -> None:
    queue = bench.declare(last_value=True)
    for body, key in ((b"v1", "k" * 500), (b"w1", "k" * 501), (b"v2", "k" * 500)):
        put(bench, "q", body, key=key)
    assert bench.bodies("q") == [b"w1", b"v2"]
    assert queue.rules.values is not None
    assert {len(key) for key in queue.rules.values._newest} == {REMEMBERED_CHARS_MAX + 1}
