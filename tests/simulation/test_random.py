"""Random workloads against a naive model of the queues (see random_work)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.random_work import play
from tests.simulation.world import SCALE
from tests.support.sim_broker import SimBroker

SEEDS: Final = range(60 * SCALE)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_workload(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_a_random_workload_in_small_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long work for 200,000 messages is so for two: the result is the same."""
    monkeypatch.setattr(SimBroker, "small_steps", True)
    play(seed)
