"""Commits in steps: a tick does a part of it, and yet all of it happens in one journal entry, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from broker.engine.delivery import redelivery
from broker.engine.delivery.transaction import SHORT_RUNS_MAX, Transaction
from broker.engine.model.errors import EngineError, NoQueue, TransactionClosed
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.steps import STEP
from broker.engine.routing import alter
from tests.broker.engine.engine_harness import Bench, Taker, Waiting, entries_with
from tests.support.sim_broker import SimBroker

COUNT = 60


def bench_of(*settings: dict[str, object]) -> Bench:
    """A broker whose ticks do a few messages of a commit."""
    bench = Bench(*settings, segment_bytes=256 << 10)
    bench.limit_ticks(200, least=50, together=4)
    return bench


def transaction(bench: Bench, *, consumed: int = 0) -> tuple[Transaction, Taker]:
    """One of many sends, each with an expiration of its own, and of deliveries from `q`."""
    sent = bench.sent("q", *[b"%d" % n for n in range(consumed)]) if consumed else []
    taker = bench.take("q")
    tx = bench.begin()
    for n in range(COUNT):
        bench.send("a", b"%d" % n, tx=tx, expiration=bench.broker.now + 1_000_000 + n)
    for message in sent:
        bench.engine.consumers.acknowledge(taker.consumer, message.id, tx)
    bench.run()
    return tx, taker


def turn(bench: Bench) -> None:
    """End the tick, let the disk work, and begin another."""
    bench.broker.tick.end()
    bench.broker.write()
    bench.enter()


def begun(bench: Bench, tx: Transaction) -> None:
    """Commit until it is decided."""
    engine = bench.enter()
    engine.transactions.commit(tx)
    while not engine.journal.held:
        turn(bench)


def ticks(bench: Bench, tx: Transaction) -> list[int]:
    """Commit with a disk that writes after each tick; returns how many messages have been placed after each."""
    placed: list[int] = []
    bench.broker.after_tick = lambda: placed.append(bench.engine.queue("a").counters.added)
    bench.commit(tx)
    bench.broker.after_tick = lambda: None
    return placed


def test_a_tick_does_a_part_of_a_commit_which_is_one_entry() -> None:
    bench = bench_of()
    bench.sent("a", b"first")
    tx, _ = transaction(bench, consumed=20)
    placed = ticks(bench, tx)
    assert placed[-1] == COUNT + 1
    assert max(after - before for before, after in pairwise(placed)) <= 12
    largest = max(entries_with(bench, "MESSAGE"), key=len)
    assert largest.count("MESSAGE") == COUNT
    assert "REMOVED" in largest
    assert bench.engine.transactions.bytes == 0
    bench.check()
    again = bench.restart()
    assert (len(again.bodies("a")), again.bodies("q")) == (COUNT + 1, [])


def test_nobody_gets_anything_before_all_of_it_is_durable() -> None:
    bench = bench_of()
    taker = bench.take("a")
    tx, _ = transaction(bench)
    seen: list[tuple[int, bool]] = []
    bench.broker.after_tick = lambda: seen.append((len(taker.taken), bench.engine.journal.held))
    bench.commit(tx)
    assert not any(count for count, held in seen if held)
    assert taker.take() == [b"%d" % n for n in range(COUNT)]


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_a_crash_in_the_middle_undoes_all_of_it(after: int) -> None:
    bench = bench_of()
    tx, _ = transaction(bench, consumed=20)
    bench.enter().transactions.commit(tx)
    for n in range(after):  # others write, and the disk works
        bench.send("b", b"%d" % n)
        turn(bench)
    sealed = tx.closed and not bench.engine.journal.held
    again = bench.restart()
    kept = len(again.bodies("a")) if "a" in again.engine.queues else 0
    assert (kept, len(again.bodies("q"))) == ((COUNT, 0) if sealed else (0, 20))
    again.check()


def test_others_are_served_meanwhile_and_confirmed_after_it() -> None:
    bench = bench_of()
    other = bench.take("other")
    tx, _ = transaction(bench)
    waiting = Waiting()
    begun(bench, tx)
    engine = bench.engine
    bench.send("other", b"volatile", durable=False)
    bench.send("third", b"durable")
    assert engine.ticks.confirmation(waiting)
    bench.broker.tick.end()
    assert (other.take(), engine.journal.held, waiting.told) == ([b"volatile"], True, [])
    bench.run()
    assert len(waiting.told) == 1
    assert not engine.journal.held
    assert bench.restart().bodies("third") == [b"durable"]


def held(bench: Bench, *settings: str) -> tuple[Bench, Transaction]:
    """A bench with queues, and a commit that is being performed."""
    for name in settings:
        bench.sent(name, b"first")
    tx, _ = transaction(bench)
    begun(bench, tx)
    return bench, tx


class Peer(Waiting):
    """Somebody with a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = object()

    def unblock(self) -> None:
        """See Producer."""

    def waits(self, bench: Bench) -> bool:
        """Whether its confirmations wait for the commit; the calls so far were for it."""
        number = bench.engine.ticks.confirmation(self)
        turn(bench)
        assert bench.engine.journal.held
        return number > max(self.told, default=0)


