"""Eclipse Paho and HiveMQ's client in Java: what they can do with a broker, scenario by scenario."""

from __future__ import annotations

import pytest

from tests.interop.amqp_peers import BUILD_S, RUN_S, java, run
from tests.support.daemon import DaemonProcess


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_java(broker: DaemonProcess) -> None:
    passed = run([*java("Mqtt"), str(broker.ports["mqtt"])])
    assert len(passed.splitlines()) == 6, passed
