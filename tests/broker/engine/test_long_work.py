"""What may touch many messages spends the budget of the tick, and goes on in the next one: no tick is long (P6)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from broker.engine import NewQueue
from broker.engine.delivery import closing, redelivery
from broker.engine.delivery.dispatch import DELIVER_COST, DISK_RETRY_MS, FEW_MESSAGES, SERVE_COST
from broker.engine.delivery.redelivery import DUE_COST, DUE_TOGETHER, DeliveryOutcome
from broker.engine.model.access import Identity
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.permissions import Permission, PermissionTable
from broker.engine.model.task import TaskKind, TaskRequest
from broker.engine.moves.expiry import END_COST, EXPIRED_TOGETHER
from broker.engine.moves.move import MOVE_COST
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import Consumer
from broker.engine.queues.steps import BUDGET, STEP
from broker.engine.routing import alter
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker, Waiting
from tests.simulation.world import accounts, check_counters, journal_directory, reasons
from tests.support.bodies import body_of
from tests.support.interpreted import interpreted


class Connection:
    """A connection, by identity."""


@pytest.mark.parametrize("kept", [True, False])
def test_messages_that_expire_together_do_so_within_the_budget_of_each_tick(bench: Bench, kept: bool) -> None:
    if not kept:
        bench = Bench({"match": "a", "expiry-address": ""})
    count, expires, left = 300, bench.broker.now + 1000, list[int]()
    bench.sent("a", *[b"%d" % n for n in range(count)], expiration=expires)
    bench.limit_ticks(EXPIRED_TOGETHER * (MOVE_COST if kept else END_COST), least=1)
    bench.broker.now = expires
    bench.enter()
    while bench.queue("a").ready:
        bench.engine.ticks.end()
        left.append(bench.queue("a").ready)
        bench.broker.write()  # while much waits for the disk, they wait too
        bench.engine.ticks.begin()
    assert left == [236, 172, 108, 44, 0]
    bench.run()
    assert len(bench.messages("ExpiryQueue") if kept else ()) == (count if kept else 0)
    bench.check()


@pytest.mark.parametrize("paged", [False, True])
def test_the_last_messages_that_expire_in_a_tick_fit_its_budget(paged: bool) -> None:
    """They move 64 at a time, which takes 6 ms."""
    more = {"max-size-messages": 10, "address-full-policy": "PAGE"} if paged else {}
    bench = Bench({"match": "a", **more})
    count, expires, left = 1_000, bench.broker.now + 1000, [1_000]
    for first in range(0, count, 100):
        bench.sent("a", *[b"%d" % n for n in range(first, first + 100)], expiration=expires)
    bench.broker.now = expires
    bench.enter()
    while left[-1]:
        bench.engine.ticks.end()
        bench.broker.write()
        bench.engine.ticks.begin()
        left.append(bench.queue("a").message_count)
    falls = [before - after for before, after in pairwise(left)]
    assert max(falls) <= BUDGET // MOVE_COST + 1
    assert len(falls) <= count // (BUDGET // (2 * MOVE_COST)), "they use what a tick allows"
    bench.run()
    bench.check()


@pytest.mark.parametrize("paged", [False, True])
def test_messages_that_expire_to_an_address_with_many_filters_fit_the_budget(paged: bool) -> None:
    """64 of them took 1.8 s if 6,000 queues had a filter each, as with `auto-create-expiry-resources`."""
    more = {"max-size-messages": 2, "address-full-policy": "PAGE"} if paged else {}
    bench = Bench({"match": "a", "expiry-address": "E", **more})
    queues, count, expires, left = 400, 60, bench.broker.now + 1000, [60]
    for n in range(queues):
        bench.declare(f"e{n}", "E", routing_type=RoutingType.MULTICAST, selector=f"_AMQ_ORIG_ADDRESS = 'a{n}'")
    bench.declare("E")
    bench.sent("a", *[b"%d" % n for n in range(count)], expiration=expires)
    bench.broker.now = expires
    bench.enter()
    while left[-1]:
        bench.engine.ticks.end()
        bench.broker.write()
        bench.engine.ticks.begin()
        left.append(bench.queue("a").message_count)
    assert max([before - after for before, after in pairwise(left)]) <= BUDGET // queues + 1
    bench.run()
    assert len(bench.messages("E")) == count
    bench.check()


@pytest.mark.parametrize("verb", ["reject", "give_back", "close"])
def test_messages_that_die_together_do_so_in_steps_of_about_a_millisecond(verb: str) -> None:
    """Of 64 that died together each step took up to 9 ms, and the last one of a tick came on top of its budget."""
    bench = Bench({"match": "a", "max-delivery-attempts": 1})
    bench.sent("a", *[b"%d" % n for n in range(1_000)])
    taker = bench.take("a", window=-1, ack_mode=AckMode.CUMULATIVE)
    consumers, last = bench.enter().consumers, taker.taken[-1].id
    if verb == "reject":
        consumers.reject(taker.consumer, last)
    elif verb == "give_back":
        consumers.give_back(taker.consumer, last, redelivery.rejected(""))
    else:
        consumers.close(taker.consumer, redelivery.LOST)
    dead = [bench.queue("a").left[RemovalReason.DEAD_LETTERED]]
    while bench.queue("a").leaving:
        bench.engine.ticks.end()
        bench.broker.write()  # while much waits for the disk, work waits too
        bench.engine.ticks.begin()
        dead.append(bench.queue("a").left[RemovalReason.DEAD_LETTERED])
    most = max([after - before for before, after in pairwise(dead)])
    assert (BUDGET - STEP) // MOVE_COST <= most <= (BUDGET + STEP) // MOVE_COST
    bench.run()
    assert bench.queue("a").left[RemovalReason.DEAD_LETTERED] == 1_000
    bench.check()


@pytest.mark.parametrize("selector", ["", "colour IS NULL"])
@pytest.mark.parametrize("kept", [False, True])
def test_expired_messages_that_a_dispatch_meets_fit_the_budget(selector: str, kept: bool) -> None:
    """Nobody looks for them, or had no budget left: a part of 128 took 12 ms, whatever was left of the budget."""
    bench = Bench(engine_limits={"expiry_scan_period": 0})
    bench.declare("a", non_destructive=kept)
    count, expires = 600, bench.broker.now + 1000
    bench.sent("a", *[b"%d" % n for n in range(count)], expiration=expires)
    bench.broker.now = expires
    bench.attach(taker := Taker(), "a", window=-1, selector=selector)
    left = [count]
    while left[-1]:
        bench.engine.ticks.end()
        bench.broker.write()
        bench.broker.now += DISK_RETRY_MS
        bench.engine.ticks.begin()
        left.append(bench.queue("a").message_count)
    falls = [before - after for before, after in pairwise(left)]
    assert max(falls) <= BUDGET // MOVE_COST + 1
    assert len(falls) <= count // (BUDGET // (2 * MOVE_COST)), "they use what a tick allows"
    bench.run()
    assert not taker.taken
    assert len(bench.messages("ExpiryQueue")) == count
    bench.check()


def test_consumers_that_lose_a_right_together_end_in_steps_and_get_nothing_meanwhile(bench: Bench) -> None:
    """10,000 took 25 ms, in one go."""
    count, told, taker = 300, list[int](), Taker()
    everything = {permission: frozenset({"r"}) for permission in Permission}
    security = bench.engine.security
    security.roles_of = lambda user: frozenset({"r"})
    security.change(PermissionTable([("#", everything)]))
    access = [security.access(Identity(f"u{n}", frozenset()), "") for n in range(2)]
    losing = [bench.attach(Taker(), f"q{n % 3}", access=access[0]) for n in range(count)]
    bench.attach(taker, "q0", access=access[1])
    bench.run()
    bench.limit_ticks(20 * closing.RECHECK_COST, least=1)
    security.roles_of = lambda user: frozenset({"r"}) if user == "u1" else frozenset()
    bench.enter().secure(None, told.append)
    bench.send("q0", *[b"%d" % n for n in range(10)])
    left = [count]
    while not told:
        bench.engine.ticks.end()
        bench.broker.write()
        left.append(count - sum(bool(each.closed) for each in losing))
        bench.engine.ticks.begin()
    assert max([before - after for before, after in pairwise(left)]) <= 21
    assert len(left) > count // 21, "in several ticks"
    bench.run()
    assert told == [count]
    assert all(each.closed and not each.taken for each in losing)
    assert taker.take() == [b"%d" % n for n in range(10)]
    bench.check()


def test_returned_deliveries_that_do_not_die_go_in_larger_steps(bench: Bench) -> None:
    bench.sent("a", *[b"%d" % n for n in range(2_000)])
    taker = bench.take("a", window=-1, ack_mode=AckMode.CUMULATIVE)
    bench.enter().consumers.give_back(taker.consumer, taker.taken[-1].id, redelivery.rejected(""))
    assert not bench.queue("a").leaving, "a tick is enough"
    bench.run()
    assert len(bench.messages("a")) == 2_000


def test_messages_that_are_due_together_become_ready_within_the_budget_of_each_tick(bench: Bench) -> None:
    count, due, ready = 3 * DUE_TOGETHER, bench.broker.now + 1000, list[int]()
    bench.sent("a", *[b"%d" % n for n in range(count)], scheduled=due)
    bench.limit_ticks(DUE_TOGETHER * DUE_COST, least=1)
    bench.broker.now = due
    bench.enter()
    while bench.queue("a").ready < count:
        bench.engine.ticks.end()
        ready.append(bench.queue("a").ready)
        bench.engine.ticks.begin()
    assert ready == [DUE_TOGETHER, 2 * DUE_TOGETHER, count]


def test_several_consumers_are_handed_what_the_budget_allows(bench: Bench) -> None:
    bench.sent("a", *[b"%d" % n for n in range(90)])
    bench.limit_ticks(20 * DELIVER_COST + SERVE_COST, least=1)
    takers = [bench.attach(Taker(), "a", window=-1) for _ in range(2)]
    seen = list[int]()
    while len(seen) < 5:
        bench.engine.ticks.end()
        seen.append(sum([len(taker.taken) for taker in takers]))
        bench.engine.ticks.begin()
    assert seen == [20, 40, 60, 80, 90]


def test_the_steps_of_tasks_share_a_tick(bench: Bench) -> None:
    """Sixteen of them, of some milliseconds each, would hold up clients for a tenth of a second."""
    for n in range(3):
        bench.sent(f"q{n}", *[b"%d" % each for each in range(640)])
    bench.limit_ticks(2_000, least=1)
    for n in range(3):
        bench.enter().tasks.start(TaskRequest(kind=TaskKind.MOVE, queue=f"q{n}", target="there"))
        bench.engine.ticks.end()
    sizes = [bench.queue(f"q{n}").ready for n in range(3)]
    bench.engine.ticks.begin()
    bench.engine.ticks.end()
    after = [bench.queue(f"q{n}").ready for n in range(3)]
    assert sum([before - now for before, now in zip(sizes, after, strict=True)]) == bench.engine.limits.move_step_max
    bench.run()


def test_the_queues_of_an_address_are_resumed_within_the_budget_of_each_tick(bench: Bench) -> None:
    count, operators = 6 * alter.RESUMED_TOGETHER, bench.enter().operators
    for n in range(count):
        operators.make_queue(NewQueue(f"s{n}", "t", RoutingType.MULTICAST, make_address=True))
    bench.run()
    address = bench.engine.addresses["t"]
    queues = list(bench.engine._state.bindings.queues(address))
    bench.enter().operators.pause_address(address, paused=True)
    assert all(queue.stopped for queue in queues), "nothing is delivered from now on"
    bench.run()
    bench.limit_ticks(alter.RESUMED_TOGETHER * alter.RESUME_COST, least=1)
    bench.enter().operators.pause_address(address, paused=False)
    left = list[int]()
    while not left or left[-1]:
        bench.engine.ticks.end()
        left.append(sum([queue.stopped for queue in queues]))
        bench.engine.ticks.begin()
    assert len(left) >= 3
    # Some as it is asked for, and as many as the tick ends.
    assert max(before - after for before, after in pairwise([count, *left])) <= 2 * alter.RESUMED_TOGETHER


@pytest.fixture
def small_steps(bench: Bench) -> None:
    """Runs of two, and a budget of a few of them a tick."""
    bench.limit_ticks(10, least=6, together=2)


BODIES = [b"%d" % number for number in range(20)]


def ticks(bench: Bench) -> Iterator[None]:
    """Each tick until nothing goes on in steps, checked."""
    while bench.engine.ticks.is_working:
        check_counters(bench.broker)
        yield
        bench.engine.ticks.end()
        bench.engine.ticks.begin()


def held(bench: Bench) -> Taker:
    """A consumer that has all messages."""
    bench.sent("a", *BODIES)
    taker = bench.take("a", window=20, counted=True)
    bench.run()
    assert len(taker.taken) == len(BODIES)
    return taker


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("how", [redelivery.DISCONNECTED, redelivery.LOST, redelivery.CLOSED])
def test_many_deliveries_come_back_in_steps_and_before_younger_ones(bench: Bench, how: DeliveryOutcome) -> None:
    first = held(bench)
    bench.sent("a", b"younger")
    queue, states = bench.queue("a"), list[tuple[int, int]]()
    second = bench.attach(Taker(), "a", window=-1)
    bench.enter().consumers.close(first.consumer, how)
    assert len(bench.messages("a")) == 21
    for _ in ticks(bench):
        states.append((queue.ready, len(second.taken)))
    assert len(states) >= 3
    assert {taken for _, taken in states} == {0}
    assert [ready for ready, _ in states] == sorted({ready for ready, _ in states}), "more each tick"
    bench.run()
    assert second.take() == [*BODIES, b"younger"]
    failed = {b"%d" % n: int(how.failed < 0 or n < how.failed) for n in range(20)}
    assert {body_of(m): queue.delivery_count(m.id) for m in bench.messages("a")} == failed | {b"younger": 0}
    bench.check()
    assert bench.restart().bodies("a") == [*BODIES, b"younger"]


@pytest.mark.usefixtures("small_steps")
def test_many_deliveries_that_never_left_come_back_in_steps_and_have_not_failed(bench: Bench) -> None:
    first = held(bench)
    second = bench.attach(Taker(), "a", window=-1)
    bench.enter().consumers.close(first.consumer, redelivery.CLOSED)
    bench.run()
    bench.enter().consumers.withdraw(second.consumer, second.taken)
    second.taken.clear()
    queue = bench.queue("a")
    assert len([queue.returning for _ in ticks(bench)]) >= 3
    bench.run()
    assert second.take() == BODIES
    assert queue.states == {}
    bench.check()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("verb", ["withdraw", "return"])
def test_deliveries_that_left_their_messages_on_the_queue_come_back_at_once(bench: Bench, verb: str) -> None:
    bench.declare("a", non_destructive=True)
    first = held(bench)
    consumers = bench.enter().consumers
    if verb == "withdraw":
        consumers.withdraw(first.consumer, first.taken)
    else:
        consumers.close(first.consumer, redelivery.LOST)
    assert not bench.engine.ticks.is_working
    bench.run()
    assert bench.bodies("a") == bench.take("a", window=20, counted=True).take() == BODIES
    bench.check()


@pytest.mark.usefixtures("small_steps")
def test_a_crash_while_deliveries_come_back_loses_none(bench: Bench) -> None:
    first = held(bench)
    bench.enter().consumers.close(first.consumer, redelivery.LOST)
    next(ticks(bench))
    bench.engine.ticks.end()
    bench.broker.write()
    assert bench.queue("a").returning
    again = bench.restart()
    assert again.bodies("a") == BODIES
    counts = [again.queue("a").delivery_count(message.id) for message in again.messages("a")]
    assert set(counts) == {0, 1}
    again.check()


@pytest.mark.usefixtures("small_steps")
def test_a_ring_keeps_the_youngest_of_many_that_come_back(bench: Bench) -> None:
    bench.declare("a", ring_size=30)
    first = held(bench)
    bench.change("a", ring_size=5)
    bench.close(first, redelivery.DISCONNECTED)
    assert bench.bodies("a") == BODIES[-5:]
    bench.check()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("ready", [True, False])
def test_a_queue_that_keeps_nothing_purges_what_was_there_although_a_consumer_comes(bench: Bench, ready: bool) -> None:
    bench.declare("a", purge_on_no_consumers=True)
    first = bench.take("a", window=-1 if not ready else 1)
    bench.sent("a", *BODIES)
    bench.run()
    assert len(first.taken) == (1 if ready else 20)
    bench.enter().consumers.close(first.consumer, redelivery.DISCONNECTED)
    assert bench.engine.ticks.is_working
    second = bench.attach(Taker(), "a", window=-1)
    bench.send("a", b"new")
    bench.run()
    assert second.take() == [b"new"]
    assert bench.left("a") == {"purged": 20}


@pytest.mark.usefixtures("small_steps")
def test_an_exclusive_consumer_waits_for_what_comes_back(bench: Bench) -> None:
    bench.declare("a", exclusive=True)
    first = held(bench)
    second = bench.attach(Taker(), "a", window=-1)
    bench.enter().consumers.close(first.consumer, redelivery.CLOSED)
    bench.change("a", exclusive=False)
    assert second.take() == BODIES


@pytest.mark.usefixtures("small_steps")
def test_newer_values_replace_those_that_come_back(bench: Bench) -> None:
    bench.declare("a", last_value_key="k")
    bench.sent("a", *BODIES[:5], head=b"k:1\n")
    for n, body in enumerate(BODIES):
        bench.sent("a", body, head=b"k:%d\n" % (n + 10))
    first = bench.take("a", window=-1)
    bench.run()
    bench.enter().consumers.close(first.consumer, redelivery.CLOSED)
    assert bench.engine.ticks.is_working
    for n in range(10):
        bench.send("a", b"new%d" % n, head=b"k:%d\n" % (n + 10))
    bench.run()
    assert sorted(bench.bodies("a")) == sorted([BODIES[4], *[b"new%d" % n for n in range(10)], *BODIES[10:]])
    bench.check()


@pytest.mark.usefixtures("small_steps")
def test_a_queue_may_be_deleted_while_deliveries_come_back(bench: Bench) -> None:
    first = held(bench)
    bench.enter().consumers.close(first.consumer, redelivery.DISCONNECTED)
    assert bench.queue("a").returning
    bench.engine.delete_queue(bench.queue("a"))
    bench.run()
    bench.check()
    assert (bench.engine.usage.messages, bench.engine.usage.bytes) == (0, 0)
    bench.sent("a", b"again")
    assert bench.restart().bodies("a") == [b"again"]


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("verb", ["acknowledge", "reject", "give_back", "roll back"])
def test_a_confirmation_waits_for_all_steps_and_those_of_others_do_not(bench: Bench, verb: str) -> None:
    class Connected(Taker):
        transport = Connection()

    class Asking(Waiting):
        transport = Connected.transport

    bench.sent("a", *BODIES)
    taker = bench.attach(Connected(), "a", window=-1, ack_mode=AckMode.CUMULATIVE)
    bench.run()
    consumers, last = bench.enter().consumers, taker.taken[-1].id
    if verb == "acknowledge":
        consumers.acknowledge(taker.consumer, last)
    elif verb == "reject":
        consumers.reject(taker.consumer, last)
    elif verb == "give_back":
        consumers.give_back(taker.consumer, last, redelivery.RELEASED)
    else:
        tx = bench.begin()
        consumers.acknowledge(taker.consumer, last, tx)
        bench.engine.transactions.rollback(tx)
    asking, other = Asking(), Waiting()
    number = bench.engine.ticks.confirmation(asking)
    assert number
    bench.send("another", b"of another connection")
    assert bench.engine.ticks.confirmation(other)
    while bench.queue("a").leaving:
        assert not asking.told
        bench.engine.ticks.end()
        bench.broker.write()
        for waiter, said in bench.engine.ticks.take_confirmed().items():
            waiter.durable(said)
        bench.engine.ticks.begin()
    assert other.told
    bench.run()
    assert asking.told[-1] >= number
    if verb == "acknowledge":
        assert bench.left("a") == {"consumed": 20}
    if verb == "reject":
        assert bench.left("a") == {"dead-lettered": 20}
        assert bench.bodies("DLQ") == BODIES


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("wait", ["ready", "scheduled", "delivering"])
def test_a_queue_with_many_messages_is_gone_before_them(bench: Bench, wait: str) -> None:
    more = {"scheduled": bench.broker.now + 50} if wait == "scheduled" else {"expiration": bench.broker.now + 50}
    bench.sent("a", *BODIES, **more)
    if wait == "delivering":
        bench.take("a", window=-1)
    bench.sent("a", *BODIES)
    bench.enter().delete_queue(bench.queue("a"))
    assert "a" not in bench.engine.queues
    assert bench.engine.usage.messages
    bench.send("a", b"another")
    bench.broker.now += 100  # they are due, or expire, while they leave
    bench.run()
    assert bench.engine.usage.messages == 1
    assert bench.bodies("a") == [b"another"]
    assert not bench.messages("ExpiryQueue")
    left = [account for account in accounts(bench.broker.files, journal_directory(bench.broker.config)).values()]
    assert [reasons(account) for account in left if account.deleted] == [{RemovalReason.DELETED: 40}]
    bench.check()


@pytest.mark.usefixtures("small_steps")
def test_after_a_crash_nothing_of_a_deleted_queue_is_there(bench: Bench) -> None:
    bench.sent("a", *BODIES)
    bench.enter().delete_queue(bench.queue("a"))
    bench.engine.ticks.end()
    bench.broker.write()
    assert bench.engine.ticks.is_working
    again = bench.restart()
    assert "a" not in again.engine.queues
    assert again.engine.usage.messages == 0
    again.check()


@interpreted
@pytest.mark.usefixtures("small_steps")
def test_a_step_that_fails_ends_the_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deliveries are nobody's, and the queue would wait for them for ever."""
    first = held(bench)
    bench.enter().consumers.close(first.consumer, redelivery.CLOSED)

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(redelivery, "_return", fail)
    ended: list[BaseException] = []
    monkeypatch.setattr(bench.broker.tick, "_fatal", ended.append)
    with pytest.raises(ValueError, match="a bug"):
        bench.run()
    assert ended


