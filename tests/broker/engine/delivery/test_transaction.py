"""Transactions: together, in one journal entry, or not at all."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.delivery.redelivery import rejected
from broker.engine.model.errors import AddressFull, DiskFull, NoQueue, TooLarge, TransactionClosed, TransactionsFull
from tests.broker.engine.engine_harness import Bench, entries_with, fill
from tests.simulation.world import check_accounts, check_counters, small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles


def test_commit_is_one_entry_whatever_it_holds() -> None:
    bench = Bench({"match": "new", "dead-letter-address": "made"}, segment_bytes=1 << 20)
    messages = bench.sent("new", b"1", b"2", b"3")
    taker = bench.take("new")
    engine = bench.enter()
    tx = engine.transactions.begin(object())
    engine.consumers.acknowledge(taker.consumer, messages[0].id, tx)
    engine.consumers.reject(taker.consumer, messages[1].id, tx=tx)
    engine.consumers.give_back(taker.consumer, messages[2].id, rejected(""), tx)
    bench.send("b", b"x" * 50_000, tx=tx)
    bench.send("c", b"y" * 50_000, tx=tx)
    bench.run()
    assert bench.engine.queue("new").message_count == 3
    bench.commit(tx)
    (entry,) = entries_with(bench, "DEAD_LETTERED")
    assert entry.count("MESSAGE") == 3
    assert entry.count("REMOVED") == 2
    assert "COUNTS" in entry
    again = bench.restart()
    assert (again.bodies("new"), again.bodies("made")) == ([b"3"], [b"2"])
    assert (len(again.bodies("b")), len(again.bodies("c"))) == (1, 1)
    check_accounts(again.broker)


def test_a_death_without_a_dead_letter_address_ends_no_entry_of_its_commit() -> None:
    """The commit is already larger than what ends an entry elsewhere."""
    bench = Bench({"match": "a", "dead-letter-address": ""}, segment_bytes=4 << 20)
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    tx = bench.begin()
    bench.send("b", *[b"x" * 50_000] * 30, tx=tx)
    bench.nack(taker, message, requeue=False, tx=tx)
    assert sum(sent.size for sent in tx.messages) > bench.engine.journal.limits.entry_bytes
    bench.commit(tx)
    (entry,) = entries_with(bench, "DEAD_LETTERED")
    assert entry.count("MESSAGE") == 30
    check_accounts(bench.broker)


def test_acknowledgements_take_no_room_of_their_own(bench: Bench) -> None:
    messages = bench.sent("a", b"1", b"2", b"3", b"4")
    taker = bench.take("a")
    tx = bench.begin()
    for message in messages:
        bench.engine.consumers.acknowledge(taker.consumer, message.id, tx, kept=message is messages[3])
    assert [settlement.messages for settlement in tx.settlements] == [messages[:3], messages[3:]]
    bench.roll_back(tx)
    assert list(taker.consumer.unacked) == [messages[3].id, *[message.id for message in messages[:3]]]


def test_nothing_is_visible_before(bench: Bench) -> None:
    taker = bench.take("b")
    tx = bench.begin()
    bench.sent("b", b"1", tx=tx)
    assert taker.take() == []
    assert bench.restart().bodies("b") == []


def test_rollback_counts_and_gives_back_in_order(bench: Bench) -> None:
    messages = bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a")
    tx = bench.begin()
    bench.ack(taker, messages[2], messages[0], tx=tx)
    bench.sent("b", b"x", tx=tx)
    bench.roll_back(tx)
    assert taker.take() == [b"1", b"2", b"3", b"1", b"3"]
    bench.enter().transactions.rollback(tx)
    with pytest.raises(TransactionClosed):
        bench.engine.transactions.commit(tx)
    with pytest.raises(TransactionClosed):
        bench.send("b", b"y", tx=tx)
    with pytest.raises(TransactionClosed):
        bench.engine.consumers.acknowledge(taker.consumer, messages[0].id, tx)
    assert messages[0].id in taker.consumer.unacked
    check_counters(bench.broker)


def test_a_consumer_may_leave_before_the_end() -> None:
    for commit in (True, False):
        bench = Bench()
        messages = bench.sent("a", b"1", b"2")
        taker = bench.take("a")
        tx = bench.begin()
        bench.ack(taker, messages[0], tx=tx)
        bench.close(taker, redelivery.CLOSED)
        assert bench.places("a") == {b"2": "ready"}
        engine = bench.enter()
        if commit:
            engine.transactions.commit(tx)
        else:
            engine.transactions.rollback(tx)
        bench.run()
        assert bench.bodies("a") == ([b"2"] if commit else [b"1", b"2"])
        check_counters(bench.broker)
        check_accounts(bench.restart().broker)


def test_the_limit_in_bytes() -> None:
    limits = small().limits.model_copy(update={"transaction_bytes_max": 2000})
    bench = Bench(limits=limits)
    tx = bench.begin()
    (message,) = bench.send("a", bytes(1000), tx=tx)
    assert tx.bytes == message.size
    with pytest.raises(TooLarge, match="2000 bytes"):
        bench.send("a", bytes(1000), tx=tx)
    assert tx.bytes == message.size
    overhead = message.size - 1000
    bench.send("a", bytes(2000 - message.size - overhead), tx=tx)
    assert tx.bytes == 2000, "the limit itself is allowed"
    with pytest.raises(TooLarge):
        bench.send("a", b"", tx=tx)
    bench.commit(tx)
    assert len(bench.bodies("a")) == 2


def test_the_limit_of_what_it_acknowledges() -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 3000})
    bench = Bench(limits=limits)
    sent = bench.sent("a", *[bytes(1000)] * 10)
    each = sent[0].size
    taker = bench.take("a", window=2000)
    tx = bench.begin()
    for message in taker.taken[:2]:
        bench.ack(taker, message, tx=tx)
    assert tx.held.bytes == 2 * each
    with pytest.raises(TransactionsFull, match="3000 bytes"):
        bench.ack(taker, taker.taken[2], tx=tx)
    with pytest.raises(TransactionsFull):
        bench.nack(taker, taker.taken[2], tx=tx)
    assert tx.held.bytes == 2 * each
    assert taker.taken[2].id in taker.consumer.unacked, "it is the consumer's still"
    assert len(taker.taken) < 6, "the rest of the queue waits"
    bench.commit(tx)
    assert bench.queue("a").message_count == 8
    tx = bench.begin()
    bench.sent("b", bytes(5000))
    large = bench.take("b")
    bench.ack(large, *large.taken, tx=tx)
    bench.commit(tx)
    assert not bench.queue("b").message_count, "a single message is never too large"
    bench.check()


def test_acknowledgements_pull_no_more_from_disk_than_their_limit() -> None:
    limits = small().limits.model_copy(update={"open_transactions_bytes_max": 100_000})
    paging = {"match": "a", "address-full-policy": "PAGE", "max-size-bytes": 50_000, "max-read-page-bytes": 20_000}
    bench = Bench(paging, limits=limits, segment_bytes=1 << 20)
    for _ in range(100):
        bench.sent("a", *[bytes(1000)] * 10)
    taker, tx, most = bench.take("a", window=10_000), bench.begin(), 0
    acknowledged = 0
    while tx.held.bytes + taker.taken[0].size <= 100_000:
        bench.ack(taker, taker.taken.pop(0), tx=tx)
        most = max(most, bench.engine.usage.bytes)
        acknowledged += 1
    assert acknowledged > 50
    with pytest.raises(TransactionsFull):
        bench.ack(taker, taker.taken[0], tx=tx)
    assert most <= 100_000 + 50_000 + 20_000
    bench.roll_back(tx)
    assert bench.queue("a").message_count == 1000
    bench.check()


def test_a_refused_commit_can_be_rolled_back_as_if_nothing_had_been() -> None:
    bench = Bench({"match": "full", "max-size-messages": 1, "address-full-policy": "FAIL"})
    bench.sent("full", b"0")
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    tx = bench.begin()
    bench.ack(taker, message, tx=tx)
    bench.send("b", b"2", tx=tx)
    bench.send("full", b"3", tx=tx)
    with pytest.raises(AddressFull):
        bench.engine.transactions.commit(tx)
    bench.engine.transactions.rollback(tx)
    bench.run()
    assert (bench.bodies("full"), bench.bodies("b")) == ([b"0"], [])
    assert taker.take() == [b"1", b"1"]


def test_on_a_full_disk_it_is_refused_as_a_whole() -> None:
    """Each of its messages would have found room."""
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=96 << 10)))
    bench.declare("b")
    sent = len(fill(bench, "a"))
    taker = bench.take("a")
    bench.ack(taker, taker.taken[0])
    bench.broker.advance(10_000)
    tx = bench.begin()
    bench.ack(taker, taker.taken[1], tx=tx)
    for n in range(20):
        bench.send("b", b"%d" % n * 700, tx=tx)
    with pytest.raises(DiskFull):
        bench.engine.transactions.commit(tx)
    assert not tx.closed
    bench.engine.transactions.rollback(tx)
    bench.run()
    assert bench.bodies("b") == []
    assert len(bench.bodies("a")) == sent - 1
    tx = bench.begin()
    for n in range(20):
        bench.send("b", b"%d" % n * 700, durable=False, tx=tx)
    bench.commit(tx)
    assert len(bench.bodies("b")) == 20, "what is not durable needs no room"


def test_on_a_full_disk_what_is_only_consumed_is_never_refused() -> None:
    """Large messages, whose removals are small."""
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=96 << 10)))
    bench.sent("keeps every segment", b"")
    sent = len(fill(bench, "a"))
    taker = bench.take("a")
    tx = bench.begin()
    bench.ack(taker, *taker.taken, tx=tx)
    assert len(taker.taken) == sent
    bench.commit(tx)
    assert bench.broker.confirms
    assert bench.restart().queue("a").message_count == 0


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize(("count", "noted"), [(200, 0), (9, 30_000)])
def test_dead_letters_need_room_for_what_is_noted_of_their_death(requeue: bool, count: int, noted: int) -> None:
    rules = {"match": "a", "dead-letter-address": "DLQ", "max-delivery-attempts": 1}
    config = small(rules, segment_bytes=256 << 10, retained=False)
    bench = Bench(running=SimBroker(config, files=SimFiles(capacity=300 << 10)))
    messages = bench.sent("a", *[b"x"] * count)
    taker = bench.take("a")
    tx = bench.begin()
    for message in messages:
        message.annotate({"x-opt-note": "n" * noted})
        bench.nack(taker, message, requeue=requeue, tx=tx)
    with pytest.raises(DiskFull):
        bench.enter().transactions.commit(tx)
    bench.engine.transactions.rollback(tx)
    bench.run()
    assert bench.broker.failure is None
    assert bench.queue("a").message_count + bench.queue("DLQ").message_count == count
    check_accounts(bench.broker)


def test_a_queue_that_may_not_be_made_again_refuses_the_commit() -> None:
    bench = Bench({"match": "a", "auto-create-queues": False})
    bench.declare("a")
    engine = bench.enter()
    tx = engine.transactions.begin(object())
    bench.send("a", b"1", tx=tx)
    bench.send("b", b"2", tx=tx)
    engine.delete_queue(bench.queue("a"))
    with pytest.raises(NoQueue):
        engine.transactions.commit(tx)
    bench.run()
    assert bench.bodies("b") == []


def test_one_that_takes_too_long_is_rolled_back(bench: Bench) -> None:
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a")
    tx = bench.begin()
    bench.ack(taker, message, tx=tx)
    bench.broker.advance(299_999)
    assert taker.take() == [b"1"]
    bench.broker.advance(1)
    assert taker.take() == [b"1"]
    assert tx.closed


def test_kept_deliveries_stay_with_the_consumer_when_the_transaction_is_undone(bench: Bench) -> None:
    messages = bench.sent("a", b"1", b"2")
    taker = bench.take("a", counted=True)
    engine = bench.enter()
    engine.consumers.grant(taker.consumer, 5)
    bench.run()
    assert taker.take() == [b"1", b"2"]
    tx = bench.begin()
    for message in messages:
        engine.consumers.acknowledge(taker.consumer, message.id, tx, kept=True)
    engine.transactions.rollback(tx)
    bench.run()
    assert (taker.take(), list(taker.consumer.unacked)) == ([], [m.id for m in messages])
    assert [bench.queue("a").delivery_count(m.id) for m in messages] == [1, 1], "as if it had been returned"
    check_accounts(bench.broker)
    second = bench.begin()
    engine.consumers.acknowledge(taker.consumer, messages[0].id, second, kept=True)
    bench.close(taker, redelivery.CLOSED)
    bench.roll_back(second)
    assert bench.places("a") == {b"1": "ready", b"2": "ready"}
    counts = [2, 1]  # nobody was there to keep the first one: a failed delivery like the other rollback
    assert [bench.queue("a").delivery_count(m.id) for m in messages] == counts
    check_accounts(bench.broker)
    queue = bench.restart().queue("a")
    assert [queue.delivery_count(m.id) for m in messages] == counts


def test_kept_deliveries_count_as_sent_beside_those_that_await_the_disk() -> None:
    """Strict: it failed by the rollback and by the lost connection, and the message that never left did not."""
    bench = Bench({"match": "a", "delivery-count-persistence": "strict"})
    taker = bench.take("a", counted=True)
    bench.enter().consumers.grant(taker.consumer, 5)
    [sent] = bench.sent("a", b"sent")
    tx = bench.begin()
    bench.engine.consumers.acknowledge(taker.consumer, sent.id, tx, kept=True)
    bench.run()
    bench.broker.hold_disk()
    [held] = bench.sent("a", b"held")
    bench.enter().transactions.rollback(tx)
    bench.close(taker, redelivery.LOST)
    bench.broker.release_disk()
    assert taker.take() == [b"sent"]
    queue = bench.queue("a")
    assert (queue.delivery_count(sent.id), held.id in queue.states) == (2, False)
    queue = bench.restart().queue("a")
    assert (queue.delivery_count(sent.id), held.id in queue.states) == (2, False)


def test_a_commit_forgets_what_it_has_done_as_it_does_it(bench: Bench) -> None:
    """To free 14,000 sends at its end took 30 ms."""
    bench.limit_ticks(1, least=1, together=1)
    (message,) = bench.sent("b", b"0")
    taker = bench.take("b")
    tx = bench.begin()
    for number in range(20):
        bench.send(f"q{number}", b"x", tx=tx)
        bench.run()
    bench.ack(taker, message, tx=tx)
    left: list[int] = []
    bench.enter().transactions.commit(tx)
    for _ in range(100):
        bench.broker.parts.tick.end()
        left.append(len(tx.batches))
        bench.enter()
    bench.run()
    assert sorted(left, reverse=True) == left
    assert len(set(left)) > 2, "in several ticks"
    assert (tx.batches, tx.settlements) == ([], [])
    assert not any(send.messages for send in tx.sends)
    assert bench.bodies("q19") == [b"x"]


def test_a_refused_commit_changes_no_charge(bench: Bench) -> None:
    """The first message of a run counts what all of them share, also if it is why the commit is refused."""
    bench.declare("q", "a", selector="colour = 'blue'")
    send = bench.prepare("a", b"1", b"2", expiration=bench.broker.now + 1_000)
    for message, colour in zip(send.messages, (b"red", b"blue"), strict=True):
        message.head = b"colour:%s\n" % colour
    sizes = [message.size for message in send.messages]
    tx = bench.begin()
    tx.send([send], send.messages)
    with pytest.raises(NoQueue):
        bench.commit(tx)
    assert [message.size for message in send.messages] == sizes
    bench.run()
    bench.declare("all", "a")
    bench.commit(tx)
    assert bench.engine.usage.bytes == bench.engine.addresses["a"].size_bytes
    bench.check()
