"""Much at once, in steps between which other clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from broker.console.desk import Desk
from broker.engine import MessageRange, MoveResult, Queue
from broker.engine.model.errors import EngineError


async def stepwise(desk: Desk, selection: MessageRange, verb: Callable[[MessageRange], MoveResult]) -> MoveResult:
    """Several steps of a verb, each in a tick of its own.  Raises EngineError."""
    desk.enter()
    total = verb(selection)
    for _ in range(desk.limits.steps_max - 1):
        if total.complete:
            break
        await asyncio.sleep(0)
        desk.enter()
        try:
            total.add(verb(replace(selection, after=total.last, below=total.below)))
        except EngineError:
            break  # what was done is told; the next call raises it
    return total


async def purge_long(desk: Desk, queue: Queue) -> int:
    """Purge a queue, of what it has now, until the rest can be done at once; returns how many are gone."""
    long = queue.message_count - queue.delivering - desk.engine.limits.purge_step_max
    purged = 0
    while purged < long and not queue.deleted:
        some = desk.enter().messages.purge_some(queue)
        if not some:
            break
        purged += some
        await asyncio.sleep(0)
    return purged