@pytest.mark.parametrize(("queues", "most"), [(8, 2_048), (16, 1_024), (256, 64), (300, 64)])
def test_a_queue_waits_for_few_messages_of_each_of_many_others(bench: Bench, queues: int, most: int) -> None:
    """300 queues with 2,000 messages each held up the message of another client for 2.5 s."""
    for n in range(queues):
        bench.sent(f"q{n}", *[b"x"] * (most + 9))
    bench.limit_ticks(10**9, least=1)
    bench.enter()
    takers = [bench.attach(Taker(), f"q{n}", window=-1) for n in range(queues)]
    bench.engine.ticks.end()
    assert [len(taker.taken) for taker in takers] == [most] * queues
    bench.engine.ticks.begin()
    bench.run()
    assert [len(taker.taken) for taker in takers] == [most + 9] * queues


def one_tick(bench: Bench) -> None:
    """End one tick, and begin the next."""
    bench.broker.tick.end()
    bench.enter()


def backlogs(bench: Bench, queues: int) -> list[Taker]:
    """Consumers of queues with more messages each than a tick delivers."""
    for number in range(queues):
        bench.sent(f"many.{number}", *[b"m"] * 500)
    bench.limit_ticks(2 * FEW_MESSAGES * DELIVER_COST + 4 * SERVE_COST, least=1)
    return [bench.attach(Taker(), f"many.{number}", window=-1) for number in range(queues)]


