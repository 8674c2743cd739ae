"""Tokens of an issuer with real clients: in every protocol, until they expire, with keys from a file and from a URL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import httpx
import paho.mqtt.client as paho
import pytest
import stomp
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from proton import Message
from proton.utils import BlockingConnection

from tests.interop.raw import peer
from tests.support.daemon import PATIENCE_S, DaemonProcess, running
from tests.support.issuer import AUDIENCE, ISSUER, key_set, public_jwk, token

SETTINGS = f"""
[security]
login-failure-delay = 0
[security.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
leeway = 0
[acceptors.stomp]
protocol = "stomp"
[acceptors.amqp]
protocol = "amqp"
[acceptors.mqtt]
protocol = "mqtt"
[acceptors.http]
protocol = "http"
[[security-settings]]
match = "#"
send = ["amq"]
consume = ["amq"]
createAddress = ["amq"]
createDurableQueue = ["amq"]
createNonDurableQueue = ["amq"]
manage = ["chiefs"]
"""


def fresh(*, seconds: int = 3600, algorithm: str = "ES256", id: str = "1", role: str = "amq") -> str:
    """A token that counts from now on."""
    now = int(time.time())
    return token(algorithm, id=id, exp=now + seconds, iat=now, roles=[role]).decode()


def settings(keys: str) -> str:
    """The configuration with where the keys are."""
    return SETTINGS.replace("leeway = 0", f"leeway = 0\n{keys}")


def greeted(broker: DaemonProcess, text: str = "") -> str:
    """The answer to a CONNECT with a token."""
    with peer(broker.port) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "h"} | ({"passcode": text} if text else {}))
        return client.frame().command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker whose issuer's keys are in a file; it has no users of its own."""
    directory = tmp_path_factory.mktemp("tokens")
    (directory / "jwks.json").write_bytes(key_set(public_jwk("ES256", "1")))
    with running(directory, settings(f'keys-file = "{directory}/jwks.json"')) as found:
        yield found


def by_stomp(broker: DaemonProcess, text: str) -> None:
    """stomp.py comes in with a token, and sends."""
    client = stomp.Connection12([("127.0.0.1", broker.port)])
    client.connect("alice", text, wait=True)
    client.send("/queue/t", "x")
    client.disconnect()


def test_stomp_py(broker: DaemonProcess) -> None:
    by_stomp(broker, fresh())
    with pytest.raises(stomp.exception.ConnectFailedException):
        stomp.Connection12([("127.0.0.1", broker.port)], reconnect_attempts_max=1).connect("alice", "x", wait=True)


def by_amqp(broker: DaemonProcess, text: str) -> None:
    """proton comes in with a token, sends and receives."""
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{broker.ports['amqp']}",
        user="alice",
        password=text,
        allowed_mechs="PLAIN",
        timeout=PATIENCE_S,
    )
    connection.create_sender("queue://tokens").send(Message("x"))
    assert connection.create_receiver("queue://tokens").receive(PATIENCE_S).body == "x"
    connection.close()


def test_proton(broker: DaemonProcess) -> None:
    by_amqp(broker, fresh())


def by_mqtt(broker: DaemonProcess, text: str, version: MQTTProtocolVersion) -> None:
    """paho comes in with a token."""
    answered, codes = Event(), []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=version)

    def on_connect(*arguments: object) -> None:
        codes.append(str(arguments[3]))
        answered.set()

    client.on_connect = on_connect
    client.username_pw_set("alice", text)
    client.connect("127.0.0.1", broker.ports["mqtt"])
    client.loop_start()
    assert answered.wait(PATIENCE_S)
    client.disconnect()
    client.loop_stop()
    assert codes == ["Success"]


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_paho(broker: DaemonProcess, version: MQTTProtocolVersion) -> None:
    by_mqtt(broker, fresh(), version)


def long_token() -> str:
    """A token with the groups of a large directory."""
    now = int(time.time())
    roles = ["amq", *(f"CN=group-{number:04},OU=Groups,DC=example,DC=org" for number in range(700))]
    found = token("ES256", id="1", exp=now + 3600, iat=now, roles=roles).decode()
    assert 32 << 10 < len(found) < 64 << 10
    return found


