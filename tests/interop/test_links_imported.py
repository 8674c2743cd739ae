"""What `bartleby import` makes of others' bridges and connections, as links between two Bartlebys: messages pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.importing import translate
from tests.support.daemon import DaemonProcess, running
from tests.support.links import SocketLink
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.process import awaited
from tests.support.stomp_py import DURABLE, connected

MESSAGES = 20

USERS = {"link": "a secret"}

CONF = """
listener 1883
connection there
address 127.0.0.1:{port}
remote_username link
remote_password never read
restart_timeout 1
topic out/# out 1 here/ from-here/
topic in/# in 2 from-there/ ""
topic both/# both 1
"""

BROKER_XML = """
<configuration><core xmlns="urn:activemq:core">
  <name>here</name>
  <addresses>
    <address name="orders"><anycast><queue name="orders"/></anycast></address>
    <address name="invoices"><anycast><queue name="invoices"/></anycast></address>
  </addresses>
  <broker-connections>
    <amqp-connection uri="tcp://127.0.0.1:{port}" name="there" user="link" password="never read" retry-interval="200">
      <sender queue-name="orders"/>
      <receiver address-match="invoices"/>
    </amqp-connection>
  </broker-connections>
</core></configuration>
"""


def imported(text: str, directory: Path) -> str:
    """The broker.toml, with the password where the report says that it is to be written."""
    found = translate(text.encode())
    (told,) = [each for each in found.report.findings if each.target.endswith("password-file")]
    assert "never read" not in found.text + str(told)
    secret = directory / "there.password"
    secret.write_text(USERS["link"] + "\n")
    assert found.text.count('"/etc/bartleby/there.password"') == 1
    return found.text.replace("/etc/bartleby/there.password", str(secret))


def test_a_bridge_of_mosquitto(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with running(tmp_path / "there", users=USERS) as there:
        settings = imported(CONF.format(port=there.ports["mqtt"]), tmp_path)
        with running(tmp_path, settings) as here:
            here.await_log("route=both")
            clients = {
                "here": _mqtt(here),
                "there": _mqtt(there, user_name="link", password=USERS["link"].encode()),
            }
            for client in clients.values():
                client.subscribe("#", qos=1)
            clients["here"].publish("here/out/1", b"out", 1)
            clients["here"].publish("both/here", b"both", 1)
            clients["there"].publish("in/1", b"in", 1)
            clients["there"].publish("both/there", b"both", 1)
            both = {("both/here", b"both"), ("both/there", b"both")}
            assert _arrived(clients["there"]) == {("from-here/out/1", b"out"), ("in/1", b"in"), *both}
            assert _arrived(clients["here"]) == {("here/out/1", b"out"), ("from-there/in/1", b"in"), *both}


def messages(broker: DaemonProcess, name: str) -> int | None:
    """How many messages are on a queue; None before a link has made it."""
    return {queue["name"]: queue["messages"] for queue in broker.get("queues")["queues"]}.get(name)


def test_a_connection_of_artemis(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with running(tmp_path / "there", users=USERS) as there:
        settings = imported(BROKER_XML.format(port=there.ports["amqp"]), tmp_path)
        with connected(there.port, login=("link", USERS["link"])) as client:
            for number in range(MESSAGES):
                client.put("/queue/invoices", f"invoice {number}", DURABLE)
        with running(tmp_path, settings) as here:
            with connected(here.port) as client:
                for number in range(MESSAGES):
                    client.put("/queue/orders", f"order {number}", DURABLE)
            awaited(lambda: messages(there, "orders") == MESSAGES, what="orders have come")
            awaited(lambda: messages(here, "invoices") == MESSAGES, what="invoices have come")
            awaited(lambda: messages(here, "orders") == 0, what="orders have left")
            awaited(lambda: messages(there, "invoices") == 0, what="invoices have left")


def _mqtt(broker: DaemonProcess, **login: Any) -> MqttClient:
    client = MqttClient().over(SocketLink(broker.ports["mqtt"]))
    client.connect(greeting(**login))
    return client


def _arrived(client: MqttClient) -> set[tuple[str, bytes]]:
    """The four messages of a test; then the client leaves."""
    client.settle()
    while len(client.arrived) < 4:
        client.hear(client.link.read)
        client.settle()
    found = {(each.topic, each.payload) for each in client.take()}
    client.disconnect()
    return found
