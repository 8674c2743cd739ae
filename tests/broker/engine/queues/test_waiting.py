"""How many messages may wait on a queue, and what becomes of the others: by name, and the books balance."""

from __future__ import annotations

import errno

import pytest

from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.routing import alter
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Producing, Taker
from tests.simulation.world import check_counters
from tests.support.sim_files import refusing

MULTICAST = RoutingType.MULTICAST


def limited(
    messages_max: int,
    *settings: dict[str, object],
    drop_oldest: bool,
    durable: bool = True,
    others: tuple[str, ...] = ("other",),
) -> Bench:
    """A broker with queues on t, of which q has the limit."""
    bench = Bench(*settings)
    state = bench.enter()._state
    address = state.registry.create_address("t", {MULTICAST})
    for name in ("q", *others):
        state.registry.create_queue(address, name, MULTICAST, durable=durable)
    alter.limit(state, bench.queue("q"), messages_max, drop_oldest=drop_oldest)
    bench.run()
    return bench


def sent(bench: Bench, *bodies: bytes, **more: object) -> None:
    bench.sent("t", *bodies, routing_type=MULTICAST, **more)


def check(bench: Bench) -> None:
    bench.check()


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(("drop_oldest", "way"), [(False, "dropped"), (True, "displaced")])
def test_beyond_the_limit_new_ones_or_the_oldest_leave(drop_oldest: bool, way: str, durable: bool) -> None:
    bench = limited(3, drop_oldest=drop_oldest, durable=durable)
    sent(bench, b"1", b"2", durable=durable)
    sent(bench, b"3", durable=durable)
    assert bench.bodies("q") == [b"1", b"2", b"3"]
    assert bench.queue("q").counts[way] == 0
    sent(bench, b"4", b"5", durable=durable)
    assert bench.bodies("q") == ([b"3", b"4", b"5"] if drop_oldest else [b"1", b"2", b"3"])
    assert bench.bodies("other") == [b"1", b"2", b"3", b"4", b"5"]
    assert bench.queue("q").counts[way] == 2
    check(bench)
    if durable:
        assert bench.left("q") == {way: 2}


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_a_run_larger_than_the_limit(drop_oldest: bool) -> None:
    bench = limited(2, drop_oldest=drop_oldest)
    sent(bench, b"1", b"2", b"3", b"4", b"5")
    assert bench.bodies("q") == ([b"4", b"5"] if drop_oldest else [b"1", b"2"])
    check(bench)


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_a_limit_of_none_at_all(drop_oldest: bool) -> None:
    bench = limited(0, drop_oldest=drop_oldest)
    sent(bench, b"1")
    assert bench.bodies("q") == []
    check(bench)


def test_messages_that_a_consumer_has_or_could_take_do_not_count() -> None:
    bench = limited(1, drop_oldest=False)
    taker = bench.attach(Taker(), "t", MULTICAST, durable_name="q", counted=True)
    bench.engine.consumers.grant(taker.consumer, 3)
    bench.run()
    sent(bench, b"1", b"2", b"3", b"4", b"5")
    assert taker.take() == [b"1", b"2", b"3"]
    assert bench.places("q") == {b"1": "delivering", b"2": "delivering", b"3": "delivering", b"4": "ready"}
    bench.enter()
    taker.consumer.paused = True
    bench.engine.consumers.grant(taker.consumer, 2)
    bench.run()
    sent(bench, b"6")
    assert bench.queue("q").left[RemovalReason.DROPPED] == 2
    check(bench)


def test_a_consumer_without_a_window_takes_everything() -> None:
    bench = limited(1, drop_oldest=True)
    taker = bench.take("t", MULTICAST, durable_name="q")
    sent(bench, b"1", b"2", b"3")
    assert taker.take() == [b"1", b"2", b"3"]


