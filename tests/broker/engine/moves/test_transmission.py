"""Transmission queues, from where messages go to another broker: their messages are still on the address that they were
sent to, which says what becomes of those that expire or die.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from random import Random

import pytest

from broker.engine.model.errors import AddressFull, OntoItself
from broker.engine.model.message import RoutingType
from broker.engine.moves import transfer
from broker.engine.moves.move import Destination
from broker.engine.moves.transfer import MessageRange
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Producing, notes, section
from tests.simulation.world import check_accounts, check_counters, reasons
from tests.support.bodies import body_of
from tests.support.rules import sections

#: A remote queue, whose settings are not those of the queue where its messages wait.
X = {"match": "x", "dead-letter-address": "x.dead", "expiry-address": "x.late", "max-delivery-attempts": 2}
OUT = {"match": "out", "dead-letter-address": "out.dead", "expiry-address": "out.late", "max-delivery-attempts": 1}


def linked(bench: Bench) -> Bench:
    """As the configuration declares it when a broker starts."""
    bench.enter().configuration.set_transmission_queues({"out"})
    bench.run()
    return bench


def started(*settings: dict[str, object], remote: str = "xy") -> Bench:
    """A broker with remote queues, whose messages wait on one transmission queue."""
    bench = linked(Bench(*settings, diverts={name: section(name, "out", exclusive=True) for name in remote}))
    bench.sent("out", b"first")
    return bench


@pytest.mark.parametrize("restart", [False, True])
def test_a_message_for_a_remote_queue_waits_as_it_is(restart: bool) -> None:
    bench = started(X, OUT)
    bench.sent("x", b"1", b"2", head=b"colour:red\n", priority=7, expiration=bench.broker.now + 9_000)
    if restart:
        bench = linked(bench.restart())
    *messages, _ = bench.messages("out")
    assert [body_of(each) for each in messages] == [b"1", b"2"]
    for each in messages:
        assert (each.header.address, each.header.annotations, each.header.priority) == ("x", None, 7)
        assert each.head == b"colour:red\n"
    usage = bench.engine.addresses["x"]
    assert (usage.size_messages, usage.routed if not restart else 2) == (2, 2)
    taker = bench.take("out", selector="AMQAddress = 'x'")
    bench.ack(taker, *taker.taken)
    assert (usage.size_messages, usage.size_bytes) == (0, 0)
    assert bench.bodies("out") == [b"first"]


def test_a_dead_message_goes_where_the_remote_queue_says() -> None:
    bench = started(X, OUT)
    bench.sent("x", b"rejected", b"failed")
    taker = bench.take("out")
    first, rejected, failed = taker.taken
    bench.nack(taker, rejected, first, requeue=False)
    bench.nack(taker, failed)  # its second attempt is allowed, whatever the transmission queue's address says
    assert bench.bodies("x.dead") == [b"rejected"]
    bench.nack(taker, failed)
    assert bench.bodies("x.dead") == [b"rejected", b"failed"]
    assert bench.bodies("out.dead") == [b"first"]
    noted = notes(bench.messages("x.dead")[0])
    assert [noted[f"_AMQ_{name}"] for name in ("ORIG_ADDRESS", "ORIG_QUEUE", "DL_FIRST_ADDRESS")] == ["x", "out", "x"]


def test_an_expired_message_goes_where_the_remote_queue_says() -> None:
    bench = started(X, OUT)
    bench.sent("x", b"1", expiration=bench.broker.now + 1_000)
    bench.sent("out", b"2", expiration=bench.broker.now + 1_000)
    bench.broker.advance(60_000)
    assert (bench.bodies("x.late"), bench.bodies("out.late")) == ([b"1"], [b"2"])


def test_a_remote_queue_without_a_dead_letter_address() -> None:
    bench = started({"match": "x", "dead-letter-address": "", "max-delivery-attempts": 1}, OUT)
    bench.sent("x", b"1")
    taker = bench.take("out")
    first, mine = taker.taken
    queue = bench.queue("out")
    assert (bench.engine.messages.may_die(queue, first), bench.engine.messages.may_die(queue, mine)) == (True, False)
    bench.nack(taker, mine)
    assert queue.left[RemovalReason.KILLED] == 1


def test_messages_that_may_die() -> None:
    """A dead-letter address that is there, is another, and takes the message."""
    bench = Bench({"match": "a", "dead-letter-address": "b"}, {"match": "b", "dead-letter-address": "b"})
    (on_a,) = bench.sent("a", b"1")
    (on_b,) = bench.sent("b", b"1")
    messages = bench.engine.messages
    assert messages.may_die(bench.queue("a"), on_a)
    assert not messages.may_die(bench.queue("b"), on_b)


def test_a_dead_letter_queue_of_its_own_is_named_for_the_remote_queue() -> None:
    bench = started({"match": "x", "auto-create-dead-letter-resources": True}, OUT)
    bench.sent("x", b"1")
    taker = bench.take("out")
    bench.nack(taker, taker.taken[1], requeue=False)
    assert bench.bodies("DLQ.x") == [b"1"]


def test_a_dead_letter_that_is_retried_waits_for_its_link_again() -> None:
    """And it is still the remote queue's: who reads these only gets it."""
    bench = started(X, OUT)
    bench.sent("x", b"1")
    taker = bench.take("out", selector="AMQAddress = 'x'")
    bench.nack(taker, *taker.taken, requeue=False)
    taker.taken.clear()
    engine = bench.enter()
    step = engine.messages.retry(bench.queue("x.dead"), MessageRange())
    bench.run()
    assert (step.moved, step.refused) == (1, {})
    assert [body_of(each) for each in taker.taken] == [b"1"]
    bench.nack(taker, *taker.taken, requeue=False)
    assert bench.bodies("x.dead") == [b"1"]


