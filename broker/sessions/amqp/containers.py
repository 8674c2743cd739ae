"""Containers that ask for a single connection (capability `sole-connection-for-container`).

Connections of the same container without the capability are still accepted.  This is the weak detection policy; a peer
has to assume the strong one unless the broker states it (AMQP 1.0 Enforcing Connection Uniqueness, 2).
"""

from __future__ import annotations

from typing import Final

from protocols.amqp.types import Symbol, UInt

#: Properties of OPEN for a container that is the only one, and for one that is refused; and what CLOSE then adds.
GRANTED: Final[dict[str, object]] = {"sole-connection-detection-policy": UInt(1)}
REFUSED: Final[dict[str, object]] = {"amqp:connection-establishment-failed": True}
CLASH: Final[dict[str, object]] = {"invalid-field": Symbol("container-id")}


class Containers:
    """The container ids that may have only one connection, over all acceptors."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, id: str) -> bool:
        """Reserve a container id.  Returns whether it was free."""
        if id in self._taken:
            return False
        self._taken.add(id)
        return True

    def release(self, id: str) -> None:
        """Free a container id: its connection is gone."""
        self._taken.discard(id)
