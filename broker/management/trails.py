"""Finding a message's trail in the journal, off the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from broker import clock
from broker.management.ports import Broker
from store.files import OsFiles
from store.trail.search import find_trail
from store.trail.steps import Trail
from store.trail.text import unknown_sentence

#: Searches at a time: each has a segment in memory, 64 MiB, and a thread.  Further searches wait.
SEARCHES_MAX: Final = 2

#: Seconds that a search rests after each millisecond of work, during which it holds up the event loop.
REST_SECONDS: Final = 0.0005


class TrailFinder:
    """Finds the trails of messages of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns = asyncio.Semaphore(SEARCHES_MAX)

    async def find(self, id: int) -> Trail:
        """What the journal records about a message, by any id it ever had; see `Trail`.

        If the journal does not know the message, its `steps` are empty, and `unknown` says why. Takes half a second for
        a journal of 10 GiB.  Raises OSError if the journal cannot be read.
        """
        engine = self._broker.engine
        if id >= engine.messages.next_id:
            return Trail([], [], [], "", [], 0, 0)
        names = {queue.id: queue.name for queue in engine.queues.values()}
        names |= {session.id: session.name for session in engine.sessions.all()}
        rest = partial(clock.rest, REST_SECONDS)
        search = partial(find_trail, names=names, exists=engine.queues_by_id.__contains__, rest=rest)
        async with self._turns:
            return await asyncio.to_thread(search, OsFiles(), f"{self._broker.data_directory}/journal", id)

    def unknown(self, id: int, found: Trail) -> str:
        """A sentence on why the journal does not know a message."""
        return unknown_sentence(id, self._broker.engine.messages.next_id, found.problems)
