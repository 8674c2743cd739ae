"""Background tasks, whose failures are always reported.

A task that fails, or that ends though it never should, is reported to the event loop's exception handler at once, like
an uncaught exception in a callback.  So the daemon handles all of them in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

#: The key in the handler's context: whether the broker cannot continue without this task.
ESSENTIAL: Final = "essential"


def supervised(name: str, work: Coroutine[Any, Any, None], *, essential: bool = False) -> asyncio.Task[None]:
    """A task whose failure is reported; an `essential` one may only end by being cancelled."""
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
