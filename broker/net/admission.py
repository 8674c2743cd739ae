"""The limited connections of acceptors, and which one is closed to make room for a new one.

Whether a connection will log in turns out only after it was accepted.  So a new one is accepted beyond the limit too:
it replaces the oldest one that has not logged in, of the origin that has most of those.  Connections that have logged
in stay.  Connections that have not logged in displace only each other.  Only a flood from everywhere, faster than a
login takes, also displaces clients that are about to log in.

Each call takes constant time, on average: nobody is told when a connection logs in, so it is taken out of those that
may be displaced when it would be next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.security.throttle import block


class Slot(Protocol):
    """A connection, or a socket in its TLS handshake."""

    @property
    def known(self) -> bool:
        """Whether the client has logged in, and is not about to go."""

    @property
    def origin(self) -> str:
        """The address of the client; empty if it has none."""

    @property
    def remote(self) -> str:
        """The address and port of the client, for the log."""

    def leave(self) -> None:
        """Close: another connection takes this place."""


class ConnectionSlots:
    """At most `limit` connections."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken: set[Slot] = set()
        # Those that had not logged in when last looked at: by origin, and the origins by how many they have.
        self._unknown: dict[str, dict[Slot, None]] = {}
        self._origins: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def full(self) -> bool:
        """Whether a new connection would displace another one, or be refused."""
        return len(self._taken) >= self.limit

    def acquire(self, slot: Slot, refused: Callable[[Slot], None] = lambda _: None) -> bool:
        """Take a place, if need be that of a connection that has not logged in; False: there is none.

        `refused` is called with the connection that loses its place, or that gets none.
        """
        if self.full:
            displaced = self._next_to_go()
            refused(displaced or slot)
            if displaced is None:
                return False
            self.release(displaced)
            displaced.leave()
        self._taken.add(slot)
        self._note(slot)
        return True

    def closing(self, slot: Slot) -> None:
        """Note that a connection is no longer `known`, as it ends: it may be displaced again."""
        if slot in self._taken:
            self._note(slot)

    def _note(self, slot: Slot) -> None:
        origin = block(slot.origin)
        of_origin = self._unknown.setdefault(origin, {})
        if slot not in of_origin:
            of_origin[slot] = None
            self._recount(origin, len(of_origin) - 1, len(of_origin))

    def displace(self, origin: str, refused: Callable[[Slot], None]) -> bool:
        """Close the oldest connection of an origin that has not logged in, and free its place; False: it has none."""
        for slot in list(self._unknown.get(block(origin), ())):
            if not slot.known:
                self.release(slot)
                refused(slot)
                slot.leave()
                return True
            self._forget(slot)
        return False

    def release(self, slot: Slot) -> None:
        """Free the place of a connection; harmless if it had none."""
        self._taken.discard(slot)
        self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        origin = block(slot.origin)
        of_origin = self._unknown.get(origin, {})
        if of_origin.pop(slot, slot) is None:
            self._recount(origin, len(of_origin) + 1, len(of_origin))
            if not of_origin:
                del self._unknown[origin]

    def _recount(self, origin: str, before: int, after: int) -> None:
        if before:
            same = self._origins[before]
            del same[origin]
            if not same:
                del self._origins[before]
        if after:
            self._origins.setdefault(after, {})[origin] = None
        if after > self._most or self._most not in self._origins:
            self._most = after

    def _next_to_go(self) -> Slot | None:
        while self._most:
            origin = next(iter(self._origins[self._most]))  # of equals, the one that has had so many for longest
            slot = next(iter(self._unknown[origin]))
            if not slot.known:
                return slot
            self._forget(slot)
        return None
