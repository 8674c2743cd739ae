"""Background tasks: none dies unseen.

A task that fails, or that ends though it never should, is told to the event loop's exception handler at once, like an
exception that nobody caught in a callback.  So the daemon has one place that learns of all of them, and decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

#: In the context that the handler gets: the broker cannot go on without this task.
ESSENTIAL: Final = "essential"


def supervised(name: str, work: Coroutine[Any, Any, None], *, essential: bool = False) -> asyncio.Task[None]:
    """A task whose end is looked at; an `essential` one only ends by being cancelled."""
    task = asyncio.get_running_loop().create_task(work, name=name)

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and essential and not task.cancelled():
            error = RuntimeError(f"the task {name} has ended")
        if error is not None:
            context = {"message": f"the task {name} has failed", "exception": error, "task": task, ESSENTIAL: essential}
            task.get_loop().call_exception_handler(context)

    task.add_done_callback(ended)
    return task
