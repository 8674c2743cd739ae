"""What open transactions hold counts in memory, and is limited for a connection and for all of them together."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.engine.delivery.transaction import Transaction
from broker.engine.model.errors import AddressFull, TransactionsFull
from broker.engine.model.message import Message
from broker.engine.queues.uncommitted import OpenTransactions, has_share
from tests.broker.engine.engine_harness import Bench, Producing, section
from tests.simulation.world import small
from tests.support.interpreted import interpreted

LIMIT = 10_000
BODY = bytes(1000)
BLOCK: dict[str, object] = {"address-full-policy": "BLOCK", "max-size-bytes": 3000}


def limited(*settings: dict[str, object], connection: int = LIMIT, memory: int = -1, **more: Any) -> Bench:
    """A broker whose connections may hold so much in open transactions."""
    bench = Bench(
        *settings, limits=small().limits.model_copy(update={"open_transactions_bytes_max": connection}), **more
    )
    bench.engine.usage.bytes_max = memory
    return bench


def fill(bench: Bench, tx: Transaction, name: str = "a", most: int = 1000) -> int:
    """Send until it is refused; returns how many were not."""
    for sent in range(most):
        try:
            bench.sent(name, BODY, tx=tx)
        except TransactionsFull:
            bench.run()
            return sent
    return most


def send(bench: Bench, tx: Transaction | None, producer: Producing, name: str = "a", count: int = 1) -> None:
    """Send as a session does, in a transaction or not."""
    run = bench.prepare(name, *[BODY] * count)
    producers, transactions = bench.engine.producers, bench.engine.transactions
    if tx is None:
        producer.blocked |= producers.publish([run], producer=producer).blocked
    else:
        tx.send([run], run.messages)
        producer.blocked |= transactions.wait_for_room(tx, [run], producer)
    bench.run()


def waits(producer: Producing) -> bool:
    return producer.blocked


@pytest.mark.parametrize("end", ["commit", "rollback", "time-out", "refused"])
def test_sends_of_a_transaction_are_charged_until_its_end(end: str) -> None:
    bench = limited({"match": "full", "address-full-policy": "FAIL", "max-size-messages": 0})
    usage, tx = bench.engine.usage, bench.begin()
    messages: list[Message] = bench.sent("a", BODY, BODY, tx=tx) + bench.sent("b", BODY, tx=tx)
    size = messages[0].size
    addresses = bench.engine.addresses
    for _ in range(2):
        assert (usage.messages, usage.bytes) == (3, 3 * size)
        assert (addresses["a"].size_messages, addresses["a"].size_bytes) == (2, 2 * size)
        assert bench.engine.transactions.bytes == 3 * size
        if end != "refused":
            break
        refused = bench.prepare("full", BODY)
        tx.sends.append(refused)
        with pytest.raises(AddressFull):
            bench.commit(tx)
    if end == "commit":
        bench.commit(tx)
        assert (usage.messages, usage.bytes) == (3, 3 * size), "once each"
        bench.purge("a")
        bench.purge("b")
    elif end == "time-out":
        bench.broker.advance(400_000)
    else:
        bench.roll_back(tx)
    assert (usage.messages, usage.bytes, bench.engine.transactions.bytes) == (0, 0, 0)
    assert not any(address.size_messages or address.size_bytes for address in addresses.values())


def test_the_transactions_of_a_connection_have_one_limit() -> None:
    bench = limited()
    sent = bench.sent("acked", *[BODY] * 100)
    size, one, other = sent[0].size, object(), object()
    taker = bench.take("acked")
    transactions = [bench.begin(one) for _ in range(100)]
    assert sum(fill(bench, tx) for tx in transactions) == LIMIT // size
    assert bench.engine.transactions.bytes == LIMIT // size * size
    with pytest.raises(TransactionsFull, match=f"this connection would hold more than {LIMIT} bytes"):
        bench.ack(taker, taker.taken[0], tx=transactions[1])
    bench.run()
    assert fill(bench, bench.begin(other)) == LIMIT // size, "another connection's do not count"
    bench.roll_back(transactions[0])
    for message in taker.taken[: LIMIT // size]:
        bench.ack(taker, message, tx=transactions[1])
    with pytest.raises(TransactionsFull):
        bench.ack(taker, taker.taken[LIMIT // size], tx=transactions[2])
    bench.run()
    bench.commit(transactions[1])
    assert fill(bench, transactions[2], "b") == LIMIT // size, "it is theirs again"
    for tx in transactions[2:]:
        bench.roll_back(tx)
    bench.check()


def test_all_connections_together_may_hold_a_quarter_of_the_memory_and_then_their_share() -> None:
    bench = limited(memory=120_000, segment_bytes=1 << 20)
    transactions = [bench.begin() for _ in range(20)]
    each = [fill(bench, tx) for tx in transactions]
    size = bench.sent("size", BODY)[0].size
    pool = 30_000
    assert each[0] == LIMIT // size
    assert sum(each[:3]) in range(pool // size - 2, pool // size + 1)
    assert each[4] == pool // 5 // size, "its share"
    assert bench.engine.transactions.bytes in range(2 * pool - size, 2 * pool + 1)
    with pytest.raises(TransactionsFull, match=r"of \d+ connections would hold more than 30000 bytes"):
        bench.sent("a", BODY, tx=transactions[-1])
    bench.roll_back(transactions[0])
    assert fill(bench, transactions[-1]) == 1, "others' shares are taken"
    for tx in transactions[1:4]:
        bench.roll_back(tx)
    assert fill(bench, transactions[-1]) > 0


def test_a_large_message_is_acknowledged_though_the_memory_is_small() -> None:
    bench = limited(connection=1024, memory=4096)
    sent = bench.sent("a", bytes(5000))
    taker, tx = bench.take("a"), bench.begin()
    bench.ack(taker, *sent, tx=tx)
    bench.commit(tx)
    assert not bench.bodies("a")


def test_a_small_memory_leaves_each_connection_its_limit() -> None:
    bench = limited(memory=0)
    assert fill(bench, bench.begin()) == LIMIT // bench.sent("size", BODY)[0].size


def test_a_producer_waits_for_what_open_transactions_hold() -> None:
    bench = limited({"match": "a", **BLOCK})
    tx, producer = bench.begin(), Producing()
    bench.sent("a", BODY, BODY, BODY, tx=tx)
    send(bench, None, producer)
    assert waits(producer)
    bench.roll_back(tx)
    assert not waits(producer)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_waits_for_older_ones_of_others(commit: bool) -> None:
    """So no two wait for each other."""
    bench = limited({"match": "a", **BLOCK})
    old, young = bench.begin(), bench.begin()
    first, second = Producing(), Producing()
    send(bench, young, second, count=2)
    assert not waits(second)
    send(bench, old, first, count=4)
    assert not waits(first), "neither for the younger one nor for itself"
    send(bench, young, second)
    assert waits(second)
    send(bench, old, first)
    assert not waits(first)
    if commit:
        bench.commit(old)
        assert waits(second), "the messages are there"
        taker = bench.take("a")
        bench.ack(taker, *taker.taken[:2])
        assert waits(second), "three are left"
        bench.ack(taker, taker.taken[2])
    else:
        bench.roll_back(old)
    assert not waits(second)
    bench.commit(young)
    bench.check()


def test_a_transaction_does_not_wait_for_others_of_its_connection() -> None:
    """The commit that it would wait for comes behind it."""
    bench = limited({"match": "a", **BLOCK})
    connection, producer = object(), Producing()
    for _ in range(2):
        send(bench, bench.begin(connection), producer, count=3)
    assert not waits(producer)


def test_it_waits_for_memory_that_queues_hold_not_for_that_of_transactions() -> None:
    block: dict[str, object] = {"address-full-policy": "BLOCK"}
    bench = limited({"match": "a", **block}, {"match": "queue", **block}, memory=5000)
    bench.declare("queue", non_destructive=True)  # it cannot page, so its messages stay in memory
    held, tx = bench.begin(), bench.begin()
    producer, plain = Producing(), Producing()
    bench.sent("other", *[BODY] * 5, tx=held)
    assert bench.engine.usage.memory_full
    send(bench, tx, producer)
    assert not waits(producer)
    send(bench, None, plain)
    assert waits(plain)
    bench.sent("queue", *[BODY] * 5)
    send(bench, tx, producer)
    assert waits(producer)
    bench.purge("queue")
    assert bench.engine.usage.memory_full
    assert (waits(producer), waits(plain)) == (False, True)
    bench.roll_back(held)
    assert not waits(plain)


def test_it_waits_for_addresses_that_diverts_reach() -> None:
    bench = limited({"match": "b", **BLOCK}, diverts={"one": section("a", "b")})
    bench.declare("a")
    bench.declare("b")
    bench.sent("b", BODY, BODY, BODY)
    producer = Producing()
    send(bench, bench.begin(), producer)
    assert waits(producer)
    bench.purge("b")
    assert not waits(producer)


def test_a_commit_is_refused_for_what_others_hold_not_for_its_own() -> None:
    bench = limited({"match": "a", "address-full-policy": "FAIL", "max-size-bytes": 3000})
    one, other = bench.begin(), bench.begin()
    bench.sent("a", BODY, BODY, BODY, tx=one)
    bench.sent("a", BODY, BODY, BODY, tx=other)
    with pytest.raises(AddressFull):
        bench.commit(one)
    bench.run()
    bench.roll_back(other)
    bench.commit(one)
    assert len(bench.bodies("a")) == 3
    bench.check()


def test_an_address_that_is_deleted_and_made_again_is_charged() -> None:
    bench = limited({"match": "a", **BLOCK})
    tx, producer = bench.begin(), Producing()
    bench.sent("a", BODY, BODY, BODY, tx=tx)
    bench.enter().operators.delete_address(bench.engine.addresses["a"], with_queues=True)
    bench.run()
    assert bench.engine.usage.messages == 3
    send(bench, None, producer)
    assert waits(producer)
    bench.commit(tx)
    address = bench.engine.addresses["a"]
    assert address.size_messages == bench.engine.usage.messages
    assert address.size_messages + address.paged_messages == 4
    bench.purge("a")
    assert not waits(producer)
    assert not bench.enter()._state.room.departed


def test_beyond_the_pool_small_holders_get_their_share_and_all_together_twice_as_much() -> None:
    assert has_share(100, 100, 100, 1), "what is there is for anybody"
    assert not has_share(100, 101, 101, 1)
    assert has_share(100, 150, 50, 2)
    assert not has_share(100, 151, 51, 2)
    held = [100]
    while has_share(100, sum(held) + 1, 1, len(held) + 1):
        own = next(own for own in range(100, 0, -1) if has_share(100, sum(held) + own, own, len(held) + 1))
        held.append(own)
    assert sum(held) == 200, "1/1 + 1/2 + 1/3 ... has no end"


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_of_waits_is_that_of_each_wait(seed: int) -> None:
    random, transactions = Random(seed), OpenTransactions(LIMIT)
    opened = [transactions.begin(random.randrange(4)) for _ in range(12)]
    for _ in range(60):
        held = random.choice(opened)
        if held.sends and random.random() < 0.3:
            name, (count, nbytes) = random.choice(list(held.sends.items()))
            transactions.remove_sends(held, name, *random.choice([(count, nbytes), (0, 0)]))
        else:
            transactions.add_sends(held, random.choice("ab"), 1, random.randrange(100))
        waiting = random.sample(opened, random.randrange(len(opened)))
        assert transactions.behind_each(waiting, "a") == {each: transactions.behind(each, "a") for each in waiting}
        sent = [each.sends.get("a", (0, 0)) for each in opened]
        assert transactions.sent_to("a") == (sum([each[0] for each in sent]), sum([each[1] for each in sent]))


@interpreted
@pytest.mark.parametrize("policy", ["BLOCK", "PAGE"])
def test_a_send_does_not_look_at_all_open_transactions(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"max-size-messages": 0} if policy == "PAGE" else {}
    bench = limited({"match": "a", "address-full-policy": policy, **full}, connection=10 * LIMIT)
    for connection in range(20):
        send(bench, bench.begin(connection), Producing())
    monkeypatch.setattr(OpenTransactions, "behind", lambda *_: pytest.fail("all are looked at"))
    producer = Producing()
    send(bench, bench.begin("another"), producer)
    assert not waits(producer)


@interpreted
def test_a_message_that_leaves_a_full_address_does_not_compare_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = limited({"match": "a", "address-full-policy": "BLOCK", "max-size-messages": 10}, connection=10 * LIMIT)
    messages = bench.sent("a", *[BODY] * 12)
    producers = [Producing() for _ in range(30)]
    opened = [bench.begin(n) for n in range(30)]
    for tx, producer in zip(opened, producers, strict=True):
        send(bench, tx, producer)
    assert all([waits(producer) for producer in producers])
    taker = bench.take("a")
    monkeypatch.setattr(OpenTransactions, "behind_each", lambda *_: pytest.fail("it is too full for any"))
    bench.ack(taker, messages[0])
    monkeypatch.undo()
    monkeypatch.setattr(OpenTransactions, "behind", lambda *_: pytest.fail("they are looked at together"))
    bench.ack(taker, *messages[1:4])
    assert [waits(producer) for producer in producers] == [False, False, *[True] * 28]
