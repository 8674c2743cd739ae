"""The STOMP broker relay of Spring's WebSocket support, as applications have it; the broker is killed under it too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.amqp_peers import BUILD_S, RUN_S, java
from tests.interop.test_amqp_failover import outlived, relayed
from tests.support.daemon import running


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_spring_relay(tmp_path: Path) -> None:
    command = java("SpringRelay")
    with running(tmp_path, users={"spring": "secret"}) as broker, relayed(broker, "stomp") as relay:
        assert outlived([*command, str(relay.port), "spring", "secret"], relay) == [
            "ok the system session",
            "ok browsers",
            "ok a transaction and a NACK",
            "ok what is refused ends one session",
            "ok the broker comes back",
        ]
