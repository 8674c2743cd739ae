"""The queues of clients' subscriptions: what they take while the client is away, and when they go."""

from __future__ import annotations

import pytest

from broker.engine import Client, ClientSubscription
from broker.engine.model.message import RoutingType
from broker.engine.queues.queue import Queue
from store import decode
from tests.broker.engine.engine_harness import Bench, Taker
from tests.simulation.world import journal_records


def client(id: str) -> Client:
    """One that is here, with a session that lasts."""
    return Client(id, expiry=100)


def subscribe(bench: Bench, client: Client, *, qos: int, share: str | None = None) -> ClientSubscription:
    """What the client has subscribed to, on the address `a`."""
    subscription = ClientSubscription(client, "a", False, share)
    subscription.qos = qos
    bench.enter().subscriptions.attach(subscription, Taker())
    bench.engine.subscriptions.join(subscription)
    return subscription


def queues(bench: Bench) -> dict[str, Queue]:
    """Those that were made here."""
    return {name: queue for name, queue in bench.engine.queues.items() if name not in ("DLQ", "ExpiryQueue")}


@pytest.mark.parametrize(("qos", "share", "names"), [(1, None, ["c.a"]), (0, None, []), (0, "g", ["$share.g.a"])])
def test_messages_that_stay_while_the_client_is_away(
    bench: Bench, qos: int, share: str | None, names: list[str]
) -> None:
    subscription = subscribe(bench, client("c"), qos=qos, share=share)
    [queue] = queues(bench).values()
    assert not queue.durable_only
    subscription.client.disconnected = 1
    bench.enter().subscriptions.disconnected(subscription)
    assert list(queues(bench)) == names
    assert queue.deleted or queue.durable_only
    assert (subscription.attached is not None) is subscription.stays


def test_a_client_that_comes_back_is_at_another_place(bench: Bench) -> None:
    subscription = subscribe(bench, client("c"), qos=1)
    subscription.client.disconnected = 1
    bench.enter().subscriptions.disconnected(subscription)
    subscription.client.disconnected, subscription.client.remote = 0, "there"
    bench.engine.subscriptions.reconnected(subscription)
    [queue] = queues(bench).values()
    assert ([consumer.remote for consumer in queue.consumers], queue.durable_only) == (["there"], False)


def test_a_client_that_is_away_keeps_its_place_and_is_not_attached(bench: Bench) -> None:
    subscription = subscribe(bench, client("c"), qos=1)
    [queue] = queues(bench).values()
    assert (len(queue.consumers), queue.attached) == (1, 1)
    subscription.client.disconnected = 1
    bench.enter().subscriptions.disconnected(subscription)
    assert (len(queue.consumers), queue.attached) == (1, 0)
    subscription.client.disconnected = 0
    bench.enter().subscriptions.reconnected(subscription)
    assert (len(queue.consumers), queue.attached) == (1, 1)


@pytest.mark.parametrize(("here", "consumers"), [(True, 1), (False, 0)])
def test_an_expired_message_says_whether_the_client_was_there(bench: Bench, here: bool, consumers: int) -> None:
    subscription = subscribe(bench, client("c"), qos=1)
    assert subscription.attached is not None
    bench.enter().consumers.pause(subscription.attached)  # it reads nothing now
    subscription.client.disconnected = 1
    bench.engine.subscriptions.disconnected(subscription)
    if here:
        subscription.client.disconnected = 0
        bench.enter().subscriptions.reconnected(subscription)
    bench.sent("a", b"1", routing_type=RoutingType.MULTICAST, expiration=bench.broker.now + 1_000)
    bench.broker.advance(60_000)
    [expired] = [record for record in journal_records(bench.broker) if isinstance(record, decode.Expired)]
    assert expired.consumers == consumers


def test_a_share_takes_all_while_a_client_is_here_whoever_leaves(bench: Bench) -> None:
    """One that comes back has no consumer that takes anything yet, and is here all the same."""
    first, second = (subscribe(bench, client(id), qos=1, share="g") for id in "ab")
    [queue] = queues(bench).values()
    for subscription, only in ((first, False), (second, True)):
        subscription.client.disconnected = 1
        bench.enter().subscriptions.disconnected(subscription)
        assert queue.durable_only is only
    first.client.disconnected = 0
    bench.engine.subscriptions.reconnected(first)
    bench.engine.subscriptions.disconnected(second)
    assert not queue.durable_only
    bench.engine.subscriptions.end(first)
    assert queue.durable_only


def test_the_queue_of_a_share_goes_with_the_last_client(bench: Bench) -> None:
    first, second = (subscribe(bench, client(id), qos=1, share="g") for id in "ab")
    bench.enter().subscriptions.end(second)
    assert list(queues(bench)) == ["$share.g.a"]
    bench.engine.subscriptions.end(first)
    bench.engine.subscriptions.end(first)  # harmless
    assert (queues(bench), bench.engine.subscriptions.shares) == ({}, {})


def test_shares_in_which_nobody_takes_part_are_deleted_and_no_others(bench: Bench) -> None:
    bench.take("b")
    subscribe(bench, client("c"), qos=1, share="g")
    bench.enter().subscriptions.attach(ClientSubscription(client("d"), "n", False, "g"), Taker())
    assert set(queues(bench)) == {"$share.g.a", "$share.g.n", "b"}
    bench.engine.subscriptions.delete_abandoned()
    assert set(queues(bench)) == {"$share.g.a", "b"}


def test_a_queue_that_others_consume_too_stays(bench: Bench) -> None:
    bench.take("a")
    subscription = ClientSubscription(client("c"), "a", False, None)
    bench.enter().subscriptions.attach(subscription, Taker())
    assert subscription.borrowed
    assert queues(bench)["a"].routing_type is RoutingType.ANYCAST
    bench.engine.subscriptions.end(subscription)
    assert len(queues(bench)["a"].consumers) == 1
