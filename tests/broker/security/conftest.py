"""What the tests of security start from."""

from __future__ import annotations

import pytest

from tests.broker.security.logins import Bench


@pytest.fixture
def bench() -> Bench:
    """A gate with one user."""
    return Bench()
