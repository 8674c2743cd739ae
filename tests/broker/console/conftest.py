"""What the tests of the console start from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.console.console import Console
from broker.management.limits import Limits
from tests.broker.console.harness import Browser, consoled
from tests.broker.management.fixtures import anyio_backend, call_limits
from tests.broker.management.harness import TestBroker

__all__ = ["anyio_backend", "call_limits"]

Served = tuple[TestBroker, Console, int]


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Where audits leave their reports."""
    directory = tmp_path / "reports"
    directory.mkdir()
    return directory


@pytest.fixture
async def served(tmp_path: Path, call_limits: Limits, reports: Path) -> AsyncIterator[Served]:
    """A broker with its console."""
    async with consoled(tmp_path, call_limits, reports) as each:
        yield each


@pytest.fixture
def broker(served: Served) -> TestBroker:
    """The broker."""
    return served[0]


@pytest.fixture
def console(served: Served) -> Console:
    """Its console."""
    return served[1]


@pytest.fixture
def browser(served: Served) -> Browser:
    """A browser that has not logged in."""
    return Browser(served[2])


@pytest.fixture
async def owner(browser: Browser) -> Browser:
    """The browser of the broker's owner."""
    page = await browser.log_in()
    assert (page.status, page.to) == (303, "/")
    return browser
