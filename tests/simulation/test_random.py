"""Random workloads against a naive model of the queues (see random_work)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.random_work import play
from tests.simulation.world import SCALE

SEEDS: Final = range(60 * SCALE)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_workload(seed: int) -> None:
    play(seed)