def test_scheduled_messages_wait_too() -> None:
    bench = limited(2, drop_oldest=True)
    for body in (b"1", b"2", b"3"):
        sent(bench, body, scheduled=bench.broker.now + 60_000)
    assert bench.places("q") == {b"2": "scheduled", b"3": "scheduled"}
    check(bench)
    bench.broker.advance(60_000)
    assert bench.places("q") == {b"2": "ready", b"3": "ready"}


def test_expirations_of_those_that_left_are_forgotten() -> None:
    bench = limited(1, drop_oldest=True)
    for body in (b"1", b"2"):
        sent(bench, body, expiration=bench.broker.now + 60_000)
    assert bench.queue("q").expiring == 1
    bench.broker.advance(120_000)
    assert bench.queue("q").left[RemovalReason.EXPIRED] == 1
    check(bench)


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_it_is_reported_once_until_there_is_room_again(drop_oldest: bool) -> None:
    bench = limited(4, drop_oldest=drop_oldest)
    code = "queue.full.evicting" if drop_oldest else "queue.full.dropping"
    for n in range(8):
        sent(bench, b"%d" % n)
    assert bench.broker.reported(code) == [{"queue": "q", "messages": 4}]
    bench.purge("q")
    for n in range(8):
        sent(bench, b"%d" % n)
    assert len(bench.broker.reported(code)) == 2


def test_the_limit_is_part_of_the_queue() -> None:
    bench = limited(2, drop_oldest=True).restart()
    queue = bench.queue("q")
    assert (queue.messages_max, queue.drop_oldest) == (2, True)
    alter.limit(bench.enter()._state, queue, -1, drop_oldest=False)
    bench.run()
    queue = bench.restart().queue("q")
    assert (queue.messages_max, queue.drop_oldest) == (-1, False)


def test_a_queue_of_somebody_who_is_away_takes_durable_messages_only() -> None:
    bench = limited(-1, drop_oldest=False)
    queue = bench.queue("q")
    queue.durable_only = True
    sent(bench, b"1", durable=False)
    sent(bench, b"2", durable=True)
    queue.durable_only = False
    sent(bench, b"3", durable=False)
    assert bench.bodies("q") == [b"2", b"3"]
    assert bench.bodies("other") == [b"1", b"2", b"3"]
    check_counters(bench.broker)


def test_messages_that_no_present_consumer_takes_are_unrouted() -> None:
    bench = limited(-1, drop_oldest=False)
    for name in ("q", "other"):
        bench.queue(name).durable_only = True
    sent(bench, b"1", durable=False)
    assert bench.engine.addresses["t"].unrouted == 1


# -- bytes: a full memory ----------------------------------------------------------------------------------------------


def full(messages_max: int, *, drop_oldest: bool = False, durable: bool = True) -> Bench:
    """The same on an address that pages beyond two messages, and reads back one at a time; without another queue."""
    rules = {"match": "t", "address-full-policy": "PAGE", "max-size-messages": 2, "max-read-page-messages": 8}
    return limited(messages_max, rules, others=(), drop_oldest=drop_oldest, durable=durable)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last + 1)]


@pytest.mark.parametrize("durable", [True, False])
def test_messages_that_wait_beyond_memory_are_paged_and_count(durable: bool) -> None:
    bench = full(6, durable=durable)
    for body in numbers(1, 5):
        sent(bench, body)
    queue = bench.queue("q")
    assert (queue.ready, queue.paged, queue.left[RemovalReason.DROPPED]) == (2, 3, 0)
    sent(bench, *numbers(6, 9))
    assert bench.bodies("q") == numbers(1, 6)
    assert (queue.ready, queue.paged, queue.left[RemovalReason.DROPPED]) == (2, 4, 3)
    assert [told["queue"] for told in bench.broker.reported("queue.full.dropping")] == ["q"]
    assert bench.engine.usage.messages == 2
    check(bench)
    taker = bench.take("t::q", MULTICAST)
    assert taker.take() == numbers(1, 6)


