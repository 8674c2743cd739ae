"""The torture of `make torture`, as much of it as a run of the tests has time for; and that it would notice."""

from __future__ import annotations

import pytest

from tests.simulation.world import SCALE
from tests.support.sim_files import SimFile, SimFiles
from tests.support.torture import SCENES, Wrong, torture

#: Points of the journal in each part, so that the parts can run side by side: 8,000 together.
PART = 2_000 * SCALE


@pytest.mark.parametrize("part", range(4))
def test_the_power_goes_at_every_operation_of_the_journal(part: int) -> None:
    tried = torture(PART, part, scenes=("journal",), disks=12, short=True)
    assert tried["journal"] >= PART


@pytest.mark.parametrize("name", ["broker", "paging", "session", "fault", "pair"])
def test_and_of_a_whole_broker(name: str) -> None:
    scene = SCENES[name](7, 1)
    scene.play()
    assert scene.points >= 10


@pytest.mark.parametrize("broken", [(SimFile, "sync"), (SimFiles, "sync_dir")])
def test_it_notices(broken: tuple[type, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that only says that it has synced, bytes or names."""
    monkeypatch.setattr(broken[0], broken[1], lambda *arguments: None)
    with pytest.raises(Wrong, match=r"to repeat it: --scene journal --number \d+"):
        torture(20_000, 1, scenes=("journal",), short=True)
