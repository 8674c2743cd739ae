"""`bartleby queue export` and `import`: files that hold whole messages, whatever happens, and come once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.cli import queue_export, queue_import
from broker.cli.failure import UNREACHABLE, Failure
from broker.cli.remote import Remote, TaskWaits
from broker.cli.task import Steps
from broker.engine.model.task import TaskKind, TaskState
from broker.management import client_tasks
from tests.broker.cli.harness import Operator
from tests.broker.management.harness import Inbox, TestBroker

#: What else the line of a message has.
LINE = {"address": "orders", "timestamp": 1, "priority": 4, "head": "", "durable": True}


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The messages in a file."""
    return [line for line in map(json.loads, file.read_text().splitlines()) if line["kind"] == "message"]


def bodies_of(broker: TestBroker, name: str) -> list[object]:
    """The bodies on a queue, in the order of delivery."""
    return [message.body for message in broker.held(name)]


async def test_messages_go_to_a_file_and_come_back_once(broker: TestBroker, operator: Operator, tmp_path: Path) -> None:
    sent = [b"%d" % n for n in range(450)]
    await broker.sent("orders", sent, headers=[(b"colour", b"red")])
    file = tmp_path / "orders.jsonl"
    done = await operator.run("queue", "export", "orders", "--to", str(file))
    assert (done.exit_code, done.stderr) == (0, f"450 messages were written to {file}\n")
    assert broker.engine.queue("orders").message_count == 450
    done = await operator.run("queue", "import", str(file), "--target", "copies")
    assert (done.exit_code, done.stdout) == (0, "450 messages were imported\n")
    await broker.settled()
    assert bodies_of(broker, "copies") == sent
    again = await operator.run("queue", "import", str(file), "--target", "copies")
    assert again.stdout == "0 messages were imported; 450 already imported under this name\n"
    once_more = await operator.run("queue", "import", str(file), "--target", "copies", "--name", "again")
    assert once_more.stdout == "450 messages were imported\n"


async def test_they_leave_the_queue_once_they_are_on_disk(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_export, "MESSAGES_PER_CALL", 2)
    broker.send("orders", [b"%d" % n for n in range(5)])
    inbox = Inbox()
    broker.engine.consumers.grant(broker.read("orders", inbox, counted=True), 1)
    await broker.settled()
    file = tmp_path / "orders.jsonl"
    done = await operator.run("queue", "export", "orders", "--to", str(file), "--remove", "--limit", "3")
    assert done.exit_code == 5
    assert done.stderr.splitlines() == [
        f"3 messages were written to {file}, 3 removed",
        "bartleby: 1 message stays: a consumer holds it",
    ]
    await broker.settled()
    assert [message.body for message in inbox.messages] == [b"0"]
    assert bodies_of(broker, "orders") == [b"0", b"4"]
    [task] = broker.engine.tasks.all()
    assert (task.request.kind, task.request.remove, task.state) == (TaskKind.EXPORT, True, TaskState.COMPLETED)
    assert (task.progress.total, task.progress.looked_at, task.progress.moved) == (5, 4, 3)
    back = await operator.run("queue", "import", str(file))
    assert back.stdout == "3 messages were imported\n"


@pytest.mark.parametrize("remove", [False, True])
async def test_an_interrupt_leaves_both_sides_clean(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, remove: bool
) -> None:
    """Behind the fourth message: with --remove the third is still on the queue, and not in the file."""
    monkeypatch.setattr(queue_export, "MESSAGES_PER_CALL", 2)
    await broker.sent("orders", [b"%d" % n for n in range(6)])
    take, taken = queue_export._Export._take, 0

    def interrupted(self: queue_export._Export, state: str, line: dict[str, Any]) -> None:
        nonlocal taken
        taken += 1
        take(self, state, line)
        if taken == 4:
            self._lines.write({"half": "a message"})
            raise KeyboardInterrupt

    monkeypatch.setattr(queue_export._Export, "_take", interrupted)
    file = tmp_path / "orders.jsonl"
    more = ["--remove"] if remove else []
    done = await operator.run("queue", "export", "orders", "--to", str(file), *more)
    assert done.exit_code == 5
    assert "interrupted: the file has whole messages only" in done.stderr
    await broker.settled()
    left = [message.id for message in broker.held("orders")]
    written = [line["id"] for line in lines_of(file)]
    assert len(written) == (2 if remove else 4)
    assert len(left) == (4 if remove else 6)
    if remove:
        assert not set(written) & set(left)


