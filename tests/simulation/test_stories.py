"""The power fails within long commits and wide fan-outs, whatever else goes on meanwhile (see stories)."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.simulation.stories import KINDS, Story
from tests.simulation.world import SCALE

#: The first story, for others than the usual ones: BARTLEBY_STORY_SEED.
FIRST: Final = int(os.environ.get("BARTLEBY_STORY_SEED", "1"))

#: Stories of each kind.
COUNT: Final = 8 * SCALE


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_loss_costs_nothing_that_was_confirmed(kind: str) -> None:
    points = held = overtaken = limited = 0
    for seed in range(FIRST, FIRST + COUNT):
        story = Story(seed, KINDS[kind])
        try:
            story.play()
        except Exception as wrong:
            wrong.add_note(f"story {seed} of {kind}")
            raise
        points += story.points
        held += story.held_ticks
        overtaken += story.overtaken
        limited += story.limited
    assert points > 10 * COUNT
    assert held > COUNT, "commits have taken many ticks"
    assert overtaken, "something went before them"
    assert limited, "queues have reached their limits"
