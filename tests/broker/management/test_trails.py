"""A message's trail, over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from broker.engine import MessageRange
from broker.management import trails
from broker.management.models.base import DIGITS_MAX
from tests.broker.management.export_calls import IMPORT, asked
from tests.broker.management.harness import NOW, Client, TestBroker, die


async def test_a_trail_is_found_by_each_of_its_ids(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders/new", b"1")
    broker.tick.enter()
    broker.engine.messages.retry(broker.queue("DLQ"), MessageRange())
    await broker.settled()
    [message] = broker.held("orders/new")
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


async def test_an_imported_message_was_no_message_of_this_broker(broker: TestBroker, client: Client) -> None:
    """Its line names the message that it was elsewhere, by an id that another one has here."""
    await die(broker, "orders", b"1")
    [dead] = broker.held("DLQ")
    [found] = (await client.get("/api/v1/queues/DLQ/messages:export"))["messages"]
    line = found["line"]
    line["queues"] = [{"name": "repair"}]
    assert line["annotations"]["_AMQ_ORIG_MESSAGE_ID"] < dead.id
    assert (await client.call("POST", IMPORT, json=asked(line, target="repair"))).json["imported"] == 1
    await broker.settled()
    [brought] = broker.held("repair")
    trail = await client.get(f"/api/v1/messages/{brought.id}/trail")
    assert (trail["ids"], [step["kind"] for step in trail["steps"]]) == ([brought.id], ["stored"])
    notes = brought.header.annotations
    assert notes is not None
    assert notes["_AMQ_DL_REASON"] == "rejected"
    assert len((await client.get(f"/api/v1/messages/{dead.id}/trail"))["ids"]) == 2
    broker.tick.enter()
    broker.engine.messages.retry(broker.queue("repair"), MessageRange())
    await broker.settled()
    assert len((await client.get(f"/api/v1/messages/{brought.id}/trail"))["ids"]) == 2


async def test_a_message_that_a_transaction_held_when_its_queue_was_deleted(broker: TestBroker, client: Client) -> None:
    """It is not on another queue of that name either."""
    await broker.sent("orders", [b"1"])
    [message] = broker.held("orders")
    consumer = broker.read("orders")
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.acknowledge(consumer, message.id, broker.engine.transactions.begin(object()))
    await broker.settled()
    assert (await client.call("DELETE", "/api/v1/queues/orders?force=true")).status == 200
    await broker.sent("orders", [b"2"])
    trail = await client.get(f"/api/v1/messages/{message.id}/trail")
    assert (trail["places"], trail["ended"]) == ([], "deleted")


async def test_a_message_that_the_journal_does_not_know(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"1"], durable=False)
    [message] = broker.held("orders")
    unknown = await client.call("GET", f"/api/v1/messages/{message.id}/trail")
    assert (unknown.status, unknown.json["code"]) == (404, "not-found")
    assert unknown.json["detail"] == (
        f"the journal knows nothing of message {message.id}: it was not durable, or it has left and the journal has "
        "dropped its records, or this is not the id of a message: queues, addresses and tasks have ids too"
    )
    assert (await client.call("GET", "/api/v1/messages/0/trail")).status == 400


@pytest.mark.parametrize("id", [2**63 - 1, 2**64 - 1, 10**DIGITS_MAX - 1])
async def test_a_message_that_never_was(broker: TestBroker, client: Client, id: int) -> None:
    await die(broker, "orders", b"1")
    last = broker.engine.messages.next_id - 1
    never = await client.call("GET", f"/api/v1/messages/{id}/trail")
    assert (never.status, never.json["code"]) == (404, "not-found")
    assert never.json["detail"] == (
        f"there never was a message {id}: ids count from 1, and this broker's have come to {last} so far"
    )
    assert (await client.call("GET", f"/api/v1/messages/{last + 1}/trail")).json["detail"].startswith("there never was")
    assert (await client.call("GET", f"/api/v1/queues/DLQ/messages/{id}")).status == 404
    assert (await client.call("GET", f"/api/v1/tasks/{id}")).status == 404


async def test_damage_is_told_of_a_message_that_is_not_found(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders", b"1")
    [path] = (broker.data_directory / "journal").glob("*.journal")
    whole = path.read_bytes()
    path.write_bytes(bytes(8) + whole[8:])
    unknown = await client.call("GET", "/api/v1/messages/1/trail")
    path.write_bytes(whole)
    assert unknown.status == 404
    assert f"{path} is damaged: " in unknown.json["detail"]


@pytest.mark.parametrize("id", ["4711x", "-1", "1.0", "9" * (DIGITS_MAX + 1)])
async def test_no_message_id(client: Client, id: str) -> None:
    wrong = await client.call("GET", f"/api/v1/messages/{id}/trail")
    assert (wrong.status, wrong.json["code"]) == (400, "invalid-parameter")
    assert wrong.json["detail"] == f"id must be a whole number of at most {DIGITS_MAX} digits"


async def test_a_journal_that_cannot_be_read_is_told(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders", b"1")
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
