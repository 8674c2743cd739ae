"""What clients have the broker hold in memory beside messages: the wills of their sessions, the ids of subscriptions.

A client may name a subscription with 15 KB, and leave a will of 32 KB behind it, each many thousand times.  It counts
towards the broker's memory, and has a limit of its own, so that it never takes the memory of all messages: a quarter of
that for all users, and beyond it their shares (`has_share`).  More is refused.

What was stored before a restart is held again, whatever the limit is now.
"""

from __future__ import annotations

from broker.engine.model.errors import MemoryFull
from broker.engine.queues.room import Usage
from broker.engine.queues.uncommitted import MEMORY_PART, has_share


class ClientMemory:
    """What the clients of each user hold."""

    __slots__ = ("_usage", "_users")

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._users: dict[str, int] = {}

    def hold(self, user: str, nbytes: int) -> None:
        """Charge what a client of this user has the broker hold.  Raises MemoryFull."""
        users, usage = self._users, self._usage
        pool = usage.bytes_max // MEMORY_PART
        own = users.get(user, 0)
        if usage.bytes_max >= 0 and not has_share(
            pool, usage.clients_bytes + nbytes, own + nbytes, len(users) + (not own)
        ):
            raise MemoryFull(
                f"memory full: wills and ids of subscriptions take {usage.clients_bytes} bytes, at most {pool} "
                f"are allowed (a part of global-max-size), and {nbytes} more are asked for"
            )
        self.hold_again(user, nbytes)

    def hold_again(self, user: str, nbytes: int) -> None:
        """The same for what was stored before a restart."""
        if nbytes:
            self._users[user] = self._users.get(user, 0) + nbytes
            self._usage.clients_bytes += nbytes

    def release(self, user: str, nbytes: int) -> None:
        """Discharge what is held no longer."""
        if nbytes:
            self._users[user] -= nbytes
            assert self._users[user] >= 0, "it was held for this user"
            self._usage.clients_bytes -= nbytes
            if not self._users[user]:
                del self._users[user]
