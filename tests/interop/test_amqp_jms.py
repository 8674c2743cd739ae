"""Qpid JMS: what JMS promises, scenario by scenario, in one virtual machine."""

from __future__ import annotations

import pytest

from tests.interop.amqp_peers import BUILD_S, RUN_S, java, run
from tests.support.daemon import DaemonProcess


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_jms(broker: DaemonProcess) -> None:
    passed = run([*java("Suite"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 16, passed
