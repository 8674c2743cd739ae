"""What the tests of paging start from."""

from __future__ import annotations

import pytest

from tests.broker.engine.engine_harness import Bench
from tests.broker.engine.queues.paging.backlogs import paging


@pytest.fixture
def bench() -> Bench:
    """An engine that pages early."""
    return paging()