@pytest.mark.parametrize("policy", ["FAIL", "DROP", "BLOCK", "PAGE"])
def test_a_remote_queue_is_full_by_its_own_limit(policy: str) -> None:
    bench = started({"match": "x", "max-size-messages": 2, "address-full-policy": policy}, OUT)
    producer = Producing()
    bench.sent("x", b"0")
    for number in range(1, 4):
        engine = bench.enter()
        if engine.producers.wait_for_room(engine.addresses["x"], producer):
            break
        with suppress(*[AddressFull] if policy == "FAIL" else []):
            bench.send("x", b"%d" % number)
        bench.run()
    expected = {"FAIL": 2, "DROP": 2, "BLOCK": 2, "PAGE": 4}[policy]
    assert len(bench.bodies("out")) == 1 + expected
    bench.sent("y", b"y")
    assert bench.bodies("out")[-1] == b"y", "others go on"
    bench = linked(bench.restart())
    taker = bench.take("out")
    bench.ack(taker, *taker.taken)
    assert bench.engine.usage.bytes == 0
    check_counters(bench.broker)


def test_a_transaction_sends_to_several_remote_queues() -> None:
    bench = started(X, OUT)
    tx = bench.begin()
    for number in range(4):
        bench.send("xy"[number % 2], b"%d" % number, tx=tx)
    assert bench.bodies("out") == [b"first"]
    bench.commit(tx)
    messages = linked(bench.restart()).messages("out")
    assert [(each.header.address, body_of(each)) for each in messages[1:]] == [
        ("x", b"0"),
        ("y", b"1"),
        ("x", b"2"),
        ("y", b"3"),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_every_message_is_where_a_list_would_have_it(seed: int) -> None:
    """Sent to two remote queues and to the transmission queue itself; consumed, rejected, failed, expired; restarts."""
    print("seed", seed)
    random = Random(seed)
    y = {"match": "y", "dead-letter-address": "y.dead", "expiry-address": "", "max-delivery-attempts": 3}
    bench = started(X, y, OUT)
    limits = {"x": 2, "y": 3, "out": 1}
    late = {"x": "x.late", "out": "out.late"}
    waiting: dict[bytes, tuple[str, int, int]] = {b"first": ("out", 0, 0)}  # address, failures, expiration
    places: defaultdict[str, list[bytes]] = defaultdict(list)
    taker = bench.take("out", counted=True)
    for number in range(120):
        what = random.choice(["send", "send", "send", "take", "restart", "advance"])
        if what == "send":
            address = random.choice(["x", "y", "out"])
            run = [b"%d.%d" % (number, at) for at in range(random.randrange(1, 4))]
            expiration = bench.broker.now + random.randrange(1, 20_000) if random.random() < 0.4 else 0
            bench.sent(address, *run, expiration=expiration)
            waiting |= {body: (address, 0, expiration) for body in run}
        elif what == "take" and waiting:
            bench.grant(taker, 1)
            message = taker.taken[-1]
            body = body_of(message)
            address, failures, expiration = waiting.pop(body)
            outcome = random.choice(["ack", "reject", "fail"])
            if outcome == "ack":
                bench.ack(taker, message)
                continue
            bench.nack(taker, message, requeue=outcome == "fail")
            if outcome == "reject" or failures + 1 >= limits[address]:
                places[f"{address}.dead"].append(body)
            else:
                waiting[body] = address, failures + 1, expiration
        elif what == "restart":
            bench = linked(bench.restart(crash=random.random() < 0.5))
            taker = bench.take("out", counted=True)
        else:
            bench.broker.advance(random.randrange(1, 40_000))
        there = bench.bodies("out")
        for body, (address, _, expiration) in list(waiting.items()):
            if expiration and body not in there:
                assert expiration <= bench.broker.now
                del waiting[body]
                if address in late:
                    places[late[address]].append(body)
        assert Counter(there) == Counter(waiting.keys())
        for name, bodies in places.items():
            assert not bodies or Counter(bench.bodies(name)) == Counter(bodies)
    bench.broker.advance(100_000)
    assert {*bench.bodies("out")} == {body for body, (_, _, expiration) in waiting.items() if not expiration}
    check_counters(bench.broker)
    ways = reasons(check_accounts(bench.broker)["out"])
    assert ways.keys() <= {RemovalReason.CONSUMED, RemovalReason.DEAD_LETTERED, RemovalReason.EXPIRED}


@pytest.mark.parametrize("rule", [None, {"action": "move", "to": "x"}, {"action": "reply"}])
def test_a_message_moved_to_a_remote_queue_waits_for_the_link(rule: dict[str, object] | None) -> None:
    rules = sections(*[rule] if rule else [])
    diverts = {"x": section("x", "out", exclusive=True)}
    bench = linked(Bench(X, OUT, diverts=diverts, dead_letter_rules=rules))
    bench.declare("out")
    bench.enter().configuration.declare("x", {RoutingType.ANYCAST})
    bench.die("a", b"1", head=b"reply-to:x\n")
    if rule is None:
        check = transfer.destination(bench.engine._state, "x", bench.queue("DLQ"), create=False)
        assert isinstance(check, Destination)
        assert [queue.name for queue in check.targets[0]] == ["out"]
        bench.enter().messages.move(bench.queue("DLQ"), "x", MessageRange())
        bench.run()
    message = bench.only("out")
    assert (message.header.address, notes(message)["_AMQ_ORIG_QUEUE"]) == ("x", "DLQ")
    assert "x" not in bench.engine.queues, "nothing stays on the address itself"
    with pytest.raises(OntoItself):
        bench.enter().messages.move(bench.queue("out"), "x", MessageRange())
    bench.check()
