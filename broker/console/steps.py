"""Much at once, in steps between which other clients are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from broker.console.desk import Desk
from broker.engine import MessageRange, MoveResult
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
