"""Tokens of an issuer with real clients: in every protocol, until they expire, with keys from a file and from a URL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from proton import ConnectionException, Message
from stomp.exception import ConnectFailedException

from tests.support.daemon import DaemonProcess, running
from tests.support.issuer import AUDIENCE, ISSUER, fresh_token, key_set, public_jwk, token
from tests.support.paho_client import Paho
from tests.support.paho_client import connected as mqtt
from tests.support.process import PATIENCE_S
from tests.support.proton_client import connected as proton
from tests.support.stomp_client import StompSocket
from tests.support.stomp_py import connected as stomp

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


def settings(keys: str) -> str:
    """The configuration with where the keys are."""
    return SETTINGS.replace("leeway = 0", f"leeway = 0\n{keys}")


def greeted(broker: DaemonProcess, text: str = "") -> str:
    """The answer to a CONNECT with a token."""
    with StompSocket(broker.port) as client:
        client.do("CONNECT", {"accept-version": "1.2", "host": "h"} | ({"passcode": text} if text else {}))
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
    with stomp(broker.port, login=("alice", text)) as client:
        client.put("/queue/t", "x")


def test_stomp_py(broker: DaemonProcess) -> None:
    by_stomp(broker, fresh_token())
    with pytest.raises(ConnectFailedException):
        by_stomp(broker, "x")


def by_amqp(broker: DaemonProcess, text: str) -> None:
    """proton comes in with a token, sends and receives."""
    with proton(broker.ports["amqp"], user="alice", password=text, allowed_mechs="PLAIN") as connection:
        connection.create_sender("queue://tokens").send(Message("x"))
        assert connection.create_receiver("queue://tokens").receive(PATIENCE_S).body == "x"


def test_proton(broker: DaemonProcess) -> None:
    by_amqp(broker, fresh_token())
    with pytest.raises(ConnectionException):
        by_amqp(broker, "x")


def by_mqtt(broker: DaemonProcess, text: str, version: str) -> None:
    """paho comes in with a token."""
    Paho(broker.ports["mqtt"], "", version, user=("alice", text)).leave()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_paho(broker: DaemonProcess, version: str) -> None:
    by_mqtt(broker, fresh_token(), version)


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
        by_mqtt(roomy, long_token(), "5")


def test_a_long_token_where_the_limit_is_as_shipped(broker: DaemonProcess) -> None:
    assert greeted(broker, long_token()) == "ERROR"
    broker.await_log("login.too_large")


def test_http(broker: DaemonProcess) -> None:
    def status(text: str) -> int:
        url = f"http://127.0.0.1:{broker.ports['http']}/api/v1/status"
        return httpx.get(url, headers={"Authorization": f"Bearer {text}"}, timeout=PATIENCE_S).status_code

    assert status(fresh_token(role="chiefs")) == 200
    assert status(fresh_token()) == 403
    assert status(fresh_token(seconds=-1)) == 401
    assert status("eyJ.x.y") == 401


def test_nobody_else_comes_in(broker: DaemonProcess) -> None:
    """Without a users file everybody would be anonymous: not where there is an issuer."""
    assert greeted(broker) == "ERROR"


def test_a_connection_ends_with_its_token(broker: DaemonProcess) -> None:
    with StompSocket(broker.port) as client:
        client.do("CONNECT", {"accept-version": "1.2", "host": "h", "passcode": fresh_token(seconds=2)})
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
        assert greeted(broker, fresh_token()) == "CONNECTED"
        content["keys"] = key_set(public_jwk("ES384", "2"))
        assert greeted(broker, fresh_token(algorithm="ES384", id="2")) == "ERROR", "the issuer was asked a moment ago"
        content["keys"] = b"<html>"
        broker.reload(settings(f'keys-url = "{url}?2"'))
        assert greeted(broker, fresh_token()) == "ERROR", "keys of another URL are not those of this one"
        broker.await_log("security.keys_failed")


def test_a_session_of_mqtt_outlives_a_restart_though_its_token_does_not(tmp_path: Path) -> None:
    """Its roles hold for the session while its client is away; what is durable is there when it is back."""
    (tmp_path / "jwks.json").write_bytes(key_set(public_jwk("ES256", "1")))
    with running(tmp_path, settings(f'keys-file = "{tmp_path}/jwks.json"')) as broker:
        session: dict[str, Any] = {"user": ("alice", fresh_token()), "clean_session": False}
        with mqtt(broker.ports["mqtt"], "device", "3.1.1", **session) as client:
            client.subscribe("t", 1)
        broker.restart()
        with stomp(broker.port, login=("", fresh_token())) as sender:
            sender.put("/topic/t", "while away", {"persistent": "true"})
        with mqtt(broker.ports["mqtt"], "device", "3.1.1", **session) as client:
            assert client.payloads(1) == [b"while away"]
