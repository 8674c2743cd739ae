"""Promise P4: what may have reached a consumer is `redelivered` after a power cut, in strict mode even if nothing came
back; in the other mode, what came back is."""

from __future__ import annotations

import pytest

from broker.config import Config
from broker.daemon.wiring import settings_table
from tests.simulation.world import check_accounts, counts, small
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, SimClient

STRICT: dict[str, object] = {"match": "orders", "delivery-count-persistence": "strict"}


def lazy(setting: dict[str, object] = STRICT) -> tuple[SimBroker, SimClient, SimClient]:
    """A broker whose disk lags behind, a client that sends, and one that has subscribed."""
    broker = SimBroker(small(setting), lazy_disk=True)
    sender, taker = broker.connect(), broker.connect()
    taker.subscribe("/queue/orders")
    return broker, sender, taker


def sent(broker: SimBroker, count: int) -> SimClient:
    client = broker.connect()
    for n in range(count):
        client.confirmed("/queue/orders", b"%d" % n)
    return client


def redelivered(broker: SimBroker) -> dict[bytes, str]:
    """What each message of the queue says to the next consumer, which then leaves cleanly."""
    client = broker.connect()
    client.subscribe("/queue/orders")
    found = {message.body: message.headers["redelivered"] for message in client.messages()}
    client.do("UNSUBSCRIBE", {"id": "s"})
    return found


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_prefetched_messages_are_redelivered(mode: str, keep: float) -> None:
    broker = SimBroker(small(STRICT))
    sent(broker, 5)
    taker = broker.connect()
    taker.stalled = True
    window = "700" if mode != "auto" else "-1"
    taker.subscribe("/queue/orders", ack=mode, consumer_window_size=window)
    taker.stalled = False
    broker = broker.restart(keep=keep)
    first = {b"%d" % n: "true" if mode == "auto" or n < 3 else "false" for n in range(5)}
    assert redelivered(broker) == first
    assert redelivered(broker.restart()) == first, "a clean return changes nothing, on disk either"


def test_messages_that_did_not_leave_are_not_redelivered() -> None:
    """The journal entry of the delivery is not on disk: no byte has left, and nobody can have seen it."""
    broker = SimBroker(small(STRICT))
    sent(broker, 3).drop()
    broker = broker.restart(lazy_disk=True)
    taker = broker.connect()
    taker.subscribe("/queue/orders")
    assert taker.messages() == []
    broker = broker.restart(keep=0.0)
    assert set(redelivered(broker).values()) == {"false"}


def test_it_leaves_once_it_is_on_disk() -> None:
    """The entry that stores a message has its delivery too: it waits for the disk once."""
    broker, sender, taker = lazy()
    sender.send("/queue/orders", b"durable", persistent="true")
    sender.send("/queue/orders", b"not")
    assert taker.bodies() == [], "what need not wait does not overtake"
    broker.step()
    assert taker.bodies() == [b"durable", b"not"]
    assert redelivered(broker.restart(keep=0.0)) == {b"durable": "true"}


def test_messages_for_a_consumer_leave_once_their_delivery_is_on_disk() -> None:
    broker = SimBroker(small(STRICT), lazy_disk=True)
    sender, taker = broker.connect(), broker.connect()
    sender.send("/queue/orders", b"1", persistent="true")
    broker.step()
    taker.subscribe("/queue/orders")
    sender.send("/queue/orders", b"2", persistent="true")
    sender.send("/queue/orders", b"3")
    assert taker.bodies() == []
    broker.step()
    assert taker.bodies() == [b"1", b"2", b"3"]


def test_nobody_sees_what_is_not_durable_when_the_mode_changes() -> None:
    """Messages of a strict queue are ready before they are durable: after a reload they still wait for the disk."""
    broker = SimBroker(small(STRICT), lazy_disk=True)
    sender, taker, other = broker.connect(), broker.connect(), broker.connect()
    taker.subscribe("/queue/orders", consumer_window_size="0")
    sender.send("/queue/orders", b"1", persistent="true")
    sender.send("/queue/orders", b"2", persistent="true")
    change(broker, small({"match": "orders"}))
    other.subscribe("/queue/orders")
    sender.send("/queue/orders", b"3", persistent="true")
    assert taker.bodies() + other.bodies() == []
    broker.catch_up()
    assert taker.bodies() == [b"1"]
    assert other.bodies() == [b"2", b"3"]
    other.drop()
    change(broker, small(STRICT))
    broker.catch_up()
    again = broker.restart(keep=0.0)
    assert counts(again, "orders") == {b"1": 1, b"2": 1, b"3": 0}, "one left in strict mode, one came back"


def test_a_queue_that_becomes_strict_keeps_its_order() -> None:
    broker, sender, taker = lazy({"match": "orders"})
    sender.send("/queue/orders", b"1", persistent="true")
    change(broker, small(STRICT))
    sender.send("/queue/orders", b"2", persistent="true")
    broker.catch_up()
    assert taker.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("strict", [False, True])
def test_another_mode_counts_from_the_next_delivery_on(strict: bool) -> None:
    modes: list[dict[str, object]] = [{"match": "orders"}, STRICT]
    before, after = modes if strict else reversed(modes)
    broker = SimBroker(small(before))
    sender, taker = broker.connect(), broker.connect()
    taker.subscribe("/queue/orders")
    sender.confirmed("/queue/orders", b"before")
    change(broker, small(after))
    sender.confirmed("/queue/orders", b"after")
    assert taker.bodies() == [b"before", b"after"]
    assert counts(broker.restart(), "orders") == {b"before": not strict, b"after": strict}


