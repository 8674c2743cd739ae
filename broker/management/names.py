"""The sorted names of all queues and addresses, for lists that are fetched page by page.

Sorting 100,000 takes 40 ms of the event loop, so they are sorted on demand and kept until a queue or an address is
created or deleted.  Whether one is the broker's own is fixed at its creation.
"""

from __future__ import annotations

from broker.engine import Address, Engine, Queue, Watcher


class Names(Watcher):
    """The lists of names.  Callers must not change them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queues: dict[bool, list[str]] = {}  # by whether the broker's own are among them
        self._addresses: dict[bool, list[str]] = {}
        engine.watch(self)

    def queues(self, *, internal: bool = False) -> list[str]:
        """The names of all queues; with `internal` also the broker's own."""
        if internal not in self._queues:
            queues = self._engine.queues
            self._queues[internal] = sorted(name for name, queue in queues.items() if internal or not queue.internal)
        return self._queues[internal]

    def addresses(self, *, internal: bool = False) -> list[str]:
        """The names of all addresses; with `internal` also the broker's own."""
        if internal not in self._addresses:
            operators = self._engine.operators
            every = self._engine.addresses.items()
            self._addresses[internal] = sorted(name for name, each in every if internal or not operators.is_own(each))
        return self._addresses[internal]

    # -- changes in the registry -----------------------------------------------------------------------------------

    def address_made(self, address: Address) -> None:
        self._addresses.clear()

    def address_gone(self, address: Address) -> None:
        self._addresses.clear()

    def queue_made(self, queue: Queue) -> None:
        self._queues.clear()

    def queue_gone(self, queue: Queue) -> None:
        self._queues.clear()
