"""Queues over HTTP: made, deleted, and messages removed by choice; listing and moving have tests of their own."""

from __future__ import annotations

import pytest

from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode
from broker.management.limits import Limits as CallLimits
from tests.broker.management.harness import Client, Inbox, TestBroker

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
        ("a", {"make_address": True}, 409, "queue a exists already, on address a"),
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


async def test_a_queue_goes_with_messages_and_consumers_only_if_that_is_said(
    broker: TestBroker, client: Client
) -> None:
    broker.send("a", [b"1"])
    inbox = Inbox()
    broker.tick.enter()
    broker.engine.consumers.subscribe(inbox, SubscribeRequest("a", RoutingType.ANYCAST, ack_mode=AckMode.INDIVIDUAL))
    await broker.settled()
    refused = await client.call("DELETE", f"{QUEUES}/a")
    assert (refused.status, refused.json["code"]) == (409, "in-use")
    assert "1 messages and 1 consumers" in refused.json["detail"]
    assert (await client.call("DELETE", f"{QUEUES}/a?force=true")).json == {"queue": "a", "messages": 1}
    assert inbox.reasons == ["queue a was deleted"]


async def numbers(client: Client) -> list[str]:
    """What is left."""
    return [message["body"]["data"] for message in (await client.get(f"{QUEUES}/a/messages?limit=100"))["messages"]]


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=2)])
@pytest.mark.parametrize("call_limits", [CallLimits(steps_max=1)])
async def test_chosen_messages_are_removed(broker: TestBroker, client: Client) -> None:
    for number in range(6):
        broker.send("a", [str(number).encode()], headers=[(b"odd", b"yes" if number % 2 else b"no")])
    await broker.settled()
    path = f"{QUEUES}/a/messages:purge"
    first = (await client.get(f"{QUEUES}/a/messages"))["messages"][0]["id"]
    one = (await client.call("POST", path, json={"id": first})).json
    assert (one["purged"], one["complete"]) == (1, True)
    assert await numbers(client) == ["1", "2", "3", "4", "5"]
    odd = {"filter": "odd = 'yes'"}
    step = (await client.call("POST", path, json=odd)).json
    assert (step["purged"], step["complete"], step["delivering"]) == (1, False, 0)
    step = (await client.call("POST", path, json=odd | {"after": step["last"], "below": step["below"]})).json
    assert (step["purged"], step["complete"]) == (1, False)
    assert await numbers(client) == ["2", "4", "5"]
    queue = broker.engine.queue("a")
    assert (queue.counters.purged, queue.stored) == (3, 3)
    assert (await client.call("POST", path, json={"id": first})).status == 404
    assert (await client.call("POST", path, json={"colour": "red"})).status == 400
    assert (await client.call("POST", path, json={})).json["purged"] == 3


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/v1/queues/a/messages:purge"), ("DELETE", "/api/v1/queues/a?force=true")],
)
@pytest.mark.parametrize("engine_limits", [Limits(purge_step_max=2)])
async def test_a_long_queue_is_emptied_over_many_ticks(
    broker: TestBroker, client: Client, method: str, path: str
) -> None:
    broker.send("a", [b"%d" % n for n in range(9)])
    await broker.settled()
    before = broker.engine.ticks.number
    answer = (await client.call(method, path, json={} if method == "POST" else None)).json
    assert answer.get("purged", answer.get("messages")) == 9
    assert broker.engine.ticks.number == before + 5
    left = await numbers(client) if "messages" in path else []
    assert left == []
