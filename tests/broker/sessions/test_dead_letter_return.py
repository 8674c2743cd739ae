"""A client that takes a dead letter and sends it back in one transaction, as docs/dead-letters.md advises."""

from __future__ import annotations

import pytest

from broker.engine.model.message import RoutingType
from tests.simulation.world import held, small
from tests.support.sim_broker import SimBroker, SimClient


def refuse(client: SimClient) -> None:
    for message in client.messages():
        client.nack(message, requeue="false")


def return_from_dlq(broker: SimBroker) -> None:
    """Send the dead letters back to where their headers say."""
    client = broker.subscriber("/queue/DLQ")
    for letter in client.messages():
        headers = letter.headers
        prefix = "/queue/" if headers["_AMQ_ORIG_ROUTING_TYPE"] == "1" else "/topic/"
        back = f"{prefix}{headers['_AMQ_ORIG_ADDRESS']}::{headers['_AMQ_ORIG_QUEUE']}"
        client.do("BEGIN", {"transaction": "t"})
        client.do("SEND", {"destination": back, "transaction": "t", "persistent": "true"}, letter.body)
        client.do("ACK", {"id": headers["ack"], "transaction": "t"})
        client.do("COMMIT", {"transaction": "t", "receipt": "c"})
        assert client.take("RECEIPT")
    client.drop()


@pytest.mark.parametrize("gone", [False, True])
def test_it_is_on_its_queue_even_if_that_is_gone(gone: bool) -> None:
    broker = SimBroker(small())
    broker.connect().confirmed("/queue/orders", b"1")
    consumer = broker.subscriber("/queue/orders")
    refuse(consumer)
    consumer.drop()
    if gone:
        broker.enter().operators.delete_address(broker.engine.addresses["orders"], with_queues=True)
        broker.run()
    return_from_dlq(broker)
    assert held(broker, "DLQ") == []
    assert held(broker, "orders") == [b"1"]
    assert broker.engine.queue("orders").routing_type is RoutingType.ANYCAST


def test_other_subscribers_do_not_get_it_again() -> None:
    broker = SimBroker(small())
    client = broker.connect(**{"client-id": "c"})
    for name in ("one", "two"):
        client.subscribe("/topic/news", name, **{"durable-subscription-name": name})
    broker.connect().confirmed("/topic/news", b"1")
    for message in client.messages():
        if message.headers["subscription"] == "one":
            client.nack(message, requeue="false")
        else:
            client.ack(message)
    return_from_dlq(broker)
    assert [message.headers["subscription"] for message in client.messages()] == ["one"]
