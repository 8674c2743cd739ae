"""Containers that want to have one connection only (capability `sole-connection-for-container`).

Who does not want that is let in beside them, which is the weak one of the detection policies; the strong one is what a
peer has to assume that is not told (AMQP 1.0 Enforcing Connection Uniqueness, 2).
"""

from __future__ import annotations

from typing import Final

from protocols.amqp.types import Symbol, UInt

#: What OPEN says to a container that is alone from now on, and to one that cannot be; with what CLOSE then adds.
GRANTED: Final[dict[str, object]] = {"sole-connection-detection-policy": UInt(1)}
REFUSED: Final[dict[str, object]] = {"amqp:connection-establishment-failed": True}
CLASH: Final[dict[str, object]] = {"invalid-field": Symbol("container-id")}


class Containers:
    """The container ids of which there must be one connection only, over all acceptors."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, id: str) -> bool:
        """Whether it was free."""
        if id in self._taken:
            return False
        self._taken.add(id)
        return True

    def release(self, id: str) -> None:
        """Its connection is gone."""
        self._taken.discard(id)
