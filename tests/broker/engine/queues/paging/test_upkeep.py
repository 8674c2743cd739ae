"""Messages on disk only: they expire, are looked at, moved, purged, copied forward, and may be unreadable."""

from __future__ import annotations

import errno

import pytest

from broker.engine.delivery import redelivery
from broker.engine.filter import compile_filter
from broker.engine.model.errors import AddressFull
from broker.engine.model.message import RoutingType
from broker.engine.moves import expiry
from broker.engine.moves.transfer import MessageRange
from broker.engine.queues.arrival import MOVE_RETRY_MS
from broker.engine.queues.paging import upkeep
from broker.engine.queues.paging.admit import SCRATCH_RETRY_MS
from broker.engine.queues.paging.depage import READ_COST, RETRY_MS
from broker.engine.routing import alter
from store.record import EXPIRED_BYTES, RemovalReason
from store.segment import segment_name
from tests.broker.engine.engine_harness import Bench, Producing, fill
from tests.broker.engine.queues.paging.backlogs import PAGING, bodies, consumed, filled, paging, settled
from tests.broker.engine.queues.rules.queues import put
from tests.simulation.world import check_accounts, journal_directory, small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import Fault, SimFile, SimFiles, refusing

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def blocks(bench: Bench, producer: Producing) -> bool:
    """Whether a producer to `q` has to wait."""
    producer.blocked = bench.enter().producers.wait_for_room(bench.queue("q").address, producer)
    return producer.blocked


def is_blocked(producer: Producing) -> bool:
    return producer.blocked


@pytest.mark.parametrize("durable", [True, False])
def test_paged_messages_expire_when_their_time_comes(durable: bool) -> None:
    bench = paging(**{"max-read-page-messages": 24})
    now = bench.broker.now
    for n in range(10):
        bench.sent("q", b"%d" % n, expiration=now + 100 * (n % 3 + 1), durable=durable)
    bench.broker.advance(200)
    assert bench.bodies("q") == bodies(2, 5, 8)
    assert sorted(bench.bodies("ExpiryQueue")) == bodies(0, 1, 3, 4, 6, 7, 9)
    bench.broker.advance(100)
    assert bench.queue("q").left[RemovalReason.EXPIRED] == 10
    assert len(bench.engine._state.schedule.paged_expiries) == 0
    bench.purge("ExpiryQueue")
    settled(bench)


def test_on_a_full_disk_paged_messages_that_find_no_room_for_their_copies_stay_on_disk() -> None:
    files = SimFiles(capacity=160 << 10)
    bench = Bench(
        running=SimBroker(
            small(PAGING | {"expiry-address": "E", "max-read-page-messages": 24}, retained=False), files=files
        )
    )
    bench.sent("keep", b"1")
    due = bench.broker.now + 5_000
    waiting = [b"first", b"large" * 5_000, b"small"]  # in one chunk
    for body in [b"in", b"memory"]:
        bench.sent("q", body)
    for body in waiting:
        bench.sent("q", body, expiration=due)
    fill(bench, "keep")
    bench.broker.advance(6_000)
    assert bench.bodies("E") == waiting[:1]
    assert bench.queue("q").paged == len(waiting) - 1
    large = bench.messages("q")[-2]
    assert {told["message"] for told in bench.broker.reported("move.disk_full")} == {large.id}
    files.capacity = None
    bench.broker.advance(60_000)
    assert bench.bodies("E") == waiting


def test_paged_messages_expire_as_far_as_the_budget_goes() -> None:
    bench = paging(**{"max-read-page-messages": 24})
    filled(bench, 10, expiration=bench.broker.now + 100)
    bench.broker.now += 100
    state = bench.enter()._state
    state.steps.left = 0
    assert expiry.expire_paged(state) is True, "there may be more"
    assert bench.queue("q").left[RemovalReason.EXPIRED] == 0
    chunks = list((bench.queue("q").tail or pytest.fail("it has a tail")).chunks())
    paged = bench.queue("q").paged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "_expire_rows", lambda *_: True)  # what the expiry itself costs is not asked here,
        patch.setattr(expiry, "_most", lambda *_: 64)  # ... and so they may be read together
        state.steps.left = READ_COST * paged + len(chunks)
        assert expiry.expire_paged(state) is True
        assert state.steps.left == 0, "each costs a reading"
    state.steps.refill()
    assert expiry.expire_paged(state) is False, "it has seen all"


