"""Tasks over HTTP: retries, moves and purges of many messages."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from broker.engine.model.limits import Limits
from broker.engine.model.message import PropertyView, RoutingType
from broker.engine.operators.tasks import IDS_MAX
from broker.management.models.base import ID_MAX, WAIT_MS_MAX
from tests.broker.management.harness import NOW, Answer, Client, Inbox, TestBroker, basic, die, managing

TASKS = "/api/v1/tasks"


async def start(client: Client, kind: str, queue: str = "DLQ", **more: Any) -> Answer:
    """A task, or why it was refused."""
    return await client.call("POST", TASKS, json={"kind": kind, "queue": queue} | more)


async def bodies(client: Client, name: str) -> list[str]:
    """What is on a queue."""
    messages = (await client.get(f"/api/v1/queues/{quote(name, safe='')}/messages?limit=1000"))["messages"]
    return [message["body"]["data"] for message in messages]


async def test_a_retry_brings_dead_letters_back(broker: TestBroker, client: Client) -> None:
    await die(broker, "a/b", b"1")
    await broker.sent("DLQ", [b"2"])
    done = await start(client, "retry")
    task = done.json
    assert (done.status, task["kind"], task["queue"], task["state"]) == (201, "retry", "DLQ", "completed")
    assert (task["total"], task["looked_at"], task["moved"]) == (2, 2, 1)
    assert (task["refused"], task["targets"]) == ({"no-origin": 1}, {"a/b": 1})
    assert (task["created"], task["ended"], task["why"]) == (NOW, NOW, "")
    assert task["by"]["token"] == "management.token"
    assert await bodies(client, "DLQ") == ["2"]
    assert await client.get(f"{TASKS}/{task['id']}") == task


async def test_a_move_takes_a_filter_or_ids(broker: TestBroker, client: Client) -> None:
    for colour in (b"red", b"blue", b"green"):
        broker.send("a", [colour], headers=[(b"colour", colour)])
    await broker.settled()
    target = "b/c::b/d"
    assert (await start(client, "move", "a", target=target, filter="colour = 'red'")).json["moved"] == 1
    blue = (await client.get("/api/v1/queues/a/messages"))["messages"][0]["id"]
    assert (await start(client, "move", "a", target=target, ids=[blue])).json["moved"] == 1
    assert (await bodies(client, "a"), await bodies(client, "b/d")) == (["green"], ["red", "blue"])


async def test_a_group_is_mended_on_its_way(broker: TestBroker, client: Client) -> None:
    await die(broker, "a", b"1")
    await die(broker, "b", b"2")
    edit = {"set": {"currency": "EUR"}, "text": "mended"}
    task = (await start(client, "retry", group={"origin": "b"}, edit=edit, first_origin=True)).json
    assert (task["moved"], task["edited"], task["group"]) == (1, True, {"origin": "b"})
    [message] = broker.held("b")
    assert (message.body, PropertyView(message)["currency"]) == (b"mended", "EUR")


@pytest.mark.parametrize("kind", ["move", "purge"])
async def test_a_task_is_answered_only_when_it_is_durable(broker: TestBroker, client: Client, kind: str) -> None:
    await broker.sent("a", [b"1"])
    broker.disk_works = False
    target = {"target": "b"} if kind == "move" else {}
    answer = asyncio.ensure_future(start(client, kind, "a", **target))
    await broker.waiting.wait()
    assert (await client.get("/api/v1/queues/a"))["messages"] == 0
    assert not answer.done(), "nothing is confirmed before it is durable"
    broker.disk_works = True
    broker.tick.enter()
    assert (await answer).json["moved"] == 1


async def test_messages_of_consumers_are_left_alone(broker: TestBroker, client: Client) -> None:
    broker.send("a", [b"1", b"2", b"3"])
    broker.send("a", [b"later"], scheduled=NOW + 60_000)
    inbox = Inbox()
    broker.read("a", inbox, window=0)
    await broker.settled()
    held = (await start(client, "purge", "a", ids=[inbox.messages[0].id])).json
    assert (held["moved"], held["refused"]) == (0, {"delivering": 1})
    assert (await start(client, "purge", "a")).json["moved"] == 3
    shown = await client.get("/api/v1/queues/a")
    assert (shown["messages"], shown["delivering"], shown["counters"]["purged"]) == (1, 1, 3)


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=1)])
@pytest.mark.parametrize(
    ("left", "lost"),
    [
        (("a", "b", "c"), ""),
        (("a", "c"), "permission denied: not allowed to manage b (manage)"),
        (("b", "c"), "permission denied: not allowed to manage a::a (manage)"),
        ((), "permission denied: not allowed to manage a::a (manage)"),
    ],
)
async def test_a_task_ends_when_its_user_may_no_longer_start_it(
    broker: TestBroker, client: Client, left: tuple[str, ...], lost: str
) -> None:
    sent = 200  # far more steps than there are between the two requests
    await broker.sent("a", [b"%d" % n for n in range(sent)])
    await broker.sent("b", [])
    managing(broker, "a", "b")
    move = {"kind": "move", "queue": "a", "target": "b"}
    task = (await client.call("POST", TASKS, token=None, headers=basic("alice", "s3cret"), json=move)).json
    assert task["state"] == "running"
    managing(broker, *left)
    task = await client.get(f"{TASKS}/{task['id']}?wait={WAIT_MS_MAX}")
    assert (task["state"], task["why"]) == ("failed" if lost else "completed", lost)
    assert task["moved"] + len(await bodies(client, "a")) == sent
    assert lost == "" or task["moved"] < sent


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=1)])
async def test_a_task_of_the_broker_s_token_needs_no_permission(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"1", b"2", b"3"])
    task = (await start(client, "purge", "a", filter="TRUE")).json
    managing(broker)
    assert (await client.get(f"{TASKS}/{task['id']}?wait={WAIT_MS_MAX}"))["moved"] == 3


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=1)])
async def test_a_long_task_is_waited_for(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"%d" % n for n in range(7)])
    task = (await start(client, "move", "a", target="b")).json
    assert (task["moved"] < 7, task["state"]) == (True, "running")
    task = await client.get(f"{TASKS}/{task['id']}?wait={WAIT_MS_MAX}")
    assert (task["moved"], task["state"]) == (7, "completed")


async def test_a_task_is_paused_resumed_and_cancelled(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"%d" % n for n in range(3)])
    task = (await start(client, "purge", "a", rate=1)).json
    path = f"{TASKS}/{task['id']}"
    assert (await client.get(f"{path}?wait=1"))["state"] == "running"
    waiting = asyncio.ensure_future(client.get(f"{path}?wait={WAIT_MS_MAX}"))
    await asyncio.sleep(0)
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert (await client.call("POST", f"{path}:{verb}")).json["state"] == state
    assert (await waiting)["state"] != "running"
    refused = await client.call("POST", f"{path}:resume")
    assert (refused.status, refused.json["code"]) == (409, "in-use")


async def test_tasks_are_listed_the_latest_first(broker: TestBroker, client: Client) -> None:
    await broker.sent("a", [b"1"])
    ids = [(await start(client, "purge", "a", dry_run=True)).json["id"] for _ in range(3)]
    first = await client.get(f"{TASKS}?limit=2")
    assert [task["id"] for task in first["tasks"]] == [ids[2], ids[1]]
    rest = await client.get(f"{TASKS}?limit=2&after={first['next']}")
    assert ([task["id"] for task in rest["tasks"]], rest["next"]) == ([ids[0]], None)
    assert await bodies(client, "a") == ["1"]


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({}, 400, "invalid-body"),
        ({"kind": "copy", "queue": "a"}, 400, "invalid-body"),
        ({"kind": "retry", "queue": ""}, 400, "invalid-task"),
        ({"kind": "retry", "queue": "a", "remove": True}, 400, "invalid-task"),
        ({"kind": "export", "queue": "a", "total": 1}, 400, "invalid-task"),
        ({"kind": "export", "queue": "a", "group": {"reason": "rejected"}}, 400, "invalid-task"),
        ({"kind": "export", "queue": "a", "target": "b"}, 400, "invalid-task"),
        ({"kind": "export", "queue": "a", "remove": True, "dry_run": True}, 400, "invalid-task"),
        ({"kind": "import"}, 400, "invalid-task"),
        ({"kind": "import", "name": "x" * 101}, 400, "invalid-task"),
        ({"kind": "import", "name": "x", "queue": "a"}, 400, "invalid-task"),
        ({"kind": "import", "name": "x", "filter": "TRUE"}, 400, "invalid-task"),
        ({"kind": "replay", "name": "x", "dry_run": True}, 400, "invalid-task"),
        ({"kind": "purge", "name": "x", "queue": "a"}, 400, "invalid-task"),
        ({"kind": "retry", "queue": "none"}, 404, "not-found"),
        ({"kind": "retry", "queue": "a", "ids": [0]}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "ids": [ID_MAX + 1]}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "ids": list(range(1, IDS_MAX + 2))}, 400, "invalid-task"),
        ({"kind": "retry", "queue": "a", "ids": [1], "filter": "b"}, 400, "invalid-task"),
        ({"kind": "retry", "queue": "a", "filter": "a ="}, 400, "invalid-selector"),
        ({"kind": "purge", "queue": "a", "filter": " "}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "group": {"colour": "red"}}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "edit": {"base64": "*"}}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "edit": {"text": "", "base64": ""}}, 400, "invalid-body"),
        ({"kind": "retry", "queue": "a", "edit": {"set": {"_AMQ_DL_REASON": "x"}}}, 400, "invalid-edit"),
        ({"kind": "move", "queue": "a"}, 400, "invalid-task"),
        ({"kind": "move", "queue": "a", "target": "a"}, 400, "onto-itself"),
        ({"kind": "move", "queue": "a", "target": "b.#"}, 400, "invalid-name"),
        ({"kind": "move", "queue": "a", "target": "news"}, 404, "not-found"),
        ({"kind": "purge", "queue": "a", "rate": -1}, 400, "invalid-body"),
    ],
)
async def test_an_impossible_task_is_explained(
    broker: TestBroker, client: Client, asked: object, status: int, code: str
) -> None:
    broker.send("a", [b"1"])
    broker.engine.configuration.declare("news", {RoutingType.MULTICAST})
    await broker.settled()
    answer = await client.call("POST", TASKS, json=asked)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.json["detail"]
    assert await bodies(client, "a") == ["1"]
    assert (await client.get(TASKS))["tasks"] == []


@pytest.mark.parametrize("path", [f"{TASKS}/7", f"{TASKS}/7:pause"])
async def test_a_task_that_is_not_there(client: Client, path: str) -> None:
    answer = await client.call("POST" if ":" in path else "GET", path)
    assert (answer.status, answer.json["code"]) == (404, "not-found")


@pytest.mark.parametrize("what", [{"kind": "retry"}, {"kind": "move", "target": "DLQ.mine"}])
async def test_a_caller_who_edits_messages_that_may_go_back_manages_all(
    broker: TestBroker, client: Client, what: dict[str, str]
) -> None:
    await die(broker, "secret", b"1")
    for address, edit, status in (("DLQ.#", {}, 201), ("DLQ.#", {"text": "x"}, 403), ("#", {"text": "x"}, 201)):
        managing(broker, address)
        asked = {**what, "queue": "DLQ", "dry_run": True, "edit": edit}
        answer = await client.call("POST", TASKS, token=None, headers=basic("alice", "s3cret"), json=asked)
        assert answer.status == status


async def test_a_task_of_a_queue_that_is_gone_is_for_who_managed_it(broker: TestBroker, client: Client) -> None:
    broker.engine.configuration.declare("orders.a", {RoutingType.ANYCAST})
    await client.call("PUT", "/api/v1/queues/pay", json={"address": "orders.a", "routing_type": "ANYCAST"})
    task = (await start(client, "delete-queue", "orders.a::pay")).json
    assert (task["queue"], task["state"]) == ("pay", "completed")
    headers = basic("alice", "s3cret")
    for address, status in (("orders.#", 200), ("pay", 403)):
        managing(broker, address)
        assert (await client.call("GET", f"{TASKS}/{task['id']}", token=None, headers=headers)).status == status
        listed = (await client.call("GET", TASKS, token=None, headers=headers)).json["tasks"]
        assert [each["id"] for each in listed] == ([task["id"]] if status == 200 else [])


async def test_a_body_of_very_many_values_is_refused_unread(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    answer = await client.call("POST", "/api/v1/tasks", json={"kind": "purge", "queue": "a", "ids": [1] * 20_001})
    assert (answer.status, answer.json["code"]) == (413, "body-too-large")
