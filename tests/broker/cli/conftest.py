"""What the tests of the command line start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.cli.harness import Operator, introduced
from tests.broker.management.fixtures import anyio_backend, broker, call_limits, client, engine_limits, served
from tests.broker.management.harness import Client

__all__ = ["anyio_backend", "broker", "call_limits", "client", "engine_limits", "served"]


@pytest.fixture
def operator(tmp_path: Path, client: Client) -> Operator:
    """Somebody at the command line of a running broker."""
    return introduced(tmp_path, client)
