"""Clients that reconnect: the broker is killed under them, and they go on where they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.programs import BUILD_S, RUN_S, java
from tests.interop.relay import outlived, relayed
from tests.support.daemon import running

pytestmark = pytest.mark.timeout(BUILD_S + RUN_S)

SETTINGS = """
[[address-settings]]
match = "strict.#"
delivery-count-persistence = "strict"
"""


def test_jms(tmp_path: Path) -> None:
    command = java("Failover")
    with running(tmp_path, SETTINGS) as broker, relayed(broker) as relay:
        assert outlived([*command, str(relay.port)], relay) == [
            "ok what was sent is there",
            "ok what was not acknowledged comes again",
            "ok a transaction is all or nothing",
            "ok a durable subscription goes on",
        ]


def test_spring_relay(tmp_path: Path) -> None:
    """The STOMP broker relay of Spring's WebSocket support, as applications have it."""
    command = java("SpringRelay")
    with running(tmp_path, users={"spring": "secret"}) as broker, relayed(broker, "stomp") as relay:
        assert outlived([*command, str(relay.port), "spring", "secret"], relay) == [
            "ok the system session",
            "ok browsers",
            "ok a transaction and a NACK",
            "ok what is refused ends one session",
            "ok the broker comes back",
        ]
