"""Links with a login between brokers in processes of their own: by SCRAM, over TLS, by certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.security.passwords import scram_keys
from broker.security.users_file import StoredUser
from broker.sessions.sasl import SCRAMS
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.peers import free_port
from tests.support.process import awaited
from tests.support.sim_gate import cheap_user
from tests.support.stomp_py import DURABLE, connected

MESSAGES = 20

FAR = """
[acceptors.stomp]
protocol = "stomp"
[acceptors.http]
protocol = "http"
[acceptors.amqp]
protocol = "amqp"
[acceptors.amqp.tls]
certificate = "{certificate}"
key = "{key}"
client-ca = "{ca}"
want-client-auth = true
[acceptors.mqtt]
protocol = "mqtt"
[acceptors.mqtt.tls]
certificate = "{certificate}"
key = "{key}"
[[certificate-users]]
subject = "CN=*"
user = "%cn"
[addresses.orders.queues.orders]
routing-type = "ANYCAST"
[addresses."site1.sensors.a".queues.sensors]
routing-type = "MULTICAST"
"""

LINK = """
[links.far]
url = "{scheme}://localhost:{port}"
retry-interval = "100ms"
retry-interval-max = "200ms"
{login}
"""
AMQP_ROUTE = """
[links.far.send.orders]
queue = "orders.out"
address = "orders"
"""
MQTT_ROUTE = """
[links.far.mqtt.sensors]
topic = "sensors/#"
qos = 2
remote-prefix = "site1/"
"""


#: The file that is wrong in each way to log in that is refused.
WRONG = {"wrong password": "bad.password", "another authority": "other/ca.pem"}


def link_awaited(broker: DaemonProcess, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The link once it is as it should be."""
    return awaited(lambda: broker.get("links/far"), fits)


def logins(authority: Authority, directory: Path) -> dict[str, str]:
    """Ways to log in, as settings of a link."""
    good, bad = directory / "good.password", directory / "bad.password"
    good.write_text("secret\n")
    bad.write_text("wrong\n")
    certificate, key = authority.issue("alice")
    stranger = Authority(directory / "other", "Other CA")
    ca = f'ca = "{authority.path}"'
    return {
        "password": f'{ca}\nuser = "link"\npassword-file = "{good}"',
        "certificate": f'{ca}\ncertificate = "{certificate}"\nkey = "{key}"',
        "wrong password": f'{ca}\nuser = "link"\npassword-file = "{bad}"',
        "nothing": ca,
        "another authority": f'ca = "{stranger.path}"\nuser = "link"\npassword-file = "{good}"',
    }


