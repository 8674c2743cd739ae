"""Waiting for the disk: calls that change something answer once the change is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.engine import Engine


class _Durable:
    """Waits for a tick to become durable."""

    transport = None  # nothing is sent on a transport: the caller may be gone

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.number = 0

    def durable(self, number: int) -> None:
        """The journal reports that ticks up to `number` are durable."""
        if number >= self.number and not self.done.done():
            self.done.set_result(None)


async def finished(begin: Callable[[Callable[[], None]], object]) -> None:
    """Call `begin` with a function, and wait until that is called: a change may be made in steps."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():  # the caller may be gone
            done.set_result(None)

    begin(finish)
    await done


async def durable(engine: Engine) -> None:
    """Wait until everything done so far is on disk."""
    waiter = _Durable()
    waiter.number = engine.ticks.confirmation(waiter)
    if waiter.number:
        await waiter.done
