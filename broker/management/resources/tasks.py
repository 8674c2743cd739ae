"""The calls to start, show, pause, resume, cancel and end tasks: work that takes longer than a tick."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from starlette.requests import Request

from broker.engine.model.task import Task, TaskKind, TaskState, TaskVerb
from broker.management.callers import knows_task, require_new_task, require_task, require_whole
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.client_tasks import turn
from broker.management.cursors import cursor, place
from broker.management.durable import durable
from broker.management.models.base import ID_MAX, LIMIT_DEFAULT, After, Limit, TaskId, Wait
from broker.management.models.tasks import ExportedIds, NewTask, Removed, TaskEnd, TaskList, TaskShown, task_shown
from broker.management.operator_log import caller_fields, log_action
from broker.management.ports import Broker

#: Bytes of a request to start a task: 1,000 ids, and a body of some hundred KiB for edited messages.
BODY_BYTES_MAX: Final = 2 << 20


class TaskCalls:
    """The calls on one broker's tasks.  A task is visible to callers who manage its queue."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._engine = broker.engine

    def add_to(self, calls: Calls) -> None:
        """Declare them."""
        authorize = self._authorize
        calls.add(
            "POST",
            "/tasks",
            self.start,
            authorize=self._authorize_new,
            status=201,
            problems=(404, 409, 503, 507),
            body_bytes_max=BODY_BYTES_MAX,
        )
        calls.add("GET", "/tasks", self.list, authorize=anybody)
        calls.add(
            "GET", "/tasks/{task:digits}", self.show, authorize=authorize
        )  # does not match paths that end in `:pause`
        calls.add("POST", "/tasks/{task}:pause", self.pause, authorize=authorize, problems=(409,))
        calls.add("POST", "/tasks/{task}:resume", self.resume, authorize=authorize, problems=(409,))
        calls.add("POST", "/tasks/{task}:cancel", self.cancel, authorize=authorize, problems=(409,))
        calls.add("POST", "/tasks/{task}:end", self.end, authorize=authorize, problems=(409,))
        calls.add("POST", "/tasks/{task}:remove", self.remove, authorize=authorize, problems=(409, 503))

    async def _authorize_new(self, body: NewTask, access: CallerAccess) -> None:
        if TaskKind(body.kind).named:
            return require_whole(access)
        return require_new_task(access, self._engine, body.queue, body.target, edits=bool(body.edit.edit))

    async def _authorize(self, task: TaskId, access: CallerAccess) -> None:
        require_task(access, self._engine.tasks.task(task))

    async def list(self, access: CallerAccess, limit: Limit = LIMIT_DEFAULT, after: After = "") -> TaskList:
        """The tasks on queues that the caller manages, latest first: those under way and the last ones that ended."""
        below = place("tasks", after, ID_MAX)
        tasks = [task for task in self._engine.tasks.all() if task.id < below and knows_task(access, task)]
        shown = tasks[:limit]
        more = cursor("tasks", shown[-1].id) if len(tasks) > len(shown) else None
        return TaskList(tasks=[task_shown(task) for task in shown], next=more)

    async def show(self, task: TaskId, wait: Wait = 0) -> TaskShown:
        """One task; with `wait`, once it has ended or paused, or after that time."""
        found = self._engine.tasks.task(task)
        if wait:
            await self._ended(found, wait)
        return task_shown(found)

    async def _ended(self, task: Task, wait: int) -> None:
        """Wait until a task no longer runs, or for this many ms."""
        changed = asyncio.Event()
        with self._engine.tasks.watched(task, changed.set), suppress(TimeoutError):
            async with asyncio.timeout(wait / 1000):
                while task.state is TaskState.RUNNING:
                    changed.clear()
                    await changed.wait()

    async def start(self, request: Request, body: NewTask, access: CallerAccess) -> TaskShown:
        """Start a task; one with few messages has already ended when this is answered.

        The client makes the steps of an export, import or replay by other calls, which name the task.  Such a task
        fails when its client makes no step for 15 minutes, and when the broker stops.
        """
        self._broker.tick.enter()
        task = self._engine.tasks.start(body.request(caller_fields(request, access), access.identity))
        await durable(self._engine)
        return task_shown(task)

    async def pause(self, request: Request, task: TaskId) -> TaskShown:
        """Pause a task until it is resumed, even across a restart."""
        return await self._steer(request, task, TaskVerb.PAUSE)

    async def resume(self, request: Request, task: TaskId) -> TaskShown:
        """Resume a paused task."""
        return await self._steer(request, task, TaskVerb.RESUME)

    async def cancel(self, request: Request, task: TaskId) -> TaskShown:
        """Cancel a task; its completed steps are not undone."""
        return await self._steer(request, task, TaskVerb.CANCEL)

    async def end(self, task: TaskId, body: TaskEnd) -> TaskShown:
        """End an export, import or replay: its client has made the last step."""
        found = self._engine.tasks.task(task)
        self._broker.tick.enter()
        self._engine.tasks.end(found, body.error)
        await durable(self._engine)
        return task_shown(found)

    async def remove(self, task: TaskId, body: ExportedIds) -> Removed:
        """Remove exported messages that the client has on its disk."""
        found = await turn(self._broker, task, TaskKind.EXPORT)
        assert found is not None, "its number is not 0"
        progress, left = found.progress, tuple(body.ids)
        removed, refused = progress.moved, Counter(progress.refused)
        while left:
            self._broker.tick.enter()
            left = left[self._engine.tasks.remove(found, left) :]
            await asyncio.sleep(0)  # let others run
        await durable(self._engine)
        refused = Counter(progress.refused) - refused
        return Removed(removed=progress.moved - removed, refused=dict(refused))

    async def _steer(self, request: Request, id: int, verb: TaskVerb) -> TaskShown:
        task = self._engine.tasks.task(id)
        self._broker.tick.enter()
        self._engine.tasks.steer(task, verb)
        if verb is TaskVerb.CANCEL:
            log_action(request, "task.cancelled", **task.log_fields)
        else:
            log_action(request, "task.paused" if verb is TaskVerb.PAUSE else "task.resumed", **task.log_fields)
        await durable(self._engine)
        return task_shown(task)