def test_paged_messages_that_cannot_be_read_expire_when_they_can() -> None:
    bench = paging(**{"max-read-page-messages": 24})
    filled(bench, 10, expiration=bench.broker.now + 100)
    left = bench.queue("q").paged
    with refusing(bench.broker.files, errno.EIO):
        bench.broker.advance(100)
        told = bench.broker.reported("paging.failed")
        assert {(each["queue"], bool(each["error"])) for each in told} == {("q", True)}
        assert bench.queue("q").paged == left
    bench.broker.advance(RETRY_MS - 1)
    assert bench.queue("q").paged == left, "not at once again"
    bench.broker.advance(1)
    assert bench.queue("q").message_count == 0
    assert len(bench.bodies("ExpiryQueue")) == 10


def test_paged_messages_that_no_expiry_queue_takes_stay_and_are_tried_again() -> None:
    bench = paging(**{"max-read-page-messages": 24, "expiry-address": "E"})
    home = bench.enter().configuration.declare("E", {ANYCAST})
    bench.engine.configuration.declare_queue(home, "E", ANYCAST, durable=True, selector="FALSE")
    bench.run()
    filled(bench, 10, expiration=bench.broker.now + 100)
    bench.broker.advance(100)
    assert bench.queue("q").message_count == 10
    assert bench.take("q").take() == [], "what has expired is not delivered"
    bench.enter().configuration.declare_queue(home, "kept", ANYCAST, durable=True, selector="")
    bench.broker.advance(MOVE_RETRY_MS)
    assert bench.queue("q").message_count == 0
    assert len(bench.bodies("kept")) == 10


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("size", [1, 5_000])
def test_room_for_a_paged_message_that_expires_is_about_what_is_written(size: int, kept: bool) -> None:
    bench = paging(**{"expiry-address": "E" if kept else "", "max-read-page-messages": 24})
    filled(bench, 4)
    bench.sent("q", b"x" * size, expiration=bench.broker.now + 100)
    queue = bench.queue("q")
    chunk = next((queue.tail or pytest.fail("it has a tail")).chunks())
    row = len(chunk.ids) - 1
    needed = expiry._bytes_needed_on_disk(queue, chunk, row)
    bench.sent("E", b"first")  # what makes the queue is no part of it
    written = 0
    with pytest.MonkeyPatch.context() as patch:

        def write(file: SimFile, data: bytes, offset: int) -> int:
            nonlocal written
            written += len(data)
            return writing(file, data, offset)

        writing = SimFile.write_at
        patch.setattr(SimFile, "write_at", write)
        bench.broker.advance(100)
    assert queue.left[RemovalReason.EXPIRED] == 1
    assert EXPIRED_BYTES < needed < written + 200
    assert written - needed < 700, "what a copy says of its death, whatever its size"


def test_volatile_messages_that_expire_need_no_room() -> None:
    bench = paging()
    filled(bench, 6, durable=False)
    queue = bench.queue("q")
    chunk = next((queue.tail or pytest.fail("it has a tail")).chunks())
    assert expiry._bytes_needed_on_disk(queue, chunk, 0) == 0


def test_expirations_outlive_a_restart(bench: Bench) -> None:
    for n in range(6):
        bench.sent("q", b"%d" % n, expiration=bench.broker.now + 100 * (n + 1))
    bench = bench.restart()
    bench.broker.advance(300)
    assert bench.bodies("q") == bodies(3, 4, 5)


@pytest.mark.parametrize("durable", [True, False])
def test_purging_takes_what_is_paged_too_and_reads_nothing(bench: Bench, durable: bool) -> None:
    filled(bench, 10, durable=durable, expiration=bench.broker.now + 1000)
    reads = sum("read_range" in step for step in bench.broker.files.history)
    assert bench.purge("q") == 10
    assert sum("read_range" in step for step in bench.broker.files.history) == reads
    if durable:
        assert bench.left("q") == {"purged": 10}
    settled(bench)


def test_deleting_a_queue_takes_its_tail(bench: Bench) -> None:
    filled(bench, 6)
    state = bench.engine._state
    bench.enter().delete_queue(bench.queue("q"))
    bench.run()
    assert (state.paged, state.usage.messages) == ({}, 0)
    assert "q" not in bench.restart().engine.queues
    check_accounts(bench.broker)


