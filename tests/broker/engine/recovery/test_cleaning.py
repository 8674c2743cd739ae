"""Cleaning: one message that stays does not keep the journal, and a copy is what it was copied from."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.engine.delivery.redelivery import CLOSED, INTERRUPTED, rejected
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from broker.engine.queues.paging import upkeep
from broker.engine.recovery import cleaning
from store import decode
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, journal_records
from tests.support.bodies import body_of

SEGMENT = 8 << 10
STEP_MS = Limits().cleaning_period
MULTICAST = RoutingType.MULTICAST


@pytest.fixture
def bench() -> Bench:
    """An engine with segments that are full soon."""
    return Bench(segment_bytes=SEGMENT)


class Churn:
    """Messages that come and go, each a step after the next one came: so every segment speaks about the one before."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._taker = bench.take("churn")

    def step(self) -> None:
        """Some come, those before them go, time passes."""
        before = list(self._taker.taken)
        self._taker.taken.clear()
        self.bench.sent("churn", *[b"x" * 200] * 8)
        self.bench.ack(self._taker, *before)
        self.bench.broker.advance(STEP_MS)

    def run(self, segments: int) -> None:
        """Until so many segments more were begun, and nothing is left."""
        journal = self.bench.engine.journal
        end = journal.segment + segments
        while journal.segment < end:
            self.step()
        self.bench.ack(self._taker, *self._taker.taken)
        self._taker.taken.clear()


def churn(bench: Bench, segments: int) -> None:
    """Let messages come and go until so many segments more were begun."""
    Churn(bench).run(segments)


def segments(bench: Bench) -> int:
    return len(bench.engine.journal.space.segments)


def test_more_queues_than_a_segment_can_define(bench: Bench) -> None:
    """Their definitions stay where they are, until cleaning is worth it, and do not fill each new segment."""
    for number in range(120):
        bench.take(f"queue.{number}")
    journal = bench.engine.journal
    first, position = journal.segment, journal.position
    churn(bench, 30)
    assert journal.position - position < 4 * 120 + 30 * 60, "some times 120 definitions, and what came and went"
    assert segments(bench) < 10
    for segment in journal.space.segments[:-1]:
        bench.enter().cleaner.whole(segment)
        bench.run()
    assert min(journal.space.segments) > first
    again = bench.restart()
    assert sum(name.startswith("queue.") for name in again.engine.queues) == 120


def test_one_message_that_stays_does_not_keep_the_journal(bench: Bench) -> None:
    (stays,) = bench.sent("a", b"stays")
    churn(bench, 40)
    assert segments(bench) <= 5
    assert bench.engine.cleaner.messages >= 5
    assert stays.segment > 30
    check_accounts(bench.broker)
    again = bench.restart()
    taker = again.take("a")
    again.run()
    assert [(message.id, message.body, message.head) for message in taker.taken] == [(stays.id, b"stays", stays.head)]


def test_without_cleaning_it_would() -> None:
    """Each segment says that the last messages of the one before it have gone."""
    bench = Bench(segment_bytes=SEGMENT, engine_limits={"compact_min_files": 1_000})
    bench.sent("a", b"stays")
    churn(bench, 20)
    assert segments(bench) >= 15


def test_a_journal_that_is_mostly_alive_is_left_alone(bench: Bench) -> None:
    journal = bench.engine.journal
    while journal.segment < 20:
        bench.sent("a", *[b"x" * 200] * 8)
        bench.broker.advance(STEP_MS)
    assert bench.engine.cleaner.messages == 0
    assert segments(bench) == 20 - 1 + 1


def test_counts_times_and_places_are_copied() -> None:
    bench = Bench({"match": "b", "redelivery-delay": 3_600_000}, segment_bytes=SEGMENT)
    now = bench.broker.now
    for queue in ("a", "b"):
        bench.sent(queue, queue.encode() + b" failed")
        taker = bench.take(queue)
        bench.run()
        bench.nack(taker, *taker.taken)
        bench.close(taker, rejected("no"))
        bench.run()
    bench.sent("b", b"left")
    bench.close(bench.take("b"), INTERRUPTED)
    bench.sent("a", b"later", scheduled=now + 7_200_000)
    bench.sent("a", b"expires", expiration=now + 7_200_000)
    before = known(bench)
    churn(bench, 12)
    assert bench.engine.cleaner.messages >= 5
    assert known(bench) == before
    again = bench.restart()
    assert known(again) == before
    check_accounts(again.broker)


def known(bench: Bench) -> dict[bytes, tuple[int, int, bool, str, int, int]]:
    """Of each message: id, failed deliveries, whether it had left, where it is, when it is due and when it expires."""
    found = {}
    for name in ("a", "b"):
        queue = bench.queue(name)
        for message, place in upkeep.places(bench.engine._state, queue):
            due = queue.scheduled.get(message.id, (0, message))[0]
            count = queue.delivery_count(message.id)
            left = message.id in queue.states
            found[body_of(message)] = (message.id, count, left, place, due, message.header.expiration)
    return found


