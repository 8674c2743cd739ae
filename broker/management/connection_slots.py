"""The limited connections of an acceptor, and which one is closed to make room for a new one.

Whether a connection will log in turns out only after it was accepted.  So a new one is accepted beyond the limit too:
it replaces the oldest one that has not logged in, of the origin that has most of those.  Connections that have logged
in stay.  Connections that have not logged in displace only each other.  Only a flood from everywhere, faster than a
login takes, also displaces clients that are about to log in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from broker.security.throttle import block


class Slot(Protocol):
    """A connection, or a socket in its TLS handshake."""

    @property
    def known(self) -> bool:
        """Whether the client has logged in."""

    @property
    def origin(self) -> str:
        """The address of the client; empty if it has none."""

    @property
    def remote(self) -> str:
        """The address and port of the client, for the log."""

    def leave(self) -> None:
        """Close: another connection takes this place."""


class ConnectionSlots:
    """The open connections, oldest first; `refused` is called with each one that gets or keeps no place."""

    def __init__(self, most: int, refused: Callable[[Slot], None] = lambda _: None) -> None:
        self._most = most
        self._refused = refused
        self._guests: dict[Slot, None] = {}

    def come(self, slot: Slot) -> bool:
        """Take a place, if need be that of a connection that has not logged in; False: there is none."""
        if len(self._guests) >= self._most:
            stranger = self._first_to_go()
            self._refused(stranger or slot)
            if stranger is None:
                return False
            self.went(stranger)
            stranger.leave()
        self._guests[slot] = None
        return True

    def went(self, slot: Slot) -> None:
        """Free the place of a connection; harmless if it had none."""
        self._guests.pop(slot, None)

    def _first_to_go(self) -> Slot | None:
        strangers = [slot for slot in self._guests if not slot.known]
        crowds = Counter([block(slot.origin) for slot in strangers])
        return max(strangers, key=lambda slot: crowds[block(slot.origin)], default=None)  # the oldest of equals
