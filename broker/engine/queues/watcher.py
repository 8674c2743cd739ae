"""The interface by which the registry reports created and deleted addresses and queues."""

from __future__ import annotations

from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue


class Watcher:
    """Called in the middle of the verb that creates or deletes something.  Subclasses override what they need."""

    def address_made(self, address: Address) -> None:
        """An address was created."""

    def address_gone(self, address: Address) -> None:
        """An address was deleted."""

    def queue_made(self, queue: Queue) -> None:
        """A queue was created and bound to its address."""

    def queue_gone(self, queue: Queue) -> None:
        """A queue was deleted; it is about to be unbound from its address."""
