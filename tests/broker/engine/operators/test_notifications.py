"""Notifications: each type, who listens, what they cost when nobody does, and that they are never about themselves."""

from __future__ import annotations

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.message import PropertyView, RoutingType, Value
from broker.engine.model.notes import NOTES_MAX, NOTIFICATIONS, noting
from tests.broker.engine.engine_harness import Bench, Taker

MULTICAST = RoutingType.MULTICAST


def listener(bench: Bench, selector: str = "") -> Taker:
    """Somebody who is told."""
    return bench.take(NOTIFICATIONS, MULTICAST, selector=selector)


def told(taker: Taker, type: str) -> list[dict[str, Value]]:
    """The properties of the notifications of a type that came since the last call."""
    views = [dict(PropertyView(message)) for message in taker.taken]
    taker.taken = []
    return [view for view in views if view["_AMQ_NotifType"] == type]


def test_nobody_listens_nothing_is_made(bench: Bench) -> None:
    bench.take("a")
    assert NOTIFICATIONS not in bench.engine.addresses
    assert (bench.engine.notes.pending, bench.engine.watchers.notifications.sent) == ([], 0)


def test_consumers_come_and_go(bench: Bench) -> None:
    taker = listener(bench, "_AMQ_NotifType LIKE 'CONSUMER%' AND _AMQ_Address = 'a'")
    other = bench.take("a", client_id="c", user="u", remote="r", selector="x = 1")
    (created,) = told(taker, "CONSUMER_CREATED")
    assert created["_AMQ_NotifTimestamp"] == bench.broker.now
    assert created["_AMQ_RoutingName"] == "a"
    assert created["_AMQ_ConsumerCount"] == 1
    assert (created["_AMQ_User"], created["_AMQ_RemoteAddress"], created["_AMQ_Client_ID"]) == ("u", "r", "c")
    assert created["_AMQ_FilterString"] == "x = 1"
    bench.close(other, CLOSED)
    (closed,) = told(taker, "CONSUMER_CLOSED")
    assert closed["_AMQ_ConsumerCount"] == 0


def test_a_deleted_queue_closes_its_consumers(bench: Bench) -> None:
    taker = listener(bench)
    bench.take("a")
    bench.delete("a")
    views = [dict(PropertyView(message)) for message in taker.taken]
    types = [view["_AMQ_NotifType"] for view in views if view["_AMQ_Address"] == "a"]
    assert types == ["ADDRESS_ADDED", "BINDING_ADDED", "CONSUMER_CREATED", "CONSUMER_CLOSED", "BINDING_REMOVED"]


def test_addresses_and_queues(bench: Bench) -> None:
    taker = listener(bench)
    told(taker, "")
    bench.sent("a", b"1")
    (added,) = [dict(PropertyView(m)) for m in taker.taken if PropertyView(m)["_AMQ_NotifType"] == "ADDRESS_ADDED"]
    assert (added["_AMQ_Address"], added["_AMQ_Routing_Type"]) == ("a", "ANYCAST")
    (bound,) = told(taker, "BINDING_ADDED")
    assert (bound["_AMQ_Address"], bound["_AMQ_RoutingName"]) == ("a", "a")
    engine = bench.enter()
    engine.delete_temporary(engine.addresses["a"])
    bench.run()
    assert [note["_AMQ_Address"] for note in told(taker, "ADDRESS_REMOVED")] == ["a"]


def test_each_dead_letter_and_each_expiry() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 1}, {"match": "gone", "dead-letter-address": ""})
    taker = listener(bench)
    consumer = bench.take("a")
    sent = bench.sent("a", b"1", b"2")
    bench.nack(consumer, *consumer.taken)
    notes = told(taker, "MESSAGE_DEAD_LETTERED")
    assert [note["_AMQ_Message_ID"] for note in notes] == [message.id for message in sent]
    assert {note["_AMQ_DL_REASON"] for note in notes} == {"max-deliveries"}
    assert {note["_AMQ_DL_ADDRESS"] for note in notes} == {"DLQ"}
    other = bench.take("gone")
    bench.sent("gone", b"3")
    bench.nack(other, *other.taken, requeue=False)
    (killed,) = told(taker, "MESSAGE_DEAD_LETTERED")
    assert "_AMQ_DL_ADDRESS" not in killed
    bench.sent("b", b"4", expiration=bench.broker.now + 10)
    bench.broker.advance(1_000)
    (expired,) = told(taker, "MESSAGE_EXPIRED")
    assert (expired["_AMQ_Address"], expired["_AMQ_DL_ADDRESS"]) == ("b", "ExpiryQueue")


def test_nothing_is_told_of_notifications_that_die() -> None:
    bench = Bench({"match": NOTIFICATIONS, "max-delivery-attempts": 1})
    taker = listener(bench)
    bench.sent("a", b"1")
    bench.nack(taker, *taker.taken)
    assert told(taker, "MESSAGE_DEAD_LETTERED") == []


def test_a_durable_subscription_hears_after_a_restart(bench: Bench) -> None:
    bench.take(NOTIFICATIONS, MULTICAST, durable_name="watch")
    bench = bench.restart()
    bench.sent("a", b"1")
    taker = bench.take(NOTIFICATIONS, MULTICAST, durable_name="watch")
    assert [note["_AMQ_Address"] for note in told(taker, "ADDRESS_ADDED")] == ["a"]


def test_a_full_address_drops_them() -> None:
    bench = Bench({"match": NOTIFICATIONS, "max-size-messages": 1})
    bench.take(NOTIFICATIONS, MULTICAST, durable_name="watch", window=0)
    bench.sent("a", b"1")
    bench.sent("b", b"1")
    assert bench.engine.addresses[NOTIFICATIONS].dropped > 0


def test_a_tick_has_a_limit(bench: Bench) -> None:
    taker = listener(bench)
    notes = bench.enter().notes
    for number in range(NOTES_MAX + 1):
        notes.add("X", {"n": number})
    bench.run()
    assert len(told(taker, "X")) == NOTES_MAX
    assert notes.left_out == 1


def test_refused_logins_and_denied_verbs(bench: Bench) -> None:
    taker = listener(bench)
    reported: list[str] = []

    def report(code: str, /, **fields: str | int) -> None:
        reported.append(code)

    telling = noting(report, bench.enter().notes)
    telling("login.refused", user="u", remote="r", reason="wrong password")
    telling("access.denied", user="u", client="c", permission="send", address="a", queue="")
    telling("stopped")
    bench.run()
    assert reported == ["login.refused", "access.denied", "stopped"]
    (login,) = [dict(PropertyView(m)) for m in taker.taken if "_AMQ_RemoteAddress" in dict(PropertyView(m))][-1:]
    assert (login["_AMQ_NotifType"], login["_AMQ_User"]) == ("SECURITY_AUTHENTICATION_VIOLATION", "u")
    (denied,) = told(taker, "SECURITY_PERMISSION_VIOLATION")
    assert (denied["_AMQ_Address"], denied["_AMQ_CheckType"]) == ("a", "send")