def test_a_queue_with_few_messages_does_not_wait_for_many_with_more(bench: Bench) -> None:
    few = bench.take("few")
    busy = backlogs(bench, 20)
    for _ in range(10):
        one_tick(bench)
        assert not few.taken
        bench.send("few", b"m", durable=False)
        before = sum(len(taker.taken) for taker in busy)
        one_tick(bench)
        assert len(few.take()) == 1
        assert sum(len(taker.taken) for taker in busy) > before


def test_queues_with_more_messages_do_not_wait_for_many_with_few(bench: Bench) -> None:
    """As many as fill the budget in each tick; and what is about to join those that wait does not wait for ever."""
    few = [bench.take(f"few.{number}") for number in range(20)]
    joining = bench.take("joining")
    busy = backlogs(bench, 2)
    bench.send("joining", *[b"m"] * (FEW_MESSAGES + 1), durable=False)
    for _ in range(100):
        for number in range(20):
            bench.send(f"few.{number}", b"m", durable=False)
        one_tick(bench)
    assert min(len(taker.taken) for taker in busy) > 50
    assert len(joining.taken) == FEW_MESSAGES + 1
    assert min(len(taker.taken) for taker in few) > 10


def test_a_queue_with_few_messages_that_is_not_reached_waits_for_its_like_alone(bench: Bench) -> None:
    """It waited with the others: for a run of each of hundreds."""
    others = [bench.take(f"few.{number}") for number in range(20)]
    last = bench.take("last")
    busy = backlogs(bench, 100)
    one_tick(bench)
    for number in range(20):
        bench.send(f"few.{number}", b"m", durable=False)
    bench.send("last", b"m", durable=False)
    one_tick(bench)
    assert not last.taken
    for _ in range(20):
        one_tick(bench)
    assert len(last.taken) == 1
    assert [len(taker.taken) for taker in others] == [1] * 20
    assert min(len(taker.taken) for taker in busy) == 0, "those still wait"


class Leaving(Taker):
    """One whose queue goes when it gets a message, as its connection ends over that."""

    bench: Bench

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        super().deliver(consumer, messages)
        self.bench.engine.delete_queue(consumer.queue)


def test_a_queue_may_go_while_it_is_served_of_those_that_were_not_reached(bench: Bench) -> None:
    takers = [bench.attach(Leaving(), f"few.{number}") for number in range(200)]
    bench.limit_ticks(2_000, least=1_000)
    for number, taker in enumerate(takers):
        taker.bench = bench
        bench.send(f"few.{number}", b"m", durable=False)
    bench.engine.ticks.spend(10_000)
    while bench.engine.ticks.has_more:
        one_tick(bench)
    assert [len(taker.taken) for taker in takers] == [1] * 200
    assert not [name for name in bench.engine.queues if name.startswith("few")]
