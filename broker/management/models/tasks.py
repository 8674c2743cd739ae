"""Tasks as the API shows them."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from broker.engine.model.access import Identity
from broker.engine.model.edit import UNCHANGED, Edit
from broker.engine.model.task import Task, TaskKind, TaskRequest
from broker.management.models.base import ID_MAX, LIMIT_MAX, Body, Next, Shown, model_of
from broker.management.models.messages import PropertyName, PropertyValue

#: Characters of a group's value: a consumer's words are the longest.
VALUE_CHARS_MAX: Final = 4_096

#: Characters of a client's error.
ERROR_CHARS_MAX: Final = 1_000

KindName = Literal["retry", "move", "purge", "delete-queue", "export", "import", "replay"]
StateName = Literal["running", "paused", "completed", "cancelled", "failed"]


class Group(Body):
    """The values of a group of dead letters; null matches any value."""

    reason: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="Why they last died, for example `max-deliveries`."
    )
    origin: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="The queue or address where they last died."
    )
    first_origin: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="The queue or address where they first died."
    )
    words: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="What the consumer said, in full or as in the list of groups."
    )
    link: str | None = Field(None, max_length=VALUE_CHARS_MAX, description="The link on which they died.")
    remote_address: str | None = Field(None, max_length=VALUE_CHARS_MAX, description="The address behind the link.")
    remote_broker: str | None = Field(
        None, max_length=VALUE_CHARS_MAX, description="The name of the broker behind the link."
    )
    hour: int | None = Field(None, ge=0, le=ID_MAX, description="The start of the UTC hour in which they last died.")


class EditBody(Body):
    """How to edit the messages on their way."""

    remove: list[PropertyName] = Field([], description="Properties to remove.")
    set: dict[PropertyName, PropertyValue] = Field({}, description="Properties to set.")
    text: str | None = Field(None, description="The new body as text; null: unchanged.")
    base64: str | None = Field(None, description="The new body as bytes in Base64; null: unchanged.")

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
        """The engine's edit."""
        body = base64.b64decode(self.base64) if self.base64 is not None else None
        if self.text is not None:
            body = self.text.encode("utf-8", "replace")
        return Edit(tuple(self.remove), dict(self.set), body)


class NewTask(Body):
    """What to do with which messages of a queue; an import or replay has a name instead of a queue."""

    kind: KindName
    queue: str = Field("", description="The queue, or ADDRESS::QUEUE; an import or replay has none.")
    name: str = Field("", description="Of an import or replay: the name that its calls use too.")
    filter: str = Field("", description="Only messages that match this selector.")
    ids: list[Annotated[int, Field(ge=1, le=ID_MAX)]] = Field([], description="Only the messages with these ids.")
    group: Group = Field(Group(), description="Only dead letters with these values.")
    target: str = Field("", description="The target of a move or import: an address, a queue, or ADDRESS::QUEUE.")
    first_origin: bool = Field(
        False, description="A retry goes to where they first died, instead of where they last died."
    )
    edit: EditBody = EditBody()
    dry_run: bool = Field(False, description="Only count, change nothing.")
    rate: int = Field(0, ge=0, description="The most messages a second; 0: as fast as other clients allow.")
    remove: bool = Field(False, description="An export removes messages once its client has them on its disk.")
    total: int = Field(
        0, ge=0, le=ID_MAX, description="How many messages the client has for an import or replay; 0: unknown."
    )

    @model_validator(mode="after")
    def _no_blank_filter(self) -> NewTask:
        if self.filter.isspace():
            raise PydanticCustomError("blank-filter", "filter is blank: leave it out to take every message")
        return self

    def request(self, by: dict[str, str], identity: Identity | None) -> TaskRequest:
        """The engine's request; `by`, `identity`: who starts the task."""
        group = {name: value for name, value in self.group.model_dump().items() if value is not None}
        edit = self.edit.edit or UNCHANGED
        other = {"kind": TaskKind(self.kind), "ids": tuple(self.ids), "group": group, "edit": edit}
        return TaskRequest(**dict(self) | other, by=by, identity=identity)


class TaskEnd(Body):
    """How an export, import or replay ended."""

    error: str = Field("", max_length=ERROR_CHARS_MAX, description="Why the client cannot continue; empty: it is done.")


class ExportedIds(Body):
    """Exported messages that the client has on its disk."""

    ids: list[Annotated[int, Field(ge=1, le=ID_MAX)]] = Field(max_length=LIMIT_MAX)


class Removed(Shown):
    """What became of exported messages."""

    removed: int
    refused: dict[str, int] = Field(description="How many stay, by reason.")


class TaskShown(Shown):
    """A task: what was requested, and its progress."""

    id: int
    kind: KindName
    queue: str = Field(description="Empty for an import or replay.")
    name: str = Field(description="Of an import or replay.")
    filter: str
    ids: int = Field(description="How many messages it names by id.")
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
    why: str = Field(description="Why it failed, or why the broker paused it.")
    total: int = Field(
        description="Messages to process: on the queue at its start, named by id, or those of its client."
    )
    looked_at: int
    moved: int = Field(
        description="Messages moved, removed, exported, imported or replayed; in a dry run, those that would be."
    )
    refused: dict[str, int] = Field(description="How many stay, by reason.")
    targets: dict[str, int] = Field(description="How many went to each target.")


class TaskList(Shown):
    """Tasks, the latest first."""

    tasks: list[TaskShown]
    next: Next


def task_shown(task: Task) -> TaskShown:
    """A task as a model."""
    request, progress = task.request, task.progress
    return model_of(
        TaskShown,
        task,
        progress,
        request,
        kind=request.kind.value,
        ids=len(request.ids),
        group=dict(request.group),
        edited=bool(request.edit),
        by=dict(request.by),
        state=task.state.value,
        refused=dict(progress.refused),
        targets=dict(progress.targets),
    )
