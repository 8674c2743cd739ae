"""The steps of tasks that the broker itself drives: which messages are next, and what is done with them."""

from __future__ import annotations

from broker.engine.delivery.subscribe import parse_selector
from broker.engine.model.errors import DiskFull
from broker.engine.model.task import Task, TaskKind, TaskRequest
from broker.engine.moves.dead_letter_groups import DeadLetterGroup
from broker.engine.moves.transfer import DISK_FULL, MessageRange, MoveOptions, MoveResult
from broker.engine.operators.administration import Administration
from broker.engine.operators.messages import QueueMessages
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State


class TaskSteps:
    """The steps of one broker's tasks."""

    def __init__(self, state: State, messages: QueueMessages, administration: Administration) -> None:
        self._state = state
        self._messages = messages
        self._administration = administration

    def step(self, task: Task, queue: Queue) -> MoveResult:
        """Move or remove the next messages; returns how far it came.  Raises EngineError."""
        request, progress = task.request, task.progress
        if request.ids:
            return self._named(task, queue)
        if self._takes_all(task, queue):
            return self._all(task, queue)
        selection = MessageRange(
            parse_selector(request.filter),
            after=progress.last,
            below=progress.below,
            group=DeadLetterGroup(**request.group) if request.group else None,  # type: ignore[arg-type]
            most=request.most_in_step,
        )
        return self._verb(request, queue, selection)

    def _verb(self, request: TaskRequest, queue: Queue, selection: MessageRange) -> MoveResult:
        options = MoveOptions(request.first_origin, request.edit, request.dry_run)
        if request.kind is TaskKind.RETRY:
            return self._messages.retry(queue, selection, options)
        if request.kind is TaskKind.MOVE:
            return self._messages.move(queue, request.target, selection, options)
        return self._messages.discard(queue, selection, options)

    def _named(self, task: Task, queue: Queue) -> MoveResult:
        """Make a step with messages named by id; `last` counts those looked at so far."""
        ids, first, limit = task.request.ids, task.progress.last, self._state.limits.move_step_max
        most = min(task.request.most_in_step or limit, limit)
        result = self._verb(task.request, queue, MessageRange(ids=ids[first : first + most]))
        last = first + result.looked_at
        result.below, result.last, result.complete = 0, last, last == len(ids)
        return result

    def _takes_all(self, task: Task, queue: Queue) -> bool:
        """Whether it concerns all messages of the queue: a deletion, or a purge until another message arrives there."""
        request = task.request
        if request.kind is TaskKind.DELETE_QUEUE:
            return True
        if request.chooses or request.pace or request.kind is not TaskKind.PURGE:
            return False
        arrivals = (queue.id, queue.counters.added)
        if not task.progress.below:
            task.arrivals = arrivals
        return task.arrivals == arrivals

    def _all(self, task: Task, queue: Queue) -> MoveResult:
        """Make a step of a purge, also before the deletion of a queue; after its last step, delete the queue."""
        request, remaining = task.request, max(task.progress.total - task.progress.moved, 0)
        if request.dry_run:
            return MoveResult(0, 0, True, moved=remaining, looked_at=remaining)
        below = task.progress.below or self._state.journal.allocate_ids(1)  # larger than that of any message so far
        deleting = request.kind is TaskKind.DELETE_QUEUE
        some = 0
        try:
            if remaining:
                some = self._messages.purge(queue, deleting=deleting)
        except DiskFull:
            if not deleting:  # else its deletion needs no room for each message
                return MoveResult(below, 0, False, refused={DISK_FULL: remaining})
        complete = some == 0 or some >= remaining
        if complete and deleting:
            some += queue.message_count
            self._administration.delete_queue(queue, with_messages=True)
            messages = task.progress.moved + some
            self._state.report("queue.deleted", queue=queue.name, messages=messages, **request.by)
        return MoveResult(below, 0, complete, moved=some, looked_at=some)
