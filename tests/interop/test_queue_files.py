"""Messages of every protocol from one broker's queue to another's, through a file, over a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Final

from proton import Message

from tests.support import paho_client
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S, ROOT
from tests.support.proton_client import connected as proton
from tests.support.stomp_client import StompSocket
from tests.support.stomp_py import DURABLE, connected

#: A queue of more than it may have in memory.
SETTINGS: Final = """
[[address-settings]]
match = "orders"
max-size-bytes = "256KiB"
address-full-policy = "PAGE"
"""

MESSAGES: Final = 8_000

#: More than goes into one call.
LARGE: Final = Random(1).randbytes(3 << 20).replace(b"\0", b"\1")


def made(directory: Path) -> Path:
    """A directory for a broker."""
    directory.mkdir()
    return directory


def operate(broker: DaemonProcess, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """`bartleby ARGUMENTS`."""
    command = [sys.executable, "-m", "broker", *arguments, "--data", str(broker.data)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
    )
    assert result.returncode == status, result.stderr
    return result


#: What runs a command so that it hears SIGINT, which the tests may ignore.
HEARS: Final = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " runpy.run_module('broker', run_name='__main__', alter_sys=True)"
)


def begin(broker: DaemonProcess, *arguments: str) -> subprocess.Popen[str]:
    """`bartleby ARGUMENTS`, which goes on until it is interrupted."""
    command = [sys.executable, "-c", HEARS, *arguments, "--data", str(broker.data)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_paged_queue_moves_to_another_broker_over_kills_and_an_interrupt(tmp_path: Path) -> None:
    first, rest = tmp_path / "first.jsonl", tmp_path / "rest.jsonl"
    with running(made(tmp_path / "one"), SETTINGS) as broker:
        with StompSocket(broker.port).connect() as client:
            for n in range(MESSAGES):
                client.send("/queue/orders", b"%d" % n, persistent="true", number=str(n))
            client.confirmed("/queue/orders", b"last")
        assert broker.queue("orders")["paged"] > 0
        broker.restart()
        with begin(broker, "queue", "export", "orders", "--to", str(first), "--remove", "--rate", "2000") as exporting:
            broker.await_log("task.started")
            broker.await_task("export", 1_000)
            exporting.send_signal(signal.SIGINT)
            told = exporting.communicate(timeout=PATIENCE_S)[1]
        assert exporting.returncode == 5, told
        left = broker.queue("orders")["messages"]
        assert len(without_ids(first)) + left == MESSAGES + 1 or "may still be on the queue" in told
        done = operate(broker, "queue", "export", "orders", "--to", str(rest), "--remove")
        assert f"{left:,} messages were written to {rest}, {left:,} removed" in done.stderr
        assert broker.queue("orders")["messages"] == 0
    with running(made(tmp_path / "two"), SETTINGS) as other:
        operate(other, "queue", "create", "orders", "--make-address", "--type", "anycast")
        operate(other, "queue", "import", str(first))
        imported = other.queue("orders")["messages"]
        with begin(other, "queue", "import", str(rest)) as importing:
            other.await_log("task.started", times=2)
            task = other.await_task("import", 800)["id"]
            other.restart()
            told = importing.communicate(timeout=PATIENCE_S)[1]
        assert importing.returncode == 3
        ended = other.get(f"tasks/{task}")
        assert (ended["state"], ended["total"]) == ("failed", left)
        assert ended["why"].startswith("the broker was restarted")
        assert other.queue("orders")["messages"] == imported + ended["moved"]
        assert "repeat the command: messages already imported are skipped" in told
        done = operate(other, "queue", "import", str(rest))
        assert "already imported under this name" in done.stdout
        assert other.queue("orders")["messages"] == imported + left
        with StompSocket(other.port).connect() as receiver:
            receiver.subscribe("/queue/orders", ack="auto")
            numbers = [int(receiver.frame().headers["number"]) for _ in range(imported + left - 1)]
        assert sorted(set(numbers)) == list(range(MESSAGES))
        assert numbers == sorted(numbers) or imported + left > MESSAGES + 1


def test_messages_of_every_protocol_arrive_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "mixed.jsonl"
    with running(made(tmp_path / "one")) as broker:
        operate(broker, "queue", "create", "mixed", "--make-address", "--type", "anycast")
        with connected(broker.port) as client:
            client.put("/queue/mixed", "stomp", {**DURABLE, "color": "red", "priority": "7"})
            client.put("/queue/mixed", LARGE, DURABLE)
        with proton(broker.ports["amqp"], allowed_mechs="ANONYMOUS") as sender:
            message = Message(body={"a": [1, 2]}, durable=True, properties={"n": 1}, correlation_id="c", ttl=600)
            sender.create_sender("queue://mixed").send(message)
        with paho_client.connected(broker.ports["mqtt"], "sender") as client:
            client.publish("mixed", b"mqtt", qos=1)
        done = operate(broker, "queue", "export", "mixed", "--to", str(file))
        assert "4 messages were written" in done.stderr
        operate(broker, "queue", "export", "mixed", "--bodies", str(tmp_path / "bodies"))
        assert LARGE in {each.read_bytes() for each in (tmp_path / "bodies").iterdir()}
    with running(made(tmp_path / "two")) as other:
        operate(other, "queue", "create", "mixed", "--make-address", "--type", "anycast")
        operate(other, "queue", "import", str(file))
        again = tmp_path / "again.jsonl"
        other.restart()
        assert len(other.bodies) == 1
        operate(other, "queue", "export", "mixed", "--to", str(again))
        assert without_ids(file) == without_ids(again)
        with proton(other.ports["amqp"], allowed_mechs="ANONYMOUS") as connection:
            receiver = connection.create_receiver("queue://mixed")
            found = [receiver.receive(timeout=PATIENCE_S) for _ in range(4)]
        assert any(message.body == {"a": [1, 2]} and message.correlation_id == "c" for message in found)
        assert any(message.priority == 7 for message in found)


def without_ids(file: Path) -> list[dict[str, object]]:
    """What a file has of messages, but for their ids, which are the broker's."""
    lines = map(json.loads, file.read_text().splitlines()[3:])
    return [{name: value for name, value in line.items() if name != "id"} for line in lines]
