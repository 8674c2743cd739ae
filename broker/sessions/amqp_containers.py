"""Containers that want to have one connection only (capability `sole-connection-for-container`)."""

from __future__ import annotations


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
