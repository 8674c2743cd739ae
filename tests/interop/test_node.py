"""The core suite with clients of Node.js (npm: @stomp/stompjs and stompit), run by Node's own test runner."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.daemon import DaemonProcess

HERE: Final = Path(__file__).parent / "node"
NODE, NPM = shutil.which("node"), shutil.which("npm")

#: Installing takes seconds; an index that cannot be reached takes long to give up.
INSTALL_S: Final = 240
SUITE_S: Final = 120


def install(npm: str) -> None:
    """What package-lock.json says into a git-ignored folder, once for each lock file."""
    installed = HERE / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= (HERE / "package-lock.json").stat().st_mtime:
        return
    subprocess.run([npm, "ci", "--loglevel=error"], cwd=HERE, check=True, timeout=INSTALL_S)


@pytest.mark.skipif(NODE is None or NPM is None, reason="node and npm are not installed")
@pytest.mark.timeout(INSTALL_S + SUITE_S)
def test_clients_of_node(broker: DaemonProcess) -> None:
    assert run_suite(broker.port) >= 87, "each scenario runs with each client and version"


def run_suite(port: int, **environment: str) -> int:
    """How many scenarios pass; all do."""
    assert NODE is not None
    assert NPM is not None
    install(NPM)
    command = [NODE, "--test", "--test-reporter=tap", "suite.test.mjs"]
    environment = {**os.environ, **environment, "BROKER_PORT": str(port)}
    result = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=SUITE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"^# pass (\d+)$", result.stdout, re.MULTILINE)
    assert passed is not None
    return int(passed[1])