def test_an_operator_moves_paged_messages_step_by_step() -> None:
    bench = Bench(PAGING, {"match": "other"}, engine_limits={"move_step_max": 3})
    for n in range(10):
        bench.sent("q", b"%d" % n, priority=9 * (n % 2))
    selection, moved, steps = MessageRange(filter=compile_filter("AMQPriority = 9")), 0, 0
    while True:
        step = bench.enter().messages.move(bench.queue("q"), "other", selection)
        bench.run()
        moved, steps = moved + step.moved, steps + 1
        assert not step.refused
        if step.complete:
            break
        selection = MessageRange(filter=selection.filter, after=step.last, below=step.below)
    assert (moved, steps) == (5, 4)
    assert bench.bodies("q") == bodies(0, 2, 4, 6, 8)
    assert sorted(bench.bodies("other")) == bodies(1, 3, 5, 7, 9)
    bench.check()
    check_accounts(bench.restart().broker)


def test_an_operator_removes_chosen_ones(bench: Bench) -> None:
    for n in range(8):
        bench.sent("q", b"%d" % n, priority=9 * (n % 2))
    step = bench.enter().messages.discard(bench.queue("q"), MessageRange(filter=compile_filter("AMQPriority = 9")))
    bench.run()
    assert (step.moved, step.complete) == (4, True)
    assert bench.bodies("q") == bodies(0, 2, 4, 6)
    bench.check()


def test_one_message_is_found_by_its_id() -> None:
    bench = paging({"match": "other"})
    filled(bench, 6)
    taker = bench.take("q", window=1)
    ids = [message.id for message in bench.messages("q")]
    queue = bench.queue("q")
    paged = next(message for message in upkeep.waiting(bench.engine._state, queue) if message.body == b"4")
    step = bench.enter().messages.move(queue, "other", MessageRange(ids=(paged.id,)))
    assert step.moved == 1
    for id, why in ((paged.id, "gone"), (taker.taken[0].id, "delivering")):
        assert bench.engine.messages.move(queue, "other", MessageRange(ids=(id,))).refused == {why: 1}
    bench.run()
    assert paged.id in ids
    assert bench.bodies("other") == [b"4"]
    assert sorted(bench.bodies("q")) == bodies(0, 1, 2, 3, 5)


@pytest.mark.parametrize("durable_queue", [True, False])
def test_cleaning_carries_paged_messages_forward(durable_queue: bool) -> None:
    bench = paging({"match": "noise"}, {"match": "a"})
    engine = bench.enter()
    address = engine.configuration.declare("q", {MULTICAST})
    engine.configuration.declare_queue(address, "kept", MULTICAST, durable=True, selector="")
    engine.configuration.declare_queue(address, "q", MULTICAST, durable=durable_queue, selector="")
    bench.run()
    for n in range(12):
        bench.sent("q", b"%d" % n, routing_type=MULTICAST, expiration=bench.broker.now + 3_600_000)
    drain = bench.take("q::kept", MULTICAST)
    bench.ack(drain, *drain.taken)
    segment = bench.engine.journal.segment
    noise = bench.take("noise")
    while not bench.broker.reported("journal.cleaned"):
        bench.sent("noise", b"x" * 2000)
        bench.ack(noise, *noise.taken)
        noise.taken.clear()
        bench.broker.advance(20)
    for _ in range(20):
        bench.broker.advance(20)
    assert bench.bodies("q") == bodies(*range(12))
    bench.sent("noise", b"last")
    assert segment not in bench.engine.journal.space.segments
    check_accounts(bench.broker)
    if durable_queue:
        bench = bench.restart()
        assert bench.queue("q").paged == 12
        assert bench.bodies("q") == bodies(*range(12))
        check_accounts(bench.broker)
    assert consumed(bench, bench.take("q::q", MULTICAST)) == bodies(*range(12))


def test_messages_copied_by_cleaning_are_in_memory_until_they_are_on_disk(bench: Bench) -> None:
    filled(bench, 6)
    space, state = bench.engine.journal.space, bench.engine._state
    bench = bench.restart()
    state, space = bench.engine._state, bench.engine.journal.space
    first = space.segments[0]
    bench.enter()
    assert bench.engine.cleaner.whole(first) == 6
    chunks = list((bench.queue("q").tail or pytest.fail("it has a tail")).chunks())
    assert all(chunk.kept for chunk in chunks)
    bench.engine.ticks.end()
    assert bench.bodies("q") == bodies(*range(6)), "not yet durable"
    bench.run()
    assert not any(chunk.kept for chunk in chunks)
    assert space.live(first) == 0
    assert bench.bodies("q") == bodies(*range(6))
    assert state.usage.messages == 0
    assert bench.take("q").take() == bodies(*range(6))
    assert bench.restart().bodies("q") == bodies(*range(6))


