"""Tasks: what takes longer than a tick, started, looked at, paused, resumed, cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.requests import Request

from broker.engine.model.task import Task, TaskVerb
from broker.management.callers import knows_task, require_new_task, require_task
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.cursors import cursor, place
from broker.management.deeds import told, who
from broker.management.durable import durable
from broker.management.models.base import ID_MAX, LIMIT_DEFAULT, After, Limit, TaskId, Wait
from broker.management.models.tasks import NewTask, TaskList, TaskShown, task_shown
from broker.management.ports import Broker

#: Bytes of a request for a task: 1,000 ids, and a body of some hundred KiB for edited messages.
BODY_BYTES_MAX: Final = 2 << 20


class TaskCalls:
    """The calls on one broker's tasks.  Who manages the queue of a task knows of it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        about = self._about
        calls.add(
            "POST",
            "/tasks",
            self.start,
            about=self._about_new,
            status=201,
            problems=(404, 409, 503, 507),
            body_bytes_max=BODY_BYTES_MAX,
        )
        calls.add("GET", "/tasks", self.list, about=anybody)
        calls.add("GET", "/tasks/{task:digits}", self.show, about=about)  # and not what ends in `:pause`
        calls.add("POST", "/tasks/{task}:pause", self.pause, about=about, problems=(409,))
        calls.add("POST", "/tasks/{task}:resume", self.resume, about=about, problems=(409,))
        calls.add("POST", "/tasks/{task}:cancel", self.cancel, about=about, problems=(409,))

    async def _about_new(self, body: NewTask, access: CallerAccess) -> None:
        require_new_task(access, self._engine, body.queue, body.target, edits=bool(body.edit.edit))

    async def _about(self, task: TaskId, access: CallerAccess) -> None:
        require_task(access, self._engine.tasks.task(task))

    async def list(self, access: CallerAccess, limit: Limit = LIMIT_DEFAULT, after: After = "") -> TaskList:
        """The tasks on queues that the caller manages, the latest first: those under way and the last that ended."""
        key = place("tasks", after, int)
        below = ID_MAX if key is None else int(key[0])
        tasks = [task for task in self._engine.tasks.all() if task.id < below and knows_task(access, task)]
        shown = tasks[:limit]
        more = cursor("tasks", shown[-1].id) if len(tasks) > len(shown) else None
        return TaskList(tasks=[task_shown(task) for task in shown], next=more)

    async def show(self, task: TaskId, wait: Wait = 0) -> TaskShown:
        """One task, at once; with `wait`, when it has ended or paused, or after so long."""
        found = self._engine.tasks.task(task)
        if wait:
            await self._ended(found, wait)
        return task_shown(found)

    async def _ended(self, task: Task, wait: int) -> None:
        """Return when a task runs no more, or after so many ms."""
        ended = asyncio.Event()
        with self._engine.tasks.watched(task, ended.set), suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), wait / 1000)

    async def start(self, request: Request, body: NewTask, access: CallerAccess) -> TaskShown:
        """Start a task; one of few messages has ended when this is answered."""
        self._broker.tick.enter()
        task = self._engine.tasks.start(body.request(who(request, access)))
        await durable(self._engine)
        return task_shown(task)

    async def pause(self, request: Request, task: TaskId) -> TaskShown:
        """Let a task wait until it is resumed, also after a restart."""
        return await self._steer(request, task, TaskVerb.PAUSE)

    async def resume(self, request: Request, task: TaskId) -> TaskShown:
        """Let a paused task go on."""
        return await self._steer(request, task, TaskVerb.RESUME)

    async def cancel(self, request: Request, task: TaskId) -> TaskShown:
        """End a task; what it has done stays done."""
        return await self._steer(request, task, TaskVerb.CANCEL)

    async def _steer(self, request: Request, id: int, verb: TaskVerb) -> TaskShown:
        task = self._engine.tasks.task(id)
        self._broker.tick.enter()
        self._engine.tasks.steer(task, verb)
        about = {"task": task.id, "kind": task.request.kind.value, "queue": task.request.queue}
        if verb is TaskVerb.CANCEL:
            told(request, "task.cancelled", **about)
        else:
            told(request, "task.paused" if verb is TaskVerb.PAUSE else "task.resumed", **about)
        await durable(self._engine)
        return task_shown(task)
