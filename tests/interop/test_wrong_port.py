"""Clients at the port of another protocol, with TLS at one without, and without at one with TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from broker.management.http import REQUEST_SECONDS_MAX
from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess, running
from tests.support.links import RawSocket

#: The acceptors without TLS, by name.
PLAIN = {
    "stomp": 'protocol = "stomp"',
    "amqp": 'protocol = "amqp"',
    "mqtt": 'protocol = "mqtt"',
    "http": 'protocol = "http"',
    "web": 'protocol = "stomp"\nwebsocket = true',
}

#: The beginnings of connections, by the protocol that the log names.
FIRST = {
    "stomp": b"CONNECT\naccept-version:1.2\nhost:h\n\n\0",
    "amqp": b"AMQP\3\1\0\0",
    "mqtt": b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1a",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(506),
}

PAIRS = [
    (at, speaks)
    for at in PLAIN
    for speaks in FIRST
    if speaks.lower() != at and not (at == "web" and speaks in ("HTTP", "mqtt", "amqp"))
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker with acceptors of all protocols, each with TLS too."""
    directory = tmp_path_factory.mktemp("broker")
    certificate, key = Authority(directory).issue("localhost")
    tls = f'certificate = "{certificate}"\nkey = "{key}"'
    settings = [f"[acceptors.{name}]\n{lines}\n" for name, lines in PLAIN.items()]
    settings += [f"[acceptors.{name}s]\n{lines}\n[acceptors.{name}s.tls]\n{tls}\n" for name, lines in PLAIN.items()]
    with running(directory, "".join(settings)) as broker:
        yield broker


def told_at_once(broker: DaemonProcess, at: str, first: bytes, said: str) -> None:
    """The broker hangs up without waiting for a timeout, and the log has the mistake."""
    begun = time.monotonic()
    with RawSocket(broker.ports[at]) as wire:
        wire.raw(first)
        wire.rest()
    assert time.monotonic() - begun < REQUEST_SECONDS_MAX / 2
    broker.await_log(said)
    assert "connection.handshake_timeout" not in broker.log
    assert "Traceback" not in broker.log


@pytest.mark.parametrize(("at", "speaks"), PAIRS)
def test_another_protocol(broker: DaemonProcess, at: str, speaks: str) -> None:
    told_at_once(broker, at, FIRST[speaks], f" connection.foreign acceptor={at} remote=127.0.0.1:")
    assert f" speaks={speaks} advice=" in broker.log


@pytest.mark.parametrize("at", PLAIN)
def test_no_tls_where_there_is_some(broker: DaemonProcess, at: str) -> None:
    first = FIRST.get(at, FIRST["HTTP"])
    told_at_once(broker, f"{at}s", first, f" tls.failed acceptor={at}s remote=127.0.0.1:")
    assert "the client does not use TLS: " in broker.log


def test_a_line_that_no_client_of_stomp_begins_with(broker: DaemonProcess) -> None:
    """The empty line, for which STOMP waits, may never come."""
    told_at_once(broker, "stomp", b"SSH-2.0-OpenSSH_9.6\r\n", "a first line of 19 bytes is not a command of STOMP")


def test_another_protocol_over_websocket(broker: DaemonProcess) -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    told_at_once(broker, "web", b"GET / HTTP/1.1\r\nHost: h\r\n" + upgrade + key, " asks_for=mqtt speaks=")
