"""Links of one name, links that attach again, and what a detached one leaves: what docs/amqp.md says of them."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp.performatives import Accepted, Received, TerminusDurability
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

_UNSETTLED: dict[str, Any] = {"unsettled": {b"1": Accepted(), b"2": Received(0, 5), b"3": None}}


@pytest.mark.parametrize("where", ["session", "sessions", "connections"])
def test_links_of_one_name_do_not_steal(broker: SimBroker, client: AmqpSim, where: str) -> None:
    """2.6.1 would end the first; clients name the links to one address alike."""
    client.receiver("a", "queue", credit=1, name="same")
    other = AmqpSim(broker) if where == "connections" else client
    if where == "sessions":
        other.begin()
    other.receiver("a", "queue", credit=1, name="same")
    assert len(broker.engine.queue("a").consumers) == 2
    producer = AmqpSim(broker, container="producer")
    producer.send(producer.sender("a", "queue"), message("1"), message("2"))
    arrived = client.take() + (other.take() if other is not client else [])
    assert sorted(str(delivery.body) for delivery in arrived) == ["1", "2"]


DURABLY: dict[str, Any] = {"durable": TerminusDurability.UNSETTLED_STATE, "name": "sub"}


def test_a_durable_subscription_is_not_stolen_within_a_connection(broker: SimBroker, client: AmqpSim) -> None:
    """JMS: a second consumer is refused."""
    first = client.receiver("news", "topic", **DURABLY)
    assert client.refused(client.receiver("news", "topic", **DURABLY)).condition == "amqp:resource-locked"
    client.send(client.sender("news", "topic"), message("1"))
    assert [delivery.link for delivery in client.take()] == [first]
    client.drop()
    again = AmqpSim(broker)
    again.receiver("news", "topic", **DURABLY)
    assert again.bodies() == ["1"]


def test_a_durable_subscription_goes_to_the_newest_connection_of_its_container(
    broker: SimBroker, client: AmqpSim
) -> None:
    """The network of the first one may have failed without a word (part 2, 2.6.1)."""
    first = client.receiver("news", "topic", **DURABLY)
    client.send(client.sender("news", "topic"), message("1"), message("2"))
    one, _ = client.take()
    client.settle(one)
    other = AmqpSim(broker)
    second = other.receiver("news", "topic", **DURABLY)
    assert client.refused(first).condition == "amqp:link:stolen"
    assert other.bodies() == ["2"], "what the first one had not settled comes again"
    assert len(broker.engine.queue("sim.sub").consumers) == 1
    client.drop()
    other.detach(second, closed=False)
    assert "sim.sub" in broker.engine.queues


@pytest.mark.parametrize("differs", ["shared", "link"])
def test_other_links_are_never_stolen(broker: SimBroker, client: AmqpSim, differs: str) -> None:
    shared = ("shared",) if differs == "shared" else ()
    first = client.receiver("news", "topic", *shared, **DURABLY)
    other = AmqpSim(broker)
    other.receiver("news", "topic", *shared, **DURABLY | ({"name": "other"} if differs == "link" else {}))
    publisher = AmqpSim(broker, container="publisher")
    publisher.send(publisher.sender("news", "topic"), *[message(str(number)) for number in range(10)])
    assert {delivery.link for delivery in client.take()} == {first}
    assert other.bodies()


def test_a_producer_begins_anew_whatever_it_has_not_settled(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender("queue://a", **_UNSETTLED)
    answer = client.answer(link)
    assert (answer.unsettled, answer.incomplete_unsettled) == (None, False)
    [outcome] = client.send(link, message("new"))
    assert outcome.state == Accepted()
    assert len(held(broker, "a")) == 1


def test_a_consumer_begins_anew_whatever_it_has_not_settled(client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", "queue", **_UNSETTLED)
    answer = client.answer(link)
    assert (answer.unsettled, answer.incomplete_unsettled) == (None, False)
    assert client.bodies() == ["1"]


def test_a_detached_link_gives_its_deliveries_to_others_at_once(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("a", "queue"), message("1"))
    link = client.receiver("a", "queue", name="same")
    [delivery] = client.take()
    other = AmqpSim(broker, container="other")
    other.receiver("a", "queue")
    assert other.take() == []
    client.detach(link, closed=False)
    [again] = other.take()
    assert (again.body, again.message.header.delivery_count) == ("1", 0)
    client.settle(delivery)  # too late: it is no longer the link's
    assert len(held(broker, "a")) == 1
    other.settle(again)
    assert held(broker, "a") == []