def test_publishes_that_do_not_depend_on_it_are_confirmed_before() -> None:
    bench = bench_of()
    bench.sent("there", b"1", b"2")
    taker, peer = bench.take("there"), Peer()
    taker.transport = peer.transport
    held(bench)
    bench.send("there", b"3", producer=peer)
    bench.send("a", b"behind", producer=peer)
    bench.engine.consumers.acknowledge(taker.consumer, taker.taken[0].id)
    assert not peer.waits(bench)
    assert bench.engine.journal.held
    lost = bench.broker.files.fork(1)
    lost.crash()
    again = Bench(running=SimBroker(bench.broker.config, files=lost))
    assert (again.bodies("there"), again.bodies("a")) == ([b"2", b"3"], [b"behind"])
    again.check()
    turn(bench)
    assert (len(taker.taken), bench.engine.journal.held) == (3, True), "and it is delivered"
    bench.run()
    bodies = bench.bodies("a")
    assert 0 < bodies.index(b"behind") < COUNT, "in order of arrival, as the commit was under way"
    assert [each for each in bodies if each != b"behind"] == [b"%d" % n for n in range(COUNT)]
    bench.check()
    assert bench.restart().bodies("a") == bodies


def test_clients_with_a_part_in_it_are_confirmed_with_it_and_nobody_else() -> None:
    bench, _ = held(bench_of(), "there")
    one, other = Peer(), Peer()
    bench.send("new", b"1")
    assert one.waits(bench)
    bench.send("there", b"2", producer=one)
    assert one.waits(bench), "its confirmations are in order"
    bench.send("there", b"3", producer=other)
    assert not other.waits(bench)
    assert Waiting.transport is None
    assert bench.engine.ticks.confirmation(Waiting()) == bench.engine.ticks.number, "nobody's wait for everything"


def test_if_it_is_not_known_for_whom_something_is_in_it_everybody_waits() -> None:
    bench, _ = held(bench_of(), "there")
    bench.send("new", b"1")
    bench.engine.ticks.begin_verb()
    bench.send("there", b"2")
    assert Peer().waits(bench)


def test_acknowledgements_wait_if_it_has_more_to_tell_of_the_queue() -> None:
    """In the journal the delivery counts would come behind the removal."""
    bench = bench_of()
    bench.sent("there", b"1", b"2")
    taker, peer = bench.take("there"), Peer()
    held(bench)
    first, second = taker.taken
    bench.engine.consumers.give_back(taker.consumer, first.id, redelivery.rejected(""))
    bench.engine.ticks.end_calls(object())
    bench.engine.consumers.acknowledge(taker.consumer, second.id)
    assert peer.waits(bench)
    bench.run()
    assert bench.restart().bodies("there") == [b"1"]


def test_nothing_overtakes_it_that_would_make_its_segment_larger() -> None:
    bench, peer = bench_of(), Peer()
    held(bench, "there")
    bench.send("there", bytes(bench.broker.config.journal.segment_size), producer=peer)
    assert not peer.waits(bench)
    bench.send("there", b"2", producer=peer)
    assert peer.waits(bench)


@pytest.mark.parametrize("change", ["delete", "pause", "neither"])
def test_nothing_overtakes_it_once_it_changes_or_deletes_a_definition(change: str) -> None:
    """After a crash a queue that was deleted is there again, and would miss what was sent after its deletion."""
    bench, _ = held(bench_of(), "there", "other")
    one, another = Peer(), Peer()
    if change == "delete":
        bench.engine.delete_queue(bench.queue("other"))
    elif change == "pause":
        alter.pause(bench.engine._state, bench.queue("other"), paused=True)
    assert one.waits(bench) == (change != "neither")
    bench.send("there", b"2", producer=another)
    assert another.waits(bench) == (change != "neither")


