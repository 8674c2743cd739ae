"""Short stories against the naive model, 1,500 of them: what few steps in a row can do, and a restart behind them.

`test_random` finds what takes long to come about.  Here every sequence begins with an empty broker, so that what fails
is short enough to be read: `Sim(seed)` with the last seed that a failure prints, step by step.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.random_work import PAGING, Sim
from tests.simulation.world import SCALE, check_accounts

#: Sequences of a test, so that two processes have about the same to do and no test runs into its limit of time.
EACH: Final = 250

STEPS_MIN, STEPS_MAX = 4, 16

#: One in so many has pages, and one in so many has its journal's books drawn up: that costs as much as the steps do.
PAGED, AUDITED = 4, 25


@pytest.mark.parametrize("part", range(6 * SCALE))
def test_short_sequences(part: int) -> None:
    for seed in range(part * EACH, (part + 1) * EACH):
        print(f"seed {seed}")
        told(seed)


def told(seed: int) -> None:
    """One story."""
    sim = Sim(seed, PAGING if seed % PAGED == 0 else None)
    for _ in range(sim.random.randint(STEPS_MIN, STEPS_MAX)):
        sim.step()
    sim.begin_again(crash=sim.random.random() < 0.6)
    if seed % AUDITED == 0:
        check_accounts(sim.broker)
