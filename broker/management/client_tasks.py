"""Tasks whose steps are calls of a client: each call waits until the task may take its next step."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from broker.engine.model.task import Task, TaskKind
from broker.management.ports import Broker
from broker.management.problems import Refused
from store.counted import counted

#: Seconds that a call waits for a task that is paused or ahead of its rate: shorter than any client's timeout, long
#: enough that clients do not poll.
TURN_SECONDS_MAX: Final = 5.0


async def turn(broker: Broker, id: int, kind: TaskKind) -> Task | None:
    """The task with this number, once its client may make the next step; the tick is still open on return.

    None for 0: a call that is no step of a task.  Raises NotFound, InvalidTask, TaskEnded; Refused while it still has
    to wait.
    """
    if not id:
        broker.tick.enter()
        return None
    tasks = broker.engine.tasks
    task = tasks.task(id)
    changed = asyncio.Event()
    until = asyncio.get_running_loop().time() + TURN_SECONDS_MAX
    with tasks.watched(task, changed.set):
        while True:
            broker.tick.enter()
            changed.clear()
            if tasks.may_step(task, kind):
                return task
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await changed.wait()
            if not changed.is_set():
                why = (
                    "paused"
                    if task.state.value == "paused"
                    else f"ahead of {counted(task.request.rate, 'message')} a second"
                )
                raise Refused("task-waits", f"task {id} is {why}: make the call again")
