"""AMQP over WebSocket: rhea, and our codec in a WebSocket of the `websockets` library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from protocols.amqp.performatives import Accepted
from tests.interop.programs import node, run
from tests.support.amqp_client import AmqpSocket, AmqpWebSocket, message
from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S, RawSocket

SETTINGS = """
[acceptors.http]
protocol = "http"

[acceptors.amqp]
protocol = "amqp"

[acceptors.web]
protocol = "amqp"
port = 0
websocket = true
"""


def opened(broker: DaemonProcess, *subprotocols: str) -> ClientConnection:
    """A WebSocket."""
    names = [Subprotocol(name) for name in subprotocols]
    url = f"ws://127.0.0.1:{broker.ports['web']}/"
    return connect(url, subprotocols=names or None, proxy=None, max_size=None)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker with an acceptor for WebSockets."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


def test_messages_both_ways(web: DaemonProcess) -> None:
    with opened(web, "amqp") as connection, AmqpSocket(web.ports["amqp"]) as other:
        client = AmqpWebSocket(connection)
        client.receiver("queue://web")
        bodies = ["1", "x" * 3_000_000]
        link = other.sender("queue://web")
        assert other.put(link, *[message(body) for body in bodies]) == [Accepted()] * 2
        assert [delivery.body for delivery in client.take(2)] == bodies
        other.receiver("queue://back")
        back = client.sender("queue://back")
        assert client.put(back, *[message(body) for body in bodies]) == [Accepted()] * 2
        assert [delivery.body for delivery in other.take(2)] == bodies
        client.leave()


@pytest.mark.parametrize("offered", [(), ("mqtt",)], ids=["none", "another"])
def test_a_subprotocol_that_is_not_amqp(web: DaemonProcess, offered: tuple[str, ...]) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(web, *offered):
        pass
    assert refused.value.response.status_code == 400


def test_text_is_no_amqp(web: DaemonProcess) -> None:
    with opened(web, "amqp") as connection:
        connection.send("AMQP")
        with pytest.raises(ConnectionClosed):
            connection.recv(PATIENCE_S)
        assert connection.close_code == 1003


def test_amqp_without_a_websocket(web: DaemonProcess) -> None:
    """It is no HTTP request: nobody answers it as AMQP, and nobody keeps it waiting."""
    with RawSocket(web.ports["web"]) as stranger:
        stranger.raw(b"AMQP\x00\x01\x00\x00" + b"\r\n\r\n")
        assert b"AMQP" not in stranger.rest()


def test_rhea(web: DaemonProcess) -> None:
    said = run([*node("amqp_web.mjs"), str(web.ports["web"])])
    assert said.split() == ["sent", "20", "accepted", "20", "received", "20"]
