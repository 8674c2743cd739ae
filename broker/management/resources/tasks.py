"""Tasks: what takes longer than a tick, started, looked at, paused, resumed, cancelled."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.requests import Request

from broker.engine.model.access import Access
from broker.engine.model.errors import EngineError, NotFound
from broker.engine.model.task import Task, TaskVerb
from broker.management.callers import require_queue, require_target
from broker.management.calls import CallerAccess, Calls, anybody
from broker.management.cursors import cursor, place
from broker.management.deeds import told, who
from broker.management.durable import durable
from broker.management.models.base import ID_MAX, LIMIT_DEFAULT, After, Limit, Number
from broker.management.models.tasks import NewTask, TaskList, TaskShown, task_shown
from broker.management.ports import Broker

TaskId = Annotated[Number, Path(ge=1, le=ID_MAX, description="The task's number.")]

#: Bytes of a request for a task: 1,000 ids, and a body of some hundred KiB for edited messages.
BODY_BYTES_MAX = 2 << 20


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
        calls.add("GET", "/tasks/{task}", self.show, about=about)
        calls.add("POST", "/tasks/{task}:pause", self.pause, about=about, problems=(409,))
        calls.add("POST", "/tasks/{task}:resume", self.resume, about=about, problems=(409,))
        calls.add("POST", "/tasks/{task}:cancel", self.cancel, about=about, problems=(409,))

    async def _about_new(self, body: NewTask, access: CallerAccess) -> None:
        require_queue(access, self._engine, body.queue)
        if body.target:
            require_target(access, self._engine, body.target)

    async def _about(self, task: TaskId, access: CallerAccess) -> None:
        if not self._knows(access, self._engine.tasks.task(task)):
            raise NotFound(f"task {task} does not exist")

    def _knows(self, access: Access, task: Task) -> bool:
        try:
            require_queue(access, self._engine, task.request.queue)
        except EngineError:
            return access.allows_whole
        return True

    async def list(self, access: CallerAccess, limit: Limit = LIMIT_DEFAULT, after: After = "") -> TaskList:
        """The tasks on queues that the caller manages, the latest first: those under way and the last that ended."""
        key = place("tasks", after, int)
        below = ID_MAX if key is None else int(key[0])
        tasks = [task for task in self._engine.tasks.all() if task.id < below and self._knows(access, task)]
        shown = tasks[:limit]
        more = cursor("tasks", shown[-1].id) if len(tasks) > len(shown) else None
        return TaskList(tasks=[task_shown(task) for task in shown], next=more)

    async def show(self, task: TaskId) -> TaskShown:
        """One task."""
        return task_shown(self._engine.tasks.task(task))

    async def start(self, request: Request, body: NewTask, access: CallerAccess) -> TaskShown:
        """Start a task; one of few messages has ended when this is answered."""
        self._broker.tick.enter()
        task = self._engine.tasks.start(body.request(who(request, access)))
        chosen = {"filter": body.filter, "target": body.target, "ids": ", ".join(map(str, body.ids[:100]))}
        told(
            request,
            "task.started",
            task=task.id,
            kind=body.kind,
            queue=body.queue,
            **{name: value for name, value in chosen.items() if value},
            **({"dry_run": "true"} if body.dry_run else {}),
            **{name: value for name, value in task.request.group.items()},
        )
        await durable(self._engine)
        return task_shown(task)

    async def pause(self, request: Request, task: TaskId) -> TaskShown:
        """Let a task wait until it is resumed, also after a restart."""
        return await self._steer(request, task, TaskVerb.PAUSE, "task.paused")

    async def resume(self, request: Request, task: TaskId) -> TaskShown:
        """Let a paused task go on."""
        return await self._steer(request, task, TaskVerb.RESUME, "task.resumed")

    async def cancel(self, request: Request, task: TaskId) -> TaskShown:
        """End a task; what it has done stays done."""
        return await self._steer(request, task, TaskVerb.CANCEL, "task.cancelled")

    async def _steer(self, request: Request, id: int, verb: TaskVerb, code: str) -> TaskShown:
        task = self._engine.tasks.task(id)
        self._broker.tick.enter()
        self._engine.tasks.steer(task, verb)
        told(request, code, task=task.id, kind=task.request.kind.value, queue=task.request.queue)
        await durable(self._engine)
        return task_shown(task)
