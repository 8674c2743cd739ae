"""The programs and commands that the protocols' pages show, as they stand there, but for the port."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S
from tests.support.stomp_py import connected

PAGES: Final = Path(__file__).parents[2] / "docs"
PORTS: Final = {"stomp": "61613", "amqp": "5672", "mqtt": "1883"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """As shipped, but for the ports."""
    with running(tmp_path_factory.mktemp("broker")) as found:
        yield found


def example(broker: DaemonProcess, protocol: str, language: str) -> str:
    """The page's one block of code in a language, for the broker."""
    text = (PAGES / f"{protocol}.md").read_text("utf-8")
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert PORTS[protocol] in block
    return str(block).replace(PORTS[protocol], str(broker.ports[protocol]))


def run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("protocol", "printed"), [("amqp", "three cups of tea\n"), ("mqtt", "21.5\n")])
def test_python(broker: DaemonProcess, protocol: str, printed: str) -> None:
    assert run(sys.executable, "-c", example(broker, protocol, "python")) == printed


def test_python_over_stomp(broker: DaemonProcess) -> None:
    with connected(broker.port) as client:
        client.put("/queue/orders", "three cups of tea", {"persistent": "true"})
    assert run(sys.executable, "-c", example(broker, "stomp", "python")) == "three cups of tea\n"
    assert broker.queue("orders")["messages"] == 0


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="no mosquitto_pub: apt-get install mosquitto-clients")
def test_mosquittos_tools(broker: DaemonProcess) -> None:
    assert run("sh", "-ec", example(broker, "mqtt", "sh")) == "21.5\n"
