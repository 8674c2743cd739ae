"""Addresses that form a circle: the message comes to an end, and says why."""

from __future__ import annotations

from broker.engine.moves.move import HOPS_MAX
from broker.engine.moves.transfer import MessageRange
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, notes

A = {"match": "a", "expiry-address": "b", "expiry-delay": 0}
B = {"match": "b", "expiry-address": "a", "expiry-delay": 0}


def expired(bench: Bench) -> int:
    """How often messages expired."""
    return sum(queue.left[RemovalReason.EXPIRED] for queue in bench.engine.queues.values())


def start(*settings: dict[str, object]) -> Bench:
    """A message that expires on `a`, and what comes of that."""
    bench = Bench(*settings)
    bench.sent("b", b"", expiration=bench.broker.now + 1)
    bench.sent("a", b"x", expiration=bench.broker.now + 1)
    bench.broker.advance(600_000)
    return bench


def test_expiry_addresses_that_lead_to_each_other() -> None:
    bench = start(A, B)
    found = bench.messages("DLQ")
    assert {message.body for message in found} == {b"", b"x"}
    for message in found:
        noted = notes(message)
        assert (noted["_AMQ_DL_REASON"], noted["_AMQ_DL_HOPS"]) == ("link-hops", HOPS_MAX + 1)
        assert "form a circle" in str(noted["_AMQ_DL_TEXT"])
    assert expired(bench) == 2 * (HOPS_MAX + 1)
    assert (bench.bodies("a"), bench.bodies("b")) == ([], [])


def test_without_a_dead_letter_address_it_is_killed_by_name() -> None:
    bench = start(A | {"dead-letter-address": ""}, B | {"dead-letter-address": ""})
    assert [told["reason"] for told in bench.broker.reported("message.killed")] == ["link-hops"] * 2
    assert (bench.bodies("a"), bench.bodies("b")) == ([], [])


def test_a_dead_letter_address_in_the_circle() -> None:
    bench = start(A | {"dead-letter-address": "b"}, B | {"dead-letter-address": "a"})
    assert [told["reason"] for told in bench.broker.reported("message.killed")] == ["link-hops"] * 2


def test_the_count_survives_a_restart_and_ends_with_an_operator() -> None:
    slow = {"expiry-delay": 60_000}
    bench = Bench(A | slow, B | slow)
    bench.sent("a", b"x", expiration=bench.broker.now + 60_000)
    for _ in range(10):
        bench.broker.advance(200_000)
        bench = bench.restart()
    (name,) = [name for name in "ab" if name in bench.engine.queues and bench.bodies(name)]
    noted = notes(bench.only(name))
    hops = noted["_AMQ_DL_HOPS"]
    assert isinstance(hops, int)
    assert hops >= 20
    assert hops + 1 == noted["_AMQ_DL_COUNT"]
    bench.enter().messages.move(bench.queue(name), "elsewhere", MessageRange())
    bench.run()
    assert "_AMQ_DL_HOPS" not in notes(bench.only("elsewhere"))


def test_dead_letter_addresses_that_lead_to_each_other() -> None:
    once: dict[str, object] = {"max-delivery-attempts": 1}
    bench = Bench({"match": "a", "dead-letter-address": "b"} | once, {"match": "b", "dead-letter-address": "a"} | once)
    bench.sent("b", b"")
    bench.sent("a", b"x")
    takers = [bench.take("a"), bench.take("b")]
    moves = 0
    for _ in range(3 * HOPS_MAX):
        for taker in takers:
            taken, taker.taken = taker.taken, []
            moves += len(taken)
            if taken:
                bench.nack(taker, *taken)
    assert moves >= 2 * HOPS_MAX
    deaths = len(bench.broker.reported("message.dead_lettered"))
    assert deaths <= 2 * (HOPS_MAX + 1)
    assert len(bench.bodies("a") + bench.bodies("b")) == 2
