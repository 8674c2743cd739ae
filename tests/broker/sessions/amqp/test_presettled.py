"""Messages that their sender has settled and the broker refuses: nobody can be told, so the log and the metrics are."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import Properties, Rejected, Source
from tests.broker.sessions.amqp.harness import started
from tests.broker.sessions.large import body, config
from tests.broker.sessions.no_queue import DEAD, WHY, shut
from tests.simulation.world import held, small
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

TO_OFF = Properties(to="queue://off")
TO_ON = Properties(to="queue://on")


def told(broker: SimBroker) -> list[tuple[object, object]]:
    """What the log says: of how many messages, and why."""
    return [(report["messages"], report["error"]) for report in broker.reported("amqp.transfer_dropped")]


def test_messages_that_no_queue_takes_are_logged() -> None:
    broker = shut(SimBroker(small()))
    client = AmqpSim(broker, container="till")
    link = client.sender("off", "queue")
    assert client.send(link, message("1"), message("2"), message("3"), settled=True) == []
    [report] = broker.reported("amqp.transfer_dropped")
    assert (report["messages"], report["client"], report["target"]) == (3, "till", "off")
    assert WHY in str(report["error"])
    assert link.sends, "it goes on"


def test_messages_that_a_full_address_refuses_are_logged() -> None:
    broker, client = started({"match": "a", "max-size-bytes": 1_000, "address-full-policy": "FAIL"})
    link = client.sender("a", "queue")
    client.send(link, *[message("x" * 600) for _ in range(4)], settled=True)
    left = 4 - len(held(broker, "a"))
    assert left > 0
    [(count, why)] = told(broker)
    assert (count, "is full" in str(why)) == (left, True)


def test_messages_that_cannot_be_decoded_are_logged(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("a", "queue")
    client.send(link, message("1"), message(None)[:-3] + b"\0Sw\xa1\x05abc", message("2"), settled=True)
    [(count, _)] = told(broker)
    assert (count, len(held(broker, "a"))) == (1, 2)


def test_a_large_one_is_logged() -> None:
    broker = shut(SimBroker(config()))
    client = AmqpSim(broker)
    client.send(client.sender("off", "queue"), message(body(4000)), settled=True)
    [(count, why)] = told(broker)
    assert (count, WHY in str(why)) == (1, True)


def test_messages_that_are_taken_or_answered_are_not_logged() -> None:
    broker = shut(SimBroker(small()))
    client = AmqpSim(broker)
    client.send(client.sender("on", "queue"), message("1"), settled=True)
    [outcome] = client.send(client.sender("off", "queue"), message("2"))
    assert isinstance(outcome.state, Rejected)
    control = client.coordinator()
    tx = client.declare(control)
    client.send(client.sender("off", "queue", name="in tx"), message("3"), settled=True, tx=tx)
    assert isinstance(client.discharge(control, tx), Rejected), "the commit tells"
    assert told(broker) == []
    dead = shut(SimBroker(small(DEAD)))
    client = AmqpSim(dead)
    client.send(client.sender("off", "queue"), message("4"), settled=True)
    assert (told(dead), len(held(dead, "DLQ"))) == ([], 1)


@pytest.mark.parametrize("outcomes", [(), ("amqp:accepted:list",)])
def test_the_relay_ends_its_link(outcomes: tuple[str, ...]) -> None:
    """It is settled, or the sender does not know the outcome."""
    broker = shut(SimBroker(small()))
    client = AmqpSim(broker)
    link = client.sender(None, source=Source("me", outcomes=outcomes))
    sent = [message(str(n), properties=to) for n, to in enumerate((TO_ON, TO_OFF, TO_ON))]
    client.send(link, *sent, settled=not outcomes)
    error = client.refused(link)
    assert (error.condition, error.info) == ("amqp:precondition-failed", {"delivery-tag": b"\0\0\0\1"})
    assert WHY in (error.description or "")
    assert len(held(broker, "on")) == 2, "what came before, and nothing of what came behind"
    assert told(broker) == [], "the error tells"
    [outcome] = client.send(client.sender("off", "queue"), message("4"))
    assert isinstance(outcome.state, Rejected), "the session goes on"
