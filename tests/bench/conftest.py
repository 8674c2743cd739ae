"""Brokers that start quickly: most of a start from the command line is importing, two seconds of CPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import brokers
from tests.support.daemon import DaemonProcess


class Quick(DaemonProcess):
    """A broker that is forked, where the benchmark would run this Python's command line."""

    def __init__(self, directory: Path, settings: str, *, command: Sequence[str], **more: Any) -> None:
        ours = tuple(command) == (sys.executable, "-m", "broker")
        super().__init__(directory, settings, command=() if ours else command, **more)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "DaemonProcess", Quick)