def test_bytes_that_are_not_the_message_stay_and_the_rest_flows() -> None:
    bench = paging(**{"max-read-page-messages": 24})
    filled(bench, 8)
    queue = bench.queue("q")
    chunk = next((queue.tail or pytest.fail("it has a tail")).chunks())
    path = f"{journal_directory(bench.broker.config)}/{segment_name(chunk.segments[0])}"
    for row in (0, 2):
        bench.broker.files.flip(path, chunk.offsets[row] + 8, 1)  # its id
    taker = bench.take("q")
    assert taker.take() == bodies(0, 1, 3, 5, 6, 7)
    assert bench.broker.reported("paging.unreadable") == [
        {"queue": "q", "messages": 2, "segment": chunk.segments[0], "first": chunk.ids[0]}
    ]
    assert (queue.paged, queue.message_count) == (2, 8)
    filled(bench, 2)
    assert taker.take() == bodies(0, 1)
    for row in (0, 2):
        bench.broker.files.flip(path, chunk.offsets[row] + 8, 1)
    bench = bench.restart()
    assert set(bodies(2, 4)) <= set(bench.bodies("q")), "the next run tries again"
    check_accounts(bench.broker)


def test_damaged_messages_are_purged_with_the_rest(bench: Bench) -> None:
    filled(bench, 4)
    with refusing(bench.broker.files, errno.ENOENT):
        assert bench.bodies("q") == bodies(0, 1)
    assert bench.broker.reported("paging.unreadable")
    assert bench.purge("q") == 4
    settled(bench)


def test_without_room_for_scratch_files_messages_stay_in_memory_and_senders_wait(bench: Bench) -> None:
    filled(bench, 3, durable=False)
    bench.broker.files.plan(1, Fault.ENOSPC, sticky=True)
    bench.sent("q", b"3", durable=False)
    queue, producer = bench.queue("q"), Producing()
    assert bench.broker.reported("paging.scratch_failed") == [{"address": "q"}]
    assert (queue.paged, bench.engine.usage.messages) == (2, 3)
    bench.enter()
    assert blocks(bench, producer)
    bench.run()
    bench.broker.files.heal()
    taker = bench.take("q")
    assert taker.take() == bodies(0, 1, 2, 3)
    bench.ack(taker, *list(taker.consumer.unacked.values()))
    assert not is_blocked(producer)
    settled(bench)


def test_senders_go_on_when_scratch_files_have_room_though_nobody_consumes(bench: Bench) -> None:
    filled(bench, 3, durable=False)
    bench.broker.files.plan(1, Fault.ENOSPC, sticky=True)
    bench.sent("q", b"3", durable=False)
    producer = Producing()
    bench.enter()
    assert blocks(bench, producer)
    bench.broker.advance(4 * SCRATCH_RETRY_MS)
    assert is_blocked(producer)
    bench.broker.files.heal()
    bench.broker.advance(SCRATCH_RETRY_MS)
    assert not is_blocked(producer)
    filled(bench, 2, durable=False)
    assert len(bench.broker.reported("paging.scratch_failed")) == 1
    taker = bench.take("q")
    assert taker.take() == bodies(0, 1, 2, 3, 0, 1)
    bench.ack(taker, *list(taker.consumer.unacked.values()))
    settled(bench)


def test_a_queue_that_must_know_its_messages_makes_its_senders_wait(bench: Bench) -> None:
    queue = bench.declare("q", last_value=True)
    for n in range(4):
        put(bench, "q", b"%d" % n, key=str(n))
    assert (queue.ready, queue.paged) == (4, 0)
    producer = Producing()
    assert blocks(bench, producer)
    assert bench.broker.reported("address.full.unpageable") == [{"address": "q", "queue": "q"}]
    taker = bench.take("q")
    bench.ack(taker, *taker.taken)
    assert not is_blocked(producer)
    bench.sent("q", b"below the limit")
    taker.take()
    for n in range(4):
        put(bench, "q", b"%d" % n, key=str(n))
    assert blocks(bench, Producing())
    assert len(bench.broker.reported("address.full.unpageable")) == 2, "the second time is told too"
    assert bench.restart().queue("q").ready == 5


