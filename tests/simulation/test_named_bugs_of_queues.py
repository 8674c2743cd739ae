"""Bugs of other brokers, by their numbers: queues that stop, counters that drift, transactions that stay open."""

from __future__ import annotations

import pytest

from broker.engine.delivery.redelivery import CLOSED, LOST
from broker.engine.model.message import RoutingType
from broker.engine.routing import alter
from protocols.amqp.performatives import Header
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import check_accounts, check_counters, held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame


def test_amq_6000_a_queue_that_is_resumed_dispatches_at_once() -> None:
    """AMQ-6000: it waited for the next message."""
    bench = Bench()
    bench.sent("a", b"1")
    taker = bench.take("a")
    bench.ack(taker, *taker.taken)
    engine = bench.enter()
    alter.pause(engine._state, bench.queue("a"), paused=True)
    bench.run()
    taker.take()
    bench.sent("a", b"2", b"3")
    assert taker.take() == []
    alter.pause(bench.enter()._state, bench.queue("a"), paused=False)
    bench.run()
    assert taker.take() == [b"2", b"3"]


def test_amq_6823_7337_a_consumer_that_asks_for_one_at_a_time_goes_on_also_after_a_restart() -> None:
    """AMQ-6823, AMQ-7337: a consumer with prefetch 0 stalled."""
    broker = SimBroker(small())
    sender = AmqpSim(broker)
    sender.send(sender.sender("a", "queue"), *[message(str(n)) for n in range(6)])
    got: list[object] = []
    for restart in (False, True):
        if restart:
            broker = broker.restart()
        client = AmqpSim(broker)
        link = client.receiver("a", credit=0)
        assert client.take() == []
        for _ in range(3):
            link.send_credit(1)
            client.say()
            (delivery,) = client.take()
            got.append(delivery.body)
            client.settle(delivery)
    assert got == [str(n) for n in range(6)]


def test_amq_6500_what_is_in_flight_is_never_less_than_nothing() -> None:
    """AMQ-6500: consumers that went while they acknowledged left an in-flight count of -1000."""
    bench = Bench()
    for round in range(50):
        bench.sent("a", *[b"x"] * 20)
        taker = bench.take("a")
        bench.ack(taker, *taker.taken[: round % 7])
        engine = bench.enter()
        for delivered in taker.taken[round % 7 : 12]:
            engine.consumers.acknowledge(taker.consumer, delivered.id)
        engine.consumers.close(taker.consumer, LOST if round % 2 else CLOSED)
        assert bench.queue("a").delivering >= 0
        bench.run()
        check_counters(bench.broker)
    assert bench.queue("a").delivering == 0
    check_accounts(bench.broker)


def steps(client: SimClient, body: bytes) -> list[bytes]:
    """A transaction with a send, an acknowledgement and its end, frame by frame."""
    (delivery,) = client.messages()
    return [
        frame("BEGIN", {"transaction": "t"}, version="1.2"),
        frame("SEND", {"destination": "/queue/b", "transaction": "t", "persistent": "true"}, body, version="1.2"),
        frame("ACK", {"id": delivery.headers["ack"], "transaction": "t"}, version="1.2"),
        frame("COMMIT", {"transaction": "t"}, version="1.2"),
    ]


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("crash", [False, True])
def test_amq_8050_a_transaction_whose_client_goes_at_any_step_holds_nothing(step: int, crash: bool) -> None:
    """AMQ-8050: half a transaction after a failover hung, and its messages pinned the store."""
    broker = SimBroker(small())
    client = broker.connect()
    client.confirmed("/queue/a", b"1")
    client.subscribe("/queue/a")
    for data in steps(client, b"2")[:step]:
        client.raw(data)
    if crash:
        broker = broker.restart()
    else:
        client.drop()
    assert len(broker.engine.transactions) == 0
    done = step == 4
    assert (held(broker, "a"), held(broker, "b")) == (([], [b"2"]) if done else ([b"1"], []))
    check_accounts(broker)
    again = broker.connect()
    again.subscribe("/queue/b" if done else "/queue/a", ack="auto")
    assert len(again.messages()) == 1
    space = broker.engine.journal.space
    assert not any(space.pinned(segment) for segment in space.segments)


def test_amq_8252_a_bad_login_is_one_line() -> None:
    """AMQ-8252: a STOMP login that failed was a stack trace in the log."""
    broker = SimBroker(small(), users={"alice": "secret"})
    client = SimClient(broker, "1.2", 1)
    client.do("CONNECT", {"accept-version": "1.2", "host": "h", "login": "alice", "passcode": "wrong"})
    broker.advance(60_000)
    assert client.closed
    about = [code for code, _ in broker.reports if code not in ("connection.opened", "connection.closed")]
    assert about.count("login.refused") == 1
    assert set(about) <= {"login.refused", "stomp.error"}


def test_artemis_2798_3027_an_amqp_message_expires_at_its_time_after_a_restart_too() -> None:
    """ARTEMIS-2798, ARTEMIS-3027: the time to live was read again at the start, and began anew or was forgotten."""
    broker = SimBroker(small({"match": "a", "expiry-address": "Expired"}))
    client = AmqpSim(broker)
    client.send(client.sender("a", "queue"), message("1", header=Header(True, ttl=10_000)))
    broker.advance(6_000)
    broker = broker.restart()
    broker.advance(3_999)
    assert len(held(broker, "a")) == 1
    broker = broker.restart()
    broker.advance(1)
    assert (len(held(broker, "a")), len(held(broker, "Expired"))) == (0, 1)


def test_artemis_4285_a_message_that_comes_back_for_ever_does_not_make_the_journal_grow() -> None:
    """ARTEMIS-4285: each redelivery left a record that nothing took away."""
    bench = Bench({"match": "a", "max-delivery-attempts": -1}, segment_bytes=8 << 10, retained=False)
    bench.sent("a", b"again")
    taker = bench.take("a")
    sizes = []
    for round in range(3_000):
        (delivered,) = taker.taken
        taker.taken.clear()
        bench.nack(taker, delivered)
        if round % 500 == 499:
            bench.broker.advance(60_000)
            sizes.append(len(bench.engine.journal.space.segments))
    assert bench.queue("a").delivery_count(delivered.id) == 3_000
    assert max(sizes) <= 6, sizes
    assert bench.restart().queue("a").delivery_count(delivered.id) == 3_000


def test_artemis_1378_an_address_whose_routing_types_change_keeps_its_messages() -> None:
    """ARTEMIS-1378: what had been sent was dropped in silence."""
    bench = Bench()
    bench.sent("a", b"1")
    engine = bench.enter()
    engine.configuration.declare("a", {RoutingType.ANYCAST, RoutingType.MULTICAST})
    bench.run()
    bench = bench.restart()
    assert bench.bodies("a") == [b"1"]
    check_accounts(bench.broker)
