"""Qpid JMS and Qpid ProtonJ2: what they can do with a broker, scenario by scenario, in one virtual machine each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.amqp_peers import BUILD_S, RUN_S, java, run
from tests.interop.conftest import SETTINGS
from tests.support.daemon import DaemonProcess, running

KINDS: str = (
    SETTINGS
    + """
[[address-settings]]
match = "retro.#"
retroactive-message-count = 2

[diverts.copies]
address = "diverted.in"
forwarding-address = "diverted.copies"
routing-type = "ANYCAST"
add-headers = ["via: divert"]
"""
)


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_jms(broker: DaemonProcess) -> None:
    passed = run([*java("Suite"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 16, passed


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_jms_options(broker: DaemonProcess) -> None:
    passed = run([*java("Options"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 17, passed


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_protonj2(broker: DaemonProcess) -> None:
    passed = run([*java("ProtonJ2"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 13, passed


@pytest.mark.timeout(BUILD_S + RUN_S)
def test_kinds_of_queues(tmp_path: Path) -> None:
    with running(tmp_path, KINDS) as broker:
        passed = run([*java("Kinds"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 22, passed