@pytest.mark.parametrize(
    ("scheme", "login", "error"),
    [
        ("amqps", "password", ""),
        ("amqps", "certificate", ""),
        ("amqps", "wrong password", "rejected user link"),
        ("amqps", "nothing", "set user and password-file, or certificate and key"),
        ("amqps", "another authority", "certificate"),
        ("mqtts", "password", ""),
        ("mqtts", "wrong password", "refused"),
        ("mqtts", "another authority", "certificate"),
    ],
)
def test_links_over_tls(tmp_path: Path, scheme: str, login: str, error: str) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker", file="server")
    far_directory, near_directory = tmp_path / "far", tmp_path / "near"
    far_directory.mkdir()
    near_directory.mkdir()
    stored = {"link": cheap_user("secret", "amq"), "alice": StoredUser(frozenset({"amq"}))}
    port, protocol = free_port(), scheme.removesuffix("s")
    settings = LINK.format(scheme=scheme, port=port, login=logins(authority, tmp_path)[login])
    settings += AMQP_ROUTE if protocol == "amqp" else MQTT_ROUTE
    text = FAR.format(certificate=certificate, key=key, ca=authority.path)
    with (
        running(far_directory, text, stored=stored, fixed={protocol: port}) as far,
        running(near_directory, settings) as near,
    ):
        if error:
            assert error in link_awaited(near, lambda link: link["attempts"] > 1)["error"]
            return
        destination, queue = ("/queue/orders.out", "orders") if protocol == "amqp" else ("/topic/sensors.a", "sensors")
        link_awaited(near, lambda link: link["state"] == "running" and link["routes"][0]["state"] == "running")
        with connected(near.port) as client:
            for n in range(MESSAGES // 2):
                client.put(destination, str(n), DURABLE)
            link_awaited(near, lambda link: link["routes"][0]["passed"] == MESSAGES // 2)
            far.kill()
            for n in range(MESSAGES // 2, MESSAGES):
                client.put(destination, str(n), DURABLE)
        far.start()
        link_awaited(near, lambda link: link["routes"][0]["passed"] == MESSAGES)
        assert far.queue(queue)["messages"] == MESSAGES


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_links_log_in_by_scram(tmp_path: Path, mechanism: str) -> None:
    """With the keys of a user today: their iterations are made beside the event loop."""
    far_directory, near_directory = tmp_path / "far", tmp_path / "near"
    far_directory.mkdir()
    near_directory.mkdir()
    keys = {mechanism: scram_keys(mechanism, "secret", b"salt" * 4)}
    stored = {"link": StoredUser(frozenset({"amq"}), scram=keys)}
    (tmp_path / "good").write_text("secret\n")
    (tmp_path / "bad").write_text("xyzzy\n")
    port = free_port()
    login = f'user = "link"\nsasl-mechanisms = ["{mechanism}"]\npassword-file = "{tmp_path}/{{}}"'
    right = LINK.format(scheme="amqp", port=port, login=login.format("good")) + AMQP_ROUTE
    wrong = LINK.replace("far", "guess").format(scheme="amqp", port=port, login=login.format("bad"))
    with (
        running(far_directory, "[security]\nlogin-failure-delay = 0\n", stored=stored, fixed={"amqp": port}) as far,
        running(near_directory, right + wrong) as near,
        connected(near.port) as client,
    ):
        client.put("/queue/orders.out", "1", DURABLE)
        link_awaited(near, lambda link: link["routes"][0]["passed"] == 1)
        refused = awaited(lambda: near.get("links/guess"), lambda link: link["attempts"] > 1)
        assert refused["error"] == "login refused: the other broker rejected user link"
        assert "wrong SCRAM proof" in far.log
        assert not [word for word in ("secret", "xyzzy") if word in far.log + near.log]


@pytest.mark.parametrize(("scheme", "login"), [(s, login) for s in ("amqps", "mqtts") for login in WRONG])
def test_files_that_are_replaced_are_read_at_the_next_connection(tmp_path: Path, scheme: str, login: str) -> None:
    authority = Authority(tmp_path / "ca")
    certificate, key = authority.issue("broker", file="server")
    far_directory, near_directory = tmp_path / "far", tmp_path / "near"
    far_directory.mkdir()
    near_directory.mkdir()
    port, protocol = free_port(), scheme.removesuffix("s")
    settings = LINK.format(scheme=scheme, port=port, login=logins(authority, tmp_path)[login])
    settings += AMQP_ROUTE if protocol == "amqp" else MQTT_ROUTE
    text = FAR.format(certificate=certificate, key=key, ca=authority.path)
    stored = {"link": cheap_user("secret", "amq")}
    with (
        running(far_directory, text, stored=stored, fixed={protocol: port}),
        running(near_directory, settings) as near,
    ):
        link_awaited(near, lambda link: link["attempts"] > 1)
        wrong = tmp_path / WRONG[login]
        content = b"secret\n" if login == "wrong password" else authority.path.read_bytes()
        wrong.rename(tmp_path / "moved")
        assert wrong.name in link_awaited(near, lambda link: wrong.name in link["error"])["error"]
        wrong.write_bytes(content)
        link_awaited(near, lambda link: link["state"] == "running")
