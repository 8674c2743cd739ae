"""The connections of an acceptor with little room, and which one has to go when another comes.

Whether a connection will log in turns out only after it was accepted.  So a new one is accepted beyond the limit too:
it takes the place of the oldest one that has not logged in, of the origin that has most of those.  Connections that
have logged in stay.  So those that have not keep only each other out; and, if they come from everywhere and faster than
a login takes, those that are about to log in.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from broker.security.throttle import block


class Slot(Protocol):
    """A connection, or one that is being secured."""

    @property
    def known(self) -> bool:
        """Whether the client has logged in."""

    @property
    def origin(self) -> str:
        """The address of the client; empty if it has none."""

    def leave(self) -> None:
        """Its place is another one's."""


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
