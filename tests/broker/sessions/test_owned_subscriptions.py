"""Durable subscriptions and temporary queues belong to their users: others neither read nor end them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.permissions import Permission
from protocols.amqp.performatives import Source
from tests.broker.security.verbs import permissions, restrict
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, SimClient

USERS = {"alice": "right", "bob": "wrong"}
DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}
UNAUTHORIZED = "amqp:unauthorized-access"
ENDING = {"id": "s", "durable-subscription-name": "name"}


@pytest.fixture
def broker() -> SimBroker:
    """Two users who may do everything, but nothing to what belongs to the other."""
    return SimBroker(permissions(Permission.MANAGE_SESSIONS), users=USERS)


def stomp(broker: SimBroker, user: str) -> SimClient:
    return broker.connect(login=user, passcode=USERS[user], **{"client-id": "c"})


def amqp(broker: SimBroker, user: str) -> AmqpSim:
    return AmqpSim(broker, "c", login=(user, USERS[user]))


def kept(broker: SimBroker, user: str = "alice") -> SimClient:
    """A client that has subscribed durably, as `c.name`."""
    client = stomp(broker, user)
    client.subscribe("/topic/a.b", **{"durable-subscription-name": "name"})
    return client


def waiting(broker: SimBroker) -> None:
    """Alice has a durable subscription, and a message waits there."""
    kept(broker).drop()
    stomp(broker, "bob").confirmed("/topic/a.b", b"secret")


def denied(client: SimClient) -> bool:
    """Whether a STOMP client was refused, and got nothing."""
    [error] = client.take("ERROR")
    return error.headers["message"] == "permission denied" and client.closed and not client.messages()


@pytest.mark.parametrize("restart", [False, True])
def test_another_user_does_not_find_a_durable_subscription(broker: SimBroker, restart: bool) -> None:
    """Whatever client id it uses, over STOMP and AMQP, and nobody replaces it by another selector."""
    waiting(broker)
    if restart:
        broker = broker.restart()
    assert denied(kept(broker, "bob"))
    for more in ({}, {"selector": "x = 1"}):
        client = stomp(broker, "bob")
        client.subscribe("/topic/a.b", **{"durable-subscription-name": "name", **more})
        assert denied(client)
    bob = amqp(broker, "bob")
    assert bob.refused(bob.receiver("a.b", "topic", name="name", credit=1, **DURABLE)).condition == UNAUTHORIZED
    assert [report["permission"] for report in broker.reported("access.denied")][:1] == ["manageSessions"]
    assert [message.body for message in kept(broker).messages()] == [b"secret"]


@pytest.mark.parametrize("permitted", [False, True])
def test_another_user_never_steals_its_link(broker: SimBroker, permitted: bool) -> None:
    alice = amqp(broker, "alice")
    alice.receiver("a.b", "topic", name="name", credit=1, **DURABLE)
    if permitted:
        restrict(broker, permissions())
    bob = amqp(broker, "bob")
    refused = bob.refused(bob.receiver("a.b", "topic", name="name", credit=1, **DURABLE))
    assert refused.condition == ("amqp:resource-locked" if permitted else UNAUTHORIZED)
    assert len(broker.engine.queue("c.name").consumers) == 1
    stomp(broker, "bob").confirmed("/topic/a.b", b"secret")
    assert len(alice.take()) == 1


@pytest.mark.parametrize("name", ["/queue/a.b::c.name", "/queue/c.name", "/topic/a.b::c.name"])
@pytest.mark.parametrize("browser", [False, True])
def test_nor_reads_it_as_a_queue(broker: SimBroker, name: str, browser: bool) -> None:
    waiting(broker)
    bob = stomp(broker, "bob")
    bob.subscribe(name, **({"browser": "true"} if browser else {}))
    assert not bob.messages()
    assert bob.closed
    over_amqp = amqp(broker, "bob")
    link = over_amqp.receiver("a.b::c.name", credit=1)
    assert over_amqp.refused(link).condition == UNAUTHORIZED
    assert [message.body for message in kept(broker).messages()] == [b"secret"]


def test_nor_over_mqtt() -> None:
    """Not by its full name, and not as the queue of a session that has the same name."""
    sim = SimWorld(permissions(Permission.MANAGE_SESSIONS), users=USERS)
    alice = stomp(sim.broker, "alice")
    alice.subscribe("/topic/a.b", **{"durable-subscription-name": "a.b"})
    alice.drop()
    bob = sim.connect("c", clean=False, expiry=100, user_name="bob", password=b"wrong")
    assert bob.subscribe("a/b", "a.b::c.a.b", qos=1) == [0x87, 0x87]
    bob.disconnect()
    again = sim.connect("d", user_name="alice", password=b"right")
    assert again.subscribe("a.b::c.a.b", qos=1) == [1]


def test_nor_ends_it(broker: SimBroker) -> None:
    waiting(broker)
    bob = stomp(broker, "bob")
    bob.do("UNSUBSCRIBE", ENDING)
    assert denied(bob)
    over_amqp = amqp(broker, "bob")
    link = over_amqp.receiver(None, name="name", source=None)
    assert over_amqp.refused(link).condition == UNAUTHORIZED
    alice = stomp(broker, "alice")
    alice.do("UNSUBSCRIBE", ENDING)
    assert "c.name" not in broker.engine.queues


def test_manage_sessions_on_its_address_permits_all_that(broker: SimBroker) -> None:
    waiting(broker)
    restrict(broker, permissions())
    assert [message.body for message in kept(broker, "bob").messages()] == [b"secret"]
    stomp(broker, "bob").do("UNSUBSCRIBE", ENDING)


def test_a_subscription_without_an_owner_is_for_all_who_may_consume() -> None:
    """Subscriptions of a time without users, and queues of operators."""
    broker = SimBroker(permissions(Permission.MANAGE_SESSIONS))
    client = broker.connect(**{"client-id": "c"})
    client.subscribe("/topic/a.b", **{"durable-subscription-name": "name"})
    client.drop()
    broker.users = USERS
    broker = broker.restart()
    stomp(broker, "alice").confirmed("/topic/a.b", b"x")
    assert [message.body for message in kept(broker, "bob").messages()] == [b"x"]


def test_a_global_shared_subscription_is_for_all_users(broker: SimBroker) -> None:
    everywhere: dict[str, Any] = {"name": "name", "credit": 1, "durable": 2, "expiry_policy": "never"}
    for user in USERS:
        client = amqp(broker, user)
        link = client.receiver("a.b", "topic", "shared", "global", **everywhere)
        assert client.answer(link).source is not None
    assert broker.engine.queue("name:global").creator == "alice"


def test_another_users_topic_subscription_is_not_read_by_the_name_of_its_queue(broker: SimBroker) -> None:
    alice = stomp(broker, "alice")
    alice.subscribe("/topic/a.b")
    [queue] = [each for each in broker.engine.queues.values() if each.address.name == "a.b"]
    bob = stomp(broker, "bob")
    bob.subscribe(f"/queue/a.b::{queue.name}")
    assert denied(bob)


@pytest.mark.parametrize("kind", ["temporary-queue", "temporary-topic", ""])
def test_temporary_queues(broker: SimBroker, kind: str) -> None:
    """Of JMS clients only their connection reads them; of others, all of their user's."""
    alice = amqp(broker, "alice")
    source = alice.answer(alice.receiver(None, *[kind] * bool(kind), dynamic=True)).source
    assert isinstance(source, Source)
    for reader, expected in (("bob", False), ("alice", not kind)):
        client = stomp(broker, reader)
        client.subscribe(f"/queue/{source.address}")
        assert bool(client.take("ERROR")) is not expected, reader


@pytest.mark.parametrize("then", ["unsubscribe", "clean start", "restart", "nothing"])
def test_nor_ends_it_by_a_session_that_has_no_queue(then: str) -> None:
    """Bob's session has a subscription, which had no queue of its own; now one would have the name of Alice's."""
    sim = SimWorld(permissions(Permission.MANAGE_SESSIONS), users=USERS)
    bob: dict[str, Any] = {"clean": False, "expiry": 100, "user_name": "bob", "password": b"wrong"}
    stomp(sim.broker, "bob").confirmed("/queue/name", b"")
    session = sim.subscriber("c", "name", qos=1, **bob)
    session.disconnect()
    waiting(sim.broker)
    stomp(sim.broker, "bob").confirmed("/topic/name", b"")  # on this address he would have a queue of his own
    session = sim.connect("c", **bob)
    if then == "unsubscribe":
        session.unsubscribe("name")
    elif then == "clean start":
        sim.connect("c", **(bob | {"clean": True}))
    elif then == "restart":
        sim.restart()
    stomp(sim.broker, "bob").confirmed("/topic/a.b", b"another")
    assert [message.body for message in kept(sim.broker).messages()] == [b"secret", b"another"]
