"""Links between Bartlebys: nothing lost and nothing doubled, whichever of them is killed and whenever."""

from __future__ import annotations

from pathlib import Path
from secrets import randbits

import pytest

from tests.support.link_storm import rage


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_brokers_that_are_killed_again_and_again(tmp_path: Path) -> None:
    seed = randbits(32)
    print(f"python -m tests.link_storm --kills 6 --seed {seed}")  # shown when it fails
    figures = rage(tmp_path, kills=6, seed=seed)
    assert figures.kills == 6
    assert 0 < figures.confirmed <= figures.arrived + figures.unsure <= figures.sent, figures
    assert figures.arrived == figures.forwarded + figures.rivals, figures
