"""What the tests of the store start from."""

from __future__ import annotations

import pytest

from tests.store.desk import Desk
from tests.support.sim_files import SimFiles


@pytest.fixture
def fresh() -> Desk:
    """A journal that is not started yet."""
    return Desk()


@pytest.fixture
def desk(fresh: Desk) -> Desk:
    """A journal that is."""
    fresh.start()
    return fresh


@pytest.fixture
def files() -> SimFiles:
    """An empty disk."""
    return SimFiles()
