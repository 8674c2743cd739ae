"""How many queues each user may have made (ActiveMQ Artemis's `max-queues`): those that there are, used or not.

A queue remembers whose wish it was, also over a restart.  What the configuration, operators or the broker itself make
counts for nobody, and nobody in particular (somebody anonymous) is not limited.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.model.errors import TooManyQueues


class QueueQuotas:
    """What users have, and may have.  `most`: for those that `by_user` does not name; -1: any number."""

    def __init__(self) -> None:
        self._made: dict[str, int] = {}
        self._most = -1
        self._by_user: Mapping[str, int] = {}

    def change(self, most: int, by_user: Mapping[str, int]) -> None:
        """Other numbers; queues that are there stay."""
        self._most = most
        self._by_user = by_user

    def made_by(self, user: str) -> int:
        """How many there are of a user."""
        return self._made.get(user, 0)

    def check(self, user: str) -> None:
        """Before a queue is made for somebody.  Raises TooManyQueues."""
        if not user:
            return
        most = self._by_user.get(user, self._most)
        if 0 <= most <= self.made_by(user):
            raise TooManyQueues(f"user {user} has {self.made_by(user)} queues of at most {most}: delete one")

    def add(self, user: str) -> None:
        """A queue was made."""
        if user:
            self._made[user] = self.made_by(user) + 1

    def remove(self, user: str) -> None:
        """A queue is gone."""
        if user:
            left = self._made[user] - 1
            if left:
                self._made[user] = left
            else:
                del self._made[user]
