"""Retrying and moving messages, and the balance, over HTTP."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.limits import Limits
from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode
from broker.management.limits import Limits as CallLimits
from broker.management.models.base import ID_MAX
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker, die

RETRY = "/api/v1/queues/{}/messages:retry"
MOVE = "/api/v1/queues/{}/messages:move"


async def bodies(client: Client, name: str) -> list[str]:
    """What is on a queue."""
    messages = (await client.get(f"/api/v1/queues/{quote(name, safe='')}/messages?limit=1000"))["messages"]
    return [message["body"]["data"] for message in messages]


async def test_a_retry_brings_dead_letters_back(broker: TestBroker, client: Client) -> None:
    await die(broker, "a/b", b"1")
    broker.send("DLQ", [b"2"])
    await broker.settled()
    done = await client.call("POST", RETRY.format("DLQ"), json={})
    below = broker.engine.journal.allocate_ids(0)
    assert (done.status, done.json) == (
        200,
        {
            "queue": "DLQ",
            "moved": 1,
            "refused": {"no-origin": 1},
            "delivering": 0,
            "complete": True,
            "last": done.json["below"] - 1,
            "below": done.json["below"],
        },
    )
    assert done.json["below"] < below
    assert await bodies(client, "DLQ") == ["2"]
    assert (await client.get("/api/v1/queues/DLQ"))["counters"]["moved"] == 1


async def test_a_move_takes_a_filter_or_an_id(broker: TestBroker, client: Client) -> None:
    for colour in (b"red", b"blue", b"green"):
        broker.send("a", [colour], headers=[(b"colour", colour)])
    await broker.settled()
    path, wanted = MOVE.format("a"), {"to": "b/c::b/d"}
    assert (await client.call("POST", path, json=wanted | {"filter": "colour = 'red'"})).json["moved"] == 1
    blue = (await client.get("/api/v1/queues/a/messages"))["messages"][0]["id"]
    assert (await client.call("POST", path, json=wanted | {"id": blue})).json["moved"] == 1
    assert (await bodies(client, "a"), await bodies(client, "b/d")) == (["green"], ["red", "blue"])


async def test_a_move_is_answered_only_when_it_is_durable(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1"])
    await broker.settled()
    broker.disk_works = False
    answer = asyncio.ensure_future(client.call("POST", MOVE.format("a"), json={"to": "b"}))
    await broker.waiting.wait()
    assert (await client.get("/api/v1/queues/a"))["messages"] == 0
    assert not answer.done(), "nothing is confirmed before it is durable"
    broker.disk_works = True
    broker.tick.enter()
    assert (await answer).json["moved"] == 1


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=1)])
@pytest.mark.parametrize("call_limits", [CallLimits(steps_max=3)])
async def test_a_long_queue_is_moved_step_by_step(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"%d" % n for n in range(7)])
    await broker.settled()
    done = (await client.call("POST", MOVE.format("a"), json={"to": "b"})).json
    assert (done["moved"], done["complete"]) == (3, False)
    broker.send("a", [b"late"])
    await broker.settled()
    moved = []
    while not done["complete"]:
        wanted = {"to": "b", "after": done["last"], "below": done["below"]}
        done = (await client.call("POST", MOVE.format("a"), json=wanted)).json
        moved.append(done["moved"])
    assert moved == [3, 1]
    assert await bodies(client, "a") == ["late"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (RETRY.format("none"), {}, 404, "not-found"),
        (RETRY.format("a"), {"id": 999999}, 404, "not-found"),
        (RETRY.format("a"), {"id": 0}, 400, "invalid-body"),
        (RETRY.format("a"), {"id": ID_MAX + 1}, 400, "invalid-body"),
        (RETRY.format("a"), {"id": ID_MAX}, 404, "not-found"),
        (RETRY.format("a"), {"id": 1, "filter": "b"}, 400, "invalid-body"),
        (RETRY.format("a"), {"id": 1, "after": 1}, 400, "invalid-body"),
        (RETRY.format("a"), {"filter": "a ="}, 400, "invalid-selector"),
        (RETRY.format("a"), {"after": "x"}, 400, "invalid-body"),
        (MOVE.format("a"), {}, 400, "invalid-body"),
        (MOVE.format("a"), {"to": "a"}, 400, "onto-itself"),
        (MOVE.format("a"), {"to": "b.#"}, 400, "invalid-name"),
        (MOVE.format("a"), {"to": "news"}, 404, "not-found"),
        ("/api/v1/queues/a/messages:copy", {}, 404, "no-such-call"),
    ],
)
async def test_what_cannot_be_done_is_explained(
    broker: TestBroker, client: Client, path: str, body: object, status: int, code: str
) -> None:
    broker.send("a", [b"1"])
    broker.engine.operators.declare("news", {RoutingType.MULTICAST})
    await broker.settled()
    answer = await client.call("POST", path, json=body)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.json["detail"]
    assert await bodies(client, "a") == ["1"]


async def test_a_message_that_a_consumer_holds_is_told(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1", b"2"])
    inbox = Inbox()
    broker.engine.consumers.subscribe(inbox, SubscribeRequest("a", ack_mode=AckMode.INDIVIDUAL, window=0))
    await broker.settled()
    held = await client.call("POST", MOVE.format("a"), json={"to": "b", "id": inbox.messages[0].id})
    assert (held.status, held.json["code"]) == (409, "in-use")
    done = (await client.call("POST", MOVE.format("a"), json={"to": "b"})).json
    assert (done["moved"], done["delivering"]) == (1, 1)


@pytest.mark.parametrize("path", [RETRY.format("a"), MOVE.format("a"), "/api/v1/balance"])
async def test_the_calls_need_the_token(client: Client, path: str) -> None:
    method = "GET" if path.endswith("balance") else "POST"
    assert (await client.call(method, path, token="wrong")).status == 401
    other = "POST" if method == "GET" else "GET"
    assert (await client.call(other, path)).status == 405


# -- the balance -------------------------------------------------------------------------------------------------------


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
