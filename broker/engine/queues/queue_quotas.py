"""Limits how many queues each user may have created (ActiveMQ Artemis's `max-queues`), and how many there may be.

Those that exist count, used or not.  A queue records its creator, also over a restart.  Queues created by the
configuration, operators or the broker itself count for no user, and anonymous users are limited together with all
others only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.engine.model.errors import TooManyQueues


class QueueQuotas:
    """The number of queues of each user, and of all, and the limits.

    `most`: for users not in `by_user`, `all_most`: for all together, beyond which clients create none; -1: any number.
    """

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()
        self._all = 0
        self._most = self._all_most = -1
        self._by_user: Mapping[str, int] = {}

    def change(self, most: int, by_user: Mapping[str, int], all_most: int = -1) -> None:
        """Change the limits; existing queues stay."""
        self._most, self._all_most = most, all_most
        self._by_user = by_user

    def made_by(self, user: str) -> int:
        """How many queues a user has created."""
        return self._made[user]

    def check(self, user: str) -> None:
        """Check that a user may create another queue.  Raises TooManyQueues."""
        if 0 <= self._all_most <= self._all:
            raise TooManyQueues(f"there are {self._all} queues, and limits.queues-max is {self._all_most}")
        if not user:
            return
        most = self._by_user.get(user, self._most)
        if 0 <= most <= self.made_by(user):
            raise TooManyQueues(f"user {user} has {self.made_by(user)} queues of at most {most}: delete one")

    def add(self, user: str) -> None:
        """Count a created queue."""
        self._all += 1
        if user:
            self._made[user] += 1

    def remove(self, user: str) -> None:
        """Count a deleted queue."""
        self._all -= 1
        if user:
            self._made[user] -= 1
            assert self._made[user] >= 0, "it was counted for its creator"
            if not self._made[user]:
                del self._made[user]