def test_of_a_run_that_is_cut_the_right_records_are_read_back() -> None:
    bench = full(4)
    sent(bench, b"a", b"bb")
    sent(bench, b"ccc", b"dddd", b"eeeee", b"ffffff")
    assert bench.bodies("q") == [b"a", b"bb", b"ccc", b"dddd"]
    bench = bench.restart()
    assert bench.bodies("q") == [b"a", b"bb", b"ccc", b"dddd"]
    assert bench.queue("q").paged == 4
    check(bench)


@pytest.mark.parametrize("durable", [True, False])
def test_the_oldest_leave_wherever_they_are(durable: bool) -> None:
    bench = full(6, drop_oldest=True, durable=durable)
    for body in numbers(1, 20):
        sent(bench, body)
        assert bench.engine.usage.messages <= 4
    assert bench.bodies("q") == numbers(15, 20)
    assert bench.queue("q").left[RemovalReason.DISPLACED] == 14
    assert [told["queue"] for told in bench.broker.reported("queue.full.evicting")] == ["q"]
    check(bench)
    assert bench.take("t::q", MULTICAST).take() == numbers(15, 20)


def test_the_oldest_leave_later_if_they_cannot_be_read_for_now() -> None:
    bench = full(4, drop_oldest=True)
    sent(bench, *numbers(1, 3))
    sent(bench, *numbers(4, 6), scheduled=bench.broker.now + 60_000)
    with refusing(bench.broker.files, errno.EMFILE):
        for body in numbers(7, 9):
            sent(bench, body)
        assert [failed["queue"] for failed in bench.broker.reported("paging.failed")] == ["q"]
        assert bench.queue("q").scheduled_count == 3, "they are younger than what cannot be read"
    bench.broker.advance(RETRY_MS)
    assert sorted(bench.bodies("q")) == [*numbers(4, 6), b"9"]
    check(bench)


def test_non_durable_messages_do_not_wait_on_disk() -> None:
    bench = full(100)
    for body in numbers(1, 4):
        sent(bench, body, durable=False)
    assert bench.bodies("q") == numbers(1, 2)
    sent(bench, b"durable")
    sent(bench, b"5", durable=False)
    assert bench.bodies("q") == [b"1", b"2", b"durable"]
    queue = bench.queue("q")
    assert (queue.paged, queue.left[RemovalReason.DROPPED]) == (1, 3)
    assert [told["queue"] for told in bench.broker.reported("queue.full.memory")] == ["q"]
    check(bench)


def test_a_consumer_that_keeps_up_loses_nothing_when_the_memory_is_full() -> None:
    bench = full(100)
    other = bench.enter()._state.registry.create_queue(bench.queue("q").address, "other", MULTICAST, durable=True)
    alter.limit(bench.engine._state, other, 100, drop_oldest=False)
    bench.run()
    taker = bench.take("t::q", MULTICAST, ack_mode=AckMode.AUTO)
    for body in numbers(1, 5):
        sent(bench, body, durable=False)
        bench.enter().consumers.acknowledge_all(taker.consumer)
        bench.run()
    assert taker.take() == numbers(1, 5)
    assert bench.bodies("other") == numbers(1, 2)
    check(bench)


def test_a_queue_with_a_limit_makes_nobody_wait() -> None:
    bench = full(100)
    for body in numbers(1, 5):
        sent(bench, body)
    assert not bench.enter().producers.wait_for_room(bench.queue("q").address, Producing())
    bench.run()


def test_the_metric_of_dropped_messages_has_those_of_addresses_and_of_queues() -> None:
    bench = limited(1, {"match": "full", "max-size-bytes": 0, "address-full-policy": "DROP"}, drop_oldest=False)
    sent(bench, b"1", b"2", b"3")
    bench.sent("full", b"dropped")
    assert bench.engine.statistics.totals["dropped"] == 2 + 1
    bench.enter().delete_queue(bench.queue("q"))
    bench.run()
    assert bench.engine.statistics.totals["dropped"] == 2 + 1