def test_a_long_token_in_every_protocol(tmp_path: Path) -> None:
    """With the settings that the documentation names for it."""
    (tmp_path / "jwks.json").write_bytes(key_set(public_jwk("ES256", "1")))
    limits = '[limits]\nconnect-bytes-max = "64KiB"\nheader-line-bytes-max = "64KiB"\n'
    with running(tmp_path, limits + settings(f'keys-file = "{tmp_path}/jwks.json"')) as roomy:
        by_stomp(roomy, long_token())
        by_amqp(roomy, long_token())
        by_mqtt(roomy, long_token(), MQTTProtocolVersion.MQTTv5)


def test_a_long_token_where_the_limit_is_as_shipped(broker: DaemonProcess) -> None:
    assert greeted(broker, long_token()) == "ERROR"
    broker.await_log("login.too_large")


def test_http(broker: DaemonProcess) -> None:
    def status(text: str) -> int:
        url = f"http://127.0.0.1:{broker.ports['http']}/api/v1/status"
        return httpx.get(url, headers={"Authorization": f"Bearer {text}"}, timeout=PATIENCE_S).status_code

    assert status(fresh(role="chiefs")) == 200
    assert status(fresh()) == 403
    assert status(fresh(seconds=-1)) == 401
    assert status("eyJ.x.y") == 401


def test_nobody_else_comes_in(broker: DaemonProcess) -> None:
    """Without a users file everybody would be anonymous: not where there is an issuer."""
    assert greeted(broker) == "ERROR"


def test_a_connection_ends_with_its_token(broker: DaemonProcess) -> None:
    with peer(broker.port) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "h", "passcode": fresh(seconds=2)})
        assert [frame.command for frame in client.rest()] == ["CONNECTED"]
    broker.await_log("login.expired")


@contextmanager
def issuer() -> Iterator[tuple[str, dict[str, bytes]]]:
    """An issuer on this machine: its URL, and what it answers."""
    content = {"keys": key_set(public_jwk("ES256", "1"))}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content["keys"])

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/jwks", content
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_keys_from_a_url_and_new_ones_after_a_reload(tmp_path: Path) -> None:
    with issuer() as (url, content), running(tmp_path, settings(f'keys-url = "{url}"')) as broker:
        assert greeted(broker, fresh()) == "CONNECTED"
        content["keys"] = key_set(public_jwk("ES384", "2"))
        assert greeted(broker, fresh(algorithm="ES384", id="2")) == "ERROR", "the issuer was asked a moment ago"
        content["keys"] = b"<html>"
        broker.reload(settings(f'keys-url = "{url}?2"'))
        assert greeted(broker, fresh()) == "ERROR", "keys of another URL are not those of this one"
        broker.await_log("security.keys_failed")


def test_a_session_of_mqtt_outlives_a_restart_though_its_token_does_not(tmp_path: Path) -> None:
    """What comes while nobody knows its rights is there when its client is back with a token."""
    (tmp_path / "jwks.json").write_bytes(key_set(public_jwk("ES256", "1")))
    with running(tmp_path, settings(f'keys-file = "{tmp_path}/jwks.json"')) as broker:
        first = Subscriber(broker)
        first.client.subscribe("t", 1)
        assert first.subscribed.wait(PATIENCE_S)
        first.close()
        broker.restart()
        sender = stomp.Connection12([("127.0.0.1", broker.port)])
        sender.connect("", fresh(), wait=True)
        sender.send("/topic/t", "while away")
        sender.disconnect()
        second = Subscriber(broker)
        assert second.messages.get(timeout=PATIENCE_S) == b"while away"
        second.close()


class Subscriber:
    """A client of MQTT with a session that stays."""

    def __init__(self, broker: DaemonProcess) -> None:
        self.messages: SimpleQueue[bytes] = SimpleQueue()
        self.subscribed = Event()
        connected = Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, "device", clean_session=False)
        self.client.on_connect = lambda *_: connected.set()
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = lambda *arguments: self.messages.put(arguments[2].payload)
        self.client.username_pw_set("alice", fresh())
        self.client.connect("127.0.0.1", broker.ports["mqtt"])
        self.client.loop_start()
        assert connected.wait(PATIENCE_S)

    def close(self) -> None:
        """Go."""
        self.client.disconnect()
        self.client.loop_stop()
