"""A message's trail, over HTTP."""

from __future__ import annotations

import asyncio

from broker.engine import MessageRange
from broker.management import trails
from tests.broker.management.harness import NOW, Client, TestBroker, die


async def test_a_trail_is_found_by_each_of_its_ids(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders/new", b"1")
    broker.tick.enter()
    broker.engine.messages.retry(broker.queue("DLQ"), MessageRange())
    await broker.settled()
    [[message, _]] = broker.engine.messages.browse(broker.queue("orders/new"))
    trail = await client.get(f"/api/v1/messages/{message.id}/trail")
    assert [(step["kind"], step["queues"]) for step in trail["steps"]] == [
        ("stored", ["orders/new"]),
        ("stored", ["DLQ"]),
        ("died", ["orders/new"]),
        ("left", ["orders/new"]),
        ("stored", ["orders/new"]),
        ("left", ["DLQ"]),
    ]
    died = trail["steps"][2]
    assert (died["reason"], died["text"], died["time"], died["client"]) == (
        "rejected",
        "rejected by a consumer",
        NOW,
        "",
    )
    assert died["told"].startswith("died after 1 delivery: rejected (rejected by a consumer)")
    assert trail["places"] == [{"message": message.id, "queue": "orders/new"}]
    assert (len(trail["ids"]), trail["ended"], trail["problems"]) == (3, "", [])
    for id in trail["ids"]:
        assert await client.get(f"/api/v1/messages/{id}/trail") == trail


async def test_a_message_that_the_journal_does_not_know(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1"], durable=False)
    await broker.settled()
    [[message, _]] = broker.engine.messages.browse(broker.queue("orders"))
    unknown = await client.call("GET", f"/api/v1/messages/{message.id}/trail")
    assert (unknown.status, unknown.json["code"]) == (404, "not-found")
    assert (await client.call("GET", "/api/v1/messages/0/trail")).status == 400


async def test_a_journal_that_cannot_be_read_is_told(broker: TestBroker, client: Client) -> None:
    (broker.data_directory / "journal").rename(broker.data_directory / "away")
    refused = await client.call("GET", "/api/v1/messages/1/trail")
    (broker.data_directory / "away").rename(broker.data_directory / "journal")
    assert (refused.status, refused.json["code"]) == (503, "not-readable")
    assert "No such file" in refused.json["detail"]


async def test_few_are_looked_for_at_a_time(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders", b"1")
    finder = trails.TrailFinder(broker)
    found = await asyncio.gather(*[finder.find(id) for id in range(1, 9)])
    assert max(len(trail.steps) for trail in found) == 4
