"""Operators' tasks: the request, the progress, and the form in the journal.

running --pause--> paused --resume--> running        by an operator; a full disk pauses it too
running, paused --cancel--> cancelled
running --> completed | failed                       automatically

A client drives the tasks of some kinds step by step: it has the other end of the data, a file or another journal.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from broker.engine.model.access import Identity
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.row import kebab

#: The most targets for which messages are counted separately; the others are counted together.
TARGETS_MAX: Final = 50
OTHER_TARGETS: Final = "others"


class TaskKind(StrEnum):
    """What a task does with the messages of a queue."""

    RETRY = "retry"
    MOVE = "move"
    PURGE = "purge"
    DELETE_QUEUE = "delete-queue"
    EXPORT = "export"
    IMPORT = "import"
    REPLAY = "replay"

    @property
    def driven(self) -> bool:
        """Whether a client makes its steps, not the broker."""
        return self in (TaskKind.EXPORT, TaskKind.IMPORT, TaskKind.REPLAY)

    @property
    def named(self) -> bool:
        """Whether it concerns the whole broker, and has a name instead of a queue."""
        return self in (TaskKind.IMPORT, TaskKind.REPLAY)


class TaskState(StrEnum):
    """The state of a task."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether the task is over."""
        return self not in (TaskState.RUNNING, TaskState.PAUSED)


