"""MQTT.js (npm: mqtt) against the broker, run by Node's own test runner."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.interop.amqp_peers import tool
from tests.interop.test_node import HERE, INSTALL_S, SUITE_S, install
from tests.support.daemon import DaemonProcess


@pytest.mark.timeout(INSTALL_S + SUITE_S)
def test_mqtt_js(broker: DaemonProcess) -> None:
    node, npm = tool("node"), tool("npm")
    install(npm)
    command = [node, "--test", "--test-reporter=tap", "mqtt.test.mjs"]
    environment = {**os.environ, "MQTT_PORT": str(broker.ports["mqtt"])}
    result = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=SUITE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^# pass (\d+)$", result.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) == 14, "each scenario runs with each version that has it"
