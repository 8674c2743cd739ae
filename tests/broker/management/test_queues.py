"""Queues over HTTP: made, deleted, and messages removed by choice; listing and moving have tests of their own."""

from __future__ import annotations

import pytest

from broker import engine
from broker.engine.model.limits import Limits
from tests.broker.management.harness import Client, Inbox, TestBroker
from tests.broker.management.samples import scrape, value

QUEUES = "/api/v1/queues"


async def test_a_queue_is_made_with_what_it_is_asked_for(broker: TestBroker, client: Client) -> None:
    attributes = {"ring-size": 5, "exclusive": True}
    wanted = {"address": "paint", "routing_type": "MULTICAST", "filter": "colour = 'red'", "make_address": True}
    made = await client.call("PUT", f"{QUEUES}/reds", json=wanted | {"attributes": attributes})
    assert made.status == 201
    shown = await client.get(f"{QUEUES}/paint%3A%3Areds")
    assert (shown["address"], shown["routing_type"], shown["filter"]) == ("paint", "MULTICAST", "colour = 'red'")
    assert (shown["durable"], shown["auto_created"], shown["configured"]) == (True, False, False)
    assert (shown["attributes"]["ring-size"], shown["attributes"]["exclusive"]) == (5, True)
    assert (await client.call("DELETE", f"{QUEUES}/reds")).json == {"queue": "reds", "messages": 0}
    assert "reds" not in broker.engine.queues


async def test_a_queue_on_an_address_is_of_its_type_unless_that_is_said(broker: TestBroker, client: Client) -> None:
    broker.queue("a")  # anycast
    made = await client.call("PUT", f"{QUEUES}/b", json={"address": "a", "durable": False})
    assert made.json["routing_type"] == "ANYCAST"
    assert not broker.engine.queue("b").durable
    refused = await client.call("PUT", f"{QUEUES}/c", json={"address": "a", "routing_type": "MULTICAST"})
    assert (refused.status, refused.json["detail"]) == (400, "address a is not MULTICAST")
    wanted = {"address": "a", "routing_type": "MULTICAST", "make_address": True}
    both = await client.call("PUT", f"{QUEUES}/c", json=wanted)
    assert both.status == 201
    assert len(broker.engine.addresses["a"].routing_types) == 2


@pytest.mark.parametrize(
    ("name", "body", "status", "detail"),
    [
        ("a", {"make_address": True}, 409, "queue a exists already"),
        ("new", None, 404, "address new does not exist: create it first"),
        ("new", {"make_address": True, "attributes": {"ring-size": 0}}, 400, "ring-size must not be 0: a ring of 0"),
        ("new", {"make_address": True, "attributes": {"max-consumers": -2}}, 400, "max-consumers must be at least -1"),
        ("new", {"make_address": True, "attributes": {"exclusive": "true"}}, 400, "exclusive must be true or false"),
        ("new", {"make_address": True, "attributes": {"colour": 1}}, 400, "no field 'colour'; there are consumers-"),
        ("new", {"make_address": True, "filter": "x ="}, 400, "selector"),
        ("new", {"make_address": True, "colour": "red"}, 400, "there is no field 'colour'; there are address, "),
        ("new", [], 400, "the body must be a JSON object"),
        ("new", {"make_address": 1}, 400, "make_address must be true or false"),
        ("new", {"routing_type": "BOTH"}, 400, "routing_type must be 'ANYCAST' or 'MULTICAST'"),
        ("%24.artemis.internal.x", {"make_address": True}, 400, "the broker's own"),
    ],
)
async def test_a_queue_that_cannot_be_leaves_nothing_behind(
    broker: TestBroker, client: Client, name: str, body: object, status: int, detail: str
) -> None:
    broker.queue("a")
    before = set(broker.engine.addresses)
    answer = await client.call("PUT", f"{QUEUES}/{name}", json=body)
    assert answer.status == status, answer.body
    assert detail in answer.json["detail"]
    assert set(broker.engine.addresses) == before


async def test_an_mqtt_session_whose_client_is_away_is_no_consumer(broker: TestBroker, client: Client) -> None:
    gone, here = (
        engine.ClientSubscription(engine.Client(name, expiry=100), "news", False, None) for name in ("gone", "here")
    )
    for subscription in (gone, here):
        subscription.qos = 1
        broker.tick.enter()
        broker.engine.subscriptions.attach(subscription, Inbox())
    gone.client.disconnected = 1
    broker.engine.subscriptions.disconnected(gone)
    await broker.settled()
    listed = {queue["name"]: (queue["consumers"], queue["offline"]) for queue in (await client.get(QUEUES))["queues"]}
    assert (listed["gone.news"], listed["here.news"]) == ((0, 1), (1, 0))
    assert (await client.get("/api/v1/status"))["consumers"] == 1
    samples = await scrape(client)
    for queue, consumers in (("gone.news", 0), ("here.news", 1)):
        assert value(samples, "broker_queue_consumers", queue=queue) == consumers
        assert value(samples, "broker_queue_offline_sessions", queue=queue) == 1 - consumers


async def test_a_queue_goes_with_messages_and_consumers_only_if_that_is_said(
    broker: TestBroker, client: Client
) -> None:
    broker.send("a", [b"1"])
    inbox = Inbox()
    broker.read("a", inbox)
    await broker.settled()
    refused = await client.call("DELETE", f"{QUEUES}/a")
    assert (refused.status, refused.json["code"]) == (409, "in-use")
    assert "1 message and 1 consumer:" in refused.json["detail"]
    assert (await client.call("DELETE", f"{QUEUES}/a?force=true")).json == {"queue": "a", "messages": 1}
    assert inbox.reasons == ["queue a was deleted"]


@pytest.mark.parametrize("engine_limits", [Limits(purge_step_max=2)])
async def test_a_long_queue_is_deleted_by_a_task(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"%d" % n for n in range(3)])
    refused = await client.call("DELETE", f"{QUEUES}/a?force=true")
    assert (refused.status, refused.json["code"]) == (409, "in-use")
    assert refused.json["detail"] == "queue a has 3 messages: start a task to delete it"
    task = (await client.call("POST", "/api/v1/tasks", json={"kind": "delete-queue", "queue": "a"})).json
    ended = await client.get(f"/api/v1/tasks/{task['id']}?wait=10000")
    assert (ended["state"], ended["moved"], "a" in broker.engine.queues) == ("completed", 3, False)