def test_a_ring_has_its_own_bound(bench: Bench) -> None:
    queue = bench.declare("q", ring_size=3)
    filled(bench, 6)
    assert (queue.ready, queue.paged) == (3, 0)
    assert not bench.enter().producers.wait_for_room(queue.address, Producing())
    assert bench.restart().bodies("q") == bodies(3, 4, 5)


def test_a_queue_that_becomes_a_ring_has_all_in_memory(bench: Bench) -> None:
    filled(bench, 6)
    queue = bench.queue("q")
    bench.change("q", ring_size=4)
    assert (queue.ready, queue.paged) == (6, 0)
    bench.sent("q", b"6")
    assert bench.bodies("q") == bodies(1, 2, 3, 4, 5, 6)
    assert bench.restart().bodies("q") == bodies(3, 4, 5, 6)


def higher_on_disk(bench: Bench, **more: object) -> None:
    """Two messages in memory, one of a higher priority on disk, and a consumer that asked for nothing has left."""
    filled(bench, 2)
    bench.sent("q", b"high", priority=9, **more)
    bench.close(bench.take("q", counted=True), redelivery.CLOSED)


def test_a_purge_takes_all_while_more_is_about_to_be_paged(bench: Bench) -> None:
    higher_on_disk(bench)
    bench.broker.hold_disk()
    bench.sent("q", b"later", priority=9)
    purged = [bench.enter().messages.purge(bench.queue("q")) for _ in range(2)]
    bench.broker.release_disk()
    assert (purged, bench.bodies("q")) == ([3, 0], [b"later"])


def test_the_oldest_leave_when_nothing_goes_before_them_any_more(bench: Bench) -> None:
    higher_on_disk(bench, expiration=bench.broker.now + 10)
    bench.broker.advance(10)
    alter.limit(bench.enter()._state, bench.queue("q"), 1, drop_oldest=True)
    alter.pause(bench.engine._state, bench.queue("q"), paused=True)
    bench.run()
    assert bench.bodies("q") == [b"1"]


def test_messages_about_to_be_paged_stay_in_memory_when_the_queue_becomes_one_of_last_values(bench: Bench) -> None:
    put(bench, "q", b"1", b"2", key="k")
    bench.broker.hold_disk()
    put(bench, "q", b"3", key="k")
    queue = bench.queue("q")
    assert queue.tail is not None
    bench.change("q", last_value=True)
    bench.broker.release_disk()
    assert (queue.ready, queue.paged) == (1, 0)
    put(bench, "q", b"4", key="k")
    assert bench.bodies("q") == [b"4"]
    taker = bench.take("q")
    bench.ack(taker, *taker.taken)
    settled(bench)


@pytest.mark.parametrize("limit", [{"page-limit-messages": 2}, {"page-limit-bytes": 150}])
def test_page_limits_drop(limit: dict[str, object]) -> None:
    bench = paging(**limit, **{"page-full-policy": "DROP"})
    filled(bench, 6)
    address = bench.queue("q").address
    assert (bench.bodies("q"), address.dropped) == (bodies(0, 1, 2, 3), 2)
    assert bench.broker.reported("address.full.dropping")
    taker = bench.take("q")
    bench.ack(taker, *taker.taken)
    bench.sent("q", b"again")
    assert bench.bodies("q") == [b"again"]


def test_page_limits_hold_while_messages_wait_on_disk_though_memory_has_room() -> None:
    bench = paging(**{"page-limit-messages": 2, "page-full-policy": "FAIL", "max-read-page-messages": 1})
    filled(bench, 4)
    queue = bench.queue("q")
    assert (queue.ready, queue.paged) == (2, 2)
    bench.enter().messages.discard(queue, MessageRange(most=1))
    bench.run()
    assert (queue.ready, queue.paged) == (1, 2)
    with pytest.raises(AddressFull, match=r"2 messages of \d+ bytes wait on disk"):
        bench.sent("q", b"into the tail")
    assert queue.paged == 2


def test_page_limits_fail() -> None:
    bench = paging(**{"page-limit-messages": 2, "page-full-policy": "FAIL"})
    filled(bench, 4)
    with pytest.raises(AddressFull, match=r"2 messages of .* wait on disk"):
        bench.send("q", b"4")
    bench.run()
    tx = bench.begin()
    bench.send("q", b"4", tx=tx)
    with pytest.raises(AddressFull):
        bench.engine.transactions.commit(tx)
    bench.run()
    assert bench.bodies("q") == bodies(0, 1, 2, 3)


