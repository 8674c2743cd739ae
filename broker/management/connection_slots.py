"""Who is connected where there is little room, and who has to go when somebody else comes.

Whether somebody is a stranger turns out only after he has been let in.  So a newcomer is let into a full house too: he
takes the place of a stranger, of the origin from which most strangers are, who has had the longest time to make himself
known.  Whoever is known stays.  Then strangers keep each other out, but neither those who are known nor, unless they
come from everywhere and faster than one can log in, those who are about to be.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from broker.security.throttle import block


class Slot(Protocol):
    """A connection, or one that is being secured."""

    @property
    def known(self) -> bool:
        """Whether it has been found out who this is, and that he may come."""

    @property
    def origin(self) -> str:
        """The address from which he comes; empty if he has none."""

    def leave(self) -> None:
        """His place is somebody else's."""


class ConnectionSlots:
    """Those who are there, the first first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._guests: dict[Slot, None] = {}

    def come(self, slot: Slot) -> bool:
        """Take somebody in, unless all who are there are known."""
        if len(self._guests) >= self._most:
            stranger = self._first_to_go()
            if stranger is None:
                return False
            self.went(stranger)
            stranger.leave()
        self._guests[slot] = None
        return True

    def went(self, slot: Slot) -> None:
        """Somebody has gone; harmless for one who was not there."""
        self._guests.pop(slot, None)

    def _first_to_go(self) -> Slot | None:
        strangers = [slot for slot in self._guests if not slot.known]
        crowds = Counter([block(slot.origin) for slot in strangers])
        return max(strangers, key=lambda slot: crowds[block(slot.origin)], default=None)  # of equals the first
