"""What becomes of a delivery that comes back, by the table of ActiveMQ Artemis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import DeliveryOutcome
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues.consumer import EXCLUDED_SWEEP_MIN, AckMode, LinkTarget
from broker.engine.queues.paging.depage import RETRY_MS
from broker.engine.queues.room import FULL_ANNOTATIONS_BYTES
from store import decode
from store.record import DeadLetterReason, RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker, notes
from tests.simulation.world import check_accounts, check_counters, journal_records, reasons
from tests.support.bodies import body_of
from tests.support.calls import counted_calls

DELAY = {"match": "a", "redelivery-delay": 5000}


def counted(bench: Bench, name: str = "a") -> dict[bytes, int]:
    queue = bench.queue(name)
    return {body_of(message): queue.delivery_count(message.id) for message in bench.messages(name)}


def test_a_message_that_is_not_in_the_journal_returns_without_a_record() -> None:
    """Not durable, on a durable queue, and refused, with a delay."""
    bench = Bench(DELAY)
    (message,) = bench.sent("a", b"1", durable=False)
    taker = bench.take("a")
    bench.nack(taker, message)
    assert (bench.places("a"), counted(bench)) == ({b"1": "scheduled"}, {b"1": 1})
    found = journal_records(bench.broker)
    assert [each for each in found if isinstance(each, decode.Counts | decode.Scheduled)] == []
    bench.broker.advance(5000)
    assert taker.take() == [b"1", b"1"]
    assert bench.restart().bodies("a") == []
    check_counters(bench.broker)


def redelivered(bench: Bench, name: str = "a") -> set[bytes]:
    """What says to its next consumer that it has been delivered before."""
    queue = bench.queue(name)
    return {body_of(message) for message in bench.messages(name) if message.id in queue.states}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("how", "failed", "again", "delayed"),
    [
        (redelivery.ROLLBACK, 3, True, True),
        (redelivery.rejected("no"), 3, True, True),
        (redelivery.RELEASED, 0, False, True),
        (redelivery.CLOSED, 0, False, False),
        (redelivery.INTERRUPTED, 0, True, False),
        (redelivery.DISCONNECTED, 1, True, True),
        (redelivery.SILENT, 1, True, True),
        (redelivery.LOST, 3, True, False),
    ],
)
def test_the_table(how: DeliveryOutcome, failed: int, again: bool, delayed: bool, strict: bool) -> None:
    bench = Bench({**DELAY, "delivery-count-persistence": "strict" if strict else "on-return"})
    bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a")
    assert taker.take() == [b"1", b"2", b"3"]
    bench.close(taker, how)
    expected = {b"%d" % n: int(n <= failed) for n in (1, 2, 3)}
    place = "scheduled" if delayed else "ready"
    flagged = set(expected) if again else set()
    assert (counted(bench), redelivered(bench)) == (expected, flagged)
    assert set(bench.places("a").values()) == {place}
    queue = bench.queue("a")
    assert [message.id in queue.acquired for message in bench.messages("a")] == [True] * 3, "somebody had them"
    bench = bench.restart()
    assert (counted(bench), redelivered(bench)) == (expected, flagged), "that is on disk before anything else happens"
    assert bench.broker.restored.redelivered == len(flagged)
    assert set(bench.places("a").values()) == {place}
    bench.broker.advance(4999)
    taker = bench.take("a")
    assert taker.take() == ([] if delayed else [b"1", b"2", b"3"])
    bench.broker.advance(1)
    assert taker.take() == ([b"1", b"2", b"3"] if delayed else [])


@pytest.mark.parametrize("strict", [False, True])
def test_a_message_that_has_left_once_stays_redelivered(strict: bool) -> None:
    """Also when the next consumer gives it back in good order, and without a record for each return."""
    bench = Bench({"match": "a", "delivery-count-persistence": "strict" if strict else "on-return"})
    bench.sent("a", b"1", b"2")
    bench.close(bench.take("a"), redelivery.INTERRUPTED)
    bench.close(bench.take("a"), redelivery.CLOSED)
    written = [each for each in journal_records(bench.broker) if isinstance(each, decode.Counts)]
    assert len(written) == (2 if strict else 1), "strict journals the second delivery, and takes it back"
    bench = bench.restart()
    assert (counted(bench), redelivered(bench)) == ({b"1": 0, b"2": 0}, {b"1", b"2"})


def test_one_poison_message_does_not_kill_those_sent_ahead_with_it() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 3})
    bench.sent("a", b"poison", b"1", b"2")
    for _ in range(3):
        bench.close(bench.take("a"), redelivery.DISCONNECTED)
    assert bench.bodies("DLQ") == [b"poison"]
    assert (counted(bench), redelivered(bench)) == ({b"1": 0, b"2": 0}, {b"1", b"2"})


def test_a_message_that_never_left_is_withdrawn(bench: Bench) -> None:
    messages = bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a")
    bench.enter().consumers.withdraw(taker.consumer, messages[1:])
    bench.close(taker, redelivery.LOST)
    assert (counted(bench), redelivered(bench)) == ({b"1": 1, b"2": 0, b"3": 0}, {b"1"})
    assert bench.take("a").take() == [b"1", b"2", b"3"]


def test_others_flow_while_one_waits_and_it_comes_back_at_the_head() -> None:
    bench = Bench(DELAY)
    bench.sent("a", b"1", b"2")
    taker = bench.take("a", window=0)
    bench.nack(taker, taker.taken[0])
    bench.ack(taker, taker.taken[1])
    bench.sent("a", b"3", b"4")
    bench.broker.advance(5000)
    bench.ack(taker, taker.taken[2])
    assert taker.take() == [b"1", b"2", b"3", b"1"]


def test_without_delay_they_come_back_in_their_old_order(bench: Bench) -> None:
    bench.sent("a", b"1", b"2", b"3", b"4")
    taker = bench.take("a")
    bench.nack(taker, taker.taken[2], taker.taken[0], taker.taken[1])
    assert taker.take() == [b"1", b"2", b"3", b"4", b"1", b"2", b"3"]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_as_many_attempts_as_the_settings_say(attempts: int) -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": attempts})
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    for made in range(1, attempts + 1):
        assert taker.take() == [b"1"]
        assert counted(bench) == {b"1": made - 1}
        bench.nack(taker, message)
    assert taker.take() == []
    assert bench.bodies("DLQ") == [b"1"]
    assert bench.queue("a").left[RemovalReason.DEAD_LETTERED] == 1


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_limit(attempts: int) -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": attempts})
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    for _ in range(50):
        bench.nack(taker, message)
    assert len(taker.take()) == 51
    assert counted(bench.restart()) == {b"1": 50}


def test_growing_delays_over_restarts() -> None:
    bench = Bench(
        {**DELAY, "redelivery-delay-multiplier": 2.0, "max-redelivery-delay": 15_000, "max-delivery-attempts": 5}
    )
    bench.sent("a", b"1")
    for wait in (5000, 10_000, 15_000, 15_000):
        taker = bench.take("a")
        assert taker.take() == [b"1"]
        bench.nack(taker, next(iter(taker.consumer.unacked.values())))
        bench.broker.advance(wait - 1)
        bench = bench.restart()
        assert bench.places("a") == {b"1": "scheduled"}
        bench.broker.advance(1)
        assert bench.places("a") == {b"1": "ready"}
    taker = bench.take("a")
    bench.nack(taker, taker.taken[0])
    assert bench.bodies("DLQ") == [b"1"]


def test_dead_goes_before_expired() -> None:
    """ActiveMQ Artemis: count >= max is asked first when a message returns."""
    bench = Bench({"match": "a", "max-delivery-attempts": 1})
    (message,) = bench.sent("a", b"1", expiration=bench.broker.now + 1000)
    taker = bench.take("a")
    bench.broker.advance(2000)
    bench.nack(taker, message)
    assert bench.bodies("DLQ") == [b"1"]
    assert bench.bodies("ExpiryQueue") == []


def test_expired_when_it_comes_back_with_attempts_left(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1", expiration=bench.broker.now + 1000)
    taker = bench.take("a")
    bench.broker.advance(2000)
    assert bench.places("a") == {b"1": "delivering"}, "it never expires while with a consumer"
    bench.nack(taker, message)
    assert bench.bodies("ExpiryQueue") == [b"1"]
    assert taker.take() == [b"1"]


def test_acknowledged_after_its_deadline(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1", expiration=bench.broker.now + 1000)
    taker = bench.take("a")
    bench.broker.advance(2000)
    bench.ack(taker, message)
    assert reasons(check_accounts(bench.broker)["a"]) == {RemovalReason.CONSUMED: 1}


def test_cumulative_refusal_refuses_all_before(bench: Bench) -> None:
    bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a", ack_mode=AckMode.CUMULATIVE)
    bench.nack(taker, taker.taken[1], requeue=False)
    assert bench.bodies("DLQ") == [b"1", b"2"]
    assert bench.places("a") == {b"3": "delivering"}


def test_strict_counts_what_left_and_takes_back_what_was_not_meant() -> None:
    """A clean close corrects the count in the journal; a crash does not."""
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"})
    bench.sent("a", b"1", b"2")
    taker = bench.take("a")
    bench.ack(taker, taker.taken[0])
    assert counted(bench.restart(crash=True)) == {b"2": 1}
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"})
    bench.sent("a", b"1", b"2")
    bench.close(bench.take("a"), redelivery.CLOSED)
    assert counted(bench.restart()) == {b"1": 0, b"2": 0}


def test_a_letter_that_must_stay_keeps_its_count_over_a_restart() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 2, "dead-letter-address": "nowhere"})
    bench.declare("nowhere", selector="1 = 2")
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    bench.nack(taker, message)
    bench.nack(taker, message)
    assert bench.places("a") == {b"1": "scheduled"}
    assert bench.broker.reported("move.no_queue")
    assert counted(bench.restart()) == {b"1": 2}


def test_a_rejection_after_the_queue_was_deleted_within_a_transaction() -> None:
    for requeue in (True, False):
        bench = Bench()
        (message,) = bench.sent("a", b"1")
        taker = bench.take("a")
        tx = bench.begin()
        bench.nack(taker, message, requeue=requeue, tx=tx)
        bench.enter().delete_queue(bench.queue("a"))
        bench.commit(tx)
        assert bench.engine.usage.messages == 0
        assert bench.bodies("DLQ") == [], "deleted with its queue: nothing is left to be rejected"
        assert bench.restart().engine.usage.messages == 0


def test_a_postponed_message_makes_room_for_the_next(bench: Bench) -> None:
    first, _ = bench.sent("a", b"1", b"2")
    taker = bench.take("a", window=0)
    bench.enter().consumers.postpone(taker.consumer, first, "cannot be read now")
    bench.run()
    assert taker.take() == [b"1", b"2"]


STRICT: dict[str, object] = {"match": "a", "delivery-count-persistence": "strict"}


@pytest.mark.parametrize("settings", [{"match": "a"}, STRICT])
def test_a_postponed_message_has_not_failed_and_waits(settings: dict[str, object]) -> None:
    bench = Bench(settings)
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    assert taker.take() == [b"1"]
    bench.enter().consumers.postpone(taker.consumer, message, "cannot be read now")
    bench.run()
    assert (bench.places("a"), counted(bench)) == ({b"1": "scheduled"}, {b"1": 0})
    assert bench.queue("a").delivering == 0
    bench.broker.advance(RETRY_MS - 1)
    assert taker.take() == []
    bench.broker.advance(1)
    assert taker.take() == [b"1"]
    check_counters(bench.broker)


@pytest.mark.parametrize("settings", [{"match": "a"}, STRICT])
def test_a_postponed_message_has_not_failed_on_the_disk_either(settings: dict[str, object]) -> None:
    """Strict mode had counted it when it was delivered."""
    bench = Bench(settings)
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    bench.enter().consumers.postpone(taker.consumer, message, "cannot be read now")
    bench.run()
    assert counted(bench.restart()) == {b"1": 0}


def test_a_postponed_message_goes_with_its_queue() -> None:
    bench = Bench()
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    engine = bench.enter()
    queue = bench.queue("a")
    settled = taker.consumer.settle([message.id])
    engine.delete_queue(queue)
    redelivery.postpone(engine._state, queue, settled, RETRY_MS)
    bench.run()
    assert queue.scheduled == {}
    assert bench.restart().engine.usage.messages == 0


@pytest.mark.parametrize("settings", [DELAY, {**DELAY, **STRICT}])
def test_a_message_that_was_never_sent_is_ready_at_once_and_not_counted(settings: dict[str, object]) -> None:
    bench = Bench(settings)
    messages = bench.sent("a", b"1", b"2")
    taker = bench.take("a")
    engine = bench.enter()
    settled = taker.consumer.settle([message.id for message in messages])
    engine.consumers.close(taker.consumer, redelivery.CLOSED)
    redelivery.withdraw(engine._state, bench.queue("a"), settled)
    bench.run()
    assert set(bench.places("a").values()) == {"ready"}
    assert (counted(bench), redelivered(bench)) == ({b"1": 0, b"2": 0}, set())
    assert counted(bench.restart()) == {b"1": 0, b"2": 0}


@pytest.mark.parametrize(("non_destructive", "count"), [(False, 1), (True, 0)])
def test_a_failure_counts_where_deliveries_take_messages_away(non_destructive: bool, count: int) -> None:
    bench = Bench({"match": "a", "default-non-destructive": non_destructive})
    messages = bench.sent("a", b"1")
    bench.take("a")
    redelivery.count_failure(bench.enter()._state, bench.queue("a"), messages)
    bench.run()
    assert counted(bench) == {b"1": count}
    assert counted(bench.restart()) == {b"1": count}


def test_a_message_that_failed_for_the_last_time_while_it_stayed_dies_when_it_comes_back() -> None:
    """However it comes back: this return is no failure."""
    bench = Bench({"match": "a", "max-delivery-attempts": 1})
    _, message = bench.sent("a", b"1", b"2")
    taker = bench.take("a")
    bench.enter().consumers.count_failure(taker.consumer, message)
    bench.close(taker, redelivery.INTERRUPTED)
    assert (bench.bodies("a"), bench.bodies("DLQ")) == ([b"1"], [b"2"])


@pytest.mark.parametrize("selector", ["", "AMQPriority = 4"])
def test_an_excluded_message_goes_to_others_only(bench: Bench, selector: str) -> None:
    first, second = bench.sent("a", b"1", b"2")
    taker = bench.take("a", selector=selector)
    engine = bench.enter()
    for message in (first, second):
        engine.consumers.give_back(taker.consumer, message.id, replace(redelivery.CLOSED, excluded=True))
    bench.run()
    bench.sent("a", b"3")
    assert taker.take() == [b"1", b"2", b"3"], "each came once"
    other = bench.take("a")
    assert other.take() == [b"1", b"2"]
    bench.close(other, redelivery.CLOSED)
    assert taker.take() == []
    bench.close(taker, redelivery.CLOSED)
    assert bench.take("a", selector=selector).take() == [b"1", b"2", b"3"], "who comes again has no such wish"


@pytest.mark.parametrize("name", ["a", "DLQ"])
def test_a_consumer_that_has_gone_excludes_nothing(name: str) -> None:
    """Its transaction ends after it; on its own dead-letter address a refused message stays."""
    bench = Bench({"match": "DLQ", "dead-letter-address": "DLQ"})
    (message,) = bench.sent(name, b"1")
    taker, tx = bench.take(name), bench.begin()
    if name == "DLQ":
        bench.nack(taker, message, requeue=False, tx=tx)
    else:
        bench.engine.consumers.give_back(taker.consumer, message.id, replace(redelivery.CLOSED, excluded=True), tx)
    bench.close(taker, redelivery.CLOSED)
    bench.commit(tx)
    assert (taker.consumer.excluded, bench.bodies(name)) == (None, [b"1"])
    assert bench.queue(name).backlog._cursors is None, "nobody has a selection of its own"


@pytest.mark.parametrize("non_destructive", [False, True])
def test_exclusions_end_with_their_messages(non_destructive: bool) -> None:
    """A consumer that stays for years excludes no more than the queue has, give or take a few."""
    bench = Bench({"match": "a", "default-non-destructive": non_destructive})
    taker = bench.take("a")
    for number in range(50):
        messages = bench.sent("a", *[b"%d" % each for each in range(10)])
        engine = bench.enter()
        for message in messages:
            engine.consumers.give_back(taker.consumer, message.id, replace(redelivery.CLOSED, excluded=True))
        bench.run()
        if number < 48:
            bench.purge("a")
    assert taker.consumer.excluded is not None
    assert len(taker.consumer.excluded.ids) <= EXCLUDED_SWEEP_MIN
    taker.take()
    for _ in range(20):
        bench.sent("a", b"new")
    assert taker.take() == [b"new"] * 20
    assert len(taker.consumer.excluded.ids & set(bench.queue("a").acquired)) == 20


@pytest.mark.parametrize("committed", [True, False])
def test_a_link_says_why_a_message_is_a_dead_letter(committed: bool) -> None:
    bench = Bench({"match": "a", "dead-letter-address": "DLQ"})
    bench.sent("a", b"1", b"2")
    taker = bench.take("a", link=LinkTarget("paris", "orders", "P"), remote="amqp://paris:5672")
    hops, refused = taker.taken
    engine = bench.enter()
    tx = engine.transactions.begin(object()) if committed else None
    reject = partial(engine.consumers.reject, taker.consumer, tx=tx)
    reject(hops.id, reason=DeadLetterReason.LINK_HOPS, text="it has passed 4 brokers")
    reject(refused.id, text="orders: amqp:not-allowed")
    if tx is not None:
        engine.transactions.commit(tx)
    bench.run()
    found = [notes(message) for message in bench.messages("DLQ")]
    assert [each["_AMQ_DL_REASON"] for each in found] == ["link-hops", "rejected"]
    for each in found:
        where = [each[f"_AMQ_DL_{name}"] for name in ("LINK", "REMOTE_ADDRESS", "REMOTE_BROKER")]
        assert where == ["paris", "orders", "P"]
    assert [each["_AMQ_DL_TEXT"] for each in found] == [
        "cannot be sent to link paris at amqp://paris:5672: it has passed 4 brokers",
        "rejected by link paris at amqp://paris:5672: orders: amqp:not-allowed",
    ]


@pytest.mark.parametrize(("name", "expected"), [("a", [False, True]), ("DLQ", [False, False, False])])
def test_a_message_dies_next_whose_next_failure_is_its_last(name: str, expected: list[bool]) -> None:
    """On its own dead-letter address it never does."""
    bench = Bench({"match": name, "max-delivery-attempts": 2, "dead-letter-address": "DLQ"})
    (message,) = bench.sent(name, b"1")
    taker, found = bench.take(name), list[bool]()
    for _ in expected:
        found.append(bench.engine.consumers.dies_next(taker.consumer, message))
        bench.nack(taker, message)
    assert found == expected


def test_a_rejected_message_that_cannot_become_a_dead_letter_has_failed_once_more() -> None:
    """It waits for its delay, and the count survives a restart."""
    bench = Bench({"match": "DLQ", "dead-letter-address": "DLQ", "redelivery-delay": 5000})
    (message,) = bench.sent("DLQ", b"1")
    taker = bench.take("DLQ")
    bench.enter().consumers.reject(taker.consumer, message.id, text="no")
    bench.run()
    for again in (bench, bench.restart()):
        assert (again.places("DLQ"), counted(again, "DLQ")) == ({b"1": "scheduled"}, {b"1": 1})


def test_the_end_of_a_consumer_of_many_takes_no_call_for_each() -> None:
    """Hundreds of thousands may return in one tick."""
    bench = Bench()
    bench.sent("a", *[b"%d" % n for n in range(500)])
    first = bench.take("a", window=-1)
    assert len(first.take()) == 500
    engine = bench.enter()
    with counted_calls() as calls:
        engine.consumers.close(first.consumer, redelivery.DISCONNECTED)
    assert calls.total() < 250, calls.most_common(3)
    bench.run()
    assert Counter(counted(bench).values()) == {0: 499, 1: 1}


def test_a_scheduled_message_that_becomes_ready_expires_there() -> None:
    """Nobody consumes it: what has no consumer is looked for."""
    bench = Bench()
    now = bench.broker.now
    bench.sent("a", b"1", scheduled=now + 1_000, expiration=now + 5_000)
    bench.broker.advance(1_000)
    assert bench.places("a") == {b"1": "ready"}
    bench.broker.advance(60_000)
    assert bench.bodies("ExpiryQueue") == [b"1"]


def modified(bench: Bench, taker: Taker, message: Message, text: str) -> None:
    """A consumer gives a message back with an annotation, and does not get it again."""
    how = replace(redelivery.RELEASED, delayed=False, excluded=True, notes={"x-text": text})
    bench.enter().consumers.give_back(taker.consumer, message.id, how)
    bench.run()


@pytest.mark.parametrize("durable", [False, True])
def test_annotations_that_a_consumer_adds_are_charged_until_the_message_leaves(durable: bool) -> None:
    bench = Bench()
    messages = bench.sent("a", b"1", b"2", durable=durable)
    before = bench.engine.usage.bytes
    for size in (10_000, 20_000):  # the second replaces the first
        taker = bench.take("a")
        for message in messages:
            modified(bench, taker, message, "x" * size)
        added = bench.engine.usage.bytes - before
        assert 2 * size <= added <= 2 * (size + 1000)
        assert bench.engine.addresses["a"].size_bytes == bench.engine.usage.bytes == sum(m.size for m in messages)
        bench.close(taker, redelivery.CLOSED)
    taker = bench.take("a")
    bench.ack(taker, *messages)
    assert bench.engine.addresses["a"].size_bytes == bench.engine.usage.bytes == 0


def test_annotations_on_disk_count_the_same_when_they_are_read_back() -> None:
    bench = Bench({"match": "a", "redelivery-delay": 5000, "max-size-bytes": 40_000, "max-read-page-bytes": 40_000})
    messages = bench.sent("a", *[b"%d" % n for n in range(10)], durable=False)
    taker = bench.take("a")
    how = replace(redelivery.RELEASED, notes={"x-text": "x" * 9_000})
    for message in messages:
        bench.enter().consumers.give_back(taker.consumer, message.id, how)
    bench.run()
    assert bench.engine.addresses["a"].size_bytes < 40_000
    taker.taken.clear()
    bench.broker.advance(5000)
    assert bench.engine.usage.bytes == sum(message.size for message in taker.taken)
    bench.ack(taker, *taker.taken)
    assert bench.engine.addresses["a"].size_bytes == bench.engine.usage.bytes == 0


def test_annotations_do_not_fill_memory_beyond_its_limit() -> None:
    bench = Bench({"match": "a", "max-size-bytes": 50_000}, {"match": "DLQ"})
    messages = bench.sent("a", *[b"%d" % n for n in range(20)])
    taker = bench.take("a")
    for message in messages:
        modified(bench, taker, message, "x" * 9_000)
    noted = [message for message in messages if message.header.annotations]
    assert 0 < len(noted) < 6
    assert bench.engine.addresses["a"].size_bytes <= 50_000


def test_annotations_of_a_few_bytes_are_added_although_memory_is_full() -> None:
    bench = Bench({"match": "a", "max-size-bytes": 6000})
    messages = bench.sent("a", *[b"%d" % n for n in range(20)])
    taker = bench.take("a")
    for text in ("x" * 100, "x" * (FULL_ANNOTATIONS_BYTES + 1)):
        for message in messages[:5]:
            modified(bench, taker, message, text)
        bench.close(taker, redelivery.CLOSED)
        taker = bench.take("a")
    assert [(message.header.annotations or {}).get("x-text") for message in messages[:5]] == ["x" * 100] * 5


def test_a_message_that_dies_takes_its_annotations_along_although_memory_is_full() -> None:
    bench = Bench({"match": "a", "max-size-bytes": 1000, "dead-letter-address": "DLQ", "max-delivery-attempts": 1})
    messages = bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a")
    text = "x" * (FULL_ANNOTATIONS_BYTES + 1)
    how = replace(redelivery.rejected("no"), notes={"x-text": text})
    for message in messages:
        bench.enter().consumers.give_back(taker.consumer, message.id, how)
    bench.run()
    assert [(each.header.annotations or {}).get("x-text") for each in bench.messages("DLQ")] == [text] * 3
    bench.check()


def test_a_message_on_several_queues_gets_no_annotations_from_a_consumer_of_one() -> None:
    """The others' consumers would see them."""
    bench = Bench()
    for name in ("one", "two"):
        bench.declare(name, "a", routing_type=RoutingType.MULTICAST)
    (message,) = bench.sent("a", b"1", routing_type=RoutingType.MULTICAST)
    modified(bench, bench.take("a::one", RoutingType.MULTICAST), message, "mine")
    assert [bench.only(name).header.annotations for name in ("one", "two")] == [None, None]