def test_page_limits_without_a_policy_are_none() -> None:
    bench = paging(**{"page-limit-messages": 2})
    filled(bench, 6)
    assert bench.queue("q").message_count == 6


def test_the_next_run_removes_scratch_files(bench: Bench) -> None:
    filled(bench, 4, durable=False)
    assert any(path.endswith(".scratch") for path in bench.broker.files.paths())
    bench.broker.files.sync_dir(f"{bench.broker.config.broker.data_directory}/journal")
    bench = bench.restart()
    assert not any(path.endswith(".scratch") for path in bench.broker.files.paths())


def test_the_global_limit_pages_too() -> None:
    bench = Bench({"match": "q", "address-full-policy": "PAGE"})
    bench.engine.usage.bytes_max = 500
    filled(bench, 5)
    assert bench.queue("q").paged == 3
    assert bench.take("q").take() == bodies(*range(5))


def test_a_browser_goes_on_while_messages_come_and_go(bench: Bench) -> None:
    filled(bench, 20)
    browsed = bench.engine.messages.browse(bench.queue("q"))
    seen = [next(browsed)[0].body for _ in range(3)]
    bench.sent("q", b"new")
    taker = bench.take("q", window=1)
    for _ in range(8):
        bench.ack(taker, taker.taken[-1])
    seen += [message.body for message, _ in browsed]
    assert seen == bodies(0, 1, 2, *range(8, 20)), "what is with a consumer too; what is gone, and what is new, not"
    browsed = bench.engine.messages.browse(bench.queue("q"))
    next(browsed)
    bench.enter().delete_queue(bench.queue("q"))
    bench.run()
    assert len(list(browsed)) <= 4, "what was in memory"


def test_deliveries_are_put_in_order_in_steps_for_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer may hold 100,000; meanwhile some come back, and are shown once."""
    monkeypatch.setattr(upkeep, "ORDERED_TOGETHER", 4)
    bench = Bench()
    bench.sent("q", *bodies(*range(10)))
    bench.sent("q", b"urgent", priority=9)
    taker = bench.take("q", window=-1)
    bench.sent("q", b"due", scheduled=bench.broker.now + 1_000)
    bench.close(bench.take("q", selector="none = 1"), redelivery.CLOSED)
    bench.enter()
    found = upkeep.places_in_steps(bench.engine._state, bench.queue("q"))
    assert [next(found) for _ in range(3)] == [None] * 3, "eleven are held"
    bench.close(taker, redelivery.CLOSED)
    shown = [(each[0].body, each[1]) for each in found if each is not None]
    assert [body for body, _ in shown] == [b"urgent", *bodies(*range(10)), b"due"]
    assert [place for _, place in shown] == ["delivering"] * 11 + ["scheduled"]


def test_a_page_shows_deliveries_by_their_ids(bench: Bench) -> None:
    sent = bench.sent("other", *bodies(*range(9)))
    bench.take("other", window=-1)
    messages, queue = bench.engine.messages, bench.queue("other")
    assert messages.page(queue, 0, 3) == [(message, "delivering") for message in sent[:3]]
    assert messages.page(queue, sent[2].id, 4) == [(message, "delivering") for message in sent[3:7]]


def test_removals_of_what_was_paged_stay_as_long_as_its_segment(bench: Bench) -> None:
    """Else a later run would find the message again."""
    filled(bench, 8)
    bench.sent("other", b"keeps the segment")
    bench = bench.restart()
    purged_in = bench.engine.journal.segment
    bench.purge("q")
    assert purged_in not in bench.engine.journal.space.take_dead(purged_in + 1)
    bench = bench.restart()
    space = bench.engine.journal.space
    assert space.live(1) == 1
    assert purged_in in space.segments


def test_delivery_counts_of_paged_messages_outlive_cleaning_and_end_with_a_purge(bench: Bench) -> None:
    filled(bench, 4)
    taker = bench.take("q", window=1)
    bench.nack(taker, taker.taken[-1])
    bench = bench.restart()
    first = bench.engine.journal.space.segments[0]
    bench.enter()
    assert bench.engine.cleaner.whole(first) == 4
    bench.run()
    bench = bench.restart()
    queue = bench.queue("q")
    assert queue.paged == 4
    assert [queue.delivery_count(m.id) for m, _ in bench.engine.messages.browse(queue)] == [1, 0, 0, 0]
    bench.enter().messages.purge(queue)
    bench.run()
    assert queue.states == {}
