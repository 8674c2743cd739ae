"""What has to be converted for a client is delivered in as many ticks as that takes, once each and in order."""

from __future__ import annotations

from itertools import cycle

import pytest

from broker.engine.tick import Ticks
from protocols.amqp.performatives import Header
from tests.broker.sessions.mqtt.harness import with_mqtt
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, configured

MESSAGES = 20
BODIES = [b"%d" % n for n in range(MESSAGES)]


@pytest.fixture(autouse=True)
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is used up at every third question."""
    answers = cycle([False, False, True])
    monkeypatch.setattr(Ticks, "exhausted", property(lambda ticks: next(answers)))


def sent(broker: SimBroker, kind: str, *, durable: bool = True) -> None:
    """Send messages of AMQP."""
    client = AmqpSim(broker)
    client.send(client.sender("a", kind), *[message(f"{n}", header=Header(durable)) for n in range(MESSAGES)])


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("strict", [True, False])
def test_to_stomp(ack: str, strict: bool) -> None:
    broker = SimBroker(configured({"match": "a", "delivery-count-persistence": "strict" if strict else "on-return"}))
    sent(broker, "queue")
    stomp = broker.connect()
    stomp.subscribe("/queue/a", ack=ack)
    got = stomp.messages()
    assert [each.body for each in got] == BODIES
    assert {each.headers.get("redelivered", "false") for each in got} == {"false"}
    queue = broker.engine.queue("a")
    assert (queue.counters.delivered, queue.counters.redelivered) == (MESSAGES, 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("durable", [True, False])
def test_to_mqtt(qos: int, durable: bool) -> None:
    sim = SimWorld(with_mqtt())
    client = sim.subscriber("c", "a", qos=qos)
    sent(sim.broker, "topic", durable=durable)
    assert client.payloads() == BODIES


def test_to_several_clients() -> None:
    broker = SimBroker(configured())
    readers = [broker.connect() for _ in range(3)]
    for reader in readers:
        reader.subscribe("/queue/a", ack="auto")
    sent(broker, "queue")
    got = [each.body for reader in readers for each in reader.messages()]
    assert sorted(got, key=int) == BODIES
