"""What becomes of a send: asked without changing anything, then done; what an address does besides routing."""

from __future__ import annotations

import pytest

from broker.daemon.wiring import settings_table
from broker.engine.model.errors import AddressFull
from broker.engine.model.message import INGRESS_TIMESTAMP
from broker.engine.publish.plan import Plan, commit, plan
from broker.engine.queues.room import Admission
from tests.broker.engine.engine_harness import Bench, notes, section
from tests.simulation.world import small


def test_a_plain_address_is_not_handled(bench: Bench) -> None:
    bench.sent("a", b"1")
    assert bench.engine._state.diverts.extras(bench.engine.addresses["a"]) is None


def test_the_time_of_arrival_is_noted() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True})
    bench.sent("a", b"1", b"2")
    bench.sent("b", b"3")
    assert [notes(message)[INGRESS_TIMESTAMP] for message in bench.messages("a")] == [bench.broker.now] * 2
    assert bench.only("b").header.annotations is None


def test_the_time_of_arrival_survives_restart_and_death() -> None:
    bench = Bench({"match": "a", "enable-ingress-timestamp": True, "max-delivery-attempts": 1})
    bench.sent("a", b"1")
    then = bench.broker.now
    bench = bench.restart()
    bench.broker.advance(1_000)
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    assert notes(bench.only("DLQ"))[INGRESS_TIMESTAMP] == then


def test_senders_that_do_not_stop_are_refused_beyond_the_threshold() -> None:
    settings = {"match": "a", "max-size-bytes": 1, "max-size-bytes-reject-threshold": 1_000}
    settings |= {"address-full-policy": "BLOCK"}
    bench = Bench(settings)
    for _ in range(3):
        bench.sent("a", b"x")
    held = bench.bodies("a")
    with pytest.raises(AddressFull, match="address a is full"):
        bench.send("a", b"x")
    bench.run()
    assert bench.bodies("a") == held


def test_a_change_of_settings_takes_effect_at_once(bench: Bench) -> None:
    bench.sent("a", b"1")
    settings = settings_table(small({"match": "a", "enable-ingress-timestamp": True}))
    bench.enter().configuration.change_settings(settings)
    bench.sent("a", b"2")
    assert [message.header.annotations for message in bench.messages("a")] == [
        None,
        {INGRESS_TIMESTAMP: bench.broker.now},
    ]


def busy() -> Bench:
    """Address `a` has two anycast queues; one divert takes red messages for `b`, another copies all to `c`."""
    red = section("a", "b", exclusive=True, filter="colour = 'red'")
    bench = Bench(diverts={"red": red, "every": section("a", "c")})
    for queue, address in (("a1", "a"), ("a2", "a"), ("b", "b"), ("c", "c")):
        bench.declare(queue, address)
    return bench


def planned(bench: Bench, *bodies: bytes, head: bytes = b"") -> tuple[Plan, object]:
    """A plan for messages to `a`, and what the broker counts."""
    send = bench.prepare("a", *bodies, head=head)
    made = plan(bench.engine._state, send, send.messages)
    state = bench.engine._state
    counts = [(each.size_bytes, each.routed, each.dropped) for each in state.addresses.values()]
    taken = [divert.taken for divert in state.diverts.by_name.values()]
    return made, (counts, taken, state.journal.empty, [message.id for message in send.messages])


def test_a_plan_changes_nothing() -> None:
    bench = busy()
    for head in (b"colour:red\n", b"colour:blue\n"):
        made, counted = planned(bench, b"1", b"2", head=head)
        made.discard()
        assert counted == ([(0, 0, 0)] * len(bench.engine.addresses), [0, 0], True, [0, 0])
    bench.run()
    assert [bench.bodies(queue) for queue in ("a1", "a2", "b", "c")] == [[]] * 4


def test_a_plan_is_carried_out() -> None:
    bench = busy()
    send = bench.prepare("a", b"1", b"2", b"3", head=b"colour:blue\n")
    state = bench.engine._state
    made = plan(state, send, send.messages)
    assert [(copy.address.name, copy.reaches_queue) for copy in made.copies()] == [("c", True)] * 3
    assert commit(state, send, made, Admission.OK) == 3
    bench.run()
    assert [bench.bodies(queue) for queue in ("a1", "a2", "b", "c")] == [
        [b"1", b"3"],
        [b"2"],
        [],
        [b"1", b"2", b"3"],
    ]
    ids = [message.id for message in send.messages]
    assert [notes(message)["_AMQ_ORIG_MESSAGE_ID"] for message in bench.messages("c")] == ids
    bench.check()


def test_plans_that_come_to_nothing_take_no_turn_of_a_queue() -> None:
    bench = busy()
    for body in (b"1", b"2", b"3", b"4"):
        made, _ = planned(bench, b"x")
        made.discard()
        tx = bench.begin()  # a commit plans twice
        bench.send("a", body, tx=tx)
        bench.commit(tx)
    assert (bench.bodies("a1"), bench.bodies("a2")) == ([b"1", b"3"], [b"2", b"4"])


def test_a_refused_message_takes_no_charge_of_the_others_with_it() -> None:
    """The first message of a run counts what all of them share."""
    bench = Bench()
    bench.declare("q", "a", selector="colour = 'blue'")
    send = bench.prepare("a", b"1", b"2", expiration=bench.broker.now + 1_000)
    for message, colour in zip(send.messages, (b"red", b"blue"), strict=True):
        message.head = b"colour:%s\n" % colour
    shared = send.messages[0].header_bytes
    assert shared > send.messages[1].header_bytes
    result = bench.engine.producers.publish([send])
    assert [refusal.messages for refusal in result.refusals] == [send.messages[:1]]
    bench.run()
    assert bench.only("q").header_bytes == shared
    bench.check()
