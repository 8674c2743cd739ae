"""Queues over HTTP: made, deleted, and messages removed by choice; listing and moving have tests of their own."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode
from broker.management.limits import Limits as CallLimits
from tests.broker.management.harness import Client, Inbox, TestBroker

QUEUES = "/api/v1/queues"


async def test_a_queue_is_made_with_what_it_is_asked_for(broker: TestBroker, client: Client) -> None:
    selector = quote("colour = 'red'", safe="")
    query = f"address=paint&routing-type=MULTICAST&filter={selector}&make-address=true&ring-size=5&exclusive=true"
    made = await client.call("PUT", f"{QUEUES}/reds?{query}")
    assert made.status == 201
    shown = await client.get(f"{QUEUES}/paint%3A%3Areds")
    assert (shown["address"], shown["routing_type"], shown["filter"]) == ("paint", "MULTICAST", "colour = 'red'")
    assert (shown["durable"], shown["auto_created"], shown["configured"]) == (True, False, False)
    assert (shown["attributes"]["ring_size"], shown["attributes"]["exclusive"]) == (5, True)
    assert (await client.call("DELETE", f"{QUEUES}/reds")).json == {"queue": "reds", "messages": 0}
    assert "reds" not in broker.engine.queues


async def test_a_queue_on_an_address_is_of_its_type_unless_that_is_said(broker: TestBroker, client: Client) -> None:
    broker.queue("a")  # anycast
    assert (await client.call("PUT", f"{QUEUES}/b?address=a&durable=false")).json["routing_type"] == "ANYCAST"
    assert not broker.engine.queue("b").durable
    refused = await client.call("PUT", f"{QUEUES}/c?address=a&routing-type=MULTICAST")
    assert (refused.status, refused.json["detail"]) == (400, "address a is not MULTICAST")
    both = await client.call("PUT", f"{QUEUES}/c?address=a&routing-type=MULTICAST&make-address=true")
    assert both.status == 201
    assert len(broker.engine.addresses["a"].routing_types) == 2


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("a?make-address=true", 409, "queue a exists already, on address a"),
        ("new", 404, "address new does not exist: create it first"),
        ("new?make-address=true&ring-size=0", 400, "ring-size must be a number"),
        ("new?make-address=true&filter=x%20%3D", 400, "selector"),
        ("new?make-address=true&colour=red", 400, "there is no parameter 'colour'"),
        ("%24.artemis.internal.x?make-address=true", 400, "the broker's own"),
    ],
)
async def test_a_queue_that_cannot_be_leaves_nothing_behind(
    broker: TestBroker, client: Client, query: str, status: int, detail: str
) -> None:
    broker.queue("a")
    before = set(broker.engine.addresses)
    answer = await client.call("PUT", f"{QUEUES}/{query}")
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
    assert (refused.status, refused.json["error"]) == (409, "in-use")
    assert "1 messages and 1 consumers" in refused.json["detail"]
    assert (await client.call("DELETE", f"{QUEUES}/a?force=true")).json == {"queue": "a", "messages": 1}
    assert inbox.reasons == ["queue a was deleted"]


async def numbers(client: Client) -> list[str]:
    """What is left."""
    return [message["body"]["data"] for message in (await client.get(f"{QUEUES}/a/messages?size=100"))["messages"]]


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=2)])
@pytest.mark.parametrize("call_limits", [CallLimits(steps_max=1)])
async def test_chosen_messages_are_removed(broker: TestBroker, client: Client) -> None:
    for number in range(6):
        broker.send("a", [str(number).encode()], headers=[(b"odd", b"yes" if number % 2 else b"no")])
    await broker.settled()
    path = f"{QUEUES}/a/messages"
    first = (await client.get(path))["messages"][0]["id"]
    one = (await client.call("DELETE", f"{path}?id={first}")).json
    assert (one["purged"], one["complete"]) == (1, True)
    assert await numbers(client) == ["1", "2", "3", "4", "5"]
    odd = quote("odd = 'yes'", safe="")
    step = (await client.call("DELETE", f"{path}?filter={odd}")).json
    assert (step["purged"], step["complete"], step["delivering"]) == (1, False, 0)
    step = (await client.call("DELETE", f"{path}?filter={odd}&after={step['last']}&below={step['below']}")).json
    assert (step["purged"], step["complete"]) == (1, False)
    assert await numbers(client) == ["2", "4", "5"]
    queue = broker.engine.queue("a")
    assert (queue.counters.purged, queue.stored) == (3, 3)
    assert (await client.call("DELETE", f"{path}?id={first}")).status == 404
    assert (await client.call("DELETE", f"{path}?colour=red")).status == 400
    assert (await client.call("DELETE", path)).json == {"queue": "a", "purged": 3, "delivering": 0}


@pytest.mark.parametrize("path", ["/api/v1/queues/a/messages", "/api/v1/queues/a?force=true"])
@pytest.mark.parametrize("engine_limits", [Limits(purge_step_max=2)])
async def test_a_long_queue_is_emptied_over_many_ticks(broker: TestBroker, client: Client, path: str) -> None:
    broker.send("a", [b"%d" % n for n in range(9)])
    await broker.settled()
    before = broker.engine.ticks.number
    answer = (await client.call("DELETE", path)).json
    assert answer.get("purged", answer.get("messages")) == 9
    assert broker.engine.ticks.number == before + 5
    left = await numbers(client) if "messages" in path else []
    assert left == []
