"""The balance over HTTP: what the journal has of each queue."""

from __future__ import annotations

import asyncio

from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import RoutingType
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker


async def test_the_balance_is_answered_when_all_of_it_is_durable(broker: TestBroker, client: Client) -> None:
    broker.queue("empty")
    broker.send("a", [b"1", b"2"])
    broker.send("a", [b"later"], scheduled=NOW + 60_000)
    broker.send("a", [b"passing"], durable=False)
    broker.engine.consumers.subscribe(Inbox(), SubscribeRequest("t", RoutingType.MULTICAST))
    await broker.settled()
    broker.disk_works = False
    broker.send("a", [b"3"])
    answer = asyncio.ensure_future(client.call("GET", "/api/v1/balance"))
    await broker.waiting.wait()
    assert (await client.get("/api/v1/queues/a"))["messages"] == 5
    assert not answer.done()
    position = broker.journal.position
    broker.send("a", [b"not before it"])
    broker.disk_works = True
    broker.tick.enter()
    balance = (await answer).json
    assert balance["broker_id"] == broker.journal.broker_id.hex()
    assert balance["position"] == position
    queues = {queue["address"]: queue for queue in balance["queues"]}
    a = broker.engine.queue("a")
    assert queues["a"] == {"id": a.id, "name": "a", "address": "a", "durable": True, "journalled": 4}
    assert (queues["empty"]["journalled"], queues["t"]["journalled"], queues["t"]["durable"]) == (0, 0, False)
    assert (await client.get("/api/v1/balance"))["position"] > position
