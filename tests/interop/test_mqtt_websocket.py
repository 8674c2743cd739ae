"""MQTT over WebSocket: our codec in a WebSocket of the `websockets` library, and paho's own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S, WebSocketLink
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.paho_client import VERSIONS
from tests.support.paho_client import connected as paho

SETTINGS = """
[acceptors.http]
protocol = "http"

[acceptors.mqtt]
protocol = "mqtt"

[acceptors.web]
protocol = "mqtt"
port = 0
websocket = true
"""


def opened(broker: DaemonProcess, *subprotocols: str) -> ClientConnection:
    """A WebSocket."""
    names = [Subprotocol(name) for name in subprotocols]
    url = f"ws://127.0.0.1:{broker.ports['web']}/mqtt"
    return connect(url, subprotocols=names or None, proxy=None, max_size=None)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker with an acceptor for WebSockets."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_packets_are_not_aligned_with_frames(web: DaemonProcess, chunk: int) -> None:
    """[MQTT-6.0.0-1], [MQTT-6.0.0-4]."""
    with opened(web, "mqtt") as connection:
        assert connection.subprotocol == "mqtt"
        client = MqttClient().over(WebSocketLink(connection, chunk)).connect(greeting(f"web-{chunk}"))
        assert client.code == 0
        client.subscribe("web/#", qos=2)
        bodies = [b"1", b"x" * (3_000_000 if chunk > 7 else 500)]
        for qos, body in ((0, bodies[0]), (1, bodies[1]), (2, bodies[0])):
            client.publish("web/a", body, qos)
        assert client.payloads() == [bodies[0], bodies[1], bodies[0]]
        client.disconnect()


def test_a_large_packet_in_one_frame_takes_little_memory(web: DaemonProcess) -> None:
    """A payload that goes to a file does so while its frame comes in."""
    payload = Random(1).randbytes(9 << 20)
    with opened(web, "mqtt") as connection:
        client = MqttClient().over(WebSocketLink(connection, 16 << 20)).connect(greeting("large"))
        client.subscribe("large", qos=1)
        before = web.peak_bytes()
        client.publish("large", payload, 1)
        assert client.payloads() == [payload]
        assert web.peak_bytes() - before < len(payload) // 2
        client.disconnect()


@pytest.mark.parametrize("offered", [(), ("amqp",)], ids=["none", "another"])
def test_a_subprotocol_that_is_not_mqtt(web: DaemonProcess, offered: tuple[str, ...]) -> None:
    """Section 6: the client offers `mqtt`."""
    with pytest.raises(InvalidStatus) as refused, opened(web, *offered):
        pass
    assert refused.value.response.status_code == 400


def test_text_is_no_mqtt(web: DaemonProcess) -> None:
    """[MQTT-6.0.0-1]: text closes the connection."""
    with opened(web, "mqtt") as connection:
        connection.send("CONNECT")
        with pytest.raises(ConnectionClosed):
            connection.recv(PATIENCE_S)
        assert connection.close_code == 1003


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_by_websocket(web: DaemonProcess, version: str) -> None:
    """Beside a client on a plain socket."""
    name = f"web-{version}"
    with (
        paho(web.ports["web"], name, version, transport="websockets") as client,
        paho(web.ports["mqtt"], f"{name}-plain", version) as plain,
    ):
        client.subscribe(f"{name}/#", 2)
        for number in range(6):
            plain.publish(f"{name}/a", b"%d" % number, number % 3)
        assert sorted(client.payloads(6)) == [b"%d" % number for number in range(6)]
