"""Pausing queues and addresses and changing attributes, over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.broker.management.harness import Client, Inbox, TestBroker

QUEUES = "/api/v1/queues/"


async def test_pausing_a_queue(broker: TestBroker, client: Client) -> None:
    broker.send("a/b", [b"1"])
    path = QUEUES + quote("a/b", safe="")
    done = await client.call("PATCH", path, json={"paused": True})
    assert (done.status, done.json["name"], done.json["paused"]) == (200, "a/b", True)
    inbox = Inbox()
    broker.read("a/b", inbox)
    await broker.settled()
    assert inbox.messages == []
    shown = await client.get(path)
    assert (shown["paused"], shown["paused_itself"], shown["address_paused"]) == (True, True, False)
    assert (await client.call("PATCH", path, json={"paused": False})).json["paused"] is False
    await broker.settled()
    assert [message.body for message in inbox.messages] == [b"1"]


async def test_pausing_an_address(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1"])
    done = await client.call("PATCH", "/api/v1/addresses/a", json={"paused": True})
    assert (done.status, done.json) == (200, {"name": "a", "paused": True, "queues": 1})
    shown = await client.get(QUEUES + "a")
    assert (shown["paused"], shown["paused_itself"], shown["address_paused"]) == (True, False, True)
    assert (await client.call("PATCH", QUEUES + "a", json={"paused": False})).json["paused"] is True, (
        "its address still is"
    )
    done = await client.call("PATCH", "/api/v1/addresses/a", json={"paused": False})
    assert (done.json["paused"], (await client.get(QUEUES + "a"))["paused"]) == (False, False)
    done = await client.call("PATCH", "/api/v1/addresses/nothing", json={"paused": True})
    assert (done.status, done.json["code"]) == (404, "not-found")


async def test_changing_attributes(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"%d" % n for n in range(5)])
    done = await client.call(
        "PATCH", QUEUES + "a", json={"attributes": {"ring-size": 3, "group-first-key": "x y", "exclusive": True}}
    )
    assert done.status == 200
    attributes = done.json["attributes"]
    assert (attributes["ring-size"], attributes["group-first-key"], attributes["exclusive"]) == (3, "x y", True)
    await broker.sent("a", [b"5"])
    shown = await client.get(QUEUES + "a")
    assert (shown["messages"], shown["counters"]["evicted"], shown["attributes"]["max-consumers"]) == (5, 1, -1)
    metrics = await client.call("GET", "/metrics")
    assert "broker_messages_evicted_total 1.0" in metrics.body.decode()


@pytest.mark.parametrize(
    ("attributes", "status", "code", "detail"),
    [
        ({"colour": "red"}, 400, "invalid-body", "no field 'colour'"),
        ({"ring-size": 0}, 400, "invalid-body", "attributes.ring-size must not be 0"),
        ({"ring-size": None}, 400, "invalid-body", "attributes.ring-size must be a whole number"),
        ({"last-value": True}, 409, "in-use", "is in use"),
    ],
)
async def test_attributes_that_cannot_be_changed(
    broker: TestBroker, client: Client, attributes: object, status: int, code: str, detail: str
) -> None:
    broker.send("a", [b"1"])
    broker.read("a")
    await broker.settled()
    done = await client.call("PATCH", f"{QUEUES}a", json={"attributes": attributes})
    assert (done.status, done.json["code"]) == (status, code)
    assert detail in done.json["detail"]
