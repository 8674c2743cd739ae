"""Tasks: operations of operators on more messages than fit into a tick, done step by step.

A task is stored in the journal.  Each step moves or removes some messages, and records the task's progress in the same
entry: after a crash it continues where it was, and its counts are exact.  The first step is made when a task is
started, so that a small task has ended by then, and one that cannot begin is refused.

Clients are served between two steps: a step takes some ms, and the next one follows a tick later at the earliest, once
the disk has nearly caught up, and not before the task's rate allows it.  An unexpected exception in a step is handled
as elsewhere: see the tick.

The steps of an export, an import and a replay are calls of a client (`TaskKind.driven`), which has a file, or another
journal, at its end.  Each call first checks whether it may be made (`may_step`), which it may not while the task is
paused or ahead of its rate, and is counted once it has done its work (`stepped`).  Such a task ends when its client
ends it (`end`), when an operator cancels it, when no call is made for a while, and when the broker stops: its client
cannot know what the last call did, and begins another task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Final

from broker.engine.delivery.subscribe import parse_selector
from broker.engine.model.errors import (
    AlreadyInUse,
    DiskFull,
    EngineError,
    InvalidTask,
    NotFound,
    TaskEnded,
    TooManyTasks,
)
from broker.engine.model.task import STEERING, Task, TaskKind, TaskRequest, TaskState, TaskVerb
from broker.engine.moves.dead_letter_groups import DeadLetterGroup
from broker.engine.moves.replay import NAME_CHARS_MAX
from broker.engine.moves.transfer import DISK_FULL, MessageRange
from broker.engine.operators.administration import Administration
from broker.engine.operators.messages import QueueMessages
from broker.engine.operators.task_steps import TaskSteps
from broker.engine.queues.queue import Queue
from broker.engine.queues.state import State
from store import record
from store.counted import counted

#: The most tasks running or paused at a time: each takes some ms of a tick.
ACTIVE_MAX: Final = 16

#: Ended tasks that stay on record: some weeks of an operator's work.
ENDED_KEPT: Final = 100

#: How long a task waits for its client's next call, in ms: the client may send a large body, or its user read output.
CLIENT_SILENCE_MS_MAX: Final = 15 * 60_000

#: The most messages that a task names by id: a page of a list, and a definition of some KiB in each step's entry.
IDS_MAX: Final = 1_000

#: How many of these ids are logged.
IDS_LOGGED_MAX: Final = 100

#: The highest rate of a task, in messages a second.
RATE_MAX: Final = 1_000_000

_CLIENT_GONE: Final = f"its client has made no call for {CLIENT_SILENCE_MS_MAX // 60_000} min"
_RESTARTED: Final = "the broker was restarted: repeat the command, which begins another task"

_DISK_FULL: Final = "the journal has no room for the next messages: resume the task when there is room"

#: How often a step that finds no room is tried, and after how many ms: the steps before it may yet free segments.
FULL_TRIES_MAX: Final = 3
FULL_RETRY_MS: Final = 1_000


class _Pace:
    """Waits for the disk on behalf of one task."""

    transport = None

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def durable(self, number: int) -> None:
        """Continue, as the previous step's entry is on disk."""
        self._go_on()


