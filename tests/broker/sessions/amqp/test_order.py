"""The order of messages that come to one address on several links of a connection is that of their arrival."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from protocols.amqp.performatives import Accepted, Properties, TransactionalState
from protocols.amqp.sender import Sender
from tests.support.amqp_client import AmqpSim, message


def in_turns(client: AmqpSim, links: Sequence[Sender], count: int, seed: object) -> list[str]:
    """Messages on links of which one is chosen each time, in one read; their bodies."""
    random = Random(repr(seed))
    bodies = [str(number) for number in range(count)]
    for body in bodies:
        random.choice(links).send([message(body, properties=Properties(to="a"))], [body])
    client.say()
    return bodies


@pytest.mark.parametrize(
    "targets", [("a", "a"), ("a", "queue://a"), ("queue://a", "a::a", "a"), ("a", None), (None, "queue://a", None)]
)
def test_links_to_one_address(client: AmqpSim, targets: tuple[str | None, ...]) -> None:
    client.receiver("a", "queue", credit=200)
    links = [client.sender(target, "queue", name=str(number)) for number, target in enumerate(targets)]
    for _ in range(2):  # the codec learns what the transfers of each link look like: the second read has runs
        client.outcomes.clear()
        bodies = in_turns(client, links, 60, targets)
        assert client.bodies() == bodies
    assert sorted(str(outcome.context) for outcome in client.outcomes) == sorted(bodies)
    assert all(isinstance(outcome.state, Accepted) and outcome.settled for outcome in client.outcomes)


def test_links_of_two_sessions(client: AmqpSim) -> None:
    client.receiver("a", "queue", credit=200)
    links = [client.sender("a", "queue", name="first")]
    client.begin()
    links.append(client.sender("a", "queue", name="second"))
    for _ in range(2):
        assert in_turns(client, links, 60, "sessions") == client.bodies()


def test_messages_of_one_link_to_another_address_keep_no_place(client: AmqpSim) -> None:
    """Links of different addresses take turns without an end to the runs of either."""
    for address in "ab":
        client.receiver(address, "queue", credit=200)
    links = [client.sender(address, "queue") for address in "ab"]
    for _ in range(2):
        bodies = in_turns(client, links, 60, "addresses")
        taken = client.take()
        assert sorted(str(delivery.body) for delivery in taken) == sorted(bodies)
        for link in {delivery.link for delivery in taken}:
            numbers = [int(str(delivery.body)) for delivery in taken if delivery.link is link]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("transacted", [False, True])
def test_the_relay_keeps_the_order_of_all_addresses(client: AmqpSim, transacted: bool) -> None:
    """Who takes several addresses sees them as they were sent: as in STOMP, and unlike several links (part 2, 2.6)."""
    client.receiver("a.#", "topic", credit=200)
    relay = client.sender(None)
    bodies = [str(number) for number in range(60)]
    coordinator = client.coordinator()
    tx = client.declare(coordinator)
    for number, body in enumerate(bodies):
        properties = Properties(to=f"topic://a.{number * 5 // 3 % 3}")
        relay.send([message(body, properties=properties)], [body], state=TransactionalState(tx) if transacted else None)
    client.say()
    client.discharge(coordinator, tx)
    assert client.bodies() == bodies