async def test_a_broker_that_goes_away_while_messages_are_removed(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether they are gone: they stay in the file, and it is said which."""
    await broker.sent("orders", [b"1", b"2"])
    post = Remote.post

    def lost(self: Remote, path: str, body: Any = None) -> Any:
        answer = post(self, path, body)
        if not path.endswith(":remove"):
            return answer
        raise Failure(UNREACHABLE, "it cannot be reached")

    monkeypatch.setattr(Remote, "post", lost)
    file = tmp_path / "orders.jsonl"
    done = await operator.run("queue", "export", "orders", "--to", str(file), "--remove")
    assert done.exit_code == 3
    ids = [line["id"] for line in lines_of(file)]
    assert f"messages {ids[0]} to {ids[1]} are in the file, and may still be on the queue" in done.stderr


async def test_an_import_that_breaks_off_is_repeated(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_import, "BATCH_MESSAGES", 2)
    await broker.sent("orders", [b"%d" % n for n in range(6)])
    file = tmp_path / "orders.jsonl"
    assert (await operator.run("queue", "export", "orders", "--to", str(file), "--remove")).exit_code == 0
    send, calls = Remote.send, 0

    def lost(self: Remote, path: str, body: bytes) -> Any:
        nonlocal calls
        calls += 1
        answer = send(self, path, body)
        if calls == 2:  # it was done, and its answer is lost
            raise Failure(UNREACHABLE, "it cannot be reached")
        return answer

    monkeypatch.setattr(Remote, "send", lost)
    done = await operator.run("queue", "import", str(file))
    assert (done.exit_code, done.stdout) == (3, "2 messages were imported\n")
    assert "repeat the command: messages already imported are skipped" in done.stderr
    again = await operator.run("queue", "import", str(file))
    assert again.stdout == "2 messages were imported; 4 already imported under this name\n"
    await broker.settled()
    assert bodies_of(broker, "orders") == [b"%d" % n for n in range(6)]


# -- as tasks ----------------------------------------------------------------------------------------------------------


async def test_each_is_a_task_that_says_what_became_of_it(
    broker: TestBroker, operator: Operator, tmp_path: Path
) -> None:
    broker.send("orders", [b"1", b"2"], headers=[(b"colour", b"red")])
    await broker.sent("orders", [b"3"], headers=[(b"colour", b"blue")])
    file = tmp_path / "orders.jsonl"
    red = ("queue", "export", "orders", "--filter", "colour = 'red'")
    assert (await operator.run(*red, "--dry-run")).stdout == "2 messages would be written\n"
    assert (await operator.run(*red, "--limit", "1", "--dry-run")).stdout == "1 message would be written\n"
    await operator.run(*red, "--to", str(file))
    bring = ("queue", "import", str(file), "--target", "copies")
    assert (await operator.run(*bring, "--dry-run")).stdout == "2 messages would be imported\n"
    assert "copies" not in broker.engine.queues
    await operator.run(*bring)
    again = await operator.run(*bring, "--dry-run")
    assert again.stdout == "0 messages would be imported; 2 already imported under this name\n"
    told = [
        (task["kind"], task["dry_run"], task["state"], task["total"], task["looked_at"], task["moved"], task["refused"])
        for task in await operator.json("task", "list")
    ]
    assert told == [
        ("import", True, "completed", 2, 2, 0, {"known": 2}),
        ("import", False, "completed", 2, 2, 2, {}),
        ("import", True, "completed", 2, 2, 2, {}),
        ("export", False, "completed", 3, 3, 2, {}),
        ("export", True, "completed", 3, 3, 2, {}),
        ("export", True, "completed", 3, 3, 2, {}),
    ]
    shown = await operator.run("task", "show", str(broker.engine.tasks.all()[1].id))
    assert "2 messages imported" in shown.stdout
    assert "examined  2 of 2" in shown.stdout
    assert (await operator.run("task", "list")).exit_code == 0


async def test_a_dry_run_of_an_import_leaves_large_bodies_where_they_are(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {"kind": "journal", "version": 1},
        {"kind": "message", "id": 1, "queues": [{"name": "orders"}], "protocol": "stomp", "body-bytes": 3, **LINE},
        {"kind": "body", "data": "YWJj"},
    ]
    file = tmp_path / "orders.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(Remote, "put", lambda *_: pytest.fail("a body was uploaded"))
    done = await operator.run("queue", "import", str(file), "--target", "orders", "--dry-run")
    assert (done.exit_code, done.stdout) == (0, "1 message would be imported\n")
    monkeypatch.undo()
    assert (await operator.run("queue", "import", str(file), "--target", "orders")).exit_code == 0
    await broker.settled()
    assert broker.engine.queue("orders").message_count == 1
    known = await operator.run("queue", "import", str(file), "--target", "orders", "--dry-run")
    assert known.stdout == "0 messages would be imported; 1 already imported under this name\n"


async def test_a_cancelled_export_ends_and_its_file_is_whole(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_export, "MESSAGES_PER_CALL", 2)
    await broker.sent("orders", [b"%d" % n for n in range(6)])
    complete = queue_export._Export._complete

    def cancelled(self: queue_export._Export, steps: Steps) -> None:
        complete(self, steps)
        self._remote.post(f"/api/v1/tasks/{steps.number}:cancel")

    monkeypatch.setattr(queue_export._Export, "_complete", cancelled)
    file = tmp_path / "orders.jsonl"
    done = await operator.run("queue", "export", "orders", "--to", str(file), "--remove")
    assert done.exit_code == 5
    [task] = broker.engine.tasks.all()
    assert done.stderr.splitlines() == [
        f"2 messages were written to {file}, 2 removed",
        f"bartleby: task {task.id} is cancelled",
    ]
    assert (task.state, task.progress.moved) == (TaskState.CANCELLED, 2)
    assert len(lines_of(file)) == 2
    assert broker.engine.queue("orders").message_count == 4


async def test_an_import_waits_while_its_task_is_paused(
    broker: TestBroker, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_import, "BATCH_MESSAGES", 2)
    monkeypatch.setattr(client_tasks, "TURN_SECONDS_MAX", 0.01)
    await broker.sent("orders", [b"%d" % n for n in range(6)])
    file = tmp_path / "orders.jsonl"
    await operator.run("queue", "export", "orders", "--to", str(file), "--remove")
    send, told = Remote.send, list[str]()

    def steered(self: Remote, path: str, body: bytes) -> Any:
        number = json.loads(body)["task"]
        try:
            answer = send(self, path, body)
        except TaskWaits as waits:
            told.append(waits.message)
            if len(told) == 3:
                self.post(f"/api/v1/tasks/{number}:resume")
            raise
        if not told:
            self.post(f"/api/v1/tasks/{number}:pause")
        return answer

    monkeypatch.setattr(Remote, "send", steered)
    done = await operator.run("queue", "import", str(file))
    assert (done.exit_code, done.stdout) == (0, "6 messages were imported\n")
    task = broker.engine.tasks.all()[0]
    assert told == [f"task {task.id} is paused: make the call again"] * 3
    await broker.settled()
    assert bodies_of(broker, "orders") == [b"%d" % n for n in range(6)]


async def test_why_a_command_could_not_go_on_is_told_by_its_task(
    broker: TestBroker, operator: Operator, tmp_path: Path
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"kind":"journal","version":1}\n{"kind":"body"}\n')
    assert (await operator.run("queue", "import", str(file))).exit_code == 2
    [task] = broker.engine.tasks.all()
    assert (task.state, task.why) == (TaskState.FAILED, f"line 2 of {file} is not a line of an export")


async def test_bodies_as_files(broker: TestBroker, operator: Operator, tmp_path: Path) -> None:
    await broker.sent("orders", [b"one", b"two"])
    directory = tmp_path / "bodies"
    done = await operator.run("queue", "export", "orders", "--bodies", str(directory))
    assert (done.exit_code, done.stderr) == (0, f"2 bodies were written to {directory}\n")
    assert sorted(file.read_bytes() for file in directory.iterdir()) == [b"one", b"two"]
    again = await operator.run("queue", "export", "orders", "--bodies", str(directory))
    assert (again.exit_code, "exists" in again.stderr) == (1, True)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("lines", "status", "told"),
    [
        ("", 2, "is not an export of version 1"),
        ('{"kind":"journal","version":2}', 2, "is not an export of version 1"),
        ('{"kind":"journal","version":1}\n{', 2, "line 2 of"),
        ('{"kind":"journal","version":1}\n{"kind":"body","data":""}', 2, "line 2 of"),
        (
            '{"kind":"journal","version":1}\n{"kind":"message","id":7,"body-bytes":3}',
            2,
            "ends within the body of message 7",
        ),
        ('{"kind":"journal","version":1}\n{"kind":"message","id":7}', 2, "does not say on which queues it was"),
        ('{"kind":"journal","version":1}\n{"kind":"message","queues":[{"name":"no"}]}', 1, "queue no does not exist"),
    ],
)
async def test_files_that_are_no_exports(
    operator: Operator, tmp_path: Path, lines: str, status: int, told: str
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text(lines)
    done = await operator.run("queue", "import", str(file))
    assert done.exit_code == status
    assert told in done.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--remove"], "--remove: give a file with --to"),
        (["--to", "a", "--bodies", "b"], "exclude each other"),
        (["--to", "{there}"], "there: it exists: an export writes a new file\n"),
        (["--to", "{there}/nowhere"], "there/nowhere: Not a directory\n"),
    ],
)
async def test_what_an_export_refuses(
    broker: TestBroker, operator: Operator, tmp_path: Path, options: list[str], told: str
) -> None:
    await broker.sent("orders", [b"1"])
    there = tmp_path / "there"
    there.write_text("precious")
    done = await operator.run("queue", "export", "orders", *(each.format(there=there) for each in options))
    assert done.exit_code in (1, 2)
    assert told in done.stderr
    assert there.read_text() == "precious"


@pytest.mark.usefixtures("broker")
async def test_an_id_that_is_not_on_the_queue_does_not_keep_the_others_from_the_file(
    broker: TestBroker, operator: Operator, tmp_path: Path
) -> None:
    await broker.sent("orders", [b"1", b"2"])
    ids = [str(message.id) for message in broker.held("orders")]
    chosen = [text for id in (ids[0], "999", ids[1]) for text in ("--id", id)]
    why = "bartleby: 1 message was not exported (gone): they were named by id, but are not on the queue"
    file = tmp_path / "some.jsonl"
    done = await operator.run("queue", "export", "orders", *chosen, "--to", str(file))
    assert (done.exit_code, done.stderr.splitlines()) == (5, [f"2 messages were written to {file}", why])
    assert len(lines_of(file)) == 2
    done = await operator.run("queue", "export", "orders", *chosen, "--bodies", str(tmp_path / "bodies"))
    assert (done.exit_code, done.stderr.splitlines()[1]) == (5, why)
    done = await operator.run("queue", "export", "orders", *chosen, "--dry-run")
    assert (done.exit_code, done.stdout, done.stderr) == (5, "2 messages would be written\n", f"{why}\n")


async def test_an_export_of_nothing_leaves_no_file(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    done = await operator.run("queue", "export", "orders", "--to", str(file))
    assert (done.exit_code, "queue orders does not exist" in done.stderr) == (1, True)
    assert not file.exists()