def change(broker: SimBroker, config: Config) -> None:
    """Other settings, while the broker runs."""
    broker.enter().configuration.change_settings(settings_table(config))
    broker.run()


@pytest.mark.parametrize("how", ["drop", "unsubscribe", "silent"])
def test_messages_that_never_left_have_not_failed(how: str) -> None:
    """The consumer goes while the journal is being written: only what it got can have failed."""
    broker, sender, taker = lazy({**STRICT, "redelivery-delay": 500})
    sender.send("/queue/orders", b"got", persistent="true")
    broker.step()
    sender.send("/queue/orders", b"never left", persistent="true")
    if how == "unsubscribe":
        taker.do("UNSUBSCRIBE", {"id": "s"})
    else:
        if how == "silent":
            broker.enter()
            taker.session.timed_out()
        taker.drop()
    broker.catch_up()
    assert taker.bodies() == [b"got"]
    queue = broker.engine.queue("orders")
    assert counts(broker, "orders") == {b"got": int(how != "unsubscribe"), b"never left": 0}
    assert [body_of(message) for message in queue.backlog] == (
        [b"never left"] if how != "unsubscribe" else [b"got", b"never left"]
    )
    again = broker.restart(keep=0.0)
    assert counts(again, "orders") == counts(broker, "orders"), "and so the journal says"


def test_an_automatic_subscription_loses_nothing_between_two_writes() -> None:
    """What waits for the journal is not with the client, and is not taken as consumed when the rest is flushed."""
    broker = SimBroker(small(STRICT))
    taker, sender = broker.connect(), broker.connect()
    taker.subscribe("/queue/orders", ack="auto")
    bodies = [b"%d" % n for n in range(50)]
    for body in bodies[:25]:
        sender.send("/queue/orders", body, persistent="true")
    broker.enter()
    sender.raw(b"".join(b"SEND\ndestination:/queue/orders\npersistent:true\n\n%b\0" % body for body in bodies[25:]))
    assert taker.bodies() == bodies
    broker = broker.restart()
    assert redelivered(broker) == {}
    check_accounts(broker)


def test_an_automatic_subscription_loses_nothing_with_a_slow_disk() -> None:
    broker = SimBroker(small(STRICT), lazy_disk=True)
    taker, sender = broker.connect(), broker.connect()
    taker.subscribe("/queue/orders", ack="auto")
    got: list[bytes] = []
    bodies = [b"%d" % n for n in range(40)]
    for body in bodies:
        sender.send("/queue/orders", body, persistent="true", receipt="r")
        broker.step()
        got += taker.bodies()
    for _ in range(5):
        broker.step()
        got += taker.bodies()
    assert got == bodies
    assert broker.engine.queue("orders").message_count == 0


@pytest.mark.parametrize("strict", [False, True])
def test_returned_messages_are_redelivered_in_both_modes(strict: bool) -> None:
    settings: dict[str, object] = STRICT if strict else {"match": "orders"}
    broker = SimBroker(small(settings))
    sent(broker, 4)
    taker = broker.connect()
    taker.subscribe("/queue/orders")
    messages = taker.messages()
    taker.nack(messages[1])
    taker.do("UNSUBSCRIBE", {"id": "s"})
    broker = broker.restart()
    expected = {b"0": "false", b"1": "true", b"2": "false", b"3": "false"}
    assert redelivered(broker) == expected
    assert counts(broker, "orders") == {b"0": 0, b"1": 1, b"2": 0, b"3": 0}


def test_on_return_forgets_what_was_only_prefetched() -> None:
    broker = SimBroker(small())
    sent(broker, 2)
    taker = broker.connect()
    taker.subscribe("/queue/orders")
    assert len(taker.messages()) == 2
    assert set(redelivered(broker.restart()).values()) == {"false"}


def test_counts_add_up_over_crashes_to_the_dead_letter() -> None:
    """In strict mode a crash counts: a message that kills its broker ends as a dead letter."""
    broker = SimBroker(small({**STRICT, "max-delivery-attempts": 3}))
    sent(broker, 1)
    for attempt in range(3):
        assert counts(broker, "orders") == {b"0": attempt}
        taker = broker.connect()
        taker.subscribe("/queue/orders")
        assert len(taker.messages()) == 1
        broker = broker.restart()
    taker = broker.connect()
    taker.subscribe("/queue/orders")
    (message,) = taker.messages()
    taker.nack(message)
    assert counts(broker, "DLQ") == {b"0": 0}
    assert broker.engine.queue("orders").message_count == 0
    check_accounts(broker)


def test_messages_that_expire_while_their_delivery_is_written_do_not_leave() -> None:
    broker = SimBroker(small(STRICT), lazy_disk=True)
    sender, taker = broker.connect(), broker.connect()
    taker.subscribe("/queue/orders", ack="client", consumer_window_size="0")
    sender.send("/queue/orders", b"late", persistent="true", expires=str(broker.now + 50))
    sender.send("/queue/orders", b"in time", persistent="true", expires=str(broker.now + 5000))
    broker.now += 50
    broker.catch_up()
    assert taker.bodies() == [b"in time"], "and the credit was not used"
    assert counts(broker, "ExpiryQueue") == {b"late": 0}
    assert counts(broker, "orders") == {b"in time": 0}
    check_accounts(broker)
