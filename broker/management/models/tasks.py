"""Tasks as the API has them."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.task import Task, TaskKind, TaskRequest
from broker.management.models.base import ID_MAX, LIMIT_MAX, Body, Next, Shown
from broker.management.models.messages import PropertyName, PropertyValue

#: Characters of a group's value: the words of a consumer are the longest.
VALUE_CHARS_MAX: Final = 4_096

#: Characters of why a client cannot go on.
ERROR_CHARS_MAX: Final = 1_000

KindName = Literal["retry", "move", "purge", "delete-queue", "export", "import", "replay"]
StateName = Literal["running", "paused", "completed", "cancelled", "failed"]


class Group(Body):
    """The values of a group of dead letters; what is null does not matter."""

    reason: str | None = Field(None, max_length=VALUE_CHARS_MAX, description="Why they died last: `max-deliveries`.")
    origin: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="The queue, or address, of the last death."
    )
    first_origin: str | None = Field(None, max_length=VALUE_CHARS_MAX, description="The same of the first death.")
    words: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="What the consumer said, in full or as groups have it."
    )
    hour: int | None = Field(None, ge=0, le=ID_MAX, description="When the hour began in which they died.")


class EditBody(Body):
    """What is changed in the messages on their way."""

    remove: list[PropertyName] = Field([], description="Properties that are taken away.")
    set: dict[PropertyName, PropertyValue] = Field({}, description="Properties that they get.")
    text: str | None = Field(None, description="The new body, a text; null: it stays.")
    base64: str | None = Field(None, description="The new body, bytes in Base64; null: it stays.")

    @model_validator(mode="after")
    def _one_body(self) -> EditBody:
        if self.text is not None and self.base64 is not None:
            raise PydanticCustomError("two-bodies", "give text or base64, not both")
        try:
            base64.b64decode(self.base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise PydanticCustomError("not-base64", "base64 is not Base64") from None
        return self

    @property
    def edit(self) -> Edit:
        """The same for the engine."""
        body = base64.b64decode(self.base64) if self.base64 is not None else None
        if self.text is not None:
            body = self.text.encode("utf-8", "replace")
        return Edit(tuple(self.remove), dict(self.set), body)


class NewTask(Body):
    """What is to be done with which messages of a queue; of an import or replay, under which name."""

    kind: KindName
    queue: str = Field("", description="The queue, or ADDRESS::QUEUE; an import or replay has none.")
    name: str = Field("", description="Of an import or replay: a name that its calls have too.")
    filter: str = Field("", description="Only messages that match this selector.")
    ids: list[Annotated[int, Field(ge=1, le=ID_MAX)]] = Field([], description="Only the messages with these ids.")
    group: Group = Field(Group(), description="Only dead letters with these values.")
    target: str = Field("", description="Where a move or import goes: an address, a queue, or ADDRESS::QUEUE.")
    first_origin: bool = Field(False, description="A retry goes to where they died first, instead of last.")
    edit: EditBody = EditBody()
    dry_run: bool = Field(False, description="Only count.")
    rate: int = Field(0, ge=0, description="Messages a second at most; 0: as fast as other clients allow.")
    remove: bool = Field(False, description="An export removes messages that its client has on its disk.")
    total: int = Field(
        0, ge=0, le=ID_MAX, description="Messages that the client has for an import or replay; 0: it does not know."
    )

    def request(self, by: dict[str, str]) -> TaskRequest:
        """The same for the engine."""
        group = {name: value for name, value in self.group.model_dump().items() if value is not None}
        return TaskRequest(
            kind=TaskKind(self.kind),
            queue=self.queue,
            filter=self.filter,
            ids=tuple(self.ids),
            group=group,
            target=self.target,
            first_origin=self.first_origin,
            edit=self.edit.edit or UNCHANGED,
            dry_run=self.dry_run,
            rate=self.rate,
            by=by,
            name=self.name,
            total=self.total,
            remove=self.remove,
        )


class TaskEnd(Body):
    """How a task whose steps its client makes has ended."""

    error: str = Field(
        "", max_length=ERROR_CHARS_MAX, description="Why the client cannot go on; empty: it has done all."
    )


class ExportedIds(Body):
    """Messages that a client has exported, and has on its disk."""

    ids: list[Annotated[int, Field(ge=1, le=ID_MAX)]] = Field(max_length=LIMIT_MAX)


class Removed(Shown):
    """What became of exported messages."""

    removed: int
    refused: dict[str, int] = Field(description="How many stay, by why.")


class TaskShown(Shown):
    """A task: what was asked for, and how far it came."""

    id: int
    kind: KindName
    queue: str = Field(description="Empty for an import or replay.")
    name: str = Field(description="Of an import or replay.")
    filter: str
    ids: int = Field(description="How many messages it names one by one.")
    group: dict[str, str | int]
    target: str
    first_origin: bool
    edited: bool = Field(description="Whether it changes the messages.")
    dry_run: bool
    rate: int
    remove: bool
    by: dict[str, str] = Field(description="Who started it: user or token, operator, remote.")
    created: int
    state: StateName
    ended: int
    why: str = Field(description="Why it failed, or paused by itself.")
    total: int = Field(description="Messages on the queue when it started, that it names, or that its client has.")
    looked_at: int
    moved: int = Field(
        description="Messages that were moved or removed (exported, imported, replayed); in a dry run, that would be."
    )
    refused: dict[str, int] = Field(description="How many stay, by why.")
    targets: dict[str, int] = Field(description="How many went where.")


class TaskList(Shown):
    """Tasks, the latest first."""

    tasks: list[TaskShown]
    next: Next


def task_shown(task: Task) -> TaskShown:
    """A task of the engine's."""
    request, progress = task.request, task.progress
    return TaskShown(
        id=task.id,
        kind=request.kind.value,
        queue=request.queue,
        name=request.name,
        filter=request.filter,
        ids=len(request.ids),
        group=dict(request.group),
        target=request.target,
        first_origin=request.first_origin,
        edited=bool(request.edit),
        dry_run=request.dry_run,
        rate=request.rate,
        remove=request.remove,
        by=dict(request.by),
        created=task.created,
        state=task.state.value,
        ended=task.ended,
        why=task.why,
        total=progress.total,
        looked_at=progress.looked_at,
        moved=progress.moved,
        refused=dict(progress.refused),
        targets=dict(progress.targets),
    )
