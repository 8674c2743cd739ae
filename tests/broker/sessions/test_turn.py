"""The end of a tick: everybody who is owed bytes gets them."""

from __future__ import annotations

import pytest

from tests.simulation.world import small
from tests.support.sim_broker import SimBroker


class Outlet:
    """Counts its flushes; a broken one fails."""

    def __init__(self, *, broken: bool = False) -> None:
        self.flushes = 0
        self._broken = broken

    def flush(self) -> None:
        """See Outlet."""
        self.flushes += 1
        if self._broken:
            raise RuntimeError("a bug")

    def pause_reading(self) -> None:
        """See Outlet."""

    def resume_reading(self) -> None:
        """See Outlet."""


def test_a_session_that_fails_costs_nobody_else() -> None:
    broker = SimBroker(small())
    turn = broker.parts.turn
    outlets = [Outlet(), Outlet(broken=True), Outlet(), Outlet()]
    turn.enter()
    for outlet in outlets:
        turn.touch(outlet)
    with pytest.raises(RuntimeError, match="a bug"):
        turn.end()
    broker.run()
    assert [outlet.flushes for outlet in outlets] == [1, 1, 1, 1]