def test_the_balance_is_taken_between_commits() -> None:
    bench, _ = held(bench_of(), "there")
    taken: list[int] = []
    bench.engine.transactions.between(lambda: taken.append(bench.queue("a").stored))
    assert taken == []
    bench.run()
    assert taken == [COUNT]
    bench.enter().transactions.between(lambda: taken.append(1))
    assert taken == [COUNT, 1]


def test_the_next_long_one_begins_once_others_are_confirmed() -> None:
    bench = bench_of()
    one, _ = transaction(bench)
    two, _ = transaction(bench)
    engine = bench.enter()
    engine.transactions.commit(one)
    engine.transactions.commit(two)
    bench.run()
    runs = [entry.count("MESSAGE") for entry in entries_with(bench, "MESSAGE")]
    assert runs == [COUNT, COUNT]
    assert len(bench.bodies("a")) == 2 * COUNT


def test_a_short_one_does_not_wait_for_a_long_one() -> None:
    bench = bench_of()
    tx, _ = transaction(bench)
    short = bench.begin()
    bench.send("b", b"1", tx=short)
    begun(bench, tx)
    bench.engine.transactions.commit(short)
    assert bench.engine.journal.held
    assert bench.queue("b").counters.added == 1
    bench.run()
    assert (len(bench.bodies("a")), bench.bodies("b")) == (COUNT, [b"1"])


def test_a_refused_commit_leaves_nothing() -> None:
    bench = bench_of({"match": "gone", "auto-create-queues": False, "auto-create-addresses": False})
    bench.declare("gone")
    tx, _ = transaction(bench)
    bench.send("gone", b"1", tx=tx)
    bench.delete("gone")
    refusals: list[EngineError | None] = []
    bench.enter().transactions.commit(tx, refusals.append)
    assert refusals == []
    bench.run()
    assert [type(refusal) for refusal in refusals] == [NoQueue]
    bench.roll_back(tx)
    assert bench.bodies("a") == []
    assert bench.engine.transactions.bytes == 0
    bench.check()


def test_one_that_ends_while_it_is_checked_does_nothing() -> None:
    bench = bench_of()
    tx, _ = transaction(bench)
    refusals: list[EngineError | None] = []
    engine = bench.enter()
    engine.transactions.commit(tx, refusals.append)
    assert not tx.closed
    engine.transactions.rollback(tx)
    bench.run()
    assert [type(refusal) for refusal in refusals] == [TransactionClosed]
    assert bench.bodies("a") == []


def test_messages_for_a_queue_that_is_deleted_meanwhile_leave_by_name() -> None:
    bench = bench_of({"match": "a", "auto-create-queues": False, "auto-create-addresses": False})
    bench.declare("a")
    tx, _ = transaction(bench)
    engine = bench.enter()
    done: list[EngineError | None] = []
    engine.transactions.commit(tx, done.append)
    while not engine.journal.held or not bench.queue("a").counters.added:
        turn(bench)
    engine.delete_queue(bench.queue("a"))
    bench.run()
    assert done == [None], "it was decided before"
    assert "a" not in bench.restart().engine.queues
    bench.check()


def test_a_queue_without_which_it_cannot_be_is_missed_before() -> None:
    bench = bench_of({"match": "a", "auto-create-queues": False, "auto-create-addresses": False})
    bench.declare("a")
    tx, _ = transaction(bench)
    bench.delete("a")
    with pytest.raises(NoQueue):
        bench.commit(tx)


def test_returns_and_deaths_go_in_steps_and_before_what_is_younger() -> None:
    bench = bench_of({"match": "q", "max-delivery-attempts": 2})
    messages = bench.sent("q", *[b"%d" % n for n in range(40)])
    taker = bench.take("q", window=1 << 20)
    tx = bench.begin()
    for at, message in enumerate(messages):
        engine = bench.enter()
        if at % 2:
            engine.consumers.reject(taker.consumer, message.id, tx=tx)
        else:
            bench.nack(taker, message, tx=tx)
    taker.take()
    bench.sent("q", b"younger")
    assert taker.take() == [b"younger"]
    bench.commit(tx)
    assert taker.take() == [b"%d" % n for n in range(0, 40, 2)]
    assert bench.bodies("DLQ") == [b"%d" % n for n in range(1, 40, 2)]
    (entry,) = entries_with(bench, "DEAD_LETTERED")
    assert entry.count("DEAD_LETTERED") == 20
    bench.check()


