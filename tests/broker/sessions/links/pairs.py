"""Two simulated brokers with a link between them, and what lies on their queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.engine.model.message import Message
from tests.support.amqp_client import AmqpSim, message
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

SEND = {"send": {"orders": {"queue": "orders.out", "address": "orders"}}}


def pair(
    routes: Mapping[str, Any] = SEND, *settings: dict[str, object], there: tuple[dict[str, object], ...] = ()
) -> tuple[SimBroker, SimBroker, SimLinks]:
    """Two brokers; the first has a link to the second."""
    a = SimBroker(linked(*settings, **routes))
    b = SimBroker(configured(*there))
    links = SimLinks(a, {"b": b})
    links.run()
    return a, b, links


def send(broker: SimBroker, address: str, *bodies: str, **more: Any) -> None:
    client = AmqpSim(broker)
    client.send(client.sender(address, "queue"), *[message(body, durable=True, **more) for body in bodies])


def bodies(broker: SimBroker, queue: str) -> list[str]:
    """What lies on a queue."""
    if queue not in broker.engine.queues:
        return []
    return sorted(content(each).decode() for each, _ in broker.engine.messages.browse(broker.engine.queue(queue)))


def dead_letters(broker: SimBroker) -> list[Message]:
    """The dead letters of a broker."""
    if "DLQ" not in broker.engine.queues:
        return []
    return [each for each, _ in broker.engine.messages.browse(broker.engine.queue("DLQ"))]


def content(each: Message) -> bytes:
    """A message's content."""
    return each.header.format.content(body_of(each))
