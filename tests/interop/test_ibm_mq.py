"""What docs/ibm-mq.md shows, with two brokers, each killed on the way."""

from __future__ import annotations

import re
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.broker.cli.harness import invoke
from tests.interop.operating import operate, run
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, message
from tests.support.daemon import DaemonProcess, running
from tests.support.peers import free_port
from tests.support.process import awaited
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked
from tests.support.stomp_py import DURABLE, connected

PAGE: Final = (Path(__file__).parents[2] / "docs" / "ibm-mq.md").read_text("utf-8")
FAR, NEAR = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
TABLE, FORWARDS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
THERE, HERE, RULES, LINKED = (
    [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)
QUICK: Final = '[links.qm2]\nretry-interval = "100ms"\nretry-interval-max = "200ms"'
OFFLINE: Final = ("import", "explain")


def messages(broker: DaemonProcess, queue: str) -> int:
    found: dict[str, Any] = broker.queue(queue)
    return int(found["messages"])


def do(broker: DaemonProcess, command: list[str]) -> str:
    """A command of the page."""
    if command[0] in OFFLINE or command[:3] == ["dead-letters", "rules", "check"]:
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        return result.stdout
    return run(broker, *command)


def test_a_dead_letter_behind_a_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    qm1, qm2 = tmp_path / "qm1", tmp_path / "qm2"
    qm1.mkdir()
    qm2.mkdir()
    settings = NEAR.replace("qm2.example.org:5672", f"127.0.0.1:{port}").replace("[links.qm2]", QUICK)
    with ExitStack() as brokers:
        far = brokers.enter_context(running(qm2, FAR, fixed={"amqp": port}))
        for command in THERE:
            do(far, command)
        far.kill()
        near = brokers.enter_context(running(qm1, settings))
        create, show, send, *after = HERE
        do(near, create)
        assert re.search(r"remote queue +Q6 over the link qm2\n", do(near, show))
        do(near, send)
        assert messages(near, "link.qm2") == 1, "it waits for the link"
        near.restart()
        assert messages(near, "link.qm2") == 1
        far.start()
        awaited(lambda: near.queue_names() & {"DLQ"}, bool)
        awaited(lambda: messages(near, "DLQ"), lambda count: count == 1)
        said = [do(near, command) for command in after]
        assert "put-disabled" in said[1]
        far.kill()
        near.restart()
        far.start()
        assert messages(near, "DLQ") == 1

        monkeypatch.chdir(tmp_path)
        (tmp_path / "qrule.rul").write_text(TABLE)
        said = [do(near, command) for command in RULES]
        near.reload(settings + (tmp_path / "rules.toml").read_text())
        awaited(lambda: messages(near, "Q7"), lambda count: count == 1)
        near.restart()
        assert (messages(near, "DLQ"), messages(near, "Q7"), messages(far, "Q6")) == (0, 1, 0)
        (letter,) = operate(near, "queue", "browse", "Q7")["messages"]
        assert "Q6_VER75" in str(letter)


@pytest.mark.parametrize("policy", ["BLOCK", "FAIL"])
def test_a_message_that_is_not_persistent_and_a_full_queue_behind_the_link(policy: str) -> None:
    """As the page says, where MQ discards it."""
    assert f"(`{policy}`)" in PAGE
    remote: dict[str, Any] = {"remote-queues": {"Q6_VER75": {"queue": "Q6"}}}
    here = SimBroker(linked(**remote))
    full: dict[str, object] = {"match": "Q6", "max-size-messages": 1, "address-full-policy": policy}
    there = SimBroker(configured(full))
    filler = AmqpSim(there)
    filler.send(filler.sender("Q6", "queue"), message("first"))
    links = SimLinks(here, {"b": there})
    links.run()
    client = AmqpSim(here)
    client.post(client.sender("Q6_VER75", "queue"), message("second"))
    links.advance(60_000)
    waiting = {name: len(held(here, name)) for name in ("link.b", "DLQ")}
    assert waiting == ({"link.b": 1, "DLQ": 0} if policy == "BLOCK" else {"link.b": 0, "DLQ": 1})
    consumer = AmqpSim(there)
    consumer.receiver("Q6", "queue", credit=5)
    consumer.settle(*consumer.take())
    links.advance(60_000)
    assert [each.body for each in consumer.take()] == (["second"] if policy == "BLOCK" else [])


def test_the_commands_of_the_table_are_there() -> None:
    (table,) = re.findall(r"## Commands\n(.*?)\n## ", PAGE, re.DOTALL)
    commands = [shlex.split(found) for found in re.findall(r"`bartleby ([^`]+)`", table)]
    assert len(commands) > 15
    for command in commands:
        words = [word for word in command if word.islower() and not word.startswith("-") and "=" not in word]
        result = invoke(*words[:2], "--help")
        assert result.exit_code == 0, command


def test_a_table_that_forwards_to_another_queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters cross the link that the import has made, and answers go where their senders want them."""
    monkeypatch.chdir(tmp_path)
    port = free_port()
    (tmp_path / "forward.rul").write_text(FORWARDS)
    (tmp_path / "qm1").mkdir()
    (tmp_path / "qm2").mkdir()
    with running(tmp_path / "qm2", FAR, fixed={"amqp": port}) as far:
        for command in LINKED:
            do(far, [word.replace("qm2.example.org:5672", f"127.0.0.1:{port}") for word in command])
        settings = '[broker]\nname = "QM1"\n[addresses.asked.queues.asked]\nrouting-type = "ANYCAST"\n'
        with running(tmp_path / "qm1", settings + (tmp_path / "forward.toml").read_text()) as near:
            with connected(near.port) as client:
                client.put("/queue/asked", "an order", DURABLE)
                client.put("/queue/asked", "a question", DURABLE | {"reply-to": "/queue/answers"})
                client.subscribe("/queue/asked", ack="client-individual")
                for _ in range(2):
                    client.nack(client.take(), requeue="false")
            awaited(lambda: far.queue_names() & {"DEADQ"}, bool)
            awaited(lambda: messages(far, "DEADQ"), lambda count: count == 1)
            awaited(lambda: near.queue_names() & {"answers"}, bool)
            awaited(lambda: messages(near, "answers"), lambda count: count == 1)
            assert messages(near, "DLQ") == 0
