"""Messages of every protocol from one broker's queue to another's, through a file, over a SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from random import Random
from typing import Final

from proton import Message

from tests.support import fork_server, paho_client
from tests.support.daemon import DaemonProcess, running
from tests.support.fork_server import Forked
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
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARTLEBY_")}
    result = fork_server.run([*arguments, "--data", str(broker.data)], environment, ROOT, 4 * PATIENCE_S)
    assert result.returncode == status, result.stderr
    return result


#: What a command runs first, so that it hears SIGINT, which the tests may ignore.
HEARS: Final = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"

#: Messages a second of a task that is to be interrupted: it lasts some seconds, on a machine that may be busy.
RATE: Final = "1000"


def begin(broker: DaemonProcess, *arguments: str) -> Forked:
    """`bartleby ARGUMENTS`, which goes on until it is interrupted."""
    return fork_server.start([*arguments, "--data", str(broker.data), "--rate", RATE], os.environ, ROOT, HEARS)


def test_a_paged_queue_moves_to_another_broker_over_kills_and_an_interrupt(tmp_path: Path) -> None:
    first, rest = tmp_path / "first.jsonl", tmp_path / "rest.jsonl"
    with running(made(tmp_path / "one"), SETTINGS) as broker:
        with StompSocket(broker.port).connect() as client:
            for n in range(MESSAGES):
                client.send("/queue/orders", b"%d" % n, persistent="true", number=str(n))
            client.confirmed("/queue/orders", b"last")
        assert broker.queue("orders")["paged"] > 0
        broker.restart()
        exporting = begin(broker, "queue", "export", "orders", "--to", str(first), "--remove")
        broker.await_log("task.started")
        broker.await_task("export", 1_000)
        os.kill(exporting.pid, signal.SIGINT)
        ended = exporting.finished(PATIENCE_S)
        assert ended.returncode == 5, ended.stderr
        left = broker.queue("orders")["messages"]
        assert len(without_ids(first)) + left == MESSAGES + 1 or "may still be on the queue" in ended.stderr
        done = operate(broker, "queue", "export", "orders", "--to", str(rest), "--remove")
        assert f"{left:,} messages were written to {rest}, {left:,} removed" in done.stderr
        assert broker.queue("orders")["messages"] == 0
    with running(made(tmp_path / "two"), SETTINGS) as other:
        operate(other, "queue", "create", "orders", "--make-address", "--type", "anycast")
        operate(other, "queue", "import", str(first))
        imported = other.queue("orders")["messages"]
        importing = begin(other, "queue", "import", str(rest))
        other.await_log("task.started", times=2)
        number = other.await_task("import", 800)["id"]
        other.restart()
        ended = importing.finished(PATIENCE_S)
        assert ended.returncode == 3, ended.stderr
        task = other.get(f"tasks/{number}")
        assert (task["state"], task["total"]) == ("failed", left)
        assert task["why"].startswith("the broker was restarted")
        assert other.queue("orders")["messages"] == imported + task["moved"]
        assert "repeat the command: messages already imported are skipped" in ended.stderr
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
