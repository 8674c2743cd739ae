"""Tasks whose steps clients make: each of these calls waits for its turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from broker.engine.model.task import Task, TaskKind
from broker.management.ports import Broker
from broker.management.problems import Refused
from store.counted import counted

#: Seconds that a call waits for its task, which is paused or ahead of its rate: less than any client waits for an
#: answer, and not so few that it asks all the time.
TURN_SECONDS_MAX: Final = 5.0


async def turn(broker: Broker, id: int, kind: TaskKind) -> Task | None:
    """The task with this number, once its client may make the next step; within a tick, which has no end before that.

    None for 0: a call that is no step of a task.  Raises NotFound, InvalidTask, TaskEnded; Refused when it waits on.
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