def test_strict_deliveries_under_way_count_after_a_crash() -> None:
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"}, segment_bytes=SEGMENT)
    (message,) = bench.sent("a", b"1")
    bench.take("a")
    bench.run()
    churn(bench, 12)
    assert message.segment > 5
    again = bench.restart()
    assert again.queue("a").delivery_count(message.id) == 1


def test_messages_that_leave_a_queue_while_it_is_copied_do_not_return() -> None:
    """On two queues, consumed from one of them between the look and the copy."""
    bench = Bench(segment_bytes=SEGMENT, engine_limits={"cleaning_period": 10 * STEP_MS})
    takers = [bench.take("t", MULTICAST, durable_name=name) for name in ("one", "two")]
    (both,) = bench.sent("t", b"both", routing_type=MULTICAST)
    busy, cleaner = Churn(bench), bench.engine.cleaner
    while cleaner._round is None or cleaner._round.order is None:  # until a round has looked, and copied nothing yet
        busy.step()
    assert both.segment == cleaner._round.segment
    bench.ack(takers[0], both)
    busy.run(12)
    assert both.segment > 8
    check_accounts(bench.broker)
    again = bench.restart()
    assert [again.bodies(name) for name in ("one", "two")] == [[], [b"both"]]


def test_messages_that_leave_a_queue_between_two_slices_of_it_do_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SLICE_MESSAGES", 2)
    monkeypatch.setattr(cleaning, "COPIED_MESSAGES", 2)
    bench = Bench(segment_bytes=SEGMENT, engine_limits={"cleaning_period": STEP_MS})
    taker = bench.take("a", window=-1)
    bodies = [b"%d" % n for n in range(9)]
    messages = bench.sent("a", *bodies)
    busy, cleaner, looked = Churn(bench), bench.engine.cleaner, list[int]()
    while cleaner._round is None or cleaner._round.order is None:
        if cleaner._round is not None:
            looked.append(len(cleaner._round.found))
            if looked[-1] == 4:
                bench.ack(taker, messages[1], messages[6])  # seen, and not seen yet
        busy.step()
    assert 4 in looked
    assert max(b - a for a, b in pairwise(looked)) <= 2
    busy.run(12)
    assert all(message.segment > 8 for n, message in enumerate(messages) if n not in {1, 6})
    check_accounts(bench.broker)
    assert bench.restart().bodies("a") == [body for n, body in enumerate(bodies) if n not in {1, 6}]


def test_order_is_that_of_arrival_after_a_restart(bench: Bench) -> None:
    """Copies lie behind younger messages in the journal."""
    bench.sent("a", b"1", b"2")
    churn(bench, 3)
    bench.sent("a", b"3")
    churn(bench, 12)
    copies = [record for record in journal_records(bench.broker) if isinstance(record, decode.Copied)]
    assert copies
    assert bench.restart().bodies("a") == [b"1", b"2", b"3"]


@given(seed=st.integers(0, 1 << 32), crash=st.booleans())
@settings(max_examples=10)
@pytest.mark.parametrize("slices", [1_000, 3])
def test_random_survivors(slices: int, seed: int, crash: bool) -> None:
    """Some messages of every segment stay; a restart finds exactly them, in their order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "SLICE_MESSAGES", slices)
        patch.setattr(cleaning, "COPIED_MESSAGES", slices)
        random_survivors(seed, crash)


def random_survivors(seed: int, crash: bool) -> None:
    bench = Bench(segment_bytes=SEGMENT)
    chance = Random(seed)
    expected: list[bytes] = []
    for number in range(150):
        body = b"%d " % number + b"x" * chance.randrange(500)
        bench.sent("a" if chance.random() < 0.1 else "churn", body)
        churning = bench.engine.queues.get("churn")
        if churning is not None and churning.ready:
            bench.enter().messages.purge(churning)
            bench.run()
        else:
            expected.append(body)
        bench.broker.advance(STEP_MS)
    assert bench.engine.cleaner.rounds
    check_accounts(bench.broker)
    again = bench.restart(crash=crash)
    assert again.bodies("a") == expected
    check_accounts(again.broker)


def test_a_delivery_count_lives_as_long_as_its_message(bench: Bench) -> None:
    """In a segment of which nothing else is needed."""
    passing, journal = bench.take("passing"), bench.engine.journal

    def next_segment() -> None:
        segment = journal.segment
        while journal.segment == segment:
            bench.ack(passing, *bench.sent("passing", b"x" * 200))

    (message,) = bench.sent("kept", b"1")
    next_segment()
    next_segment()
    taker = bench.take("kept")
    bench.nack(taker, message)
    bench.close(taker, CLOSED)
    counted = journal.segment
    for _ in range(6):
        next_segment()
    assert counted in journal.space.segments
    again = bench.restart()
    (restored,) = again.messages("kept")
    assert again.queue("kept").delivery_count(restored.id) == 1
