"""Counting dead letters by group over many ticks, between which other clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.engine import DeadLetterGroups
from broker.management.ports import Broker

#: What dead letters are grouped by unless the caller says otherwise.
BY_DEFAULT: Final = ("reason", "origin")


class GroupCounter:
    """Counts the dead letters of one broker, one call at a time; other calls wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn = asyncio.Lock()

    async def count(self, queues: Sequence[str] | None = None, by: Sequence[str] = BY_DEFAULT) -> DeadLetterGroups:
        """Count the dead letters of these queues, by these values (`GROUPED_BY`); None: of all that hold dead letters.

        A million take some seconds, one step per tick.  Raises NotFound, InvalidAttribute, NotReadable.
        """
        engine = self._broker.engine
        keeping = engine.messages.dead_letter_queues
        chosen = keeping() if queues is None else [engine.queue(name) for name in queues]
        counted = DeadLetterGroups([queue.name for queue in chosen], tuple(by))
        async with self._turn:
            while not counted.complete:
                self._broker.tick.enter()
                engine.messages.group_step(counted)
                await asyncio.sleep(0)
        return counted
