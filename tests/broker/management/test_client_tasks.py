"""Exports, imports and replays as tasks over HTTP: each call is a step, which waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from broker.engine.model.task import Task, TaskKind
from broker.management import client_tasks, turns
from tests.broker.management.export_calls import EXPORT, IMPORT, LINE, asked
from tests.broker.management.harness import Client, TestBroker, basic, managing

TASKS = "/api/v1/tasks"


async def started(client: Client, kind: str, **more: Any) -> int:
    """The number of a new task."""
    about = {"queue": "orders"} if kind == "export" else {"name": "one"}
    answer = await client.call("POST", TASKS, json={"kind": kind, **about, **more})
    assert answer.status == 201, answer.json
    return int(answer.json["id"])


async def shown(client: Client, task: int) -> tuple[Any, ...]:
    found = await client.get(f"{TASKS}/{task}")
    return found["state"], found["looked_at"], found["moved"], found["refused"]


async def test_an_export_has_the_selector_and_the_rate_of_its_task(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"%d" % n for n in range(9)], headers=[(b"colour", b"red")])
    await broker.sent("orders", [b"blue"])
    task = await started(client, "export", filter="colour = 'red'", rate=30)
    first = await client.get(f"{EXPORT}?task={task}")
    assert len(first["messages"]) == 3
    broker.now += 100
    rest = await client.get(f"{EXPORT}?task={task}&limit=1&after={first['next']}")
    assert len(rest["messages"]) == 1
    assert (await client.call("POST", f"{TASKS}/{task}:end", json={})).json["state"] == "completed"
    assert await shown(client, task) == ("completed", 4, 4, {})
    over = await client.call("GET", f"{EXPORT}?task={task}")
    assert (over.status, over.json["code"]) == (409, "task-ended")


async def test_a_dry_run_answers_with_no_messages(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"1", b"2"])
    task = await started(client, "export", dry_run=True)
    assert await client.get(f"{EXPORT}?task={task}") == {"messages": [], "next": None}
    assert await shown(client, task) == ("running", 2, 2, {})
    one = await started(client, "import", dry_run=True)
    answer = await client.call("POST", IMPORT, json=asked(LINE, LINE) | {"task": one})
    assert answer.json == {"imported": 2, "refused": {}, "known": False}
    assert broker.engine.queue("orders").message_count == 2


async def test_a_dry_run_tells_what_would_be_refused(broker: TestBroker, client: Client) -> None:
    wanted = {"make_address": True, "routing_type": "ANYCAST", "filter": "colour = 'blue'"}
    assert (await client.call("PUT", "/api/v1/queues/orders", json=wanted)).status == 201
    task = await started(client, "import", dry_run=True)
    answer = await client.call("POST", IMPORT, json=asked(LINE) | {"task": task})
    assert answer.json == {"imported": 0, "refused": {"no-queue": 1}, "known": False}
    assert await shown(client, task) == ("running", 1, 0, {"no-queue": 1})


async def test_messages_that_a_client_has_on_its_disk_are_removed(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"%d" % n for n in range(200)])
    task = await started(client, "export", remove=True)
    page = await client.get(f"{EXPORT}?task={task}&limit=150")
    ids = [each["line"]["id"] for each in page["messages"]]
    answer = await client.call("POST", f"{TASKS}/{task}:remove", json={"ids": [*ids, 9_999]})
    assert answer.json == {"removed": 150, "refused": {"gone": 1}}
    assert await shown(client, task) == ("running", 150, 150, {"gone": 1})
    assert broker.engine.queue("orders").message_count == 50


async def test_a_step_waits_while_its_task_is_paused(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.queue("orders")
    task = await started(client, "import")
    await client.call("POST", f"{TASKS}/{task}:pause")
    came, may_step = asyncio.Event(), broker.engine.tasks.may_step

    def tried(task: Task, kind: TaskKind) -> bool:
        came.set()
        return may_step(task, kind)

    monkeypatch.setattr(broker.engine.tasks, "may_step", tried)
    calling = asyncio.create_task(client.call("POST", IMPORT, json=asked(LINE) | {"task": task}))
    await came.wait()
    assert not calling.done()
    await client.call("POST", f"{TASKS}/{task}:resume")
    assert (await calling).json["imported"] == 1


@pytest.mark.parametrize("verb", ["pause", ""])
async def test_a_step_that_has_waited_for_long_is_refused_and_may_be_made_again(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    broker.queue("orders")
    monkeypatch.setattr(client_tasks, "TURN_SECONDS_MAX", 0.01)
    task = await started(client, "import", rate=1)
    assert (await client.call("POST", IMPORT, json=asked(LINE) | {"task": task})).status == 200
    if verb:
        await client.call("POST", f"{TASKS}/{task}:{verb}")
    again = asked(LINE, name="two") | {"task": task}
    waits = await client.call("POST", IMPORT, json=again)
    why = "paused" if verb else "ahead of 1 message a second"
    assert (waits.status, waits.json["code"]) == (409, "task-waits")
    assert waits.json["detail"] == f"task {task} is {why}: make the call again"
    if verb:
        await client.call("POST", f"{TASKS}/{task}:resume")
    broker.now += 1_000
    assert (await client.call("POST", IMPORT, json=again)).json["imported"] == 1


async def test_a_replay_is_counted(client: Client) -> None:
    task = await started(client, "replay", total=2)
    line = LINE | {"queue": "orders"}
    lost = line | {"address": "news", "queue": "alice.news", "routing-type": "MULTICAST"}
    sent = {"name": "one", "task": task, "messages": [line, lost]}
    assert (await client.call("POST", "/api/v1/messages:replay", json=sent)).json["replayed"] == 1
    assert await shown(client, task) == ("running", 2, 1, {"no-queue": 1})


@pytest.fixture
def several_back(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a replay, of which each message takes a turn, has brought back five of them."""
    monkeypatch.setattr(turns, "TURN_US", 0)
    several, queue, may_step = asyncio.Event(), broker.queue("orders"), broker.engine.tasks.may_step

    def asked_for(task: Task, kind: TaskKind) -> bool:
        if queue.message_count == 5:
            several.set()
        return may_step(task, kind)

    monkeypatch.setattr(broker.engine.tasks, "may_step", asked_for)
    return several