def test_durable_messages_become_ready_in_steps() -> None:
    bench = bench_of()
    tx, _ = transaction(bench)
    engine = bench.enter()
    bench.broker.hold_disk()
    engine.transactions.commit(tx)
    bench.broker.end_ticks()
    ready: list[int] = []
    queue = bench.queue("a")
    bench.broker.after_tick = lambda: ready.append(queue.ready)
    assert (queue.ready, queue.landing) == (0, COUNT)
    bench.broker.release_disk()
    bench.run()
    assert ready[-1] == COUNT
    assert max(after - before for before, after in pairwise([0, *ready])) < COUNT
    bench.broker.after_tick = lambda: None
    bench.check()


class Kept:
    """Settled in a transaction one by one, to be its consumer's again after a rollback."""

    def __init__(self, bench: Bench, count: int) -> None:
        bench.sent("a", *[b"%d" % n for n in range(count)])
        self.taker = bench.take("a", window=-1)
        self.tx = bench.begin()
        self.ids = [message.id for message in self.taker.taken]
        for id in self.ids:
            bench.engine.consumers.acknowledge(self.taker.consumer, id, self.tx, kept=True)
        bench.run()


def steps_of(bench: Bench) -> Iterator[None]:
    """Each tick until nothing goes on in steps."""
    while bench.engine.ticks.is_working:
        yield
        bench.engine.ticks.end()
        bench.broker.write()
        bench.engine.ticks.begin()


def test_a_rollback_gives_many_deliveries_back_in_steps_in_their_order_and_tells_at_the_end(bench: Bench) -> None:
    kept, told = Kept(bench, 3 * STEP), list[int]()
    bench.limit_ticks(12, least=12)
    bench.enter().transactions.rollback(kept.tx, lambda: told.append(len(kept.taker.consumer.unacked)))
    seen = []
    for _ in steps_of(bench):
        seen.append(len(kept.taker.consumer.unacked))
        assert bool(told) is (seen[-1] == len(kept.ids))
    assert len(seen) >= 3
    assert seen == sorted(set(seen)), "more in each tick"
    assert told == [len(kept.ids)]
    assert list(kept.taker.consumer.unacked) == kept.ids
    assert {bench.queue("a").delivery_count(id) for id in kept.ids} == {1}
    bench.run()
    again = bench.restart()
    assert {again.queue("a").delivery_count(id) for id in kept.ids} == {1}


def test_a_consumer_may_end_while_a_rollback_gives_its_deliveries_back(bench: Bench) -> None:
    kept = Kept(bench, 3 * STEP)
    bench.limit_ticks(12, least=12)
    bench.enter().transactions.rollback(kept.tx)
    next(steps_of(bench))
    bench.engine.consumers.close(kept.taker.consumer, redelivery.CLOSED)
    bench.run()
    assert [message.id for message in bench.messages("a")] == kept.ids
    assert bench.queue("a").delivering == 0
    bench.check()


def test_a_message_released_during_a_rollback_returns_to_its_queue(bench: Bench) -> None:
    kept = Kept(bench, 3 * STEP)
    bench.limit_ticks(12, least=12)
    bench.enter().transactions.rollback(kept.tx)
    next(steps_of(bench))
    bench.engine.transactions.let_go(kept.taker.consumer, {kept.ids[-1]})
    bench.run()
    assert [message.id for message in kept.taker.taken] == [*kept.ids, kept.ids[-1]], "it is delivered again"


def test_a_second_rollback_is_answered_at_the_end_too(bench: Bench) -> None:
    kept, told = Kept(bench, 3 * STEP), list[str]()
    bench.limit_ticks(12, least=12)
    bench.enter().transactions.rollback(kept.tx, lambda: told.append("first"))
    bench.engine.transactions.rollback(kept.tx, lambda: told.append("second"))
    assert not told
    bench.run()
    bench.engine.transactions.rollback(kept.tx, lambda: told.append("third"))
    assert told == ["first", "second", "third"]


