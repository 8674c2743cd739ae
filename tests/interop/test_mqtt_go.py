"""The MQTT clients of Eclipse in Go: what they can do with a broker, scenario by scenario."""

from __future__ import annotations

import pytest

from tests.interop.amqp_peers import BUILD_S, RUN_S, go, run
from tests.support.daemon import DaemonProcess


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_go(broker: DaemonProcess) -> None:
    passed = run([*go(), str(broker.ports["mqtt"]), "mqtt"])
    assert len(passed.splitlines()) == 6, passed