def test_deliveries_that_await_the_journal_have_not_left_when_their_consumer_is_lost() -> None:
    bench = Bench(STRICT, lazy_disk=True)
    bench.sent("a", b"1", b"2")
    bench.broker.catch_up()
    taker = bench.take("a")
    assert (taker.take(), bench.places("a")) == ([], {b"1": "delivering", b"2": "delivering"})
    bench.close(taker, redelivery.LOST)
    bench.broker.catch_up()
    assert (counted(bench), redelivered(bench)) == ({b"1": 0, b"2": 0}, set())
    assert counted(bench.restart()) == {b"1": 0, b"2": 0}


def test_a_durable_message_comes_back_to_a_queue_that_is_not_without_a_record() -> None:
    """After a restart nothing may speak of a queue that is gone."""
    bench = Bench(DELAY)
    for name, durable in (("kept", True), ("volatile", False)):
        bench.declare(name, "a", routing_type=RoutingType.MULTICAST, durable=durable)
    (message,) = bench.sent("a", b"1", routing_type=RoutingType.MULTICAST)
    bench.nack(bench.take("a::volatile", RoutingType.MULTICAST), message)
    assert (bench.places("volatile"), counted(bench, "volatile")) == ({b"1": "scheduled"}, {b"1": 1})
    found = journal_records(bench.broker)
    assert [each for each in found if isinstance(each, decode.Counts | decode.Scheduled)] == []
    assert bench.restart().places("kept") == {b"1": "ready"}


def test_a_return_records_only_the_messages_that_have_not_been_returned_before() -> None:
    bench = Bench()
    first = bench.sent("a", b"1")
    bench.close(bench.take("a"), redelivery.INTERRUPTED)
    second = bench.sent("a", b"2")
    bench.close(bench.take("a"), redelivery.INTERRUPTED)
    written = [each.ids for each in journal_records(bench.broker) if isinstance(each, decode.Counts)]
    assert written == [tuple(message.id for message in run) for run in (first, second)]


def test_a_message_that_a_queue_keeps_for_all_its_consumers_cannot_be_rejected() -> None:
    bench = Bench({"match": "a", "default-non-destructive": True})
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    bench.nack(taker, message, requeue=False)
    assert (bench.bodies("a"), bench.queue("a").delivering) == ([b"1"], 0)
    assert bench.bodies("DLQ") == []
    assert bench.take("a").take() == [b"1"]
    bench.check()
