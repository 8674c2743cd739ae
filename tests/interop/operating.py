"""The command line beside a broker, in the tests' own process: a start of Python takes longer than most commands."""

from __future__ import annotations

import json
from typing import Any

from tests.broker.cli.harness import invoke
from tests.support.daemon import DaemonProcess


def run(broker: DaemonProcess, *arguments: str) -> str:
    """`bartleby ARGUMENTS`, which must succeed; returns what it prints."""
    result = invoke(*arguments, "--data", str(broker.data))
    assert result.exit_code == 0, result.output
    return result.stdout


def operate(broker: DaemonProcess, *arguments: str) -> Any:
    """`bartleby ARGUMENTS -o json`, which must succeed; returns what it answers."""
    return json.loads(run(broker, *arguments, "-o", "json"))
