"""Tasks from the command line, of a broker that is killed in the middle of them, with clients that send and receive."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.interop.operating import operate
from tests.support import fork_server
from tests.support.daemon import DaemonProcess, running
from tests.support.fork_server import Forked
from tests.support.process import PATIENCE_S, ROOT, awaited
from tests.support.stomp_py import DURABLE, connected

SETTINGS = """
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
"""

MESSAGES = 300

#: Messages a second of a task that is to be interrupted: it lasts ten seconds, on a machine that may be busy for some.
RATE = "30"


def die(broker: DaemonProcess) -> None:
    """Orders that a consumer refuses for good."""
    with connected(broker.port) as client:
        for n in range(MESSAGES):
            client.put("/queue/orders", f"order {n}", {**DURABLE, "number": str(n)})
        id = client.subscribe("/queue/orders", "client-individual")
        for _ in range(MESSAGES):
            client.nack(client.take(), requeue="false")
        client.frame("UNSUBSCRIBE", {"id": id})


def moved_more(broker: DaemonProcess, task: int, than: int) -> int:
    """How many messages a task has moved, which runs, once they are more than so many."""
    found = awaited(lambda: broker.get(f"tasks/{task}"), lambda found: found["moved"] > than)
    assert found["state"] == "running"
    moved: int = found["moved"]
    return moved


def test_a_task_goes_on_through_two_kills_and_its_counts_are_exact(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        die(broker)
        task = operate(broker, "queue", "retry", "DLQ", "--rate", RATE, "--set", "mended=yes", "--detach")
        seen = [0]
        for _ in range(2):
            seen.append(moved_more(broker, task["id"], seen[-1]))
            broker.restart()
        assert moved_more(broker, task["id"], seen[-1]) < MESSAGES
        ended = operate(broker, "task", "wait", str(task["id"]))
        assert (ended["state"], ended["moved"], ended["refused"]) == ("completed", MESSAGES, {})
        assert ended["targets"] == {"orders": MESSAGES}
        assert (broker.queue("DLQ")["messages"], broker.queue("orders")["messages"]) == (0, MESSAGES)
        with connected(broker.port) as client:
            client.subscribe("/queue/orders", "client-individual")
            back = [client.take() for _ in range(MESSAGES)]
        assert sorted(int(message.headers["number"]) for message in back) == list(range(MESSAGES))
        assert {message.headers["mended"] for message in back} == {"yes"}


def test_a_paused_task_stays_so_until_it_is_resumed(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        die(broker)
        task = operate(broker, "queue", "purge", "DLQ", "--rate", RATE, "--detach", "--yes")
        paused = operate(broker, "task", "pause", str(task["id"]))
        assert broker.stop() == 0
        broker.start()
        found = operate(broker, "task", "show", str(task["id"]))
        assert (found["state"], found["moved"]) == ("paused", paused["moved"])
        operate(broker, "task", "resume", str(task["id"]))
        assert operate(broker, "task", "wait", str(task["id"]))["moved"] == MESSAGES
        assert broker.queue("DLQ")["messages"] == 0


# -- whose steps a client makes ----------------------------------------------------------------------------------------


def begin(broker: DaemonProcess, *arguments: str) -> Forked:
    """`bartleby ARGUMENTS`, which goes on."""
    return fork_server.start([*arguments, "--data", str(broker.data)], os.environ, ROOT)


def send(broker: DaemonProcess) -> None:
    with connected(broker.port) as client:
        for n in range(MESSAGES):
            client.put("/queue/orders", f"order {n}", {**DURABLE, "number": str(n)})


def written(file: Path) -> list[int]:
    """The ids of the messages in a file, all of whose lines are whole."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line["id"] for line in lines if line["kind"] == "message"]


def test_an_export_is_paused_resumed_and_ends_with_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    with running(tmp_path, SETTINGS) as broker:
        send(broker)
        export = begin(broker, "queue", "export", "orders", "--to", str(file), "--remove", "--rate", RATE)
        broker.await_log("task.started")
        task = broker.await_task("export", 20)["id"]
        paused = operate(broker, "task", "pause", str(task))
        assert paused["state"] == "paused"
        resumed = operate(broker, "task", "resume", str(task))
        assert resumed["moved"] - paused["moved"] <= 10, "at most the step that was under way"
        broker.await_task("export", resumed["moved"] + 20)
        broker.restart()  # SIGKILL
        done = export.finished(PATIENCE_S)
        assert done.returncode == 3, done.stderr
        ended = operate(broker, "task", "show", str(task))
        assert (ended["state"], ended["total"], ended["remove"]) == ("failed", MESSAGES, True)
        assert ended["why"].startswith("the broker was restarted")
        left = broker.queue("orders")["messages"]
        assert 20 < ended["moved"] == MESSAGES - left < MESSAGES
        ids = written(file)
        assert len(ids) == ended["moved"] or "may still be on the queue" in done.stderr
        assert len(set(ids)) == len(ids)


def test_an_import_whose_client_is_killed_is_cancelled_and_repeated(tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    with running(tmp_path, SETTINGS) as broker:
        send(broker)
        operate_plainly(broker, "queue", "export", "orders", "--to", str(file))
        bring = ("queue", "import", str(file), "--target", "copies")
        assert operate_plainly(broker, *bring, "--dry-run") == f"{MESSAGES:,} messages would be imported\n"
        importing = begin(broker, *bring, "--rate", RATE)
        broker.await_log("task.started", times=3)
        task = broker.await_task("import", 40)["id"]
        importing.kill()
        assert importing.finished(PATIENCE_S).returncode == -signal.SIGKILL
        found = operate(broker, "task", "cancel", str(task))
        assert (found["state"], found["total"]) == ("cancelled", MESSAGES)
        assert found["moved"] == broker.queue("copies")["messages"]
        assert broker.stop() == 0
        broker.start()
        told = operate_plainly(broker, *bring)
        assert f"{found['moved']} already imported" in told
        with connected(broker.port) as client:
            client.subscribe("/queue/copies", "client-individual")
            numbers = [int(client.take().headers["number"]) for _ in range(MESSAGES)]
        assert numbers == list(range(MESSAGES))


def test_a_replay_ends_with_the_broker_and_the_next_one_brings_the_rest(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        send(broker)
        with connected(broker.port) as client:
            id = client.subscribe("/queue/orders", "client-individual")
            for _ in range(MESSAGES):
                client.ack(client.take())
            client.frame("UNSUBSCRIBE", {"id": id})
        replaying = begin(broker, "journal", "replay", "--rate", RATE)
        broker.await_log("task.started")
        task = broker.await_task("replay", 40)["id"]
        assert broker.stop() == 0
        broker.start()
        done = replaying.finished(PATIENCE_S)
        assert done.returncode == 3, done.stderr
        ended = operate(broker, "task", "show", str(task))
        assert (ended["state"], ended["name"], ended["total"]) == ("failed", "replay", MESSAGES)
        assert 40 <= ended["moved"] == broker.queue("orders")["messages"] < MESSAGES
        rest = operate(broker, "journal", "replay")
        assert (rest["replayed"], rest["repeated"]) == (MESSAGES - ended["moved"], ended["moved"])
        states = [(each["kind"], each["state"], each["moved"]) for each in operate(broker, "task", "list")]
        assert states[0] == ("replay", "completed", MESSAGES - ended["moved"])


def operate_plainly(broker: DaemonProcess, *arguments: str) -> str:
    """What `bartleby ARGUMENTS` prints, which must succeed."""
    done = begin(broker, *arguments).finished(PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout
