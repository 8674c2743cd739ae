"""The sorted names of all queues and addresses, for lists that are fetched page by page.

Sorting 100,000 takes 40 ms of the event loop.  So they are sorted on demand, many in turns, and kept; what is created
and deleted meanwhile is merged into them on the next demand.  Whether one is the broker's own is fixed at its creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from broker.engine import Address, Engine, Queue, Watcher
from broker.management.turns import in_turns

#: Names that are sorted together: 2 ms.
PART: Final = 2_000


class Names(Watcher):
    """The lists of names.  Callers must not change them."""

    def __init__(self, engine: Engine) -> None:
        operators, addresses, queues = engine.operators, engine.addresses, engine.queues
        self._queues = _Sorted(queues, lambda name: name in queues and queues[name].internal)
        self._addresses = _Sorted(addresses, lambda name: name in addresses and operators.is_own(addresses[name]))
        engine.add_watcher(self)

    async def queues(self, *, internal: bool = False) -> list[str]:
        """The names of all queues; with `internal` also the broker's own."""
        return await self._queues.names(internal=internal)

    async def addresses(self, *, internal: bool = False) -> list[str]:
        """The names of all addresses; with `internal` also the broker's own."""
        return await self._addresses.names(internal=internal)

    # -- changes in the registry -----------------------------------------------------------------------------------

    def address_made(self, address: Address) -> None:
        self._addresses.add(address.name)

    def address_gone(self, address: Address) -> None:
        self._addresses.remove(address.name)

    def queue_made(self, queue: Queue) -> None:
        self._queues.add(queue.name)

    def queue_gone(self, queue: Queue) -> None:
        self._queues.remove(queue.name)


class _Sorted:
    """Names in order, at first `names`; `is_own` says which are the broker's own."""

    def __init__(self, names: Iterable[str], is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self._every: list[str] = []
        self._public: list[str] = []
        self._added = set(names)
        self._gone: set[str] = set()
        self._turn = asyncio.Lock()

    def add(self, name: str) -> None:
        """Note a new one."""
        self._added.add(name)

    def remove(self, name: str) -> None:
        """Note that one is gone."""
        self._added.discard(name)
        self._gone.add(name)

    async def names(self, *, internal: bool) -> list[str]:
        """All names as they are now; with `internal` also the broker's own."""
        async with self._turn:
            while self._added or self._gone:
                added, gone = self._added, self._gone
                self._added, self._gone = set(), set()
                try:
                    await in_turns(self._merge(added, gone))
                except BaseException:  # as the caller is gone
                    self._added |= added - self._gone
                    self._gone |= gone
                    raise
        return self._every if internal else self._public

    def _merge(self, added: set[str], gone: set[str]) -> Iterator[None]:
        """Merge changes in turns.  Sorting a list made of some sorted ones is fast."""
        every = self._every if not gone else [name for name in self._every if name not in gone]
        public = self._public if not gone else [name for name in self._public if name not in gone]
        yield None
        if added:
            every, public, left = list(every), list(public), iter(added)
            while part := sorted(islice(left, PART)):
                every += part
                public += [name for name in part if not self._is_own(name)]
                yield None
            every.sort()
            yield None
            public.sort()
        self._every, self._public = every, public
