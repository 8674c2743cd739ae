"""The rules for dead letters at work on a broker: when, how often, and what becomes of each message."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import rules_of
from broker.config.security import SecuritySetting
from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.moves import rule_runs
from broker.engine.moves.dead_letter_rules import Action
from broker.engine.moves.move import HOPS_MAX
from broker.engine.moves.rule_runs import EXAMPLES_MAX, HELD_AGAIN_MS, REFUSED_AGAIN_MS, Trial, Verdict
from broker.engine.operators.administration import NewQueue
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, entries_with, fill, notes
from tests.simulation.random_work import PAGING
from tests.simulation.world import check_accounts, check_counters, reasons, small
from tests.support.rules import sections
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_files import SimFiles

RETRY: dict[str, object] = {"action": "retry", "every": 1000, "at-most": 2}
REPLY: dict[str, object] = {"action": "reply"}
PARK: dict[str, object] = {"action": "move", "to": "parking"}


def bench(*rules: dict[str, object], settings: tuple[dict[str, object], ...] = (), **more: Any) -> Bench:
    """An engine with rules."""
    return Bench(*settings, dead_letter_rules=sections(*rules), **more)


def change(bench: Bench, *rules: dict[str, object]) -> None:
    """Other rules from now on."""
    bench.enter().dead_letter_rules.use(rules_of(configured(dead_letter_rules=sections(*rules))))
    bench.run()


def reject(bench: Bench, name: str) -> None:
    """Whatever lies on a queue is rejected for good."""
    taker = bench.take(name)
    while taker.taken:
        taken, taker.taken = taker.taken, []
        bench.nack(taker, *taken, requeue=False)
    bench.close(taker, redelivery.CLOSED)


def done(bench: Bench) -> dict[str, dict[str, int]]:
    """What rules did."""
    return {name: dict(counts) for name, counts in bench.engine.dead_letter_rules.done.items() if counts}


# -- retry -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_a_retry_comes_every_so_often_and_so_many_times_across_restarts(crash: bool) -> None:
    b = bench(RETRY, PARK)
    b.die("a", b"x")
    for trip in (1, 2):
        b.broker.advance(999)
        assert (b.bodies("DLQ"), b.bodies("a")) == ([b"x"], [])
        b.broker.advance(1)
        assert (b.bodies("DLQ"), b.bodies("a")) == ([], [b"x"])
        carried = notes(b.only("a"))
        assert (carried["_AMQ_DL_RETRIES"], carried["_AMQ_DL_RULE"]) == (trip, "retry-1")
        b = b.restart(crash=crash)
        assert notes(b.only("a"))["_AMQ_DL_RETRIES"] == trip
        reject(b, "a")
    b.broker.advance(1000)
    assert (b.bodies("DLQ"), b.bodies("a"), b.bodies("parking")) == ([], [], [b"x"])
    assert notes(b.only("parking"))["_AMQ_DL_COUNT"] == 3
    assert done(b) == {"move-2": {"moved": 1}}
    b.broker.advance(10_000_000)
    assert b.bodies("parking") == [b"x"]
    b.check()


def test_an_operator_ends_the_count() -> None:
    b = bench(RETRY | {"at-most": 1})
    b.die("a", b"x")
    b.broker.advance(1000)
    reject(b, "a")
    b.broker.advance(5000)
    assert b.bodies("DLQ") == [b"x"]
    b.retry("DLQ")
    assert "_AMQ_DL_RETRIES" not in notes(b.only("a"))
    reject(b, "a")
    b.broker.advance(1000)
    assert b.bodies("a") == [b"x"]


def test_refused_attempts_count_and_then_the_next_rule_decides() -> None:
    b = bench(RETRY | {"at-most": 3}, PARK)
    b.die("a", b"x", b"y")
    b.change("a", enabled=False)
    b.broker.advance(2999)
    assert b.bodies("DLQ") == [b"x", b"y"]
    assert done(b) == {"retry-1": {"refused": 4}}
    assert b.broker.reported("rule.refused")[0]["reason"] == "no-queue"
    b.broker.advance(2)
    assert b.bodies("parking") == [b"x", b"y"]
    assert done(b) == {"retry-1": {"refused": 6}, "move-2": {"moved": 2}}
    b.check()


def test_a_refused_attempt_does_not_hinder_the_next() -> None:
    b = bench(RETRY)
    b.die("a", b"x")
    b.change("a", enabled=False)
    b.broker.advance(1000)
    b.change("a", enabled=True)
    assert b.bodies("a") == []
    b.broker.advance(1000)
    assert b.bodies("a") == [b"x"]


# -- the other actions -------------------------------------------------------------------------------------------------


def test_discarded_messages_leave_by_name() -> None:
    b = bench({"action": "discard", "reasons": ["rejected"], "min-age": 5000})
    b.die("a", b"x", b"y")
    b.broker.advance(4999)
    assert b.bodies("DLQ") == [b"x", b"y"]
    b.broker.advance(1)
    assert b.bodies("DLQ") == []
    assert b.queue("DLQ").left[RemovalReason.DISCARDED] == 2
    assert reasons(check_accounts(b.broker)["DLQ"]) == {RemovalReason.DISCARDED: 2}
    ((applied),) = b.broker.reported("rule.applied")
    assert (applied["rule"], applied["action"], applied["queue"], applied["messages"]) == (
        "discard-1",
        "discard",
        "DLQ",
        2,
    )
    b.check()


def test_a_move_is_one_entry_and_goes_at_once() -> None:
    b = bench(PARK | {"origin-address": "orders.#"})
    b.die("orders.eu", b"x")
    b.die("other", b"y")
    assert (b.bodies("parking"), b.bodies("DLQ")) == ([b"x"], [b"y"])
    assert notes(b.only("parking"))["_AMQ_DL_RULE"] == "move-1"
    entries = entries_with(b, "REMOVED")
    assert [entry.count("MESSAGE") for entry in entries] == [1, 1, 1], "two deaths and a move"
    b.check()


@pytest.mark.parametrize("reply_to", ["/queue/answers", "answers", "answers::answers"])
def test_a_reply_goes_where_its_sender_wants_answers(reply_to: str) -> None:
    b = bench(REPLY, PARK)
    b.die("a", b"x", head=f"reply-to:{reply_to}\n".encode().replace(b"::", b"\\c\\c"))
    b.die("a", b"y")
    assert (b.bodies("answers"), b.bodies("parking")) == ([b"x"], [b"y"]), "y wants no answer: the next rule decides"
    found = notes(b.only("answers"))
    assert (found["_AMQ_DL_RULE"], found["_AMQ_DL_REASON"], found["_AMQ_ORIG_QUEUE"]) == ("reply-1", "rejected", "DLQ")
    assert done(b) == {"reply-1": {"moved": 1}, "move-2": {"moved": 1}}
    b.check()


def test_a_reply_to_a_topic_goes_to_its_subscriptions() -> None:
    b = bench(REPLY)
    b.die("a", b"x", head=b"reply-to:/topic/answers\n")
    assert b.bodies("DLQ") == [b"x"]
    assert "answers" not in b.engine.queues, "no queue is created for a topic"
    b.declare("s", "answers", routing_type=RoutingType.MULTICAST)
    b.broker.advance(REFUSED_AGAIN_MS)
    assert (b.bodies("DLQ"), b.bodies("s")) == ([], [b"x"])


@pytest.mark.parametrize(
    ("reply_to", "reason"),
    [
        ("/queue/DLQ", "onto-itself"),
        ("DLQ", "onto-itself"),
        ("/topic/nobody", "no-queue"),
        ("orders.#", "no-queue"),
        ("temporary-11111111-1111-4111-8111-111111111111", "no-queue"),
    ],
)
def test_a_reply_that_cannot_be_sent_stays(reply_to: str, reason: str) -> None:
    b = bench(REPLY)
    b.declare("DLQ")
    b.declare("a")
    before = set(b.engine.queues)
    b.die("a", b"x", head=f"reply-to:{reply_to}\n".encode())
    assert b.bodies("DLQ") == [b"x"]
    assert [refused["reason"] for refused in b.broker.reported("rule.refused")] == [reason]
    assert set(b.engine.queues) == before
    b.check()


@pytest.mark.parametrize("before", [{"mallory": frozenset({"amq"})}, {}])
def test_a_reply_needs_the_permission_of_its_sender(before: dict[str, frozenset[str]]) -> None:
    """Else a sender could reach by a message that dies what it may not send to.  Who is known by tokens has none."""
    settings = {"#": {"consume": ["amq"]}, "vault": {"send": ["chiefs"]}}
    sections = [SecuritySetting.model_validate({"match": match, **rights}) for match, rights in settings.items()]
    b = bench(REPLY, security_settings=sections)
    roles = dict(before)
    b.engine.security.roles_of = roles.get
    b.declare("vault")
    b.die("a", b"x", head=b"reply-to:vault\n", user="mallory")
    assert b.bodies("DLQ") == [b"x"]
    assert [refused["reason"] for refused in b.broker.reported("rule.refused")] == ["denied"]
    assert b.broker.reported("access.denied") == [], "once a minute would fill the audit log"
    roles["mallory"] = frozenset({"chiefs"})
    b.broker.advance(REFUSED_AGAIN_MS)
    assert b.bodies("vault") == [b"x"]


def test_replies_in_a_circle_come_to_an_end() -> None:
    b = bench(REPLY, settings=({"match": "one", "dead-letter-address": "two"}, {"match": "two"}))
    b.die("one", b"x", head=b"reply-to:one\n")
    for _ in range(HOPS_MAX + 5):
        reject(b, "one")
    assert b.bodies("two") == [b"x"]
    assert b.broker.reported("rule.refused")[0]["reason"] == "link-hops"


def test_messages_left_by_a_rule_stay_whatever_follows() -> None:
    b = bench({"action": "leave", "selector": "colour = 'red'"}, {"action": "discard", "min-age": 1})
    b.die("a", b"x")
    b.broker.advance(1)
    assert b.bodies("DLQ") == []


def test_a_rule_that_comes_later_takes_over_from_one_that_waits() -> None:
    b = bench({"action": "discard", "min-age": 2500}, {"action": "retry", "every": 1000, "at-most": 5})
    b.die("a", b"x")
    b.change("a", enabled=False)
    b.broker.advance(2499)
    assert b.bodies("DLQ") == [b"x"]
    b.broker.advance(1)
    assert b.bodies("DLQ") == []


def test_a_move_that_is_refused_is_tried_again() -> None:
    b = bench(PARK, settings=({"match": "parking", "auto-create-queues": False, "auto-create-addresses": False},))
    b.die("a", b"x")
    assert b.bodies("DLQ") == [b"x"]
    assert [refused["reason"] for refused in b.broker.reported("rule.refused")] == ["not-found"]
    b.enter().operators.make_queue(NewQueue("parking", routing_type=RoutingType.ANYCAST, make_address=True))
    b.run()
    b.broker.advance(REFUSED_AGAIN_MS)
    assert b.bodies("parking") == [b"x"]


def test_without_room_on_the_disk_messages_stay_and_go_later() -> None:
    b = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=120 << 10)))
    b.die("a", *[b"%03d" % n * 200 for n in range(30)])
    ballast = fill(b, "other")
    change(b, PARK)
    refused = b.broker.reported("rule.refused")[0]
    assert refused["reason"] == "disk-full"
    assert b.queue("DLQ").message_count == refused["messages"]
    check_counters(b.broker)
    b.ack(b.take("other"), *ballast)
    b.broker.advance(3 * REFUSED_AGAIN_MS)  # what moves first makes room for the rest
    assert (b.bodies("DLQ"), len(b.bodies("parking"))) == ([], 30)
    assert b.broker.failure is None
    assert len(b.restart().bodies("parking")) == 30


def test_rules_that_lead_in_a_circle_come_to_an_end() -> None:
    b = bench(
        {"action": "move", "queue": "DLQ", "to": "DLQ2"},
        {"action": "move", "queue": "DLQ2", "to": "DLQ"},
        settings=({"match": "b", "dead-letter-address": "DLQ2"},),
    )
    b.die("a", b"x")
    assert sorted(b.bodies("DLQ") + b.bodies("DLQ2")) == [b"x"]
    assert sum(counts.get("moved", 0) for counts in done(b).values()) == HOPS_MAX
    assert b.broker.reported("rule.refused")[0]["reason"] == "link-hops"
    b.check()


# -- which queues ------------------------------------------------------------------------------------------------------


def test_expired_messages_and_queues_made_for_each_address() -> None:
    made = {"auto-create-dead-letter-resources": True, "auto-create-expiry-resources": True}
    b = bench(PARK, settings=({"match": "a", "dead-letter-address": "dead", "expiry-address": "late", **made},))
    b.sent("a", b"old", expiration=b.broker.now + 10)
    b.die("a", b"x")
    b.broker.advance(60_000)
    assert sorted(b.bodies("parking")) == [b"old", b"x"]


def test_copies_for_subscribers_are_not_brought_back_too() -> None:
    b = bench(RETRY, settings=({"match": "a", "auto-create-dead-letter-resources": True},))
    b.die("a", b"x")
    assert (b.bodies("DLQ"), b.bodies("DLQ.a")) == ([b"x"], [b"x"])
    b.broker.advance(1000)
    assert (b.bodies("a"), b.bodies("DLQ"), b.bodies("DLQ.a")) == ([b"x"], [], [b"x"])
    change(b, {"action": "discard", "queue": "DLQ.a"})
    assert b.bodies("DLQ.a") == []


def test_other_queues_are_left_alone() -> None:
    b = bench(RETRY | {"at-most": 1})
    b.sent("DLQ", b"sent there")
    b.die("a", b"x")
    b.broker.advance(1000)
    assert (b.bodies("a"), b.bodies("DLQ")) == ([b"x"], [b"sent there"])
    b.broker.advance(100_000)
    assert b.bodies("a") == [b"x"], "a dead letter no longer, though it carries why it died"


def test_a_queue_that_keeps_its_messages_is_left_alone() -> None:
    b = bench()
    b.change("DLQ", non_destructive=True)
    b.die("a", b"x")
    change(b, PARK)
    b.broker.advance(1000)
    assert b.bodies("DLQ") == [b"x"]


def test_settings_that_name_another_address_count_from_then_on() -> None:
    b = bench(PARK)
    b.die("a", b"x")
    assert b.bodies("parking") == [b"x"]
    change(b)
    b.die("a", b"y")
    assert b.bodies("DLQ") == [b"y"]
    change(b, PARK)
    assert b.bodies("parking") == [b"x", b"y"]


# -- consumers, paging, many -------------------------------------------------------------------------------------------


def test_consumers_get_what_rules_have_left() -> None:
    b = bench(PARK | {"reasons": ["rejected"]})
    taker = b.take("DLQ")
    b.die("a", b"x")
    assert (taker.take(), b.bodies("parking")) == ([], [b"x"])


@pytest.mark.parametrize("in_transaction", [False, True])
def test_messages_that_a_consumer_held_are_tried_when_they_are_back(in_transaction: bool) -> None:
    b = bench({"action": "retry", "every": 1000, "at-most": 1}, {"action": "discard", "min-age": 2000})
    taker = b.take("DLQ")
    b.die("a", b"x")
    held = list(taker.taken)
    assert taker.take() == [b"x"]
    tx = b.begin() if in_transaction else None
    if tx is not None:
        b.ack(taker, *held, tx=tx)
    b.broker.advance(1500)
    assert b.bodies("a") == []
    if tx is not None:
        b.enter()
        b.engine.transactions.rollback(tx)
        b.run()
    b.close(taker, redelivery.CLOSED)
    b.broker.advance(HELD_AGAIN_MS)
    assert (b.bodies("a"), b.bodies("DLQ")) == ([b"x"], []), "it has its attempt before the next rule decides"
    b.check()


def test_messages_that_a_consumer_held_when_the_rules_came() -> None:
    """They are large: what is given back at once takes several steps."""
    b = bench(segment_bytes=16 << 20)
    bodies = [b"%d" % n * 50_000 for n in range(10, 50)]
    b.die("a", *bodies)
    taker = b.take("DLQ")
    assert len(taker.taken) == 40
    change(b, PARK)
    assert b.engine.dead_letter_rules.next_due() == b.broker.now + HELD_AGAIN_MS
    b.close(taker, redelivery.CLOSED)
    b.broker.advance(HELD_AGAIN_MS)
    assert b.bodies("parking") == bodies
    assert max(int(told["messages"]) for told in b.broker.reported("rule.applied")) == 10


@pytest.mark.parametrize("closed", [False, True])
def test_messages_that_a_transaction_held_when_the_rules_came(closed: bool) -> None:
    b = bench()
    b.die("a", b"x", b"y")
    taker = b.take("DLQ")
    tx = b.begin()
    b.ack(taker, taker.taken[0], tx=tx)
    if closed:
        b.close(taker, redelivery.CLOSED)
    change(b, PARK)
    b.roll_back(tx)
    if not closed:
        b.close(taker, redelivery.CLOSED)
    b.broker.advance(HELD_AGAIN_MS)
    assert (sorted(b.bodies("parking")), b.bodies("DLQ")) == ([b"x", b"y"], [])
    b.check()


def test_a_long_queue_is_treated_in_steps_also_what_is_paged() -> None:
    b = bench(settings=({"match": "DLQ", **PAGING},))
    bodies = [b"%d" % n for n in range(300)]
    b.die("a", *bodies)
    assert b.queue("DLQ").paged > 200
    change(b, PARK | {"min-age": 60_000})
    assert b.queue("DLQ").message_count == 300
    b = b.restart()
    change(b, PARK | {"min-age": 60_000})
    assert b.queue("DLQ").message_count == 300
    b.broker.advance(60_000)
    assert sorted(b.bodies("parking")) == sorted(bodies)
    assert b.queue("DLQ").message_count == 0
    assert max(int(told["messages"]) for told in b.broker.reported("rule.applied")) <= b.engine.limits.move_step_max
    b.check()


def test_each_letter_is_looked_at_in_its_own_time() -> None:
    b = bench({"action": "discard", "min-age": 1000})
    for n in range(10):
        b.die("a", b"%d" % n)
        b.broker.advance(100)
    assert b.bodies("DLQ") == [b"%d" % n for n in range(1, 10)]
    b.broker.advance(850)
    assert b.bodies("DLQ") == [b"9"]


def test_new_letters_and_those_that_are_due_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench({"action": "discard", "min-age": 1000})
    b.die("a", *[b"%d" % n for n in range(200)])
    rules = b.engine.dead_letter_rules
    looks: list[str] = []

    def seen(name: str) -> None:
        real = getattr(rules, name)

        def look(*arguments: Any) -> None:
            looks.append(name)
            real(*arguments)

        monkeypatch.setattr(rules, name, look)

    seen("_look_again")
    seen("_look_at_new")
    b.sent("a", *[b"new"] * 200, durable=False)  # they land in the tick in which they die
    taker = b.take("a")
    b.broker.now += 1000
    b.nack(taker, *taker.taken, requeue=False)
    assert looks == ["_look_again", "_look_at_new"] * 4


def test_a_bug_stops_the_rules_and_not_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench(PARK)
    b.broker.tolerant = True
    monkeypatch.setattr(rule_runs, "decide", None)
    b.die("a", b"x")
    assert len(b.broker.reported("rule.failed")) == len(b.broker.reported("broker.error")) == 1
    monkeypatch.undo()
    b.die("a", b"y")
    assert b.bodies("DLQ") == [b"x", b"y"]
    change(b, PARK)
    assert b.bodies("parking") == [b"x", b"y"]


def test_letters_that_are_not_yet_durable_are_not_passed_over() -> None:
    b = bench(PARK, lazy_disk=True)
    b.sent("a", b"durable", b"other")
    b.sent("a", b"not", durable=False)
    b.broker.catch_up()
    taker = b.take("a")
    b.broker.catch_up()
    first = [message for message in taker.taken if message.header.durable]
    others = [message for message in taker.taken if not message.header.durable]
    b.nack(taker, *first, *others, requeue=False)
    b.broker.catch_up()
    assert sorted(b.bodies("parking")) == [b"durable", b"not", b"other"]


def test_rules_are_not_quicker_than_the_disk() -> None:
    b = bench()
    b.die("a", *[b"%d" % n for n in range(200)])
    b.broker.hold_disk()
    change(b, PARK)
    step = b.engine.limits.move_step_max
    assert b.queue("DLQ").message_count == 200 - step
    assert b.engine.dead_letter_rules.next_due() is None
    b.broker.advance(1000)
    assert b.queue("DLQ").message_count == 200 - step
    b.broker.step()
    assert b.queue("DLQ").message_count == 200 - 2 * step
    b.broker.catch_up()
    assert (b.queue("DLQ").message_count, len(b.bodies("parking"))) == (0, 200)
    b.check()


def test_a_clock_that_is_set_forward_makes_them_older() -> None:
    b = bench({"action": "discard", "min-age": 3_600_000})
    b.die("a", b"x")
    b.broker.jump(-3_600_000)
    b.broker.advance(3_600_000)
    assert b.bodies("DLQ") == [b"x"]
    b.broker.jump(3_600_000)
    assert b.bodies("DLQ") == []


# -- what they would do ------------------------------------------------------------------------------------------------


def test_a_trial_does_nothing_and_counts() -> None:
    b = bench()
    b.die("a", *[b"%d" % n for n in range(100)])
    b.sent("DLQ", b"sent there")
    rules = rules_of(configured(dead_letter_rules=sections(PARK | {"origin-address": "b"}, RETRY)))
    trial = Trial()
    for complete in (False, True):
        b.engine.dead_letter_rules.attempt(b.queue("DLQ"), trial, rules)
        assert trial.complete is complete
    later = Verdict("retry-2", Action.RETRY, True)
    assert (trial.counts, trial.other, len(trial.examples[later])) == ({later: 100}, 1, EXAMPLES_MAX)
    assert len(b.bodies("DLQ")) == 101
    none = Trial()
    b.engine.dead_letter_rules.attempt(b.queue("DLQ"), none)
    assert list(none.counts) == [Verdict("", Action.LEAVE, False)]


def test_without_rules_nothing_is_due() -> None:
    b = bench()
    b.die("a", b"x")
    assert b.engine.dead_letter_rules.next_due() is None
