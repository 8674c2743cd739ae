"""Slow consumers: who is one, what happens to it, and who is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.model.notes import NOTIFICATIONS
from broker.engine.routing import alter
from tests.broker.engine.engine_harness import Bench, Taker

PERIOD = 5_000


def bench_with(threshold: int, policy: str = "NOTIFY", **more: Any) -> Bench:
    """A broker that looks at the consumers of the address a."""
    settings = {"match": "a", "slow-consumer-threshold": threshold, "slow-consumer-policy": policy}
    return Bench(settings | {name.replace("_", "-"): value for name, value in more.items()})


def work(bench: Bench, taker: Taker, count: int) -> None:
    """Acknowledge so many of what it has."""
    bench.ack(taker, *[taker.taken.pop(0) for _ in range(count)])


def look(bench: Bench) -> list[dict[str, str | int]]:
    """A period passes: what was reported so far."""
    bench.broker.advance(PERIOD)
    return bench.broker.reported("consumer.slow")


def test_a_consumer_that_does_nothing_is_slow() -> None:
    bench = bench_with(1)
    bench.take("a", client_id="c", remote="r")
    bench.sent("a", b"1")
    assert look(bench) == []  # it came within the period
    assert look(bench) == [{"queue": "a", "client": "c", "remote": "r", "rate": 0, "policy": "NOTIFY"}]


@pytest.mark.parametrize(
    ("unit", "threshold", "done", "slow"),
    [
        ("MESSAGES_PER_SECOND", 2, 10, False),
        ("MESSAGES_PER_SECOND", 2, 9, True),
        ("MESSAGES_PER_MINUTE", 12, 1, False),
        ("MESSAGES_PER_MINUTE", 13, 1, True),
        ("MESSAGES_PER_HOUR", 720, 1, False),
        ("MESSAGES_PER_DAY", 17_281, 1, True),
    ],
)
def test_the_threshold_and_its_units(unit: str, threshold: int, done: int, slow: bool) -> None:
    """So many in a period of five seconds."""
    bench = bench_with(threshold, slow_consumer_threshold_measurement_unit=unit)
    taker = bench.take("a")
    bench.sent("a", *[b"x"] * 100)
    look(bench)
    work(bench, taker, done)
    assert bool(look(bench)) is slow


def test_one_that_has_nothing_to_do_is_not_slow() -> None:
    bench = bench_with(1_000)
    taker = bench.take("a")
    for _ in range(3):
        assert look(bench) == []
    bench.sent("a", b"1")
    work(bench, taker, 1)
    assert look(bench) == []


def test_one_that_does_not_ask_is_slow_while_messages_wait() -> None:
    bench = bench_with(1)
    bench.take("a", counted=True)
    bench.sent("a", b"1")
    look(bench)
    assert look(bench)


def test_those_of_a_paused_queue_are_left_alone() -> None:
    bench = bench_with(1, "KILL")
    asking, idle = bench.take("a"), bench.take("a", counted=True)
    alter.pause(bench.enter()._state, bench.queue("a"), paused=True)
    bench.sent("a", b"1")
    for _ in range(3):
        assert look(bench) == []
    assert (asking.closed, idle.closed) == ([], [])


@pytest.mark.parametrize(
    "attributes", [{"default_exclusive_queue": True}, {"default_consumers_before_dispatch": 3}], ids=str
)
def test_one_to_which_its_queue_gives_nothing_is_not_slow(attributes: dict[str, Any]) -> None:
    """The second of an exclusive queue; both, while the queue waits for a third."""
    bench = bench_with(1, **attributes)
    bench.take("a", window=1)
    second = bench.take("a", window=1, client_id="second")
    bench.sent("a", b"1", b"2")
    look(bench)
    assert "second" not in [slow["client"] for slow in look(bench)]
    assert not second.taken


def test_it_is_told_to_whoever_listens() -> None:
    bench = bench_with(1)
    listener = bench.take(NOTIFICATIONS, RoutingType.MULTICAST, selector="_AMQ_NotifType = 'CONSUMER_SLOW'")
    bench.take("a")
    bench.sent("a", b"1")
    look(bench)
    look(bench)
    assert len(listener.taken) == 1


def test_kill_closes_it_and_others_get_its_messages() -> None:
    bench = bench_with(1, "KILL")
    slow = bench.take("a")
    bench.sent("a", b"1", b"2")
    look(bench)
    look(bench)
    (reason,) = slow.closed
    assert reason == "slow consumer: 0 messages per second of queue a, expected at least 1"
    assert slow.consumer.closed
    other = bench.take("a")
    assert other.take() == [b"1", b"2"]
    queue = bench.queue("a")
    counts = [queue.delivery_count(id) for id in queue.consumers[0].unacked]
    assert counts == [1, 0], "the second was perhaps never looked at"


def test_other_addresses_are_left_alone() -> None:
    bench = bench_with(1)
    bench.take("b")
    bench.sent("b", b"1")
    look(bench)
    assert look(bench) == []


def test_it_goes_on_after_a_restart() -> None:
    bench = bench_with(1)
    bench.sent("a", b"1")
    bench = bench.restart()
    bench.take("a")
    look(bench)
    assert look(bench)
