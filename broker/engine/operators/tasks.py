"""Tasks: what operators do with more messages than fit into a tick, step by step.

A task is kept in the journal.  Each step moves or removes some messages, and notes in the same entry how far the task
came: after a crash it goes on where it was, and its counts are exact.  Its first step is made when it is started, so
that one of few messages has ended by then, and one that cannot begin is refused.

Between two steps others get their turn: a step takes some ms, and the next one comes a tick later at the earliest,
once the disk has nearly caught up, and not before the task's rate allows it.  An exception in a step that nobody
expected costs what it costs elsewhere: see the tick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Final

from broker.engine.delivery.subscribe import parse_selector
from broker.engine.filter import Filter
from broker.engine.model.errors import AlreadyInUse, EngineError, InvalidTask, NotFound, TooManyTasks
from broker.engine.model.task import STEERING, Task, TaskKind, TaskRequest, TaskState, TaskVerb
from broker.engine.moves.dead_letter_groups import DeadLetterGroup
from broker.engine.moves.transfer import DISK_FULL, MessageRange, MoveOptions, MoveResult
from broker.engine.operators.administration import Administration
from broker.engine.operators.messages import QueueMessages
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from broker.engine.routing import registry
from store import record

#: Tasks that run or are paused at a time: each takes some ms of a tick.
ACTIVE_MAX: Final = 16

#: Ended tasks that are kept to be looked at: some weeks of an operator's work.
ENDED_KEPT: Final = 100

#: Messages that one task names one by one: a page of a list, and a definition of some KiB in each step's entry.
IDS_MAX: Final = 1_000

#: Of these, how many the log names.
IDS_TOLD_MAX: Final = 100

#: Messages a second at most that a rate can ask for.
RATE_MAX: Final = 1_000_000

#: Places of which it is told how many messages went there; the others are counted together.
TARGETS_MAX: Final = 50
OTHER_TARGETS: Final = "others"

_DISK_FULL: Final = "the journal has no room for the copies: resume the task when there is room"


class _Pace:
    """Waits for the disk on behalf of one task."""

    transport = None

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def durable(self, number: int) -> None:
        """The entry of the step before is on disk."""
        self._go_on()


class Tasks:
    """The tasks of one broker."""

    def __init__(self, state: State, messages: QueueMessages, administration: Administration) -> None:
        self._state = state
        self._messages = messages
        self._administration = administration
        self._filters: dict[int, Filter | None] = {}
        self._arrivals: dict[int, tuple[int, int]] = {}  # of a purge: its queue, and how many had come there
        self._watchers: dict[int, list[Callable[[], None]]] = {}

    def all(self) -> list[Task]:
        """All tasks that are known, the latest first."""
        return sorted(self._state.tasks.values(), key=lambda task: -task.id)

    def task(self, id: int) -> Task:
        """A task by its number.  Raises NotFound."""
        task = self._state.tasks.get(id)
        if task is None:
            raise NotFound(f"task {id} does not exist")
        return task

    def start(self, request: TaskRequest) -> Task:
        """A task, which has made its first step.

        Raises InvalidTask, InvalidSelector, InvalidEdit, TooManyTasks; NotFound, AlreadyInUse or whatever else keeps
        the first step from being made.
        """
        state = self._state
        _check(request)
        filter = parse_selector(request.filter)
        active = sum(not task.state.ended for task in state.tasks.values())
        if active >= ACTIVE_MAX:
            raise TooManyTasks(f"{active} tasks have not ended: wait for one, or cancel it")
        queue = registry.find_queue(state, request.queue)
        queue.check_public()
        request = replace(request, queue=queue.name)
        task = Task(state.journal.allocate_ids(1), request, state.now, queue_id=queue.id, address=queue.address.name)
        task.progress.total = len(request.ids) or queue.message_count
        self._filters[task.id] = filter
        try:
            self._advance(task, queue)
        except EngineError:
            del self._filters[task.id]
            self._arrivals.pop(task.id, None)
            raise
        state.tasks[task.id] = task
        self._tell_started(task)
        if task.state.ended:
            self._tell_ended(task)
        self._save(task)
        self._plan(task)
        self._forget_old()
        return task

    def steer(self, task: Task, verb: TaskVerb) -> None:
        """Pause a task, resume or cancel it.  Raises AlreadyInUse when it is in no state for that."""
        self._state.begin()
        state = STEERING.get((task.state, verb))
        if state is None:
            raise AlreadyInUse(f"task {task.id} is {task.state.value}: it cannot {verb.value}")
        task.why = ""
        self._become(task, state)
        self._save(task)
        self._plan(task)

    @contextmanager
    def watched(self, task: Task, call: Callable[[], None]) -> Iterator[None]:
        """Make the call as soon as a task runs no more: at once if it does not run, else when it pauses or ends."""
        if task.state is not TaskState.RUNNING:
            call()
        self._watchers.setdefault(task.id, []).append(call)
        try:
            yield
        finally:
            watching = self._watchers[task.id]
            watching.remove(call)
            if not watching:
                del self._watchers[task.id]

    def go_on(self) -> None:
        """The broker serves again: tasks that were running go on."""
        for task in self._state.tasks.values():
            self._plan(task)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _plan(self, task: Task, done: int = 0) -> None:
        """When the next step comes, after one that moved so many messages."""
        state, key = self._state, ("task", task.id)
        state.alarms.cancel(key)
        if task.state is not TaskState.RUNNING:
            return

        def go_on() -> None:
            if self._state.tasks.get(task.id) is task and task.state is TaskState.RUNNING:
                self._state.alarms.at(key, self._state.now, lambda: self._step(task))

        if task.request.rate:
            state.alarms.at(key, state.now + max(1000 * done // task.request.rate, 1), lambda: self._step(task))
        elif state.journal.pending_bytes > state.limits.task_pending_max and not state.journal.empty:
            state.work.waiters[_Pace(go_on)] = None
        else:
            go_on()

    def _step(self, task: Task) -> None:
        """One step of a task that runs."""
        before = task.progress.moved
        try:
            queue = registry.find_queue(self._state, task.request.queue)
            if queue.id != task.queue_id:
                raise NotFound(f"queue {queue.name} was deleted, and another one has its name")
            if task.id not in self._filters:
                self._filters[task.id] = parse_selector(task.request.filter)
            self._advance(task, queue)
        except EngineError as refused:
            task.why = str(refused)
            self._become(task, TaskState.FAILED)
        done = task.progress.moved - before
        if task.state.ended:
            self._tell_ended(task)
        if done or task.state is not TaskState.RUNNING:
            self._save(task)
        self._plan(task, done)

    def _advance(self, task: Task, queue: Queue) -> None:
        """Move or remove the next messages, and note how far that came.  Raises EngineError."""
        request, progress = task.request, task.progress
        if request.ids:
            result = self._named(task, queue)
        elif not self._takes_all(task, queue):
            selection = MessageRange(
                self._filters[task.id],
                after=progress.last,
                below=progress.below,
                group=DeadLetterGroup(**request.group) if request.group else None,  # type: ignore[arg-type]
                most=self._most(request),
            )
            result = self._verb(request, queue, selection)
        else:
            result = self._all(task, queue)
        progress.moved += result.moved
        _count(progress.targets, result.targets)
        if DISK_FULL in result.refused:  # the next step looks at the same messages again
            task.why = _DISK_FULL
            self._become(task, TaskState.PAUSED)
            self._state.report("task.stuck", **_about(task), error=_DISK_FULL)
            return
        progress.looked_at += result.looked_at
        _count(progress.refused, result.refused)
        progress.last, progress.below = result.last, result.below
        if result.complete:
            self._become(task, TaskState.COMPLETED)

    def _most(self, request: TaskRequest) -> int:
        """Messages that a step looks at: as many as go in a tenth of a second at the task's rate."""
        most = self._state.limits.move_step_max
        return min(most, max(request.rate // 10, 1)) if request.rate else most

    def _verb(self, request: TaskRequest, queue: Queue, selection: MessageRange) -> MoveResult:
        options = MoveOptions(request.first_origin, request.edit, request.dry_run)
        if request.kind is TaskKind.RETRY:
            return self._messages.retry(queue, selection, options)
        if request.kind is TaskKind.MOVE:
            return self._messages.move(queue, request.target, selection, options)
        return self._messages.discard(queue, selection, options)

    def _named(self, task: Task, queue: Queue) -> MoveResult:
        """A step with messages that are named; `last` counts those that have been looked at."""
        ids, first = task.request.ids, task.progress.last
        result = self._verb(task.request, queue, MessageRange(ids=ids[first : first + self._most(task.request)]))
        last = first + result.looked_at
        result.below, result.last, result.complete = 0, last, last == len(ids)
        return result

    def _takes_all(self, task: Task, queue: Queue) -> bool:
        """Whether it is about all that the queue has: a deletion, or a purge until something else arrives there."""
        request = task.request
        if request.kind is TaskKind.DELETE_QUEUE:
            return True
        if _chooses(request) or request.rate or request.kind is not TaskKind.PURGE:
            return False
        arrivals = (queue.id, queue.counters.added)
        if not task.progress.below:
            self._arrivals[task.id] = arrivals
        return self._arrivals.get(task.id) == arrivals

    def _all(self, task: Task, queue: Queue) -> MoveResult:
        """A step of a purge, or of what precedes the deletion of a queue; at the end of that, the deletion."""
        request, remaining = task.request, max(task.progress.total - task.progress.moved, 0)
        if request.dry_run:
            return MoveResult(0, 0, True, moved=remaining, looked_at=remaining)
        below = task.progress.below or self._state.journal.allocate_ids(1)  # larger than that of any message so far
        some = self._messages.purge(queue) if remaining else 0
        complete = some == 0 or some >= remaining
        if complete and request.kind is TaskKind.DELETE_QUEUE:
            some += queue.message_count
            self._administration.delete_queue(queue, with_messages=True)
        return MoveResult(below, 0, complete, moved=some, looked_at=some)

    # -- states ----------------------------------------------------------------------------------------------------

    def _become(self, task: Task, state: TaskState) -> None:
        task.state = state
        if state is not TaskState.RUNNING:
            for call in self._watchers.get(task.id, ()):
                call()
        if state.ended:
            task.ended = self._state.now
            self._filters.pop(task.id, None)
            self._arrivals.pop(task.id, None)

    def _tell_started(self, task: Task) -> None:
        request = task.request
        chosen: dict[str, str | int] = {"filter": request.filter, "target": request.target, "rate": request.rate}
        chosen["ids"] = ", ".join(map(str, request.ids[:IDS_TOLD_MAX]))
        chosen |= {"edited": "true" if request.edit else "", "dry_run": "true" if request.dry_run else ""}
        chosen |= request.group
        chosen = {name: value for name, value in chosen.items() if value}
        self._state.report("task.started", **_about(task), **chosen, **request.by)

    def _tell_ended(self, task: Task) -> None:
        """Say what became of a task that ended by itself."""
        progress = task.progress
        counts: dict[str, str | int] = {"messages": progress.moved, "refused": sum(progress.refused.values())}
        if task.why:
            counts |= {"error": task.why}
        self._state.report(
            "task.failed" if task.state is TaskState.FAILED else "task.completed", **_about(task), **counts
        )

    def _save(self, task: Task) -> None:
        self._state.journal.define(task.id, record.task(task.id, task.definition()))

    def _forget_old(self) -> None:
        """Forget those that ended first, if there are many."""
        ended = sorted([task for task in self._state.tasks.values() if task.state.ended], key=lambda task: task.ended)
        for task in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._state.tasks[task.id]
            self._state.journal.undefine(task.id, record.task_deleted(task.id, {"name": str(task.id)}))


def _about(task: Task) -> dict[str, str | int]:
    """What the log says of a task in each line."""
    return {"task": task.id, "kind": task.request.kind.value, "queue": task.request.queue}


def _check(request: TaskRequest) -> None:
    """Raises InvalidTask, InvalidEdit."""
    if len(request.ids) > IDS_MAX:
        raise InvalidTask(f"a task names at most {IDS_MAX} messages, not {len(request.ids)}: give a filter")
    if request.ids and (request.filter or request.group):
        raise InvalidTask("name messages by their ids, or by a filter and a group, not by both")
    unknown = sorted(set(request.group) - {each.name for each in fields(DeadLetterGroup)})
    if unknown:
        raise InvalidTask(f"dead letters have no group by {unknown[0][:100]}")
    if bool(request.target) != (request.kind is TaskKind.MOVE):
        raise InvalidTask("a move, and nothing else, has a target: the address or queue that gets the messages")
    moves = request.kind in (TaskKind.RETRY, TaskKind.MOVE)
    if request.edit and not moves:
        raise InvalidTask(f"{request.kind.value} does not edit messages")
    if request.first_origin and request.kind is not TaskKind.RETRY:
        raise InvalidTask("only a retry goes to the first origin")
    if request.kind is TaskKind.DELETE_QUEUE and (request.ids or _chooses(request)):
        raise InvalidTask("a queue is deleted with all of its messages: name none")
    if request.kind is TaskKind.DELETE_QUEUE and request.rate:
        raise InvalidTask("a queue is deleted as fast as possible: purge it first if that must take its time")
    if not 0 <= request.rate <= RATE_MAX:
        raise InvalidTask(f"rate is from 1 to {RATE_MAX} messages a second, or 0 for as fast as possible")
    request.edit.check()


def _chooses(request: TaskRequest) -> bool:
    """Whether it is about some messages, whichever these are."""
    return bool(request.filter or request.group)


def _count(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        known = name if name in total or len(total) < TARGETS_MAX else OTHER_TARGETS
        total[known] = total.get(known, 0) + count
