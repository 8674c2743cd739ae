"""The anonymous relay: each message says where it goes."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from protocols.amqp.message import MESSAGE_ANNOTATIONS, encode_annotations
from protocols.amqp.performatives import Accepted, Properties, Rejected, Source
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, message, rejection
from tests.support.sim_broker import SimBroker


def test_the_anonymous_relay_goes_where_each_message_says(broker: SimBroker, client: AmqpSim) -> None:
    link = client.sender(None)
    outcomes = client.send(
        link,
        message("1", properties=Properties(to="queue://a")),
        message("2"),
        message("3", properties=Properties(to="queue://b")),
        message("4", properties=Properties(to="queue://b")),
    )
    states = {outcome.context: outcome.state for outcome in outcomes}
    assert [type(states[n]) for n in range(4)] == [Accepted, Rejected, Accepted, Accepted]
    error = rejection(states[1])
    assert (error.condition, error.info) == ("amqp:invalid-field", {"delivery-tag": b"\0\0\0\1"})
    assert (len(held(broker, "a")), len(held(broker, "b"))) == (1, 2)


def jms(to: str, kind: object, body: str = "") -> bytes:
    """A message as JMS clients send it: what `to` names stands in an annotation."""
    annotations = encode_annotations(MESSAGE_ANNOTATIONS, {"x-opt-jms-dest": kind})
    return message(body, annotations=annotations, properties=Properties(to=to))


@pytest.mark.parametrize("settled", [False, True])
def test_the_relay_makes_what_jms_clients_say_that_it_is(broker: SimBroker, client: AmqpSim, settled: bool) -> None:
    client.send(client.sender(None), jms("q", 0), jms("t", 1), jms("q", 0), settled=settled)
    assert len(held(broker, "q")) == 2
    addresses = broker.engine.addresses
    assert addresses["q"].routing_types == {RoutingType.ANYCAST}
    assert "t" not in addresses or addresses["t"].routing_types == {RoutingType.MULTICAST}


def test_the_relay_goes_to_the_queue_or_the_topic_of_a_name(broker: SimBroker, client: AmqpSim) -> None:
    client.send(client.sender("n", "queue"), message("before"))
    topic = client.receiver("n", "topic")
    client.send(
        client.sender(None), jms("n", 1, "to all"), jms("n", 0, "to one"), jms("queue://n", 1, "the prefix wins")
    )
    assert [(delivery.link, delivery.body) for delivery in client.take()] == [(topic, "to all")]
    assert len(held(broker, "n")) == 3


@pytest.mark.parametrize("kind", [2, 3])
def test_the_relay_makes_nothing_for_a_temporary_destination_that_is_gone(
    broker: SimBroker, client: AmqpSim, kind: int
) -> None:
    """It would collect the replies to one who has left."""
    [outcome] = client.send(client.sender(None), jms("gone", kind))
    assert rejection(outcome.state).condition == "amqp:not-found"
    assert "gone" not in broker.engine.addresses
    address = client.own_address("temporary-topic" if kind == 3 else "temporary-queue")
    client.send(client.sender(None), jms(address, kind, "in time"))
    assert client.bodies() == ["in time"]


def test_the_relay_knows_the_broker_s_own_names_of_temporary_destinations(broker: SimBroker, client: AmqpSim) -> None:
    """Not every client says what it replies to."""
    asking = AmqpSim(broker)
    address = asking.own_address("temporary-queue")
    relay, reply = client.sender(None), message("x", properties=Properties(to=address))
    assert isinstance(client.send(relay, reply)[0].state, Accepted)
    for after in ("its owner left", "a crash"):
        if after == "a crash":
            broker = broker.restart()
            client = AmqpSim(broker)
            relay = client.sender(None)
        else:
            asking.drop()
        [outcome] = client.send(relay, reply)
        assert rejection(outcome.state).condition == "amqp:not-found", after
        assert client.refused(client.sender(address)).condition == "amqp:not-found"
        assert address not in broker.engine.queues


@pytest.mark.parametrize("kind", [-1, 4, "queue", None])
def test_a_kind_that_no_jms_client_knows_says_nothing(broker: SimBroker, client: AmqpSim, kind: object) -> None:
    client.send(client.sender("q", "queue"), message("1"))
    client.send(client.sender(None), jms("q", kind))
    assert len(held(broker, "q")) == 2


@pytest.mark.parametrize(
    ("outcomes", "settled", "ends"),
    [
        ((), False, False),
        (("amqp:accepted:list", "amqp:rejected:list"), False, False),
        (("amqp:accepted:list",), False, True),
        (("amqp:accepted:list", "amqp:rejected:list"), True, True),
    ],
)
def test_the_relay_ends_a_link_that_could_not_hear_of_a_rejection(
    broker: SimBroker, client: AmqpSim, outcomes: tuple[str, ...], settled: bool, ends: bool
) -> None:
    """What came before the message is kept, what came after it is not."""
    link = client.sender(None, source=Source("me", outcomes=outcomes))
    payloads = [message(str(n), properties=Properties(to=to)) for n, to in enumerate(["queue://a", "a.#", "queue://b"])]
    client.send(link, *payloads, settled=settled)
    if ends:
        error = client.refused(link)
        assert error.info is not None
        assert error.info["delivery-tag"] == b"\0\0\0\1"
    assert len(held(broker, "a")) == 1
    assert ("b" in broker.engine.queues) is not ends
