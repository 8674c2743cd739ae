"""STOMP over WebSocket: @stomp/stompjs as in a browser, and stomp.py's own."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest
import stomp

from tests.interop.client import PATIENCE_S
from tests.interop.conftest import SETTINGS
from tests.interop.programs import BUILD_S, RUN_S, node_suite
from tests.support.daemon import DaemonProcess, running

ACCEPTORS = """
[acceptors.http]
protocol = "http"

[acceptors.stomp]
protocol = "stomp"
port = 0
websocket = true
"""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker with an acceptor for WebSockets."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS + ACCEPTORS) as broker:
        yield broker


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_stompjs(web: DaemonProcess) -> None:
    passed = node_suite("suite.test.mjs", BROKER_PORT=str(web.ports["stomp"]), BROKER_WEB="true")
    assert passed >= 42, "each scenario runs with each version"
    assert "library.message" not in web.log, "clients that vanish leave nothing behind"


class Listener(stomp.ConnectionListener):  # type: ignore[misc]
    """Keeps what comes."""

    def __init__(self) -> None:
        self.bodies: queue.SimpleQueue[str] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        """See ConnectionListener."""
        self.bodies.put(frame.body)


def test_stomp_py_which_offers_no_subprotocol(web: DaemonProcess) -> None:
    connection = stomp.WSStompConnection([("127.0.0.1", web.ports["stomp"])], heartbeats=(0, 0))
    listener = Listener()
    connection.set_listener("test", listener)
    connection.connect(wait=True)
    connection.subscribe("/queue/web", id=1)
    for body in ("1", "grüße", "x" * 300_000):
        connection.send("/queue/web", body)
        assert listener.bodies.get(timeout=PATIENCE_S) == body
    connection.disconnect()
