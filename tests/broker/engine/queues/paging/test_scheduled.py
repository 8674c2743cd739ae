"""Scheduled messages on disk only, and those that wait there for redelivery: all that may become of them."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues.paging.depage import RETRY_MS
from store.decode import Counts
from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import bodies, consumed, paging, settled
from tests.simulation.world import check_accounts, journal_records
from tests.support.sim_files import refusing

LATER = 60_000
MULTICAST = RoutingType.MULTICAST

#: A message enters memory only to be delivered.
NO_MEMORY: dict[str, object] = {"max-size-messages": 0}


def scheduled(bench: Bench, *numbers: int, **more: object) -> None:
    for n in numbers:
        bench.sent("q", b"%d" % n, scheduled=bench.broker.now + LATER, **more)


@pytest.fixture
def bench() -> Bench:
    """Five scheduled messages on disk."""
    bench = paging(NO_MEMORY | {"match": "q"})
    scheduled(bench, *range(5))
    queue = bench.queue("q")
    assert (queue.scheduled, queue.scheduled_count, queue.message_count) == ({}, 5, 5)
    return bench


def waiting(**settings: object) -> Bench:
    """Eight messages, read from disk, that have failed once: six wait on disk for redelivery, two in memory."""
    bench = paging(**{"redelivery-delay": LATER, "max-size-messages": 2} | settings)
    for n in range(10):
        bench.sent("q", b"%d" % n)
    taker = bench.take("q", window=1)
    for _ in range(10):
        bench.nack(taker, taker.taken.pop())
    bench.close(taker, redelivery.CLOSED)
    queue = bench.queue("q")
    assert queue.scheduled_count == 10
    assert len(queue.scheduled) < 10
    return bench


def test_a_purge_removes_them(bench: Bench) -> None:
    assert bench.purge("q") == 5
    settled(bench)
    bench.broker.advance(LATER)
    settled(bench.restart())


def test_they_leave_with_their_queue(bench: Bench) -> None:
    bench.delete("q")
    assert not bench.engine._state.schedule.paged_scheduled
    check_accounts(bench.restart().broker)


def test_an_operator_moves_them_and_they_keep_their_time(bench: Bench) -> None:
    bench.declare("other")
    step = bench.enter().messages.move(bench.queue("q"), "other", MessageRange(most=3))
    bench.run()
    assert (step.moved, bench.queue("q").scheduled_count, bench.queue("other").scheduled_count) == (3, 2, 3)
    bench.broker.advance(LATER)
    assert (bench.bodies("other"), bench.bodies("q")) == (bodies(0, 1, 2), bodies(3, 4))
    bench.check()


def test_they_are_found_and_shown_with_their_time(bench: Bench) -> None:
    queue, due = bench.queue("q"), bench.broker.now + LATER
    found = bench.enter().messages.page(queue, 0, 10)
    assert [state for _, state in found] == ["scheduled"] * 5
    message, state = bench.engine.messages.find(queue, found[2][0].id)
    assert (state, queue.due_of(message.id)) == ("scheduled", due)
    bench.run()
    assert bench.places("q") == dict.fromkeys(bodies(*range(5)), "scheduled")


def test_on_a_full_memory_they_become_ready_behind_what_waits_on_disk(bench: Bench) -> None:
    bench.sent("q", b"before")
    bench.broker.advance(LATER)
    queue = bench.queue("q")
    assert (queue.ready, queue.paged, queue.scheduled_count) == (0, 6, 0)
    bench.sent("q", b"after")
    assert bench.bodies("q") == [b"before", *bodies(*range(5)), b"after"]
    bench = bench.restart()
    taker = bench.take("q")
    assert sorted(taker.take()) == sorted([b"before", *bodies(*range(5)), b"after"])
    bench.ack(taker, *list(taker.consumer.unacked.values()))
    settled(bench)


def test_with_room_in_memory_they_go_first() -> None:
    bench = waiting()
    bench.sent("q", b"new")
    bench.broker.advance(LATER)
    bench.broker.advance(LATER)
    taker, got = bench.take("q", window=1), []
    while taker.taken:
        message = taker.taken[0]
        got += taker.take()
        bench.ack(taker, message)
    assert sorted(got) == sorted([*bodies(*range(10)), b"new"])
    settled(bench)


def test_they_expire_when_they_are_due() -> None:
    bench = paging(NO_MEMORY | {"match": "q"})
    scheduled(bench, 1, 2, expiration=bench.broker.now + LATER // 2)
    scheduled(bench, 3)
    bench.broker.advance(LATER)
    assert (bench.bodies("q"), bench.bodies("ExpiryQueue")) == (bodies(3), bodies(1, 2))
    bench.check()


def test_a_queue_that_becomes_one_of_last_values_has_them_in_memory(bench: Bench) -> None:
    due = bench.broker.now + LATER
    bench.change("q", last_value=True)
    queue = bench.queue("q")
    assert (len(queue.scheduled), queue.tail) == (5, None)
    assert {at for at, _ in queue.scheduled.values()} == {due}
    bench.broker.advance(LATER)
    assert sorted(bench.bodies("q")) == bodies(*range(5))


def test_a_queue_that_keeps_nothing_without_consumers_purges_those_that_are_due(bench: Bench) -> None:
    taker = bench.take("q")
    bench.change("q", purge_on_no_consumers=True)
    scheduled(bench, 5)
    bench.close(taker, redelivery.CLOSED)
    bench.broker.advance(LATER)
    settled(bench)


@pytest.mark.parametrize("restart", [False, True])
def test_they_are_copied_forward_with_their_times(restart: bool) -> None:
    bench = waiting()
    space = bench.engine.journal.space
    oldest = bench.engine.journal.segment
    while bench.engine.journal.segment == oldest:
        bench.sent("other", bytes(1000))
    bench.purge("other")
    bench.enter().cleaner.whole(oldest)
    bench.run()
    assert not space.live(oldest)
    if restart:
        bench = bench.restart()
    taker = bench.take("q")
    assert not taker.taken
    assert bench.queue("q").scheduled_count == 10
    bench.broker.advance(LATER)
    bench.broker.advance(LATER)
    assert {bench.queue("q").delivery_count(id) for id in taker.consumer.unacked} == {1}
    assert sorted(consumed(bench, taker)) == bodies(*range(10))
    settled(bench)


def test_nothing_is_recorded_of_a_queue_that_no_restart_restores() -> None:
    bench = paging(**{"redelivery-delay": LATER, "max-size-messages": 2})
    address = bench.enter().configuration.declare("q", {MULTICAST})
    for name in ("kept", "q"):
        bench.engine.configuration.declare_queue(address, name, MULTICAST, durable=name == "kept", selector="")
    bench.run()
    for n in range(10):
        bench.sent("q", b"%d" % n, routing_type=MULTICAST)
    taker = bench.take("q::q", MULTICAST, window=1)
    for _ in range(10):
        bench.nack(taker, taker.taken.pop())
    oldest = bench.engine.journal.segment
    while bench.engine.journal.segment == oldest:
        bench.sent("other", bytes(1000))
    bench.enter().cleaner.whole(oldest)
    bench.run()
    queue = bench.queue("q")
    assert (queue.durable, queue.paged + queue.scheduled_count, len(queue.states)) == (False, 10, 10)
    records = journal_records(bench.broker)
    assert not [each for each in records if isinstance(each, Counts) and each.queue_id == queue.id]
    check_accounts(bench.broker)


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_is_set_moves_redeliveries_and_no_schedule(restart: bool) -> None:
    bench = waiting()
    bench.sent("q", b"at", scheduled=bench.broker.now + 10 * LATER)
    on_time = bench.broker.now + 10 * LATER
    before = {id: bench.queue("q").due_of(id) for id in _ids(bench)}
    bench.enter()
    bench.engine.ticks.clock_jumped(3_600_000)
    bench.run()
    if restart:
        bench = bench.restart()
    after = {id: bench.queue("q").due_of(id) for id in before}
    moved = {id: due + (0 if due == on_time else 3_600_000) for id, due in before.items()}
    limit = bench.broker.now + bench.queue("q").address.settings.redelivery_delay_max
    assert after == {id: min(due, limit) if restart and due != on_time else due for id, due in moved.items()}


def _ids(bench: Bench) -> list[int]:
    found = bench.enter().messages.page(bench.queue("q"), 0, 100)
    bench.run()
    return [message.id for message, _ in found]


def test_those_that_cannot_be_read_when_they_are_due_are_read_later() -> None:
    bench = waiting()
    address = bench.engine.addresses["q"]
    address.settings = replace(address.settings, max_size_messages=100)
    with refusing(bench.broker.files, errno.EMFILE):
        bench.broker.advance(2 * LATER)
        assert bench.broker.reported("paging.failed")
    bench.broker.advance(RETRY_MS)
    assert bench.queue("q").scheduled_count == 0
    assert bench.queue("q").message_count == 10


def test_notes_of_a_failed_delivery_are_not_lost_on_disk() -> None:
    bench = paging(**{"redelivery-delay": LATER})
    for n in range(10):
        bench.sent("q", b"%d" % n)
    taker = bench.take("q", window=1)
    for n in range(10):
        message = taker.taken.pop()
        how = redelivery.DeliveryOutcome(-1, True, "no", notes={"x-opt-n": n})
        bench.enter().consumers.give_back(taker.consumer, message.id, how)
        bench.run()
    bench.broker.advance(2 * LATER)
    noted = [(message.header.annotations or {}).get("x-opt-n") for message in taker.taken]
    assert None not in noted
