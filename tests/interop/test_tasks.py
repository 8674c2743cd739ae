"""Tasks from the command line, of a broker that is killed in the middle of them, with clients that send and receive."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S, ROOT
from tests.support.stomp_py import DURABLE, connected

SETTINGS = """
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
"""

MESSAGES = 300


def operate(broker: DaemonProcess, *arguments: str) -> Any:
    """`bartleby ARGUMENTS -o json`, which must succeed."""
    command = [sys.executable, "-m", "broker", *arguments, "--data", str(broker.data), "-o", "json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def die(broker: DaemonProcess) -> None:
    """Orders that a consumer refuses for good."""
    with connected(broker.port) as client:
        for n in range(MESSAGES):
            client.put("/queue/orders", f"order {n}", {**DURABLE, "number": str(n)})
        id = client.subscribe("/queue/orders", "client-individual")
        for _ in range(MESSAGES):
            client.nack(client.take(), requeue="false")
        client.frame("UNSUBSCRIBE", {"id": id})


def test_a_task_goes_on_through_two_kills_and_its_counts_are_exact(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        die(broker)
        task = operate(broker, "queue", "retry", "DLQ", "--rate", "200", "--set", "mended=yes", "--detach")
        seen = []
        for _ in range(2):
            broker.restart()
            found = operate(broker, "task", "show", str(task["id"]))
            assert found["state"] == "running"
            seen.append(found["moved"])
        assert 0 < seen[0] < seen[1] < MESSAGES
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
        task = operate(broker, "queue", "purge", "DLQ", "--rate", "100", "--detach", "--yes")
        paused = operate(broker, "task", "pause", str(task["id"]))
        assert broker.stop() == 0
        broker.start()
        found = operate(broker, "task", "show", str(task["id"]))
        assert (found["state"], found["moved"]) == ("paused", paused["moved"])
        operate(broker, "task", "resume", str(task["id"]))
        assert operate(broker, "task", "wait", str(task["id"]))["moved"] == MESSAGES
        assert broker.queue("DLQ")["messages"] == 0
