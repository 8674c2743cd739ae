"""Limits how many queues each user may have created (ActiveMQ Artemis's `max-queues`): those that exist, used or not.

A queue records its creator, also over a restart.  Queues created by the configuration, operators or the broker itself
count for no user, and anonymous users are not limited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.engine.model.errors import TooManyQueues


class QueueQuotas:
    """The number of queues of each user, and the limits.  `most`: for users not in `by_user`; -1: any number."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()
        self._most = -1
        self._by_user: Mapping[str, int] = {}

    def change(self, most: int, by_user: Mapping[str, int]) -> None:
        """Change the limits; existing queues stay."""
        self._most = most
        self._by_user = by_user

    def made_by(self, user: str) -> int:
        """How many queues a user has created."""
        return self._made[user]

    def check(self, user: str) -> None:
        """Check that a user may create another queue.  Raises TooManyQueues."""
        if not user:
            return
        most = self._by_user.get(user, self._most)
        if 0 <= most <= self.made_by(user):
            raise TooManyQueues(f"user {user} has {self.made_by(user)} queues of at most {most}: delete one")

    def add(self, user: str) -> None:
        """Count a created queue."""
        if user:
            self._made[user] += 1

    def remove(self, user: str) -> None:
        """Count a deleted queue."""
        if user:
            self._made[user] -= 1
            assert self._made[user] >= 0, "it was counted for its creator"
            if not self._made[user]:
                del self._made[user]