def test_many_sends_are_forgotten_in_steps(bench: Bench) -> None:
    tx, ticks = bench.begin(), 0
    for number in range(STEP):
        bench.send(f"new{number}", b"x", tx=tx)
    bench.run()
    bench.limit_ticks(12, least=12)
    bench.enter().transactions.rollback(tx)
    for _ in steps_of(bench):
        ticks += 1
    assert ticks >= 3
    bench.run()
    assert (bench.engine.usage.messages, bench.engine.usage.bytes) == (0, 0)


def test_a_queue_that_was_a_ring_once_keeps_its_order_over_a_restart() -> None:
    """Its later messages overtake the commit's in the journal, as those of any queue that only routes."""
    bench = bench_of()
    bench.declare("a", ring_size=1_000)
    bench.sent("a", b"first")
    bench.change("a", ring_size=-1)
    tx, _ = transaction(bench)
    begun(bench, tx)
    for n in range(5):
        bench.send("a", b"behind %d" % n)
        turn(bench)
    bench.run()
    bodies = bench.bodies("a")
    assert len(bodies) > 6
    for _ in range(2):
        bench = bench.restart()
        assert bench.bodies("a") == bodies


def test_a_rollback_in_steps_meanwhile_is_confirmed_once_its_counts_are_durable(bench: Bench) -> None:
    """They are in the entry that the commit holds open; the steps belong to no connection."""
    bench.limit_ticks(1 << 30, least=100)
    bench.sent("rb", *[b"%d" % n for n in range(500)])
    taker, other = bench.take("rb"), bench.begin()
    for message in list(taker.taken):
        bench.engine.consumers.acknowledge(taker.consumer, message.id, other, kept=True)
    bench.run()
    tx, _ = transaction(bench)
    bench.limit_ticks(200, least=50, together=4)
    begun(bench, tx)
    peer, told = Peer(), list[int]()
    bench.engine._state.steps.spend(1 << 40)  # the rest of the tick: what the client has sent before
    bench.engine.ticks.begin_verb()
    bench.engine.transactions.rollback(other, lambda: told.append(bench.engine.ticks.confirmation(peer)))
    bench.engine.ticks.end_calls(peer.transport)
    while not told:
        turn(bench)
    assert bench.engine.journal.held
    assert told == [bench.engine._state.pending.work.number], "that of the commit"


def test_a_long_commit_follows_one_that_has_recorded_nothing() -> None:
    """It never began, nor did any after it: what nobody records has no entry that could be sealed first."""
    bench = Bench()
    bench.sent("a", b"first", durable=False)
    for name in (b"one", b"two", b"three"):
        tx, done = bench.begin(), list[object]()
        for n in range(SHORT_RUNS_MAX + 1):
            bench.send("a", name, tx=tx, durable=False, expiration=bench.broker.now + 1_000_000 + n)
        bench.engine.transactions.commit(tx, done.append)
        bench.run()
        assert done == [None]
    assert len(bench.bodies("a")) == 1 + 3 * (SHORT_RUNS_MAX + 1)


class Blocked(Peer):
    """A producer that waits for room and then, as an MQTT client's does, confirms at once what it owes."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.overtaking: list[bool] = []

    def unblock(self) -> None:
        self.overtaking.append(self.bench.engine.journal.is_overtaking)
        self.bench.engine.ticks.confirmation(self)


def test_a_producer_that_has_room_again_is_told_once_the_acknowledgement_is_recorded() -> None:
    """What it does then is not part of that: it may settle other acknowledgements, which ended the broker."""
    bench = Bench({"match": "full", "max-size-bytes": 20_000, "address-full-policy": "BLOCK"}, segment_bytes=1 << 20)
    bench.limit_ticks(200, least=50, together=4)
    bench.sent("full", *[b"x" * 400] * 40)
    bench.sent("b", *[b"m"] * 40)
    taker, other = bench.take("full", ack_mode=AckMode.CUMULATIVE), bench.take("b")
    taker.transport, other.transport = object(), object()
    blocked = Blocked(bench)
    bench.enter()
    assert bench.engine.producers.wait_for_room(bench.engine.queue("full").address, blocked)
    tx, _ = transaction(bench)
    begun(bench, tx)
    bench.limit_ticks(14, least=14, together=4)
    bench.engine.consumers.acknowledge(taker.consumer, taker.taken[-1].id)
    for message in other.taken[:30]:
        bench.engine.consumers.acknowledge(other.consumer, message.id)
        turn(bench)
        if blocked.overtaking:
            break
    assert bench.engine.journal.held
    assert blocked.overtaking == [False]
