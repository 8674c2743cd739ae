"""Links between brokers in processes of their own, watched and steered from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.mute_broker import MuteBroker
from tests.support.peers import free_port
from tests.support.process import PATIENCE_S, ROOT, started
from tests.support.stomp_py import DURABLE, connected

MESSAGES = 5


def settings(port: int, in_doubt: str = "resend") -> str:
    """Of a broker with a link to Paris, which is at this port."""
    return f"""
[broker]
name = "home"
[links.paris]
url = "amqp://127.0.0.1:{port}"
retry-interval = "100ms"
retry-interval-max = "200ms"
[links.paris.send.orders]
queue = "orders.out"
address = "orders"
in-doubt = "{in_doubt}"
[links.paris.receive.invoices]
queue = "invoices"
address = "invoices.in"
[addresses."orders.out".queues."orders.out"]
routing-type = "ANYCAST"
"""


PARIS = """
[broker]
name = "paris"
"""


def operate(broker: DaemonProcess, *arguments: str) -> Any:
    """`bartleby ARGUMENTS -o json`, which must succeed."""
    command = [sys.executable, "-m", "broker", *arguments, "--data", str(broker.data), "-o", "json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def send(broker: DaemonProcess, number: int = MESSAGES) -> None:
    """Orders for the link."""
    with connected(broker.port) as client:
        for n in range(number):
            client.put("/queue/orders.out", f"order {n}", DURABLE)


def awaited(broker: DaemonProcess, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The link to Paris once it is as it should be."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found: dict[str, Any] = broker.get("links/paris")
        if fits(found):
            return found
        assert time.monotonic() < deadline, found


def test_a_link_is_watched_through_a_kill_and_steered(tmp_path: Path) -> None:
    port = free_port()
    home, paris = tmp_path / "home", tmp_path / "paris"
    home.mkdir()
    paris.mkdir()
    with running(paris, PARIS, fixed={"amqp": port}) as far, running(home, settings(port)) as near:
        found = awaited(near, lambda link: all(route["state"] == "running" for route in link["routes"]))
        assert (found["state"], found["peer"]) == ("running", "bartleby paris")
        send(near)
        found = awaited(near, lambda link: link["routes"][0]["passed"] == MESSAGES)
        assert far.queue("orders")["messages"] == MESSAGES

        far.kill()
        lost = awaited(near, lambda link: link["state"] == "retrying" and link["attempts"] > 1)
        assert lost["error"].endswith("Connection refused"), lost["error"]
        assert [route["state"] for route in lost["routes"]] == ["stopped", "stopped"]
        send(near)
        assert awaited(near, lambda link: link["routes"][0]["lag"] > 0)["routes"][0]["depth"] == MESSAGES
        assert operate(near, "link", "pause", "paris")["pausing"]

        far.start()
        paused = awaited(near, lambda link: link["state"] == "paused")
        assert (paused["connected"], paused["routes"][0]["depth"], paused["error"]) == (True, MESSAGES, "")
        assert far.queue("orders")["messages"] == MESSAGES
        assert operate(near, "link", "start", "paris")["state"] == "running"
        awaited(near, lambda link: link["routes"][0]["passed"] == 2 * MESSAGES)
        assert far.queue("orders")["messages"] == 2 * MESSAGES

        assert operate(near, "link", "stop", "paris")["state"] == "stopped"
        send(near)
        found = near.get("links/paris")
        assert ([route["state"] for route in found["routes"]], found["routes"][0]["depth"]) == (["stopped"] * 2, 5)
        assert operate(near, "link", "start", "paris")["state"] == "starting"
        awaited(near, lambda link: link["routes"][0]["passed"] == 3 * MESSAGES)
        assert far.queue("orders")["messages"] == 3 * MESSAGES
        assert near.log.count("link.operated") == 4


@pytest.mark.parametrize(("verdict", "left"), [("--discard", 0), ("--resend", MESSAGES)])
def test_messages_in_doubt_are_held_until_an_operator_says(tmp_path: Path, verdict: str, left: int) -> None:
    with started(MuteBroker(tmp_path)) as far, running(tmp_path, settings(far.ports["amqp"], "hold")) as near:
        awaited(near, lambda link: link["routes"][0]["state"] == "running")
        send(near)
        awaited(near, lambda link: link["routes"][0]["unsettled"] == MESSAGES)
        far.kill()
        doubtful = awaited(near, lambda link: link["routes"][0]["state"] == "in-doubt")
        assert (doubtful["routes"][0]["in_doubt"], doubtful["connected"]) == (MESSAGES, False)
        near.await_log("link.route_doubtful")

        far.start()
        found = awaited(near, lambda link: link["connected"])
        assert (found["state"], found["routes"][0]["depth"], far.got) == ("in-doubt", MESSAGES, 0), "they are held"
        [answer] = operate(near, "link", "resolve", "paris", verdict)
        assert answer["messages"] == MESSAGES
        awaited(near, lambda link: link["routes"][0]["state"] == "running")
        found = awaited(near, lambda link: link["routes"][0]["unsettled"] == left)
        assert (found["routes"][0]["depth"], found["state"]) == (left, "running")
        assert near.queue("orders.out")["counters"]["purged"] == MESSAGES - left
