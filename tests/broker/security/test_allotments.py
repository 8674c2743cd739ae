"""Queues of one user: whoever has as many as he may makes no more, by no verb of any protocol."""

from __future__ import annotations

import pytest

from broker.engine.model.permissions import Permission
from broker.security.policy import allot
from tests.broker.security.verbs import NAME, QUEUE, VERBS, Denied, prepared, state, stomp
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured

MAKING = {Permission.CREATE_DURABLE_QUEUE, Permission.CREATE_NON_DURABLE_QUEUE}
VERBS_THAT_MAKE = [name for name, verb in VERBS.items() if MAKING & set(verb.needs)]


def allow(broker: SimBroker, more: int) -> None:
    """So many queues more than there are."""
    quotas = broker.engine.quotas
    quotas.change(0, {NAME: quotas.made_by(NAME) + more})


@pytest.mark.parametrize("name", VERBS_THAT_MAKE)
def test_one_queue_too_many(name: str) -> None:
    broker = prepared()
    broker.engine.quotas.change(0, {})
    before = state(broker)
    with pytest.raises((AssertionError, Denied)):  # in the protocol's words, which are not those of a denial
        VERBS[name].does(broker)
    assert state(broker) == before, "what is refused has changed nothing"
    assert not broker.reported("access.denied")


@pytest.mark.parametrize("name", VERBS_THAT_MAKE)
def test_as_many_as_he_may(name: str) -> None:
    broker = prepared()
    allow(broker, 1)
    VERBS[name].does(broker)


def test_they_count_while_they_are_there_and_over_restarts() -> None:
    broker = prepared()
    assert broker.engine.quotas.made_by(NAME) == 3
    broker = broker.restart()
    made = broker.engine.quotas.made_by(NAME)
    assert made == 2, "one was of a session that its connection took with it"
    broker.parts.tick.enter()
    broker.engine.delete_queue(broker.engine.queue(QUEUE))
    broker.run()
    assert broker.engine.quotas.made_by(NAME) == made - 1
    allow(broker, 1)
    client = stomp(broker)
    client.subscribe("/topic/one")
    client.subscribe("/topic/two", "s2")
    [error] = client.take("ERROR")
    assert b"of at most" in error.body
    assert broker.engine.quotas.made_by(NAME) == made - 1, "a temporary subscription goes with its connection"


def test_nobody_in_particular_is_not_limited() -> None:
    broker = SimBroker()
    broker.engine.quotas.change(0, {})
    client = broker.connect()
    client.confirmed("/queue/a", b"x")
    assert not client.take("ERROR")


def test_all_clients_together_create_as_many_as_there_may_be() -> None:
    """Anonymous ones too; the broker's own and an operator's are made whatever there is."""
    limits = configured().limits.model_copy(update={"queues_max": 5})
    broker = SimBroker(configured(limits=limits))
    allot(broker.config, broker.engine.quotas)
    for number in range(5 - len(broker.engine.queues)):
        broker.connect().confirmed(f"/queue/{number}", b"x")
    broker = broker.restart()
    allot(broker.config, broker.engine.quotas)
    client = broker.connect()
    client.send("/queue/more", b"x", receipt="r")
    [error] = client.take("ERROR")
    assert b"limits.queues-max is 5" in error.body
    world = SimWorld()
    world.broker = broker
    assert world.connect("c").subscribe("t") == [0x97]
    broker.connect().confirmed("/queue/0", b"x")
    broker.parts.tick.enter()
    broker.engine.delete_queue(broker.engine.queue("0"))
    broker.run()
    broker.connect().confirmed("/queue/more", b"x")
