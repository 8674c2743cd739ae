"""Is told of addresses and queues that come and go."""

from __future__ import annotations

from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue


class Watcher:
    """Told in the middle of the verb that makes or deletes something.  A subclass has what it wants to be told."""

    def address_made(self, address: Address) -> None:
        """An address was made."""

    def address_gone(self, address: Address) -> None:
        """An address was deleted."""

    def queue_made(self, queue: Queue) -> None:
        """A queue was made; it is on its address."""

    def queue_gone(self, queue: Queue) -> None:
        """A queue was deleted; it is about to be taken off its address."""
