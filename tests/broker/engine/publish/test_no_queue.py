"""A durable message that is meant for a queue and finds none is refused, or a dead letter where its address says so."""

from __future__ import annotations

import pytest

from broker.config.diverts import DivertSection
from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.errors import AddressFull, NoQueue
from broker.engine.model.message import RoutingType
from tests.broker.engine.engine_harness import Bench, notes, section
from tests.support.bodies import body_of

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def closed(*settings: dict[str, object]) -> Bench:
    """A broker whose queue `a` is disabled."""
    bench = Bench(*settings)
    bench.sent("a", b"0")
    bench.change("a", enabled=False)
    return bench


def dead(bench: Bench, name: str = "DLQ") -> list[tuple[bytes, object]]:
    """What is on a dead-letter queue: the bodies, and why."""
    return [(body_of(message), notes(message)["_AMQ_DL_REASON"]) for message in bench.messages(name)]


@pytest.mark.parametrize("routing_type", [ANYCAST, None])
@pytest.mark.parametrize("destination", ["a", "a::a"])
def test_a_disabled_queue_refuses_and_nothing_changes(destination: str, routing_type: RoutingType | None) -> None:
    bench = closed()
    with pytest.raises(NoQueue, match="queue a of address a is disabled"):
        bench.send(destination, b"1", routing_type=routing_type)
    bench.run()
    assert bench.bodies("a") == [b"0"]
    assert bench.engine.addresses["a"].unrouted == 0


def test_a_send_that_no_dead_letter_queue_takes_either_is_refused() -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True, "dead-letter-address": "D"})
    home = bench.enter().configuration.declare("D", {ANYCAST})
    bench.engine.configuration.declare_queue(home, "D", ANYCAST, durable=True, selector="FALSE")
    bench.run()
    with pytest.raises(NoQueue, match="queue a of address a is disabled"):
        bench.send("a", b"1", routing_type=ANYCAST)
    bench.run()
    bench.sent("a", b"2", durable=False)
    assert bench.engine.addresses["a"].unrouted == 1, "what may be lost is counted"
    assert not bench.broker.reported("message.no_route")
    assert bench.bodies("D") == []


def test_non_durable_messages_may_be_lost() -> None:
    bench = closed()
    bench.sent("a", b"1", durable=False)
    assert bench.engine.addresses["a"].unrouted == 1


def test_a_multicast_message_without_subscribers_is_unroutable(bench: Bench) -> None:
    bench.take("t", MULTICAST, selector="k = 'v'")
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.engine.addresses["t"].unrouted == 1


def test_a_queue_that_forgets_without_consumers_loses_on_purpose() -> None:
    bench = Bench({"match": "a", "default-purge-on-no-consumers": True})
    bench.sent("a", b"1")
    assert bench.engine.addresses["a"].unrouted == 1


def test_a_filter_that_fits_nothing_refuses_those_alone(bench: Bench) -> None:
    bench.declare("a", selector="AMQSize > 1000")
    send = bench.prepare("a", b"x" * 2_000, b"small", b"y" * 2_000, b"little", b"z" * 2_000)
    result = bench.engine.producers.publish([send])
    assert [refusal.messages for refusal in result.refusals] == [[send.messages[1], send.messages[3]]]
    with pytest.raises(NoQueue, match="no queue of address a has a filter that matches it"):
        result.check()
    bench.run()
    assert bench.bodies("a") == [b"x" * 2_000, b"y" * 2_000, b"z" * 2_000]


def test_nothing_behind_the_first_refusal_if_it_is_to_stop_there(bench: Bench) -> None:
    bench.declare("a", selector="AMQSize > 1000")
    send = bench.prepare("a", b"x" * 2_000, b"small", b"y" * 2_000)
    result = bench.engine.producers.publish([send], stop=True)
    assert [refusal.messages for refusal in result.refusals] == [send.messages[1:]]
    bench.run()
    assert bench.bodies("a") == [b"x" * 2_000]


def test_of_a_run_that_fills_the_address_those_that_no_queue_takes() -> None:
    bench = Bench({"match": "a", "max-size-messages": 3, "address-full-policy": "FAIL"})
    bench.declare("a", selector="AMQSize > 1000")
    send = bench.prepare("a", *[b"%d" % n * (2_000 if n != 1 else 1) for n in range(5)])
    result = bench.engine.producers.publish([send])
    assert [(type(refusal.error), refusal.messages) for refusal in result.refusals] == [
        (NoQueue, [send.messages[1]]),
        (AddressFull, [send.messages[4]]),
    ]
    bench.run()
    assert [body[:1] for body in bench.bodies("a")] == [b"0", b"2", b"3"]


def test_duplicates_do_not_shift_the_places(bench: Bench) -> None:
    bench.declare("a", selector="AMQSize > 1000")
    bench.sent("a", b"x" * 2_000, head=b"_AMQ_DUPL_ID:1\n")
    send = bench.prepare("a", b"x", b"small")
    send.messages[0].head = b"_AMQ_DUPL_ID:1\n"
    result = bench.engine.producers.publish([send])
    assert [refusal.messages for refusal in result.refusals] == [send.messages[1:]]
    bench.run()
    assert bench.engine._state.duplicates.refused == 1


@pytest.mark.parametrize("name", ["a", "a::a"])
def test_where_the_address_says_so_they_are_dead_letters(name: str) -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True})
    bench.sent(name, b"1", b"2")
    assert dead(bench) == [(b"1", "put-disabled"), (b"2", "put-disabled")]
    assert dead(bench.restart()) == [(b"1", "put-disabled"), (b"2", "put-disabled")]


