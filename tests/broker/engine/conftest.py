"""What the tests of the engine start from."""

from __future__ import annotations

import pytest

from tests.broker.engine.engine_harness import Bench


@pytest.fixture
def bench() -> Bench:
    """An engine with the settings as shipped."""
    return Bench()
