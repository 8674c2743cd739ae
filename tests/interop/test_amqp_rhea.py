"""rhea: what it can do with a broker, run by Node's own test runner."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.interop.amqp_peers import HERE, RUN_S, tool
from tests.interop.test_node import INSTALL_S, install
from tests.support.daemon import DaemonProcess


@pytest.mark.timeout(INSTALL_S + RUN_S)
def test_rhea(broker: DaemonProcess) -> None:
    install(tool("npm"))
    command = [tool("node"), "--test", "--test-reporter=tap", "amqp.test.mjs"]
    environment = {**os.environ, "BROKER_PORT": str(broker.ports["amqp"])}
    result = subprocess.run(command, cwd=HERE / "node", env=environment, capture_output=True, text=True, timeout=RUN_S)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^# pass (\d+)$", result.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) == 8