def test_one_disabled_queue_among_others_is_not_why_no_queue_takes_them() -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True})
    bench.declare("other", "a", selector="AMQSize > 1000")
    bench.sent("a", b"1")
    assert dead(bench) == [(b"1", "no-route")]
    bench.change("other", enabled=False)
    bench.sent("a", b"2")
    assert dead(bench) == [(b"1", "no-route"), (b"2", "put-disabled")]


def test_dead_letters_on_a_queue_made_for_them() -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True, "auto-create-dead-letter-resources": True})
    bench.sent("a", b"1")
    assert dead(bench, "DLQ.a") == [(b"1", "put-disabled")]


def test_a_dead_letter_queue_that_is_disabled_too_refuses() -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True})
    bench.sent("a", b"1")
    bench.change("DLQ", enabled=False)
    with pytest.raises(NoQueue):
        bench.send("a", b"2")
    bench.run()
    assert dead(bench) == [(b"1", "put-disabled")]


def test_without_a_dead_letter_address_they_are_refused() -> None:
    bench = closed({"match": "a", "send-to-dla-on-no-route": True, "dead-letter-address": ""})
    with pytest.raises(NoQueue):
        bench.send("a", b"1")


def test_a_commit_is_refused_as_a_whole() -> None:
    bench = closed()
    bench.sent("b", b"0")
    tx = bench.begin()
    bench.send("b", b"1", tx=tx)
    bench.send("a", b"2", tx=tx)
    with pytest.raises(NoQueue):
        bench.engine.transactions.commit(tx)
    bench.engine.transactions.rollback(tx)
    bench.run()
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"0"], [b"0"])


def test_mixed_messages_do_not_take_each_other_with_them() -> None:
    bench = closed()
    for name in ("b", "c"):
        bench.declare(name)
    bench.declare("all", "#", routing_type=MULTICAST, selector="AMQSize > 1000")
    # They could meet on the wildcard queue.
    sends = [bench.prepare(name, *[b"%s%d" % (name.encode(), n) for n in (1, 2)], routing_type=None) for name in "bac"]
    arrived = [send.messages[n] for n in (0, 1) for send in sends]
    result = bench.engine.producers.publish(sends, arrived)
    assert [refusal.messages for refusal in result.refusals] == [[message] for message in sends[1].messages]
    bench.run()
    assert (bench.bodies("a"), bench.bodies("b"), bench.bodies("c")) == ([b"0"], [b"b1", b"b2"], [b"c1", b"c2"])


def test_a_deleted_queue_refuses(bench: Bench) -> None:
    bench.sent("a", b"0")
    send = bench.prepare("a::a", b"1")
    bench.engine.delete_queue(bench.queue("a"))
    with pytest.raises(NoQueue, match="address a has no queue for it"):
        bench.engine.producers.publish([send]).check()


def test_a_queue_that_cannot_be_created_refuses() -> None:
    bench = Bench({"match": "a", "auto-create-queues": False})
    with pytest.raises(NoQueue, match="auto-create-queues is off"):
        bench.send("a", b"1")


def diverted(*settings: dict[str, object], **sections: DivertSection) -> Bench:
    bench = Bench(*settings, diverts=sections)
    for name in ("a", "b", "c"):
        bench.declare(name)
    return bench


def test_an_exclusive_divert_to_a_disabled_queue_leaves_the_message_to_its_own_queue() -> None:
    bench = diverted(d=section("a", "b", exclusive=True))
    bench.change("b", enabled=False)
    bench.sent("a", b"1")
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [])
    bench.change("a", enabled=False)
    with pytest.raises(NoQueue):
        bench.send("a", b"2")


def test_an_exclusive_divert_that_takes_needs_no_other_queue() -> None:
    bench = diverted(d=section("a", "b", exclusive=True))
    bench.change("a", enabled=False)
    bench.sent("a", b"1", b"2")
    assert (bench.bodies("a"), bench.bodies("b")) == ([], [b"1", b"2"])


def test_a_chain_of_diverts_to_nowhere_takes_nothing() -> None:
    bench = diverted(d=section("a", "b", exclusive=True), e=section("b", "c", exclusive=True))
    bench.change("b", enabled=False)
    bench.change("c", enabled=False)
    bench.sent("a", b"1")
    assert (bench.bodies("a"), bench.bodies("b"), bench.bodies("c")) == ([b"1"], [], [])


def test_a_copy_of_a_divert_that_finds_no_queue_takes_nothing_with_it() -> None:
    bench = diverted(d=section("a", "b"))
    bench.change("b", enabled=False)
    bench.sent("a", b"1")
    assert (bench.bodies("a"), bench.bodies("b")) == ([b"1"], [])
    assert bench.engine.addresses["b"].unrouted == 1


def test_dead_and_expired_messages_wait_for_a_disabled_target() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 1}, {"match": "e", "expiry-address": "DLQ"})
    bench.sent("a", b"first")
    bench.sent("e", b"late", expiration=bench.broker.now + 5_000)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    bench.close(taker, CLOSED)
    bench.sent("a", b"1")
    bench.change("DLQ", enabled=False)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    bench.close(taker, CLOSED)
    bench.broker.advance(60_000)
    assert (bench.bodies("a"), bench.bodies("e")) == ([b"1"], [b"late"])
    bench.change("DLQ", enabled=True)
    bench.broker.advance(60_000)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    assert sorted(bench.bodies("DLQ")) == [b"1", b"first", b"late"]
