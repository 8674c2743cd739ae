"""Links between brokers in processes of their own, watched and steered from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.operating import operate
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.mute_broker import MuteBroker
from tests.support.peers import free_port
from tests.support.process import awaited, started
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


def send(broker: DaemonProcess, number: int = MESSAGES) -> None:
    """Orders for the link."""
    with connected(broker.port) as client:
        for n in range(number):
            client.put("/queue/orders.out", f"order {n}", DURABLE)


def link_awaited(broker: DaemonProcess, fits: Callable[..., object], name: str = "paris") -> dict[str, Any]:
    """A link once it is as it should be."""
    return awaited(lambda: broker.get(f"links/{name}"), fits)


def test_a_link_is_watched_through_a_kill_and_steered(tmp_path: Path) -> None:
    port = free_port()
    home, paris = tmp_path / "home", tmp_path / "paris"
    home.mkdir()
    paris.mkdir()
    with running(paris, PARIS, fixed={"amqp": port}) as far, running(home, settings(port)) as near:
        found = link_awaited(near, lambda link: all(route["state"] == "running" for route in link["routes"]))
        assert (found["state"], found["peer"]) == ("running", "bartleby paris")
        send(near)
        found = link_awaited(near, lambda link: link["routes"][0]["passed"] == MESSAGES)
        assert far.queue("orders")["messages"] == MESSAGES

        far.kill()
        lost = link_awaited(near, lambda link: link["state"] == "retrying" and link["attempts"] > 1)
        assert (lost["error"], lost["remote"]) == ("Connection refused", f"amqp://127.0.0.1:{port}")
        assert [route["state"] for route in lost["routes"]] == ["stopped", "stopped"]
        send(near)
        assert link_awaited(near, lambda link: link["routes"][0]["lag"] > 0)["routes"][0]["depth"] == MESSAGES
        assert operate(near, "link", "pause", "paris")["pausing"]

        far.start()
        paused = link_awaited(near, lambda link: link["state"] == "paused")
        assert (paused["connected"], paused["routes"][0]["depth"], paused["error"]) == (True, MESSAGES, "")
        assert far.queue("orders")["messages"] == MESSAGES
        assert operate(near, "link", "start", "paris")["state"] == "running"
        link_awaited(near, lambda link: link["routes"][0]["passed"] == 2 * MESSAGES)
        assert far.queue("orders")["messages"] == 2 * MESSAGES

        assert operate(near, "link", "stop", "paris")["state"] == "stopped"
        send(near)
        found = near.get("links/paris")
        assert ([route["state"] for route in found["routes"]], found["routes"][0]["depth"]) == (["stopped"] * 2, 5)
        assert operate(near, "link", "start", "paris")["state"] == "starting"
        link_awaited(near, lambda link: link["routes"][0]["passed"] == 3 * MESSAGES)
        assert far.queue("orders")["messages"] == 3 * MESSAGES
        assert near.log.count("link.operated") == 4


BRIDGE = """
[links.garden]
url = "mqtt://127.0.0.1:{port}"
retry-interval = "100ms"
retry-interval-max = "200ms"
[links.garden.mqtt.sensors]
topic = "sensors/#"
remote-prefix = "site1/"
"""


def test_an_mqtt_bridge_is_watched_through_a_kill_and_steered(tmp_path: Path) -> None:
    port = free_port()
    home, garden = tmp_path / "home", tmp_path / "garden"
    home.mkdir()
    garden.mkdir()
    with running(garden, fixed={"mqtt": port}) as far, running(home, BRIDGE.format(port=port)) as near:

        def publish() -> None:
            with connected(near.port) as client:
                for n in range(MESSAGES):
                    client.put("/topic/sensors.a", f"value {n}", DURABLE)

        def passed(times: int) -> dict[str, Any]:
            return link_awaited(near, lambda link: link["routes"][0]["passed"] == times * MESSAGES, "garden")

        link_awaited(near, lambda link: link["routes"][0]["state"] == "running", "garden")
        publish()
        [route] = passed(1)["routes"]
        assert (route["local"], route["remote"], route["direction"]) == ("sensors/#", "site1/sensors/#", "out")

        assert operate(near, "link", "pause", "garden")["state"] == "paused"
        publish()
        [route] = near.get("links/garden")["routes"]
        assert (route["state"], route["depth"], route["passed"]) == ("paused", MESSAGES, MESSAGES)
        assert operate(near, "link", "start", "garden")["state"] == "running"
        passed(2)

        far.kill()
        lost = link_awaited(near, lambda link: link["attempts"] > 1, "garden")
        assert (lost["error"], lost["routes"][0]["state"]) == ("Connection refused", "stopped")
        publish()
        far.start()
        passed(3)

        assert operate(near, "link", "stop", "garden")["state"] == "stopped"
        publish()
        assert near.get("links/garden")["routes"][0]["depth"] == MESSAGES
        operate(near, "link", "start", "garden")
        passed(4)


FAR = """
[security]
login-failure-delay = 0
[acceptors.amqp]
protocol = "amqp"
[acceptors.stomp]
protocol = "stomp"
[acceptors.mqtt]
protocol = "mqtt"
[acceptors.secure]
protocol = "amqp"
[acceptors.secure.tls]
certificate = "{certificate}"
key = "{key}"
[addresses.vault.queues.vault]
routing-type = "ANYCAST"
[[security-settings]]
match = "vault"
manage = ["chiefs"]
"""

VAULT = """
[links.in.send.into]
queue = "out"
address = "vault"
use-dead-letter = false
[links.in.receive.from]
queue = "vault"
address = "loot"
"""


def test_each_link_says_why_it_does_not_run(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "Other CA")
    certificate, key = authority.issue("broker")
    for name in ("secret", "guess"):
        (tmp_path / name).write_text(f"{name}\n")
    far, near = tmp_path / "far", tmp_path / "near"
    far.mkdir()
    near.mkdir()
    users = {"bob": "secret"}
    with running(far, FAR.format(certificate=certificate, key=key), users=users) as paris:
        urls = {name: f"127.0.0.1:{port}" for name, port in paris.ports.items()}

        def login(password: str) -> str:
            return f'user = "bob"\npassword-file = "{tmp_path / password}"'

        links = {
            "gone": ("amqp://127.0.0.1:1", "", "Connection refused"),
            "nobody": (f"amqp://{urls['amqp']}", "", ": set user and password-file, or certificate and key"),
            "wrong": (f"amqp://{urls['amqp']}", login("guess"), "the other broker rejected user bob"),
            "mqtt": (f"mqtt://{urls['mqtt']}", login("guess"), "the user name or the password is wrong"),
            "plain": (f"amqps://{urls['amqp']}", "", "WRONG_VERSION_NUMBER"),
            "tls": (f"amqp://{urls['secure']}", "", "did not answer during login: check the port, and TLS"),
            "strange": (f"amqps://{urls['secure']}", f'ca = "{other.path}"', "unable to get local issuer certificate"),
            "stomp": (f"amqp://{urls['stomp']}", "", "amqp:not-implemented: The server wants to speak 'ERROR\\nme'."),
            "in": (f"amqps://{urls['secure']}", login("secret") + f'\nca = "{authority.path}"', ""),
        }
        settings = "".join(f'[links.{name}]\nurl = "{url}"\n{more}\n' for name, (url, more, _) in links.items())
        queue = '[addresses.out.queues.out]\nrouting-type = "ANYCAST"\n'
        with running(near, queue + settings + VAULT) as home:
            for name, (_, _, words) in links.items():
                state = "retrying" if words else "running"
                found = link_awaited(home, lambda link, state=state: link["state"] == state, name)
                assert found["error"].endswith(words) if words else found["connected"], (name, found["error"])
            found = link_awaited(home, lambda link: all(each["state"] == "retrying" for each in link["routes"]), "in")
            assert [route["error"] for route in found["routes"]] == [
                "vault: amqp:unauthorized-access: permission denied: not allowed to send to vault (send)",
                "vault: amqp:unauthorized-access: permission denied: not allowed to consume from vault (consume)",
            ]


@pytest.mark.parametrize(("verdict", "left"), [("--discard", 0), ("--resend", MESSAGES)])
def test_messages_in_doubt_are_held_until_an_operator_says(tmp_path: Path, verdict: str, left: int) -> None:
    with started(MuteBroker(tmp_path)) as far, running(tmp_path, settings(far.ports["amqp"], "hold")) as near:
        link_awaited(near, lambda link: link["routes"][0]["state"] == "running")
        send(near)
        link_awaited(near, lambda link: link["routes"][0]["unsettled"] == MESSAGES)
        far.kill()
        doubtful = link_awaited(near, lambda link: link["routes"][0]["state"] == "in-doubt")
        assert (doubtful["routes"][0]["in_doubt"], doubtful["connected"]) == (MESSAGES, False)
        near.await_log("link.route_doubtful")

        far.start()
        found = link_awaited(near, lambda link: link["connected"])
        assert (found["state"], found["routes"][0]["depth"], far.got) == ("in-doubt", MESSAGES, 0), "they are held"
        [answer] = operate(near, "link", "resolve", "paris", verdict)
        assert answer["messages"] == MESSAGES
        link_awaited(near, lambda link: link["routes"][0]["state"] == "running")
        found = link_awaited(near, lambda link: link["routes"][0]["unsettled"] == left)
        assert (found["routes"][0]["depth"], found["state"]) == (left, "running")
        assert near.queue("orders.out")["counters"]["purged"] == MESSAGES - left
