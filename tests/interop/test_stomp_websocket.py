"""STOMP over WebSocket: @stomp/stompjs as in a browser, and stomp.py's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.conftest import SETTINGS
from tests.interop.programs import BUILD_S, RUN_S, node_suite
from tests.support.daemon import DaemonProcess, running
from tests.support.stomp_py import connected

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


def test_stomp_py_which_offers_no_subprotocol(web: DaemonProcess) -> None:
    with connected(web.ports["stomp"], web=True) as client:
        client.subscribe("/queue/web")
        for body in ("1", "grüße", "x" * 300_000):
            client.send("/queue/web", body)
            assert client.take().text == body
        client.leave()