class Tasks:
    """The tasks of one broker."""

    def __init__(self, state: State, messages: QueueMessages, administration: Administration) -> None:
        self._state = state
        self._messages = messages
        self._steps = TaskSteps(state, messages, administration)
        self._by_id: dict[int, Task] = {}
        self._permit: Callable[[Task], None] = _anything

    def restore(self, tasks: Mapping[int, Task]) -> None:
        """Take over the tasks that the journal has; `go_on` resumes them."""
        self._by_id.update(tasks)

    def all(self) -> list[Task]:
        """All tasks on record, the latest first."""
        return sorted(self._by_id.values(), key=lambda task: -task.id)

    def task(self, id: int) -> Task:
        """A task by its number.  Raises NotFound."""
        task = self._by_id.get(id)
        if task is None:
            raise NotFound(f"task {id} does not exist")
        return task

    def start(self, request: TaskRequest) -> Task:
        """Start a task, making its first step, which the caller has permitted.

        Raises InvalidTask, InvalidSelector, InvalidEdit, TooManyTasks, and any error of the first step: NotFound,
        AlreadyInUse and others.
        """
        state = self._state
        _check(request)
        parse_selector(request.filter)
        driven = request.kind.driven
        active = sum(not task.state.ended and task.request.kind.driven is driven for task in self._by_id.values())
        if active >= ACTIVE_MAX:
            those = "exports, imports and replays" if driven else "tasks"
            raise TooManyTasks(f"{active} {those} have not ended: wait for one, or cancel it")
        task = Task(state.journal.allocate_ids(1), request, state.now)
        task.progress.total = request.total
        queue = None if request.kind.named else self._queue_of(task)
        if queue is not None and not driven:
            self._advance(task, queue)
        self._by_id[task.id] = task
        self._log_started(task)
        if task.state.ended:
            self._log_ended(task)
        self._save(task)
        self._plan(task, task.progress.moved)
        self._forget_old()
        return task

    def _queue_of(self, task: Task) -> Queue:
        """The queue of a new task.  Raises NotFound, AlreadyInUse."""
        queue = self._state.registry.find_queue(task.request.queue)
        queue.check_public()
        task.request = replace(task.request, queue=queue.name)
        task.queue_id, task.address = queue.id, queue.address.name
        task.progress.total = len(task.request.ids) or queue.message_count
        return queue

    def steer(self, task: Task, verb: TaskVerb) -> None:
        """Pause, resume or cancel a task.  Raises AlreadyInUse if its state does not allow that."""
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
        """Within this context, call `call` whenever a task changes its state or its client may make the next step."""
        task.watching.append(call)
        try:
            yield
        finally:
            task.watching.remove(call)

    def go_on(self, permit: Callable[[Task], None]) -> None:
        """Resume running tasks after a restart, and fail those driven by clients.

        `permit` is called before each step; if it raises EngineError, the user that started the task may not go on.
        """
        self._permit = permit
        for task in self._by_id.values():
            if task.request.kind.driven and not task.state.ended:
                self._end(task, TaskState.FAILED, _RESTARTED)
            else:
                self._plan(task)

    # -- clients' steps --------------------------------------------------------------------------------------------

    def may_step(self, task: Task, kind: TaskKind) -> bool:
        """Whether the client of a task may make its next step; if not, the call of `watched` says when to ask again.

        Raises InvalidTask for a task of another kind, TaskEnded.
        """
        if task.request.kind is not kind:
            raise InvalidTask(f"task {task.id} is not of kind {kind.value}, but {task.request.kind.value}")
        if task.state.ended:
            raise TaskEnded(f"task {task.id} is {task.state.value}" + (f": {task.why}" if task.why else ""))
        self._plan(task)
        return task.state is TaskState.RUNNING and task.turn <= self._state.now

    def most(self, task: Task) -> int:
        """The most messages that the next step of a task moves: a tenth of a second's worth at its rate."""
        return task.request.most_in_step or IDS_MAX

    def stepped(self, task: Task, *, looked_at: int, moved: int, refused: Mapping[str, int]) -> None:
        """Count a step that a client has made, also if its task ended meanwhile."""
        if task.id not in self._by_id:  # ended, and forgotten
            return
        if not task.state.ended and self.may_step(task, task.request.kind) and task.request.pace:
            task.turn = due = self._state.now + 1000 * moved // task.request.pace
            self._state.alarms.at(("turn", task.id), due, lambda: self._notify(task))
        if task.request.remove:  # messages count as moved once they have left the queue
            moved = 0
        task.progress.add(moved, looked_at, {}, refused)
        self._save(task)

    def remove(self, task: Task, ids: tuple[int, ...]) -> int:
        """Remove messages that an export has in its file (purged), the first of `ids`; returns how many of these.

        Raises NotFound, InvalidTask, TaskEnded, DiskFull; those removed before are counted.
        """
        self.may_step(task, TaskKind.EXPORT)
        if not task.request.remove:
            raise InvalidTask(f"task {task.id} is an export that removes no messages")
        queue = self.queue_of(task)
        result = self._messages.discard(queue, MessageRange(ids=ids[: self._state.limits.move_step_max]))
        staying = result.refused.pop(DISK_FULL, 0)
        task.progress.add(result.moved, 0, result.targets, result.refused)  # looked at when they were exported
        self._save(task)
        if staying:
            raise DiskFull(f"the journal has no room: {counted(staying, 'exported message')} cannot be removed")
        return result.looked_at

    def end(self, task: Task, error: str) -> None:
        """Complete a client's task or, with `error`, fail it.  Raises InvalidTask, TaskEnded."""
        if not task.request.kind.driven:
            raise InvalidTask(f"task {task.id} is run by the broker: wait until it ends, or cancel it")
        self.may_step(task, task.request.kind)
        self._end(task, TaskState.FAILED if error else TaskState.COMPLETED, error)

    def queue_of(self, task: Task) -> Queue:
        """The queue of a task that has one.  Raises NotFound."""
        queue = self._state.registry.find_queue(task.request.queue)
        if queue.id != task.queue_id:
            raise NotFound(f"queue {queue.name} was deleted, and another one has its name")
        return queue

    def _end(self, task: Task, state: TaskState, why: str) -> None:
        task.why = why
        self._become(task, state)
        self._log_ended(task)
        self._save(task)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _plan(self, task: Task, done: int = 0) -> None:
        """Schedule the next step, after one that moved `done` messages."""
        state, key = self._state, ("task", task.id)
        state.alarms.cancel(key)
        if task.request.kind.driven and not task.state.ended:
            due = state.now + CLIENT_SILENCE_MS_MAX
            state.alarms.at(key, due, lambda: self._end(task, TaskState.FAILED, _CLIENT_GONE))
            return
        if task.state is not TaskState.RUNNING:
            return

        def go_on() -> None:
            if self._by_id.get(task.id) is task and task.state is TaskState.RUNNING:
                self._state.alarms.at(key, self._state.now, lambda: self._step(task))

        if task.request.pace and done:
            task.turn = state.now + max(1000 * done // task.request.pace, 1)
        if task.turn > state.now:
            state.alarms.at(key, task.turn, lambda: self._step(task))
        elif state.journal.pending_bytes > state.limits.task_pending_max and not state.journal.empty:
            state.pending.work.waiters[_Pace(go_on)] = None
        else:
            go_on()

    def _step(self, task: Task) -> None:
        """Make one step of a running task."""
        before = task.progress.moved
        try:
            queue = self.queue_of(task)
            self._permit(task)
            self._advance(task, queue)
        except EngineError as refused:
            task.why = str(refused)
            self._become(task, TaskState.FAILED)
        done = task.progress.moved - before
        if task.state.ended:
            self._log_ended(task)
        if done or task.state is not TaskState.RUNNING:
            self._save(task)
        self._plan(task, done)

    def _advance(self, task: Task, queue: Queue) -> None:
        """Move or remove the next messages, and update the progress.  Raises EngineError."""
        result = self._steps.step(task, queue)
        progress = task.progress
        if DISK_FULL in result.refused:  # the next step looks at the same messages again
            progress.add(result.moved, 0, result.targets, {})
            task.tries = 0 if result.moved else task.tries + 1
            if task.tries < FULL_TRIES_MAX:
                task.turn = self._state.now + FULL_RETRY_MS
                return
            task.tries = 0
            task.why = _DISK_FULL
            self._become(task, TaskState.PAUSED)
            self._state.report("task.stuck", **task.log_fields, error=_DISK_FULL)
            return
        task.tries = 0
        progress.add(result.moved, result.looked_at, result.targets, result.refused)
        progress.last, progress.below = result.last, result.below
        if result.complete:
            self._become(task, TaskState.COMPLETED)

    # -- states ----------------------------------------------------------------------------------------------------

    def _become(self, task: Task, state: TaskState) -> None:
        task.state = state
        self._notify(task)
        if state.ended:
            task.ended = self._state.now
            self._state.alarms.cancel(("task", task.id))
            self._state.alarms.cancel(("turn", task.id))

    def _notify(self, task: Task) -> None:
        for call in task.watching:
            call()

    def _log_started(self, task: Task) -> None:
        request = task.request
        chosen: dict[str, str | int] = {"filter": request.filter, "target": request.target, "rate": request.rate}
        chosen["ids"] = ", ".join(map(str, request.ids[:IDS_LOGGED_MAX]))
        flags = {"edited": request.edit, "dry_run": request.dry_run, "removes": request.remove}
        chosen |= {name: "true" for name, value in flags.items() if value}
        chosen |= request.group
        chosen = {name: value for name, value in chosen.items() if value}
        self._state.report("task.started", **task.log_fields, **chosen, **request.by)

    def _log_ended(self, task: Task) -> None:
        """Report a task that completed or failed."""
        progress = task.progress
        counts: dict[str, str | int] = {"messages": progress.moved, "refused": sum(progress.refused.values())}
        if task.why:
            counts |= {"error": task.why}
        self._state.report(
            "task.failed" if task.state is TaskState.FAILED else "task.completed", **task.log_fields, **counts
        )

    def _save(self, task: Task) -> None:
        self._state.journal.define(task.id, record.task(task.id, task.definition()))

    def _forget_old(self) -> None:
        """Forget the tasks that ended first, if there are too many."""
        ended = sorted([task for task in self._by_id.values() if task.state.ended], key=lambda task: task.ended)
        for task in ended[: max(len(ended) - ENDED_KEPT, 0)]:
            del self._by_id[task.id]
            self._state.journal.undefine(task.id, record.task_deleted(task.id, {"name": str(task.id)}))


def _anything(task: Task) -> None:
    """Permit every step."""


def _check(request: TaskRequest) -> None:
    """Raises InvalidTask, InvalidEdit."""
    if len(request.ids) > IDS_MAX:
        raise InvalidTask(f"a task names at most {IDS_MAX} messages, not {len(request.ids)}: give a filter")
    if request.ids and (request.filter or request.group):
        raise InvalidTask("name messages by their ids, or by a filter and a group, not by both")
    unknown = sorted(set(request.group) - {each.name for each in fields(DeadLetterGroup)})
    if unknown:
        raise InvalidTask(f"dead letters have no group by {unknown[0][:100]}")
    _check_kind(request)
    moves = request.kind in (TaskKind.RETRY, TaskKind.MOVE)
    if request.edit and not moves:
        raise InvalidTask(f"{request.kind.value} does not edit messages")
    if request.first_origin and request.kind is not TaskKind.RETRY:
        raise InvalidTask("only a retry goes to the first origin")
    if request.kind is TaskKind.DELETE_QUEUE and (request.ids or request.chooses):
        raise InvalidTask("a queue is deleted with all of its messages: name none")
    if request.kind is TaskKind.DELETE_QUEUE and request.rate:
        raise InvalidTask("a queue is deleted as fast as possible: purge it first if that must take its time")
    if not 0 <= request.rate <= RATE_MAX:
        raise InvalidTask(f"rate is from 1 to {RATE_MAX} messages a second, or 0 for as fast as possible")
    request.edit.check()


def _check_kind(request: TaskRequest) -> None:
    """Check the fields that only some kinds have.  Raises InvalidTask."""
    kind = request.kind
    if bool(request.queue) == kind.named:
        raise InvalidTask(f"{kind.value} has a name and no queue" if kind.named else f"{kind.value} needs a queue")
    valid = 0 < len(request.name) <= NAME_CHARS_MAX and request.name.isprintable()
    if not (valid if kind.named else not request.name):
        raise InvalidTask(f"an import or replay, and nothing else, has a name, of at most {NAME_CHARS_MAX} characters")
    if kind.named and (request.ids or request.chooses):
        raise InvalidTask(f"the client of {kind.value} chooses the messages: name none")
    if bool(request.target) != (kind is TaskKind.MOVE) and not kind.named:
        raise InvalidTask("a move needs a target, the address or queue that gets the messages; only it takes one")
    if request.group and kind is TaskKind.EXPORT:
        raise InvalidTask("an export selects messages by ids or by a filter, not by a group")
    if request.remove and (kind is not TaskKind.EXPORT or request.dry_run):
        raise InvalidTask("only an export that is not a dry run can remove the messages it exports")
    if request.dry_run and kind is TaskKind.REPLAY:
        raise InvalidTask("a replay has no dry run here: its client, which reads the journal, counts the messages")
    if request.total < 0 or (request.total and not kind.named):
        raise InvalidTask("total is how many messages the client will send in an import or replay; 0: unknown")