def replaying(client: Client, task: int) -> asyncio.Task[Any]:
    """A call that replays 500 messages."""
    sent = {"name": "one", "task": task, "messages": [LINE | {"queue": "orders", "id": n} for n in range(1, 501)]}
    return asyncio.create_task(client.call("POST", "/api/v1/messages:replay", json=sent))


async def test_a_replay_lets_others_in_and_ends_with_its_task(
    broker: TestBroker, client: Client, several_back: asyncio.Event
) -> None:
    task = await started(client, "replay")
    calling = replaying(client, task)
    await several_back.wait()
    assert (await client.call("POST", f"{TASKS}/{task}:cancel")).status == 200
    answer = (await calling).json
    count = broker.engine.queue("orders").message_count
    assert answer == {"replayed": count, "refused": {}, "stopped": f"task {task} is cancelled"}
    assert 5 <= count < 500
    assert await shown(client, task) == ("cancelled", count, count, {})


async def test_a_replay_whose_caller_is_gone_is_counted(
    broker: TestBroker, client: Client, several_back: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, stepped = asyncio.Event(), broker.engine.tasks.stepped

    def step(task: Task, *, looked_at: int, moved: int, refused: Mapping[str, int]) -> None:
        stepped(task, looked_at=looked_at, moved=moved, refused=refused)
        counted.set()

    monkeypatch.setattr(broker.engine.tasks, "stepped", step)
    task = await started(client, "replay")
    calling = replaying(client, task)
    await several_back.wait()
    calling.cancel()
    await counted.wait()
    count = broker.engine.queue("orders").message_count
    assert count >= 5
    assert await shown(client, task) == ("running", count, count, {})


@pytest.mark.parametrize("path", [IMPORT, "/api/v1/messages:replay"])
@pytest.mark.parametrize("task", [-1, True, "1", 2**63])
async def test_a_task_is_a_number(client: Client, path: str, task: object) -> None:
    answer = await client.call("POST", path, json=asked(LINE | {"queue": "orders"}) | {"task": task})
    assert (answer.status, "task is the number of a task" in answer.json["detail"]) == (400, True)


async def test_a_step_of_another_task_is_refused(broker: TestBroker, client: Client) -> None:
    for name in ("orders", "other"):
        broker.queue(name)
    other = await started(client, "export", queue="other")
    wrong = await client.call("GET", f"{EXPORT}?task={other}")
    assert (wrong.status, wrong.json["detail"]) == (400, f"task {other} exports queue other, not orders")
    kind = await client.call("POST", IMPORT, json=asked(LINE) | {"task": other})
    assert (kind.status, kind.json["code"]) == (400, "invalid-task")
    none = await client.call("POST", IMPORT, json=asked(LINE) | {"task": 99_999})
    assert (none.status, none.json["code"]) == (404, "not-found")
    managing(broker, "orders")
    hidden = await client.call("GET", f"{EXPORT}?task={other}", token=None, headers=basic("alice", "s3cret"))
    denied = f"permission denied: not allowed to manage task {other} (manage)"
    assert (hidden.status, hidden.json["detail"]) == (403, denied)


async def test_imports_are_for_those_who_manage_the_whole_broker(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    task, export = await started(client, "import"), await started(client, "export")
    alice = basic("alice", "s3cret")
    for address, status, seen in (("orders", 403, [export]), ("#", 200, [export, task])):
        managing(broker, address)
        assert (await client.call("GET", f"{TASKS}/{task}", token=None, headers=alice)).status == status
        listed = (await client.call("GET", TASKS, token=None, headers=alice)).json["tasks"]
        assert [each["id"] for each in listed] == seen
        answer = await client.call("POST", TASKS, token=None, headers=alice, json={"kind": "import", "name": "x"})
        assert answer.status == (403 if status == 403 else 201)
