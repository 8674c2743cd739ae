"""The pages of tasks: their progress; pause, resume and cancel them."""

from __future__ import annotations

from starlette.responses import Response

from broker.console.desk import Pages, Routes
from broker.console.groups import TITLES
from broker.console.reasons import reason
from broker.console.visit import Visit, go_to
from broker.engine.model.task import Task, TaskKind, TaskState, TaskVerb
from broker.management.callers import knows_task, require_task
from broker.management.durable import durable
from broker.reasons.reason import Kind
from store.counted import counted

#: What became of one message, and of several.
_DONE = {
    TaskKind.RETRY: ("went back to where it came from", "went back to where they came from"),
    TaskKind.MOVE: ("was moved", "were moved"),
    TaskKind.PURGE: ("was removed", "were removed"),
    TaskKind.DELETE_QUEUE: ("was deleted with its queue", "were deleted with their queue"),
    TaskKind.EXPORT: ("was exported", "were exported"),
    TaskKind.IMPORT: ("was imported", "were imported"),
    TaskKind.REPLAY: ("was brought back from the journal", "were brought back from the journal"),
}

#: What would become of one message, and of several, in a dry run.
_WOULD = {
    TaskKind.RETRY: ("would go back to where it came from", "would go back to where they came from"),
    TaskKind.MOVE: ("would be moved", "would be moved"),
    TaskKind.PURGE: ("would be removed", "would be removed"),
    TaskKind.DELETE_QUEUE: ("would be deleted with its queue", "would be deleted with their queue"),
    TaskKind.EXPORT: ("would be exported", "would be exported"),
    TaskKind.IMPORT: ("would be imported", "would be imported"),
}

_VERBS = {
    "/task/pause": (TaskVerb.PAUSE, "task.paused"),
    "/task/resume": (TaskVerb.RESUME, "task.resumed"),
    "/task/cancel": (TaskVerb.CANCEL, "task.cancelled"),
}


class TaskPages(Pages):
    """The task pages of one broker."""

    def routes(self) -> Routes:
        """The pages."""
        return [
            ("GET", "/tasks", self.show_all, None),
            ("GET", "/task", self.show, self._authorize),
            *(("POST", path, self.steer, self._authorize) for path in _VERBS),
        ]

    def _authorize(self, visit: Visit) -> None:
        """Require `manage` on the task's queue."""
        require_task(visit.access, self._desk.engine.tasks.task(visit.id))

    async def show_all(self, visit: Visit) -> Response:
        """The tasks under way and the last ones that ended, latest first."""
        tasks = [task for task in self._desk.engine.tasks.all() if knows_task(visit.access, task)]
        return self._desk.page(visit, "tasks.html", {"tasks": [(task, summary(task)) for task in tasks]})

    async def show(self, visit: Visit) -> Response:
        """One task."""
        task = self._desk.engine.tasks.task(visit.id)
        context = {
            "task": task,
            "summary": summary(task),
            "stays": stays(task),
            "titles": {name.replace("-", "_"): title for name, title in TITLES.items()},
            "running": task.state is TaskState.RUNNING,
        }
        return self._desk.page(visit, "task.html", context)

    async def steer(self, visit: Visit) -> Response:
        """Pause, resume or cancel a task."""
        task = self._desk.engine.tasks.task(visit.id)
        verb, code = _VERBS[visit.request.url.path]
        self._desk.enter().tasks.steer(task, verb)
        visit.log_action(code, **task.log_fields)
        await durable(self._desk.engine)
        return go_to("/task", id=task.id)


def summary(task: Task) -> str:
    """A sentence on what became of the messages so far."""
    request, moved = task.request, task.progress.moved
    one, many = (_WOULD if request.dry_run else _DONE)[request.kind]
    if request.remove:
        one, many = "was exported and removed", "were exported and removed"
    return counted(moved, f"message {one}.", f"messages {many}.")


def stays(task: Task) -> list[str]:
    """Sentences on how many messages stay, and why."""
    sentences = []
    for why, count in task.progress.refused.items():
        found = reason(Kind.STAYS, why)
        sentences.append(
            f"{count:,} stayed: {why}." if found is None else f"{count:,} stayed: {found.meaning} {found.action}"
        )
    return sentences