class TaskVerb(StrEnum):
    """What an operator may do with a task."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


#: The verbs allowed in each state, and the state they lead to.
STEERING: Final[Mapping[tuple[TaskState, TaskVerb], TaskState]] = {
    (TaskState.RUNNING, TaskVerb.PAUSE): TaskState.PAUSED,
    (TaskState.PAUSED, TaskVerb.RESUME): TaskState.RUNNING,
    (TaskState.RUNNING, TaskVerb.CANCEL): TaskState.CANCELLED,
    (TaskState.PAUSED, TaskVerb.CANCEL): TaskState.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """An operator's request: which messages of which queue, and what to do with them.

    `ids` names messages one by one, `filter` is a selector, `group` the values of a group of dead letters (fields of
    `DeadLetterGroup`); without any of these, all messages on the queue when the task starts.
    `target`: where a move goes.  `rate`: messages moved a second, 0: as fast as other clients allow.
    `dry_run`: only count.  `by`: who started it, as logged; `identity`: the user who must be permitted each step, None:
    the broker's own token has started it.
    `name`: of an import or replay, which have no `queue`; `total`: how many messages its client will send, 0: unknown.
    `remove`: an export removes messages once they are in its file.
    """

    kind: TaskKind
    queue: str = ""
    filter: str = ""
    ids: tuple[int, ...] = ()
    group: Mapping[str, str | int] = field(default_factory=dict)
    target: str = ""
    first_origin: bool = False
    edit: Edit = UNCHANGED
    dry_run: bool = False
    rate: int = 0
    by: Mapping[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    name: str = ""
    total: int = 0
    remove: bool = False

    @property
    def pace(self) -> int:
        """The most messages that the task moves a second; 0: no limit, as for a dry run, which moves none."""
        return 0 if self.dry_run else self.rate

    @property
    def most_in_step(self) -> int:
        """The most messages that a step moves: a tenth of a second's worth at the task's rate; 0: it has no rate."""
        return max(self.pace // 10, 1) if self.pace else 0

    @property
    def chooses(self) -> bool:
        """Whether it selects messages by a filter or a group."""
        return bool(self.filter or self.group)


@dataclass(slots=True)
class Progress:
    """The progress of a task.

    `total`: messages on the queue when it started; `looked_at`: how many of them were looked at so far; `moved`: moved
    or removed (or exported, imported, replayed), or in a dry run those that would be; `refused`: how many stayed, by
    reason; `targets`: how many went to each target.  `last` and `below` are the bounds of the next step
    (`MessageRange`).
    """

    total: int = 0
    looked_at: int = 0
    moved: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    last: int = 0
    below: int = 0

    def add(self, moved: int, looked_at: int, targets: Mapping[str, int], refused: Mapping[str, int]) -> None:
        """Add the result of a step."""
        self.moved += moved
        self.looked_at += looked_at
        _count(self.targets, targets)
        _count(self.refused, refused)


def _count(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        known = name if name in total or len(total) < TARGETS_MAX else OTHER_TARGETS
        total[known] = total.get(known, 0) + count


@dataclass(slots=True, eq=False)
class Task:
    """A task.  Times in ms since the epoch, 0: not yet.  `why`: why the broker paused it, or why it failed.

    `queue_id` and `address` identify its queue: the task ignores a later queue of the same name, and users with
    `manage` on the queue may still look at the task after the queue is deleted.  Empty if it has no queue.

    The rest is forgotten by a restart.  `turn`: when the next step may be made, if not at once; `tries`: how often it
    has found no room; `arrivals`: of a purge, its queue's id and count of arrivals when it started; `watching`: called
    when the state changes, or a client may make the next step.
    """

    id: int
    request: TaskRequest
    created: int
    state: TaskState = TaskState.RUNNING
    ended: int = 0
    why: str = ""
    progress: Progress = field(default_factory=Progress)
    queue_id: int = 0
    address: str = ""
    turn: int = 0
    tries: int = 0
    arrivals: tuple[int, int] | None = None
    watching: list[Callable[[], None]] = field(default_factory=list)

    @property
    def log_fields(self) -> dict[str, str | int]:
        """The fields that identify it in each log line."""
        log_fields: dict[str, str | int] = {"task": self.id, "kind": self.request.kind.value}
        return log_fields | {name: value for name in ("queue", "name") if (value := getattr(self.request, name))}

    def definition(self) -> dict[str, object]:
        """The task as the journal stores it."""
        request = self.request
        roles = request.identity and request.identity.lasting_roles
        edit: dict[str, object] = {"remove": list(request.edit.remove), "add": dict(request.edit.add)}
        if request.edit.body is not None:
            edit["body"] = base64.b64encode(request.edit.body).decode()
        return {
            "name": str(self.id),
            "kind": request.kind.value,
            "named": request.name,
            "queue-id": self.queue_id,
            "address": self.address,
            "edit": edit if request.edit else {},
            "group": dict(request.group),
            "by": dict(request.by),
            **({} if roles is None else {"roles": roles}),
            "created": self.created,
            "state": self.state.value,
            "ended": self.ended,
            "why": self.why,
            **{kebab(name): getattr(request, name) for name in _OF_REQUEST},
            **{kebab(name): getattr(self.progress, name) for name in _OF_PROGRESS},
        }


#: The fields that a definition has under their own names.
_OF_REQUEST: Final = ("queue", "filter", "ids", "target", "first_origin", "dry_run", "rate", "remove")
_OF_PROGRESS: Final = tuple(each.name for each in fields(Progress))


def _identity(definition: Mapping[str, Any]) -> Identity | None:
    """The user whose permissions a stored task needs."""
    user = definition["by"].get("user")
    return None if user is None else Identity.stored(user, definition.get("roles"))


def read_task(id: int, definition: Mapping[str, Any]) -> Task:
    """The inverse of `Task.definition`."""
    edit = definition["edit"]
    body = edit.get("body")
    kind = TaskKind(definition["kind"])
    own = {name: definition[kebab(name)] for name in _OF_REQUEST if kebab(name) in definition}
    request = TaskRequest(
        **own | {"ids": tuple(definition["ids"])},
        kind=kind,
        group=definition["group"],
        edit=Edit(tuple(edit.get("remove", ())), edit.get("add", {}), None if body is None else base64.b64decode(body)),
        by=definition["by"],
        identity=_identity(definition),
        name=definition.get("named", ""),
        total=definition["total"] if kind.named else 0,
    )
    return Task(
        id,
        request,
        definition["created"],
        TaskState(definition["state"]),
        definition["ended"],
        definition["why"],
        Progress(**{name: definition[kebab(name)] for name in _OF_PROGRESS}),
        definition["queue-id"],
        definition["address"],
    )
