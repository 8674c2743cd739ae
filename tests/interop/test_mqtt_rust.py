"""rumqttc: what it can do with a broker, scenario by scenario; only if `make interop` has built it."""

from __future__ import annotations

from tests.interop.amqp_peers import run, rust
from tests.support.daemon import DaemonProcess


def test_rust(broker: DaemonProcess) -> None:
    passed = run([*rust(), str(broker.ports["mqtt"]), "mqtt"])
    assert len(passed.splitlines()) == 9, passed
