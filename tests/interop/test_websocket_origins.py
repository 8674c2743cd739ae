"""Pages of sites that may connect by WebSocket, and of others, in every protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S

APP = "https://app.example.org"
PROTOCOLS = {"stomp": "v12.stomp", "amqp": "amqp", "mqtt": "mqtt"}
SETTINGS = "".join(
    f"""
[acceptors.{protocol}]
protocol = "{protocol}"
websocket = true
websocket-origins = ["{APP}", "http://localhost:3000"]
"""
    for protocol in PROTOCOLS
)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker that takes pages of two sites."""
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


def subprotocol(broker: DaemonProcess, protocol: str, origin: str | None) -> str | None:
    """That of a WebSocket that a page of this origin opens."""
    url = f"ws://127.0.0.1:{broker.ports[protocol]}/"
    offered, own = [Subprotocol(PROTOCOLS[protocol])], None if origin is None else Origin(origin)
    with connect(url, origin=own, subprotocols=offered, proxy=None, open_timeout=PATIENCE_S) as connection:
        return connection.subprotocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("origin", [APP, "http://localhost:3000", None])
def test_pages_of_these_sites_come_in_and_who_is_no_page(web: DaemonProcess, protocol: str, origin: str | None) -> None:
    assert subprotocol(web, protocol, origin) == PROTOCOLS[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_page_of_another_site_is_refused_and_the_log_says_whose(web: DaemonProcess, protocol: str) -> None:
    origin = f"https://{protocol}.elsewhere.example.org"
    with pytest.raises(InvalidStatus) as refused:
        subprotocol(web, protocol, origin)
    assert refused.value.response.status_code == 403
    web.await_log(f"origin={origin}")
    assert "websocket.refused remote=127.0.0.1:" in web.log
