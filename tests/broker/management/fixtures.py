"""What tests that are coroutines find on their event loop: a broker with its HTTP server, and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.engine.model.limits import Limits
from broker.management.limits import Limits as CallLimits
from tests.broker.management.harness import Client, TestBroker, serving


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the broker runs on."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def engine_limits() -> Limits:
    """As they are; a test may give others."""
    return Limits()


@pytest.fixture
def call_limits() -> CallLimits:
    """As they are; a test may give others."""
    return CallLimits()


@pytest.fixture
async def served(
    tmp_path: Path, engine_limits: Limits, call_limits: CallLimits
) -> AsyncIterator[tuple[TestBroker, Client]]:
    """A broker, and a client of its HTTP server."""
    async with serving(tmp_path, engine_limits, call_limits) as both:
        yield both


@pytest.fixture
def broker(served: tuple[TestBroker, Client]) -> TestBroker:
    """The broker."""
    return served[0]


@pytest.fixture
def client(served: tuple[TestBroker, Client]) -> Client:
    """A client of its HTTP server."""
    return served[1]
